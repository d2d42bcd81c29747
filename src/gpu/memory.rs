//! Device memory registered with the cuObject client.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DeviceBuffer, Error, Gpu, Result};
use crate::rdma::{self, CuClient, Op, OwnedToken, RawRegistration};

/// Device memory that a server can be given access to.
///
/// As with [`ClientMemory`](rdma::ClientMemory), tokens that were dropped without
/// [`finish`](OwnedToken::finish) lose their access before the bytes are touched.
pub struct GpuMemory {
    // Fields drop in this order: the registration ends before its memory is freed.
    registration: RawRegistration,
    buffer: Arc<Mutex<DeviceBuffer>>,
    gpu: Gpu,
    len: usize,
}

impl GpuMemory {
    /// Allocates `len` bytes on the device and registers them.
    ///
    /// # Errors
    /// The driver's, or the library's: GPU memory needs a device, a driver and a library that know
    /// each other.
    pub fn allocate(client: &CuClient, gpu: &Gpu, len: usize) -> Result<Self> {
        let buffer = DeviceBuffer::allocate(gpu, len)?;
        let start = NonNull::new(buffer.as_device_ptr().cast::<c_void>()).ok_or(Error::OutOfBounds {
            operation: "allocate",
            offset: 0,
            length: len,
            size: 0,
        })?;
        let buffer = Arc::new(Mutex::new(buffer));
        // SAFETY: the device memory stays where it is until the last `Arc` drops, and the owner is
        // one; every method here that touches the bytes ends the access of open tokens first, and
        // no Rust reference into device memory can exist.
        let registration = unsafe { client.register_raw(start, len, Box::new(Arc::clone(&buffer))) }
            .map_err(Error::Register)?;
        Ok(Self { registration, buffer, gpu: gpu.clone(), len })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: an empty registration is refused.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Mints a token for `length` bytes from `offset`.
    ///
    /// # Errors
    /// As [`RawRegistration::token`].
    pub fn token(&self, op: Op, offset: usize, length: usize) -> rdma::Result<OwnedToken> {
        self.registration.token(op, offset, length)
    }

    /// Ends the access of tokens that have not been finished.
    ///
    /// # Errors
    /// When the library does not confirm it.
    pub fn settle(&self) -> Result<()> {
        if self.registration.is_open() {
            self.registration.revoke().map_err(Error::Register)?;
            // The driver unpins asynchronously, and a new registration must come after that
            // ("cuObjClient API Specification", on releasing device memory).
            self.gpu.synchronize()?;
        }
        Ok(())
    }

    fn settled(&self) -> Result<MutexGuard<'_, DeviceBuffer>> {
        self.settle()?;
        Ok(self.buffer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// The driver's, or when access of tokens cannot be ended.
    pub fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.settled()?.copy_in(offset, data)
    }

    /// Copies from `offset` to all of `out`.
    ///
    /// # Errors
    /// As [`copy_in`](Self::copy_in).
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.settled()?.copy_out(offset, out)
    }

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// As [`copy_in`](Self::copy_in).
    pub fn fill(&mut self, value: u8) -> Result<()> {
        self.settled()?.fill(value)
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            tracing::warn!(%error, bytes = self.len, "registered device memory is still open");
        }
    }
}

impl fmt::Debug for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuMemory").field("gpu", &self.gpu).field("len", &self.len).finish_non_exhaustive()
    }
}
