//! Bindings to NVIDIA's cuObject (`cuObjServer`, `cuObjClient`) through the C ABI of `wrapper.h`.
//!
//! The classes are C++; `shim/` wraps them in C functions, and this crate is what bindgen makes of
//! the header. Behind it stand NVIDIA's libraries or the software SDK of `soft/`, chosen when
//! building (see `build.rs`). Conventions on handles, threads and errors open `wrapper.h`.
//!
//! Features: `server` links cuObjServer, `client` cuObjClient; functions of the other side are
//! declared but not linked.

mod generated {
    #![allow(
        non_camel_case_types,
        non_snake_case,
        non_upper_case_globals,
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        rustdoc::all,
        clippy::all,
        clippy::undocumented_unsafe_blocks
    )]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use generated::*;
