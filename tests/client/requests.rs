//! What goes over the wire.

use vgwrdma::client::headers::{LEGACY_SIZE, LEGACY_START, LEGACY_TOKEN, RDMA_TOKEN};
use vgwrdma::client::testing::BASE;
use vgwrdma::client::{Carrier, CompletedPart, Dialect, Error, GetOptions, PartOf, PutOptions};
use vgwrdma::digest::Algorithm;
use vgwrdma::rdma::Descriptor;

use crate::server::{Reply, Server};
use crate::{buffer, builder, client};

#[tokio::test]
async fn an_rdma_put_has_a_signed_token_and_no_body() {
    let server = Server::start(|_, _| Reply::rdma(200, 10));
    let (buffer, _) = buffer(&[7; 100]);
    let put = client(&server).put("bucket", "a key", &buffer, 20..30).await.unwrap();
    assert_eq!((put.etag.as_str(), put.attempts), ("\"e\"", 1));

    let request = server.requests().remove(0);
    assert_eq!((request.method.as_str(), request.target.as_str()), ("PUT", "/bucket/a%20key"));
    assert_eq!(request.header("content-length"), Some("0"));
    assert_eq!(request.header("x-amz-content-sha256"), Some("UNSIGNED-PAYLOAD"));
    assert!(request.body.is_empty());
    assert!(request.signed_headers().contains(&RDMA_TOKEN));
    assert!(request.signed_headers().contains(&"content-length"));
    let token = request.header(RDMA_TOKEN).unwrap();
    let descriptor = Descriptor::parse(token).unwrap();
    assert_eq!((descriptor.address, descriptor.size), (BASE + 20, 10));
    assert_eq!(token, descriptor.to_string());
    assert_eq!(request.header("host"), Some(server.url().trim_start_matches("http://")));
}

#[tokio::test]
async fn the_legacy_dialect_signs_its_three_headers() {
    let server = Server::start(|_, _| Reply::rdma(200, 10));
    let (buffer, _) = buffer(&[7; 100]);
    let client = builder(&server).dialect(Dialect::Legacy).build().unwrap();
    client.put("bucket", "key", &buffer, 20..30).await.unwrap();
    let request = server.requests().remove(0);
    assert_eq!(request.header(LEGACY_SIZE), Some("10"));
    assert_eq!(request.header(LEGACY_START), Some((BASE + 20).to_string().as_str()));
    assert!(request.header(RDMA_TOKEN).is_none());
    for name in [LEGACY_TOKEN, LEGACY_SIZE, LEGACY_START] {
        assert!(request.signed_headers().contains(&name), "{name} is not signed");
    }
}

#[tokio::test]
async fn a_get_offers_the_window_that_it_wants_filled() {
    let (mut buffer, peer) = buffer(&[0; 100]);
    let server = Server::start(move |request, _| {
        let descriptor = Descriptor::parse(request.header(RDMA_TOKEN).unwrap()).unwrap();
        peer.write((descriptor.address - BASE) as usize, b"hello");
        Reply::rdma(200, 5)
    });
    let mut options = GetOptions::exactly(5);
    options.offset = 50;
    let got = client(&server).get("bucket", "key", &mut buffer, &options).await.unwrap();
    assert_eq!(got.bytes, 5);
    let mut out = [0; 5];
    buffer.copy_out(50, &mut out).unwrap();
    assert_eq!(&out, b"hello");
    let descriptor = Descriptor::parse(server.requests()[0].header(RDMA_TOKEN).unwrap()).unwrap();
    assert_eq!(descriptor.size, 5);
    assert!(server.requests()[0].header("range").is_none());
}

#[tokio::test]
async fn a_ranged_get_names_its_range() {
    let server = Server::start(|_, _| {
        Reply::new(
            206,
            &[
                ("x-amz-rdma-reply", "206"),
                ("x-amz-rdma-bytes-transferred", "10"),
                ("Content-Range", "bytes 5-14/100"),
            ],
            b"",
        )
    });
    let (mut buffer, _) = buffer(&[0; 100]);
    let got = client(&server).get_range("bucket", "key", 5..15, &mut buffer, 0).await.unwrap();
    assert_eq!((got.bytes, got.range.unwrap().total), (10, Some(100)));
    assert_eq!(server.requests()[0].header("range"), Some("bytes=5-14"));
}

#[tokio::test]
async fn bodies_go_over_http_when_asked() {
    let content: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let expected = content.clone();
    let server = Server::start(move |request, _| match request.method.as_str() {
        "PUT" => Reply::new(200, &[("ETag", "\"e\"")], b""),
        _ => Reply::new(200, &[("ETag", "\"e\"")], &expected),
    });
    let (mut buffer, _) = buffer(&content);
    let client = client(&server);
    client.put_http("bucket", "key", &buffer, 0..content.len(), &PutOptions::default()).await.unwrap();
    assert!(server.requests()[0].body == content);
    assert!(server.requests()[0].header(RDMA_TOKEN).is_none());
    buffer.fill(0).unwrap();
    let got = client.get_http("bucket", "key", &mut buffer, &GetOptions::default()).await.unwrap();
    assert_eq!(got.bytes, content.len() as u64);
    let mut out = vec![0; content.len()];
    buffer.copy_out(0, &mut out).unwrap();
    assert!(out == content);
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::start(|_, _| Reply::rdma(200, 10));
    let (buffer, _) = buffer(&[7; 10]);
    let client = client(&server);
    for _ in 0..5 {
        client.put("bucket", "key", &buffer, 0..10).await.unwrap();
    }
    assert!(server.requests().iter().all(|request| request.connection == 0));
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_is_replaced() {
    let server = Server::start(|_, number| match (number, Reply::rdma(200, 10)) {
        (0, Reply::Send(bytes)) => Reply::SendAndClose(bytes),
        (_, reply) => reply,
    });
    let (buffer, _) = buffer(&[7; 10]);
    let client = client(&server);
    client.put("bucket", "key", &buffer, 0..10).await.unwrap();
    client.put("bucket", "key", &buffer, 0..10).await.unwrap();
    assert_eq!(server.requests().last().unwrap().connection, 1);
}

#[tokio::test]
async fn an_empty_object_needs_no_token() {
    let server = Server::start(|_, _| Reply::new(200, &[("ETag", "\"e\"")], b""));
    let (buffer, _) = buffer(&[7; 10]);
    client(&server).put("bucket", "key", &buffer, 3..3).await.unwrap();
    assert!(server.requests()[0].header(RDMA_TOKEN).is_none());
    assert_eq!(server.requests()[0].header("content-length"), Some("0"));
}

#[tokio::test]
async fn a_checksum_goes_with_the_upload() {
    let server = Server::start(|_, _| Reply::rdma(200, 10));
    let (buffer, _) = buffer(&[7; 10]);
    let mut options = PutOptions::default();
    options.checksum = Some((Algorithm::Crc64Nvme, "AAAAAAAAAAA=".to_owned()));
    client(&server).put_with("bucket", "key", &buffer, 0..10, &options).await.unwrap();
    let request = server.requests().remove(0);
    assert_eq!(request.header("x-amz-checksum-crc64nvme"), Some("AAAAAAAAAAA="));
    assert!(request.signed_headers().contains(&"x-amz-checksum-crc64nvme"));
}

#[tokio::test]
async fn parts_are_numbered_and_completed_in_order() {
    let server = Server::start(|request, _| {
        match (request.method.as_str(), request.target.contains("uploads=")) {
        ("POST", true) => Reply::new(
            200,
            &[],
            b"<InitiateMultipartUploadResult><Bucket>bucket</Bucket><UploadId>id/1</UploadId></InitiateMultipartUploadResult>",
        ),
        ("POST", false) => Reply::new(200, &[], b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"),
        _ => Reply::rdma(200, 50),
    }
    });
    let (buffer, _) = buffer(&[7; 100]);
    let client = client(&server);
    let id = client.create_multipart("bucket", "key").await.unwrap();
    assert_eq!(id, "id/1");
    let mut parts = Vec::new();
    for number in 1..=2u32 {
        let start = (number as usize - 1) * 50;
        parts.push(
            client.upload_part("bucket", "key", &id, number, &buffer, start..start + 50).await.unwrap(),
        );
    }
    client.complete_multipart("bucket", "key", &id, &parts).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[1].target, "/bucket/key?partNumber=1&uploadId=id%2F1");
    let second = Descriptor::parse(requests[2].header(RDMA_TOKEN).unwrap()).unwrap();
    assert_eq!((second.address, second.size), (BASE + 50, 50));
    let document = String::from_utf8(requests[3].body.clone()).unwrap();
    assert!(
        document.contains(
            "<Part><PartNumber>1</PartNumber><ETag>&quot;e&quot;</ETag></Part><Part><PartNumber>2<"
        )
    );
    assert!(client.upload_part("bucket", "key", &id, 0, &buffer, 0..50).await.is_err());
    assert!(client.upload_part("bucket", "key", &id, 10_001, &buffer, 0..50).await.is_err());
}

#[tokio::test]
async fn parts_and_the_whole_carry_their_checksums() {
    let server = Server::start(|request, _| match request.method.as_str() {
        "POST" => Reply::new(
            200,
            &[],
            b"<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>",
        ),
        _ if request.header(RDMA_TOKEN).is_some() => Reply::error(501, "NotImplemented", "no RDMA here"),
        _ => Reply::new(200, &[("ETag", "\"e\"")], b""),
    });
    let (buffer, _) = buffer(&[7; 10]);
    let client = client(&server);
    let id = client.create_multipart_with("b", "k", Some(Algorithm::Crc64Nvme)).await.unwrap();
    let part = PartOf { bucket: "b", key: "k", upload_id: &id, number: 3 };
    let mut options = PutOptions::default();
    options.checksum = Some((Algorithm::Crc64Nvme, "AAAAAAAAAAA=".to_owned()));
    let declined = client.upload_part_with(part, &buffer, 0..10, &options).await.unwrap_err();
    assert!(matches!(declined, Error::Declined { .. }), "{declined}");
    options.fall_back = true;
    let put = client.upload_part_with(part, &buffer, 0..10, &options).await.unwrap();
    assert_eq!(put.carrier, Carrier::Http);
    let parts = [CompletedPart { number: 3, etag: put.etag }];
    client.complete_multipart_with("b", "k", &id, &parts, &options).await.unwrap();

    let requests = server.requests();
    assert_eq!(requests[0].header("x-amz-checksum-algorithm"), Some("CRC64NVME"));
    assert_eq!(requests[0].header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    for request in &requests[1..] {
        assert_eq!(request.header("x-amz-checksum-crc64nvme"), Some("AAAAAAAAAAA="));
        assert!(request.signed_headers().contains(&"x-amz-checksum-crc64nvme"));
    }
    assert_eq!(requests[3].body, [7; 10]);
}
