//! What replies mean.

use std::sync::atomic::Ordering;

use test_case::test_case;
use vgwrdma::client::headers::RDMA_TOKEN;
use vgwrdma::client::testing::VecMemory;
use vgwrdma::client::{Breach, Buffer, Carrier, Error, GetOptions, PutOptions};
use vgwrdma::rdma::Descriptor;

use crate::server::{Reply, Server};
use crate::{buffer, builder, client};

async fn put(reply: Reply) -> Error {
    let server = Server::start(move |_, _| reply.clone());
    let (buffer, _) = buffer(&[7; 10]);
    client(&server).put("bucket", "key", &buffer, 0..10).await.unwrap_err()
}

async fn get(reply: Reply) -> Error {
    let server = Server::start(move |_, _| reply.clone());
    let (mut buffer, _) = buffer(&[7; 10]);
    client(&server).get("bucket", "key", &mut buffer, &GetOptions::exactly(10)).await.unwrap_err()
}

fn breach(error: Error) -> Breach {
    match error {
        Error::Reply { breach, .. } => breach,
        other => panic!("{other:?} is no breach of the protocol"),
    }
}

#[tokio::test]
async fn a_success_without_a_reply_header_stored_nothing() {
    let plain = Reply::new(200, &[("ETag", "\"e\"")], b"");
    let error = put(plain.clone()).await;
    assert!(error.to_string().contains("may have stored an empty object"), "{error}");
    assert_eq!(breach(error), Breach::NotConfirmed { upload: true });
    assert_eq!(breach(get(plain).await), Breach::NotConfirmed { upload: false });
}

#[tokio::test]
async fn the_byte_count_must_be_the_size() {
    assert_eq!(breach(put(Reply::rdma(200, 9)).await), Breach::ByteCount { transferred: 9, expected: 10 });
    assert_eq!(breach(get(Reply::rdma(200, 9)).await), Breach::ByteCount { transferred: 9, expected: 10 });
    assert_eq!(breach(get(Reply::rdma(200, 11)).await), Breach::Overrun { transferred: 11, window: 10 });
    let uncounted = Reply::new(200, &[("x-amz-rdma-reply", "200")], b"");
    assert_eq!(breach(put(uncounted).await), Breach::NoByteCount);
}

#[tokio::test]
async fn the_reply_must_equal_the_status() {
    let differs =
        Reply::new(200, &[("x-amz-rdma-reply", "206"), ("x-amz-rdma-bytes-transferred", "10")], b"");
    assert_eq!(breach(put(differs).await), Breach::ReplyMismatch { reply: 206, status: 200 });
}

#[tokio::test]
async fn a_range_that_was_ignored_is_noticed() {
    let server = Server::start(|_, _| Reply::rdma(200, 5));
    let (mut buffer, _) = buffer(&[7; 10]);
    let error = client(&server).get_range("bucket", "key", 5..10, &mut buffer, 0).await.unwrap_err();
    assert!(matches!(breach(error), Breach::Range { .. }));
}

#[test_case(Reply::error(501, "NotImplemented", "no RDMA here"); "by status")]
#[test_case(Reply::new(200, &[("x-amz-rdma-reply", "501")], b""); "by reply")]
#[tokio::test]
async fn a_declined_put_is_told_and_not_tried_again(reply: Reply) {
    let server = Server::start(move |_, _| reply.clone());
    let (buffer, _) = buffer(&[7; 10]);
    let error = client(&server).put("bucket", "key", &buffer, 0..10).await.unwrap_err();
    assert!(matches!(error, Error::Declined { .. }), "{error:?}");
    assert!(error.to_string().contains("--rdma-ip"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_declined_put_goes_over_http_only_when_asked() {
    let server = Server::start(|request, _| match request.header(RDMA_TOKEN) {
        Some(_) => Reply::error(501, "NotImplemented", "no RDMA here"),
        None => Reply::new(200, &[("ETag", "\"e\"")], b""),
    });
    let (buffer, _) = buffer(b"some bytes");
    let mut options = PutOptions::default();
    options.fall_back = true;
    let put = client(&server).put_with("bucket", "key", &buffer, 0..10, &options).await.unwrap();
    assert_eq!(put.carrier, Carrier::Http);
    assert_eq!(server.requests()[1].body, b"some bytes");
}

#[tokio::test]
async fn a_declined_get_has_the_object_in_its_body() {
    let server = Server::start(|_, _| Reply::new(200, &[("x-amz-rdma-reply", "501")], b"some bytes"));
    let (mut buffer, _) = buffer(&[0; 10]);
    let client = client(&server);
    let error = client.get("bucket", "key", &mut buffer, &GetOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Declined { .. }), "{error:?}");
    let mut options = GetOptions::default();
    options.fall_back = true;
    let got = client.get("bucket", "key", &mut buffer, &options).await.unwrap();
    assert_eq!((got.bytes, got.carrier), (10, Carrier::Http));
    let mut out = [0; 10];
    buffer.copy_out(0, &mut out).unwrap();
    assert_eq!(&out, b"some bytes");
}

#[tokio::test]
async fn s3_errors_have_code_message_and_request() {
    let error = put(Reply::error(403, "SignatureDoesNotMatch", "check your key &amp; clock")).await;
    assert_eq!(error.s3_code(), Some("SignatureDoesNotMatch"));
    let text = error.to_string();
    assert!(
        text.contains("PUT bucket/key: 403 Forbidden SignatureDoesNotMatch: check your key & clock"),
        "{text}"
    );
    assert!(text.contains("REQ1"), "{text}");
}

#[tokio::test]
async fn errors_without_a_document_keep_their_status() {
    let error = put(Reply::new(400, &[], b"<html>\n bad  request</html>")).await;
    assert_eq!(error.s3_code(), Some("BadRequest"));
    assert!(error.to_string().contains("<html> bad request</html>"), "{error}");
    let error = put(Reply::new(404, &[], b"")).await;
    assert!(error.to_string().contains("no message"), "{error}");
}

#[test_case(Reply::error(503, "SlowDown", "no buffer is free"); "busy")]
#[test_case(Reply::close(); "connection lost")]
#[test_case(Reply::SendAndClose(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()); "head cut off")]
#[test_case(Reply::SendAndClose(b"garbage\r\n\r\n".to_vec()); "not http")]
#[tokio::test]
async fn passing_failures_are_tried_again(first: Reply) {
    let server =
        Server::start(move |_, number| if number == 0 { first.clone() } else { Reply::rdma(200, 10) });
    let (buffer, _) = buffer(&[7; 10]);
    let put = client(&server).put("bucket", "key", &buffer, 0..10).await.unwrap();
    assert_eq!(put.attempts, 2);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn attempts_end() {
    let server = Server::start(|_, _| Reply::error(503, "SlowDown", "later"));
    let (buffer, _) = buffer(&[7; 10]);
    let error = client(&server).put("bucket", "key", &buffer, 0..10).await.unwrap_err();
    assert_eq!(error.s3_code(), Some("SlowDown"));
    assert_eq!(server.requests().len(), 2);
}

/// The gateway may still be writing for the first request when the second is sent.
#[tokio::test]
async fn a_get_that_was_not_answered_loses_its_access_before_the_next() {
    let memory = VecMemory::new(10);
    let (peer, revoked) = (memory.peer(), memory.revocations());
    let server = Server::start(move |_, number| {
        peer.write(0, b"some bytes");
        if number == 0 { Reply::close() } else { Reply::rdma(200, 10) }
    });
    let mut buffer = Buffer::new(memory);
    client(&server).get("bucket", "key", &mut buffer, &GetOptions::exactly(10)).await.unwrap();
    assert_eq!(revoked.load(Ordering::Relaxed), 1);
    let rkeys: Vec<u32> = server
        .requests()
        .iter()
        .map(|request| Descriptor::parse(request.header(RDMA_TOKEN).unwrap()).unwrap().rkey)
        .collect();
    assert_ne!(rkeys[0], rkeys[1]);
}

#[tokio::test]
async fn a_get_that_was_given_up_loses_its_access_before_the_bytes_are_seen() {
    let memory = VecMemory::new(10);
    let revoked = memory.revocations();
    let (told, waiting) = std::sync::mpsc::channel();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let server = Server::start(move |_, _| {
        told.send(()).unwrap();
        let _ = held.recv();
        Reply::close()
    });
    let mut buffer = Buffer::new(memory);
    let client = builder(&server).attempts(1).build().unwrap();
    {
        let options = GetOptions::exactly(10);
        let request = client.get("bucket", "key", &mut buffer, &options);
        let arrived = tokio::task::spawn_blocking(move || waiting.recv().unwrap());
        tokio::select! {
            done = request => panic!("answered: {done:?}"),
            arrived = arrived => arrived.unwrap(),
        }
    }
    assert_eq!(revoked.load(Ordering::Relaxed), 0);
    buffer.copy_out(0, &mut [0; 10]).unwrap();
    assert_eq!(revoked.load(Ordering::Relaxed), 1);
    drop(release);
}

#[tokio::test]
async fn a_reply_that_does_not_come_times_out() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let server = Server::start(move |_, _| {
        let _ = held.recv();
        Reply::close()
    });
    let (buffer, _) = buffer(&[7; 10]);
    let timeouts =
        vgwrdma::client::Timeouts { reply: std::time::Duration::from_millis(50), ..Default::default() };
    let client = builder(&server).timeouts(timeouts).attempts(1).build().unwrap();
    let error = client.put("bucket", "key", &buffer, 0..10).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_eq!(error.to_string(), "PUT bucket/key: no reply within 0.05 s");
    drop(release);
}

#[test_case(Reply::SendAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort".to_vec()), "connection failed"; "cut off")]
#[test_case(Reply::new(200, &[], b"short"), "body has 5 bytes, expected 10"; "too short")]
#[test_case(Reply::new(200, &[], b"rather too long"), "body has 15 bytes, expected 10"; "too long")]
#[test_case(Reply::SendAndClose(b"HTTP/1.1 200 OK\r\n\r\nrather too long".to_vec()), "expected 10"; "too long without a length")]
#[test_case(Reply::SendAndClose(b"HTTP/1.1 200 OK\r\n\r\nshort".to_vec()), "body has 5 bytes, expected 10"; "too short without a length")]
#[tokio::test]
async fn http_bodies_have_their_length(reply: Reply, text: &str) {
    let server = Server::start(move |_, _| reply.clone());
    let (mut buffer, _) = buffer(&[0; 10]);
    let error =
        client(&server).get_http("bucket", "key", &mut buffer, &GetOptions::exactly(10)).await.unwrap_err();
    assert!(error.to_string().contains(text), "{error}");
}

#[tokio::test]
async fn a_bucket_is_made_only_when_absent() {
    let server = Server::start(|request, _| match request.method.as_str() {
        "HEAD" => Reply::Send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => Reply::new(200, &[], b""),
    });
    assert!(client(&server).ensure_bucket("bucket").await.unwrap());
    let there = Server::start(|_, _| Reply::new(200, &[], b""));
    assert!(!client(&there).ensure_bucket("bucket").await.unwrap());
    let raced = Server::start(|request, _| match request.method.as_str() {
        "HEAD" => Reply::Send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => Reply::error(409, "BucketAlreadyOwnedByYou", "it is"),
    });
    assert!(!client(&raced).ensure_bucket("bucket").await.unwrap());
    let forbidden =
        Server::start(|_, _| Reply::Send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec()));
    let error = client(&forbidden).ensure_bucket("bucket").await.unwrap_err();
    assert_eq!(error.status().unwrap(), 403);
}

#[tokio::test]
async fn completion_can_fail_in_the_body_of_a_success() {
    let server = Server::start(|_, _| {
        Reply::new(
            200,
            &[],
            b"<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code><Message>late</Message></Error>",
        )
    });
    let error = client(&server).complete_multipart("bucket", "key", "id", &[]).await.unwrap_err();
    assert_eq!(error.s3_code(), Some("InternalError"));
}

#[tokio::test]
async fn bad_arguments_send_nothing() {
    let server = Server::start(|_, _| Reply::rdma(200, 10));
    let (mut buffer, _) = buffer(&[7; 10]);
    let client = client(&server);
    assert!(client.put("bucket", "key", &buffer, 5..11).await.is_err());
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = client.put("bucket", "key", &buffer, 5..4).await;
    assert!(reversed.is_err());
    assert!(client.put("bucket", "", &buffer, 0..10).await.is_err());
    assert!(client.put("a/b", "key", &buffer, 0..10).await.is_err());
    assert!(client.get_range("bucket", "key", 5..5, &mut buffer, 0).await.is_err());
    assert!(client.get_range("bucket", "key", 0..11, &mut buffer, 0).await.is_err());
    assert!(client.get("bucket", "key", &mut buffer, &GetOptions::exactly(2 << 30)).await.is_err());
    assert!(server.requests().is_empty());
}
