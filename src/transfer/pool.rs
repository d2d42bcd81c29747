//! The pool of chunks that transfers pass their bytes through.
//!
//! Waiters are served in the order they came (the semaphore is fair), and a transfer asks for one
//! chunk at a time and never holds a chunk back while it waits for another one. So every chunk
//! that is out comes back without needing a second, and no set of transfers can deadlock.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::EngineStats;
use crate::rdma::Lease;

/// All chunks of an engine.
pub(super) struct Pool {
    /// Last in, first out: the chunk used last is the one most likely still in a cache.
    free: Mutex<Vec<Lease>>,
    /// One permit for each lease in `free`.
    permits: Semaphore,
    total: usize,
    leased: AtomicUsize,
    quarantined: AtomicUsize,
    lost: AtomicUsize,
    waiting: AtomicUsize,
    waits: AtomicU64,
    wait_nanos: AtomicU64,
    returns: AtomicU64,
}

/// How long to wait for a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// No longer than this.
    Within(Duration),
    /// As long as chunks keep coming back to the pool at least once in this time.
    WhileMoving(Duration),
}

impl Pool {
    pub(super) fn new(leases: Vec<Lease>) -> Arc<Self> {
        let total = leases.len();
        Arc::new(Self {
            free: Mutex::new(leases),
            permits: Semaphore::new(total),
            total,
            leased: AtomicUsize::new(0),
            quarantined: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            wait_nanos: AtomicU64::new(0),
            returns: AtomicU64::new(0),
        })
    }

    /// Takes a chunk, in turn; gives the time waited back as the error when none came in time.
    pub(super) async fn acquire(self: &Arc<Self>, patience: Patience) -> Result<(Chunk, Duration), Duration> {
        if let Ok(permit) = self.permits.try_acquire() {
            permit.forget();
            return Ok((self.take(), Duration::ZERO));
        }
        let waiting = Waiting::start(self);
        let mut turn = pin!(self.permits.acquire());
        loop {
            let seen = self.returns.load(Ordering::Relaxed);
            let limit = match patience {
                Patience::Within(limit) | Patience::WhileMoving(limit) => limit,
            };
            match tokio::time::timeout(limit, turn.as_mut()).await {
                Ok(Ok(permit)) => {
                    permit.forget();
                    return Ok((self.take(), waiting.since.elapsed()));
                }
                Ok(Err(_closed)) => return Err(waiting.since.elapsed()),
                Err(_) => {
                    let moved = seen != self.returns.load(Ordering::Relaxed);
                    if matches!(patience, Patience::Within(_)) || !moved {
                        return Err(waiting.since.elapsed());
                    }
                }
            }
        }
    }

    /// Takes the lease that a permit stands for.
    fn take(self: &Arc<Self>) -> Chunk {
        let lease = self.free.lock().expect("pool lock").pop();
        debug_assert!(lease.is_some(), "a permit without a lease");
        self.leased.fetch_add(1, Ordering::Relaxed);
        Chunk { lease, pool: Arc::clone(self) }
    }

    fn put(&self, lease: Lease) {
        self.free.lock().expect("pool lock").push(lease);
        self.leased.fetch_sub(1, Ordering::Relaxed);
        self.returns.fetch_add(1, Ordering::Relaxed);
        self.permits.add_permits(1);
    }

    pub(super) fn fill(&self, stats: &mut EngineStats) {
        stats.chunks_total = self.total;
        stats.chunks_free = self.free.lock().expect("pool lock").len();
        stats.chunks_leased = self.leased.load(Ordering::Relaxed);
        stats.chunks_quarantined = self.quarantined.load(Ordering::Relaxed);
        stats.chunks_lost = self.lost.load(Ordering::Relaxed);
        stats.transfers_waiting = self.waiting.load(Ordering::Relaxed);
        stats.chunk_waits = self.waits.load(Ordering::Relaxed);
        stats.chunk_wait_time = Duration::from_nanos(self.wait_nanos.load(Ordering::Relaxed));
    }
}

/// Keeps the gauges of waiting right however the wait ends.
struct Waiting<'a> {
    pool: &'a Pool,
    since: Instant,
}

impl<'a> Waiting<'a> {
    fn start(pool: &'a Pool) -> Self {
        pool.waiting.fetch_add(1, Ordering::Relaxed);
        pool.waits.fetch_add(1, Ordering::Relaxed);
        Self { pool, since: Instant::now() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pool.waiting.fetch_sub(1, Ordering::Relaxed);
        self.pool.wait_nanos.fetch_add(self.since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// A chunk of memory that is not in an operation. Goes back to the pool when dropped.
pub(super) struct Chunk {
    /// `None` only between [`detach`](Chunk::detach) and the drop that follows it.
    lease: Option<Lease>,
    pool: Arc<Pool>,
}

impl Chunk {
    /// Takes the lease out for an operation; what stays brings it back into the books.
    pub(super) fn detach(mut self) -> (Lease, Detached) {
        let lease = self.lease.take().expect("a chunk holds its lease until it is detached");
        (lease, Detached { pool: Arc::clone(&self.pool), quarantined: false, settled: false })
    }
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.lease.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.lease.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.pool.put(lease);
        }
    }
}

/// The place in the books of a lease that is in an operation.
///
/// Dropped without [`attach`](Self::attach), the lease counts as lost: it never came back.
pub(super) struct Detached {
    pool: Arc<Pool>,
    quarantined: bool,
    settled: bool,
}

impl Detached {
    /// The operation is over: its lease is a chunk again.
    pub(super) fn attach(mut self, lease: Lease) -> Chunk {
        self.settled = true;
        if self.quarantined {
            self.pool.leased.fetch_add(1, Ordering::Relaxed);
            self.pool.quarantined.fetch_sub(1, Ordering::Relaxed);
        }
        Chunk { lease: Some(lease), pool: Arc::clone(&self.pool) }
    }

    /// Nobody waits for the operation any more, but its memory may still be in use.
    pub(super) fn quarantine(&mut self) {
        if !self.quarantined {
            self.quarantined = true;
            self.pool.quarantined.fetch_add(1, Ordering::Relaxed);
            self.pool.leased.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.pool.lost.fetch_add(1, Ordering::Relaxed);
        let gauge = if self.quarantined { &self.pool.quarantined } else { &self.pool.leased };
        gauge.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::{HostMemory, HugePages};
    use futures_util::FutureExt as _;

    fn pool(chunks: usize) -> Arc<Pool> {
        let memory = HostMemory::allocate(chunks * 4096, HugePages::Off).unwrap();
        Pool::new(memory.into_leases(4096).unwrap().1)
    }

    fn stats(pool: &Pool) -> EngineStats {
        let mut stats = EngineStats::default();
        pool.fill(&mut stats);
        stats
    }

    const SHORT: Patience = Patience::Within(Duration::from_millis(5));
    const LONG: Patience = Patience::Within(Duration::from_secs(60));

    #[tokio::test]
    async fn a_wait_is_bounded_and_a_dropped_chunk_comes_back() {
        let pool = pool(1);
        let (chunk, _) = pool.acquire(SHORT).await.unwrap();
        assert_eq!(chunk.len(), 4096);
        assert!(pool.acquire(SHORT).await.is_err());
        drop(chunk);
        assert!(pool.acquire(SHORT).await.is_ok());
        let stats = stats(&pool);
        assert_eq!((stats.chunks_free, stats.chunks_leased, stats.chunk_waits), (1, 0, 1));
        assert_eq!(stats.unrest(), None);
    }

    /// The test runtime has one thread: after a yield every task has run up to its wait.
    #[tokio::test]
    async fn waiters_are_served_in_order() {
        let pool = pool(1);
        let (chunk, _) = pool.acquire(LONG).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for i in 0..5 {
            let (pool, order) = (Arc::clone(&pool), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let (_chunk, _) = pool.acquire(LONG).await.unwrap();
                order.lock().unwrap().push(i);
                tokio::task::yield_now().await;
            }));
        }
        while stats(&pool).transfers_waiting < 5 {
            tokio::task::yield_now().await;
        }
        drop(chunk);
        assert!(pool.permits.try_acquire().is_err(), "the chunk belongs to the first waiter already");
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(stats(&pool).unrest(), None);
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_loses_no_chunk() {
        let pool = pool(1);
        let (chunk, _) = pool.acquire(LONG).await.unwrap();
        let mut waiter = Box::pin(pool.acquire(LONG));
        assert!(waiter.as_mut().now_or_never().is_none());
        drop(chunk);
        drop(waiter);
        assert!(pool.acquire(SHORT).await.is_ok());
        assert_eq!(stats(&pool).unrest(), None);
    }

    #[tokio::test]
    async fn a_running_transfer_waits_while_others_move() {
        let pool = pool(1);
        let (chunk, _) = pool.acquire(LONG).await.unwrap();
        let stuck = pool.acquire(Patience::WhileMoving(Duration::from_millis(10))).await;
        assert!(stuck.is_err(), "nothing moved");
        let patient = Arc::clone(&pool);
        let patient = tokio::spawn(async move {
            patient.acquire(Patience::WhileMoving(Duration::from_secs(1))).await.map(|_| ())
        });
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(2500) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            pool.returns.fetch_add(1, Ordering::Relaxed);
        }
        drop(chunk);
        patient.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_books_follow_a_lease_through_an_operation() {
        let pool = pool(3);
        let (lease, detached) = pool.acquire(SHORT).await.unwrap().0.detach();
        assert_eq!(stats(&pool).chunks_leased, 1);
        drop(detached.attach(lease));
        assert_eq!(stats(&pool).unrest(), None);

        let (lease, mut detached) = pool.acquire(SHORT).await.unwrap().0.detach();
        detached.quarantine();
        detached.quarantine();
        assert_eq!((stats(&pool).chunks_leased, stats(&pool).chunks_quarantined), (0, 1));
        drop(detached.attach(lease));
        assert_eq!(stats(&pool).unrest(), None);

        let (_lease, detached) = pool.acquire(SHORT).await.unwrap().0.detach();
        drop(detached);
        let (_lease, mut detached) = pool.acquire(SHORT).await.unwrap().0.detach();
        detached.quarantine();
        drop(detached);
        let stats = stats(&pool);
        assert_eq!((stats.chunks_lost, stats.chunks_leased, stats.chunks_quarantined), (2, 0, 0));
        assert_eq!(stats.chunks_free, 1);
    }
}
