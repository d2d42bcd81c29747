//! An S3 gateway over a POSIX directory whose object bodies move by RDMA, and its client.
//!
//! The layers, from the bottom up; each knows only those named before it:
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | [`rdma`] | the bindings `cuobj-sys`: memory, channels, descriptors, completions | S3, HTTP, files |
//! | [`transfer`] | the safe layer through one trait; bytes at offsets | S3, HTTP |
//! | [`store`] | files, extended attributes, the S3 object model | HTTP, RDMA |
//! | [`gateway`] | s3s, hyper, wire headers, accounts, the store, the engine | FFI |
//! | [`client`], [`gpu`] | signed S3 requests, `CuClient`, the CUDA driver | the gateway's internals |
#![deny(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
pub mod digest;
#[cfg(feature = "server")]
pub mod gateway;
#[cfg(feature = "client")]
#[allow(unsafe_code)]
pub mod gpu;
#[allow(unsafe_code)]
pub mod rdma;
#[cfg(feature = "server")]
pub mod store;
#[cfg(feature = "server")]
pub mod transfer;
pub mod units;
