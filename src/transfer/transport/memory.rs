//! A transport within the process, for tests and benches: endpoints whose channels behave as queue
//! pairs over a [`RemoteMemory`].

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

pub use super::remote::{RemoteMemory, Written};
use super::{Channel, Completion, Endpoint, Operation, Rejected};
use crate::rdma::{self, Errno, Lease, WcStatus};

/// Most completions that one poll gives, as with cuObject.
const POLL_BATCH: usize = 16;

/// How a [`MemoryEndpoint`] moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Carrier {
    /// Within `submit`.
    #[default]
    Inline,
    /// On this many threads of the endpoint, as a NIC would beside the lanes.
    Threads(usize),
}

/// Settings of a [`MemoryEndpoint`].
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Option<IpAddr>,
    /// How many channels may be open.
    pub channels: usize,
    /// Operations in flight on a channel.
    pub depth: usize,
    /// How bytes are moved.
    pub carrier: Carrier,
    /// How long a completion stays away after the bytes have moved.
    pub delay: Duration,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            name: "memory".into(),
            address: Some(IpAddr::from([127, 0, 0, 1])),
            channels: 128,
            depth: 16,
            carrier: Carrier::Inline,
            delay: Duration::ZERO,
        }
    }
}

type Carried = (Operation, Arc<QueuePair>);

/// An endpoint over [`RemoteMemory`].
#[derive(Debug)]
pub struct MemoryEndpoint {
    config: MemoryConfig,
    memory: RemoteMemory,
    open: Arc<AtomicUsize>,
    carriers: Vec<mpsc::Sender<Carried>>,
    next_carrier: AtomicUsize,
}

impl MemoryEndpoint {
    /// An endpoint that reaches `memory`. Carrier threads end with the endpoint and its channels.
    pub fn new(memory: RemoteMemory, config: MemoryConfig) -> Self {
        let threads = match config.carrier {
            Carrier::Inline => 0,
            Carrier::Threads(n) => n.max(1),
        };
        let carriers = (0..threads).map(|_| start_carrier(memory.clone())).collect();
        Self { config, memory, open: Arc::default(), carriers, next_carrier: AtomicUsize::new(0) }
    }

    /// How many channels are open.
    pub fn open_channels(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

fn start_carrier(memory: RemoteMemory) -> mpsc::Sender<Carried> {
    let (sender, receiver) = mpsc::channel::<Carried>();
    std::thread::spawn(move || {
        for (operation, queue_pair) in receiver {
            queue_pair.carry(&memory, operation);
        }
    });
    sender
}

impl Endpoint for MemoryEndpoint {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn address(&self) -> Option<IpAddr> {
        self.config.address
    }

    fn open_channel(&self) -> rdma::Result<Box<dyn Channel>> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.config.channels {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(rdma::Error::NoChannel { address: self.config.name.clone() });
        }
        let carrier = match self.carriers.len() {
            0 => None,
            n => Some(self.carriers[self.next_carrier.fetch_add(1, Ordering::Relaxed) % n].clone()),
        };
        Ok(Box::new(MemoryChannel {
            queue_pair: Arc::default(),
            memory: self.memory.clone(),
            depth: self.config.depth,
            delay: self.config.delay,
            in_flight: 0,
            carrier,
            open: Arc::clone(&self.open),
        }))
    }
}

/// What a channel and its carrier share.
#[derive(Debug, Default)]
struct QueuePair {
    state: Mutex<QueueState>,
    progress: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    done: VecDeque<(Instant, Completion)>,
    /// In error: everything that follows is flushed, until the channel has reported all.
    failed: bool,
}

impl QueuePair {
    fn carry(&self, memory: &RemoteMemory, mut operation: Operation) {
        let failed = self.state.lock().expect("queue lock").failed;
        let status = if failed { WcStatus::WR_FLUSH_ERR } else { memory.execute(&mut operation) };
        let Operation { ticket, lease, .. } = operation;
        let mut state = self.state.lock().expect("queue lock");
        state.failed |= !status.is_success();
        state.done.push_back((Instant::now(), Completion { ticket, status, lease }));
        self.progress.notify_all();
    }
}

#[derive(Debug)]
struct MemoryChannel {
    queue_pair: Arc<QueuePair>,
    memory: RemoteMemory,
    depth: usize,
    delay: Duration,
    in_flight: usize,
    carrier: Option<mpsc::Sender<Carried>>,
    open: Arc<AtomicUsize>,
}

impl MemoryChannel {
    fn refusal(&self, operation: &Operation) -> Option<rdma::Error> {
        if operation.length == 0 || operation.length > operation.lease.len() {
            let what = format!("length {} of a lease of {}", operation.length, operation.lease.len());
            return Some(rdma::Error::Invalid { operation: "submit", what });
        }
        if self.in_flight >= self.depth {
            let errno = Errno(libc::EAGAIN);
            return Some(rdma::Error::Call { operation: "submit", errno, code: -11, detail: String::new() });
        }
        None
    }
}

impl Channel for MemoryChannel {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Box<Rejected>> {
        if let Some(error) = self.refusal(&operation) {
            return Err(Box::new(Rejected { error, operation }));
        }
        self.in_flight += 1;
        match &self.carrier {
            None => self.queue_pair.carry(&self.memory, operation),
            Some(carrier) => carrier
                .send((operation, Arc::clone(&self.queue_pair)))
                .expect("a carrier runs for as long as there are senders"),
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> rdma::Result<()> {
        let delay = self.delay;
        let now = Instant::now();
        let mut state = self.queue_pair.state.lock().expect("queue lock");
        for _ in 0..POLL_BATCH {
            if state.done.front().is_none_or(|(at, _)| now < *at + delay) {
                break;
            }
            let Some((_, completion)) = state.done.pop_front() else { break };
            self.in_flight -= 1;
            let failed = !completion.status.is_success();
            completions.push(completion);
            if failed {
                // The reset: all that was behind it is over too.
                while state.done.len() < self.in_flight {
                    state = self.queue_pair.progress.wait(state).expect("queue lock");
                }
                completions.extend(state.done.drain(..).map(|(_, completion)| completion));
                self.in_flight = 0;
                state.failed = false;
                break;
            }
        }
        Ok(())
    }
}

impl Drop for MemoryChannel {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory for an engine, registered with no device: `chunks` leases of `chunk_size` bytes.
///
/// # Errors
/// When the kernel does not give the memory.
pub fn leases(chunks: usize, chunk_size: usize) -> rdma::Result<Vec<Lease>> {
    let memory = rdma::HostMemory::allocate(chunks * chunk_size, rdma::HugePages::Off)?;
    Ok(memory.into_leases(chunk_size)?.1)
}
