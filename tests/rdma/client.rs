//! The client: registrations, tokens, and the control path as closures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use vgwrdma::rdma::client::MAX_REGISTRATION_BYTES;
use vgwrdma::rdma::*;

use crate::support::*;

#[test]
fn tokens_name_the_range_they_were_minted_for() {
    let mut memory = client_memory(10_000, 1);
    let whole = memory.token(Op::Get, 0, 10_000).unwrap();
    assert_eq!(whole.as_str().len(), descriptor::DESCRIPTOR_LEN);
    assert_eq!(whole.as_str(), whole.descriptor().to_string());
    let base = whole.descriptor().address;
    assert_eq!(whole.descriptor().size, 10_000);
    assert_eq!(whole.descriptor().peer(), Some(device_address()));
    whole.finish();
    let part = memory.token(Op::Put, 100, 28).unwrap();
    assert_eq!((part.descriptor().address, part.descriptor().size), (base + 100, 28));
    let shown = format!("{part:?}");
    assert!(!shown.contains(&format!("{base:x}")[..6]) && !shown.contains("rkey"), "{shown}");
}

#[test]
fn ranges_outside_the_memory_get_no_token() {
    let mut memory = client_memory(4096, 1);
    for (offset, length) in [(0, 0), (0, 4097), (4096, 1), (1, 4096), (usize::MAX, 1), (1, usize::MAX)] {
        let error = memory.token(Op::Put, offset, length).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    assert!(memory.copy_out(4000, &mut [0; 97]).is_err());
    assert!(memory.copy_in(usize::MAX, &[0]).is_err());
    memory.copy_in(4095, &[9]).unwrap();
    let mut last = [0];
    memory.copy_out(4095, &mut last).unwrap();
    assert_eq!(last, [9]);
}

#[test]
fn a_registration_has_bounds() {
    let client = CuClient::open().unwrap();
    let error = client.register(Vec::new()).unwrap_err();
    assert!(error.to_string().contains("1 to 4294901760"), "{error}");
    assert_eq!(MAX_REGISTRATION_BYTES, 4_294_901_760);
    let memory = client.register(HostMemory::allocate(5000, HugePages::Off).unwrap()).unwrap();
    assert_eq!(memory.len(), 5000);
    assert_eq!(memory.max_callback_bytes().unwrap(), 5000);
    memory.revoke().unwrap();
    assert!(matches!(memory.max_callback_bytes(), Err(Error::Refused { .. })));
}

#[test]
fn a_finished_token_keeps_the_registration_and_a_dropped_one_ends_it() {
    let mut memory = client_memory(4096, 1);
    let rkey = |memory: &mut ClientMemory| {
        let token = memory.token(Op::Put, 0, 4096).unwrap();
        let rkey = token.descriptor().rkey;
        token.finish();
        rkey
    };
    let first = rkey(&mut memory);
    memory.as_slice().unwrap();
    assert_eq!(rkey(&mut memory), first);

    drop(memory.token(Op::Get, 0, 4096).unwrap());
    assert_eq!(rkey(&mut memory), first, "access ends when the bytes are looked at");
    memory.as_slice().unwrap();
    let second = rkey(&mut memory);
    assert_ne!(second, first);

    // Not even a forgotten token leaves the memory open under the eyes of its reader.
    std::mem::forget(memory.token(Op::Get, 0, 4096).unwrap());
    memory.as_mut_slice().unwrap();
    assert_ne!(rkey(&mut memory), second);
}

#[test]
fn a_late_token_of_an_ended_registration_changes_nothing() {
    let mut memory = client_memory(4096, 1);
    let late = memory.owned_token(Op::Get, 0, 100).unwrap();
    let other = memory.owned_token(Op::Get, 100, 100).unwrap();
    memory.as_slice().unwrap();
    let now = memory.owned_token(Op::Get, 0, 100).unwrap();
    let rkey = now.descriptor().rkey;
    assert_ne!(rkey, late.descriptor().rkey);
    late.finish();
    drop(other);
    now.finish();
    memory.as_slice().unwrap();
    assert_eq!(memory.token(Op::Get, 0, 1).unwrap().descriptor().rkey, rkey);
}

#[test]
fn a_token_may_outlive_its_memory_without_opening_it() {
    let memory = client_memory(4096, 1);
    let token = memory.owned_token(Op::Put, 0, 4096).unwrap();
    drop(memory);
    let server = server();
    let (slab, mut leases) = slab(&server, 4096, 1);
    let read = operation(Direction::Read, token.descriptor(), &slab, leases.pop().unwrap());
    let failed = server.channel().unwrap().transfer(read, None).unwrap_err();
    assert!(failed.error.to_string().contains("IBV_WC_REM_ACCESS_ERR (10)"), "{}", failed.error);
    token.finish();
}

#[test]
fn clones_and_threads_share_the_process_s_client() {
    std::thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || {
                let mut memory = client_memory(4096, seed);
                memory.token(Op::Put, 0, 4096).unwrap().finish();
                assert_pattern(memory.as_slice().unwrap(), seed, 0);
            });
        }
    });
    assert!(CuClient::open().unwrap().clone().is_connected().unwrap());
}

/// Plays the gateway: serves a request's descriptor with a server of this process.
fn serve(direction: Direction, request: &Request<'_>, seed: u64) -> usize {
    let server = server();
    let descriptor = Descriptor::parse(request.descriptor).unwrap();
    let (memory, mut leases) = slab(&server, request.length, 1);
    let mut lease = leases.pop().unwrap();
    if direction == Direction::Write {
        fill(&mut lease, seed, request.offset as usize);
    }
    let operation = operation(direction, &descriptor, &memory, lease);
    let lease = lease_of(server.channel().unwrap().transfer(operation, None).unwrap());
    if direction == Direction::Read {
        assert_pattern(&lease, seed, request.offset as usize);
    }
    request.length
}

#[test]
fn get_and_put_run_the_control_path_with_a_descriptor() {
    let client = CuClient::open().unwrap();
    let mut memory = client_memory(100_000, 20);
    let requests = AtomicUsize::new(0);
    let moved = client
        .put(&mut memory, 100_000, |request| {
            requests.fetch_add(1, Ordering::Relaxed);
            assert_eq!((request.op, request.offset), (Op::Put, 0));
            assert!(!format!("{request:?}").contains(request.descriptor));
            Ok(serve(Direction::Read, request, 20))
        })
        .unwrap();
    assert_eq!((moved, requests.into_inner()), (100_000, 1));
    let moved = client
        .get(&mut memory, 5000, |request| {
            assert_eq!((request.op, request.length), (Op::Get, 5000));
            Ok(serve(Direction::Write, request, 21))
        })
        .unwrap();
    assert_eq!(moved, 5000);
    let bytes = memory.as_slice().unwrap();
    assert_pattern(&bytes[..5000], 21, 0);
    assert_pattern(&bytes[5000..], 20, 5000);
}

#[test]
fn errors_and_panics_of_the_control_path_are_the_operation_s() {
    let client = CuClient::open().unwrap();
    let mut memory = client_memory(4096, 1);
    let old = memory.token(Op::Put, 0, 1).map(|token| (token.descriptor().rkey, token.finish())).unwrap().0;
    let error = client.get(&mut memory, 100, |_| Err("no gateway there".into())).unwrap_err();
    assert_eq!(error.to_string(), "cuObjGet: no gateway there");
    // The gateway may have been told: the old key is dead.
    assert_ne!(memory.token(Op::Put, 0, 1).unwrap().descriptor().rkey, old);

    let error = client.put(&mut memory, 100, |_| panic!("at {}", "the disco")).unwrap_err();
    assert_eq!(error.to_string(), "cuObjPut: the control path panicked: at the disco");
    let error = client.put(&mut memory, 100, |_| std::panic::panic_any(5)).unwrap_err();
    assert!(matches!(error, Error::Callback { .. }), "{error}");
    for length in [0, 4097] {
        let error = client.get(&mut memory, length, |_| Ok(0)).unwrap_err();
        assert!(error.to_string().contains("1 to 4096"), "{error}");
    }
    assert_eq!(client.get(&mut memory, 100, |_| Ok(60)).unwrap(), 60, "less than asked for is no error here");
}

#[test]
fn a_start_that_takes_too_long_is_given_up_for_good() {
    isolated("client::a_start_that_takes_too_long_is_given_up_for_good", &[], || {
        // No library is that fast; were it, it would be there for the second call, too.
        match CuClient::open_within(Duration::ZERO) {
            Err(error) => {
                assert!(error.to_string().contains("no answer within 0ns"), "{error}");
                let again = CuClient::open().unwrap_err();
                assert!(matches!(again, Error::ClientUnavailable { .. }), "{again}");
                assert!(again.to_string().contains("an earlier start"), "{again}");
            }
            Ok(_) => assert!(CuClient::open().is_ok()),
        }
    });
}

#[test]
fn memory_types_are_told_apart() {
    let byte = 0u8;
    assert_eq!(CuClient::memory_type((&raw const byte).addr()).unwrap(), client::MemoryType::System);
    assert_ne!(CuClient::memory_type(0).unwrap(), client::MemoryType::CudaDevice);
}

mod raw {
    use std::ffi::c_void;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::*;

    /// Memory that says when it is freed.
    struct Owner(Box<[u8]>, Arc<AtomicUsize>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn memory_of_others_is_kept_until_its_registration_has_ended() {
        let freed = Arc::new(AtomicUsize::new(0));
        let mut owner = Owner(vec![7; 4096].into(), Arc::clone(&freed));
        let start = NonNull::from(&mut owner.0[..]).cast::<c_void>();
        let client = CuClient::open().unwrap();
        // SAFETY: the owner keeps the 4096 bytes where they are, and no one else touches them.
        let registration = unsafe { client.register_raw(start, 4096, Box::new(owner)) }.unwrap();
        assert_eq!((registration.len(), registration.is_open()), (4096, false));
        let token = registration.token(Op::Put, 0, 4096).unwrap();
        assert!(registration.is_open());
        let server = server();
        let (memory, mut leases) = slab(&server, 4096, 1);
        let read = operation(Direction::Read, token.descriptor(), &memory, leases.pop().unwrap());
        let lease = lease_of(server.channel().unwrap().transfer(read, None).unwrap());
        assert!(lease.iter().all(|byte| *byte == 7));
        token.finish();
        assert!(!registration.is_open());
        registration.revoke().unwrap();
        registration.token(Op::Put, 0, 1).unwrap().finish();
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        drop(registration);
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    }
}
