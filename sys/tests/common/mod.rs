//! Calls into the C ABI with their error text, and the handles that tests need.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use cuobj_sys as sys;

/// A caller's buffer for error text.
pub(crate) struct Text([u8; 256]);

impl Text {
    pub(crate) fn new() -> Self {
        // Not zero: the shim has to end the text.
        Self([0xaa; 256])
    }

    pub(crate) fn raw(&mut self) -> sys::vgw_cuobj_text {
        sys::vgw_cuobj_text { data: self.0.as_mut_ptr().cast::<c_char>(), capacity_bytes: self.0.len() }
    }

    pub(crate) fn string(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).expect("the text ends in NUL");
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

/// Calls a function with a text buffer as its last argument; gives status and text.
macro_rules! ffi {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let mut text = $crate::common::Text::new();
        // SAFETY: the tests pass null, live handles and writable out parameters, as wrapper.h allows.
        #[allow(clippy::macro_metavars_in_unsafe)]
        let status = unsafe { cuobj_sys::$name($($argument,)* text.raw()) };
        (status, text.string())
    }};
}
pub(crate) use ffi;

/// A server on the loopback address; ends itself.
pub(crate) struct Server(pub(crate) *mut sys::vgw_cuobj_server);

impl Server {
    pub(crate) fn new(change: impl FnOnce(&mut sys::vgw_cuobj_tunables)) -> Self {
        let mut tunables = sys::vgw_cuobj_tunables::default();
        assert_eq!(ffi!(vgw_cuobj_server_default_tunables(&mut tunables)).0, sys::VGW_CUOBJ_OK);
        change(&mut tunables);
        let server = Self::on("127.0.0.1", &tunables);
        assert!(server.connected());
        server
    }

    pub(crate) fn on(address: &str, tunables: *const sys::vgw_cuobj_tunables) -> Self {
        let mut raw = null_mut();
        let (status, text) =
            ffi!(vgw_cuobj_server_create(address.as_ptr().cast(), address.len(), 19100, tunables, &mut raw));
        assert_eq!((status, text.as_str()), (sys::VGW_CUOBJ_OK, ""));
        Self(raw)
    }

    pub(crate) fn connected(&self) -> bool {
        let mut connected = false;
        assert_eq!(ffi!(vgw_cuobj_server_connected(self.0, &mut connected)).0, sys::VGW_CUOBJ_OK);
        connected
    }

    pub(crate) fn channel(&self) -> u16 {
        let mut channel = u16::MAX;
        assert_eq!(ffi!(vgw_cuobj_server_allocate_channel(self.0, &mut channel)).0, sys::VGW_CUOBJ_OK);
        channel
    }

    pub(crate) fn register(&self, memory: &mut [u8]) -> *mut sys::vgw_cuobj_buffer {
        let mut buffer = null_mut();
        let start = memory.as_mut_ptr().cast();
        let (status, text) = ffi!(vgw_cuobj_server_register(self.0, start, memory.len(), &mut buffer));
        assert_eq!((status, text.as_str()), (sys::VGW_CUOBJ_OK, ""));
        buffer
    }

    pub(crate) fn deregister(&self, buffer: *mut sys::vgw_cuobj_buffer) {
        assert_eq!(ffi!(vgw_cuobj_server_deregister(self.0, buffer)).0, sys::VGW_CUOBJ_OK);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        assert_eq!(ffi!(vgw_cuobj_server_destroy(self.0)), (sys::VGW_CUOBJ_OK, String::new()));
    }
}

/// A client; ends itself.
pub(crate) struct Client(pub(crate) *mut sys::vgw_cuobj_client);

impl Client {
    pub(crate) fn new(callback: sys::vgw_cuobj_request_fn) -> Self {
        let mut raw = null_mut();
        let made = ffi!(vgw_cuobj_client_create(callback, callback, &mut raw));
        assert_eq!(made, (sys::VGW_CUOBJ_OK, String::new()));
        Self(raw)
    }

    pub(crate) fn register(&self, memory: &mut [u8]) {
        let start = memory.as_mut_ptr().cast();
        let made = ffi!(vgw_cuobj_client_get_descriptor(self.0, start, memory.len()));
        assert_eq!(made, (sys::VGW_CUOBJ_OK, String::new()));
    }

    pub(crate) fn deregister(&self, memory: &mut [u8]) {
        let start = memory.as_mut_ptr().cast();
        assert_eq!(ffi!(vgw_cuobj_client_put_descriptor(self.0, start)).0, sys::VGW_CUOBJ_OK);
    }

    /// Mints a token and gives it back at once: its text stays valid as long as the registration.
    pub(crate) fn token(&self, memory: &mut [u8], op: i32) -> String {
        let mut token: *mut c_char = null_mut();
        let start: *mut c_void = memory.as_mut_ptr().cast();
        let made = ffi!(vgw_cuobj_client_get_token(self.0, start, memory.len(), 0, op, &mut token));
        assert_eq!(made, (sys::VGW_CUOBJ_OK, String::new()));
        // SAFETY: a minted token ends in NUL (wrapper.h).
        let text = unsafe { std::ffi::CStr::from_ptr(token) }.to_str().unwrap().to_owned();
        assert_eq!(ffi!(vgw_cuobj_client_put_token(self.0, token, 0)).0, sys::VGW_CUOBJ_OK);
        text
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        assert_eq!(ffi!(vgw_cuobj_client_destroy(self.0)), (sys::VGW_CUOBJ_OK, String::new()));
    }
}

/// A callback that does nothing and moves nothing.
pub(crate) unsafe extern "C" fn idle(_: *mut c_void, _: *const sys::vgw_cuobj_request) -> i64 {
    0
}

/// The operation of a test: `size_bytes` of `buffer` from its start.
pub(crate) fn operation(
    buffer: *mut sys::vgw_cuobj_buffer,
    descriptor: &str,
    remote_start: u64,
    size_bytes: usize,
    channel: u16,
) -> sys::vgw_cuobj_operation {
    sys::vgw_cuobj_operation {
        key: c"key".as_ptr(),
        key_length: 3,
        descriptor: descriptor.as_ptr().cast(),
        descriptor_length: descriptor.len(),
        buffer,
        local_offset_bytes: 0,
        remote_start,
        size_bytes,
        async_handle: null_mut(),
        poll_delay_ns: -1,
        channel,
    }
}

/// What the library in this build can do, `VGW_CUOBJ_HAS_…`.
pub(crate) fn abilities() -> u32 {
    let mut info = sys::vgw_cuobj_provider_info::default();
    assert_eq!(ffi!(vgw_cuobj_provider(&mut info)).0, sys::VGW_CUOBJ_OK);
    info.abilities
}

/// Whether the software SDK is linked. It refuses some things that NVIDIA's library does not check.
pub(crate) fn is_soft() -> bool {
    let mut info = sys::vgw_cuobj_provider_info::default();
    assert_eq!(ffi!(vgw_cuobj_provider(&mut info)).0, sys::VGW_CUOBJ_OK);
    // SAFETY: the name is static text that ends in NUL (wrapper.h).
    unsafe { std::ffi::CStr::from_ptr(info.name) == c"soft" }
}
