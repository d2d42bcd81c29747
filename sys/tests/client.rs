//! The client's half of the C ABI over whatever library is linked.
#![cfg(all(feature = "server", feature = "client"))]

mod common;

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use common::{Client, ffi, idle};
use cuobj_sys as sys;

#[test]
fn client_memory_and_tokens_are_refused_with_the_library_s_code() {
    let client = Client::new(Some(idle));
    let mut connected = false;
    assert_eq!(ffi!(vgw_cuobj_client_connected(client.0, &mut connected)).0, sys::VGW_CUOBJ_OK);
    assert!(connected);
    let mut memory = vec![0u8; 8192];
    let start: *mut c_void = memory.as_mut_ptr().cast();
    let mut bytes = 0;
    assert_eq!(ffi!(vgw_cuobj_client_max_callback_bytes(client.0, start, &mut bytes)).0, sys::VGW_CUOBJ_OK);
    assert_eq!(bytes, -1);
    client.register(&mut memory);
    assert_eq!(ffi!(vgw_cuobj_client_max_callback_bytes(client.0, start, &mut bytes)).0, sys::VGW_CUOBJ_OK);
    assert_eq!(bytes, 8192);

    let (status, text) = ffi!(vgw_cuobj_client_get_descriptor(client.0, start, 8192));
    assert_eq!(status, sys::VGW_CUOBJ_REFUSED);
    assert!(text.contains("cuMemObjGetDescriptor") && text.ends_with(": 1"), "{text}");
    let mut token = null_mut();
    for (size, offset) in [(0, 0), (8193, 0), (1, 8192), (8192, 1)] {
        let minted = ffi!(vgw_cuobj_client_get_token(client.0, start, size, offset, 1, &mut token));
        assert_eq!(minted.0, sys::VGW_CUOBJ_REFUSED, "{size} {offset}: {}", minted.1);
    }
    let minted = ffi!(vgw_cuobj_client_get_token(client.0, start, 1, 0, 2, &mut token));
    assert_eq!(minted.0, sys::VGW_CUOBJ_BAD_ARGUMENT);
    let minted = ffi!(vgw_cuobj_client_get_token(client.0, start, 100, 28, 1, &mut token));
    assert_eq!(minted.0, sys::VGW_CUOBJ_OK);
    // SAFETY: a minted token ends in NUL.
    let text = unsafe { CStr::from_ptr(token) }.to_str().unwrap();
    assert_eq!(text.len(), 81);
    assert!(text.starts_with(&format!("{:016x}:{:08x}:", start.addr() + 28, 100)));
    // With a reason, for libraries that take one.
    assert_eq!(ffi!(vgw_cuobj_client_put_token(client.0, token, 110)).0, sys::VGW_CUOBJ_OK);
    client.deregister(&mut memory);
    client.deregister(&mut memory);
}

#[test]
fn get_and_put_run_the_callback_with_their_context() {
    struct Seen {
        start: usize,
        size: usize,
        op: i32,
        descriptor: String,
    }
    unsafe extern "C" fn note(context: *mut c_void, request: *const sys::vgw_cuobj_request) -> i64 {
        // SAFETY: the context is the test's own, and the request is valid during the callback.
        let (seen, request) = unsafe { (&mut *context.cast::<Option<Seen>>(), &*request) };
        // SAFETY: the descriptor has the length that is given.
        let descriptor =
            unsafe { std::slice::from_raw_parts(request.descriptor.cast::<u8>(), request.descriptor_length) };
        *seen = Some(Seen {
            start: request.start.addr(),
            size: request.size_bytes,
            op: request.op,
            descriptor: String::from_utf8(descriptor.to_vec()).unwrap(),
        });
        if request.size_bytes == 13 { -7 } else { request.size_bytes as i64 }
    }
    let client = Client::new(Some(note));
    let mut memory = vec![0u8; 4096];
    let start: *mut c_void = memory.as_mut_ptr().cast();
    client.register(&mut memory);
    let mut result = 0;
    let mut seen: Option<Seen> = None;
    let context: *mut c_void = (&raw mut seen).cast();
    assert_eq!(
        ffi!(vgw_cuobj_client_get(client.0, context, start, 100, 0, 0, &mut result)).0,
        sys::VGW_CUOBJ_OK
    );
    let got = seen.take().expect("the callback ran");
    assert_eq!((result, got.start, got.size, got.op), (100, start.addr(), 100, sys::VGW_CUOBJ_OP_GET));
    assert_eq!(got.descriptor.len(), 81, "without a NUL");
    assert_eq!(
        ffi!(vgw_cuobj_client_put(client.0, context, start, 13, 0, 0, &mut result)).0,
        sys::VGW_CUOBJ_OK
    );
    assert_eq!((result < 0, seen.take().map(|seen| seen.op)), (true, Some(sys::VGW_CUOBJ_OP_PUT)));
    client.deregister(&mut memory);
}
