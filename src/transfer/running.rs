//! The life of one transfer: what is outstanding, the first error, who waits for the end.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use super::{EngineStats, TransferError};

/// Transfers of an engine: how many run, and whether more may begin.
#[derive(Default)]
pub(super) struct Transfers {
    running: AtomicUsize,
    closed: AtomicBool,
    idle: Notify,
    done: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    busy: AtomicU64,
}

impl Transfers {
    /// Admits a transfer, unless the engine is closed or already runs `most`.
    pub(super) fn admit(self: &Arc<Self>, most: usize) -> Result<Caller, TransferError> {
        // Counted first, looked at second: `drain` closes first and counts second, so that one of
        // the two sees the other.
        let before = self.running.fetch_add(1, Ordering::SeqCst);
        let running = Arc::new(Running {
            transfers: Arc::clone(self),
            outstanding: AtomicUsize::new(1),
            stopped: AtomicBool::new(false),
            error: Mutex::new(None),
            waker: AtomicWaker::new(),
            bytes: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        });
        let caller = Caller { running, ended: false };
        if self.closed.load(Ordering::SeqCst) {
            return Err(caller.refused(TransferError::ShuttingDown));
        }
        if before >= most {
            return Err(caller.refused(TransferError::Busy { waited: std::time::Duration::ZERO }));
        }
        Ok(caller)
    }

    /// Admits no more transfers.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until none runs.
    pub(super) async fn idle(&self) {
        loop {
            let changed = self.idle.notified();
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }

    fn left(&self) {
        if self.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.idle.notify_waiters();
        }
    }

    pub(super) fn fill(&self, stats: &mut EngineStats) {
        stats.transfers_running = self.running.load(Ordering::SeqCst);
        stats.transfers_done = self.done.load(Ordering::Relaxed);
        stats.transfers_failed = self.failed.load(Ordering::Relaxed);
        stats.transfers_cancelled = self.cancelled.load(Ordering::Relaxed);
        stats.transfers_busy = self.busy.load(Ordering::Relaxed);
    }
}

/// State that a transfer's pieces share.
pub(super) struct Running {
    transfers: Arc<Transfers>,
    /// Pieces that hold memory, and 1 for the caller.
    outstanding: AtomicUsize,
    stopped: AtomicBool,
    error: Mutex<Option<TransferError>>,
    waker: AtomicWaker,
    bytes: AtomicU64,
    retries: AtomicU64,
}

impl Running {
    /// False once the transfer has failed or its caller has gone: no more is to be begun.
    pub(super) fn is_wanted(&self) -> bool {
        !self.stopped.load(Ordering::Acquire)
    }

    /// Records the first error and stops the transfer.
    fn fail(&self, error: TransferError) {
        let mut first = self.error.lock().expect("error lock");
        if first.is_none() && self.is_wanted() {
            *first = Some(error);
        }
        drop(first);
        self.stop();
    }

    /// Begins nothing more.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// An operation of the transfer is submitted again.
    pub(super) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    fn leave(&self) {
        let before = self.outstanding.fetch_sub(1, Ordering::AcqRel);
        if before == 1 {
            self.transfers.left();
        }
        self.waker.wake();
    }

    /// Waits until at most `pieces` are outstanding, or the transfer is stopped.
    pub(super) async fn until(&self, pieces: usize) {
        self.wait(|| self.outstanding.load(Ordering::Acquire) <= pieces + 1 || !self.is_wanted()).await;
    }

    /// Waits until no piece is outstanding.
    pub(super) async fn until_quiet(&self) {
        self.wait(|| self.outstanding.load(Ordering::Acquire) <= 1).await;
    }

    /// Waits until the transfer is stopped.
    pub(super) async fn until_stopped(&self) {
        self.wait(|| !self.is_wanted()).await;
    }

    async fn wait(&self, ready: impl Fn() -> bool) {
        std::future::poll_fn(|cx| {
            if ready() {
                return Poll::Ready(());
            }
            self.waker.register(cx.waker());
            if ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// A piece of a transfer, from before its memory is in use until after it is given back.
///
/// Whatever way a piece ends, it ends by consuming or dropping this, after its chunk and its
/// reference to the sink or source have been dropped.
pub(super) struct Piece {
    running: Arc<Running>,
    ended: bool,
}

impl Piece {
    /// The piece is done.
    pub(super) fn succeed(mut self, bytes: usize) {
        self.running.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.ended = true;
    }

    /// The piece failed, and the transfer with it.
    pub(super) fn fail(mut self, error: TransferError) {
        self.running.fail(error);
        self.ended = true;
    }

    /// The piece is not wanted any more.
    pub(super) fn abandon(mut self) {
        self.ended = true;
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.ended {
            self.running.fail(TransferError::Internal("a piece of a transfer was lost to a panic or a stop"));
        }
        self.running.leave();
    }
}

/// The caller's share in a transfer. Dropped before [`end`](Self::end), it cancels the transfer.
pub(super) struct Caller {
    running: Arc<Running>,
    ended: bool,
}

impl Caller {
    pub(super) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Begins another piece.
    pub(super) fn piece(&self) -> Piece {
        self.running.outstanding.fetch_add(1, Ordering::AcqRel);
        Piece { running: Arc::clone(&self.running), ended: false }
    }

    /// Stops the transfer with an error of the caller's own.
    pub(super) fn fail(&self, error: TransferError) {
        self.running.fail(error);
    }

    /// Ends a transfer whose pieces have all ended.
    pub(super) fn end(mut self) -> Result<(), TransferError> {
        self.ended = true;
        let error = self.running.error.lock().expect("error lock").take();
        let transfers = &self.running.transfers;
        match error {
            Some(error) => {
                let busy = matches!(error, TransferError::Busy { .. });
                let counter = if busy { &transfers.busy } else { &transfers.failed };
                counter.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
            None => {
                transfers.done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Ends a transfer that has not begun, with an error.
    pub(super) fn refused(self, error: TransferError) -> TransferError {
        self.fail(error);
        self.end().expect_err("the error has just been set")
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.ended {
            self.running.stop();
            self.running.transfers.cancelled.fetch_add(1, Ordering::Relaxed);
        }
        self.running.leave();
    }
}
