//! GPU memory: registered with the client library, or plain for standard S3.

use super::host::not_registered;
use super::{Buffer, Memory, MemoryKind, Result, Token};
use crate::gpu::{DeviceBuffer, Gpu, GpuMemory};
use crate::rdma::Op;

impl Buffer {
    /// Memory of a CUDA device without a registration: good for
    /// [`put_http`](super::Client::put_http) and [`get_http`](super::Client::get_http); RDMA requests
    /// refuse it.
    ///
    /// # Errors
    /// The driver's, or when `len` is 0.
    pub fn unregistered_gpu(gpu: &Gpu, len: usize) -> Result<Self> {
        Ok(Self::new(DeviceBuffer::allocate(gpu, len)?))
    }
}

impl Memory for GpuMemory {
    fn len(&self) -> usize {
        GpuMemory::len(self)
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Gpu
    }

    fn token(&self, offset: usize, length: usize, op: Op) -> Result<Token> {
        Ok(Token::new(GpuMemory::token(self, op, offset, length)?))
    }

    fn settle(&mut self) -> Result<()> {
        Ok(GpuMemory::settle(self)?)
    }

    fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        Ok(GpuMemory::copy_in(self, offset, data)?)
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        Ok(GpuMemory::copy_out(self, offset, out)?)
    }

    fn fill(&mut self, value: u8) -> Result<()> {
        Ok(GpuMemory::fill(self, value)?)
    }
}

impl Memory for DeviceBuffer {
    fn len(&self) -> usize {
        DeviceBuffer::len(self)
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Gpu
    }

    fn token(&self, _: usize, _: usize, _: Op) -> Result<Token> {
        Err(not_registered())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        Ok(DeviceBuffer::copy_in(self, offset, data)?)
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        Ok(DeviceBuffer::copy_out(self, offset, out)?)
    }

    fn fill(&mut self, value: u8) -> Result<()> {
        Ok(DeviceBuffer::fill(self, value)?)
    }
}
