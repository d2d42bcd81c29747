//! Multipart uploads, by either carrier.

use http::Method;

use crate::fixture::{Answer, TestGateway, crc64nvme, md5_hex, pattern};

const PART: usize = 5 << 20;

async fn create(gateway: &TestGateway, key: &str) -> String {
    let answer = gateway
        .request(Method::POST, &format!("/bucket/{key}?uploads="))
        .header("content-type", "text/x-test")
        .header("x-amz-meta-colour", "blue")
        .send()
        .await
        .ok();
    answer.element("UploadId").unwrap()
}

fn part_path(key: &str, id: &str, number: u32) -> String {
    format!("/bucket/{key}?partNumber={number}&uploadId={id}")
}

async fn complete(gateway: &TestGateway, key: &str, id: &str, parts: &[(u32, String)]) -> Answer {
    let listed: String = parts
        .iter()
        .map(|(n, etag)| format!("<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    let document = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
    gateway.request(Method::POST, &format!("/bucket/{key}?uploadId={id}")).body(document).send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_by_both_carriers() {
    let gateway = TestGateway::with_rdma().await;
    let id = create(&gateway, "key").await;
    let (first, second) = (pattern(PART, 1), pattern(1_000_000, 2));
    let descriptor = gateway.memory.register(&first);
    let one = gateway.request(Method::PUT, &part_path("key", &id, 1)).token(&descriptor).send().await.ok();
    assert_eq!(
        (one.header("x-amz-rdma-reply"), one.header("x-amz-rdma-bytes-transferred")),
        ("200", "5242880")
    );
    assert_eq!(one.header("etag"), format!("\"{}\"", md5_hex(&first)));
    assert_eq!(one.header("x-amz-checksum-crc64nvme"), crc64nvme(&first));
    let two = gateway.request(Method::PUT, &part_path("key", &id, 2)).body(second.clone()).send().await.ok();
    gateway.get("key").await.fails(404, "NoSuchKey");

    let parts = gateway.request(Method::GET, &format!("/bucket/key?uploadId={id}")).send().await.ok();
    assert_eq!(parts.elements("PartNumber"), ["1", "2"]);
    assert_eq!(parts.elements("Size"), ["5242880", "1000000"]);
    let uploads = gateway.request(Method::GET, "/bucket?uploads=").send().await.ok();
    assert_eq!(uploads.elements("UploadId"), std::slice::from_ref(&id));

    let etags = [(1, one.header("etag").to_owned()), (2, two.header("etag").to_owned())];
    let done = complete(&gateway, "key", &id, &etags).await.ok();
    assert!(done.element("ETag").unwrap().ends_with("-2\""));
    // minio-rs reads it from here.
    assert_eq!(Some(done.header("etag").to_owned()), done.element("ETag"));
    let whole = [first, second].concat();
    let got = gateway.get("key").await.ok();
    assert!(got.body == whole);
    assert_eq!((got.header("content-type"), got.header("x-amz-meta-colour")), ("text/x-test", "blue"));
    assert_eq!(Some(got.header("etag").to_owned()), done.element("ETag"));

    let into = gateway.memory.register(&vec![0; whole.len()]);
    let by_rdma = gateway.request(Method::GET, "/bucket/key").token(&into).send().await.ok();
    assert!(gateway.memory.bytes(&into) == whole);
    assert_eq!(by_rdma.header("x-amz-checksum-crc64nvme"), crc64nvme(&whole));
    let part = gateway.request(Method::GET, "/bucket/key?partNumber=2").token(&into).send().await;
    assert_eq!((part.status.as_u16(), part.header("x-amz-rdma-reply")), (206, "206"));
    assert_eq!(part.header("x-amz-mp-parts-count"), "2");
    assert!(gateway.memory.bytes(&into)[..1_000_000] == whole[PART..]);
    gateway.request(Method::GET, "/bucket/key?partNumber=3").send().await.fails(400, "InvalidPart");
    let attributes = gateway
        .request(Method::GET, "/bucket/key?attributes")
        .header("x-amz-object-attributes", "ObjectSize,ObjectParts,ETag")
        .send()
        .await
        .ok();
    assert_eq!(attributes.element("ObjectSize"), Some(whole.len().to_string()));
    assert_eq!(attributes.elements("Size"), ["5242880", "1000000"]);
    let second =
        gateway.request(Method::GET, "/bucket/key?partNumber=2").header("x-amz-checksum-mode", "ENABLED");
    let second = second.send().await;
    assert_eq!(second.header("x-amz-checksum-crc64nvme"), crc64nvme(&second.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_complete_refuses() {
    let gateway = TestGateway::plain().await;
    let id = create(&gateway, "key").await;
    let put = async |number: u32, body: &[u8]| {
        let path = part_path("key", &id, number);
        gateway.request(Method::PUT, &path).body(body.to_vec()).send().await.ok().header("etag").to_owned()
    };
    let (small, last) = (put(1, b"small").await, put(2, b"last").await);
    let wrong = "\"00000000000000000000000000000000\"".to_owned();
    complete(&gateway, "key", &id, &[(1, wrong.clone())]).await.fails(400, "InvalidPart");
    complete(&gateway, "key", &id, &[(3, wrong)]).await.fails(400, "InvalidPart");
    let reversed = [(2, last.clone()), (1, small.clone())];
    complete(&gateway, "key", &id, &reversed).await.fails(400, "InvalidPartOrder");
    let both = [(1, small), (2, last.clone())];
    complete(&gateway, "key", &id, &both).await.fails(400, "EntityTooSmall");
    complete(&gateway, "key", &id, &[]).await.fails(400, "MalformedXML");
    complete(&gateway, "key", "nonsense", &[(2, last.clone())]).await.fails(404, "NoSuchUpload");
    gateway.get("key").await.fails(404, "NoSuchKey");
    complete(&gateway, "key", &id, &[(2, last)]).await.ok();
    assert_eq!(gateway.get("key").await.ok().text(), "last");
}

#[tokio::test]
async fn abort_and_edges() {
    let gateway = TestGateway::with_rdma().await;
    let id = create(&gateway, "key").await;
    gateway.request(Method::PUT, &part_path("key", &id, 1)).body("x").send().await.ok();
    for number in [0, 10_001] {
        let part = gateway.request(Method::PUT, &part_path("key", &id, number)).body("x").send().await;
        part.fails(400, "InvalidArgument");
    }
    let abort = gateway.request(Method::DELETE, &format!("/bucket/key?uploadId={id}"));
    assert_eq!(abort.clone().send().await.status, 204);
    abort.send().await.fails(404, "NoSuchUpload");
    let descriptor = gateway.memory.register(b"data");
    let late = gateway.request(Method::PUT, &part_path("key", &id, 1)).token(&descriptor).send().await;
    late.fails(404, "NoSuchUpload");
    assert_eq!(gateway.stats().operations_done, 0);
    assert!(gateway.debris().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_its_checksum_is_not_kept() {
    let gateway = TestGateway::with_rdma().await;
    let id = create(&gateway, "key").await;
    let data = pattern(100_000, 1);
    let descriptor = gateway.memory.register(&data);
    let put = gateway.request(Method::PUT, &part_path("key", &id, 1)).token(&descriptor);
    put.header("x-amz-checksum-crc64nvme", crc64nvme(b"other")).send().await.fails(400, "BadDigest");
    let parts = gateway.request(Method::GET, &format!("/bucket/key?uploadId={id}")).send().await.ok();
    assert!(parts.elements("PartNumber").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_by_copying() {
    let gateway = TestGateway::plain().await;
    let source = pattern(6 << 20, 3);
    gateway.put("source", source.clone()).await.ok();
    let id = create(&gateway, "key").await;
    let copy = |number: u32, range: &str| {
        gateway
            .request(Method::PUT, &part_path("key", &id, number))
            .header("x-amz-copy-source", "/bucket/source")
            .header("x-amz-copy-source-range", range)
    };
    let one = copy(1, "bytes=0-5242879").send().await.ok().element("ETag").unwrap();
    assert_eq!(one, format!("\"{}\"", md5_hex(&source[..PART])));
    let two = copy(2, "bytes=5242880-6291455").send().await.ok().element("ETag").unwrap();
    copy(3, "bytes=0-6291456").send().await.fails(416, "InvalidRange");
    copy(3, "bytes=0-").send().await.fails(400, "InvalidArgument");
    complete(&gateway, "key", &id, &[(1, one), (2, two)]).await.ok();
    assert!(gateway.get("key").await.ok().body == source);
}
