//! The engine's transport over cuObject.

use std::sync::Arc;

use vgwrdma::rdma::*;
use vgwrdma::transfer::cuobj::CuEndpoint;
use vgwrdma::transfer::transport::{self, Completion, Endpoint};

use crate::support::*;

fn endpoint(chunk: usize, count: usize) -> (CuEndpoint, Vec<Lease>) {
    let (memory, leases) =
        HostMemory::allocate(chunk * count, HugePages::Off).unwrap().into_leases(chunk).unwrap();
    (CuEndpoint::new(server(), &[memory]).unwrap(), leases)
}

fn operation(
    ticket: u64,
    direction: transport::Direction,
    descriptor: &Descriptor,
    lease: Lease,
) -> transport::Operation {
    transport::Operation {
        ticket,
        direction,
        descriptor: Arc::new(*descriptor),
        remote_start: descriptor.address,
        length: lease.len(),
        lease,
    }
}

fn poll(channel: &mut dyn transport::Channel, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        channel.poll(&mut completions).unwrap();
        std::thread::yield_now();
    }
    completions
}

#[test]
fn the_engine_s_operations_are_carried_out_and_their_leases_come_back() {
    let (endpoint, mut leases) = endpoint(4096, 2);
    assert_eq!(
        (endpoint.name(), endpoint.address()),
        (&*device_address().to_string(), Some(device_address()))
    );
    let mut client = client_memory(4096, 1);
    let mut channel = endpoint.open_channel().unwrap();
    assert_eq!((channel.depth(), channel.in_flight()), (16, 0));

    let token = client.token(Op::Put, 0, 4096).unwrap();
    let read = operation(3, transport::Direction::Read, token.descriptor(), leases.pop().unwrap());
    channel.submit(read).unwrap();
    assert_eq!(channel.in_flight(), 1);
    let ended = poll(&mut *channel, 1).remove(0);
    assert_eq!((ended.ticket, ended.status, channel.in_flight()), (3, WcStatus::SUCCESS, 0));
    assert_pattern(&ended.lease, 1, 0);
    token.finish();

    let mut lease = ended.lease;
    fill(&mut lease, 2, 0);
    let token = client.token(Op::Get, 0, 4096).unwrap();
    channel.submit(operation(4, transport::Direction::Write, token.descriptor(), lease)).unwrap();
    assert_eq!(poll(&mut *channel, 1)[0].ticket, 4);
    token.finish();
    assert_pattern(client.as_slice().unwrap(), 2, 0);
}

#[test]
fn refused_operations_come_back_whole() {
    let (endpoint, mut leases) = endpoint(4096, 1);
    let (_, mut strange) = HostMemory::allocate(4096, HugePages::Off).unwrap().into_leases(4096).unwrap();
    let client = client_memory(4096, 1);
    let token = client.owned_token(Op::Put, 0, 4096).unwrap();
    let mut channel = endpoint.open_channel().unwrap();

    let foreign = operation(1, transport::Direction::Read, token.descriptor(), strange.pop().unwrap());
    let refused = channel.submit(foreign).unwrap_err();
    assert!(refused.error.to_string().contains("not of memory registered"), "{}", refused.error);
    assert_eq!(refused.operation.ticket, 1);

    let mut outside = operation(2, transport::Direction::Write, token.descriptor(), leases.pop().unwrap());
    outside.remote_start += 1;
    let refused = channel.submit(outside).unwrap_err();
    assert_eq!(refused.operation.ticket, 2);
    assert_eq!(refused.operation.direction, transport::Direction::Write);
    assert_eq!(refused.operation.lease.len(), 4096);
    assert_eq!(channel.in_flight(), 0);
}

#[test]
fn a_failed_operation_completes_the_channel_s_others_as_flushed() {
    let (endpoint, leases) = endpoint(4096, 3);
    let client = client_memory(4096, 1);
    let good = *client.owned_token(Op::Put, 0, 4096).unwrap().descriptor();
    let wrong = Descriptor { rkey: !good.rkey, ..good };
    let mut channel = endpoint.open_channel().unwrap();
    for (ticket, (descriptor, lease)) in (0..).zip([wrong, good, good].iter().zip(leases)) {
        channel.submit(operation(ticket, transport::Direction::Read, descriptor, lease)).unwrap();
    }
    let statuses: Vec<_> = poll(&mut *channel, 3).iter().map(|ended| ended.status).collect();
    assert_eq!(statuses, [WcStatus::REM_ACCESS_ERR, WcStatus::WR_FLUSH_ERR, WcStatus::WR_FLUSH_ERR]);
}

#[test]
fn an_endpoint_registers_every_slab() {
    let server = server();
    let mut slabs = Vec::new();
    let mut leases = Vec::new();
    for _ in 0..3 {
        let (slab, cut) = HostMemory::allocate(8192, HugePages::Off).unwrap().into_leases(4096).unwrap();
        slabs.push(slab);
        leases.extend(cut);
    }
    let endpoint = CuEndpoint::new(server, &slabs).unwrap();
    let mut client = client_memory(4096, 5);
    let token = client.token(Op::Put, 0, 4096).unwrap();
    let mut channel = endpoint.open_channel().unwrap();
    let count = leases.len();
    for (ticket, lease) in (0..).zip(leases) {
        channel.submit(operation(ticket, transport::Direction::Read, token.descriptor(), lease)).unwrap();
    }
    for ended in poll(&mut *channel, count) {
        assert_pattern(&ended.lease, 5, 0);
    }
    drop((channel, endpoint));
    assert!(slabs.iter().all(|slab| Arc::strong_count(slab) == 1));
}
