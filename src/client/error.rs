//! Failures of the client, by what failed.

use std::time::Duration;

use http::StatusCode;

/// Result of a client operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of a client operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint is not a URL that can be used. Nothing was sent.
    #[error("endpoint {text:?}: {reason}; write for example http://gateway:7070")]
    Endpoint {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An argument is out of its bounds. Nothing was sent.
    #[error("{what}")]
    Invalid {
        /// Which argument, and the bound.
        what: String,
    },
    /// No connection could be made. Nothing was sent.
    #[error("cannot connect to {endpoint}: {source}")]
    Connect {
        /// Host and port.
        endpoint: String,
        /// The cause of the last address tried.
        source: std::io::Error,
    },
    /// Certificates could not be loaded. Nothing was sent.
    #[error("certificates of {place}: {reason}")]
    Certificates {
        /// File or store.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The request could not be signed. Nothing was sent.
    #[error("cannot sign the request: {reason}")]
    Sign {
        /// The signer's text.
        reason: String,
    },
    /// The connection broke or the reply was not HTTP. The request may have been carried out.
    #[error("{operation}: connection failed: {source}")]
    Transport {
        /// Method and target.
        operation: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer came in time. The request may have been carried out.
    #[error("{operation}: {what} within {} s", after.as_secs_f64())]
    Timeout {
        /// Method and target.
        operation: String,
        /// What did not happen.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The gateway answered with an S3 error.
    #[error("{operation}: {status} {code}: {message}{}", request_id.as_deref().map(|id| format!(" (request {id})")).unwrap_or_default())]
    S3 {
        /// Method and target.
        operation: String,
        /// HTTP status.
        status: StatusCode,
        /// S3 error code, or the status' reason where the body had none.
        code: String,
        /// S3 message.
        message: String,
        /// `x-amz-request-id`.
        request_id: Option<String>,
        /// `Retry-After`, when the gateway gave one.
        retry_after: Option<Duration>,
    },
    /// The gateway does not do this operation by RDMA; nothing was stored.
    #[error(
        "{operation}: the gateway declined RDMA ({reason}); it is switched off there or not offered for this operation: use standard S3, or start the gateway with --rdma-ip"
    )]
    Declined {
        /// Method and target.
        operation: String,
        /// The S3 message or the reply's value.
        reason: String,
    },
    /// The reply breaks the protocol; the transfer must not be trusted.
    #[error("{operation}: {breach}")]
    Reply {
        /// Method and target.
        operation: String,
        /// Which rule was broken.
        breach: super::reply::Breach,
    },
    /// A body ended early or ran over.
    #[error("{operation}: body has {actual} bytes, expected {expected}")]
    BodyLength {
        /// Method and target.
        operation: String,
        /// Bytes seen (at least this many).
        actual: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// Registration, a token, or another call of the RDMA layer failed.
    #[error(transparent)]
    Rdma(#[from] crate::rdma::Error),
    /// Memory of a GPU could not be had, registered, read or written.
    #[error(transparent)]
    Gpu(#[from] crate::gpu::Error),
}

impl Error {
    /// True when the same request with a fresh token may succeed: the connection failed, nothing
    /// came in time, or the gateway named a passing state (500, 502, 503, 504).
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Transport { .. } | Self::Timeout { .. } => true,
            Self::S3 { status, .. } => matches!(status.as_u16(), 500 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// True when the gateway gave a complete answer, so that it is done with the client's memory.
    ///
    /// After any other failure an RDMA operation may still be on its way.
    pub fn is_answer(&self) -> bool {
        match self {
            // A proxy answers these while the gateway may still be at work.
            Self::S3 { status, .. } => !matches!(status.as_u16(), 502 | 504),
            Self::Declined { .. } | Self::Reply { .. } | Self::BodyLength { .. } => true,
            _ => self.sent_nothing(),
        }
    }

    /// True when the request never left this process.
    pub fn sent_nothing(&self) -> bool {
        matches!(
            self,
            Self::Endpoint { .. }
                | Self::Invalid { .. }
                | Self::Connect { .. }
                | Self::Certificates { .. }
                | Self::Sign { .. }
                | Self::Rdma(_)
                | Self::Gpu(_)
        )
    }

    /// The S3 error code, when the gateway sent one.
    pub fn s3_code(&self) -> Option<&str> {
        match self {
            Self::S3 { code, .. } => Some(code),
            _ => None,
        }
    }

    /// The HTTP status of an S3 error.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::S3 { status, .. } => Some(*status),
            _ => None,
        }
    }
}
