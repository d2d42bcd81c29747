//! The server's half of the C ABI over whatever library is linked.
#![cfg(all(feature = "server", feature = "client"))]

mod common;

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use common::{Client, Server, abilities, ffi, idle, is_soft, operation};
use cuobj_sys as sys;

const EIO: i64 = -5;
const EINVAL: i32 = -22;

#[test]
fn an_address_that_cannot_be_served_gives_a_server_without_a_session() {
    for address in ["192.0.2.1", "not an address", "[::1]"] {
        // NVIDIA's library leaves that to the device, and stand-in devices take any address.
        if address == "192.0.2.1" && !is_soft() {
            continue;
        }
        assert!(!Server::on(address, null()).connected(), "{address}");
    }
    let mut raw = null_mut();
    for address in ["", "127.0.0.1\0"] {
        let (status, text) =
            ffi!(vgw_cuobj_server_create(address.as_ptr().cast(), address.len(), 1, null(), &mut raw));
        assert_eq!(status, sys::VGW_CUOBJ_BAD_ARGUMENT, "{text}");
        assert!(raw.is_null());
    }
}

#[test]
fn tunables_reach_the_library() {
    let server = Server::new(|tunables| {
        tunables.num_dcis = 3;
        tunables.cq_depth = 17;
        tunables.dc_key = 0x1234_5678;
        tunables.delay_mode = sys::VGW_CUOBJ_DELAY_ADAPTIVE;
        tunables.retry_count = 2;
        tunables.qp_reset_on_failure = false;
    });
    let mut effective = sys::vgw_cuobj_tunables::default();
    let (status, text) = ffi!(vgw_cuobj_server_tunables(server.0, &mut effective));
    if abilities() & sys::VGW_CUOBJ_HAS_EFFECTIVE_TUNABLES == 0 {
        assert_eq!(status, sys::VGW_CUOBJ_UNSUPPORTED);
        assert!(text.contains("tunables"), "{text}");
        return;
    }
    assert_eq!(status, sys::VGW_CUOBJ_OK, "{text}");
    assert_eq!((effective.num_dcis, effective.cq_depth, effective.dc_key), (3, 17, 0x1234_5678));
    assert_eq!((effective.delay_mode, effective.retry_count), (sys::VGW_CUOBJ_DELAY_ADAPTIVE, 2));
    assert!(!effective.qp_reset_on_failure);
    assert_eq!(effective.traffic_class, 96);
}

#[test]
fn host_buffers_are_page_aligned_and_refused_when_impossible() {
    let server = Server::new(|_| ());
    let mut start = null_mut();
    assert_eq!(ffi!(vgw_cuobj_server_alloc_host_buffer(server.0, 5000, &mut start)).0, sys::VGW_CUOBJ_OK);
    assert_eq!(start.addr() % 4096, 0);
    // SAFETY: the library allocated 5000 bytes, which are written and freed once.
    unsafe {
        start.cast::<u8>().write_bytes(1, 5000);
        sys::vgw_cuobj_server_free_host_buffer(start);
    }
    let (status, text) = ffi!(vgw_cuobj_server_alloc_host_buffer(server.0, 0, &mut start));
    assert_eq!(status, sys::VGW_CUOBJ_REFUSED, "{text}");
}

#[test]
fn lists_and_views_have_one_to_ten_pieces() {
    let server = Server::new(|_| ());
    let mut memory = vec![0u8; 16 * 4096];
    let start = memory.as_mut_ptr();
    let segments: Vec<_> = (0..11)
        .map(|i| sys::vgw_cuobj_segment { start: start.wrapping_add(i * 4096).cast(), size_bytes: 4096 })
        .collect();
    let ranges: Vec<_> =
        (0..11).map(|i| sys::vgw_cuobj_range { offset_bytes: i * 4096, size_bytes: 4096 }).collect();
    let base = server.register(&mut memory);
    for count in [1, 2, 10] {
        let mut buffer = null_mut();
        let made = ffi!(vgw_cuobj_server_register_list(server.0, segments.as_ptr(), count, &mut buffer));
        assert_eq!(made.0, sys::VGW_CUOBJ_OK, "{count}: {}", made.1);
        server.deregister(buffer);
        let made = ffi!(vgw_cuobj_server_get_view(server.0, base, ranges.as_ptr(), count, &mut buffer));
        assert_eq!(made.0, sys::VGW_CUOBJ_OK, "{count}: {}", made.1);
        assert_eq!(ffi!(vgw_cuobj_server_put_view(server.0, buffer)).0, sys::VGW_CUOBJ_OK);
    }
    for count in [0, 11] {
        let mut buffer = null_mut();
        let made = ffi!(vgw_cuobj_server_register_list(server.0, segments.as_ptr(), count, &mut buffer));
        assert_eq!(made.0, sys::VGW_CUOBJ_REFUSED, "{count}");
        // NVIDIA's library makes views of more pieces than it documents.
        if count == 0 || is_soft() {
            let made = ffi!(vgw_cuobj_server_get_view(server.0, base, ranges.as_ptr(), count, &mut buffer));
            assert_eq!(made.0, sys::VGW_CUOBJ_REFUSED, "{count}");
        }
    }
    let beyond = sys::vgw_cuobj_range { offset_bytes: 1 << 63, size_bytes: 1 };
    let mut buffer = null_mut();
    let made = ffi!(vgw_cuobj_server_get_view(server.0, base, &beyond, 1, &mut buffer));
    assert_eq!(made.0, sys::VGW_CUOBJ_BAD_ARGUMENT, "{}", made.1);
    server.deregister(base);
}

#[test]
fn channels_run_out_and_come_back() {
    let server = Server::new(|tunables| tunables.num_dcis = 2);
    let (first, second) = (server.channel(), server.channel());
    assert_eq!((first, second), (0, 1));
    let mut third = 77;
    let (status, text) = ffi!(vgw_cuobj_server_allocate_channel(server.0, &mut third));
    assert_eq!((status, third), (sys::VGW_CUOBJ_REFUSED, 77), "out parameters are untouched: {text}");
    assert_eq!(ffi!(vgw_cuobj_server_free_channel(server.0, first)).0, sys::VGW_CUOBJ_OK);
    assert_eq!(server.channel(), first);
}

/// A server and a client with memory of the same size, registered.
struct Pair {
    server: Server,
    client: Client,
    local: Vec<u8>,
    remote: Vec<u8>,
    buffer: *mut sys::vgw_cuobj_buffer,
    channel: u16,
}

impl Pair {
    fn new(len: usize) -> Self {
        let (server, client) = (Server::new(|_| ()), Client::new(Some(idle)));
        let (mut local, mut remote) = (vec![0; len], vec![0; len]);
        let buffer = server.register(&mut local);
        client.register(&mut remote);
        let channel = server.channel();
        Self { server, client, local, remote, buffer, channel }
    }

    fn remote_start(&self) -> u64 {
        self.remote.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.server.deregister(self.buffer);
        self.client.deregister(&mut self.remote);
    }
}

#[test]
fn synchronous_operations_move_bytes_both_ways() {
    let mut pair = Pair::new(100_000);
    let token = pair.client.token(&mut pair.remote, sys::VGW_CUOBJ_OP_PUT);
    assert_eq!(token.len(), 81);
    pair.remote.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
    let mut op = operation(pair.buffer, &token, pair.remote_start(), pair.remote.len(), pair.channel);
    let (mut moved, mut wc_status) = (0, 0);
    assert_eq!(
        ffi!(vgw_cuobj_server_put(pair.server.0, &op, &mut moved, &mut wc_status)).0,
        sys::VGW_CUOBJ_OK
    );
    assert_eq!((moved, wc_status), (100_000, 0));
    assert_eq!(pair.local, pair.remote);

    // A part, at an offset, with a delay of its own.
    pair.local.fill(0xee);
    op.local_offset_bytes = 10;
    op.remote_start += 5;
    op.size_bytes = 7;
    op.poll_delay_ns = 1000;
    assert_eq!(ffi!(vgw_cuobj_server_get(pair.server.0, &op, &mut moved, null_mut())).0, sys::VGW_CUOBJ_OK);
    assert_eq!(moved, 7);
    assert_eq!(pair.remote[4..13], [4, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 12]);
}

#[test]
fn refusals_of_operations_keep_their_codes() {
    let mut pair = Pair::new(4096);
    let token = pair.client.token(&mut pair.remote, sys::VGW_CUOBJ_OP_PUT);
    let good = operation(pair.buffer, &token, pair.remote_start(), 4096, pair.channel);
    let run = |op: sys::vgw_cuobj_operation| {
        let (mut moved, mut wc_status) = (0, 0);
        assert_eq!(
            ffi!(vgw_cuobj_server_put(pair.server.0, &op, &mut moved, &mut wc_status)).0,
            sys::VGW_CUOBJ_OK
        );
        (moved, wc_status)
    };
    let none = sys::VGW_CUOBJ_NO_COMPLETION;
    assert_eq!(run(sys::vgw_cuobj_operation { descriptor_length: 8, ..good }), (EIO, none));
    assert_eq!(run(sys::vgw_cuobj_operation { size_bytes: 0, ..good }), (EIO, none));
    assert_eq!(run(sys::vgw_cuobj_operation { size_bytes: 4097, ..good }), (EIO, none));
    assert_eq!(run(sys::vgw_cuobj_operation { remote_start: good.remote_start - 1, ..good }), (EIO, none));
    assert_eq!(run(sys::vgw_cuobj_operation { local_offset_bytes: 1, ..good }), (EIO, none));
    assert_eq!(run(sys::vgw_cuobj_operation { channel: 77, ..good }), (EIO, none));
    // NVIDIA's library answers so on Ethernet only, and not to a GID that it has met before.
    let no_gid = format!("{}0{}", &token[..47], &token[48..]);
    if is_soft() {
        let op = operation(pair.buffer, &no_gid, good.remote_start, 4096, pair.channel);
        assert_eq!(run(op), (-97, none));
    }
    // Wrong key: a completion with status 10, remote access error, and a channel that works after.
    let wrong_rkey = format!("{}deadbeef{}", &token[..26], &token[34..]);
    assert_eq!(run(operation(pair.buffer, &wrong_rkey, good.remote_start, 4096, pair.channel)), (EIO, 10));
    assert_eq!(run(good), (4096, 0));

    let mut moved = 0;
    let slow = sys::vgw_cuobj_operation { poll_delay_ns: 1 << 32, ..good };
    let (status, text) = ffi!(vgw_cuobj_server_put(pair.server.0, &slow, &mut moved, null_mut()));
    assert_eq!(status, sys::VGW_CUOBJ_BAD_ARGUMENT, "{text}");
}

/// Polls until something comes.
fn poll(pair: &Pair, capacity: usize) -> (i32, Vec<(usize, i64)>) {
    let mut events = [sys::vgw_cuobj_event::default(); 32];
    loop {
        let (mut count, mut answer) = (99, 99);
        let polled = ffi!(vgw_cuobj_server_poll(
            pair.server.0,
            pair.channel,
            events.as_mut_ptr(),
            capacity,
            &mut count,
            &mut answer
        ));
        assert_eq!(polled, (sys::VGW_CUOBJ_OK, String::new()));
        if answer != 0 {
            return (answer, events[..count].iter().map(|e| (e.async_handle.addr(), e.wc_status)).collect());
        }
        assert_eq!(count, 0);
        std::thread::yield_now();
    }
}

#[test]
fn asynchronous_operations_come_back_with_their_handles_in_order() {
    let mut pair = Pair::new(4096 * 20);
    let token = pair.client.token(&mut pair.remote, sys::VGW_CUOBJ_OP_GET);
    for i in 1..=20usize {
        let mut op = operation(pair.buffer, &token, pair.remote_start(), 4096, pair.channel);
        op.async_handle = std::ptr::without_provenance_mut(i);
        let mut answer = 1;
        assert_eq!(
            ffi!(vgw_cuobj_server_get(pair.server.0, &op, &mut answer, null_mut())).0,
            sys::VGW_CUOBJ_OK
        );
        assert_eq!(answer, 0);
    }
    let mut handles = Vec::new();
    while handles.len() < 20 {
        // More capacity than a poll gives: never more than 16 come.
        let (answer, events) = poll(&pair, 32);
        assert!(answer as usize == events.len() && events.len() <= 16);
        assert!(events.iter().all(|(_, status)| *status == 0));
        handles.extend(events.into_iter().map(|(handle, _)| handle));
    }
    assert_eq!(handles, (1..=20).collect::<Vec<_>>());
}

#[test]
fn a_failed_operation_is_told_with_those_before_and_behind_it() {
    let mut pair = Pair::new(4096);
    let token = pair.client.token(&mut pair.remote, sys::VGW_CUOBJ_OP_GET);
    let wrong = format!("{}deadbeef{}", &token[..26], &token[34..]);
    for (handle, token) in [(1, &token), (2, &wrong), (3, &token)] {
        let mut op = operation(pair.buffer, token, pair.remote_start(), 4096, pair.channel);
        op.async_handle = std::ptr::without_provenance_mut(handle);
        let mut answer = 1;
        assert_eq!(
            ffi!(vgw_cuobj_server_get(pair.server.0, &op, &mut answer, null_mut())).0,
            sys::VGW_CUOBJ_OK
        );
    }
    let (mut answer, mut events) = (0, Vec::new());
    while answer >= 0 {
        let (again, more) = poll(&pair, 16);
        answer = again;
        events.extend(more);
    }
    assert_eq!(i64::from(answer), EIO);
    assert_eq!(events, [(1, 0), (2, 10), (3, 5)]);
}

#[test]
fn polls_of_what_is_not_there_keep_their_codes() {
    let server = Server::new(|_| ());
    let mut event = sys::vgw_cuobj_event::default();
    let (mut count, mut answer) = (99, 99);
    let polled = ffi!(vgw_cuobj_server_poll(server.0, 5, &mut event, 1, &mut count, &mut answer));
    assert_eq!(polled.0, sys::VGW_CUOBJ_OK);
    assert_eq!((count, answer), (0, EINVAL));
    let polled = ffi!(vgw_cuobj_server_poll(server.0, 5, &mut event, 0, &mut count, &mut answer));
    assert_eq!(polled.0, sys::VGW_CUOBJ_BAD_ARGUMENT);
}

#[test]
fn telemetry_comes_in_whole_lines_and_takes_flags() {
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    unsafe extern "C" fn keep(context: *mut c_void, line: *const c_char, length: usize) {
        assert!(context.is_null());
        // SAFETY: the shim gives `length` readable bytes.
        let line = unsafe { std::slice::from_raw_parts(line.cast::<u8>(), length) };
        LINES.lock().unwrap().push(String::from_utf8_lossy(line).into_owned());
    }
    let flags = sys::VGW_CUOBJ_TELEMETRY_ERROR | sys::VGW_CUOBJ_TELEMETRY_INFO;
    for _ in 0..2 {
        let started = ffi!(vgw_cuobj_server_telemetry(Some(keep), null_mut(), flags));
        assert_eq!(started, (sys::VGW_CUOBJ_OK, String::new()));
    }
    assert!(!Server::on("nowhere", null()).connected());
    let lines = LINES.lock().unwrap().clone();
    assert!(!lines.is_empty());
    assert!(lines.iter().all(|line| !line.contains('\n') && !line.is_empty()));

    for (ability, (status, text)) in [
        (sys::VGW_CUOBJ_HAS_SERVER_TELEMETRY_MASK, ffi!(vgw_cuobj_server_telemetry_flags(flags, 1))),
        (sys::VGW_CUOBJ_HAS_CLIENT_TELEMETRY_MASK, ffi!(vgw_cuobj_client_telemetry_flags(flags, 1))),
    ] {
        let expected =
            if abilities() & ability != 0 { sys::VGW_CUOBJ_OK } else { sys::VGW_CUOBJ_UNSUPPORTED };
        assert_eq!(status, expected, "{text}");
    }
}
