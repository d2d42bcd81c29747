//! Objects over HTTP: bytes, headers, ranges, conditions.

use http::Method;
use test_case::test_case;

use crate::fixture::{TestGateway, md5_hex, pattern};

#[tokio::test(flavor = "multi_thread")]
async fn bytes_come_back() {
    let gateway = TestGateway::plain().await;
    for length in [0, 1, 4095, 65_536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000] {
        let data = pattern(length, 3);
        let put = gateway.put("dir/an%20object", data.clone()).await.ok();
        assert_eq!(put.header("etag"), format!("\"{}\"", md5_hex(&data)));
        let got = gateway.get("dir/an%20object").await.ok();
        assert!(got.body == data, "{length}");
        assert_eq!(got.header("content-length"), length.to_string());
        assert_eq!(got.header("etag"), put.header("etag"));
        assert_eq!(got.header("content-type"), "binary/octet-stream");
        assert_eq!(got.header("accept-ranges"), "bytes");
        assert!(!got.header("last-modified").is_empty());
        assert_eq!(std::fs::read(gateway.file("dir/an object")).unwrap(), data);
        let head = gateway.head("dir/an%20object").await.ok();
        assert_eq!(head.header("content-length"), length.to_string());
        assert!(head.body.is_empty());
    }
    assert_eq!(gateway.debris(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn headers_and_metadata_come_back() {
    let gateway = TestGateway::plain().await;
    let sent = [
        ("content-type", "text/x-test; charset=utf-8"),
        ("content-encoding", "gzip"),
        ("content-disposition", "attachment; filename=\"x\""),
        ("content-language", "de"),
        ("cache-control", "no-store"),
        ("expires", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ("x-amz-website-redirect-location", "/elsewhere"),
        ("x-amz-meta-colour", "blue"),
        ("x-amz-meta-empty", ""),
    ];
    let mut put = gateway.request(Method::PUT, "/bucket/key").body("x").header("x-amz-tagging", "a=1&b=2");
    for (name, value) in sent {
        put = put.header(name, value);
    }
    put.send().await.ok();
    for answer in [gateway.get("key").await.ok(), gateway.head("key").await.ok()] {
        for (name, value) in sent {
            assert_eq!(answer.header(name), value, "{name}");
        }
    }
    assert_eq!(gateway.get("key").await.header("x-amz-tagging-count"), "2");
    let query =
        "response-content-type=text/plain&response-cache-control=max-age%3D1&response-content-language=fr";
    let answer = gateway.request(Method::GET, &format!("/bucket/key?{query}")).send().await.ok();
    assert_eq!(answer.header("content-type"), "text/plain");
    assert_eq!(answer.header("cache-control"), "max-age=1");
    assert_eq!(answer.header("content-language"), "fr");
    assert_eq!(answer.header("content-encoding"), "gzip");
}

#[tokio::test]
async fn what_is_asked_for_and_not_done_is_refused() {
    let gateway = TestGateway::plain().await;
    for (name, value, code) in [
        ("x-amz-server-side-encryption", "AES256", "NotImplemented"),
        ("x-amz-storage-class", "GLACIER", "InvalidStorageClass"),
        ("x-amz-acl", "public-read", "AccessControlListNotSupported"),
        ("x-amz-object-lock-mode", "GOVERNANCE", "InvalidArgument"),
        ("x-amz-object-lock-legal-hold", "ON", "InvalidRequest"),
        ("x-amz-website-redirect-location", "nowhere", "InvalidRedirectLocation"),
        ("x-amz-tagging", "a=1&a=2", "InvalidTag"),
        ("x-amz-meta-large", &"x".repeat(3000), "MetadataTooLarge"),
    ] {
        let answer = gateway.request(Method::PUT, "/bucket/key").header(name, value).body("x").send().await;
        assert_eq!(answer.error().1, code, "{name}: {}", answer.text());
    }
    gateway.get("key").await.fails(404, "NoSuchKey");
}

#[test_case("bytes=0-0" => (206, 0..1))]
#[test_case("bytes=10-19" => (206, 10..20))]
#[test_case("bytes=300000-" => (206, 300_000..700_000))]
#[test_case("bytes=-5" => (206, 699_995..700_000))]
#[test_case("bytes=-9999999" => (206, 0..700_000))]
#[test_case("bytes=0-9999999" => (206, 0..700_000))]
#[test_case("bytes=700000-" => (416, 0..0))]
#[test_case("bytes=-0" => (416, 0..0))]
#[tokio::test(flavor = "multi_thread")]
async fn ranges(range: &str) -> (u16, std::ops::Range<usize>) {
    let gateway = TestGateway::plain().await;
    let data = pattern(700_000, 1);
    gateway.put("key", data.clone()).await.ok();
    let got = gateway.request(Method::GET, "/bucket/key").header("range", range).send().await;
    let head = gateway.request(Method::HEAD, "/bucket/key").header("range", range).send().await;
    assert_eq!(head.status, got.status);
    let shown = got.header("content-range");
    assert_eq!(head.header("content-range"), shown);
    if got.status == 416 {
        got.fails(416, "InvalidRange");
        assert_eq!(shown, "bytes */700000");
        return (416, 0..0);
    }
    let (first, last) =
        shown.strip_prefix("bytes ").unwrap().strip_suffix("/700000").unwrap().split_once('-').unwrap();
    let span = first.parse().unwrap()..last.parse::<usize>().unwrap() + 1;
    assert!(got.body == data[span.clone()]);
    assert_eq!(head.header("content-length"), span.len().to_string());
    (got.status.as_u16(), span)
}

#[tokio::test]
async fn conditions_of_reads() {
    let gateway = TestGateway::plain().await;
    let etag = gateway.put("key", "data").await.ok().header("etag").to_owned();
    for method in [Method::GET, Method::HEAD] {
        let status = async |name: &str, value: &str| {
            gateway.request(method.clone(), "/bucket/key").header(name, value).send().await
        };
        assert_eq!(status("if-match", &etag).await.status, 200);
        assert_eq!(status("if-match", "\"no\"").await.status, 412);
        assert_eq!(status("if-none-match", "\"no\"").await.status, 200);
        let unchanged = status("if-none-match", &etag).await;
        assert_eq!(unchanged.status, 304);
        assert_eq!(unchanged.header("etag"), etag);
        assert!(unchanged.body.is_empty());
        assert_eq!(unchanged.header("content-type"), "");
        assert_eq!(status("if-modified-since", "Wed, 21 Oct 2015 07:28:00 GMT").await.status, 200);
        assert_eq!(status("if-modified-since", "Wed, 21 Oct 2099 07:28:00 GMT").await.status, 304);
        assert_eq!(status("if-unmodified-since", "Wed, 21 Oct 2015 07:28:00 GMT").await.status, 412);
    }
}

#[tokio::test]
async fn conditions_of_writes() {
    let gateway = TestGateway::plain().await;
    let put = async |name: &str, value: &str| {
        gateway.request(Method::PUT, "/bucket/key").header(name, value).body("data").send().await
    };
    put("if-match", "\"abc\"").await.fails(404, "NoSuchKey");
    let etag = put("if-none-match", "*").await.ok().header("etag").to_owned();
    put("if-none-match", "*").await.fails(412, "PreconditionFailed");
    put("if-match", "\"abc\"").await.fails(412, "PreconditionFailed");
    put("if-match", &etag).await.ok();
    put("if-none-match", "\"abc\"").await.ok();
    put("if-none-match", &etag).await.fails(412, "PreconditionFailed");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_creators_wins() {
    let gateway = TestGateway::plain().await;
    let puts = (0..16).map(|i| {
        gateway.request(Method::PUT, "/bucket/race").header("if-none-match", "*").body(format!("{i}")).send()
    });
    let answers = futures_util::future::join_all(puts).await;
    let won: Vec<_> = answers.iter().filter(|a| a.status == 200).collect();
    assert_eq!(won.len(), 1);
    assert!(answers.iter().all(|a| matches!(a.status.as_u16(), 200 | 412 | 409)));
}

#[tokio::test]
async fn hostile_and_impossible_keys() {
    let gateway = TestGateway::plain().await;
    for key in ["a//b", "a/../b", "./a", "a/..", "%2e%2e/x", ".sgwtmp/x", "a/./b", "a%00b"] {
        let answer = gateway.put(key, "x").await;
        assert!(answer.status.is_client_error(), "{key}: {}", answer.status);
        assert!(gateway.get(key).await.status.is_client_error(), "{key}");
    }
    gateway.put(&"k".repeat(256), "x").await.fails(400, "KeyTooLongError");
    gateway.put(&"k/".repeat(600), "x").await.fails(400, "KeyTooLongError");
    gateway.put("file", "x").await.ok();
    gateway.put("file/below", "x").await.fails(409, "InvalidRequest");
    gateway.get("missing").await.fails(404, "NoSuchKey");
    gateway.request(Method::GET, "/no-such-bucket/key").send().await.fails(404, "NoSuchBucket");
    gateway.request(Method::PUT, "/no-such-bucket/key").body("x").send().await.fails(404, "NoSuchBucket");
    assert!(!gateway.root.path().join("no-such-bucket").exists());
}

#[tokio::test]
async fn deletes() {
    let gateway = TestGateway::plain().await;
    let etag = gateway.put("a/b", "x").await.ok().header("etag").to_owned();
    let delete = |key: &str| gateway.request(Method::DELETE, &format!("/bucket/{key}"));
    delete("a/b").header("if-match", "\"no\"").send().await.fails(412, "PreconditionFailed");
    assert_eq!(delete("a/b").header("if-match", &etag).send().await.status, 204);
    assert_eq!(delete("a/b").send().await.status, 204);
    for key in ["x1", "x2", "x3"] {
        gateway.put(key, "x").await.ok();
    }
    let document = "<Delete><Object><Key>x1</Key></Object><Object><Key>x2</Key></Object><Object><Key>gone</Key></Object>\
                    <Object><Key>a//b</Key></Object></Delete>";
    let answer = gateway.request(Method::POST, "/bucket?delete").body(document).send().await.ok();
    let deleted = answer.text().split("<Error>").next().unwrap().matches("<Deleted>").count();
    assert_eq!(deleted, 3, "{}", answer.text());
    assert_eq!(answer.element("Code").as_deref(), Some("InvalidArgument"));
    gateway.get("x1").await.fails(404, "NoSuchKey");
    gateway.get("x3").await.ok();
    let quiet = "<Delete><Quiet>true</Quiet><Object><Key>x3</Key></Object></Delete>";
    let answer = gateway.request(Method::POST, "/bucket?delete").body(quiet).send().await.ok();
    assert!(!answer.text().contains("<Deleted>"));
    gateway.get("x3").await.fails(404, "NoSuchKey");
    gateway
        .request(Method::POST, "/bucket?delete")
        .body("<Delete></Delete>")
        .send()
        .await
        .fails(400, "MalformedXML");
    gateway
        .request(Method::POST, "/no-such-bucket?delete")
        .body(quiet)
        .send()
        .await
        .fails(404, "NoSuchBucket");
}

#[tokio::test]
async fn an_overwrite_does_not_mix_with_a_read() {
    let gateway = TestGateway::plain().await;
    let old = pattern(6 << 20, 1);
    gateway.put("key", old.clone()).await.ok();
    // Ask for it and read only the head, so that most of it is still to be read from the file.
    let mut stream = gateway.request(Method::GET, "/bucket/key").half_sent(0, b"").await;
    let mut start = vec![0; 1000];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut start).await.unwrap();
    gateway.put("key", pattern(6 << 20, 2)).await.ok();
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
    let _ = tokio::time::timeout(std::time::Duration::from_millis(1500), read).await;
    start.extend(rest);
    let at = start.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    assert!(start[at..] == old);
}
