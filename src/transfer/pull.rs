//! PUT: from the client's memory to a sink and a digest.
//!
//! Each piece goes through three hands. A lane reads it from the client into a chunk; a worker
//! writes the chunk to the sink; whichever worker finds the next piece in order present feeds it to
//! the digest, while other workers go on with writes. The chunk then goes back to the pool.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::pieces::Span;
use super::pool::Chunk;
use super::request::Reply;
use super::running::{Piece, Running};
use super::workers::{JobQueue, JobSender};
use super::{BlockSink, OrderedSink, TransferError};

/// Bytes that a digest takes between two looks at the clock.
const DIGEST_SLICE: usize = 256 << 10;
/// How long a digest may keep a worker while other jobs wait.
const DIGEST_QUANTUM: Duration = Duration::from_millis(2);

/// State that the pieces of a PUT share.
pub(super) struct Pull<S, D> {
    running: Arc<Running>,
    jobs: JobSender,
    queue: Arc<JobQueue>,
    /// Taken out at the end of the transfer, so that no late reference to this keeps the sink.
    sink: Mutex<Option<Arc<S>>>,
    is_ordered: bool,
    ordered: Mutex<Ordered<D>>,
}

struct Ordered<D> {
    /// `None` while a worker feeds it.
    digest: Option<D>,
    /// Index of the piece that the digest needs next.
    next: usize,
    /// Pieces that have been written and wait for their turn.
    landed: BTreeMap<usize, Landed>,
}

/// A piece whose bytes are in memory. Fields drop in this order: the chunk before the account.
struct Landed {
    chunk: Chunk,
    span: Span,
    piece: Piece,
}

impl Landed {
    fn bytes(&self) -> &[u8] {
        &self.chunk[..self.span.length]
    }

    fn succeed(self) {
        drop(self.chunk);
        self.piece.succeed(self.span.length);
    }

    fn fail(self, error: TransferError) {
        drop(self.chunk);
        self.piece.fail(error);
    }

    fn abandon(self) {
        drop(self.chunk);
        self.piece.abandon();
    }
}

impl<S: BlockSink, D: OrderedSink> Pull<S, D> {
    pub(super) fn new(running: Arc<Running>, jobs: JobSender, sink: Arc<S>, digest: D) -> Arc<Self> {
        Arc::new(Self {
            running,
            jobs,
            queue: Arc::default(),
            sink: Mutex::new(Some(sink)),
            is_ordered: digest.is_needed(),
            ordered: Mutex::new(Ordered { digest: Some(digest), next: 0, landed: BTreeMap::new() }),
        })
    }

    /// Begins nothing more, and drops the pieces that wait for their turn.
    pub(super) fn stop(&self) {
        self.running.stop();
        self.purge();
    }

    /// Drops the pieces that wait for their turn. To be called once the transfer is stopped: from
    /// then on no other piece begins to wait.
    pub(super) fn purge(&self) {
        let landed = std::mem::take(&mut self.ordered.lock().expect("digest lock").landed);
        landed.into_values().for_each(Landed::abandon);
    }

    /// Ends the transfer: lets the sink go and gives the digest back.
    pub(super) fn end(&self) -> Option<D> {
        self.sink.lock().expect("sink lock").take();
        self.ordered.lock().expect("digest lock").digest.take()
    }

    /// A worker's job: writes a piece to the sink and passes it on to the digest.
    fn store(self: Arc<Self>, landed: Landed) {
        let sink = self.sink.lock().expect("sink lock").clone();
        let Some(sink) = sink.filter(|_| self.running.is_wanted()) else { return landed.abandon() };
        let written = catch_unwind(AssertUnwindSafe(|| sink.write_at(landed.span.offset, landed.bytes())));
        drop(sink);
        match written {
            Ok(Ok(())) if self.is_ordered => self.arrive(landed),
            Ok(Ok(())) => landed.succeed(),
            Ok(Err(error)) => landed.fail(TransferError::Sink(error)),
            Err(_) => landed.fail(TransferError::Internal("the sink panicked")),
        }
    }

    fn arrive(self: Arc<Self>, landed: Landed) {
        let mut ordered = self.ordered.lock().expect("digest lock");
        if !self.running.is_wanted() {
            drop(ordered);
            return landed.abandon();
        }
        ordered.landed.insert(landed.span.index, landed);
        let turn = ordered.turn();
        drop(ordered);
        if let Some((digest, landed)) = turn {
            self.feed(digest, landed, 0);
        }
    }

    /// A worker's job: feeds pieces to the digest, from byte `at` of the first, for as long as the
    /// next one is there; gives way to other jobs from time to time.
    fn feed(self: Arc<Self>, mut digest: D, mut landed: Landed, mut at: usize) {
        let since = Instant::now();
        loop {
            if !self.running.is_wanted() {
                return landed.abandon();
            }
            let end = (at + DIGEST_SLICE).min(landed.span.length);
            let slice = &landed.bytes()[at..end];
            if catch_unwind(AssertUnwindSafe(|| digest.update(slice))).is_err() {
                return landed.fail(TransferError::Internal("the digest panicked"));
            }
            at = end;
            if at == landed.span.length {
                let mut ordered = self.ordered.lock().expect("digest lock");
                ordered.digest = Some(digest);
                let turn = ordered.turn();
                drop(ordered);
                landed.succeed();
                let Some(next) = turn else { return };
                (digest, landed) = next;
                at = 0;
            }
            if self.jobs.queued() > 0 && since.elapsed() > DIGEST_QUANTUM {
                let (jobs, queue) = (self.jobs.clone(), Arc::clone(&self.queue));
                let rest = Feeding { pull: self, digest, landed };
                return jobs.submit(&queue, move || {
                    let Feeding { pull, digest, landed } = rest;
                    pull.feed(digest, landed, at);
                });
            }
        }
    }
}

/// A digest that waits for a worker. Fields drop in this order: the account last.
struct Feeding<S, D> {
    pull: Arc<Pull<S, D>>,
    digest: D,
    landed: Landed,
}

impl<D> Ordered<D> {
    /// Takes the digest and the next piece, when both are there.
    fn turn(&mut self) -> Option<(D, Landed)> {
        let landed = match self.digest {
            Some(_) => self.landed.remove(&self.next)?,
            None => return None,
        };
        self.next += 1;
        self.digest.take().map(|digest| (digest, landed))
    }
}

/// Receives the end of a piece's RDMA READ. Fields drop in this order: the account last.
pub(super) struct PullReply<S, D> {
    pub(super) pull: Arc<Pull<S, D>>,
    pub(super) span: Span,
    pub(super) piece: Piece,
}

impl<S: BlockSink, D: OrderedSink> Reply for PullReply<S, D> {
    fn is_wanted(&self) -> bool {
        self.pull.running.is_wanted()
    }

    fn retried(&self) {
        self.pull.running.count_retry();
    }

    fn done(self: Box<Self>, outcome: Result<Chunk, TransferError>) {
        let Self { pull, span, piece } = *self;
        match outcome {
            Ok(chunk) if pull.running.is_wanted() => {
                let landed = Landed { chunk, span, piece };
                let (jobs, queue) = (pull.jobs.clone(), Arc::clone(&pull.queue));
                let job = Storing { pull, landed };
                jobs.submit(&queue, move || {
                    let Storing { pull, landed } = job;
                    pull.store(landed);
                });
            }
            Ok(chunk) => {
                drop((pull, chunk));
                piece.abandon();
            }
            Err(error) => {
                drop(pull);
                piece.fail(error);
            }
        }
    }
}

/// A write that waits for a worker. Fields drop in this order: the account last.
struct Storing<S, D> {
    pull: Arc<Pull<S, D>>,
    landed: Landed,
}
