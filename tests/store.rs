//! The object store against real directories.

#[path = "store/common.rs"]
mod common;
#[path = "store/objects.rs"]
mod objects;
