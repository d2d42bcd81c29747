//! Why a transfer or the start of an engine failed, and which side is at fault.

use std::io;
use std::time::Duration;

use super::ConfigError;
use crate::rdma::{self, DescriptorError, Errno, WcStatus};

/// Who has to act on a [`TransferError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client: its token or its memory.
    Client,
    /// The network, or the device on either end of it.
    Fabric,
    /// The sink or the source.
    Storage,
    /// This process: too much to do, or shutting down. Worth another try later.
    Load,
    /// This process: a defect.
    Internal,
}

/// Failure of a transfer. How many bytes had moved by then is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// No chunk of memory came free in time, or too many transfers are running.
    #[error("no RDMA memory free after {waited:?}; retry, or give the gateway a larger pool")]
    Busy {
        /// How long the transfer waited.
        waited: Duration,
    },
    /// The client's memory or token does not allow the operation.
    #[error("the client's memory refused the operation: {status}")]
    Remote {
        /// Status of the completion.
        status: WcStatus,
    },
    /// The operation failed on the way or in a device, or was flushed too often.
    #[error("RDMA operation failed: {status}")]
    Fabric {
        /// Status of the completion.
        status: WcStatus,
    },
    /// The operation did not complete within the completion timeout; its memory is quarantined.
    #[error("RDMA operation without completion after {waited:?}")]
    Timeout {
        /// How long it was in flight.
        waited: Duration,
    },
    /// The transport refused the operation.
    #[error("RDMA operation refused: {0}")]
    Refused(#[source] rdma::Error),
    /// No endpoint is in service.
    #[error("no RDMA endpoint is in service")]
    NoEndpoint,
    /// The sink failed.
    #[error("cannot store the object's bytes: {0}")]
    Sink(#[source] io::Error),
    /// The source failed; `UnexpectedEof` when it was shorter than announced.
    #[error("cannot read the object's bytes: {0}")]
    Source(#[source] io::Error),
    /// The range asked for lies outside the client's window.
    #[error(transparent)]
    Window(#[from] DescriptorError),
    /// The engine takes no more transfers.
    #[error("the RDMA engine is shutting down")]
    ShuttingDown,
    /// A sink, a source, a digest or the engine itself panicked.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl TransferError {
    /// The failure that a completion status means.
    pub fn of_status(status: WcStatus) -> Self {
        if status.blames_remote_memory() { Self::Remote { status } } else { Self::Fabric { status } }
    }

    /// Which side is at fault.
    pub fn side(&self) -> Side {
        match self {
            Self::Remote { .. } | Self::Window(_) => Side::Client,
            // The token's GID flag does not fit the network of the endpoint.
            Self::Refused(rdma::Error::Call { errno: Errno(libc::EAFNOSUPPORT), .. }) => Side::Client,
            Self::Fabric { .. } | Self::Timeout { .. } | Self::Refused(_) | Self::NoEndpoint => Side::Fabric,
            Self::Sink(_) | Self::Source(_) => Side::Storage,
            Self::Busy { .. } | Self::ShuttingDown => Side::Load,
            Self::Internal(_) => Side::Internal,
        }
    }

    /// The completion status behind the failure, when there was one.
    pub fn status(&self) -> Option<WcStatus> {
        match self {
            Self::Remote { status } | Self::Fabric { status } => Some(*status),
            _ => None,
        }
    }
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is nothing to transfer over.
    #[error("the RDMA engine needs at least one endpoint")]
    NoEndpoint,
    /// There is no memory, or a lease is smaller than a chunk.
    #[error("the RDMA engine needs at least one lease, each of {chunk_size} bytes or more")]
    NoMemory {
        /// The chunk size that was configured.
        chunk_size: usize,
    },
    /// No endpoint gave a channel.
    #[error("cannot open an RDMA channel on {endpoint}: {source}")]
    NoChannel {
        /// Name of the endpoint.
        endpoint: String,
        /// Why.
        source: rdma::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread of the RDMA engine: {0}")]
    Thread(#[source] io::Error),
}
