//! Wrappers of HTTP bodies that count what passes, at the listener.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::metrics::Metrics;

/// The body of a request; adds its bytes to [`Metrics`] and gives up on a client that stalls.
#[derive(Debug)]
pub(crate) struct CountedRequest {
    inner: Incoming,
    metrics: Arc<Metrics>,
    patience: Duration,
    /// Runs while the client is waited for.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// Why reading a request's body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestBodyError {
    /// The connection broke, or its framing is wrong.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// Nothing came for too long.
    #[error("no data came for {0:?}")]
    Stalled(Duration),
}

impl CountedRequest {
    /// Waits at most `patience` for each piece of the body.
    pub(crate) fn new(inner: Incoming, metrics: Arc<Metrics>, patience: Duration) -> Self {
        Self { inner, metrics, patience, stalled: None }
    }
}

impl Body for CountedRequest {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Poll::Ready(polled) = Pin::new(&mut self.inner).poll_frame(cx) else {
            let patience = self.patience;
            let sleep = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
            return sleep.as_mut().poll(cx).map(|()| Some(Err(RequestBodyError::Stalled(patience))));
        };
        self.stalled = None;
        if let Some(Ok(frame)) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.metrics.http_received(data.len() as u64);
        }
        Poll::Ready(polled.map(|result| result.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Told about the bytes of a response, and dropped when the last of them is out.
pub(crate) trait ResponseObserver: Send + 'static {
    /// `bytes` more were handed to the connection.
    fn sent(&mut self, bytes: u64);
}

/// The body of a response; keeps its observer until the response is done or its client gone.
#[derive(Debug)]
pub(crate) struct ObservedResponse<B, O> {
    inner: B,
    observer: O,
}

impl<B, O> ObservedResponse<B, O> {
    pub(crate) fn new(inner: B, observer: O) -> Self {
        Self { inner, observer }
    }
}

impl<B, O> Body for ObservedResponse<B, O>
where
    B: Body<Data = Bytes> + Unpin,
    O: ResponseObserver + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let length = data.len() as u64;
            self.observer.sent(length);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Count(Arc<AtomicU64>);
    impl ResponseObserver for Count {
        fn sent(&mut self, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn counts_what_is_sent() {
        let count = Arc::new(AtomicU64::new(0));
        let body = ObservedResponse::new(Full::new(Bytes::from_static(b"12345")), Count(Arc::clone(&count)));
        assert_eq!(body.size_hint().exact(), Some(5));
        body.collect().await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 5);
    }
}
