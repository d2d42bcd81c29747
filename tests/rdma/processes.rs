//! A server and a client in two processes, over both data paths of the software SDK.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;

use vgwrdma::rdma::*;

use crate::support::*;

const LENGTH: usize = 5_000_011;
const SEED: u64 = 31;

/// A client process that has registered memory with the pattern and minted two tokens.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    put: Descriptor,
    get: Descriptor,
}

impl Client {
    fn start(name: &str) -> Self {
        let mut child = child(name, "client").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut token = |prefix| Descriptor::parse(&line(&mut stdout, prefix)).unwrap();
        let (put, get) = (token("PUT "), token("GET "));
        Self { child, stdin, stdout, put, get }
    }

    /// Has the client say what it sees, and end.
    fn verdict(mut self) -> String {
        self.stdin.write_all(b"look\n").unwrap();
        let verdict = line(&mut self.stdout, "SEEN ");
        // It may print until it ends.
        std::io::copy(&mut self.stdout, &mut std::io::sink()).unwrap();
        assert!(self.child.wait().unwrap().success());
        verdict
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The rest of the next line that has the prefix; the test harness prints lines of its own, and
/// leaves its first one open.
fn line(stdout: &mut impl BufRead, prefix: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the client ended before {prefix:?}");
        if let Some((_, rest)) = line.trim_end().split_once(prefix) {
            return rest.to_owned();
        }
    }
}

/// The client's side: the first half is for PUT, the second for GET.
fn client_process() {
    let mut memory = client_memory(2 * LENGTH, SEED);
    let put = memory.owned_token(Op::Put, 0, LENGTH).unwrap();
    let get = memory.owned_token(Op::Get, LENGTH, LENGTH).unwrap();
    println!("\nPUT {}\nGET {}", put.as_str(), get.as_str());
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).unwrap();
    put.finish();
    get.finish();
    let bytes = memory.as_slice().unwrap();
    assert_pattern(&bytes[..LENGTH], SEED, 0);
    assert_pattern(&bytes[LENGTH..], SEED + 1, 0);
    println!("SEEN it whole");
}

#[test]
fn bytes_cross_processes_by_process_vm() {
    bytes_cross_processes("vm", "processes::bytes_cross_processes_by_process_vm");
}

#[test]
fn bytes_cross_processes_by_tcp() {
    bytes_cross_processes("tcp", "processes::bytes_cross_processes_by_tcp");
}

#[test]
fn bytes_cross_processes_by_the_path_that_is_found() {
    bytes_cross_processes("auto", "processes::bytes_cross_processes_by_the_path_that_is_found");
}

fn bytes_cross_processes(path: &str, name: &str) {
    if role().as_deref() == Some("client") {
        return client_process();
    }
    isolated(name, &[("CUOBJ_SOFT_PATH", path)], || {
        let client = Client::start(name);
        let server = server();
        let (memory, mut leases) = slab(&server, LENGTH, 2);
        let mut channel = server.channel().unwrap();
        let read = operation(Direction::Read, &client.put, &memory, leases.pop().unwrap());
        assert_pattern(&lease_of(channel.transfer(read, None).unwrap()), SEED, 0);

        let mut lease = leases.pop().unwrap();
        fill(&mut lease, SEED + 1, 0);
        channel.submit(operation(Direction::Write, &client.get, &memory, lease)).unwrap();
        assert_eq!(poll(&mut channel, 1)[0].status, WcStatus::SUCCESS);
        assert_eq!(client.verdict(), "it whole");
    });
}

#[test]
fn a_client_that_is_killed_fails_its_operations_and_no_others_by_process_vm() {
    a_client_is_killed(
        "vm",
        "processes::a_client_that_is_killed_fails_its_operations_and_no_others_by_process_vm",
    );
}

#[test]
fn a_client_that_is_killed_fails_its_operations_and_no_others_by_tcp() {
    a_client_is_killed("tcp", "processes::a_client_that_is_killed_fails_its_operations_and_no_others_by_tcp");
}

fn a_client_is_killed(path: &str, name: &str) {
    if role().as_deref() == Some("client") {
        return client_process();
    }
    // The delay keeps operations in flight while the client dies.
    let environment = [("CUOBJ_SOFT_PATH", path), ("CUOBJ_SOFT_FAULT", "delay:ms=100")];
    isolated(name, &environment, || {
        let mut client = Client::start(name);
        let server = server();
        let (memory, leases) = slab(&server, LENGTH, 8);
        let mut channel = server.channel().unwrap();
        for (ticket, lease) in (0..).zip(leases) {
            let read = Operation { ticket, ..operation(Direction::Read, &client.put, &memory, lease) };
            channel.submit(read).unwrap();
        }
        let first = poll(&mut channel, 1).remove(0);
        assert_eq!((first.ticket, first.status), (0, WcStatus::SUCCESS));
        client.kill();
        let rest = poll(&mut channel, 7);
        let statuses: Vec<_> = rest.iter().map(|completion| completion.status).collect();
        // What had passed before it died, the one that met its death, and those behind it.
        let failed = statuses.iter().position(|status| !status.is_success()).expect("some must fail");
        assert!(
            matches!(statuses[failed], WcStatus::RETRY_EXC_ERR | WcStatus::REM_ACCESS_ERR),
            "{statuses:?}"
        );
        assert!(
            statuses[failed + 1..].iter().all(|status| *status == WcStatus::WR_FLUSH_ERR),
            "{statuses:?}"
        );
        assert_eq!(channel.in_flight(), 0);
        assert_eq!(quarantine::withheld(), quarantine::Withheld::default());
        drop(rest);
        drop(first);
        assert_eq!(Arc::strong_count(memory.memory()), 1, "every lease came back");

        // The channel serves the next client.
        let next = Client::start(name);
        let (memory, mut leases) = slab(&server, LENGTH, 2);
        let read = operation(Direction::Read, &next.put, &memory, leases.pop().unwrap());
        assert_pattern(&lease_of(channel.transfer(read, None).unwrap()), SEED, 0);
        let mut lease = leases.pop().unwrap();
        fill(&mut lease, SEED + 1, 0);
        channel.transfer(operation(Direction::Write, &next.get, &memory, lease), None).unwrap();
        assert_eq!(next.verdict(), "it whole");
    });
}
