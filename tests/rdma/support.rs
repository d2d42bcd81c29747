//! Pieces that the tests share.
#![cfg_attr(not(cuobj_provider = "soft"), allow(dead_code, reason = "the software SDK's tests use more"))]

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use vgwrdma::rdma::*;

/// The address to serve on.
pub(crate) fn device_address() -> IpAddr {
    option_env!("VGWRDMA_TEST_ADDR").unwrap_or("127.0.0.1").parse().expect("VGWRDMA_TEST_ADDR is an address")
}

/// Names the test that a child process runs, and the part it plays in it.
const ROLE: &str = "VGWRDMA_TEST_ROLE";

/// A server on that address.
pub(crate) fn server() -> CuServer {
    server_with(Tunables::default())
}

pub(crate) fn server_with(tunables: Tunables) -> CuServer {
    CuServer::open(device_address(), 19100, &tunables).unwrap()
}

/// `count` leases of `chunk` bytes, registered with a server.
pub(crate) fn slab(server: &CuServer, chunk: usize, count: usize) -> (Arc<RegisteredMemory>, Vec<Lease>) {
    let memory = HostMemory::allocate(chunk * count, HugePages::Advise).unwrap();
    let (memory, leases) = memory.into_leases(chunk).unwrap();
    (RegisteredMemory::new(server, memory).unwrap(), leases)
}

/// Memory of the client with a pattern.
pub(crate) fn client_memory(length: usize, seed: u64) -> ClientMemory {
    let mut memory = CuClient::open().unwrap().register(vec![0; length]).unwrap();
    fill(memory.as_mut_slice().unwrap(), seed, 0);
    memory
}

/// Byte `at` of the pattern of a seed: neighbours, pages and seeds all differ.
pub(crate) fn pattern(seed: u64, at: usize) -> u8 {
    let mixed = (at as u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 40) as u8
}

/// Fills memory with the pattern from `offset` on.
pub(crate) fn fill(memory: &mut [u8], seed: u64, offset: usize) {
    memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(seed, offset + i));
}

/// Asserts the pattern from `offset` on.
#[track_caller]
pub(crate) fn assert_pattern(memory: &[u8], seed: u64, offset: usize) {
    let wrong = memory.iter().enumerate().find(|(i, byte)| **byte != pattern(seed, offset + *i));
    assert!(wrong.is_none(), "the first wrong byte is {:?}", wrong.map(|(i, _)| i));
}

/// The operation on all of a lease, at the start of a descriptor's window.
pub(crate) fn operation(
    direction: Direction,
    descriptor: &Descriptor,
    memory: &Arc<RegisteredMemory>,
    lease: Lease,
) -> Operation {
    Operation {
        ticket: 0,
        direction,
        descriptor: Arc::new(*descriptor),
        remote_start: descriptor.address,
        length: lease.len(),
        local: Local::lease(memory, lease).unwrap(),
    }
}

/// Polls until `count` completions are there.
pub(crate) fn poll(channel: &mut Channel, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        channel.poll(&mut completions).unwrap();
        std::thread::yield_now();
    }
    completions
}

/// The only lease of a local memory.
pub(crate) fn lease_of(local: Local) -> Lease {
    local.into_leases().pop().unwrap()
}

/// The part this process plays, `None` in the process that a person started.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A command that runs the test `name` of this binary in another process, as `role`.
pub(crate) fn child(name: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// Runs `body` in a process of its own with an environment. `name` is the test's whole name.
pub(crate) fn isolated(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if role().is_some() {
        return body();
    }
    let output = child(name, "main").envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
