//! Errors of the safe layer: the operation that failed, and the library's code.

use std::fmt;

use super::WcStatus;

/// Result of an operation of the safe layer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A positive `errno` number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Errno {
    /// The number behind a negative return value of the library.
    #[cfg(any(feature = "server", feature = "client"))]
    pub(crate) fn of(code: i64) -> Self {
        Self(i32::try_from(code.unsigned_abs()).unwrap_or(i32::MAX))
    }
}

/// Failure of an operation of the safe layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server endpoint could not start its RDMA session.
    #[error("no RDMA session on {address}: {reason} ({library})")]
    NotConnected {
        /// The address that was asked for.
        address: String,
        /// Which cuObject library is in this binary.
        library: String,
        /// What the library said.
        reason: String,
    },
    /// The client library could not start.
    #[error("cuObject client cannot start: {reason} ({library})")]
    ClientUnavailable {
        /// Which cuObject library is in this binary.
        library: String,
        /// What the library said, or that it did not answer in time.
        reason: String,
    },
    /// Host memory could not be had.
    #[error("cannot allocate {bytes} bytes of host memory: {source}")]
    Allocate {
        /// The size asked for.
        bytes: usize,
        /// The cause.
        source: std::io::Error,
    },
    /// The library refused to register a buffer.
    #[error("cannot register {bytes} bytes with {device}: {reason}")]
    Register {
        /// The size of the buffer.
        bytes: usize,
        /// Endpoint address or client.
        device: String,
        /// The library's text or code.
        reason: String,
    },
    /// No channel is free on the endpoint.
    #[error("no free RDMA channel on {address}")]
    NoChannel {
        /// The endpoint's address.
        address: String,
    },
    /// A call into the library failed before or without a completion.
    #[error("{operation}: {errno} ({code}){detail}")]
    Call {
        /// The function of the class that failed.
        operation: &'static str,
        /// The error number.
        errno: Errno,
        /// The raw code the library returned.
        code: i64,
        /// Text of an exception or of the shim, with a leading `: `, or empty.
        detail: String,
    },
    /// An operation completed with a failure.
    #[error("{operation}: completion status {status}")]
    Completion {
        /// The function of the class.
        operation: &'static str,
        /// The status of the completion.
        status: WcStatus,
    },
    /// An argument is outside what the library takes.
    #[error("{operation}: {what}")]
    Invalid {
        /// The function refused.
        operation: &'static str,
        /// What is wrong with which argument, and the bound.
        what: String,
    },
    /// The library answered that it will not, without a code that says more.
    #[error("{operation} was refused: {reason}")]
    Refused {
        /// The function of the class.
        operation: &'static str,
        /// The shim's text.
        reason: String,
    },
    /// The library threw a C++ exception; the shim caught it.
    #[error("{operation} threw: {what}")]
    Exception {
        /// The function of the class.
        operation: &'static str,
        /// The exception's text.
        what: String,
    },
    /// The library in this binary has no such function.
    #[error("{operation} is not supported: {what}")]
    Unsupported {
        /// The function asked for.
        operation: &'static str,
        /// The shim's text.
        what: String,
    },
    /// A thread for the library could not be started.
    #[error("cannot start a thread for {operation}: {source}")]
    Thread {
        /// What it was for.
        operation: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A callback given to the client panicked or returned an error.
    #[error("{operation}: {message}")]
    Callback {
        /// The function that ran the callback.
        operation: &'static str,
        /// The error's or the panic's text.
        message: String,
    },
}
