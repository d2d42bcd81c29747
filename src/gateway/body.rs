//! Wrappers of HTTP bodies that count what passes, at the listener.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::metrics::Metrics;

/// How long the rest of a body that nobody wants is read, for the client to get to the answer.
const LINGER: Duration = Duration::from_secs(30);
/// How long each piece of it is waited for.
const LINGER_IDLE: Duration = Duration::from_secs(2);

/// The body of a request; adds its bytes to [`Metrics`] and gives up on a client that stalls.
///
/// One that is dropped before its end, because the request has its answer without it, is read on for a
/// while and thrown away: a connection that is closed with bytes unread is reset, and the answer with
/// it, under a client that still sends.
#[derive(Debug)]
pub(crate) struct CountedRequest {
    /// `None` once it broke.
    inner: Option<Incoming>,
    metrics: Arc<Metrics>,
    patience: Duration,
    /// Runs while the client is waited for.
    stalled: Option<Pin<Box<Sleep>>>,
    /// The client sends only when it is told to, by the first look at the body.
    is_held_back: bool,
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
    /// Waits at most `patience` for each piece of the body of the request with these headers.
    pub(crate) fn new(
        inner: Incoming,
        headers: &HeaderMap,
        metrics: Arc<Metrics>,
        patience: Duration,
    ) -> Self {
        let is_held_back = headers.contains_key(header::EXPECT);
        Self { inner: Some(inner), metrics, patience, stalled: None, is_held_back }
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let wanted = |body: &Incoming| !body.is_end_stream() && !self.is_held_back;
        let Some(mut rest) = self.inner.take().filter(wanted) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let metrics = Arc::clone(&self.metrics);
        runtime.spawn(tokio::time::timeout(LINGER, async move {
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(LINGER_IDLE, rest.frame()).await {
                metrics.http_received(data_length(&frame));
            }
        }));
    }
}

fn data_length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

impl Body for CountedRequest {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        this.is_held_back = false;
        let Poll::Ready(polled) = Pin::new(inner).poll_frame(cx) else {
            let patience = this.patience;
            let sleep = this.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
            return sleep.as_mut().poll(cx).map(|()| {
                this.inner = None;
                Some(Err(RequestBodyError::Stalled(patience)))
            });
        };
        this.stalled = None;
        match &polled {
            Some(Ok(frame)) => this.metrics.http_received(data_length(frame)),
            Some(Err(_)) => this.inner = None,
            None => {}
        }
        Poll::Ready(polled.map(|result| result.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
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
    use http_body_util::Full;
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
