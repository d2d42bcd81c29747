//! Bodies by RDMA: the same objects whichever carrier brings or takes them.

use http::Method;
use test_case::test_case;
use vgwrdma::rdma::Descriptor;

use crate::fixture::{Answer, CHUNK, TestGateway, crc64nvme, md5_hex, pattern};

/// A PUT of `data` by RDMA.
async fn put(gateway: &TestGateway, key: &str, data: &[u8]) -> Answer {
    let descriptor = gateway.memory.register(data);
    gateway.request(Method::PUT, &format!("/bucket/{key}")).token(&descriptor).send().await
}

/// A GET into fresh memory of `size` bytes, with a `Range` or without.
async fn get(gateway: &TestGateway, key: &str, size: usize, range: Option<&str>) -> (Answer, Vec<u8>) {
    let descriptor = gateway.memory.register(&vec![0xee; size]);
    let mut request = gateway.request(Method::GET, &format!("/bucket/{key}")).token(&descriptor);
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let answer = request.send().await;
    (answer, gateway.memory.bytes(&descriptor))
}

#[track_caller]
fn transferred(answer: &Answer, status: u16, bytes: usize) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("x-amz-rdma-reply"), status.to_string());
    assert_eq!(answer.header("x-amz-rdma-bytes-transferred"), bytes.to_string());
    assert_eq!(answer.header("content-length"), "0");
    assert_eq!(answer.header("transfer-encoding"), "");
    assert!(answer.body.is_empty());
}

#[test_case(1)]
#[test_case(4096)]
#[test_case(CHUNK - 1)]
#[test_case(CHUNK)]
#[test_case(CHUNK + 1)]
#[test_case(20 * CHUNK + 333; "more than the pool holds")]
#[tokio::test(flavor = "multi_thread")]
async fn carriers_agree(length: usize) {
    let gateway = TestGateway::with_rdma().await;
    let data = pattern(length, 7);
    let etag = format!("\"{}\"", md5_hex(&data));

    let by_rdma = put(&gateway, "rdma", &data).await;
    transferred(&by_rdma, 200, length);
    let by_http = gateway.put("http", data.clone()).await.ok();
    for answer in [&by_rdma, &by_http] {
        assert_eq!(answer.header("etag"), etag);
        assert_eq!(answer.header("x-amz-checksum-crc64nvme"), crc64nvme(&data));
    }
    assert_eq!(by_http.header("x-amz-rdma-reply"), "");
    for key in ["rdma", "http"] {
        assert!(std::fs::read(gateway.file(key)).unwrap() == data);
        let (answer, memory) = get(&gateway, key, length + 10, None).await;
        transferred(&answer, 200, length);
        assert!(memory[..length] == data && memory[length..] == [0xee; 10]);
        assert_eq!(answer.header("etag"), etag);
        assert_eq!(answer.header("x-amz-checksum-crc64nvme"), crc64nvme(&data));
        assert!(!answer.header("last-modified").is_empty());
        let over_http = gateway.get(key).await.ok();
        assert!(over_http.body == data);
        assert_eq!(over_http.header("x-amz-rdma-reply"), "");
    }
    gateway.settle().await;
    let bytes = gateway.bytes();
    // One PUT and two GETs each way.
    assert_eq!((bytes.http_in, bytes.http_out), (length as u64, 2 * length as u64));
    assert_eq!((bytes.rdma_in, bytes.rdma_out), (length as u64, 2 * length as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_heads_passes_through_http() {
    let gateway = TestGateway::with_rdma().await;
    let data = pattern(3 * CHUNK, 1);
    put(&gateway, "key", &data).await.ok();
    get(&gateway, "key", data.len(), None).await.0.ok();
    get(&gateway, "key", 100, Some("bytes=5-9")).await.0.ok();
    gateway.settle().await;
    let bytes = gateway.bytes();
    assert_eq!((bytes.http_in, bytes.http_out), (0, 0));
    assert_eq!((bytes.rdma_in, bytes.rdma_out), (3 * CHUNK as u64, 3 * CHUNK as u64 + 5));
}

#[test_case("bytes=0-", 0..300_000)]
#[test_case("bytes=0-299999", 0..300_000; "a range that is the whole")]
#[test_case("bytes=100000-200000", 100_000..200_001)]
#[test_case("bytes=-1", 299_999..300_000)]
#[test_case("bytes=299999-400000", 299_999..300_000)]
#[tokio::test(flavor = "multi_thread")]
async fn ranges_land_at_the_start_of_the_window(range: &str, span: std::ops::Range<usize>) {
    let gateway = TestGateway::with_rdma().await;
    let data = pattern(300_000, 2);
    put(&gateway, "key", &data).await.ok();
    let (answer, memory) = get(&gateway, "key", 300_000, Some(range)).await;
    transferred(&answer, 206, span.len());
    assert!(memory[..span.len()] == data[span.clone()]);
    assert!(memory[span.len()..].iter().all(|b| *b == 0xee));
    assert_eq!(answer.header("content-range"), format!("bytes {}-{}/300000", span.start, span.end - 1));
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), crc64nvme(&data[span]));
}

#[tokio::test]
async fn empty_objects_need_no_operation() {
    let gateway = TestGateway::with_rdma().await;
    let nothing = Descriptor { size: 0, ..gateway.memory.register(b"x") };
    let answer = gateway.request(Method::PUT, "/bucket/empty").token(&nothing).send().await;
    transferred(&answer, 200, 0);
    assert_eq!(answer.header("etag"), format!("\"{}\"", md5_hex(b"")));
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), crc64nvme(b""));
    let (answer, memory) = get(&gateway, "empty", 4, None).await;
    transferred(&answer, 200, 0);
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), crc64nvme(b""));
    assert_eq!(memory, [0xee; 4]);
    get(&gateway, "empty", 4, Some("bytes=0-")).await.0.fails(416, "InvalidRange");
    assert_eq!(gateway.engine.as_ref().unwrap().stats().operations_done, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn overwrites_by_either_carrier() {
    let gateway = TestGateway::with_rdma().await;
    gateway.put("key", pattern(100_000, 1)).await.ok();
    put(&gateway, "key", &pattern(50, 2)).await.ok();
    assert!(gateway.get("key").await.ok().body == pattern(50, 2));
    gateway.put("key", pattern(70, 3)).await.ok();
    assert!(get(&gateway, "key", 70, None).await.1 == pattern(70, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_metadata_go_with_it() {
    let gateway = TestGateway::with_rdma().await;
    let descriptor = gateway.memory.register(b"data");
    gateway
        .request(Method::PUT, "/bucket/key")
        .token(&descriptor)
        .header("content-type", "text/x-test")
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-tagging", "a=b")
        .send()
        .await
        .ok();
    let (answer, _) = get(&gateway, "key", 4, None).await;
    assert_eq!((answer.header("content-type"), answer.header("x-amz-meta-colour")), ("text/x-test", "blue"));
    assert_eq!(answer.header("x-amz-tagging-count"), "1");
    let head = gateway.request(Method::HEAD, "/bucket/key").token(&descriptor).send().await.ok();
    assert_eq!((head.header("content-length"), head.header("x-amz-rdma-reply")), ("4", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_legacy_headers() {
    let gateway = TestGateway::with_rdma().await;
    let data = pattern(200_000, 4);
    let descriptor = gateway.memory.register(&data);
    let legacy = |method: Method, descriptor: &Descriptor, start: u64, length: usize| {
        gateway
            .request(method, "/bucket/key")
            .header("x-cuobj-rdma-descr", descriptor.to_string())
            .header("x-cuobj-content-length", length.to_string())
            .header("x-cuobj-remote-buf-start", start.to_string())
    };
    let answer = legacy(Method::PUT, &descriptor, descriptor.address + 1000, 150_000).send().await;
    transferred(&answer, 200, 150_000);
    assert!(std::fs::read(gateway.file("key")).unwrap() == data[1000..151_000]);
    let into = gateway.memory.register(&vec![0; 160_000]);
    let answer = legacy(Method::GET, &into, into.address + 10_000, 150_000).send().await;
    transferred(&answer, 200, 150_000);
    assert!(gateway.memory.bytes(&into)[10_000..] == data[1000..151_000]);
    // Beside a token that agrees, the triple is what counts.
    let both = legacy(Method::PUT, &descriptor, descriptor.address, 10).token(&descriptor).send().await;
    transferred(&both, 200, 10);
    let other = gateway.memory.register(&data);
    let both = legacy(Method::PUT, &descriptor, descriptor.address, 10).token(&other).send().await;
    both.fails(400, "InvalidArgument");
    let outside = legacy(Method::PUT, &descriptor, descriptor.address + 199_999, 2).send().await;
    outside.fails(400, "InvalidArgument");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suffix_narrows_the_window() {
    let gateway = TestGateway::with_rdma().await;
    let data = pattern(1000, 4);
    let descriptor = gateway.memory.register(&data);
    let token = format!("{descriptor}:{:016x}:{:016x}", descriptor.address + 100, 50);
    let answer = gateway.request(Method::PUT, "/bucket/key").header("x-amz-rdma-token", token).send().await;
    transferred(&answer, 200, 50);
    assert!(std::fs::read(gateway.file("key")).unwrap() == data[100..150]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_header_name() {
    let name = http::HeaderName::from_static("x-rdma-info");
    let extra = name.clone();
    let gateway = TestGateway::rdma_with(
        |c| c.tokens.extra_headers = vec![extra],
        crate::fixture::engine_config(),
        |endpoint| endpoint,
    )
    .await;
    let descriptor = gateway.memory.register(b"data");
    let put = gateway.request(Method::PUT, "/bucket/key").header(name.as_str(), descriptor.to_string());
    transferred(&put.send().await, 200, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_of_the_bytes_are_verified() {
    let gateway = TestGateway::with_rdma().await;
    let data = pattern(100_000, 8);
    let put = async |name: &str, value: String| {
        let descriptor = gateway.memory.register(&data);
        gateway.request(Method::PUT, "/bucket/key").token(&descriptor).header(name, value).send().await
    };
    put("x-amz-checksum-crc64nvme", crc64nvme(b"other")).await.fails(400, "BadDigest");
    put("content-md5", "rL0Y20zC+Fzt72VPzMSk2A==".into()).await.fails(400, "BadDigest");
    gateway.get("key").await.fails(404, "NoSuchKey");
    assert!(gateway.debris().is_empty());
    put("x-amz-checksum-crc64nvme", crc64nvme(&data)).await.ok();
    put("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==".into()).await.ok();
    put("x-amz-checksum-algorithm", "CRC64NVME".into()).await.ok();
    let put = async |payload: String| {
        let descriptor = gateway.memory.register(&data);
        gateway.request(Method::PUT, "/bucket/key").token(&descriptor).payload(payload).send().await
    };
    put(crate::fixture::sha256_hex(b"")).await.ok();
    put(crate::fixture::sha256_hex(&data)).await.ok();
    put(crate::fixture::sha256_hex(b"other")).await.fails(400, "XAmzContentSHA256Mismatch");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_share_the_pool() {
    let gateway = TestGateway::with_rdma().await;
    let jobs = (0..32).map(|i| {
        let gateway = &gateway;
        async move {
            let data = pattern(3 * CHUNK + i, i as u8);
            let key = format!("key-{i}");
            put(gateway, &key, &data).await.ok();
            let (answer, memory) = get(gateway, &key, data.len(), None).await;
            transferred(&answer, 200, data.len());
            assert!(memory == data);
        }
    });
    futures_util::future::join_all(jobs).await;
    gateway.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_tells_the_carrier() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let log = path.clone();
    let mut gateway = TestGateway::rdma_with(
        |c| c.access_log = Some(log),
        crate::fixture::engine_config(),
        |endpoint| endpoint,
    )
    .await;
    let data = pattern(70_000, 1);
    put(&gateway, "key", &data).await.ok();
    get(&gateway, "key", 70_000, Some("bytes=0-9")).await.0.ok();
    gateway.settle().await;
    gateway.gateway.take().unwrap().shutdown().await;
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains(" 200 - - 70000 ") && lines[0].ends_with(" rdma 70000"), "{text}");
    assert!(lines[1].contains(" 206 - - 70000 ") && lines[1].ends_with(" rdma 10"), "{text}");
    assert!(!text.contains(&gateway.memory.register(b"").to_string()[18..]), "no token in a log");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_and_presigned_urls() {
    let versions = tempfile::tempdir().unwrap();
    let directory = versions.path().to_owned();
    let gateway = TestGateway::rdma_with(
        |c| c.store.versioning_dir = Some(directory),
        crate::fixture::engine_config(),
        |endpoint| endpoint,
    )
    .await;
    let document = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    gateway.request(Method::PUT, "/bucket?versioning").body(document).send().await.ok();
    let (one, two) = (pattern(2 * CHUNK + 1, 1), pattern(CHUNK, 2));
    let ids = [put(&gateway, "key", &one).await, put(&gateway, "key", &two).await]
        .map(|answer| answer.ok().header("x-amz-version-id").to_owned());
    assert!(!ids[0].is_empty() && ids[0] != ids[1]);
    for (id, data) in ids.iter().zip([&one, &two]) {
        let path = format!("/bucket/key?versionId={id}");
        let into = gateway.memory.register(&vec![0; data.len()]);
        let answer = gateway.request(Method::GET, &path).token(&into).send().await;
        transferred(&answer, 200, data.len());
        assert_eq!(answer.header("x-amz-version-id"), id);
        assert!(gateway.memory.bytes(&into) == *data);
        let into = gateway.memory.register(&[0; 10]);
        let ranged = gateway.request(Method::GET, &path).token(&into).header("range", "bytes=5-14");
        transferred(&ranged.send_presigned().await, 206, 10);
        assert!(gateway.memory.bytes(&into) == data[5..15]);
    }
    let into = gateway.memory.register(&[0; 10]);
    let missing = gateway.request(Method::GET, "/bucket/key?versionId=none").token(&into).send().await;
    assert!([400, 404].contains(&missing.status.as_u16()), "{}", missing.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_size_and_carrier() {
    let gateway = TestGateway::rdma_with(
        |c| c.metrics_listen = Some("127.0.0.1:0".parse().unwrap()),
        crate::fixture::engine_config(),
        |endpoint| endpoint,
    )
    .await;
    put(&gateway, "key", &pattern(70_000, 1)).await.ok();
    get(&gateway, "key", 70_000, Some("bytes=0-9")).await.0.ok();
    gateway.put("http", "12345").await.ok();
    gateway.settle().await;
    let address = gateway.running().metrics_address().unwrap().to_owned();
    let page =
        crate::fixture::send(&address, Method::GET, "/metrics", Default::default(), Default::default(), true);
    let text = page.await.ok().text();
    for line in [
        "vgwrdma_rdma_bytes_total{direction=\"in\"} 70000",
        "vgwrdma_rdma_bytes_total{direction=\"out\"} 10",
        "vgwrdma_http_body_bytes_total{direction=\"in\"} 5",
        "vgwrdma_requests_total{operation=\"PutObject\",status=\"200\",carrier=\"rdma\"} 1",
        "vgwrdma_requests_total{operation=\"GetObject\",status=\"206\",carrier=\"rdma\"} 1",
        "vgwrdma_requests_total{operation=\"PutObject\",status=\"200\",carrier=\"http\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}
