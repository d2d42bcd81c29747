//! The RDMA engine: moves bytes between registered memory and remote windows, and between that
//! memory and whatever holds an object's bytes.
//!
//! The engine knows the safe layer only through [`transport::Endpoint`] and
//! [`transport::Channel`], and storage only through [`BlockSink`] and [`BlockSource`].

pub mod cuobj;
pub mod transport;

use std::io;

/// Where the bytes of a PUT go. Called from the engine's worker threads, several at once.
pub trait BlockSink: Send + Sync + 'static {
    /// Stores all of `data` at byte `offset`; offsets arrive in any order and never overlap.
    ///
    /// # Errors
    /// Fails the transfer; the engine calls no more writes once it has seen one.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
}

/// Where the bytes of a GET come from. Called from the engine's worker threads, several at once.
pub trait BlockSource: Send + Sync + 'static {
    /// Fills all of `data` from byte `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the source ends early; any error fails the transfer.
    fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()>;
}

/// Sees the bytes of a transfer in their order, for digests.
pub trait OrderedSink: Send + 'static {
    /// Takes the next bytes.
    fn update(&mut self, data: &[u8]);
}
