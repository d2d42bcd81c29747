//! SIGKILL at random points under mixed load.
//!
//! Workers put, overwrite, copy, tag, delete and upload in parts, over HTTP and RDMA, until the
//! gateway is killed. After it was started again, each key holds what was acknowledged last, or what
//! the one request wanted that was never answered; bytes, ETag and metadata belong together; uploads
//! go on where they were; and after the sweep nothing temporary is left.
//!
//! `VGWRDMA_CRASH_KILLS` says how often (a few by default), `VGWRDMA_CRASH_SEED` repeats a run's choices.

mod versioned;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::Method;

use crate::client::{Call, S3};
use crate::content::Random;
use crate::process::{GatewayProcess, Start};
use crate::tree::{debris, objects};
use versioned::VersionedWorker;
pub(crate) use worker::coherent;
use worker::{BUCKET, Kind, State, Worker, look};

/// Keys that all workers write to, and none deletes.
const SHARED: [&str; 3] = ["shared/a", "shared/b", "shared/deep/c"];
/// Ways to write that leave the same behind.
const FLAGS: [&[&str]; 4] = [
    &["--durability", "full"],
    &["--durability", "none"],
    &["--durability", "none", "--disableotmp"],
    &["--durability", "none", "--disable-copy-file-range"],
];

#[test]
fn nothing_acknowledged_is_lost() {
    let kills = std::env::var("VGWRDMA_CRASH_KILLS").map_or(6, |n| n.parse().unwrap());
    let seed = std::env::var("VGWRDMA_CRASH_SEED")
        .unwrap_or_else(|_| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos().to_string());
    eprintln!("{kills} kills; repeat with VGWRDMA_CRASH_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(kills, &seed));
}

async fn run(kills: usize, seed: &str) {
    let home = tempfile::tempdir().unwrap();
    let (root, versions) = (home.path().join("root"), home.path().join("versions"));
    for dir in [&root, &versions] {
        std::fs::create_dir(dir).unwrap();
    }
    let mut random = Random::new(seed);
    let mut workers: Vec<Worker> = (0..3).map(|n| Worker::new(n, seed)).collect();
    let mut versioned = VersionedWorker::new(seed);
    let mut shared_written = [false; SHARED.len()];
    for kill in 0..=kills {
        let gateway = start(home.path(), &root, &versions, FLAGS[random.below(FLAGS.len())]);
        let s3 = S3::new(&gateway.address);
        if kill == 0 {
            prepare(&s3).await;
        } else if kill < kills && random.one_in(6) {
            // In the middle of starting up, or of the sweep.
            tokio::time::sleep(Duration::from_millis(random.below(30) as u64)).await;
            gateway.kill();
            continue;
        }
        for worker in &mut workers {
            worker.verify(&s3).await;
        }
        versioned.verify(&s3).await;
        for (key, written) in SHARED.iter().zip(&mut shared_written) {
            *written |= workers.iter_mut().any(|worker| worker.acknowledged(key));
            let found = look(&s3, key, &mut random).await;
            assert!(!*written || found != State::Absent, "{key} was acknowledged and is gone");
        }
        check_listing(&s3, &root, &workers, &mut random).await;
        check_debris(&root, &versions).await;
        assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
        if kill == kills {
            gateway.stop();
            break;
        }
        let pause = Duration::from_millis(50 + random.below(900) as u64);
        let load = async {
            let workers = workers.iter_mut().map(|worker| worker.run(&s3, &SHARED));
            tokio::join!(futures_util::future::join_all(workers), versioned.run(&s3))
        };
        let killer = async {
            tokio::time::sleep(pause).await;
            gateway.kill();
        };
        tokio::join!(load, killer);
    }
    let count = |kind| workers.iter().map(|worker| worker.count(kind)).sum::<usize>();
    let counts = BTreeMap::from(Kind::ALL.map(|kind| (format!("{kind:?}"), count(kind))));
    eprintln!("acknowledged: {counts:?}, versions {}", versioned.acknowledged());
}

fn start(home: &Path, root: &Path, versions: &Path, flags: &[&str]) -> GatewayProcess {
    let versions = versions.to_str().unwrap();
    let flags = [flags, &["--sweep-after", "1", "--versioning-dir", versions]].concat();
    let log = home.join("gateway.log");
    Start { root, flags: &flags, log: &log, wrapper: &[], environment: &[] }.run()
}

async fn prepare(s3: &S3) {
    for bucket in [BUCKET, versioned::BUCKET] {
        s3.send(Call::new(Method::PUT, &format!("/{bucket}"))).await.unwrap().ok();
    }
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let path = format!("/{}?versioning=", versioned::BUCKET);
    s3.send(Call::new(Method::PUT, &path).body(enabled)).await.unwrap().ok();
}

/// What is listed is what is there: no helper's name, nothing half done.
async fn check_listing(s3: &S3, root: &Path, workers: &[Worker], random: &mut Random) {
    let mut expected: Vec<String> = workers.iter().flat_map(Worker::present).collect();
    for key in SHARED {
        if look(s3, key, random).await != State::Absent {
            expected.push(key.to_owned());
        }
    }
    expected.sort();
    let path = format!("/{BUCKET}?list-type=2");
    let listed = s3.send(Call::new(Method::GET, &path)).await.unwrap().ok();
    assert_eq!(listed.elements("Key"), expected);
    assert_eq!(objects(&root.join(BUCKET)), expected);
    let etags = workers.iter().flat_map(Worker::etags).collect::<BTreeMap<_, _>>();
    for (key, etag) in listed.elements("Key").iter().zip(listed.elements("ETag")) {
        assert!(etags.get(key).is_none_or(|expected| *expected == etag), "{key}: {etag}");
    }
}

/// The sweep comes every second here, and takes what is a second old.
async fn check_debris(root: &Path, versions: &Path) {
    let mut left = Vec::new();
    for _ in 0..400 {
        let places = [root.to_owned(), root.join(BUCKET), root.join(versioned::BUCKET)];
        left = places.iter().flat_map(|place| debris(place)).collect();
        left.extend(debris(&versions.join(versioned::BUCKET)));
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never swept: {left:?}");
}
