//! What `wrapper.h` promises of every function: null pointers, exceptions, error texts.
#![cfg(all(feature = "server", feature = "client"))]

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use common::{Client, Server, ffi, idle, operation};
use cuobj_sys as sys;

/// A function that can fail, called with null handles: the guard comes before the check.
type Call = (&'static str, fn() -> (i32, String));

macro_rules! calls {
    ($($name:ident($($argument:expr),*);)*) => {
        &[$((stringify!($name), || ffi!($name($($argument),*)))),*]
    };
}

/// Functions with a pointer that must not be null.
const NULLS: &[Call] = calls! {
    vgw_cuobj_provider(null_mut());
    vgw_cuobj_server_telemetry(None, null_mut(), 0);
    vgw_cuobj_client_telemetry(None, null_mut(), 0);
    vgw_cuobj_server_default_tunables(null_mut());
    vgw_cuobj_server_create(null(), 0, 1, null(), null_mut());
    vgw_cuobj_server_connected(null_mut(), null_mut());
    vgw_cuobj_server_tunables(null_mut(), null_mut());
    vgw_cuobj_server_alloc_host_buffer(null_mut(), 1, null_mut());
    vgw_cuobj_server_register(null_mut(), null_mut(), 1, null_mut());
    vgw_cuobj_server_register_list(null_mut(), null(), 0, null_mut());
    vgw_cuobj_server_deregister(null_mut(), null_mut());
    vgw_cuobj_server_get_view(null_mut(), null_mut(), null(), 0, null_mut());
    vgw_cuobj_server_put_view(null_mut(), null_mut());
    vgw_cuobj_server_allocate_channel(null_mut(), null_mut());
    vgw_cuobj_server_free_channel(null_mut(), 0);
    vgw_cuobj_server_get(null_mut(), null(), null_mut(), null_mut());
    vgw_cuobj_server_put(null_mut(), null(), null_mut(), null_mut());
    vgw_cuobj_server_poll(null_mut(), 0, null_mut(), 1, null_mut(), null_mut());
    vgw_cuobj_client_create(None, None, null_mut());
    vgw_cuobj_client_connected(null_mut(), null_mut());
    vgw_cuobj_client_get_descriptor(null_mut(), null_mut(), 1);
    vgw_cuobj_client_put_descriptor(null_mut(), null_mut());
    vgw_cuobj_client_max_callback_bytes(null_mut(), null_mut(), null_mut());
    vgw_cuobj_client_get_token(null_mut(), null_mut(), 1, 0, 0, null_mut());
    vgw_cuobj_client_put_token(null_mut(), null_mut(), 0);
    vgw_cuobj_client_get(null_mut(), null_mut(), null_mut(), 1, 0, 0, null_mut());
    vgw_cuobj_client_put(null_mut(), null_mut(), null_mut(), 1, 0, 0, null_mut());
    vgw_cuobj_client_memory_type(null(), null_mut());
};

/// Functions for which null is good.
const NULL_IS_GOOD: &[Call] = calls! {
    vgw_cuobj_server_destroy(null_mut());
    vgw_cuobj_client_destroy(null_mut());
};

/// Functions without pointers.
const NO_POINTERS: &[Call] = calls! {
    vgw_cuobj_server_telemetry_flags(sys::VGW_CUOBJ_TELEMETRY_ERROR, 0);
    vgw_cuobj_client_telemetry_flags(sys::VGW_CUOBJ_TELEMETRY_ERROR, 0);
    vgw_cuobj_server_telemetry_stop();
    vgw_cuobj_client_telemetry_stop();
};

#[test]
fn the_tables_name_every_function_that_can_fail() {
    let header = include_str!("../../wrapper.h");
    let declared: Vec<&str> = header
        .split("vgw_cuobj_status vgw_cuobj_")
        .skip(1)
        .map(|rest| rest.split_once('(').unwrap().0)
        .collect();
    assert!(declared.len() > 30);
    for name in declared {
        let full = format!("vgw_cuobj_{name}");
        let tables = [NULLS, NULL_IS_GOOD, NO_POINTERS].concat();
        assert!(tables.iter().any(|(known, _)| *known == full), "{full} is in no table");
    }
}

#[test]
fn null_pointers_are_told_by_name() {
    for (name, call) in NULLS {
        let (status, text) = call();
        assert_eq!(status, sys::VGW_CUOBJ_NULL_ARGUMENT, "{name}: {text}");
        assert!(text.starts_with("argument ") && text.ends_with(" is null"), "{name}: {text}");
    }
    for (name, call) in NULL_IS_GOOD {
        assert_eq!(call(), (sys::VGW_CUOBJ_OK, String::new()), "{name}");
    }
    // SAFETY: null is allowed.
    unsafe { sys::vgw_cuobj_server_free_host_buffer(null_mut()) };
}

#[test]
fn each_further_null_pointer_is_told_by_name() {
    let server = Server::new(|_| ());
    let client = Client::new(Some(idle));
    let mut memory = vec![0u8; 4096];
    let start: *mut c_void = memory.as_mut_ptr().cast();
    let address = "127.0.0.1";
    let (mut out, mut size, mut number) = (0i64, 0usize, 0i32);
    let mut events = [sys::vgw_cuobj_event::default()];
    let mut buffer = null_mut();
    let segment = sys::vgw_cuobj_segment { start, size_bytes: 1 };
    let real = server.register(&mut memory);
    let op = operation(real, "", 1, 1, 0);
    let no_buffer = operation(null_mut(), "", 1, 1, 0);
    let no_descriptor = sys::vgw_cuobj_operation { descriptor: null(), ..op };
    let no_key = sys::vgw_cuobj_operation { key: null(), ..op };
    let (server_raw, client_raw) = (server.0, client.0);
    let cases = [
        ("out", ffi!(vgw_cuobj_server_create(address.as_ptr().cast(), 9, 1, null(), null_mut()))),
        ("out", ffi!(vgw_cuobj_server_connected(server_raw, null_mut()))),
        ("out", ffi!(vgw_cuobj_server_tunables(server_raw, null_mut()))),
        ("out", ffi!(vgw_cuobj_server_alloc_host_buffer(server_raw, 1, null_mut()))),
        ("start", ffi!(vgw_cuobj_server_register(server_raw, null_mut(), 1, &mut buffer))),
        ("out", ffi!(vgw_cuobj_server_register(server_raw, start, 1, null_mut()))),
        ("segments", ffi!(vgw_cuobj_server_register_list(server_raw, null(), 1, &mut buffer))),
        ("out", ffi!(vgw_cuobj_server_register_list(server_raw, &segment, 1, null_mut()))),
        ("base", ffi!(vgw_cuobj_server_get_view(server_raw, null_mut(), null(), 1, &mut buffer))),
        ("ranges", ffi!(vgw_cuobj_server_get_view(server_raw, real, null(), 1, &mut buffer))),
        ("view", ffi!(vgw_cuobj_server_put_view(server_raw, null_mut()))),
        ("out", ffi!(vgw_cuobj_server_allocate_channel(server_raw, null_mut()))),
        ("operation", ffi!(vgw_cuobj_server_get(server_raw, null(), &mut out, null_mut()))),
        ("result", ffi!(vgw_cuobj_server_get(server_raw, &op, null_mut(), null_mut()))),
        ("operation.buffer", ffi!(vgw_cuobj_server_put(server_raw, &no_buffer, &mut out, null_mut()))),
        (
            "operation.descriptor",
            ffi!(vgw_cuobj_server_put(server_raw, &no_descriptor, &mut out, null_mut())),
        ),
        ("operation.key", ffi!(vgw_cuobj_server_get(server_raw, &no_key, &mut out, null_mut()))),
        ("events", ffi!(vgw_cuobj_server_poll(server_raw, 0, null_mut(), 1, &mut size, &mut number))),
        (
            "count",
            ffi!(vgw_cuobj_server_poll(server_raw, 0, events.as_mut_ptr(), 1, null_mut(), &mut number)),
        ),
        ("result", ffi!(vgw_cuobj_server_poll(server_raw, 0, events.as_mut_ptr(), 1, &mut size, null_mut()))),
        ("put", ffi!(vgw_cuobj_client_create(Some(idle), None, null_mut()))),
        ("out", ffi!(vgw_cuobj_client_create(Some(idle), Some(idle), null_mut()))),
        ("out", ffi!(vgw_cuobj_client_connected(client_raw, null_mut()))),
        ("start", ffi!(vgw_cuobj_client_get_descriptor(client_raw, null_mut(), 1))),
        ("start", ffi!(vgw_cuobj_client_put_descriptor(client_raw, null_mut()))),
        ("result", ffi!(vgw_cuobj_client_max_callback_bytes(client_raw, start, null_mut()))),
        ("token", ffi!(vgw_cuobj_client_get_token(client_raw, start, 1, 0, 0, null_mut()))),
        ("token", ffi!(vgw_cuobj_client_put_token(client_raw, null_mut(), 0))),
        ("start", ffi!(vgw_cuobj_client_get(client_raw, null_mut(), null_mut(), 1, 0, 0, &mut out))),
        ("result", ffi!(vgw_cuobj_client_put(client_raw, null_mut(), start, 1, 0, 0, null_mut()))),
    ];
    for (name, (status, text)) in cases {
        assert_eq!((status, text), (sys::VGW_CUOBJ_NULL_ARGUMENT, format!("argument {name} is null")));
    }
    server.deregister(real);
}

#[test]
fn no_exception_leaves_any_function() {
    for (name, call) in [NULLS, NULL_IS_GOOD, NO_POINTERS].concat() {
        for (kind, told) in [(1, "thrown for a test"), (2, "exception of unknown type"), (3, "bad_alloc")] {
            // SAFETY: takes a number.
            unsafe { sys::vgw_cuobj_test_throw(kind) };
            let (status, text) = call();
            assert_eq!(status, sys::VGW_CUOBJ_EXCEPTION, "{name}: {text}");
            assert!(text.contains(told), "{name}: {text}");
        }
        assert_ne!(call().0, sys::VGW_CUOBJ_EXCEPTION, "{name}: thrown once only");
    }
}

#[test]
fn text_is_cut_to_the_buffer_and_the_buffer_is_optional() {
    let mut small = [0x55 as c_char; 9];
    let text = sys::vgw_cuobj_text { data: small.as_mut_ptr(), capacity_bytes: small.len() - 1 };
    // SAFETY: a null argument is refused before anything else happens.
    let status = unsafe { sys::vgw_cuobj_server_connected(null_mut(), null_mut(), text) };
    assert_eq!(status, sys::VGW_CUOBJ_NULL_ARGUMENT);
    // SAFETY: the text was ended by the shim.
    assert_eq!(unsafe { CStr::from_ptr(small.as_ptr()) }, c"argumen");
    assert_eq!(small[8], 0x55, "nothing is written behind the buffer");
    for text in
        [sys::vgw_cuobj_text::default(), sys::vgw_cuobj_text { data: small.as_mut_ptr(), capacity_bytes: 0 }]
    {
        // SAFETY: as above; both are ways to ask for no text.
        let status = unsafe { sys::vgw_cuobj_server_connected(null_mut(), null_mut(), text) };
        assert_eq!(status, sys::VGW_CUOBJ_NULL_ARGUMENT);
    }
}
