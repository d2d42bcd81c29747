//! Memory of CUDA devices, through the driver library, which is loaded when it is first needed.
//!
//! So one binary runs on machines with and without a GPU: where the library or a device is
//! missing, [`Gpu::open`] says so and nothing else changes. Calls go through the `cudarc` crate to
//! the [CUDA driver API](https://docs.nvidia.com/cuda/cuda-driver-api/).

pub mod buffer;
pub mod device;
pub mod error;
pub mod memory;

pub use buffer::DeviceBuffer;
pub use device::{Gpu, device_count};
pub use error::{Error, Result};
pub use memory::GpuMemory;
