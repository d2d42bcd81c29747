//! GET: from a source to the client's memory.
//!
//! A worker reads each piece into a chunk and hands it to a lane, which writes it to the client.
//! Several pieces are under way at a time, so reading runs ahead of writing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::pieces::Span;
use super::pool::Chunk;
use super::request::{Reply, Request};
use super::router::{Port, Router};
use super::running::{Piece, Running};
use super::transport::Direction;
use super::workers::{JobQueue, JobSender};
use super::{BlockSource, RemoteWindow, TransferError};

/// State that the pieces of a GET share.
pub(super) struct Push<S> {
    running: Arc<Running>,
    jobs: JobSender,
    queue: Arc<JobQueue>,
    router: Arc<Router>,
    port: Arc<Port>,
    window: RemoteWindow,
    /// Taken out at the end of the transfer, so that no late reference to this keeps the source.
    source: Mutex<Option<Arc<S>>>,
    source_offset: u64,
}

impl<S: BlockSource> Push<S> {
    pub(super) fn new(
        running: Arc<Running>,
        jobs: JobSender,
        (router, port): (Arc<Router>, Arc<Port>),
        window: RemoteWindow,
        (source, source_offset): (Arc<S>, u64),
    ) -> Arc<Self> {
        let source = Mutex::new(Some(source));
        Arc::new(Self { running, jobs, queue: Arc::default(), router, port, window, source, source_offset })
    }

    /// Begins a piece.
    pub(super) fn begin(self: &Arc<Self>, span: Span, chunk: Chunk, piece: Piece) {
        let job = Loading { push: Arc::clone(self), span, chunk, piece };
        self.jobs.submit(&self.queue, move || job.load());
    }

    /// Ends the transfer: lets the source go.
    pub(super) fn end(&self) {
        self.source.lock().expect("source lock").take();
    }
}

/// A read that waits for a worker. Fields drop in this order: the account last.
struct Loading<S> {
    push: Arc<Push<S>>,
    span: Span,
    chunk: Chunk,
    piece: Piece,
}

impl<S: BlockSource> Loading<S> {
    fn load(self) {
        let Self { push, span, mut chunk, piece } = self;
        let source = push.source.lock().expect("source lock").clone();
        let Some(source) = source.filter(|_| push.running.is_wanted()) else {
            drop((push, chunk));
            return piece.abandon();
        };
        let offset = push.source_offset + span.offset;
        let read = catch_unwind(AssertUnwindSafe(|| source.read_block(offset, span.length, &mut chunk)));
        drop(source);
        let error = match read {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(TransferError::Source(error)),
            Err(_) => Some(TransferError::Internal("the source panicked")),
        };
        if let Some(error) = error {
            drop((push, chunk));
            return piece.fail(error);
        }
        let request = Request {
            direction: Direction::Write,
            descriptor: Arc::clone(&push.window.descriptor),
            remote_start: push.window.start + span.offset,
            length: span.length,
            chunk,
            reply: Box::new(PushReply { push: Arc::clone(&push), span, piece }),
            attempts: 0,
            moves: 0,
            avoid: None,
        };
        push.router.dispatch(&push.port, request);
    }
}

/// Receives the end of a piece's RDMA WRITE. Fields drop in this order: the account last.
struct PushReply<S> {
    push: Arc<Push<S>>,
    span: Span,
    piece: Piece,
}

impl<S: BlockSource> Reply for PushReply<S> {
    fn is_wanted(&self) -> bool {
        self.push.running.is_wanted()
    }

    fn retried(&self) {
        self.push.running.count_retry();
    }

    fn done(self: Box<Self>, outcome: Result<Chunk, TransferError>) {
        let Self { push, span, piece } = *self;
        drop(push);
        match outcome {
            Ok(chunk) => {
                drop(chunk);
                piece.succeed(span.length);
            }
            Err(error) => piece.fail(error),
        }
    }
}
