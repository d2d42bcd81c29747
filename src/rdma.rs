//! The safe layer over cuObject: memory, channels, descriptors, completions and errors.
//!
//! Nothing here knows S3, HTTP or files. This module and [`gpu`](crate::gpu) hold the only
//! `unsafe` code outside the crate `cuobj-sys`.
//!
//! - [`CuServer`] is an RDMA address of this host. [`RegisteredMemory`] is memory that its device
//!   may reach, handed out as [`Lease`]s; a [`Channel`] moves the bytes of a lease to or from the
//!   memory that a client's [`Descriptor`] names.
//! - [`CuClient`] is the other side: it registers memory and mints the descriptors.
//!
//! # Ownership
//! A child holds an `Arc` of its parent, so nothing outlives what it needs. An operation owns the
//! lease it works on; whoever holds a lease may therefore read and write its bytes. A lease whose
//! operation may still be under way when nothing more will be heard of it is withheld for good, and
//! counted: see [`quarantine`].
//!
//! # Threads
//! Servers, clients and memory may be shared. A channel is used by one thread at a time and may be
//! moved to it.

pub mod descriptor;
pub mod error;
pub mod memory;
pub mod provider;
pub mod quarantine;
pub mod status;
#[cfg(any(feature = "server", feature = "client"))]
pub mod telemetry;

#[cfg(feature = "server")]
pub mod channel;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
pub mod local;
#[cfg(feature = "server")]
pub mod registered;
#[cfg(feature = "server")]
pub mod server;
mod shim;
#[cfg(feature = "server")]
pub mod tunables;

#[cfg(feature = "server")]
pub use channel::{Channel, Completion, Direction, Failed, Operation};
#[cfg(feature = "client")]
pub use client::{ClientMemory, CuClient, MemoryType, Op, OwnedToken, RawRegistration, Request, Token};
pub use descriptor::{Descriptor, DescriptorError, Window};
pub use error::{Errno, Error, Result};
#[cfg(feature = "server")]
pub use local::{Gather, Local};
pub use memory::{HostMemory, HugePages, Lease};
pub use provider::Provider;
#[cfg(feature = "server")]
pub use registered::RegisteredMemory;
#[cfg(feature = "server")]
pub use server::CuServer;
pub use status::WcStatus;
#[cfg(feature = "server")]
pub use tunables::{DelayMode, Tunables};
