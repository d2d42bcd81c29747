//! Engines over a fabric, sinks and sources that check how they are called, and the final check.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgwrdma::rdma::{Descriptor, Lease};
use vgwrdma::transfer::transport::Endpoint;
use vgwrdma::transfer::transport::failing::{FailingEndpoint, Fault, Seen};
use vgwrdma::transfer::transport::memory::{Carrier, MemoryConfig, MemoryEndpoint, RemoteMemory, leases};
use vgwrdma::transfer::{BlockSink, BlockSource, Engine, EngineConfig, OrderedSink, RemoteWindow};

/// Chunk size of most tests, small so that a few hundred kilobytes are many pieces.
pub(crate) const CHUNK: usize = 16 << 10;

/// What the suite runs over: endpoints, memory registered with them, and a client.
pub(crate) trait Fabric: Send + Sync {
    /// Memory for an engine; asked for before the endpoints.
    fn leases(&self, chunks: usize, chunk_size: usize) -> Vec<Lease>;
    fn endpoints(&self) -> Vec<Arc<dyn Endpoint>>;
    /// Registers bytes at the client.
    fn offer(&self, bytes: &[u8]) -> Arc<Descriptor>;
    /// The client's bytes now.
    fn bytes(&self, descriptor: &Descriptor) -> Vec<u8>;
    /// Ends a registration at the client.
    fn withdraw(&self, descriptor: &Descriptor);
    /// Channels that are open, where that can be told.
    fn open_channels(&self) -> Option<usize>;
}

/// A client and endpoints within this process; the outer endpoints may fail.
pub(crate) struct InProcess {
    pub(crate) memory: RemoteMemory,
    inner: Vec<Arc<MemoryEndpoint>>,
    outer: Vec<Arc<dyn Endpoint>>,
}

impl InProcess {
    pub(crate) fn new(configs: Vec<MemoryConfig>) -> Self {
        let memory = RemoteMemory::new();
        let inner: Vec<_> =
            configs.into_iter().map(|c| Arc::new(MemoryEndpoint::new(memory.clone(), c))).collect();
        let outer = inner.iter().map(|e| Arc::clone(e) as Arc<dyn Endpoint>).collect();
        Self { memory, inner, outer }
    }

    pub(crate) fn inline() -> Self {
        Self::new(vec![MemoryConfig::default()])
    }

    pub(crate) fn threaded(delay: Duration) -> Self {
        Self::new(vec![MemoryConfig { carrier: Carrier::Threads(2), delay, ..MemoryConfig::default() }])
    }

    /// Wrapped, with nothing going wrong.
    pub(crate) fn without_fault() -> Self {
        Self::threaded(Duration::ZERO).failing(|_| Fault::None).0
    }

    /// Wraps every endpoint; gives the wrappers too.
    pub(crate) fn failing(
        mut self,
        plan: impl Fn(&Seen) -> Fault + Send + Sync + Clone + 'static,
    ) -> (Self, Vec<Arc<FailingEndpoint>>) {
        let failing: Vec<_> =
            self.outer.drain(..).map(|e| Arc::new(FailingEndpoint::new(e, plan.clone()))).collect();
        self.outer = failing.iter().map(|e| Arc::clone(e) as Arc<dyn Endpoint>).collect();
        (self, failing)
    }
}

impl Fabric for InProcess {
    fn endpoints(&self) -> Vec<Arc<dyn Endpoint>> {
        self.outer.clone()
    }

    fn leases(&self, chunks: usize, chunk_size: usize) -> Vec<Lease> {
        leases(chunks, chunk_size).unwrap()
    }

    fn offer(&self, bytes: &[u8]) -> Arc<Descriptor> {
        Arc::new(self.memory.register(bytes))
    }

    fn bytes(&self, descriptor: &Descriptor) -> Vec<u8> {
        self.memory.bytes(descriptor)
    }

    fn withdraw(&self, descriptor: &Descriptor) {
        self.memory.deregister(descriptor);
    }

    fn open_channels(&self) -> Option<usize> {
        Some(self.inner.iter().map(|e| e.open_channels()).sum())
    }
}

/// Settings for quick tests.
pub(crate) fn config() -> EngineConfig {
    EngineConfig {
        chunk_size: CHUNK,
        lanes: 2,
        channels_per_lane: 2,
        worker_threads: 3,
        chunk_wait: Duration::from_secs(20),
        completion_timeout: Duration::from_secs(20),
        endpoint_retry: Duration::from_millis(5),
        ..EngineConfig::default()
    }
}

/// An engine and its fabric.
pub(crate) struct Rig<F> {
    pub(crate) fabric: F,
    pub(crate) engine: Arc<Engine>,
    channels: usize,
}

impl<F: Fabric> Rig<F> {
    pub(crate) fn new(fabric: F, config: EngineConfig, chunks: usize) -> Self {
        let leases = fabric.leases(chunks, config.chunk_size);
        let engine = Engine::start(config, fabric.endpoints(), leases).unwrap();
        let channels = engine.stats().channels_open;
        assert!(channels > 0);
        Self { fabric, engine: Arc::new(engine), channels }
    }

    /// Everything must be back already: no transfer was cancelled and no operation timed out.
    pub(crate) fn assert_at_rest(&self) {
        let stats = self.engine.stats();
        assert_eq!(stats.unrest(), None, "{stats:#?}");
    }

    /// Waits until everything is back, then ends the engine and checks that it left nothing open.
    pub(crate) async fn finish(self) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let stats = self.engine.stats();
            if stats.unrest().is_none() && stats.channels_open == self.channels {
                break;
            }
            assert!(Instant::now() < until, "not at rest: {stats:#?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(self.engine.drain(Duration::from_secs(30)).await);
        let engine = Arc::into_inner(self.engine).expect("the test holds no other handle");
        tokio::task::spawn_blocking(move || drop(engine)).await.unwrap();
        assert_eq!(self.fabric.open_channels().unwrap_or(0), 0);
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// The whole window of a descriptor.
pub(crate) fn whole(descriptor: &Arc<Descriptor>) -> RemoteWindow {
    RemoteWindow {
        descriptor: Arc::clone(descriptor),
        start: descriptor.address,
        length: u64::from(descriptor.size),
        endpoint_hint: None,
    }
}

/// Keeps what is written; refuses to be written twice in one place or unaligned.
pub(crate) struct VecSink {
    content: Mutex<(Vec<u8>, Vec<bool>)>,
    /// Writes left until they fail with `ENOSPC`.
    pub(crate) writes_left: AtomicUsize,
    pub(crate) pause: Duration,
    /// Set by a test once it has seen the sink's last reference go.
    pub(crate) closed: AtomicBool,
}

impl VecSink {
    pub(crate) fn new(length: usize) -> Arc<Self> {
        Arc::new(Self {
            content: Mutex::new((vec![0; length], vec![false; length])),
            writes_left: AtomicUsize::new(usize::MAX),
            pause: Duration::ZERO,
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn slow(length: usize, pause: Duration) -> Arc<Self> {
        let mut sink = Arc::into_inner(Self::new(length)).unwrap();
        sink.pause = pause;
        Arc::new(sink)
    }

    pub(crate) fn full_after(length: usize, writes: usize) -> Arc<Self> {
        let sink = Self::new(length);
        sink.writes_left.store(writes, Ordering::Relaxed);
        sink
    }

    /// The content; this must be the last reference.
    pub(crate) fn take(self: Arc<Self>) -> Vec<u8> {
        let sink = Arc::into_inner(self).expect("the engine has let the sink go");
        let (bytes, written) = sink.content.into_inner().unwrap();
        assert!(written.iter().all(|&w| w), "a part of the sink was never written");
        bytes
    }
}

impl BlockSink for VecSink {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(data.as_ptr().addr().is_multiple_of(4096), "the block is not on a page");
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        let left = self.writes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if left.is_err() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        assert!(!self.closed.load(Ordering::SeqCst), "written after the transfer had ended");
        let range = offset as usize..offset as usize + data.len();
        let mut content = self.content.lock().unwrap();
        assert!(content.1[range.clone()].iter().all(|w| !w), "written twice");
        content.0[range.clone()].copy_from_slice(data);
        content.1[range].fill(true);
        Ok(())
    }
}

/// Gives bytes from memory.
pub(crate) struct VecSource {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pause: Duration,
}

impl VecSource {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes, pause: Duration::ZERO })
    }
}

impl BlockSource for VecSource {
    fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        let range = offset as usize..offset as usize + data.len();
        data.copy_from_slice(self.bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Keeps the bytes in the order in which it sees them.
#[derive(Default)]
pub(crate) struct InOrder(pub(crate) Vec<u8>);

impl std::fmt::Debug for InOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InOrder({} bytes)", self.0.len())
    }
}

impl OrderedSink for InOrder {
    fn update(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }
}
