//! The safe layer end to end: servers, channels, memory and the client over the linked library.
//!
//! With the software SDK all of it runs everywhere. With NVIDIA's libraries the part that needs no
//! faults on purpose runs where a device is named when building, by `VGWRDMA_TEST_ADDR`.
//!
//! What needs an environment or a second process runs in processes of its own; see `support`.
#![cfg(all(feature = "server", feature = "client", any(cuobj_provider = "soft", rdma_test_device)))]

#[path = "rdma/client.rs"]
mod client;
#[path = "rdma/endpoint.rs"]
mod endpoint;
#[cfg(cuobj_provider = "soft")]
#[path = "rdma/faults.rs"]
mod faults;
#[path = "rdma/operations.rs"]
mod operations;
#[cfg(cuobj_provider = "soft")]
#[path = "rdma/processes.rs"]
mod processes;
#[path = "rdma/support.rs"]
mod support;
