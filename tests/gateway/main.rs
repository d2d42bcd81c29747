//! The gateway in this process, over HTTP and, with an in-memory transport, over RDMA.
#![cfg(all(feature = "server", feature = "client"))]

mod acls;
mod auth;
mod bodies;
mod buckets;
mod cors;
mod exchange;
mod fixture;
mod hostile;
mod listener;
mod listing;
mod multipart;
mod objects;
mod people;
mod policies;
mod protocol;
mod rdma;
#[cfg(not(cuobj_provider = "nvidia"))]
mod rdma_clients;
mod rdma_direct_io;
mod rdma_failures;
mod rdma_faults;
#[cfg(not(cuobj_provider = "nvidia"))]
mod rdma_killed;
mod rdma_rules;
mod settings;
mod sign;
