//! The RDMA engine: moves bytes between registered memory and remote windows, and between that
//! memory and whatever holds an object's bytes.
//!
//! The engine knows the safe layer only through [`transport::Endpoint`] and
//! [`transport::Channel`], and storage only through [`BlockSink`] and [`BlockSource`].

pub mod config;
pub mod engine;
pub mod error;
pub mod stats;
pub mod transport;

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
}

/// Sees the bytes of a transfer in their order, for digests.
pub trait OrderedSink: Send + 'static {
    /// Takes the next bytes.
    fn update(&mut self, data: &[u8]);
}

/// Nothing to see: for transfers without digests.
impl OrderedSink for () {
    fn update(&mut self, _data: &[u8]) {}
}

impl OrderedSink for crate::digest::Digester {
    fn update(&mut self, data: &[u8]) {
        crate::digest::Digester::update(self, data);
    }
}
