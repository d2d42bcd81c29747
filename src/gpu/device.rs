//! A CUDA device and its primary context.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};

use super::error::call;
use super::{Error, Result};

/// How many CUDA devices there are; 0 also where there is no driver.
pub fn device_count() -> u32 {
    count().unwrap_or(0)
}

fn count() -> Result<u32> {
    if !driver_present() {
        return Err(Error::NoDriver);
    }
    match call("cuInit", result::init) {
        Ok(()) => {}
        Err(Error::Driver { reason, .. }) if reason.contains("CUDA_ERROR_NO_DEVICE") => return Ok(0),
        Err(error) => return Err(error),
    }
    Ok(call("cuDeviceGetCount", result::device::get_count)?.max(0) as u32)
}

/// True when the driver library can be loaded. `cudarc` panics at the first call where it cannot.
fn driver_present() -> bool {
    // SAFETY: loading a library runs its initializers. The names tried are those of NVIDIA's driver
    // library, whose initializers are made to be run by any program that loads it.
    unsafe { sys::is_culib_present() }
}

/// A CUDA device, with its primary context. Clones share it.
#[derive(Clone)]
pub struct Gpu {
    context: Arc<CudaContext>,
    ordinal: u32,
}

impl Gpu {
    /// Opens the device with this number.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::NoDevice`], or the driver's.
    pub fn open(ordinal: u32) -> Result<Self> {
        let count = count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let context = call("cuDevicePrimaryCtxRetain", || CudaContext::new(ordinal as usize))?;
        Ok(Self { context, ordinal })
    }

    /// Number of the device.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Name of the device, `NVIDIA H200`.
    ///
    /// # Errors
    /// The driver's.
    pub fn name(&self) -> Result<String> {
        call("cuDeviceGetName", || self.context.name())
    }

    /// Waits until everything given to the device is done.
    ///
    /// # Errors
    /// The driver's, also those of earlier asynchronous work.
    pub fn synchronize(&self) -> Result<()> {
        call("cuCtxSynchronize", || self.context.synchronize())
    }

    /// Makes the device's context the calling thread's own.
    pub(super) fn bind(&self) -> Result<()> {
        call("cuCtxSetCurrent", || self.context.bind_to_thread())
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.ordinal).finish()
    }
}
