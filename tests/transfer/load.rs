//! Many transfers at a time, and large ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vgwrdma::transfer::transport::failing::{Fault, Seen};
use vgwrdma::transfer::transport::memory::Written;
use vgwrdma::transfer::{BlockSink, BlockSource, EngineConfig, RemoteWindow, TransferError};

use crate::rig::{CHUNK, Fabric, InOrder, InProcess, Rig, VecSink, VecSource, config, pattern, whole};

/// Compares with a repeated block, whatever the offset.
struct Repeats(Vec<u8>);

impl BlockSink for Repeats {
    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        let mut expected = vec![0; data.len()];
        self.read_at(offset, &mut expected)?;
        if expected != data {
            return Err(std::io::Error::other(format!("wrong bytes in the block at {offset}")));
        }
        Ok(())
    }
}

impl BlockSource for Repeats {
    fn read_at(&self, offset: u64, data: &mut [u8]) -> std::io::Result<()> {
        let size = self.0.len();
        let mut at = offset as usize % size;
        let mut rest = data;
        while !rest.is_empty() {
            let length = (size - at).min(rest.len());
            let (part, behind) = rest.split_at_mut(length);
            part.copy_from_slice(&self.0[at..at + length]);
            (at, rest) = (0, behind);
        }
        Ok(())
    }
}

/// The largest window there is, in chunks of the default size, both ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_window() {
    let size = (4 << 30) - (64 << 10);
    let fabric = InProcess::inline();
    let block = pattern((1 << 20) + 11, 4);
    let descriptor = Arc::new(fabric.memory.repeated(&block, size));
    let rig = Rig::new(fabric, EngineConfig { chunk_size: 4 << 20, ..config() }, 8);
    let (report, ()) =
        rig.engine.pull(whole(&descriptor), Arc::new(Repeats(block.clone())), ()).await.unwrap();
    assert_eq!((report.bytes, report.operations), (size, 1024));
    let report = rig.engine.push(whole(&descriptor), Arc::new(Repeats(block)), 0).await.unwrap();
    assert_eq!(report.bytes, size);
    assert_eq!(rig.fabric.memory.written(&descriptor), Some(Written { bytes: size, wrong: 0 }));
    rig.assert_at_rest();
    rig.finish().await;
}

/// A chunk of the largest size that one operation may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_operation() {
    let size = (1 << 30) + 1;
    let fabric = InProcess::inline();
    let block = pattern((1 << 20) + 11, 4);
    let descriptor = Arc::new(fabric.memory.repeated(&block, size));
    let rig = Rig::new(fabric, EngineConfig { chunk_size: 1 << 30, ..config() }, 1);
    let (report, ()) = rig.engine.pull(whole(&descriptor), Arc::new(Repeats(block)), ()).await.unwrap();
    assert_eq!((report.bytes, report.operations), (size, 2));
    rig.finish().await;
}

/// Small transfers end one after the other while a large one, with all the depth it is allowed,
/// has the pool to itself otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transfer_does_not_starve_small_ones() {
    let fabric = InProcess::inline();
    let block = pattern(1 << 20, 4);
    let large = Arc::new(fabric.memory.repeated(&block, 2 << 30));
    let rig = Rig::new(fabric, EngineConfig { depth: 16, ..config() }, 4);
    let stop = Arc::new(AtomicBool::new(false));
    let running = tokio::spawn({
        let (engine, stop) = (Arc::clone(&rig.engine), Arc::clone(&stop));
        async move {
            let mut whole_ones = 0;
            while !stop.load(Ordering::SeqCst) {
                let window = RemoteWindow { length: 64 << 20, ..whole(&large) };
                engine.pull(window, Arc::new(Repeats(block.clone())), ()).await.unwrap();
                whole_ones += 1;
            }
            whole_ones
        }
    });
    for i in 0..200 {
        let bytes = pattern(1000, i);
        let window = whole(&rig.fabric.offer(&bytes));
        let (_, seen) = rig.engine.pull(window, VecSink::new(1000), InOrder::default()).await.unwrap();
        assert!(seen.0 == bytes);
    }
    stop.store(true, Ordering::SeqCst);
    assert!(running.await.unwrap() > 0);
    rig.assert_at_rest();
    rig.finish().await;
}

/// Waiting is bounded, and nobody is refused who can be served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_pool_refuses_after_the_wait() {
    let (fabric, endpoints) = InProcess::inline().failing(|_: &Seen| Fault::Hang);
    let config = EngineConfig { chunk_wait: Duration::from_millis(30), ..config() };
    let rig = Rig::new(fabric, config, 2);
    let window = whole(&rig.fabric.offer(&[3; 2 * CHUNK]));
    let holder = tokio::spawn({
        let (engine, window) = (Arc::clone(&rig.engine), window.clone());
        async move { engine.pull(window, VecSink::new(2 * CHUNK), ()).await }
    });
    while rig.engine.stats().chunks_free > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..3 {
        match rig.engine.pull(window.clone(), VecSink::new(2 * CHUNK), ()).await.unwrap_err() {
            TransferError::Busy { waited } => assert!(waited >= Duration::from_millis(30)),
            error => panic!("{error}"),
        }
    }
    let stats = rig.engine.stats();
    assert_eq!((stats.transfers_busy, stats.chunk_waits), (3, 3));
    assert!(stats.chunk_wait_time >= Duration::from_millis(90));
    endpoints[0].release();
    holder.await.unwrap().unwrap();
    rig.assert_at_rest();
    rig.finish().await;
}

/// More transfers than are admitted: the rest is refused at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_transfers_is_bounded() {
    let (fabric, endpoints) = InProcess::inline().failing(|_: &Seen| Fault::Hang);
    let rig = Rig::new(fabric, EngineConfig { max_transfers: 3, ..config() }, 8);
    let window = whole(&rig.fabric.offer(&[3; 100]));
    let mut held = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (engine, window) = (Arc::clone(&rig.engine), window.clone());
        held.spawn(async move { engine.pull(window, VecSink::new(100), ()).await.map(|_| ()) });
    }
    while rig.engine.stats().transfers_running < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error = rig.engine.pull(window, VecSink::new(100), ()).await.unwrap_err();
    assert!(matches!(error, TransferError::Busy { waited: Duration::ZERO }), "{error}");
    endpoints[0].release();
    while let Some(done) = held.join_next().await {
        done.unwrap().unwrap();
    }
    rig.assert_at_rest();
    rig.finish().await;
}

/// Everything at once: both directions, all sizes, faults, clients that go away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_leaves_nothing_behind() {
    use vgwrdma::rdma::WcStatus;
    let plan = |seen: &Seen| match seen.index % 97 {
        13 => Fault::Status(WcStatus::REM_ACCESS_ERR),
        40 => Fault::Status(WcStatus::RETRY_EXC_ERR),
        55 => Fault::Delay(Duration::from_millis(2)),
        70 => Fault::Refuse(libc::EIO),
        90 => Fault::Short(100),
        _ => Fault::None,
    };
    let (fabric, _) = InProcess::threaded(Duration::from_micros(20)).failing(plan);
    let rig = Rig::new(fabric, EngineConfig { depth: 3, ..config() }, 8);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..300_u64 {
        let size = [1, 700, CHUNK, 2 * CHUNK + 1, 6 * CHUNK][i as usize % 5];
        let bytes = pattern(size, i);
        let window = whole(&rig.fabric.offer(&bytes));
        let engine = Arc::clone(&rig.engine);
        tasks.spawn(async move {
            let limit = if i % 7 == 0 { Duration::from_micros(i * 20) } else { Duration::from_secs(60) };
            let moved = async {
                if i % 2 == 0 {
                    let sink = VecSink::new(size);
                    let outcome = engine.pull(window, Arc::clone(&sink), InOrder::default()).await;
                    outcome.map(|(_, seen)| assert!(seen.0 == bytes && sink.take() == bytes))
                } else {
                    engine.push(window, VecSource::new(bytes.clone()), 0).await.map(|_| ())
                }
            };
            match tokio::time::timeout(limit, moved).await {
                Ok(Ok(())) => 1,
                Ok(Err(error)) => {
                    assert!(
                        error.status().is_some() || matches!(error, TransferError::Refused(_)),
                        "{error}"
                    );
                    0
                }
                Err(_) => 0,
            }
        });
    }
    let mut good = 0;
    while let Some(done) = tasks.join_next().await {
        good += done.unwrap();
    }
    assert!(good >= 100, "only {good} of 300 transfers succeeded");
    let stats = rig.engine.stats();
    assert_eq!(stats.transfers_done, good);
    assert_eq!(stats.transfers_done + stats.transfers_failed + stats.transfers_cancelled, 300);
    rig.finish().await;
}
