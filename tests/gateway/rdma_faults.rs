//! Whole gateways under faults and crowds: nothing acknowledged is lost, nothing leaks, it goes on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Method;
use tempfile::TempDir;
use vgwrdma::transfer::EngineConfig;
use vgwrdma::transfer::transport::failing::{FailingEndpoint, Fault, Seen};

use crate::fixture::{Answer, CHUNK, TestGateway, crc64nvme, engine_config, md5_hex, pattern};

type Plan = dyn Fn(&Seen) -> Fault + Send + Sync;

/// A gateway with `chunks` of memory whose operations go as planned.
async fn planned(
    chunks: usize,
    engine: EngineConfig,
    plan: Box<Plan>,
) -> (TestGateway, Arc<FailingEndpoint>) {
    let made = Arc::new(OnceLock::new());
    let slot = Arc::clone(&made);
    let root = TempDir::new().unwrap();
    let wrap = move |inner| {
        let endpoint = Arc::new(FailingEndpoint::new(inner, plan));
        let _ = slot.set(Arc::clone(&endpoint));
        endpoint as Arc<dyn vgwrdma::transfer::transport::Endpoint>
    };
    let gateway = TestGateway::rdma_in(root, chunks, |_| {}, engine, wrap).await;
    (gateway, Arc::clone(made.get().unwrap()))
}

async fn put(gateway: &TestGateway, key: &str, data: &[u8]) -> Answer {
    let descriptor = gateway.memory.register(data);
    gateway.request(Method::PUT, &format!("/bucket/{key}")).token(&descriptor).send().await
}

async fn get(gateway: &TestGateway, key: &str, size: usize) -> (Answer, Vec<u8>) {
    let descriptor = gateway.memory.register(&vec![0; size]);
    let answer = gateway.request(Method::GET, &format!("/bucket/{key}")).token(&descriptor).send().await;
    (answer, gateway.memory.bytes(&descriptor))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_operation_stores_nothing() {
    let plan = |seen: &Seen| if seen.index == 1 { Fault::Short(10) } else { Fault::None };
    let (gateway, _) = planned(8, engine_config(), Box::new(plan)).await;
    gateway.put("key", "old").await.ok();
    let answer = put(&gateway, "key", &pattern(3 * CHUNK, 1)).await;
    answer.fails(503, "ServiceUnavailable");
    assert!(answer.text().contains("IBV_WC_LOC_LEN_ERR"), "{}", answer.text());
    assert_eq!(gateway.get("key").await.ok().text(), "old");
    assert!(gateway.debris().is_empty());
    put(&gateway, "key", &pattern(3 * CHUNK, 1)).await.ok();
}

/// The device goes away under running transfers: they end, GETs are answered over HTTP, PUTs later.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_device_is_survived() {
    let plan = |seen: &Seen| if seen.index == 5 { Fault::DeviceLost } else { Fault::None };
    let (gateway, endpoint) = planned(8, engine_config(), Box::new(plan)).await;
    let data = pattern(40 * CHUNK, 1);
    gateway.put("key", data.clone()).await.ok();
    put(&gateway, "new", &data).await.fails(503, "ServiceUnavailable");
    assert!(!gateway.file("new").exists() && gateway.debris().is_empty());
    gateway.until("the channels are gone", |g| g.stats().channels_open == 0).await;
    let (answer, _) = get(&gateway, "key", data.len()).await;
    assert_eq!(answer.header("x-amz-rdma-reply"), "501");
    assert!(answer.body == data);
    put(&gateway, "new", &data).await.fails(503, "ServiceUnavailable");
    endpoint.restore();
    gateway.until("the channels are back", |g| g.stats().channels_open == 4).await;
    put(&gateway, "new", &data).await.ok();
    let (answer, memory) = get(&gateway, "new", data.len()).await;
    assert_eq!(answer.header("x-amz-rdma-reply"), "200");
    assert!(memory == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_slows_puts_and_answers_gets_in_the_body() {
    let engine = EngineConfig { chunk_wait: Duration::from_millis(30), ..engine_config() };
    let (gateway, endpoint) = planned(2, engine, Box::new(|_| Fault::Hang)).await;
    gateway.put("key", "over http").await.ok();
    let descriptor = gateway.memory.register(&pattern(2 * CHUNK, 1));
    let held = gateway.request(Method::PUT, "/bucket/held").token(&descriptor);
    let held = tokio::spawn(held.send());
    gateway.until("the pool is empty", |g| g.stats().chunks_free == 0).await;
    put(&gateway, "key", b"data").await.fails(503, "SlowDown");
    let (answer, _) = get(&gateway, "key", 100).await;
    assert_eq!((answer.header("x-amz-rdma-reply"), answer.text().as_str()), ("501", "over http"));
    endpoint.release();
    held.await.unwrap().ok();
    assert!(std::fs::read(gateway.file("held")).unwrap() == pattern(2 * CHUNK, 1));
}

/// All of them are served, with memory for a few at a time.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_on_eight_chunks() {
    let (gateway, _) = planned(8, engine_config(), Box::new(|_| Fault::None)).await;
    let gateway = &gateway;
    let clients = (0..200).map(|i| async move {
        let data = pattern(CHUNK * (i % 4) + 1 + i, i as u8);
        let key = format!("key-{i}");
        put(gateway, &key, &data).await.ok();
        let (answer, memory) = get(gateway, &key, data.len()).await;
        assert_eq!(answer.header("x-amz-rdma-reply"), "200", "{}", answer.text());
        assert!(memory == data);
    });
    futures_util::future::join_all(clients).await;
    let bytes = gateway.bytes();
    assert_eq!((bytes.http_in, bytes.http_out), (0, 0));
    assert!(gateway.stats().chunk_waits > 0, "nobody had to wait: the test tests nothing");
}

/// 32 writers of one key over both carriers, and readers over both: whatever is seen is one of the
/// bodies, whole, with its own ETag and checksum.
#[tokio::test(flavor = "multi_thread")]
async fn one_key_by_many_writers_over_both_carriers() {
    let (gateway, _) = planned(8, engine_config(), Box::new(|_| Fault::None)).await;
    let bodies: Vec<Vec<u8>> = (0..32).map(|i| pattern(2 * CHUNK + 1000 * i, i as u8)).collect();
    let by_etag: HashMap<String, &Vec<u8>> =
        bodies.iter().map(|b| (format!("\"{}\"", md5_hex(b)), b)).collect();
    gateway.put("key", bodies[0].clone()).await.ok();
    let done = AtomicBool::new(false);
    let write = async {
        let writers = bodies.iter().enumerate().map(|(i, body)| {
            let gateway = &gateway;
            async move {
                let answer = match i % 2 {
                    0 => put(gateway, "key", body).await,
                    _ => gateway.put("key", body.clone()).await,
                };
                assert_eq!(answer.ok().header("etag"), format!("\"{}\"", md5_hex(body)));
            }
        });
        futures_util::future::join_all(writers).await;
        done.store(true, Ordering::SeqCst);
    };
    let largest = bodies.last().map_or(0, Vec::len);
    let read = async {
        let mut seen = 0;
        while !done.load(Ordering::SeqCst) || seen == 0 {
            let over_http = gateway.get("key").await.ok();
            assert!(by_etag.get(over_http.header("etag")) == Some(&&over_http.body.to_vec()));
            let (answer, memory) = get(&gateway, "key", largest).await;
            let body = by_etag[answer.ok().header("etag")];
            assert!(memory[..body.len()] == body[..]);
            seen += 1;
        }
    };
    futures_util::future::join(write, read).await;
    let last = gateway.head("key").await.ok();
    let body = by_etag[last.header("etag")];
    assert!(std::fs::read(gateway.file("key")).unwrap() == *body);
    let (answer, _) = get(&gateway, "key", largest).await;
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), crc64nvme(body));
    assert!(gateway.debris().is_empty());
}
