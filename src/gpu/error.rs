//! Failures of the CUDA driver.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cudarc::driver::DriverError;

/// Result of an operation on a GPU.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of an operation on a GPU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver library is not on this machine.
    #[error("no CUDA driver: libcuda.so.1 cannot be loaded; install the NVIDIA driver, or use host memory")]
    NoDriver,
    /// The driver is there, a device is not.
    #[error("no CUDA device {ordinal}: the driver sees {count}; nvidia-smi lists them")]
    NoDevice {
        /// Number of the device asked for.
        ordinal: u32,
        /// Devices that the driver sees.
        count: u32,
    },
    /// A call of the driver failed.
    #[error("{operation}: {reason}")]
    Driver {
        /// The function of the driver API.
        operation: &'static str,
        /// Name and text of its result.
        reason: String,
    },
    /// The cuObject client refused the memory, or did not let go of it.
    #[error("GPU memory: {0}; nvidia_peermem or dma-buf must be there for it, see `cuobjtest devices`")]
    Register(#[source] crate::rdma::Error),
    /// A copy would leave the buffer.
    #[error("{operation}: {length} bytes at offset {offset} do not fit in a device buffer of {size}")]
    OutOfBounds {
        /// What was asked for.
        operation: &'static str,
        /// Offset in bytes.
        offset: usize,
        /// Length in bytes.
        length: usize,
        /// Size of the buffer in bytes.
        size: usize,
    },
}

/// Makes a call of the driver, and turns its failure into an [`Error`].
///
/// `cudarc` looks every function up when it is first called, and panics where an old driver lacks
/// it; that becomes an error too.
pub(super) fn call<T>(
    operation: &'static str,
    driver: impl FnOnce() -> std::result::Result<T, DriverError>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(driver)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Error::Driver { operation, reason: text(error) }),
        Err(_) => Err(Error::Driver {
            operation,
            reason: "the driver library lacks the function; update it".into(),
        }),
    }
}

fn text(error: DriverError) -> String {
    let part =
        |text: Result<&std::ffi::CStr, DriverError>| text.ok().map(|t| t.to_string_lossy().into_owned());
    let name = part(error.error_name()).unwrap_or_else(|| format!("code {}", error.0 as u32));
    match part(error.error_string()) {
        Some(description) => format!("{description} ({name})"),
        None => name,
    }
}
