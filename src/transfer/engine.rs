//! The engine's public face: start, transfers, statistics, drain.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::transport::Endpoint;
use super::{BlockSink, BlockSource, EngineConfig, EngineStats, OrderedSink, StartError, TransferError};
use crate::rdma::{Descriptor, Lease};

/// A range of a client's memory that a transfer reads or writes.
#[derive(Clone, Debug)]
pub struct RemoteWindow {
    /// The client's token.
    pub descriptor: Arc<Descriptor>,
    /// First byte, in the client's address space.
    pub start: u64,
    /// Bytes to move.
    pub length: u64,
    /// The local address that received the request: names the endpoint when the token does not.
    pub endpoint_hint: Option<IpAddr>,
}

/// What a transfer did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferReport {
    /// Bytes moved.
    pub bytes: u64,
    /// RDMA operations that it took, retried ones counted once.
    pub operations: u64,
    /// Operations that were submitted again.
    pub retries: u64,
    /// From the call to the end.
    pub elapsed: Duration,
    /// Time spent waiting for memory.
    pub waited: Duration,
    /// Name of the endpoint that was chosen; empty when no byte moved.
    pub endpoint: Arc<str>,
}

/// Moves object bodies between clients' memory and storage. Share it in an `Arc`.
#[derive(Debug)]
pub struct Engine {}

#[allow(unused_variables)]
impl Engine {
    /// Opens channels on every endpoint and starts the threads.
    ///
    /// The leases are the memory that transfers pass through; each must be registered with every
    /// endpoint and hold at least a chunk.
    ///
    /// # Errors
    /// When a setting is out of bounds, or no endpoint gives a channel. Endpoints that fail while
    /// another works are tried again in the background.
    pub fn start(
        config: EngineConfig,
        endpoints: Vec<Arc<dyn Endpoint>>,
        leases: Vec<Lease>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        Ok(Self {})
    }

    /// PUT: reads the client's window and gives its bytes to `sink` (at offsets from 0, in any
    /// order, from several threads) and to `ordered` (in order), and gives `ordered` back.
    ///
    /// When this returns, well or not, the engine holds no reference to the sink. Dropping the
    /// future cancels the transfer: operations in flight end in the background, a write that has
    /// begun ends, no other begins, and then the sink is released.
    ///
    /// # Errors
    /// See [`TransferError`]; the sink's content is then of no use.
    pub async fn pull<S: BlockSink, D: OrderedSink>(
        &self,
        window: RemoteWindow,
        sink: Arc<S>,
        ordered: D,
    ) -> Result<(TransferReport, D), TransferError> {
        Err(TransferError::NoEndpoint)
    }

    /// GET: reads `window.length` bytes of `source` from `source_offset` and writes them into the
    /// client's window.
    ///
    /// When this returns, well or not, no operation touches the client's memory any more (but for
    /// [`TransferError::Timeout`]), and the engine holds no reference to the source. Dropping the
    /// future cancels the transfer as with [`pull`](Self::pull).
    ///
    /// # Errors
    /// See [`TransferError`]; the client's memory may then hold a part of the bytes.
    pub async fn push<S: BlockSource>(
        &self,
        window: RemoteWindow,
        source: Arc<S>,
        source_offset: u64,
    ) -> Result<TransferReport, TransferError> {
        Err(TransferError::NoEndpoint)
    }

    /// The gauges and counters.
    pub fn stats(&self) -> EngineStats {
        EngineStats::default()
    }

    /// Takes no more transfers and waits for those that run, cancelled ones included, for at most
    /// `limit`. True when all have ended.
    pub async fn drain(&self, limit: Duration) -> bool {
        true
    }
}
