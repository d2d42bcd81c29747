//! Operations on a channel, and their ends.

use std::sync::Arc;

use crate::rdma::{Descriptor, Error, Local, WcStatus};

/// Direction of an operation, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// RDMA READ: the client's memory into ours (`handlePutObject`).
    Read,
    /// RDMA WRITE: our memory into the client's (`handleGetObject`).
    Write,
}

impl Direction {
    pub(super) fn operation(self) -> &'static str {
        match self {
            Self::Read => "RDMA READ",
            Self::Write => "RDMA WRITE",
        }
    }
}

/// One one-sided operation.
#[derive(Debug)]
pub struct Operation {
    /// Chosen by the caller; comes back in the completion.
    pub ticket: u64,
    /// Which way the bytes go.
    pub direction: Direction,
    /// The client's descriptor.
    pub descriptor: Arc<Descriptor>,
    /// First byte in the client's address space.
    pub remote_start: u64,
    /// Bytes to move: 1 to the local memory's size, at most [`MAX_OPERATION_BYTES`](super::MAX_OPERATION_BYTES).
    pub length: usize,
    /// Our memory, from its first byte on.
    pub local: Local,
}

/// The end of an operation; the device is done with its memory.
#[derive(Debug)]
pub struct Completion {
    /// Of the [`Operation`].
    pub ticket: u64,
    /// How it ended. [`WcStatus::WR_FLUSH_ERR`]: it was not carried out, or nothing is known of it
    /// but that it is over.
    pub status: WcStatus,
    /// The memory of the operation.
    pub local: Local,
}

/// An operation that was refused or failed.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// Its memory, unless the device may still reach it.
    pub local: Option<Local>,
}

/// Why nothing, or nothing certain, came of a submission.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It was not accepted, and nothing of it will happen.
    Rejected(Error, Box<Operation>),
    /// The library threw; the operation's memory is withheld.
    Unknown(Error),
}
