//! A transport that fails as told, for tests: wraps any [`Endpoint`].
//!
//! A closure sees every operation and decides its [`Fault`]. Around the faults the channels keep
//! the behaviour of queue pairs: what is behind a failed operation is flushed and not carried out,
//! and what is behind one that hangs waits.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Channel, Completion, Direction, Endpoint, Operation, Rejected};
use crate::rdma::{self, Errno, WcStatus};

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing out of the ordinary.
    None,
    /// It is not carried out and completes with this status.
    Status(WcStatus),
    /// Only its first bytes move, and it completes with [`WcStatus::LOC_LEN_ERR`].
    Short(usize),
    /// It begins late.
    Delay(Duration),
    /// It begins only after [`FailingEndpoint::release`].
    Hang,
    /// Its submission is refused with this `errno`.
    Refuse(i32),
    /// The device is gone from here on, until [`FailingEndpoint::restore`]; all operations in
    /// flight are flushed.
    DeviceLost,
    /// As [`DeviceLost`](Self::DeviceLost), and the leases of operations that have not been carried
    /// out never come back.
    DeviceLostWithholding,
}

/// What the closure sees of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Number among all operations submitted to the endpoint, from 0.
    pub index: u64,
    /// Number of the channel, from 0 in the order of their opening.
    pub channel: usize,
    /// Which way the bytes go.
    pub direction: Direction,
    /// First byte in the client's address space.
    pub remote_start: u64,
    /// Bytes to move.
    pub length: usize,
}

/// Decides about every operation.
pub type Plan = dyn Fn(&Seen) -> Fault + Send + Sync;

/// An [`Endpoint`] that fails as its plan says.
pub struct FailingEndpoint {
    inner: Arc<dyn Endpoint>,
    shared: Arc<Shared>,
}

struct Shared {
    plan: Box<Plan>,
    operations: AtomicU64,
    channels: AtomicUsize,
    lost: AtomicBool,
    withholding: AtomicBool,
    released: AtomicBool,
    /// Operations that a lost device may still carry out.
    withheld: Mutex<Vec<Operation>>,
}

impl std::fmt::Debug for FailingEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FailingEndpoint").field("inner", &self.inner.name()).finish_non_exhaustive()
    }
}

impl FailingEndpoint {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Endpoint>, plan: impl Fn(&Seen) -> Fault + Send + Sync + 'static) -> Self {
        let shared = Shared {
            plan: Box::new(plan),
            operations: AtomicU64::new(0),
            channels: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            withholding: AtomicBool::new(false),
            released: AtomicBool::new(false),
            withheld: Mutex::default(),
        };
        Self { inner, shared: Arc::new(shared) }
    }

    /// Operations submitted so far, refused ones included.
    pub fn operations(&self) -> u64 {
        self.shared.operations.load(Ordering::Relaxed)
    }

    /// Lets every operation go on that hangs, now and later.
    pub fn release(&self) {
        self.shared.released.store(true, Ordering::Relaxed);
    }

    /// Loses the device.
    pub fn lose(&self) {
        self.shared.lost.store(true, Ordering::Relaxed);
    }

    /// Brings the device back, for channels opened from now on.
    pub fn restore(&self) {
        self.shared.lost.store(false, Ordering::Relaxed);
    }
}

impl Endpoint for FailingEndpoint {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn address(&self) -> Option<IpAddr> {
        self.inner.address()
    }

    fn open_channel(&self) -> rdma::Result<Box<dyn Channel>> {
        if self.shared.lost.load(Ordering::Relaxed) {
            return Err(call_error("open_channel", libc::ENODEV));
        }
        Ok(Box::new(FailingChannel {
            inner: self.inner.open_channel()?,
            number: self.shared.channels.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(&self.shared),
            queue: VecDeque::new(),
            is_dead: false,
        }))
    }
}

fn call_error(operation: &'static str, errno: i32) -> rdma::Error {
    rdma::Error::Call { operation, errno: Errno(errno), code: -i64::from(errno), detail: String::new() }
}

/// An operation in flight, in the order of submission.
enum Entry {
    /// Given to the inner channel; its completion is replaced when a status is set.
    Forwarded(Option<WcStatus>),
    Held(Operation, Fault, Instant),
}

impl Entry {
    fn is_forwarded(&self) -> bool {
        matches!(self, Entry::Forwarded(_))
    }
}

struct FailingChannel {
    inner: Box<dyn Channel>,
    number: usize,
    shared: Arc<Shared>,
    queue: VecDeque<Entry>,
    is_dead: bool,
}

impl FailingChannel {
    /// Completes everything held as flushed: the reset after a failure.
    fn flush(&mut self, completions: &mut Vec<Completion>) {
        for entry in self.queue.drain(..) {
            if let Entry::Held(operation, ..) = entry {
                completions.push(completion(operation, WcStatus::WR_FLUSH_ERR));
            }
        }
    }

    /// Takes what the inner channel has completed. True when a failure was among it.
    fn take_inner(&mut self, completions: &mut Vec<Completion>) -> rdma::Result<bool> {
        let mut inner = Vec::new();
        let result = self.inner.poll(&mut inner);
        let mut failed = false;
        for mut completion in inner {
            if let Some(Entry::Forwarded(Some(status))) = self.queue.pop_front() {
                completion.status = status;
            }
            failed |= !completion.status.is_success();
            completions.push(completion);
        }
        result.map(|()| failed)
    }

    /// Gives held operations to the inner channel for as long as nothing stands in the way.
    /// When the first of the queue is to fail without being carried out, gives its status.
    fn forward(&mut self) -> Option<WcStatus> {
        loop {
            let at = self.queue.iter().take_while(|e| e.is_forwarded()).count();
            if self.queue.iter().any(|e| matches!(e, Entry::Forwarded(Some(_)))) {
                return None;
            }
            let Some(Entry::Held(_, fault, since)) = self.queue.get(at) else { return None };
            let (fault, since) = (*fault, *since);
            let is_ready = match fault {
                Fault::Delay(delay) => since.elapsed() >= delay,
                Fault::Hang => self.shared.released.load(Ordering::Relaxed),
                // A failure comes when everything before it has completed.
                Fault::Status(_) | Fault::Short(_) => at == 0,
                _ => true,
            };
            if !is_ready {
                return None;
            }
            if let Fault::Status(status) = fault {
                return Some(status);
            }
            let Some(Entry::Held(mut operation, ..)) = self.queue.remove(at) else { return None };
            let mut status = None;
            if let Fault::Short(length) = fault {
                operation.length = operation.length.min(length.max(1));
                status = Some(WcStatus::LOC_LEN_ERR);
            }
            match self.inner.submit(operation) {
                Ok(()) => self.queue.insert(at, Entry::Forwarded(status)),
                Err(rejected) => {
                    self.queue.insert(at, Entry::Held(rejected.operation, fault, since));
                    return None;
                }
            }
        }
    }

    /// The device is gone: completes what can be completed.
    fn die(&mut self, completions: &mut Vec<Completion>) -> rdma::Result<()> {
        self.is_dead = true;
        while self.queue.iter().any(Entry::is_forwarded) && self.take_inner(completions).is_ok() {}
        if self.shared.withholding.load(Ordering::Relaxed) {
            let mut withheld = self.shared.withheld.lock().expect("withheld lock");
            withheld.extend(self.queue.drain(..).filter_map(|entry| match entry {
                Entry::Held(operation, ..) => Some(operation),
                Entry::Forwarded(_) => None,
            }));
        }
        self.flush(completions);
        Err(call_error("poll", libc::ENODEV))
    }
}

fn completion(operation: Operation, status: WcStatus) -> Completion {
    Completion { ticket: operation.ticket, status, lease: operation.lease }
}

impl Channel for FailingChannel {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn in_flight(&self) -> usize {
        self.queue.len()
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Box<Rejected>> {
        let refuse =
            |operation, errno| Err(Box::new(Rejected { error: call_error("submit", errno), operation }));
        let seen = Seen {
            index: self.shared.operations.fetch_add(1, Ordering::Relaxed),
            channel: self.number,
            direction: operation.direction,
            remote_start: operation.remote_start,
            length: operation.length,
        };
        if self.is_dead || self.shared.lost.load(Ordering::Relaxed) {
            return refuse(operation, libc::ENODEV);
        }
        if self.queue.len() >= self.depth() {
            return refuse(operation, libc::EAGAIN);
        }
        let fault = (self.shared.plan)(&seen);
        match fault {
            Fault::Refuse(errno) => return refuse(operation, errno),
            Fault::DeviceLost | Fault::DeviceLostWithholding => {
                let withholding = fault == Fault::DeviceLostWithholding;
                self.shared.withholding.store(withholding, Ordering::Relaxed);
                self.shared.lost.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        self.queue.push_back(Entry::Held(operation, fault, Instant::now()));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> rdma::Result<()> {
        if self.is_dead || self.shared.lost.load(Ordering::Relaxed) {
            return self.die(completions);
        }
        if self.take_inner(completions)? {
            self.flush(completions);
            return Ok(());
        }
        if let Some(status) = self.forward() {
            if let Some(Entry::Held(operation, ..)) = self.queue.pop_front() {
                completions.push(completion(operation, status));
            }
            self.flush(completions);
        }
        Ok(())
    }
}
