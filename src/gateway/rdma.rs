//! Object bodies by RDMA: tokens, rules, replies, and the engine behind them.
//!
//! The wire follows NVIDIA's S3-over-RDMA specification (`x-amz-rdma-token`, `x-amz-rdma-reply`,
//! `x-amz-rdma-bytes-transferred`) and the `X-CuObj-*` headers of older tools.

pub(crate) mod crc;
pub(crate) mod foreign;
pub(crate) mod gate;
pub(crate) mod policy;
pub(crate) mod reply;
pub(crate) mod signed;
pub(crate) mod token;

use std::sync::Arc;

use crate::rdma::{Descriptor, Window};

/// What a request may move by RDMA, decided when it was let in. Lies in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) enum Intent {
    /// The body goes this way.
    Transfer(Target),
    /// A token was there, but the answer carries the body over HTTP.
    Declined,
}

/// The client's memory that a request names.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The token, as it is handed to the library.
    pub(crate) descriptor: Arc<Descriptor>,
    /// The part of the client's memory that may be read or written: for a PUT the object itself.
    pub(crate) window: Window,
}
