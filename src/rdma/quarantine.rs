//! Counts of memory that is withheld for good because a device may still reach it.
//!
//! When a channel dies with operations whose end can no longer be learned, their memory must not be
//! used again: an RDMA READ could still land in it. It is leaked on purpose, and an operator sees
//! here how much.

use std::sync::atomic::{AtomicU64, Ordering};

static OPERATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// What the process has withheld so far. Both only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    /// Operations (or registrations of the client) whose end could not be learned.
    pub operations: u64,
    /// Bytes of memory that went with them.
    pub bytes: u64,
}

/// What the process has withheld so far.
pub fn withheld() -> Withheld {
    Withheld { operations: OPERATIONS.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
}

/// Leaks what an operation owned, and counts it.
#[cfg(any(feature = "server", feature = "client"))]
pub(crate) fn withhold<T>(what: T, bytes: usize) {
    std::mem::forget(what);
    OPERATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}
