//! An operation on its way through a lane.

use std::sync::Arc;

use super::TransferError;
use super::pool::{Chunk, Detached};
use super::transport::{Direction, Operation};
use crate::rdma::{Descriptor, Lease};

/// An operation that a lane is to carry out.
pub(super) struct Request {
    pub(super) direction: Direction,
    pub(super) descriptor: Arc<Descriptor>,
    pub(super) remote_start: u64,
    pub(super) length: usize,
    pub(super) chunk: Chunk,
    pub(super) reply: Box<dyn Reply>,
    /// How often it has been flushed or refused so far.
    pub(super) attempts: u32,
    /// How often it has been moved to another lane.
    pub(super) moves: u32,
    /// The channel that it failed on, by number in its lane: the next attempt goes elsewhere.
    pub(super) avoid: Option<u64>,
}

/// Who wants to know how an operation ended. Called on the lane's thread, so never blocks.
pub(super) trait Reply: Send {
    /// False when the operation need not be begun or tried again.
    fn is_wanted(&self) -> bool;
    /// The operation is submitted again.
    fn retried(&self);
    /// The operation has ended; on success its chunk comes back.
    fn done(self: Box<Self>, outcome: Result<Chunk, TransferError>);
}

impl Request {
    /// Ends the request without carrying it out.
    pub(super) fn fail(self, error: TransferError) {
        drop(self.chunk);
        self.reply.done(Err(error));
    }

    /// Takes the request apart for submission.
    pub(super) fn submit_as(self, ticket: u64) -> (Operation, Pending) {
        let (lease, detached) = self.chunk.detach();
        let operation = Operation {
            ticket,
            direction: self.direction,
            descriptor: Arc::clone(&self.descriptor),
            remote_start: self.remote_start,
            length: self.length,
            lease,
        };
        let pending = Pending {
            ticket,
            direction: self.direction,
            descriptor: self.descriptor,
            remote_start: self.remote_start,
            length: self.length,
            detached,
            reply: Some(self.reply),
            attempts: self.attempts,
            moves: self.moves,
        };
        (operation, pending)
    }
}

/// What a lane keeps of a request while its lease is in the channel.
pub(super) struct Pending {
    pub(super) ticket: u64,
    direction: Direction,
    descriptor: Arc<Descriptor>,
    remote_start: u64,
    pub(super) length: usize,
    detached: Detached,
    /// `None` once the operation has been reported as timed out.
    reply: Option<Box<dyn Reply>>,
    pub(super) attempts: u32,
    moves: u32,
}

impl Pending {
    /// The lease is back: makes a request of it again, or only a chunk when it was given up.
    pub(super) fn resume(self, lease: Lease, avoid: Option<u64>) -> Result<Request, Chunk> {
        let chunk = self.detached.attach(lease);
        let Some(reply) = self.reply else { return Err(chunk) };
        Ok(Request {
            direction: self.direction,
            descriptor: self.descriptor,
            remote_start: self.remote_start,
            length: self.length,
            chunk,
            reply,
            attempts: self.attempts,
            moves: self.moves,
            avoid,
        })
    }

    /// Reports the operation as failed while its lease stays where it is. True when it had not
    /// been reported before.
    pub(super) fn give_up(&mut self, error: TransferError) -> bool {
        self.detached.quarantine();
        let Some(reply) = self.reply.take() else { return false };
        reply.done(Err(error));
        true
    }
}
