//! The safe layer over cuObject: memory, channels, descriptors, completions and errors.
//!
//! Nothing here knows S3, HTTP or files. This module and [`gpu`](crate::gpu) hold the only
//! `unsafe` code outside the crate `cuobj-sys`.

pub mod descriptor;
pub mod error;
pub mod memory;
pub mod status;

pub use descriptor::{Descriptor, DescriptorError, Window};
pub use error::{Errno, Error, Result};
pub use memory::{HostMemory, HugePages, Lease};
pub use status::WcStatus;
