//! The object store against real directories.

#[path = "store/common.rs"]
mod common;
#[path = "store/multipart.rs"]
mod multipart;
#[path = "store/objects.rs"]
mod objects;
#[path = "store/observer.rs"]
mod observer;
#[path = "store/versions.rs"]
mod versions;
