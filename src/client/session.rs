//! The RDMA session of a process: the cuObject client, and buffers registered with it.

use super::{Buffer, MemoryKind, Result};
use crate::gpu::{self, Gpu, GpuMemory};
use crate::rdma::{CuClient, HostMemory, HugePages};

/// The process' cuObject client. Clones share it.
///
/// Opening and registering block; in asynchronous programs do both before the transfers, or on a
/// thread for blocking work.
#[derive(Clone, Debug)]
pub struct RdmaSession {
    client: CuClient,
}

impl RdmaSession {
    /// Starts the client library, or takes the one that runs.
    ///
    /// # Errors
    /// [`rdma::Error::ClientUnavailable`](crate::rdma::Error::ClientUnavailable) when it cannot start.
    pub fn open() -> Result<Self> {
        Ok(Self { client: CuClient::open()? })
    }

    /// The client, for its own callbacks (`cuObjGet`, `cuObjPut`).
    pub fn client(&self) -> &CuClient {
        &self.client
    }

    /// Allocates and registers `len` bytes of host memory, zeroed.
    ///
    /// # Errors
    /// When the memory cannot be had or registered.
    pub fn host_buffer(&self, len: usize) -> Result<Buffer> {
        let memory = HostMemory::allocate(len, HugePages::Advise)?;
        Ok(Buffer::new(self.client.register(memory)?))
    }

    /// Allocates and registers `len` bytes of a CUDA device's memory, zeroed.
    ///
    /// # Errors
    /// When the memory cannot be had or registered.
    pub fn gpu_buffer(&self, gpu: &Gpu, len: usize) -> Result<Buffer> {
        Ok(Buffer::new(GpuMemory::allocate(&self.client, gpu, len)?))
    }

    /// The kind of memory to use where none was named: the GPU's where there is one.
    pub fn default_memory(&self) -> MemoryKind {
        if gpu::device_count() > 0 { MemoryKind::Gpu } else { MemoryKind::Host }
    }
}
