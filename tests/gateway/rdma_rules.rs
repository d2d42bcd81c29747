//! What is declined and what is refused before the first RDMA operation.

use http::Method;
use test_case::test_case;

use crate::fixture::{Answer, TestGateway, engine_config, pattern, read_answer};

/// Nothing was stored and nothing moved.
#[track_caller]
fn untouched(gateway: &TestGateway, key: &str) {
    assert!(!gateway.file(key).exists());
    assert!(gateway.debris().is_empty());
    if let Some(engine) = &gateway.engine {
        let stats = engine.stats();
        assert_eq!((stats.operations_done, stats.transfers_failed), (0, 0));
    }
}

#[tokio::test]
async fn without_rdma_a_put_is_declined_and_a_get_answered_in_the_body() {
    let gateway = TestGateway::plain().await;
    let descriptor = gateway.memory.register(b"data");
    for path in ["/bucket/key", "/bucket/key?partNumber=1&uploadId=x"] {
        let put = gateway.request(Method::PUT, path).token(&descriptor).send().await;
        put.fails(501, "NotImplemented");
        assert_eq!(put.header("x-amz-rdma-reply"), "501");
        assert_eq!(put.header("etag"), "");
    }
    untouched(&gateway, "key");
    gateway.put("key", "over http").await.ok();
    let get = gateway.request(Method::GET, "/bucket/key").token(&descriptor).send().await.ok();
    assert_eq!((get.header("x-amz-rdma-reply"), get.header("x-amz-rdma-bytes-transferred")), ("501", ""));
    assert_eq!((get.text(), get.header("content-length")), ("over http".to_owned(), "9"));
    let part = gateway.request(Method::GET, "/bucket/key").token(&descriptor).header("range", "bytes=0-3");
    let part = part.send().await;
    assert_eq!((part.status.as_u16(), part.header("x-amz-rdma-reply")), (206, "501"));
    assert_eq!(part.text(), "over");
    let legacy = gateway
        .request(Method::PUT, "/bucket/legacy")
        .header("x-cuobj-rdma-descr", descriptor.to_string())
        .header("x-cuobj-content-length", "4")
        .header("x-cuobj-remote-buf-start", descriptor.address.to_string());
    legacy.send().await.fails(501, "NotImplemented");
    untouched(&gateway, "legacy");
}

#[tokio::test]
async fn an_unsigned_token_is_refused() {
    let gateway = TestGateway::with_rdma().await;
    let descriptor = gateway.memory.register(b"data");
    let token = descriptor.to_string();
    let refused = |answer: Answer| {
        answer.fails(403, "AccessDenied");
        assert!(answer.text().contains("x-amz-rdma-token"), "{}", answer.text());
    };
    let put = gateway.request(Method::PUT, "/bucket/key");
    refused(put.clone().unsigned_header("x-amz-rdma-token", &token).send().await);
    refused(put.clone().unsigned_header("x-amz-rdma-token", &token).send_presigned().await);
    untouched(&gateway, "key");
    put.clone().token(&descriptor).send_presigned().await.ok();
    gateway.put("other", "x").await.ok();
    let get = gateway.request(Method::GET, "/bucket/other").unsigned_header("x-amz-rdma-token", &token);
    refused(get.send().await);
    assert_eq!(gateway.memory.bytes(&descriptor), b"data");
    // One of the three legacy headers outside the signature is as bad.
    let legacy = put
        .header("x-cuobj-rdma-descr", &token)
        .header("x-cuobj-content-length", "4")
        .unsigned_header("x-cuobj-remote-buf-start", descriptor.address.to_string());
    let answer = legacy.send().await;
    answer.fails(403, "AccessDenied");
    assert!(answer.text().contains("x-cuobj-remote-buf-start"));
}

#[tokio::test]
async fn unsigned_tokens_may_be_allowed() {
    let gateway =
        TestGateway::rdma_with(|c| c.tokens.allow_unsigned = true, engine_config(), |endpoint| endpoint)
            .await;
    let token = gateway.memory.register(b"data").to_string();
    let put = gateway.request(Method::PUT, "/bucket/key").unsigned_header("x-amz-rdma-token", token);
    assert_eq!(put.send().await.ok().header("x-amz-rdma-reply"), "200");
}

#[test_case("", "81"; "empty")]
#[test_case("0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f1", "81"; "short")]
#[test_case("0102030405060708:01020304:0102030g:0102:010203:1:0102030405060708090a0b0c0d0e0f10", "rkey"; "not hexadecimal")]
#[test_case("0x02030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10", "address"; "prefix")]
#[test_case("+102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10", "address"; "sign")]
#[test_case("0102030405060708:01020304:01020304:0102:010203:2:0102030405060708090a0b0c0d0e0f10", "GID flag"; "flag")]
#[test_case("fffffffffffffff0:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10", "address space"; "wraps")]
#[test_case("0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10:1", "suffix"; "half a suffix")]
#[test_case("0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10:1:1", "window"; "suffix outside")]
#[test_case("AQIDBAUGBwg6MDEwMjAzMDQ6MDEwMjAzMDQ6MDEwMjowMTAyMDM6MTowMTAy", "81"; "base64")]
#[tokio::test]
async fn malformed_tokens_are_named_and_not_repeated(token: &str, names: &str) {
    let gateway = TestGateway::with_rdma().await;
    gateway.put("there", "x").await.ok();
    for (method, path) in [(Method::PUT, "/bucket/key"), (Method::GET, "/bucket/there")] {
        let answer = gateway.request(method, path).header("x-amz-rdma-token", token).send().await;
        answer.fails(400, "InvalidArgument");
        let message = answer.element("Message").unwrap();
        assert!(message.starts_with("x-amz-rdma-token: ") && message.contains(names), "{message}");
        assert!(token.is_empty() || !message.contains(token), "{message}");
    }
    untouched(&gateway, "key");
    // Only those who are let in learn what is wrong with a token.
    let anonymous = gateway.request(Method::PUT, "/bucket/key").header("x-amz-rdma-token", token).anonymous();
    anonymous.send().await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn a_token_twice_is_refused() {
    let gateway = TestGateway::with_rdma().await;
    let descriptor = gateway.memory.register(b"data");
    let put = gateway.request(Method::PUT, "/bucket/key").token(&descriptor).token(&descriptor);
    put.send().await.fails(400, "InvalidArgument");
    untouched(&gateway, "key");
}

#[test_case("rc:00112233445566778899aabbccddeeff:0000000000001000:00000004:00000001"; "another transport by name")]
#[test_case(&"0a".repeat(44); "another transport by form")]
#[tokio::test]
async fn tokens_of_other_transports_are_declined(token: &str) {
    let gateway = TestGateway::with_rdma().await;
    let put = gateway.request(Method::PUT, "/bucket/key").header("x-amz-rdma-token", token).send().await;
    put.fails(501, "NotImplemented");
    assert_eq!(put.header("x-amz-rdma-reply"), "501");
    untouched(&gateway, "key");
    gateway.put("key", "x").await.ok();
    let get = gateway.request(Method::GET, "/bucket/key").header("x-amz-rdma-token", token).send().await.ok();
    assert_eq!((get.header("x-amz-rdma-reply"), get.text().as_str()), ("501", "x"));
}

#[test_case(true; "with RDMA")]
#[test_case(false; "without RDMA")]
#[tokio::test]
async fn a_body_beside_the_token_ends_the_connection(rdma: bool) {
    let gateway = if rdma { TestGateway::with_rdma().await } else { TestGateway::plain().await };
    let descriptor = gateway.memory.register(b"data");
    let put = gateway.request(Method::PUT, "/bucket/key").token(&descriptor);
    let answer = put.clone().body("data").send().await;
    answer.fails(400, "InvalidRequest");
    assert_eq!(answer.header("connection"), "close");
    put.clone().without_length().body("data").send().await.fails(400, "InvalidRequest");
    // A client that only believes to have a body of that length is not waited for.
    let mut stream = put.half_sent(4, b"").await;
    let text = read_answer(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 400") && text.contains("connection: close"), "{text}");
    let mut rest = Vec::new();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
    tokio::time::timeout(std::time::Duration::from_secs(5), end).await.expect("still open").ok();
    untouched(&gateway, "key");
}

#[tokio::test]
async fn an_object_larger_than_the_window_is_not_begun() {
    let gateway = TestGateway::with_rdma().await;
    gateway.put("key", pattern(1000, 1)).await.ok();
    let descriptor = gateway.memory.register(&[0xee; 999]);
    let get = gateway.request(Method::GET, "/bucket/key").token(&descriptor);
    let answer = get.clone().send().await;
    answer.fails(400, "InvalidArgument");
    assert!(answer.text().contains("1000") && answer.text().contains("999"), "{}", answer.text());
    assert_eq!(gateway.memory.bytes(&descriptor), [0xee; 999]);
    assert_eq!(get.header("range", "bytes=1-").send().await.status, 206);
}

#[tokio::test]
async fn preconditions_come_before_the_first_operation() {
    let gateway = TestGateway::with_rdma().await;
    gateway.put("key", "old").await.ok();
    let descriptor = gateway.memory.register(b"data");
    let put = |path: &str| gateway.request(Method::PUT, path).token(&descriptor);
    let get = |path: &str| gateway.request(Method::GET, path).token(&descriptor);
    put("/bucket/key").header("if-none-match", "*").send().await.fails(412, "PreconditionFailed");
    put("/bucket/key").header("if-match", "\"no\"").send().await.fails(412, "PreconditionFailed");
    put("/no-such-bucket/key").send().await.fails(404, "NoSuchBucket");
    put("/bucket/key/below").send().await.fails(409, "InvalidRequest");
    put("/bucket/a//b").send().await.fails(400, "InvalidArgument");
    put("/bucket/key")
        .header("x-amz-server-side-encryption", "AES256")
        .send()
        .await
        .fails(501, "NotImplemented");
    get("/bucket/missing").send().await.fails(404, "NoSuchKey");
    get("/bucket/key").header("if-match", "\"no\"").send().await.fails(412, "PreconditionFailed");
    assert_eq!(get("/bucket/key").header("if-none-match", "*").send().await.status, 304);
    get("/bucket/key").header("range", "bytes=9-").send().await.fails(416, "InvalidRange");
    let stats = gateway.engine.as_ref().unwrap().stats();
    assert_eq!((stats.operations_done, stats.transfers_failed), (0, 0));
    assert_eq!(gateway.get("key").await.ok().text(), "old");
    assert_eq!(gateway.memory.bytes(&descriptor), b"data");
}

#[tokio::test]
async fn where_tokens_may_point() {
    let start = |allow: &str, match_peer: bool| {
        let allow = allow.parse().unwrap();
        TestGateway::rdma_with(
            move |c| {
                c.tokens.allow = vec![allow];
                c.tokens.match_peer = match_peer;
            },
            engine_config(),
            |endpoint| endpoint,
        )
    };
    let put = async |gateway: &TestGateway, peer: [u8; 4]| {
        let mut descriptor = gateway.memory.register(b"data");
        descriptor.gid = vgwrdma::rdma::Descriptor::gid_of(peer.into());
        gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await
    };
    let gateway = start("127.0.0.0/8", true).await;
    put(&gateway, [127, 0, 0, 1]).await.ok();
    put(&gateway, [127, 0, 0, 2]).await.fails(403, "AccessDenied");
    put(&gateway, [10, 0, 0, 1]).await.fails(403, "AccessDenied");
    let gateway = start("10.0.0.0/8", false).await;
    put(&gateway, [10, 0, 0, 1]).await.ok();
    put(&gateway, [127, 0, 0, 1]).await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn a_read_only_gateway_reads_no_client_memory() {
    let gateway =
        TestGateway::rdma_with(|c| c.store.read_only = true, engine_config(), |endpoint| endpoint).await;
    let descriptor = gateway.memory.register(b"data");
    gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await.fails(403, "AccessDenied");
    untouched(&gateway, "key");
}

#[tokio::test]
async fn other_operations_take_no_notice_of_tokens() {
    let gateway = TestGateway::with_rdma().await;
    let nonsense =
        |method: Method, path: &str| gateway.request(method, path).header("x-amz-rdma-token", "nonsense");
    nonsense(Method::GET, "/bucket?list-type=2").send().await.ok();
    nonsense(Method::PUT, "/another-bucket").send().await.ok();
    nonsense(Method::DELETE, "/bucket/key").send().await.ok();
    assert_eq!(nonsense(Method::HEAD, "/bucket/key").send().await.status, 404);
}
