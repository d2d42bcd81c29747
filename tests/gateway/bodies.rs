//! Request bodies: lengths, digests, aws-chunked framing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Method};
use test_case::test_case;
use vgwrdma::digest::{Algorithm, Digester};

use crate::fixture::{BUCKET, TestGateway, md5_hex, pattern, read_answer, send, sha256_hex};

fn checksum(algorithm: Algorithm, data: &[u8]) -> String {
    let mut digester = Digester::new(false, [algorithm]);
    digester.update(data);
    digester.finish().base64(algorithm).unwrap()
}

fn name(algorithm: Algorithm) -> String {
    format!("x-amz-checksum-{}", algorithm.name().to_lowercase())
}

#[test_case(100; "small")]
#[test_case(3_000_000; "large")]
#[tokio::test(flavor = "multi_thread")]
async fn digests_are_verified_before_publication(length: usize) {
    let gateway = TestGateway::plain().await;
    let (data, other) = (pattern(length, 1), pattern(length, 2));
    let put = |name: &str, value: String| {
        gateway.request(Method::PUT, "/bucket/key").header(name, value).body(data.clone())
    };
    let md5 = |data: &[u8]| STANDARD.encode(hex::decode(md5_hex(data)).unwrap());
    put("content-md5", md5(&other)).send().await.fails(400, "BadDigest");
    put("content-md5", "short".into()).send().await.fails(400, "InvalidDigest");
    put("content-md5", md5(&data)).send().await.ok();
    gateway.request(Method::DELETE, "/bucket/key").send().await;
    for algorithm in Algorithm::ALL {
        let header = name(algorithm);
        put(&header, checksum(algorithm, &other)).send().await.fails(400, "BadDigest");
        gateway.get("key").await.fails(404, "NoSuchKey");
        let stored = put(&header, checksum(algorithm, &data)).send().await.ok();
        assert_eq!(stored.header(&header), checksum(algorithm, &data));
        assert_eq!(stored.header("x-amz-checksum-type"), "FULL_OBJECT");
        let asked = gateway
            .request(Method::GET, "/bucket/key")
            .header("x-amz-checksum-mode", "ENABLED")
            .send()
            .await
            .ok();
        assert_eq!(asked.header(&header), checksum(algorithm, &data));
        assert_eq!(gateway.get("key").await.header(&header), "");
        gateway.request(Method::DELETE, "/bucket/key").send().await;
    }
    assert!(gateway.debris().is_empty());
}

#[tokio::test]
async fn the_payload_hash_is_verified() {
    let gateway = TestGateway::plain().await;
    let put =
        |payload: String| gateway.request(Method::PUT, "/bucket/key").payload(payload).body("data").send();
    put(sha256_hex(b"other")).await.fails(400, "XAmzContentSHA256Mismatch");
    gateway.get("key").await.fails(404, "NoSuchKey");
    put(sha256_hex(b"data")).await.ok();
    assert_eq!(gateway.get("key").await.ok().text(), "data");
}

#[tokio::test]
async fn a_range_tells_no_checksum_of_the_whole() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "0123456789").await.ok();
    let answer = gateway
        .request(Method::GET, "/bucket/key")
        .header("x-amz-checksum-mode", "ENABLED")
        .header("range", "bytes=0-3")
        .send()
        .await
        .ok();
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), "");
}

fn trailer_body(data: &[u8], trailer: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in data.chunks(100_000) {
        body.extend(format!("{:x}\r\n", chunk.len()).bytes());
        body.extend(chunk);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n");
    body.extend(trailer.bytes());
    body.extend(b"\r\n");
    body
}

#[test_case(11)]
#[test_case(2_500_000)]
#[tokio::test(flavor = "multi_thread")]
async fn unsigned_chunks_with_a_trailer(length: usize) {
    let gateway = TestGateway::plain().await;
    let data = pattern(length, 5);
    let put = |trailer: String| {
        gateway
            .request(Method::PUT, "/bucket/key")
            .payload("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", data.len().to_string())
            .header("x-amz-trailer", "x-amz-checksum-crc32")
            .body(trailer_body(&data, &trailer))
            .send()
    };
    let right = checksum(Algorithm::Crc32, &data);
    put(format!("x-amz-checksum-crc32:{}\r\n", checksum(Algorithm::Crc32, b"no")))
        .await
        .fails(400, "BadDigest");
    put(String::new()).await.fails(400, "InvalidRequest");
    gateway.get("key").await.fails(404, "NoSuchKey");
    let answer = put(format!("x-amz-checksum-crc32:{right}\r\n")).await.ok();
    assert_eq!(answer.header("x-amz-checksum-crc32"), right);
    let got = gateway.get("key").await.ok();
    assert!(got.body == data, "the framing must not be in the object");
    assert_eq!(got.header("content-encoding"), "");
}

#[test_case(false; "whole")]
#[test_case(true; "altered")]
#[tokio::test]
async fn signed_chunks(altered: bool) {
    let gateway = TestGateway::plain().await;
    let signer = gateway.signer();
    let data = pattern(150_000, 6);
    let chunks: Vec<&[u8]> = data.chunks(70_000).collect();
    let url = format!("http://{}/{BUCKET}/key", gateway.address);
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_str(&gateway.address).unwrap());
    headers.insert("content-encoding", HeaderValue::from_static("aws-chunked"));
    headers.insert("x-amz-decoded-content-length", HeaderValue::from(data.len()));
    let seed = signer.sign("PUT", &url, &mut headers, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    let date = headers["x-amz-date"].to_str().unwrap().to_owned();
    let mut body = signer.chunked(&seed, &date, &chunks);
    if altered {
        body[100_000] ^= 1;
    }
    headers.insert("content-length", HeaderValue::from(body.len()));
    let answer = send(&gateway.address, Method::PUT, "/bucket/key", headers, body.into(), true).await;
    if altered {
        answer.fails(403, "SignatureDoesNotMatch");
        gateway.get("key").await.fails(404, "NoSuchKey");
    } else {
        answer.ok();
        assert!(gateway.get("key").await.ok().body == data);
    }
}

#[tokio::test]
async fn a_large_body_without_a_length_is_refused() {
    let gateway = TestGateway::plain().await;
    let put = gateway.request(Method::PUT, "/bucket/key").without_length();
    put.clone().body(vec![1; 5 << 20]).send().await.fails(411, "MissingContentLength");
    let mut bare = put.half_sent(0, b"").await;
    assert!(read_answer(&mut bare).await.starts_with("HTTP/1.1 200"), "Content-Length: 0 is a length");
    gateway.request(Method::DELETE, "/bucket/key").send().await;
    let mut stream = tokio::net::TcpStream::connect(&gateway.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &put.wire(None)).await.unwrap();
    let answer = read_answer(&mut stream).await;
    assert!(answer.contains("411") && answer.contains("MissingContentLength"), "{answer}");
    gateway.get("key").await.fails(404, "NoSuchKey");
}

#[test_case(1000, 999; "small")]
#[test_case(5_000_000, 4_000_000; "large")]
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_is_never_published(stated: usize, sent: usize) {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "old").await.ok();
    let put = gateway.request(Method::PUT, "/bucket/key");
    let stream = put.half_sent(stated as u64, &pattern(sent, 1)).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    drop(stream);
    gateway.settle().await;
    assert_eq!(gateway.get("key").await.ok().text(), "old");
    assert!(gateway.debris().is_empty());
}

#[tokio::test]
async fn a_refusal_comes_before_the_body_when_the_client_waits() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "old").await.ok();
    let put = gateway.request(Method::PUT, "/bucket/key").header("if-none-match", "*");
    let mut stream = put.clone().unsigned_header("expect", "100-continue").half_sent(10, b"").await;
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 412"), "{answer}");
    let mut stream = gateway
        .request(Method::PUT, "/bucket/new")
        .unsigned_header("expect", "100-continue")
        .half_sent(4, b"")
        .await;
    let mut line = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut line).await.unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"data").await.unwrap();
    assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    assert_eq!(gateway.get("new").await.ok().text(), "data");
}

/// A client that sends all before it listens gets the answer too, and its connection stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_a_client_that_still_sends() {
    let gateway = TestGateway::plain_with(|c| c.keep_alive = true).await;
    gateway.put("key", "old").await.ok();
    let much = pattern(16 << 20, 3);
    for (put, expected) in [
        (gateway.request(Method::PUT, "/absent/key"), "404"),
        (gateway.request(Method::PUT, "/bucket/key").header("if-none-match", "*"), "412"),
        (gateway.request(Method::PUT, "/bucket/key").anonymous(), "403"),
        (
            gateway.request(Method::PUT, "/bucket/key?unknown-thing").unsigned_header("authorization", "x"),
            "400",
        ),
    ] {
        let mut stream = put.half_sent(much.len() as u64, &much[..1 << 20]).await;
        // Long enough for a gateway that answers and closes to have done both.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, &much[1 << 20..]).await.unwrap();
        let answer = read_answer(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{answer}");
        let next = gateway.request(Method::GET, "/bucket/key").wire(None);
        tokio::io::AsyncWriteExt::write_all(&mut stream, &next).await.unwrap();
        assert!(read_answer(&mut stream).await.ends_with("old"));
    }
}

#[tokio::test]
async fn checksum_etags() {
    let gateway = TestGateway::plain_with(|c| c.etag = vgwrdma::store::EtagMode::Checksum).await;
    let data = pattern(5000, 9);
    let put = gateway.put("key", data.clone()).await.ok();
    let value = checksum(Algorithm::Crc64Nvme, &data);
    assert_eq!(put.header("etag"), format!("\"CRC64NVME-{value}\""));
    assert_eq!(gateway.head("key").await.header("etag"), put.header("etag"));
}
