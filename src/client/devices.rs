//! RDMA devices of this machine: what they are, which one reaches a gateway, and what is missing.
//!
//! Everything is read from files of the kernel (`/sys/class/infiniband`, `/proc/net`, …) under a
//! root that tests put elsewhere; no verbs library is needed.

mod choose;
mod network;
mod problems;
mod sysfs;

#[cfg(test)]
pub(crate) use problems::testing;

pub use choose::{Choice, Pick, Reach, choose};
pub use network::{Route, routes};
pub use problems::{Problem, problems};
pub use sysfs::{Device, Gid, GidKind, LinkLayer, Port, devices};
