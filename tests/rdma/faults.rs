//! What a channel does when operations fail, over the faults that the software SDK can play.

use std::sync::Arc;
use std::time::Duration;

use vgwrdma::rdma::channel::DEPTH;
use vgwrdma::rdma::*;

use crate::support::*;

/// A channel with `count` reads in flight.
struct Flight {
    channel: Channel,
    memory: Arc<RegisteredMemory>,
    client: ClientMemory,
}

impl Flight {
    fn start(tunables: Tunables, count: usize) -> Self {
        let server = server_with(tunables);
        let (memory, leases) = slab(&server, 4096, count.max(1));
        let client = client_memory(4096, 1);
        let descriptor = *client.owned_token(Op::Put, 0, 4096).unwrap().descriptor();
        let mut channel = server.channel().unwrap();
        for (ticket, lease) in (0..count as u64).zip(leases) {
            let read = Operation { ticket, ..operation(Direction::Read, &descriptor, &memory, lease) };
            channel.submit(read).unwrap();
        }
        Self { channel, memory, client }
    }

    /// One more read.
    fn read_again(&mut self) -> Result<Local, Box<Failed>> {
        let server = self.channel.server().clone();
        let (memory, mut leases) = slab(&server, 4096, 1);
        let descriptor = *self.client.owned_token(Op::Put, 0, 4096).unwrap().descriptor();
        let read = operation(Direction::Read, &descriptor, &memory, leases.pop().unwrap());
        self.channel.transfer(read, None)
    }
}

#[test]
fn a_failure_flushes_what_is_behind_it_and_the_channel_works_on() {
    let fault = [("CUOBJ_SOFT_FAULT", "status:n=5,code=12")];
    isolated("faults::a_failure_flushes_what_is_behind_it_and_the_channel_works_on", &fault, || {
        let mut flight = Flight::start(Tunables::default(), DEPTH);
        let ended = poll(&mut flight.channel, DEPTH);
        for (i, completion) in ended.iter().enumerate() {
            let expected = match i {
                0..4 => WcStatus::SUCCESS,
                4 => WcStatus::RETRY_EXC_ERR,
                _ => WcStatus::WR_FLUSH_ERR,
            };
            assert_eq!((completion.ticket, completion.status), (i as u64, expected));
        }
        flight.read_again().unwrap();
        drop(ended);
        assert_eq!(Arc::strong_count(flight.memory.memory()), 1);
    });
}

#[test]
fn without_queue_pair_reset_a_failed_channel_reports_everything_and_then_says_it_is_of_no_use() {
    let name =
        "faults::without_queue_pair_reset_a_failed_channel_reports_everything_and_then_says_it_is_of_no_use";
    isolated(name, &[("CUOBJ_SOFT_FAULT", "status:n=2,code=12")], || {
        let tunables = Tunables { qp_reset_on_failure: false, ..Tunables::default() };
        let mut flight = Flight::start(tunables, 4);
        let statuses: Vec<_> = poll(&mut flight.channel, 4).iter().map(|c| c.status).collect();
        let flushed = WcStatus::WR_FLUSH_ERR;
        assert_eq!(statuses, [WcStatus::SUCCESS, WcStatus::RETRY_EXC_ERR, flushed, flushed]);
        let error = flight.channel.poll(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no longer of use"), "{error}");
        let refused = flight.read_again().unwrap_err();
        assert!(refused.error.to_string().contains("no longer of use") && refused.local.is_some());
        assert_eq!(quarantine::withheld(), quarantine::Withheld::default());
        // Its number is not given out again: another would meet its dead queue pair.
        let (number, server) = (flight.channel.number(), flight.channel.server().clone());
        drop(flight);
        assert_ne!(server.channel().unwrap().number(), number);
    });
}

#[test]
fn a_refused_submission_gives_the_lease_back() {
    let fault = [("CUOBJ_SOFT_FAULT", "submit:n=1,errno=71")];
    isolated("faults::a_refused_submission_gives_the_lease_back", &fault, || {
        let mut flight = Flight::start(Tunables::default(), 0);
        let refused = flight.read_again().unwrap_err();
        assert!(refused.local.is_some());
        let text = refused.error.to_string();
        assert!(text.starts_with("RDMA READ: Protocol error") && text.contains("(-71)"), "{text}");
        flight.read_again().unwrap();
    });
}

#[test]
fn a_channel_that_hears_nothing_in_time_is_lost_and_withholds_its_memory() {
    let name = "faults::a_channel_that_hears_nothing_in_time_is_lost_and_withholds_its_memory";
    isolated(name, &[("CUOBJ_SOFT_FAULT", "delay:ms=60000")], || {
        let mut flight = Flight::start(Tunables::default(), 3);
        let mapped = Arc::downgrade(flight.memory.memory());
        flight.channel.set_operation_timeout(Duration::from_millis(50));
        let mut completions = Vec::new();
        let error = loop {
            match flight.channel.poll(&mut completions) {
                Ok(()) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("3 operations have not ended"), "{error}");
        assert!(completions.is_empty());
        assert_eq!(quarantine::withheld(), quarantine::Withheld { operations: 3, bytes: 3 * 4096 });
        assert_eq!(flight.channel.in_flight(), 0);
        drop(flight);
        assert!(mapped.upgrade().is_some(), "the device may still write there");
    });
}

#[test]
fn dropping_a_channel_that_hears_nothing_withholds_its_memory_in_bounded_time() {
    let name = "faults::dropping_a_channel_that_hears_nothing_withholds_its_memory_in_bounded_time";
    isolated(name, &[("CUOBJ_SOFT_FAULT", "delay:ms=60000")], || {
        // The least patience: retries of 4 µs.
        let flight = Flight::start(Tunables { timeout: 1, retry_count: 0, ..Tunables::default() }, 2);
        let mapped = Arc::downgrade(flight.memory.memory());
        drop(flight);
        assert_eq!(quarantine::withheld(), quarantine::Withheld { operations: 2, bytes: 2 * 4096 });
        assert!(mapped.upgrade().is_some());
    });
}

#[test]
fn an_exception_of_the_library_is_an_error_and_what_it_left_unknown_is_withheld() {
    let name = "faults::an_exception_of_the_library_is_an_error_and_what_it_left_unknown_is_withheld";
    isolated(name, &[], || {
        // SAFETY: takes a number.
        let throw = || unsafe { cuobj_sys::vgw_cuobj_test_throw(1) };
        let server = server();
        let (memory, mut leases) = slab(&server, 4096, 6);
        let client = client_memory(4096, 1);
        let descriptor = *client.owned_token(Op::Put, 0, 4096).unwrap().descriptor();
        let mut read = || operation(Direction::Read, &descriptor, &memory, leases.pop().unwrap());
        let withheld = || quarantine::withheld().operations;

        // In a synchronous call: its memory is lost, and the channel.
        let mut channel = server.channel().unwrap();
        let operation = read();
        throw();
        let failed = channel.transfer(operation, None).unwrap_err();
        assert!(
            matches!(failed.error, Error::Exception { .. }) && failed.local.is_none(),
            "{}",
            failed.error
        );
        assert_eq!(failed.error.to_string(), "RDMA READ threw: thrown for a test");
        assert_eq!(withheld(), 1);
        let refused = channel.transfer(read(), None).unwrap_err();
        assert!(refused.error.to_string().contains("no longer of use") && refused.local.is_some());

        // In a submission: so is the memory of what was in flight.
        let mut channel = server.channel().unwrap();
        channel.submit(read()).unwrap();
        let operation = read();
        throw();
        assert!(channel.submit(operation).unwrap_err().local.is_none());
        assert_eq!((withheld(), channel.in_flight()), (3, 0));
        assert!(channel.poll(&mut Vec::new()).is_err());

        // In a poll.
        let mut channel = server.channel().unwrap();
        channel.submit(read()).unwrap();
        throw();
        let error = channel.poll(&mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Exception { operation: "poll", .. }), "{error}");
        assert_eq!(withheld(), 4);

        // Other channels of the server work on.
        let mut channel = server.channel().unwrap();
        assert_pattern(&lease_of(channel.transfer(read(), None).unwrap()), 1, 0);
    });
}

#[test]
fn a_library_that_throws_while_it_opens_gives_an_error() {
    // SAFETY: takes a number.
    let throw = || unsafe { cuobj_sys::vgw_cuobj_test_throw(3) };
    throw();
    // The first call of the thread that has a guard.
    let error = CuServer::open(device_address(), 19100, &Tunables::default()).unwrap_err();
    assert!(matches!(&error, Error::Exception { what, .. } if what.contains("bad_alloc")), "{error}");
}
