//! What the gateway knows about a request beside its S3 content, and what became of it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What carried an object's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carrier {
    /// The HTTP body (also of requests without a body).
    #[default]
    Http,
    /// RDMA.
    Rdma,
}

impl Carrier {
    /// The name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Rdma => "rdma",
        }
    }
}

/// Facts of a request, in its extensions from the listener to the operation.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// `x-amz-request-id`.
    pub(crate) id: String,
    /// The client's address; none on Unix sockets.
    pub(crate) peer: Option<IpAddr>,
    /// The address the request came in on.
    pub(crate) local: Option<IpAddr>,
    /// The version of TLS, `TLSv1.3` or `TLSv1.2`; none on a connection without.
    pub(crate) tls: Option<&'static str>,
    /// Whether the client sends a body, as framed on the wire.
    pub(crate) has_body: bool,
    /// Whether the client said how long the body is (or by sending none, that there is none).
    pub(crate) states_length: bool,
    /// When the request's head had been read.
    pub(crate) started: Instant,
    outcome: Mutex<Outcome>,
}

/// What became of a request; filled in on its way through the layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The S3 operation, once it is known.
    pub(crate) operation: Option<&'static str>,
    /// Bucket of the path.
    pub(crate) bucket: Option<String>,
    /// Key of the path.
    pub(crate) key: Option<String>,
    /// Access key of the authenticated caller.
    pub(crate) requester: Option<String>,
    /// What carried the object.
    pub(crate) carrier: Carrier,
    /// Bytes read from the client's memory.
    pub(crate) rdma_in: u64,
    /// Bytes written to the client's memory.
    pub(crate) rdma_out: u64,
    /// Size of the object the request was about.
    pub(crate) object_size: Option<u64>,
    /// Version of it.
    pub(crate) version: Option<String>,
}

impl RequestContext {
    pub(crate) fn new(
        id: String,
        peer: Option<IpAddr>,
        local: Option<IpAddr>,
        tls: Option<&'static str>,
        head: &http::HeaderMap,
    ) -> Self {
        let chunked = head.contains_key(http::header::TRANSFER_ENCODING);
        let length = head.get(http::header::CONTENT_LENGTH);
        Self {
            id,
            peer,
            local,
            tls,
            has_body: chunked || length.is_some_and(|v| v.as_bytes().iter().any(|b| *b != b'0')),
            states_length: length.is_some(),
            started: Instant::now(),
            outcome: Mutex::default(),
        }
    }

    /// The outcome so far.
    pub(crate) fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context that the listener put into a request's extensions.
    pub(crate) fn of(extensions: &http::Extensions) -> Option<&Arc<Self>> {
        extensions.get::<Arc<Self>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(&[] => (false, false); "nothing said")]
    #[test_case(&[("content-length", "0")] => (false, true))]
    #[test_case(&[("content-length", "000")] => (false, true))]
    #[test_case(&[("content-length", "10")] => (true, true))]
    #[test_case(&[("transfer-encoding", "chunked")] => (true, false))]
    fn framing(headers: &[(&'static str, &'static str)]) -> (bool, bool) {
        let mut map = http::HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, http::HeaderValue::from_static(value));
        }
        let context = RequestContext::new(String::new(), None, None, None, &map);
        (context.has_body, context.states_length)
    }
}
