//! Device memory, and copies between it and the host.

use cudarc::driver::{result, sys};

use super::error::call;
use super::{Error, Gpu, Result};

/// Device memory of a fixed size. Freed on drop.
///
/// Copies and fills have ended when the call returns, so that an RDMA operation that starts later
/// finds their bytes and is not overtaken by them.
#[derive(Debug)]
pub struct DeviceBuffer {
    gpu: Gpu,
    start: sys::CUdeviceptr,
    len: usize,
}

impl DeviceBuffer {
    /// Allocates `len` bytes, zeroed.
    ///
    /// # Errors
    /// The driver's, for instance when the device's memory is used up.
    pub fn allocate(gpu: &Gpu, len: usize) -> Result<Self> {
        gpu.bind()?;
        // SAFETY: the call only allocates; the context of the device is current.
        let start = call("cuMemAlloc", || unsafe { result::malloc_sync(len) })?;
        let mut buffer = Self { gpu: gpu.clone(), start, len };
        // Copies and fills of memory that a NIC reaches must not be asynchronous (GPUDirect RDMA
        // guide, "Synchronization and Memory Ordering"); drivers without the attribute are waited
        // for in each call, so a refusal changes nothing.
        let on: u32 = 1;
        let _ = call("cuPointerSetAttribute", || {
            let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
            // SAFETY: the attribute takes a pointer to an unsigned int, which `on` is for the
            // length of the call, and `start` was just allocated.
            unsafe { sys::cuPointerSetAttribute((&raw const on).cast(), attribute, start) }.result()
        });
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a size of 0, which the driver refuses to allocate.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The device address of the first byte, for registration. The processor cannot read it.
    pub fn as_device_ptr(&self) -> *mut u8 {
        self.start as *mut u8
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or the driver's.
    pub fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        let to = self.at("copy to the device", offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: the range was checked to lie in this allocation, which lives as long as `self`;
        // `&mut self` keeps other copies of this process out.
        call("cuMemcpyHtoD", || unsafe { result::memcpy_htod_sync(to, data) })?;
        // From pageable memory the copy may return before its last stage (CUDA driver API, "API
        // synchronization behavior").
        self.gpu.synchronize()
    }

    /// Copies from `offset` to all of `out`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or the driver's.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let from = self.at("copy from the device", offset, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: the range was checked to lie in this allocation, which lives as long as `self`.
        call("cuMemcpyDtoH", || unsafe { result::memcpy_dtoh_sync(out, from) })
    }

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&mut self, value: u8) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the range is exactly this allocation, and `&mut self` keeps other copies of this
        // process out.
        call("cuMemsetD8", || unsafe { result::memset_d8_sync(self.start, value, self.len) })?;
        // The fill of device memory is asynchronous to the host.
        self.gpu.synchronize()
    }

    fn at(&self, operation: &'static str, offset: usize, length: usize) -> Result<sys::CUdeviceptr> {
        if offset.checked_add(length).is_none_or(|end| end > self.len) {
            return Err(Error::OutOfBounds { operation, offset, length, size: self.len });
        }
        Ok(self.start + offset as u64)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let freed = self.gpu.bind().and_then(|()| {
            // SAFETY: the pointer is that of `allocate`, and nothing else frees it.
            call("cuMemFree", || unsafe { result::free_sync(self.start) })
        });
        // The driver unpins asynchronously, and a registration that follows must come after that
        // ("cuObjClient API Specification", on releasing device memory).
        let freed = freed.and_then(|()| self.gpu.synchronize());
        if let Err(error) = freed {
            tracing::warn!(%error, bytes = self.len, "device memory was not freed");
        }
    }
}
