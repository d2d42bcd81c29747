//! The safe layer end to end: servers, channels, memory and the client over the linked library.
//!
//! What needs an environment or a second process runs in processes of its own; see `support`.
#![cfg(all(feature = "server", feature = "client", cuobj_provider = "soft"))]

#[path = "rdma/client.rs"]
mod client;
#[path = "rdma/endpoint.rs"]
mod endpoint;
#[path = "rdma/faults.rs"]
mod faults;
#[path = "rdma/operations.rs"]
mod operations;
#[path = "rdma/processes.rs"]
mod processes;
#[path = "rdma/support.rs"]
mod support;
