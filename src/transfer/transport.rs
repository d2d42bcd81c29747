//! The trait between the engine and what carries its operations.

#[cfg(any(test, feature = "mock"))]
pub mod failing;
#[cfg(any(test, feature = "mock"))]
pub mod memory;
#[cfg(any(test, feature = "mock"))]
mod remote;

use std::net::IpAddr;
use std::sync::Arc;

pub use crate::rdma::Direction;
use crate::rdma::{self, Descriptor, Lease, WcStatus};

/// One asynchronous one-sided operation.
#[derive(Debug)]
pub struct Operation {
    /// Comes back in the completion.
    pub ticket: u64,
    /// Which way the bytes go.
    pub direction: Direction,
    /// The client's descriptor, handed on unchanged.
    pub descriptor: Arc<Descriptor>,
    /// First byte in the client's address space.
    pub remote_start: u64,
    /// Bytes to move, at most the lease's length and 1 GiB, never 0.
    pub length: usize,
    /// The local memory, from its first byte on.
    pub lease: Lease,
}

/// The end of an operation. The lease is back: the device is done with it.
#[derive(Debug)]
pub struct Completion {
    /// Of the [`Operation`].
    pub ticket: u64,
    /// How it ended. [`WcStatus::WR_FLUSH_ERR`]: not carried out, may be tried again elsewhere.
    pub status: WcStatus,
    /// The lease given with the operation.
    pub lease: Lease,
}

/// An operation that was not accepted; nothing of it will happen.
#[derive(Debug)]
pub struct Rejected {
    /// Why.
    pub error: rdma::Error,
    /// The operation, with its lease.
    pub operation: Operation,
}

/// One server endpoint: an RDMA address with its device.
pub trait Endpoint: Send + Sync + 'static {
    /// Name for logs and metrics, usually the address.
    fn name(&self) -> &str;
    /// The address clients reach it by.
    fn address(&self) -> Option<IpAddr>;
    /// Opens a channel (a queue pair that one thread drives).
    ///
    /// # Errors
    /// When none is free or the device is gone.
    fn open_channel(&self) -> rdma::Result<Box<dyn Channel>>;
}

/// A queue pair. Used by one thread; may be moved to it.
///
/// Dropped with operations in flight, it withholds for good the memory that its device may still
/// reach.
pub trait Channel: Send {
    /// Most operations that may be in flight (16 with cuObject: more lose completions).
    fn depth(&self) -> usize;
    /// Operations submitted and not yet completed.
    fn in_flight(&self) -> usize;
    /// Submits an operation.
    ///
    /// # Errors
    /// Gives the operation back when it is refused (full, bad arguments, device gone).
    fn submit(&mut self, operation: Operation) -> Result<(), Box<Rejected>>;
    /// Appends the completions that are there; does not wait.
    ///
    /// After a failure every operation of the channel completes, those not carried out as flushed,
    /// and the channel works again.
    ///
    /// # Errors
    /// Only when the channel is of no more use. Its operations have been completed as flushed, or,
    /// where the device may still reach their memory, their leases are withheld for good.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> rdma::Result<()>;
}
