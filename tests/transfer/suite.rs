//! What every transport must do: one suite, run over each fabric.

use std::sync::Arc;

use vgwrdma::digest::{Algorithm, Digester};
use vgwrdma::rdma::WcStatus;
use vgwrdma::transfer::{RemoteWindow, Side, TransferError};

use crate::rig::{CHUNK, Fabric, InOrder, Rig, VecSink, VecSource, config, pattern, whole};

/// Sizes around everything that could matter: pages, chunks, the depth of a transfer.
const SIZES: [usize; 12] =
    [1, 2, 511, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 4 * CHUNK, 7 * CHUNK + 13, 40 * CHUNK - 1];

async fn pull_moves_every_size(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 8);
    for (seed, size) in SIZES.into_iter().enumerate() {
        let bytes = pattern(size, seed as u64);
        let descriptor = rig.fabric.offer(&bytes);
        let sink = VecSink::new(size);
        let (report, seen) =
            rig.engine.pull(whole(&descriptor), Arc::clone(&sink), InOrder::default()).await.unwrap();
        assert_eq!((report.bytes, report.operations), (size as u64, size.div_ceil(CHUNK) as u64));
        assert!(sink.take() == bytes, "{size} bytes differ in the sink");
        assert!(seen.0 == bytes, "{size} bytes differ in the digest");
        rig.assert_at_rest();
    }
    let stats = rig.engine.stats();
    assert_eq!((stats.bytes_read, stats.bytes_written), (SIZES.iter().sum::<usize>() as u64, 0));
    assert_eq!(stats.transfers_done, SIZES.len() as u64);
    rig.finish().await;
}

async fn push_moves_every_size(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 8);
    for (seed, size) in SIZES.into_iter().enumerate() {
        for offset in [0, 1, 4096, 5000] {
            let bytes = pattern(size + offset + 3, seed as u64);
            let descriptor = rig.fabric.offer(&vec![0; size]);
            let source = VecSource::new(bytes);
            let report =
                rig.engine.push(whole(&descriptor), Arc::clone(&source), offset as u64).await.unwrap();
            assert_eq!(report.bytes, size as u64);
            let source = Arc::into_inner(source).expect("the engine has let the source go");
            let same = rig.fabric.bytes(&descriptor) == source.bytes[offset..offset + size];
            assert!(same, "{size} bytes from {offset} differ");
            rig.assert_at_rest();
        }
    }
    rig.finish().await;
}

async fn a_part_of_a_window_is_moved_and_nothing_beside_it(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 8);
    let size = 5 * CHUNK;
    let (before, length) = (777, 3 * CHUNK + 99);
    let bytes = pattern(size, 1);
    let part = |descriptor: &Arc<_>| RemoteWindow {
        start: whole(descriptor).start + before as u64,
        length: length as u64,
        ..whole(descriptor)
    };
    let descriptor = rig.fabric.offer(&bytes);
    let sink = VecSink::new(length);
    rig.engine.pull(part(&descriptor), Arc::clone(&sink), ()).await.unwrap();
    assert!(sink.take() == bytes[before..before + length]);

    let descriptor = rig.fabric.offer(&bytes);
    let other = pattern(length, 2);
    rig.engine.push(part(&descriptor), VecSource::new(other.clone()), 0).await.unwrap();
    let now = rig.fabric.bytes(&descriptor);
    assert!(now[..before] == bytes[..before]);
    assert!(now[before..before + length] == other);
    assert!(now[before + length..] == bytes[before + length..]);
    rig.assert_at_rest();
    rig.finish().await;
}

async fn no_bytes_need_no_operation(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 1);
    let descriptor = rig.fabric.offer(b"x");
    let nothing = RemoteWindow { length: 0, ..whole(&descriptor) };
    let sink = VecSink::new(0);
    let digester = Digester::new(true, [Algorithm::Crc32]);
    let (report, digester) = rig.engine.pull(nothing.clone(), Arc::clone(&sink), digester).await.unwrap();
    assert_eq!((report.bytes, report.operations, sink.take().len()), (0, 0, 0));
    assert_eq!(digester.finish().md5_hex().unwrap(), "d41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(rig.engine.push(nothing, VecSource::new(vec![]), 9).await.unwrap().bytes, 0);
    assert_eq!(rig.engine.stats().operations_done, 0);
    rig.assert_at_rest();
    rig.finish().await;
}

async fn a_range_outside_the_window_is_refused_before_any_operation(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 1);
    let descriptor = rig.fabric.offer(&[0; 100]);
    for (start, length) in [(0, 101), (1, 100), (100, 1), (0, u64::MAX)] {
        let window = RemoteWindow { start: descriptor.address + start, length, ..whole(&descriptor) };
        let error = rig.engine.pull(window.clone(), VecSink::new(0), ()).await.unwrap_err();
        assert!(matches!(error, TransferError::Window(_)), "{error}");
        assert_eq!(error.side(), Side::Client);
        let error = rig.engine.push(window, VecSource::new(vec![0; 200]), 0).await.unwrap_err();
        assert!(matches!(error, TransferError::Window(_)), "{error}");
    }
    let below = RemoteWindow { start: descriptor.address - 1, length: 10, ..whole(&descriptor) };
    assert!(rig.engine.pull(below, VecSink::new(0), ()).await.is_err());
    assert_eq!(rig.engine.stats().operations_done, 0);
    rig.finish().await;
}

async fn memory_that_is_gone_blames_the_client_and_harms_nobody_else(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 8);
    for round in 0..5 {
        let size = 10 * CHUNK;
        let bytes = pattern(size, round);
        let (gone, good) = (rig.fabric.offer(&bytes), rig.fabric.offer(&bytes));
        rig.fabric.withdraw(&gone);
        let sink = VecSink::new(size);
        let (bad, fine) = tokio::join!(
            rig.engine.pull(whole(&gone), VecSink::new(size), InOrder::default()),
            rig.engine.pull(whole(&good), Arc::clone(&sink), InOrder::default()),
        );
        let Err(error) = bad else { panic!("memory that is gone was read") };
        assert_eq!(error.status(), Some(WcStatus::REM_ACCESS_ERR), "{error}");
        assert_eq!(error.side(), Side::Client);
        assert!(fine.unwrap().1.0 == bytes);
        assert!(sink.take() == bytes);
        let error = rig.engine.push(whole(&gone), VecSource::new(bytes), 0).await.unwrap_err();
        assert_eq!(error.side(), Side::Client);
        rig.assert_at_rest();
    }
    rig.finish().await;
}

/// The digest's value is that of the bytes in order, whichever order the pieces took.
async fn digests_are_those_of_the_bytes(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 8);
    let bytes = pattern(60 * CHUNK + 7, 3);
    let mut expected = Digester::new(true, Algorithm::ALL);
    expected.update(&bytes);
    let expected = expected.finish();
    let descriptor = rig.fabric.offer(&bytes);
    let (_, digester) = rig
        .engine
        .pull(whole(&descriptor), VecSink::new(bytes.len()), Digester::new(true, Algorithm::ALL))
        .await
        .unwrap();
    assert_eq!(digester.finish(), expected);
    rig.assert_at_rest();
    rig.finish().await;
}

async fn many_transfers_share_few_chunks(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 8);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..200_u64 {
        let size = [100, CHUNK, 3 * CHUNK + 1, 9 * CHUNK][i as usize % 4];
        let bytes = pattern(size, i);
        let engine = Arc::clone(&rig.engine);
        if i % 2 == 0 {
            let window = whole(&rig.fabric.offer(&bytes));
            tasks.spawn(async move {
                let sink = VecSink::new(size);
                let (_, seen) = engine.pull(window, Arc::clone(&sink), InOrder::default()).await.unwrap();
                assert!(seen.0 == bytes && sink.take() == bytes);
                None
            });
        } else {
            let descriptor = rig.fabric.offer(&vec![0; size]);
            tasks.spawn(async move {
                let source = VecSource::new(bytes.clone());
                engine.push(whole(&descriptor), source, 0).await.unwrap();
                Some((descriptor, bytes))
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        if let Some((descriptor, bytes)) = done.unwrap() {
            assert!(rig.fabric.bytes(&descriptor) == bytes);
        }
    }
    let stats = rig.engine.stats();
    assert_eq!((stats.transfers_done, stats.transfers_failed), (200, 0));
    rig.assert_at_rest();
    rig.finish().await;
}

async fn one_chunk_is_enough(fabric: impl Fabric) {
    let rig = Rig::new(fabric, config(), 1);
    let bytes = pattern(20 * CHUNK + 5, 9);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (engine, window, bytes) =
            (Arc::clone(&rig.engine), whole(&rig.fabric.offer(&bytes)), bytes.clone());
        tasks.spawn(async move {
            let (_, seen) = engine.pull(window, VecSink::new(bytes.len()), InOrder::default()).await.unwrap();
            assert!(seen.0 == bytes);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    rig.assert_at_rest();
    rig.finish().await;
}

/// Makes the suite's tests for one fabric.
macro_rules! suite {
    ($(#[$when:meta])? $module:ident, $fabric:expr; $($test:ident)*) => {
        $(#[$when])?
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($fabric).await;
                }
            )*
        }
    };
    ($($(#[$when:meta])? $module:ident: $fabric:expr;)*) => {
        $(suite! { $(#[$when])? $module, $fabric;
            pull_moves_every_size
            push_moves_every_size
            a_part_of_a_window_is_moved_and_nothing_beside_it
            no_bytes_need_no_operation
            a_range_outside_the_window_is_refused_before_any_operation
            memory_that_is_gone_blames_the_client_and_harms_nobody_else
            digests_are_those_of_the_bytes
            many_transfers_share_few_chunks
            one_chunk_is_enough
        })*
    };
}

suite! {
    inline: crate::rig::InProcess::inline();
    threaded: crate::rig::InProcess::threaded(std::time::Duration::ZERO);
    late_completions: crate::rig::InProcess::threaded(std::time::Duration::from_micros(300));
    failing_without_fault: crate::rig::InProcess::without_fault();
    #[cfg(feature = "client")]
    cuobject: crate::cuobj::CuObject::new();
}
