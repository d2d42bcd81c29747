//! Which endpoint and which lane an operation takes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::lane::LaneInbox;
use super::request::Request;
use super::stats::EndpointStats;
use super::subnet::Subnet;
use super::transport::Endpoint;
use super::{EngineStats, RemoteWindow, TransferError};
use crate::rdma::WcStatus;

/// Failures of the device itself, in a row, after which an endpoint is passed over for a while.
const MAX_LOCAL_FAILURES: u32 = 8;

/// One endpoint with its lanes and counters.
pub(super) struct Port {
    endpoint: Arc<dyn Endpoint>,
    name: Arc<str>,
    subnet: Option<Subnet>,
    lanes: Vec<Arc<LaneInbox>>,
    in_service: AtomicBool,
    outages: AtomicU64,
    local_failures: AtomicU32,
    passed_over_until: Mutex<Option<Instant>>,
    pass_over: Duration,
    operations: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    retries: AtomicU64,
    timeouts: AtomicU64,
    /// By status. Failures are rare enough for a lock.
    failures: Mutex<BTreeMap<u32, u64>>,
}

impl Port {
    /// `channels`: how many each lane has got.
    pub(super) fn new(endpoint: Arc<dyn Endpoint>, channels: &[usize], pass_over: Duration) -> Self {
        Self {
            name: endpoint.name().into(),
            subnet: endpoint.address().map(|a| Subnet::of_local(a.to_canonical())),
            endpoint,
            lanes: channels.iter().map(|&n| Arc::new(LaneInbox::new(n))).collect(),
            in_service: AtomicBool::new(channels.iter().any(|&n| n > 0)),
            outages: AtomicU64::new(0),
            local_failures: AtomicU32::new(0),
            passed_over_until: Mutex::new(None),
            pass_over,
            operations: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            failures: Mutex::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.endpoint
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(super) fn lanes(&self) -> &[Arc<LaneInbox>] {
        &self.lanes
    }

    // --- told by the lanes

    pub(super) fn count_done(&self, read: bool, bytes: usize) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let counter = if read { &self.bytes_read } else { &self.bytes_written };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.local_failures.load(Ordering::Relaxed) != 0 {
            self.local_failures.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_timeouts(&self, operations: usize) {
        self.timeouts.fetch_add(operations as u64, Ordering::Relaxed);
    }

    pub(super) fn count_failure(&self, status: WcStatus) {
        *self.failures.lock().expect("port lock").entry(status.0).or_default() += 1;
        if !blames_local_device(status) {
            return;
        }
        if self.local_failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_LOCAL_FAILURES {
            self.local_failures.store(0, Ordering::Relaxed);
            self.outages.fetch_add(1, Ordering::Relaxed);
            *self.passed_over_until.lock().expect("port lock") = Some(Instant::now() + self.pass_over);
            tracing::warn!(endpoint = self.name(), %status, "RDMA endpoint fails; others are preferred for a while");
        }
    }

    /// A lane has gained or lost a channel.
    pub(super) fn channels_changed(&self) {
        let now = self.is_open();
        if self.in_service.swap(now, Ordering::Relaxed) == now {
            return;
        }
        if now {
            tracing::info!(endpoint = self.name(), "RDMA endpoint in service again");
        } else {
            self.outages.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(endpoint = self.name(), "RDMA endpoint out of service; it is tried again");
        }
    }

    // --- asked by the router

    fn is_open(&self) -> bool {
        self.lanes.iter().any(|l| l.channels() > 0)
    }

    fn is_preferred(&self) -> bool {
        let until = *self.passed_over_until.lock().expect("port lock");
        until.is_none_or(|until| Instant::now() >= until)
    }

    fn least_loaded(&self) -> Option<&Arc<LaneInbox>> {
        self.lanes.iter().filter(|l| l.channels() > 0).min_by_key(|l| l.load())
    }
}

/// True when a status speaks of this side's device rather than of the network or the client.
fn blames_local_device(status: WcStatus) -> bool {
    matches!(
        status,
        WcStatus::LOC_LEN_ERR
            | WcStatus::LOC_QP_OP_ERR
            | WcStatus::LOC_PROT_ERR
            | WcStatus::FATAL_ERR
            | WcStatus::GENERAL_ERR
    )
}

/// All endpoints of an engine.
pub(super) struct Router {
    ports: Vec<Arc<Port>>,
    turn: AtomicUsize,
}

impl Router {
    pub(super) fn new(ports: Vec<Arc<Port>>) -> Self {
        Self { ports, turn: AtomicUsize::new(0) }
    }

    pub(super) fn ports(&self) -> &[Arc<Port>] {
        &self.ports
    }

    /// Chooses the endpoint of a transfer: the one in the client's subnet, else the one that
    /// received the request, else the next in turn.
    pub(super) fn choose(&self, window: &RemoteWindow) -> Option<Arc<Port>> {
        let open: Vec<&Arc<Port>> = match self.ports.iter().filter(|p| p.is_open()).collect::<Vec<_>>() {
            open if open.len() < 2 => open,
            open => {
                let preferred: Vec<_> = open.iter().copied().filter(|p| p.is_preferred()).collect();
                if preferred.is_empty() { open } else { preferred }
            }
        };
        let candidates = match window.descriptor.peer() {
            Some(peer) => nearest(open, peer),
            None => open,
        };
        if candidates.len() > 1 {
            let hinted = window.endpoint_hint.and_then(|hint| {
                candidates.iter().find(|p| p.endpoint.address() == Some(hint.to_canonical()))
            });
            if let Some(port) = hinted {
                return Some(Arc::clone(port));
            }
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        candidates.get(turn % candidates.len().max(1)).map(|p| Arc::clone(p))
    }

    /// Gives a request to the least loaded lane of `port`, or of another endpoint when that one is
    /// out of service.
    pub(super) fn dispatch(&self, port: &Port, mut request: Request) {
        let others = self.ports.iter().map(Arc::as_ref).filter(|p| !std::ptr::eq(*p, port));
        let lanes: usize = self.ports.iter().map(|p| p.lanes.len()).sum();
        if request.moves as usize <= lanes {
            for port in std::iter::once(port).chain(others) {
                let Some(lane) = port.least_loaded() else { continue };
                match lane.push(request) {
                    Ok(()) => return,
                    Err(back) => request = back,
                }
            }
        }
        request.fail(TransferError::NoEndpoint);
    }

    pub(super) fn fill(&self, stats: &mut EngineStats) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for port in &self.ports {
            let mut endpoint = EndpointStats {
                name: port.name.to_string(),
                in_service: port.is_open(),
                outages: load(&port.outages),
                bytes: load(&port.bytes_read) + load(&port.bytes_written),
                ..EndpointStats::default()
            };
            for lane in &port.lanes {
                endpoint.channels_open += lane.channels();
                endpoint.operations_in_flight += lane.in_flight();
                stats.channels_condemned += lane.condemned();
                stats.operations_queued += lane.queued();
            }
            stats.channels_open += endpoint.channels_open;
            stats.operations_in_flight += endpoint.operations_in_flight;
            stats.operations_done += load(&port.operations);
            stats.operations_retried += load(&port.retries);
            stats.operations_timed_out += load(&port.timeouts);
            stats.bytes_read += load(&port.bytes_read);
            stats.bytes_written += load(&port.bytes_written);
            for (status, count) in &*port.failures.lock().expect("port lock") {
                *stats.failures.entry(*status).or_default() += count;
            }
            stats.endpoints.push(endpoint);
        }
    }
}

/// The endpoints in the client's own network, in its smallest one where networks nest; all of them
/// when there is none: then the client is behind a router.
fn nearest(ports: Vec<&Arc<Port>>, peer: IpAddr) -> Vec<&Arc<Port>> {
    let prefix = |p: &Arc<Port>| p.subnet.filter(|s| s.contains(peer)).map(|s| s.prefix());
    match ports.iter().filter_map(|p| prefix(p)).max() {
        None => ports,
        best => ports.into_iter().filter(|p| prefix(p) == best).collect(),
    }
}
