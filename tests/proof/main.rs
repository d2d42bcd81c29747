//! The gateway as a program: killed at any moment, two of them over one directory, file systems that
//! are full, read-only, broken or lack something.
#![cfg(all(feature = "server", feature = "client", not(cuobj_provider = "nvidia")))]

mod client;
mod content;
mod crash;
mod disks;
mod mount;
mod process;
#[path = "../gateway/sign.rs"]
#[allow(dead_code, reason = "shared with the tests of the gateway in one process")]
mod sign;
mod tree;
mod twins;
