//! GPU buffers.
