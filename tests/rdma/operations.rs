//! Operations of a server on memory of a client in the same process.

use std::sync::Arc;
use std::time::Duration;

use test_case::test_case;
use vgwrdma::rdma::channel::{DEPTH, MAX_OPERATION_BYTES};
use vgwrdma::rdma::*;

use crate::support::*;

#[test_case(1)]
#[test_case(2)]
#[test_case(4095)]
#[test_case(4096)]
#[test_case(4097)]
#[test_case(1_000_003)]
#[test_case(64 << 20; "64 MiB")]
fn every_size_arrives_whole_both_ways(length: usize) {
    let server = server();
    let (memory, mut leases) = slab(&server, length, 1);
    let mut client = client_memory(length, 1);
    let mut channel = server.channel().unwrap();

    let token = client.token(Op::Put, 0, length).unwrap();
    let read = operation(Direction::Read, token.descriptor(), &memory, leases.pop().unwrap());
    let mut lease = lease_of(channel.transfer(read, None).unwrap());
    token.finish();
    assert_pattern(&lease, 1, 0);

    fill(&mut lease, 2, 0);
    let token = client.token(Op::Get, 0, length).unwrap();
    let mut write = operation(Direction::Write, token.descriptor(), &memory, lease);
    write.ticket = 77;
    channel.submit(write).unwrap();
    assert_eq!(channel.in_flight(), 1);
    let completion = poll(&mut channel, 1).remove(0);
    assert_eq!((completion.ticket, completion.status), (77, WcStatus::SUCCESS));
    token.finish();
    assert_pattern(client.as_slice().unwrap(), 2, 0);
    assert_eq!(channel.in_flight(), 0);
}

#[test]
fn a_part_of_a_window_moves_to_a_part_of_a_lease() {
    let server = server();
    let (memory, mut leases) = slab(&server, 4096, 2);
    let mut client = client_memory(10_000, 3);
    let token = client.token(Op::Put, 1000, 9000).unwrap();
    // The second lease: its place in the registered memory counts, and the first stays untouched.
    let lease = leases.pop().unwrap();
    assert_eq!(lease.offset(), 4096);
    let part = Operation {
        remote_start: token.descriptor().address + 500,
        length: 100,
        ..operation(Direction::Read, token.descriptor(), &memory, lease)
    };
    let lease = lease_of(server.channel().unwrap().transfer(part, Some(Duration::from_micros(1))).unwrap());
    assert_pattern(&lease[..100], 3, 1500);
    assert!(lease[100..].iter().all(|byte| *byte == 0));
    assert!(leases[0].iter().all(|byte| *byte == 0));
}

#[test]
fn sixty_four_operations_on_eight_channels_keep_apart() {
    const CHANNELS: usize = 8;
    const EACH: usize = 8;
    const CHUNK: usize = 100_000;
    let server = server();
    let (memory, leases) = slab(&server, CHUNK, CHANNELS * EACH);
    let mut client = client_memory(CHUNK * CHANNELS * EACH, 4);
    let length = client.len();
    let token = client.token(Op::Put, 0, length).unwrap();
    let descriptor = Arc::new(*token.descriptor());

    let mut leases = leases.into_iter();
    let mut channels: Vec<Channel> = (0..CHANNELS).map(|_| server.channel().unwrap()).collect();
    for round in 0..EACH {
        for (i, channel) in channels.iter_mut().enumerate() {
            let ticket = (round * CHANNELS + i) as u64;
            let operation = Operation {
                ticket,
                remote_start: descriptor.address + ticket * CHUNK as u64,
                ..operation(Direction::Read, &descriptor, &memory, leases.next().unwrap())
            };
            channel.submit(operation).unwrap();
        }
    }
    assert_eq!(channels.iter().map(Channel::in_flight).sum::<usize>(), CHANNELS * EACH);
    // Channels may be moved to threads.
    std::thread::scope(|scope| {
        for (i, channel) in channels.iter_mut().enumerate() {
            scope.spawn(move || {
                let completions = poll(channel, EACH);
                for (round, completion) in completions.into_iter().enumerate() {
                    let ticket = round * CHANNELS + i;
                    assert_eq!((completion.ticket, completion.status), (ticket as u64, WcStatus::SUCCESS));
                    assert_pattern(&lease_of(completion.local), 4, ticket * CHUNK);
                }
            });
        }
    });
    token.finish();
}

#[test]
fn a_full_channel_gives_the_operation_back() {
    let server = server();
    let (memory, mut leases) = slab(&server, 4096, DEPTH + 1);
    let mut client = client_memory(4096, 5);
    let token = client.token(Op::Get, 0, 4096).unwrap();
    let mut channel = server.channel().unwrap();
    let mut next = || operation(Direction::Write, token.descriptor(), &memory, leases.pop().unwrap());
    for _ in 0..DEPTH {
        channel.submit(next()).unwrap();
    }
    let refused = channel.submit(next()).unwrap_err();
    assert!(refused.error.to_string().contains("16 operations are in flight"), "{}", refused.error);
    let lease = lease_of(refused.local.unwrap());
    let refused = channel.transfer(operation(Direction::Write, token.descriptor(), &memory, lease), None);
    let refused = refused.unwrap_err();
    assert!(refused.error.to_string().contains("synchronous"), "{}", refused.error);
    assert!(refused.local.is_some());
    assert_eq!(poll(&mut channel, DEPTH).len(), DEPTH);
}

#[test]
fn what_cannot_work_is_refused_before_the_library_and_gives_the_lease_back() {
    let (server, other) = (server(), server());
    let (memory, mut leases) = slab(&server, 4096, 1);
    let mut client = client_memory(8192, 6);
    let token = client.token(Op::Put, 0, 4096).unwrap();
    let descriptor = *token.descriptor();
    let mut channel = server.channel().unwrap();
    let mut foreign = other.channel().unwrap();

    type Change = fn(&mut Operation);
    let cases: [(&str, Change); 6] = [
        ("0 bytes", |op| op.length = 0),
        ("takes 1 to 4096", |op| op.length = 4097),
        ("address is 0", |op| op.remote_start = 0),
        ("outside the client's window", |op| op.remote_start -= 1),
        ("outside the client's window", |op| op.remote_start += 1),
        ("outside the client's window", |op| op.remote_start = u64::MAX),
    ];
    for (text, change) in cases {
        let mut refused = operation(Direction::Read, &descriptor, &memory, leases.pop().unwrap());
        change(&mut refused);
        let refused = channel.submit(refused).unwrap_err();
        let shown = refused.error.to_string();
        assert!(shown.contains(text), "{shown}");
        assert!(!shown.contains(&format!("{:x}", descriptor.address)), "no addresses of clients: {shown}");
        leases.push(lease_of(refused.local.unwrap()));
    }
    let unregistered = operation(Direction::Read, &descriptor, &memory, leases.pop().unwrap());
    let refused = foreign.submit(unregistered).unwrap_err();
    let told = format!("not registered with {}", device_address());
    assert!(refused.error.to_string().contains(&told), "{}", refused.error);

    // A lease and a registration that do not belong together.
    let (_, mut strange) = HostMemory::allocate(4096, HugePages::Off).unwrap().into_leases(4096).unwrap();
    let lease = Local::lease(&memory, strange.pop().unwrap()).unwrap_err();
    let forged = Operation {
        local: Local::Lease { memory: Arc::clone(&memory), lease },
        ..operation(Direction::Read, &descriptor, &memory, lease_of(refused.local.unwrap()))
    };
    assert!(channel.submit(forged).unwrap_err().local.is_some());
    assert_eq!(MAX_OPERATION_BYTES, 1 << 30);
}

fn status_of(failed: Failed) -> WcStatus {
    match failed.error {
        Error::Completion { status, .. } => status,
        other => panic!("{other}"),
    }
}

#[test]
fn an_unknown_key_fails_and_the_channel_works_on() {
    let server = server();
    let (memory, mut leases) = slab(&server, 4096, 4);
    let mut client = client_memory(4096, 7);
    let token = client.token(Op::Put, 0, 4096).unwrap();
    let good = *token.descriptor();
    let wrong = Descriptor { rkey: !good.rkey, ..good };
    let mut channel = server.channel().unwrap();
    let mut next = |descriptor| operation(Direction::Read, descriptor, &memory, leases.pop().unwrap());

    let failed = channel.transfer(next(&wrong), None).unwrap_err();
    assert!(failed.local.is_some(), "a failed operation gives its memory back");
    assert_eq!(status_of(*failed), WcStatus::REM_ACCESS_ERR);

    for (ticket, descriptor) in [(1, &good), (2, &wrong), (3, &good)] {
        channel.submit(Operation { ticket, ..next(descriptor) }).unwrap();
    }
    let ended: Vec<_> = poll(&mut channel, 3).into_iter().map(|c| (c.ticket, c.status)).collect();
    assert_eq!(ended, [(1, WcStatus::SUCCESS), (2, WcStatus::REM_ACCESS_ERR), (3, WcStatus::WR_FLUSH_ERR)]);
    assert_eq!(channel.in_flight(), 0);
    let (memory, mut leases) = slab(&server, 4096, 1);
    let again = operation(Direction::Read, &good, &memory, leases.pop().unwrap());
    assert_pattern(&lease_of(channel.transfer(again, None).unwrap()), 7, 0);
}

#[test]
fn a_wrong_dc_key_looks_like_a_peer_that_does_not_answer() {
    let server = server_with(Tunables { dc_key: 1, ..Tunables::default() });
    let (memory, mut leases) = slab(&server, 4096, 1);
    let mut client = client_memory(4096, 8);
    let token = client.token(Op::Put, 0, 4096).unwrap();
    let refused = operation(Direction::Read, token.descriptor(), &memory, leases.pop().unwrap());
    let failed = server.channel().unwrap().transfer(refused, None).unwrap_err();
    assert_eq!(status_of(*failed), WcStatus::RETRY_EXC_ERR);
}

#[test]
fn a_registration_that_has_ended_is_closed_to_its_old_tokens() {
    let server = server();
    let (memory, mut leases) = slab(&server, 4096, 3);
    let mut channel = server.channel().unwrap();
    let mut client = client_memory(4096, 9);
    let token = client.owned_token(Op::Put, 0, 4096).unwrap();
    let old = *token.descriptor();
    client.revoke().unwrap();
    let refused = operation(Direction::Read, &old, &memory, leases.pop().unwrap());
    let failed = channel.transfer(refused, None).unwrap_err();
    assert_eq!(status_of(*failed), WcStatus::REM_ACCESS_ERR);
    drop(token);

    // The next token opens the memory again, under another key.
    let token = client.token(Op::Put, 0, 4096).unwrap();
    assert_ne!(token.descriptor().rkey, old.rkey);
    let read = operation(Direction::Read, token.descriptor(), &memory, leases.pop().unwrap());
    assert_pattern(&lease_of(channel.transfer(read, None).unwrap()), 9, 0);
    let last = *token.descriptor();
    token.finish();
    drop(client);
    let refused = operation(Direction::Read, &last, &memory, leases.pop().unwrap());
    let failed = channel.transfer(refused, None).unwrap_err();
    assert_eq!(status_of(*failed), WcStatus::REM_ACCESS_ERR);
}

#[test]
fn views_and_lists_gather_leases_in_their_order() {
    let server = server();
    let (memory, mut leases) = slab(&server, 4096, 12);
    let mut client = client_memory(3 * 4096, 10);
    let token = client.token(Op::Put, 0, 3 * 4096).unwrap();
    let descriptor = *token.descriptor();
    let mut channel = server.channel().unwrap();
    let read = |local: Local| Operation {
        ticket: 0,
        direction: Direction::Read,
        descriptor: Arc::new(descriptor),
        remote_start: descriptor.address,
        length: local.len(),
        local,
    };
    let check = |local: Local, channel: &mut Channel| {
        let leases = channel.transfer(read(local), None).unwrap().into_leases();
        for (i, lease) in leases.iter().enumerate() {
            assert_pattern(lease, 10, i * 4096);
        }
        leases
    };
    // Not in the order of their addresses.
    let picked = vec![leases.remove(7), leases.remove(2), leases.remove(4)];
    let view = Gather::view(&memory, picked).unwrap();
    assert_eq!((view.len(), view.leases().len()), (3 * 4096, 3));
    let picked = check(Local::Gather(view), &mut channel);
    let list = Gather::register(&server, picked).unwrap();
    let picked = check(Local::Gather(list), &mut channel);
    assert_eq!(picked.len(), 3);

    for count in [0, 11] {
        leases.extend(slab(&server, 4096, 11).1);
        let too_many: Vec<_> = leases.drain(..count).collect();
        let (error, too_many) = Gather::view(&memory, too_many).unwrap_err();
        assert!(error.to_string().contains("1 to 10"), "{error}");
        let (error, too_many) = Gather::register(&server, too_many).unwrap_err();
        assert!(error.to_string().contains("1 to 10"), "{error}");
        assert_eq!(too_many.len(), count);
    }
    let (error, _) = Gather::view(&memory, slab(&server, 4096, 1).1).unwrap_err();
    assert!(error.to_string().contains("another memory"), "{error}");
}

#[test]
fn gathered_memory_is_filled_through_the_gathering_and_written_by_one_operation() {
    let server = server();
    let (memory, leases) = slab(&server, 1000, 4);
    let mut client = client_memory(4000, 0);
    let token = client.token(Op::Get, 0, 4000).unwrap();
    let mut view = Gather::view(&memory, leases).unwrap();
    for (i, piece) in view.leases_mut().enumerate() {
        fill(piece, 11, i * 1000);
    }
    let write = Operation {
        ticket: 1,
        direction: Direction::Write,
        descriptor: Arc::new(*token.descriptor()),
        remote_start: token.descriptor().address,
        length: view.len(),
        local: Local::Gather(view),
    };
    let mut channel = server.channel().unwrap();
    channel.submit(write).unwrap();
    assert_eq!(poll(&mut channel, 1)[0].status, WcStatus::SUCCESS);
    token.finish();
    assert_pattern(client.as_slice().unwrap(), 11, 0);
}

#[test]
fn channels_run_out_and_are_given_back_on_drop() {
    let server = server_with(Tunables { num_dcis: 2, ..Tunables::default() });
    let first = server.channel().unwrap();
    let second = server.channel().unwrap();
    let error = server.channel().unwrap_err();
    assert!(
        matches!(&error, Error::NoChannel { address } if *address == device_address().to_string()),
        "{error}"
    );
    let number = first.number();
    assert_ne!(number, second.number());
    drop(first);
    assert_eq!(server.channel().unwrap().number(), number);
}

#[test]
fn dropping_a_channel_waits_for_what_is_in_flight() {
    let server = server();
    let (memory, leases) = slab(&server, 1 << 20, 8);
    let mut client = client_memory(1 << 20, 12);
    let token = client.token(Op::Put, 0, 1 << 20).unwrap();
    let mut channel = server.channel().unwrap();
    for lease in leases {
        channel.submit(operation(Direction::Read, token.descriptor(), &memory, lease)).unwrap();
    }
    let before = quarantine::withheld();
    drop(channel);
    assert_eq!(quarantine::withheld(), before);
    // Nothing but this registration holds the memory any more: every lease has come back and gone.
    assert_eq!(Arc::strong_count(memory.memory()), 1);
    assert_eq!(Arc::strong_count(&memory), 1);
    token.finish();
}

#[test]
fn memory_is_unmapped_when_its_last_user_has_gone() {
    let server = server();
    let (memory, mut leases) = slab(&server, 4096, 2);
    let mapped = Arc::downgrade(memory.memory());
    let local = Local::lease(&memory, leases.pop().unwrap()).unwrap();
    drop((server, memory));
    drop(leases);
    assert!(mapped.upgrade().is_some(), "an operation would own this");
    drop(local);
    assert!(mapped.upgrade().is_none());
}

#[test]
fn an_address_without_a_device_is_one_clear_error() {
    let address = "192.0.2.7".parse().unwrap();
    let error = CuServer::open(address, 19100, &Tunables::default()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::NotConnected { .. }), "{text}");
    let library = Provider::current().unwrap().to_string();
    assert!(text.contains("192.0.2.7") && text.contains(&library), "{text}");
    assert!(matches!(CuServer::open(address, 0, &Tunables::default()), Err(Error::Invalid { .. })));
    let bad = Tunables { retry_count: 8, ..Tunables::default() };
    let error = CuServer::open(device_address(), 19100, &bad).unwrap_err();
    assert!(error.to_string().contains("--rdma-retry-count"), "{error}");
}

#[test]
fn the_server_tells_what_it_was_opened_with() {
    let tunables = Tunables { num_dcis: 5, retry_count: 3, ..Tunables::default() };
    let server = server_with(tunables.clone());
    assert!(server.is_connected().unwrap());
    assert_eq!((server.address(), server.tunables()), (device_address(), &tunables));
    match server.effective_tunables() {
        Ok(effective) => assert_eq!(Tunables { max_sge: None, ..effective }, tunables),
        Err(error) => {
            assert!(!Provider::current().unwrap().tells_tunables());
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
    }
}

// A device has one family of addresses or the other; the software SDK has both.
#[cfg(cuobj_provider = "soft")]
#[test]
fn ipv6_works_where_the_host_has_it() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        // Containers without IPv6; then the library must say so.
        assert!(CuServer::open("::1".parse().unwrap(), 19100, &Tunables::default()).is_err());
        return;
    }
    let server = CuServer::open("::1".parse().unwrap(), 19100, &Tunables::default()).unwrap();
    let (memory, mut leases) = slab(&server, 4096, 1);
    let mut client = client_memory(4096, 13);
    let token = client.token(Op::Put, 0, 4096).unwrap();
    let read = operation(Direction::Read, token.descriptor(), &memory, leases.pop().unwrap());
    assert_pattern(&lease_of(server.channel().unwrap().transfer(read, None).unwrap()), 13, 0);
}
