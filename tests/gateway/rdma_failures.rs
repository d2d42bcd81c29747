//! Transfers that fail, wait, or lose their client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use test_case::test_case;
use vgwrdma::rdma::WcStatus;
use vgwrdma::transfer::EngineConfig;
use vgwrdma::transfer::transport::failing::{FailingEndpoint, Fault};

use crate::fixture::{CHUNK, TestGateway, engine_config, pattern};

/// A gateway whose operations suffer `fault` while the switch is on.
async fn failing(
    fault: Fault,
) -> (TestGateway, Arc<AtomicBool>, Arc<std::sync::OnceLock<Arc<FailingEndpoint>>>) {
    let on = Arc::new(AtomicBool::new(true));
    let made = Arc::new(std::sync::OnceLock::new());
    let (switch, slot) = (Arc::clone(&on), Arc::clone(&made));
    let gateway = TestGateway::rdma_with(
        |_| {},
        engine_config(),
        move |inner| {
            let plan = move |_: &_| if switch.load(Ordering::SeqCst) { fault } else { Fault::None };
            let endpoint = Arc::new(FailingEndpoint::new(inner, plan));
            let _ = slot.set(Arc::clone(&endpoint));
            endpoint
        },
    )
    .await;
    (gateway, on, made)
}

#[test_case(WcStatus::REM_ACCESS_ERR => (400, "InvalidArgument".to_owned()))]
#[test_case(WcStatus::RETRY_EXC_ERR => (503, "ServiceUnavailable".to_owned()))]
#[test_case(WcStatus::LOC_PROT_ERR => (503, "ServiceUnavailable".to_owned()))]
#[tokio::test(flavor = "multi_thread")]
async fn failures_name_their_status(status: WcStatus) -> (u16, String) {
    let (gateway, on, _) = failing(Fault::Status(status)).await;
    gateway.put("key", pattern(3 * CHUNK, 1)).await.ok();
    let descriptor = gateway.memory.register(&vec![0; 3 * CHUNK]);
    let put = gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await;
    let get = gateway.request(Method::GET, "/bucket/key").token(&descriptor).send().await;
    for answer in [&put, &get] {
        assert!(answer.text().contains(status.name()), "{}", answer.text());
        assert_eq!(answer.header("x-amz-rdma-reply"), "");
    }
    assert_eq!(put.error(), get.error());
    assert!(gateway.get("key").await.ok().body == pattern(3 * CHUNK, 1), "the old object stays");
    assert!(gateway.debris().is_empty());
    on.store(false, Ordering::SeqCst);
    gateway.settle().await;
    gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await.ok();
    put.error()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_was_withdrawn_is_the_clients_fault() {
    let gateway = TestGateway::with_rdma().await;
    gateway.put("key", "old").await.ok();
    let descriptor = gateway.memory.register(&pattern(2 * CHUNK, 1));
    gateway.memory.deregister(&descriptor);
    let put = gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await;
    put.fails(400, "InvalidArgument");
    assert!(put.text().contains("IBV_WC_REM_ACCESS_ERR"));
    assert_eq!(gateway.get("key").await.ok().text(), "old");
    gateway.settle().await;
    assert!(gateway.debris().is_empty());
}

#[test_case(Method::PUT)]
#[test_case(Method::GET)]
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_cancels_its_transfer(method: Method) {
    let (gateway, _, endpoint) = failing(Fault::Hang).await;
    let old = pattern(40 * CHUNK, 1);
    gateway.put("key", old.clone()).await.ok();
    let descriptor = gateway.memory.register(&pattern(40 * CHUNK, 2));
    let stream = gateway.request(method, "/bucket/key").token(&descriptor).half_sent(0, b"").await;
    gateway.until("an operation hangs", |g| g.stats().operations_in_flight > 0).await;
    drop(stream);
    gateway.until("the request is given up", |g| g.running().metrics().in_flight() == 0).await;
    endpoint.get().unwrap().release();
    gateway.settle().await;
    assert!(gateway.get("key").await.ok().body == old);
    assert!(gateway.debris().is_empty());
    assert_eq!((gateway.stats().transfers_cancelled, gateway.stats().transfers_done), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_engine_slows_puts_and_answers_gets_in_the_body() {
    let config = EngineConfig { max_transfers: 1, ..engine_config() };
    let made = Arc::new(std::sync::OnceLock::new());
    let (on, slot) = (Arc::new(AtomicBool::new(true)), Arc::clone(&made));
    let switch = Arc::clone(&on);
    let gateway = TestGateway::rdma_with(
        |_| {},
        config,
        move |inner| {
            let plan = move |_: &_| if switch.load(Ordering::SeqCst) { Fault::Hang } else { Fault::None };
            let endpoint = Arc::new(FailingEndpoint::new(inner, plan));
            let _ = slot.set(Arc::clone(&endpoint));
            endpoint
        },
    )
    .await;
    gateway.put("key", "over http").await.ok();
    let descriptor = gateway.memory.register(&pattern(1000, 1));
    let held = gateway.request(Method::PUT, "/bucket/held").token(&descriptor);
    let held = tokio::spawn(held.send());
    gateway.until("an operation hangs", |g| g.stats().operations_in_flight > 0).await;
    gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await.fails(503, "SlowDown");
    let get = gateway.request(Method::GET, "/bucket/key").token(&descriptor).send().await.ok();
    assert_eq!((get.header("x-amz-rdma-reply"), get.text().as_str()), ("501", "over http"));
    on.store(false, Ordering::SeqCst);
    made.get().unwrap().release();
    held.await.unwrap().ok();
    gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await.ok();
}
