//! The RDMA engine over the transports for tests: the common suite, faults, load, endpoints.

mod cancel;
#[cfg(feature = "client")]
mod cuobj;
mod endpoints;
mod faults;
mod load;
mod rig;
mod suite;
