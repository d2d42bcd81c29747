//! What goes wrong on the way, on any piece: the transfer says so, others go on, nothing is lost.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use test_case::test_case;
use vgwrdma::rdma::WcStatus;
use vgwrdma::transfer::transport::failing::{Fault, Seen};
use vgwrdma::transfer::{BlockSink, BlockSource, EngineConfig, OrderedSink, Side, TransferError};

use crate::rig::{CHUNK, Fabric, InOrder, InProcess, Rig, VecSink, VecSource, config, pattern, whole};

const PIECES: usize = 6;

/// A plan that gives one fault to the operation with this number, and then no other.
fn once(index: u64, fault: Fault) -> impl Fn(&Seen) -> Fault + Clone {
    move |seen| if seen.index == index { fault } else { Fault::None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_status_on_every_piece() {
    for status in WcStatus::ALL.iter().copied().chain([WcStatus(77)]) {
        for piece in 0..PIECES as u64 {
            if status.is_success() || status == WcStatus::WR_FLUSH_ERR {
                continue;
            }
            let (fabric, _) = InProcess::inline().failing(once(piece, Fault::Status(status)));
            let rig = Rig::new(fabric, config(), 8);
            let bytes = pattern(PIECES * CHUNK, piece);
            let descriptor = rig.fabric.offer(&bytes);
            let sink = VecSink::new(bytes.len());
            let Err(error) = rig.engine.pull(whole(&descriptor), Arc::clone(&sink), InOrder::default()).await
            else {
                panic!("{status} on piece {piece} went unseen")
            };
            assert_eq!(error.status(), Some(status));
            let side = if status.blames_remote_memory() { Side::Client } else { Side::Fabric };
            assert_eq!(error.side(), side);
            assert!(Arc::into_inner(sink).is_some(), "the sink is released with the error");
            rig.assert_at_rest();
            assert_eq!(rig.engine.stats().failures_with(status), 1);
            // The engine works as before.
            let target = rig.fabric.offer(&vec![0; bytes.len()]);
            rig.engine.push(whole(&target), VecSource::new(bytes.clone()), 0).await.unwrap();
            assert!(rig.fabric.bytes(&target) == bytes);
            rig.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_status_on_every_piece_of_a_get() {
    let statuses = WcStatus::ALL[1..].iter().copied().filter(|s| *s != WcStatus::WR_FLUSH_ERR);
    for (status, piece) in statuses.flat_map(|status| (0..PIECES as u64).map(move |piece| (status, piece))) {
        let (fabric, _) = InProcess::threaded(Duration::ZERO).failing(once(piece, Fault::Status(status)));
        let rig = Rig::new(fabric, config(), 8);
        let target = rig.fabric.offer(&vec![0; PIECES * CHUNK]);
        let source = VecSource::new(pattern(PIECES * CHUNK, 1));
        let error = rig.engine.push(whole(&target), Arc::clone(&source), 0).await.unwrap_err();
        assert_eq!(error.status(), Some(status));
        assert!(Arc::into_inner(source).is_some(), "the source is released with the error");
        rig.assert_at_rest();
        rig.finish().await;
    }
}

/// One channel, full with the operations of several clients; one of them fails. The others were
/// flushed for no fault of their own, are carried out again and succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_of_a_full_channel_costs_the_others_nothing() {
    for failing in [0, 3, 7, 15] {
        // All but the failing one wait behind the first, so that the channel fills up.
        let plan = move |seen: &Seen| match seen.index {
            i if i == failing => Fault::Status(WcStatus::REM_ACCESS_ERR),
            0 => Fault::Delay(Duration::from_millis(20)),
            _ => Fault::None,
        };
        let (fabric, _) = InProcess::inline().failing(plan);
        let one = EngineConfig { lanes: 1, channels_per_lane: 1, ..config() };
        let rig = Rig::new(fabric, one, 32);
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..16 {
            let bytes = pattern(CHUNK - 5, i);
            let (engine, window) = (Arc::clone(&rig.engine), whole(&rig.fabric.offer(&bytes)));
            tasks.spawn(async move {
                let sink = VecSink::new(bytes.len());
                let (report, seen) = engine.pull(window, Arc::clone(&sink), InOrder::default()).await?;
                assert!(seen.0 == bytes && sink.take() == bytes);
                Ok::<_, TransferError>(report.retries)
            });
        }
        let mut failed = 0;
        while let Some(done) = tasks.join_next().await {
            match done.unwrap() {
                Ok(retries) => assert!(retries <= 1),
                Err(error) => {
                    assert_eq!(error.status(), Some(WcStatus::REM_ACCESS_ERR));
                    failed += 1;
                }
            }
        }
        assert_eq!(failed, 1);
        rig.assert_at_rest();
        let stats = rig.engine.stats();
        assert_eq!(stats.operations_retried, stats.failures_with(WcStatus::WR_FLUSH_ERR));
        rig.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushes_without_end_are_not_retried_without_end() {
    let (fabric, endpoints) = InProcess::inline().failing(|_| Fault::Status(WcStatus::WR_FLUSH_ERR));
    let rig = Rig::new(fabric, config(), 8);
    let window = whole(&rig.fabric.offer(&[1; 100]));
    let error = rig.engine.pull(window, VecSink::new(100), ()).await.unwrap_err();
    assert_eq!(error.status(), Some(WcStatus::WR_FLUSH_ERR));
    assert_eq!(error.side(), Side::Fabric);
    assert_eq!(endpoints[0].operations(), 1 + u64::from(config().flush_retries));
    rig.assert_at_rest();
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_operation_is_a_failure() {
    let (fabric, _) = InProcess::inline().failing(once(1, Fault::Short(10)));
    let rig = Rig::new(fabric, config(), 8);
    let bytes = pattern(3 * CHUNK, 0);
    let window = whole(&rig.fabric.offer(&bytes));
    let error = rig.engine.pull(window, VecSink::new(bytes.len()), ()).await.unwrap_err();
    assert_eq!(error.status(), Some(WcStatus::LOC_LEN_ERR));
    rig.assert_at_rest();
    rig.finish().await;
}

#[test_case(libc::EIO, true; "an unclear refusal is tried once more")]
#[test_case(libc::EAFNOSUPPORT, false; "a refused address family is final")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals(errno: i32, recovers: bool) {
    let (fabric, endpoints) = InProcess::inline().failing(once(2, Fault::Refuse(errno)));
    let rig = Rig::new(fabric, config(), 8);
    let bytes = pattern(PIECES * CHUNK, 0);
    let window = whole(&rig.fabric.offer(&bytes));
    let outcome = rig.engine.pull(window.clone(), VecSink::new(bytes.len()), InOrder::default()).await;
    match outcome {
        Ok((report, seen)) => {
            assert!(recovers && seen.0 == bytes);
            assert_eq!(report.retries, 1);
            assert_eq!(endpoints[0].operations(), PIECES as u64 + 1);
        }
        Err(error) => {
            assert!(!recovers && matches!(error, TransferError::Refused(_)), "{error}");
            assert_eq!(error.side(), Side::Client);
        }
    }
    rig.assert_at_rest();
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_stays_is_an_error() {
    let (fabric, _) = InProcess::inline().failing(|_| Fault::Refuse(libc::EIO));
    let rig = Rig::new(fabric, config(), 8);
    let window = whole(&rig.fabric.offer(&[1; 100]));
    let error = rig.engine.pull(window, VecSink::new(100), ()).await.unwrap_err();
    assert!(matches!(error, TransferError::Refused(_)), "{error}");
    assert_eq!(error.side(), Side::Fabric);
    rig.finish().await;
}

/// The device goes away with operations in flight, and comes back.
#[test_case(Fault::DeviceLost)]
#[test_case(Fault::DeviceLostWithholding)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_ends_transfers_and_is_tried_again(fault: Fault) {
    let (fabric, endpoints) = InProcess::inline().failing(once(5, fault));
    let rig = Rig::new(fabric, config(), 16);
    let bytes = pattern(40 * CHUNK, 0);
    let sink = VecSink::new(bytes.len());
    let window = whole(&rig.fabric.offer(&bytes));
    let error = rig.engine.pull(window.clone(), Arc::clone(&sink), InOrder::default()).await;
    let Err(error) = error else { panic!("a transfer over a lost device succeeded") };
    assert_eq!(error.side(), Side::Fabric, "{error}");
    assert!(Arc::into_inner(sink).is_some());
    let out_of_service = async || {
        while rig.engine.stats().channels_open > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Whoever comes while it is away learns so at once.
    loop {
        match rig.engine.pull(window.clone(), VecSink::new(bytes.len()), ()).await.unwrap_err() {
            TransferError::NoEndpoint => break,
            error => assert_eq!(error.side(), Side::Fabric, "{error}"),
        }
    }
    out_of_service().await;
    assert!(!rig.engine.stats().endpoints[0].in_service);
    endpoints[0].restore();
    while rig.engine.stats().channels_open < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let stats = rig.engine.stats();
    assert!(stats.endpoints[0].in_service && stats.endpoints[0].outages == 1);
    let (_, seen) = rig.engine.pull(window, VecSink::new(bytes.len()), InOrder::default()).await.unwrap();
    assert!(seen.0 == bytes);
    let lost = rig.engine.stats().chunks_lost;
    if fault == Fault::DeviceLost {
        assert_eq!(lost, 0);
        rig.finish().await;
    } else {
        // Withheld memory never comes back, and the books say so.
        assert!(lost > 0);
        let stats = rig.engine.stats();
        assert_eq!(stats.unrest(), Some(format!("{lost} chunks missing")));
    }
}

/// Nothing completes within the timeout; the memory stays aside until the operation does end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_a_timed_out_operation_is_quarantined() {
    let (fabric, endpoints) = InProcess::inline().failing(once(1, Fault::Hang));
    let impatient = EngineConfig { completion_timeout: Duration::from_secs(1), ..config() };
    let rig = Rig::new(fabric, impatient, 4);
    let bytes = pattern(3 * CHUNK, 0);
    let window = whole(&rig.fabric.offer(&bytes));
    let sink = VecSink::new(bytes.len());
    let error = rig.engine.pull(window.clone(), Arc::clone(&sink), ()).await.unwrap_err();
    assert!(matches!(error, TransferError::Timeout { .. }), "{error}");
    assert_eq!(error.side(), Side::Fabric);
    let sink = Arc::into_inner(sink).expect("released with the error");
    sink.closed.store(true, Ordering::SeqCst);

    let stats = rig.engine.stats();
    assert!(stats.chunks_quarantined >= 1 && stats.channels_condemned >= 1, "{stats:#?}");
    assert_eq!(stats.chunks_leased, 0);
    // The quarantined chunk is not used: three of four serve, whatever is asked of them.
    for _ in 0..20 {
        let (_, seen) =
            rig.engine.pull(window.clone(), VecSink::new(bytes.len()), InOrder::default()).await.unwrap();
        assert!(seen.0 == bytes);
    }
    let stats = rig.engine.stats();
    assert!(stats.chunks_quarantined >= 1 && stats.operations_timed_out >= 1);
    endpoints[0].release();
    rig.finish().await;
}

/// Every chunk hangs in an operation that times out: new transfers are refused, and served again
/// after the operations have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_in_quarantine_is_busy_until_it_is_released() {
    let hang = Arc::new(AtomicBool::new(true));
    let plan = {
        let hang = Arc::clone(&hang);
        move |_: &Seen| if hang.load(Ordering::SeqCst) { Fault::Hang } else { Fault::None }
    };
    let (fabric, endpoints) = InProcess::inline().failing(plan);
    let config = EngineConfig {
        completion_timeout: Duration::from_secs(1),
        chunk_wait: Duration::from_millis(20),
        ..config()
    };
    let rig = Rig::new(fabric, config, 2);
    let window = whole(&rig.fabric.offer(&pattern(2 * CHUNK, 0)));
    let error = rig.engine.pull(window.clone(), VecSink::new(2 * CHUNK), ()).await.unwrap_err();
    assert!(matches!(error, TransferError::Timeout { .. }), "{error}");
    let error = rig.engine.pull(window.clone(), VecSink::new(2 * CHUNK), ()).await.unwrap_err();
    assert!(matches!(error, TransferError::Busy { .. }), "{error}");
    assert_eq!((error.side(), rig.engine.stats().transfers_busy), (Side::Load, 1));
    hang.store(false, Ordering::SeqCst);
    endpoints[0].release();
    while rig.engine.stats().unrest().is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    rig.engine.pull(window, VecSink::new(2 * CHUNK), ()).await.unwrap();
    rig.finish().await;
}

/// A slow client holds its own chunks only; others pass it by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_peer_does_not_hold_up_others() {
    let slow_start = Arc::new(AtomicU64::new(0));
    let plan = {
        let slow_start = Arc::clone(&slow_start);
        move |seen: &Seen| {
            let start = slow_start.load(Ordering::SeqCst);
            let slow = (start..start + 100 * CHUNK as u64).contains(&seen.remote_start);
            if slow { Fault::Hang } else { Fault::None }
        }
    };
    let (fabric, endpoints) = InProcess::inline().failing(plan);
    // More channels than a transfer's depth, so that there is a way around.
    let rig = Rig::new(fabric, EngineConfig { channels_per_lane: 4, ..config() }, 8);
    let slow = rig.fabric.offer(&pattern(20 * CHUNK, 1));
    slow_start.store(slow.address, Ordering::SeqCst);
    let slow = tokio::spawn({
        let engine = Arc::clone(&rig.engine);
        async move { engine.pull(whole(&slow), VecSink::new(20 * CHUNK), InOrder::default()).await }
    });
    while rig.engine.stats().operations_in_flight < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for i in 0..20 {
        let bytes = pattern(3 * CHUNK, i);
        let window = whole(&rig.fabric.offer(&bytes));
        rig.engine.pull(window, VecSink::new(bytes.len()), ()).await.unwrap();
    }
    assert!(!slow.is_finished());
    endpoints[0].release();
    assert!(slow.await.unwrap().unwrap().1.0 == pattern(20 * CHUNK, 1));
    rig.assert_at_rest();
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_fails_the_put_and_ends_its_writes() {
    for writes in 0..PIECES {
        let rig = Rig::new(InProcess::threaded(Duration::ZERO), config(), 8);
        let bytes = pattern(PIECES * CHUNK, 0);
        let sink = VecSink::full_after(bytes.len(), writes);
        let window = whole(&rig.fabric.offer(&bytes));
        let Err(error) = rig.engine.pull(window, Arc::clone(&sink), InOrder::default()).await else {
            panic!("a full disk went unseen")
        };
        let TransferError::Sink(cause) = &error else { panic!("{error}") };
        assert_eq!(cause.raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(error.side(), Side::Storage);
        assert!(Arc::into_inner(sink).is_some());
        rig.assert_at_rest();
        rig.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_source_fails_the_get() {
    for length in [0, 1, CHUNK, 3 * CHUNK + 5] {
        let rig = Rig::new(InProcess::threaded(Duration::ZERO), config(), 8);
        let target = rig.fabric.offer(&vec![0; PIECES * CHUNK]);
        let error = rig.engine.push(whole(&target), VecSource::new(pattern(length, 0)), 0).await.unwrap_err();
        let TransferError::Source(cause) = &error else { panic!("{error}") };
        assert_eq!(cause.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(error.side(), Side::Storage);
        rig.assert_at_rest();
        rig.finish().await;
    }
}

struct Panics;

impl BlockSink for Panics {
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("expected in this test")
    }
}

impl BlockSource for Panics {
    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        panic!("expected in this test")
    }
}

impl OrderedSink for Panics {
    fn update(&mut self, _: &[u8]) {
        panic!("expected in this test")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_others_is_one_transfers_error() {
    let rig = Rig::new(InProcess::inline(), config(), 8);
    let bytes = pattern(PIECES * CHUNK, 0);
    let window = whole(&rig.fabric.offer(&bytes));
    let sink = rig.engine.pull(window.clone(), Arc::new(Panics), ()).await.map(|_| ());
    let digest = rig.engine.pull(window.clone(), VecSink::new(bytes.len()), Panics).await.map(|_| ());
    let source = rig.engine.push(window.clone(), Arc::new(Panics), 0).await.map(|_| ());
    for outcome in [sink, digest, source] {
        assert_eq!(outcome.unwrap_err().side(), Side::Internal);
    }
    rig.assert_at_rest();
    rig.engine.pull(window, VecSink::new(bytes.len()), ()).await.unwrap();
    rig.finish().await;
}

/// After a failure the operation goes to another channel than the one it failed on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_takes_another_channel() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let plan = {
        let seen = Arc::clone(&seen);
        move |s: &Seen| {
            seen.lock().unwrap().push(s.channel);
            if s.index == 0 { Fault::Status(WcStatus::WR_FLUSH_ERR) } else { Fault::None }
        }
    };
    let (fabric, _) = InProcess::inline().failing(plan);
    let rig = Rig::new(fabric, EngineConfig { lanes: 1, channels_per_lane: 3, ..config() }, 8);
    let window = whole(&rig.fabric.offer(&[5; 100]));
    let (report, ()) = rig.engine.pull(window, VecSink::new(100), ()).await.unwrap();
    assert_eq!(report.retries, 1);
    let channels: HashSet<_> = seen.lock().unwrap().iter().copied().collect();
    assert_eq!(channels.len(), 2);
    rig.finish().await;
}
