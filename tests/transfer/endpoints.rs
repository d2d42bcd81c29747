//! Several endpoints: which one serves a transfer, and what happens when one fails.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use vgwrdma::rdma::{Descriptor, WcStatus};
use vgwrdma::transfer::transport::failing::{FailingEndpoint, Fault, Seen};
use vgwrdma::transfer::transport::memory::{MemoryConfig, MemoryEndpoint, RemoteMemory, leases};
use vgwrdma::transfer::{Engine, EngineConfig, RemoteWindow, StartError};

use crate::rig::{CHUNK, Fabric, InOrder, InProcess, Rig, VecSink, config, pattern, whole};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn rails(addresses: &[&str]) -> InProcess {
    let endpoint = |a: &&str| MemoryConfig {
        name: (*a).to_owned(),
        address: Some(address(a)),
        ..MemoryConfig::default()
    };
    InProcess::new(addresses.iter().map(endpoint).collect())
}

/// A window of a client with this GID.
fn window_of(fabric: &impl Fabric, client: &str, hint: Option<&str>) -> RemoteWindow {
    let mut descriptor: Descriptor = *fabric.offer(&[7; 100]);
    descriptor.gid = Descriptor::gid_of(address(client));
    RemoteWindow { endpoint_hint: hint.map(address), ..whole(&Arc::new(descriptor)) }
}

/// Which endpoint serves the client, `times` in a row.
async fn served<F: Fabric>(
    rig: &Rig<F>,
    client: &str,
    hint: Option<&str>,
    times: usize,
) -> HashMap<String, usize> {
    let mut served = HashMap::new();
    for _ in 0..times {
        let window = window_of(&rig.fabric, client, hint);
        let (report, ()) = rig.engine.pull(window, VecSink::new(100), ()).await.unwrap();
        *served.entry(report.endpoint.to_string()).or_default() += 1;
    }
    served
}

fn only(name: &str, times: usize) -> HashMap<String, usize> {
    HashMap::from([(name.to_owned(), times)])
}

#[tokio::test]
async fn the_clients_subnet_comes_first_then_the_hint_then_turns() {
    let rig = Rig::new(rails(&["10.9.1.1", "10.9.2.1", "10.9.2.2", "fd00:1::1"]), config(), 4);
    assert_eq!(served(&rig, "10.9.1.77", None, 4).await, only("10.9.1.1", 4));
    // The subnet beats the hint.
    assert_eq!(served(&rig, "10.9.1.77", Some("10.9.2.1"), 4).await, only("10.9.1.1", 4));
    // Two endpoints in the subnet: the hint decides, without one they take turns.
    assert_eq!(served(&rig, "10.9.2.77", Some("10.9.2.2"), 4).await, only("10.9.2.2", 4));
    let turns = served(&rig, "10.9.2.77", None, 4).await;
    assert_eq!(turns, HashMap::from([("10.9.2.1".into(), 2), ("10.9.2.2".into(), 2)]));
    // A hint that is no endpoint of the subnet says nothing.
    assert_eq!(served(&rig, "10.9.2.77", Some("10.9.1.1"), 4).await, turns);
    // No subnet: the hint, in its IPv4-mapped form too.
    assert_eq!(served(&rig, "192.0.2.5", Some("10.9.1.1"), 4).await, only("10.9.1.1", 4));
    assert_eq!(served(&rig, "192.0.2.5", Some("::ffff:10.9.2.2"), 4).await, only("10.9.2.2", 4));
    // Neither: all in turn.
    assert_eq!(served(&rig, "192.0.2.5", None, 8).await.len(), 4);
    // IPv6 has its own subnets.
    assert_eq!(served(&rig, "fd00:1::77", None, 4).await, only("fd00:1::1", 4));
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_move_to_another_endpoint_when_theirs_is_lost() {
    let (fabric, endpoints) = rails(&["10.9.1.1", "10.9.2.1"]).failing(|_| Fault::None);
    let rig = Rig::new(fabric, EngineConfig { depth: 8, ..config() }, 16);
    let bytes = pattern(200 * CHUNK, 1);
    for round in 0..6 {
        let descriptor = rig.fabric.offer(&bytes);
        let hint = Some(address(["10.9.1.1", "10.9.2.1"][round % 2]));
        let window = RemoteWindow { endpoint_hint: hint, ..whole(&descriptor) };
        let lost = &endpoints[round % 2];
        let before = rig.engine.stats().operations_done;
        let lose = async {
            while rig.engine.stats().operations_done < before + 20 {
                tokio::task::yield_now().await;
            }
            lost.lose();
        };
        let pull = rig.engine.pull(window, VecSink::new(bytes.len()), InOrder::default());
        let (outcome, ()) = tokio::join!(pull, lose);
        let (report, seen) = outcome.unwrap();
        assert!(seen.0 == bytes);
        assert_eq!(&*report.endpoint, ["10.9.1.1", "10.9.2.1"][round % 2]);
        let stats = rig.engine.stats();
        assert_eq!((stats.chunks_lost, stats.transfers_failed), (0, 0));
        // Its clients are served by the other one while it is away.
        assert!(served(&rig, "192.0.2.5", Some(&report.endpoint), 3).await.len() == 1);
        lost.restore();
        while rig.engine.stats().channels_open < 8 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    rig.finish().await;
}

/// An endpoint whose device fails every operation is passed over for a while.
#[tokio::test]
async fn an_endpoint_that_fails_by_itself_is_passed_over() {
    for (pause, asked_again) in [(Duration::from_secs(600), false), (Duration::from_millis(1), true)] {
        let memory = RemoteMemory::new();
        let make = |name: &str| {
            let config = MemoryConfig { name: name.into(), address: None, ..MemoryConfig::default() };
            Arc::new(MemoryEndpoint::new(memory.clone(), config))
        };
        let broken = |seen: &Seen| match seen.index {
            0..8 => Fault::Status(WcStatus::LOC_PROT_ERR),
            _ => Fault::None,
        };
        let bad = Arc::new(FailingEndpoint::new(make("bad"), broken));
        let config = EngineConfig { endpoint_retry: pause, ..config() };
        let leases = leases(4, config.chunk_size).unwrap();
        let engine = Engine::start(config, vec![bad, make("good")], leases).unwrap();
        let window = whole(&Arc::new(memory.register(&[1; 100])));
        let mut failed = 0;
        while engine.stats().endpoints[0].outages == 0 {
            match engine.pull(window.clone(), VecSink::new(100), ()).await {
                Ok((report, ())) => assert_eq!(&*report.endpoint, "good"),
                Err(_) => failed += 1,
            }
        }
        assert_eq!(failed, 8);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut served_by_bad = 0;
        for _ in 0..10 {
            let (report, ()) = engine.pull(window.clone(), VecSink::new(100), ()).await.unwrap();
            served_by_bad += usize::from(&*report.endpoint == "bad");
        }
        assert_eq!(served_by_bad, if asked_again { 5 } else { 0 });
        assert_eq!(engine.stats().unrest(), None);
    }
}

#[tokio::test]
async fn a_start_needs_endpoints_channels_and_memory() {
    let fabric = InProcess::inline();
    let start = |config, endpoints, leases| Engine::start(config, endpoints, leases).unwrap_err();
    let bad = EngineConfig { lanes: 0, ..config() };
    assert!(matches!(start(bad, fabric.endpoints(), fabric.leases(1, CHUNK)), StartError::Config(_)));
    assert!(matches!(start(config(), vec![], fabric.leases(1, CHUNK)), StartError::NoEndpoint));
    assert!(matches!(start(config(), fabric.endpoints(), vec![]), StartError::NoMemory { .. }));
    let small = fabric.leases(2, CHUNK / 2);
    assert!(matches!(start(config(), fabric.endpoints(), small), StartError::NoMemory { .. }));
    let (lost, endpoints) = InProcess::inline().failing(|_| Fault::None);
    endpoints[0].lose();
    let error = start(config(), lost.endpoints(), lost.leases(1, CHUNK));
    assert!(matches!(error, StartError::NoChannel { .. }), "{error}");
}

/// Fewer channels than asked for are shared out, and one endpoint of two is enough for a start.
#[tokio::test]
async fn a_start_with_less_than_asked_for() {
    let few = InProcess::new(vec![MemoryConfig { channels: 3, ..MemoryConfig::default() }]);
    let rig = Rig::new(few, EngineConfig { endpoint_retry: Duration::from_secs(60), ..config() }, 4);
    assert_eq!(rig.engine.stats().channels_open, 3);
    let window = whole(&rig.fabric.offer(&[1; 100]));
    rig.engine.pull(window, VecSink::new(100), ()).await.unwrap();
    rig.finish().await;

    let (two, endpoints) = rails(&["10.9.1.1", "10.9.2.1"]).failing(|_| Fault::None);
    endpoints[0].lose();
    let leases = two.leases(4, CHUNK);
    let engine = Engine::start(config(), two.endpoints(), leases).unwrap();
    let window = window_of(&two, "10.9.1.5", None);
    let (report, ()) = engine.pull(window.clone(), VecSink::new(100), ()).await.unwrap();
    assert_eq!(&*report.endpoint, "10.9.2.1");
    endpoints[0].restore();
    while engine.stats().channels_open < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (report, ()) = engine.pull(window, VecSink::new(100), ()).await.unwrap();
    assert_eq!(&*report.endpoint, "10.9.1.1");
    tokio::task::spawn_blocking(move || drop(engine)).await.unwrap();
    assert_eq!(two.open_channels(), Some(0));
}
