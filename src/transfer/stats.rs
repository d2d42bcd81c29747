//! Gauges and counters of the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::rdma::WcStatus;

/// What an engine holds and has done. Gauges say how it is now; counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// Gauge: chunks there are, whatever their state.
    pub chunks_total: usize,
    /// Gauge: chunks nobody holds.
    pub chunks_free: usize,
    /// Gauge: chunks held by transfers.
    pub chunks_leased: usize,
    /// Gauge: chunks whose operation timed out and may still be live.
    pub chunks_quarantined: usize,
    /// Chunks withheld for good, because a device may reach them for ever.
    pub chunks_lost: usize,
    /// Gauge: channels open and in service, over all endpoints.
    pub channels_open: usize,
    /// Gauge: channels taken out because an operation on them timed out.
    pub channels_condemned: usize,
    /// Gauge: operations submitted and not completed.
    pub operations_in_flight: usize,
    /// Gauge: operations waiting for a channel.
    pub operations_queued: usize,
    /// Gauge: transfers that hold or want memory, those cancelled but not yet ended included.
    pub transfers_running: usize,
    /// Gauge: transfers waiting for a chunk.
    pub transfers_waiting: usize,
    /// Gauge: jobs for worker threads that no worker has taken yet.
    pub jobs_queued: usize,
    /// Counter: transfers that ended well.
    pub transfers_done: u64,
    /// Counter: transfers that failed.
    pub transfers_failed: u64,
    /// Counter: transfers given up by their caller.
    pub transfers_cancelled: u64,
    /// Counter: transfers refused as busy.
    pub transfers_busy: u64,
    /// Counter: bytes read from clients.
    pub bytes_read: u64,
    /// Counter: bytes written to clients.
    pub bytes_written: u64,
    /// Counter: operations that completed well.
    pub operations_done: u64,
    /// Counter: operations submitted again after a flush or a refusal.
    pub operations_retried: u64,
    /// Counter: operations that timed out.
    pub operations_timed_out: u64,
    /// Counter: completions that failed, by status, flushes included.
    pub failures: BTreeMap<u32, u64>,
    /// Counter: times a transfer had to wait for a chunk.
    pub chunk_waits: u64,
    /// Counter: time spent waiting for chunks, over all transfers.
    pub chunk_wait_time: Duration,
    /// The endpoints, in the order given at the start.
    pub endpoints: Vec<EndpointStats>,
}

/// Part of [`EngineStats`] that belongs to one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Its name.
    pub name: String,
    /// Whether transfers are sent to it.
    pub in_service: bool,
    /// Gauge: its channels in service.
    pub channels_open: usize,
    /// Gauge: operations submitted and not completed.
    pub operations_in_flight: usize,
    /// Counter: times it was taken out of service.
    pub outages: u64,
    /// Counter: bytes moved over it, both ways.
    pub bytes: u64,
}

impl EngineStats {
    /// Completions that failed with this status.
    pub fn failures_with(&self, status: WcStatus) -> u64 {
        self.failures.get(&status.0).copied().unwrap_or(0)
    }

    /// Names the first thing that is not at rest: a gauge that is not 0, a chunk or a channel that
    /// is not back. `None` when the engine is idle and whole.
    pub fn unrest(&self) -> Option<String> {
        let gauges = [
            ("chunks leased", self.chunks_leased),
            ("chunks quarantined", self.chunks_quarantined),
            ("chunks missing", self.chunks_total - self.chunks_free.min(self.chunks_total)),
            ("channels condemned", self.channels_condemned),
            ("operations in flight", self.operations_in_flight),
            ("operations queued", self.operations_queued),
            ("transfers running", self.transfers_running),
            ("transfers waiting", self.transfers_waiting),
            ("jobs queued", self.jobs_queued),
        ];
        gauges.into_iter().find(|g| g.1 != 0).map(|(name, value)| format!("{value} {name}"))
    }
}
