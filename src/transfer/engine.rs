//! The engine's public face: start, transfers, statistics, drain.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::lane::Lane;
use super::pieces::{Span, cut};
use super::pool::{Chunk, Patience, Pool};
use super::pull::{Pull, PullReply};
use super::push::Push;
use super::request::Request;
use super::router::{Port, Router};
use super::running::{Caller, Piece, Transfers};
use super::transport::{Channel, Direction, Endpoint};
use super::workers::{JobSender, Workers};
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
///
/// Dropping it stops and joins its threads; that waits for operations in flight, for at most the
/// completion timeout. [`drain`](Self::drain) first.
pub struct Engine {
    config: EngineConfig,
    pool: Arc<Pool>,
    router: Arc<Router>,
    transfers: Arc<Transfers>,
    jobs: JobSender,
    lanes: Vec<JoinHandle<()>>,
    /// Dropped after the lanes have ended, since they give it work until then.
    _workers: Workers,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

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
        if endpoints.is_empty() {
            return Err(StartError::NoEndpoint);
        }
        if leases.is_empty() || leases.iter().any(|lease| lease.len() < config.chunk_size) {
            return Err(StartError::NoMemory { chunk_size: config.chunk_size });
        }
        let mut ports = Vec::new();
        let mut channels = Vec::new();
        let mut failure = None;
        for endpoint in endpoints {
            let opened = open_channels(&*endpoint, &config, &mut failure);
            let counts: Vec<usize> = opened.iter().map(Vec::len).collect();
            ports.push(Arc::new(Port::new(endpoint, &counts, config.endpoint_retry)));
            channels.push(opened);
        }
        if channels.iter().flatten().all(Vec::is_empty)
            && let Some(failure) = failure
        {
            return Err(failure);
        }
        let workers = Workers::start(config.worker_threads).map_err(StartError::Thread)?;
        let mut engine = Self {
            pool: Pool::new(leases),
            router: Arc::new(Router::new(ports)),
            transfers: Arc::default(),
            jobs: workers.sender(),
            lanes: Vec::new(),
            _workers: workers,
            config,
        };
        engine.start_lanes(channels).map_err(StartError::Thread)?;
        Ok(engine)
    }

    fn start_lanes(&mut self, channels: Vec<Vec<Vec<Box<dyn Channel>>>>) -> std::io::Result<()> {
        for (port, channels) in self.router.ports().iter().zip(channels) {
            for (inbox, channels) in port.lanes().iter().zip(channels) {
                let lane = Lane::new(
                    Arc::clone(inbox),
                    Arc::clone(port),
                    Arc::clone(&self.router),
                    self.config.clone(),
                    channels,
                );
                let name = format!("rdma-lane-{}", self.lanes.len());
                self.lanes.push(std::thread::Builder::new().name(name).spawn(move || lane.run())?);
            }
        }
        Ok(())
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
        let since = Instant::now();
        if window.length == 0 {
            self.admit()?.end()?;
            return Ok((TransferReport { elapsed: since.elapsed(), ..TransferReport::default() }, ordered));
        }
        let (caller, port) = self.begin(&window)?;
        let pull = Pull::new(Arc::clone(caller.running()), self.jobs.clone(), sink, ordered);
        let leftovers = Leftovers(&pull);
        let start = |span: Span, chunk, piece| {
            let request = Request {
                direction: Direction::Read,
                descriptor: Arc::clone(&window.descriptor),
                remote_start: window.start + span.offset,
                length: span.length,
                chunk,
                reply: Box::new(PullReply { pull: Arc::clone(&pull), span, piece }),
                attempts: 0,
                moves: 0,
                avoid: None,
            };
            self.router.dispatch(&port, request);
        };
        let (operations, waited) =
            self.feed(&caller, cut(window.length, self.config.chunk_size, 0), start).await;
        caller.running().until(0).await;
        if !caller.running().is_wanted() {
            // Pieces that wait for their turn at the digest would wait for ever.
            pull.purge();
        }
        caller.running().until_quiet().await;
        let ordered = pull.end();
        drop(leftovers);
        drop(pull);
        let report = report(&caller, &port, operations, since, waited);
        caller.end()?;
        let ordered = ordered.ok_or(TransferError::Internal("the digest of a transfer was lost"))?;
        Ok((report, ordered))
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
        let since = Instant::now();
        if window.length == 0 {
            self.admit()?.end()?;
            return Ok(TransferReport { elapsed: since.elapsed(), ..TransferReport::default() });
        }
        let (caller, port) = self.begin(&window)?;
        let spans = cut(window.length, self.config.chunk_size, source_offset);
        let route = (Arc::clone(&self.router), Arc::clone(&port));
        let running = Arc::clone(caller.running());
        let push = Push::new(running, self.jobs.clone(), route, window, (source, source_offset));
        let (operations, waited) =
            self.feed(&caller, spans, |span, chunk, piece| push.begin(span, chunk, piece)).await;
        caller.running().until_quiet().await;
        push.end();
        drop(push);
        let report = report(&caller, &port, operations, since, waited);
        caller.end()?;
        Ok(report)
    }

    /// Admits a transfer, or says why not.
    fn admit(&self) -> Result<Caller, TransferError> {
        self.transfers.admit(self.config.max_transfers)
    }

    /// Admits a transfer of some bytes, checks its window and chooses its endpoint.
    fn begin(&self, window: &RemoteWindow) -> Result<(Caller, Arc<Port>), TransferError> {
        let caller = self.admit()?;
        if let Err(error) = window.descriptor.window().narrow(window.start, window.length) {
            return Err(caller.refused(error.into()));
        }
        match self.router.choose(window) {
            Some(port) => Ok((caller, port)),
            None => Err(caller.refused(TransferError::NoEndpoint)),
        }
    }

    /// Takes a chunk for each span in turn, with no more than `depth` out at a time, and starts the
    /// piece. Stops early when the transfer fails. Gives the pieces started and the time waited.
    async fn feed(
        &self,
        caller: &Caller,
        spans: impl Iterator<Item = Span>,
        mut start: impl FnMut(Span, Chunk, Piece),
    ) -> (u64, Duration) {
        let running = caller.running();
        let mut started = 0;
        let mut waited = Duration::ZERO;
        for span in spans {
            running.until(self.config.depth - 1).await;
            let patience = match started {
                0 => Patience::Within(self.config.chunk_wait),
                _ => Patience::WhileMoving(self.config.completion_timeout + self.config.chunk_wait),
            };
            let chunk = tokio::select! {
                biased;
                () = running.until_stopped() => break,
                chunk = self.pool.acquire(patience) => chunk,
            };
            match chunk {
                Ok((chunk, wait)) => {
                    waited += wait;
                    started += 1;
                    start(span, chunk, caller.piece());
                }
                Err(wait) => {
                    waited += wait;
                    caller.fail(TransferError::Busy { waited });
                    break;
                }
            }
        }
        (started, waited)
    }

    /// The gauges and counters.
    pub fn stats(&self) -> EngineStats {
        let mut stats = EngineStats { jobs_queued: self.jobs.queued(), ..EngineStats::default() };
        self.pool.fill(&mut stats);
        self.router.fill(&mut stats);
        self.transfers.fill(&mut stats);
        stats
    }

    /// Takes no more transfers and waits for those that run, cancelled ones included, for at most
    /// `limit`. True when all have ended.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.transfers.close();
        tokio::time::timeout(limit, self.transfers.idle()).await.is_ok()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.transfers.close();
        for lane in self.router.ports().iter().flat_map(|port| port.lanes()) {
            lane.stop();
        }
        for lane in self.lanes.drain(..) {
            if lane.thread().id() != std::thread::current().id() {
                let _ = lane.join();
            }
        }
    }
}

/// Stops a PUT and lets the pieces go that wait for their turn at the digest, when its caller
/// drops it.
struct Leftovers<'a, S: BlockSink, D: OrderedSink>(&'a Pull<S, D>);

impl<S: BlockSink, D: OrderedSink> Drop for Leftovers<'_, S, D> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Opens the channels of one endpoint, one list for each lane; keeps the first failure.
fn open_channels(
    endpoint: &dyn Endpoint,
    config: &EngineConfig,
    failure: &mut Option<StartError>,
) -> Vec<Vec<Box<dyn Channel>>> {
    let mut lanes: Vec<Vec<_>> = (0..config.lanes).map(|_| Vec::new()).collect();
    // In turn, so that every lane has some when the endpoint has fewer than were asked for.
    for i in 0..config.lanes * config.channels_per_lane {
        match endpoint.open_channel() {
            Ok(channel) => lanes[i % config.lanes].push(channel),
            Err(source) => {
                let endpoint = endpoint.name().to_owned();
                tracing::warn!(endpoint, opened = i, error = %source, "cannot open all RDMA channels");
                failure.get_or_insert(StartError::NoChannel { endpoint, source });
                break;
            }
        }
    }
    lanes
}

fn report(caller: &Caller, port: &Port, operations: u64, since: Instant, waited: Duration) -> TransferReport {
    TransferReport {
        bytes: caller.running().bytes(),
        operations,
        retries: caller.running().retries(),
        elapsed: since.elapsed(),
        waited,
        endpoint: port.shared_name(),
    }
}
