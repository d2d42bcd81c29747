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

#[cfg(test)]
mod tests {
    //! Known answers: they prove that the shim and a library are linked and that the bindings
    //! agree with them.
    use super::*;

    fn no_text() -> vgw_cuobj_text {
        vgw_cuobj_text::default()
    }

    #[test]
    fn the_shim_is_of_this_header() {
        // SAFETY: takes no arguments.
        assert_eq!(unsafe { vgw_cuobj_abi_version() }, VGW_CUOBJ_ABI_VERSION);
    }

    #[test]
    fn abilities_are_those_of_the_features() {
        let mut info = vgw_cuobj_provider_info::default();
        // SAFETY: `info` is writable, and the text is optional.
        assert_eq!(unsafe { vgw_cuobj_provider(&mut info, no_text()) }, VGW_CUOBJ_OK);
        assert_eq!(info.abilities & VGW_CUOBJ_HAS_SERVER != 0, cfg!(feature = "server"));
        assert_eq!(info.abilities & VGW_CUOBJ_HAS_CLIENT != 0, cfg!(feature = "client"));
    }

    #[test]
    #[cfg(feature = "server")]
    fn default_tunables_are_the_documented_ones() {
        let mut tunables = vgw_cuobj_tunables::default();
        // SAFETY: `tunables` is writable, and the text is optional.
        let status = unsafe { vgw_cuobj_server_default_tunables(&mut tunables, no_text()) };
        assert_eq!(status, VGW_CUOBJ_OK);
        assert_eq!((tunables.num_dcis, tunables.cq_depth, tunables.dc_key), (128, 640, 0xffee_ddcc));
        assert_eq!((tunables.timeout, tunables.retry_count, tunables.hop_limit), (16, 7, 4));
        assert_eq!((tunables.traffic_class, tunables.service_level, tunables.pkey_index), (96, 0, 0));
        assert_eq!((tunables.delay_interval_ns, tunables.delay_mode), (5000, VGW_CUOBJ_DELAY_BATCH));
        assert_eq!((tunables.qp_reset_on_failure, tunables.max_rd_atomic), (true, 0));
    }

    #[test]
    #[cfg(feature = "client")]
    fn host_memory_is_of_type_system() {
        let byte = 0u8;
        let mut kind = -1;
        // SAFETY: `kind` is writable; the library judges the address and does not read there.
        let status = unsafe { vgw_cuobj_client_memory_type((&raw const byte).cast(), &mut kind, no_text()) };
        assert_eq!((status, kind), (VGW_CUOBJ_OK, VGW_CUOBJ_MEMORY_SYSTEM));
    }

    #[test]
    fn events_hold_what_a_poll_gives_at_most() {
        assert_eq!(VGW_CUOBJ_MAX_EVENTS, 16);
        assert_eq!(size_of::<vgw_cuobj_event>(), 16);
    }
}
