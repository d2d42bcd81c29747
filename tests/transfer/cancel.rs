//! Callers that go away: nothing new begins, what has begun ends, and everything comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vgwrdma::transfer::transport::failing::{Fault, Seen};
use vgwrdma::transfer::{EngineConfig, TransferError};

use crate::rig::{CHUNK, Fabric, InOrder, InProcess, Rig, VecSink, VecSource, config, pattern, whole};

/// A future dropped at every stage: after 0, 1, 2 … polls, and after random times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_point() {
    let fabric = InProcess::threaded(Duration::from_micros(50));
    let rig = Rig::new(fabric, config(), 6);
    let bytes = pattern(30 * CHUNK + 3, 1);
    let delays = pattern(120, 99);
    let mut cancelled = 0;
    for (round, delay) in delays.into_iter().enumerate() {
        let window = whole(&rig.fabric.offer(&bytes));
        let limit = Duration::from_micros(u64::from(delay) * 10);
        let sink = VecSink::new(bytes.len());
        let source = VecSource::new(bytes.clone());
        let ended = if round % 2 == 0 {
            let pull = rig.engine.pull(window, Arc::clone(&sink), InOrder::default());
            tokio::time::timeout(limit, pull).await.map(|done| assert!(done.unwrap().1.0 == bytes)).is_ok()
        } else {
            let push = rig.engine.push(window, Arc::clone(&source), 0);
            tokio::time::timeout(limit, push).await.map(|done| assert!(done.is_ok())).is_ok()
        };
        cancelled += u64::from(!ended);
        if ended {
            assert_eq!((Arc::strong_count(&sink), Arc::strong_count(&source)), (1, 1));
            continue;
        }
        // The last reference goes when the last write that had begun has ended.
        while Arc::strong_count(&sink) + Arc::strong_count(&source) > 2 {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        sink.closed.store(true, Ordering::SeqCst);
    }
    assert_eq!(rig.engine.stats().transfers_cancelled, cancelled);
    assert!(cancelled > 0, "no transfer was slow enough to be cancelled");
    rig.finish().await;
}

/// A transfer cancelled while its operations hang: its chunks come back with their completions and
/// not before, and its sink is not touched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_in_operation_outlives_the_caller() {
    let hang = Arc::new(AtomicBool::new(true));
    let plan = {
        let hang = Arc::clone(&hang);
        move |_: &Seen| if hang.load(Ordering::SeqCst) { Fault::Hang } else { Fault::None }
    };
    let (fabric, endpoints) = InProcess::inline().failing(plan);
    let rig = Rig::new(fabric, EngineConfig { depth: 3, ..config() }, 6);
    let window = whole(&rig.fabric.offer(&pattern(10 * CHUNK, 1)));
    let sink = VecSink::new(10 * CHUNK);
    let pull = rig.engine.pull(window.clone(), Arc::clone(&sink), ());
    tokio::time::timeout(Duration::from_millis(20), pull).await.unwrap_err();
    sink.closed.store(true, Ordering::SeqCst);
    hang.store(false, Ordering::SeqCst);
    let stats = rig.engine.stats();
    assert_eq!((stats.chunks_leased, stats.transfers_running, stats.transfers_cancelled), (3, 1, 1));
    assert!(!rig.engine.drain(Duration::from_millis(20)).await, "it still runs");
    endpoints[0].release();
    assert!(rig.engine.drain(Duration::from_secs(30)).await);
    assert_eq!(Arc::strong_count(&sink), 1);
    rig.assert_at_rest();
    rig.finish().await;
}

/// Waiters for chunks that go away do not take any with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_while_waiting_for_a_chunk() {
    let (fabric, endpoints) = InProcess::inline().failing(|_| Fault::Hang);
    let rig = Rig::new(fabric, config(), 1);
    let window = whole(&rig.fabric.offer(&[1; 100]));
    let holder = tokio::spawn({
        let (engine, window) = (Arc::clone(&rig.engine), window.clone());
        async move { engine.pull(window, VecSink::new(100), ()).await }
    });
    while rig.engine.stats().operations_in_flight == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (engine, window) = (Arc::clone(&rig.engine), window.clone());
        waiters.spawn(async move { engine.pull(window, VecSink::new(100), ()).await.map(|_| ()) });
    }
    while rig.engine.stats().transfers_waiting < 20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waiters.shutdown().await;
    assert_eq!(rig.engine.stats().transfers_waiting, 0);
    endpoints[0].release();
    holder.await.unwrap().unwrap();
    rig.assert_at_rest();
    rig.engine.pull(window, VecSink::new(100), ()).await.unwrap();
    rig.finish().await;
}

/// Drain lets running transfers end and refuses new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_while_running() {
    let (fabric, endpoints) = InProcess::threaded(Duration::ZERO).failing(|_| Fault::Hang);
    let rig = Rig::new(fabric, config(), 4);
    let bytes = pattern(20 * CHUNK, 5);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (engine, window) = (Arc::clone(&rig.engine), whole(&rig.fabric.offer(&bytes)));
        let expected = bytes.clone();
        tasks.spawn(async move {
            let sink = VecSink::slow(expected.len(), Duration::from_micros(100));
            let (_, seen) = engine.pull(window, sink, InOrder::default()).await.unwrap();
            assert!(seen.0 == expected);
        });
    }
    while rig.engine.stats().transfers_running < 10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!rig.engine.drain(Duration::from_millis(5)).await, "all of them hang");
    let error = rig.engine.pull(whole(&rig.fabric.offer(&bytes)), VecSink::new(0), ()).await.unwrap_err();
    assert!(matches!(error, TransferError::ShuttingDown), "{error}");
    let drained = rig.engine.drain(Duration::from_secs(60));
    let release = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        endpoints[0].release();
    };
    assert!(tokio::join!(drained, release).0);
    rig.assert_at_rest();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    rig.finish().await;
}

/// An engine dropped without a drain, with operations in flight of callers that have gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_dropped_in_full_run_ends() {
    let (fabric, _) = InProcess::inline().failing(|_| Fault::Delay(Duration::from_millis(30)));
    let rig = Rig::new(fabric, config(), 4);
    let bytes = pattern(20 * CHUNK, 5);
    for _ in 0..3 {
        let window = whole(&rig.fabric.offer(&bytes));
        let sink = VecSink::new(bytes.len());
        let pull = rig.engine.pull(window, sink, InOrder::default());
        tokio::time::timeout(Duration::from_micros(500), pull).await.unwrap_err();
    }
    let Rig { fabric, engine, .. } = rig;
    let engine = Arc::into_inner(engine).unwrap();
    tokio::task::spawn_blocking(move || drop(engine)).await.unwrap();
    assert_eq!(fabric.open_channels(), Some(0));
}
