//! The one way from async code to the store's blocking calls.

use std::sync::Arc;

use s3s::{S3Error, S3ErrorCode, S3Result};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A bound on blocking calls in progress, over tokio's blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    permits: Arc<Semaphore>,
}

impl Blocking {
    /// Lets `limit` calls run at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS))) }
    }

    /// Runs `work` on a blocking thread, waiting for one to be free.
    ///
    /// Dropping the future does not stop work that has begun.
    pub(crate) async fn run<T, F>(&self, work: F) -> S3Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        joined(self.spawn(work).await).await
    }

    /// Starts `work` as soon as the bound allows and gives its handle; see [`joined`].
    pub(crate) async fn spawn<T, F>(&self, work: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // The semaphore is never closed; without a permit the work would still be correct.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
    }
}

/// The result of a blocking task; one that panicked becomes `InternalError`.
pub(crate) async fn joined<T>(handle: JoinHandle<T>) -> S3Result<T> {
    handle.await.map_err(|error| {
        tracing::error!(%error, "a blocking call panicked");
        S3Error::with_source(S3ErrorCode::InternalError, Box::new(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn never_more_than_the_limit() {
        let blocking = Blocking::new(3);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs = (0..24).map(|_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            blocking.run(move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(2));
                now.fetch_sub(1, Ordering::SeqCst);
            })
        });
        futures_util::future::try_join_all(jobs).await.unwrap();
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test]
    async fn a_panic_is_an_internal_error() {
        let error = Blocking::new(1).run(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!(*error.code(), S3ErrorCode::InternalError);
    }
}
