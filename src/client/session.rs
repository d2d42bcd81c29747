//! The RDMA session of a process: the cuObject client, and buffers registered with it.

use super::{Buffer, MemoryKind, Result};
use crate::rdma;

/// The process' cuObject client. Clones share it.
#[derive(Clone, Debug)]
pub struct RdmaSession {}

impl RdmaSession {
    /// Starts the client library.
    ///
    /// # Errors
    /// [`rdma::Error::ClientUnavailable`] when it cannot start.
    pub fn open() -> Result<Self> {
        Err(rdma::Error::ClientUnavailable {
            library: "none".to_owned(),
            reason: "this build holds no cuObject client".to_owned(),
        }
        .into())
    }

    /// Allocates and registers `len` bytes of host memory.
    ///
    /// # Errors
    /// When the memory cannot be had or registered.
    pub fn host_buffer(&self, len: usize) -> Result<Buffer> {
        Buffer::unregistered(len)
    }

    /// The kind of memory to use where none was named.
    pub fn default_memory(&self) -> MemoryKind {
        MemoryKind::Host
    }
}
