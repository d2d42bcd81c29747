//! The RDMA engine: moves bytes between registered memory and remote windows, and between that
//! memory and whatever holds an object's bytes.
//!
//! The engine knows the safe layer only through [`transport::Endpoint`] and
//! [`transport::Channel`], and storage only through [`BlockSink`] and [`BlockSource`].

pub mod config;
pub mod cuobj;
mod driven;
pub mod engine;
pub mod error;
mod lane;
mod pace;
mod pieces;
mod pool;
mod pull;
mod push;
mod request;
mod router;
mod running;
pub mod stats;
mod subnet;
pub mod transport;
mod workers;

use std::io;

pub use config::{ConfigError, EngineConfig};
pub use engine::{Engine, RemoteWindow, TransferReport};
pub use error::{Side, StartError, TransferError};
pub use stats::EngineStats;

/// Where the bytes of a PUT go. Called from the engine's worker threads, several at once.
pub trait BlockSink: Send + Sync + 'static {
    /// Stores all of `data` at byte `offset`; offsets arrive in any order and never overlap.
    ///
    /// `data` starts on a page boundary, and all blocks but the last of a transfer have a length
    /// that is a multiple of the page size, so a sink with `O_DIRECT` has only the tail to care for.
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

    /// As [`read_at`](Self::read_at) into the first `length` bytes of `chunk`, with room behind them.
    ///
    /// `chunk` starts on a page boundary and has whole pages, at least as many as `length` needs; so
    /// a source with `O_DIRECT` can read up to the next boundary. What it leaves behind `length`
    /// reaches nobody. When a transfer starts within a page of the source, only its first block does
    /// so, if it has several.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_block(&self, offset: u64, length: usize, chunk: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, &mut chunk[..length])
    }
}

impl<S: BlockSource + ?Sized> BlockSource for std::sync::Arc<S> {
    fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, data)
    }

    fn read_block(&self, offset: u64, length: usize, chunk: &mut [u8]) -> io::Result<()> {
        (**self).read_block(offset, length, chunk)
    }
}

/// Sees the bytes of a transfer in their order, for digests.
pub trait OrderedSink: Send + 'static {
    /// Takes the next bytes.
    fn update(&mut self, data: &[u8]);

    /// False when the bytes need not be shown: `update` is then never called. Asked once.
    fn is_needed(&self) -> bool {
        true
    }
}

/// Nothing to see: for transfers without digests.
impl OrderedSink for () {
    fn update(&mut self, _data: &[u8]) {}

    fn is_needed(&self) -> bool {
        false
    }
}

impl OrderedSink for crate::digest::Digester {
    fn update(&mut self, data: &[u8]) {
        crate::digest::Digester::update(self, data);
    }
}
