//! Keys that try to be another key, or what is no object: refused by every operation, over HTTP and RDMA.

use http::Method;
use test_case::test_case;

use crate::fixture::{Answer, TestGateway};

/// The content of everything that no key below may reach.
const SECRET: &str = "another object's bytes";

/// What may never be seen or changed through the keys below.
async fn gateway() -> TestGateway {
    let gateway = TestGateway::with_rdma().await;
    for key in ["a/b", "b", "secret/k"] {
        gateway.put(key, SECRET).await.ok();
    }
    std::fs::create_dir_all(gateway.file("a/.sgwtmp")).unwrap();
    for temporary in ["a/.sgwtmp/x", ".sgwtmp/x"] {
        std::fs::write(gateway.file(temporary), SECRET).unwrap();
    }
    std::fs::create_dir(gateway.root.path().join("other")).unwrap();
    std::fs::write(gateway.root.path().join("other/k"), SECRET).unwrap();
    gateway
}

/// The key is refused; or the signature is, where the client escapes what the canonical form of a path
/// has unescaped.
#[track_caller]
fn refused(answer: &Answer, operation: &str) {
    let error = answer.error();
    let signature = error == (403, "SignatureDoesNotMatch".to_owned());
    assert!(signature || error == (400, "InvalidArgument".to_owned()), "{operation}: {}", answer.text());
    assert!(!answer.text().contains(SECRET), "{operation}");
}

#[test_case("a/../b"; "dot dot")]
#[test_case("a/%2e%2e/b"; "dot dot escaped")]
#[test_case("a%2F..%2Fb"; "slashes escaped")]
#[test_case("..%2Fother%2Fk"; "another bucket")]
#[test_case("a//b"; "double slash")]
#[test_case("/b"; "leading slash")]
#[test_case("./b"; "dot")]
#[test_case("a/./b"; "dot inside")]
#[test_case("a/.."; "dot dot last")]
#[test_case("b%00"; "nul")]
#[test_case(".sgwtmp/x"; "temporary data")]
#[test_case("a/.sgwtmp/x"; "temporary data below")]
#[test_case("a/%2Esgwtmp/x"; "temporary data escaped")]
#[tokio::test(flavor = "multi_thread")]
async fn no_operation_takes_it(key: &str) {
    let gateway = gateway().await;
    let memory = gateway.memory.register(&[7; 4096]);
    let path = format!("/bucket/{key}");
    let request = |method| gateway.request(method, &path);
    let with = |method, query: &str| gateway.request(method, &format!("{path}?{query}"));
    refused(&request(Method::GET).send().await, "get");
    refused(&request(Method::GET).token(&memory).send().await, "get by RDMA");
    assert!(request(Method::HEAD).send().await.status.is_client_error());
    refused(&request(Method::PUT).body("new").send().await, "put");
    refused(&request(Method::PUT).token(&memory).send().await, "put by RDMA");
    refused(&request(Method::DELETE).send().await, "delete");
    refused(&with(Method::DELETE, "versionId=null").send().await, "delete a version");
    refused(&with(Method::GET, "tagging=").send().await, "tags");
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    refused(&with(Method::PUT, "tagging=").body(tags).send().await, "set tags");
    refused(&with(Method::POST, "uploads=").send().await, "create an upload");
    refused(&request(Method::PUT).header("x-amz-copy-source", "/bucket/b").send().await, "copy to it");
    let copied = gateway
        .request(Method::PUT, "/bucket/copied")
        .header("x-amz-copy-source", format!("/bucket/{key}"))
        .send()
        .await;
    assert!(copied.status.is_client_error(), "copy of it: {}", copied.text());
    assert!(!gateway.file("copied").exists());
    assert!(gateway.memory.bytes(&memory) == [7; 4096], "nothing was written to the client");
    for (file, content) in [("a/b", SECRET), ("b", SECRET), (".sgwtmp/x", SECRET)] {
        assert_eq!(std::fs::read_to_string(gateway.file(file)).unwrap(), content);
    }
    let listed = gateway.request(Method::GET, "/bucket?list-type=2").send().await.ok();
    assert_eq!(listed.elements("Key"), ["a/b", "b", "secret/k"]);
}

/// A policy speaks of the key that is served, not of what it would be normalised to.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_not_led_around() {
    let gateway = gateway().await;
    gateway.put("public/k", "for all").await.ok();
    let policy = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
        "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/public/*"}]}"#;
    gateway.request(Method::PUT, "/bucket?policy=").body(policy).send().await.ok();
    let anonymous = |key: &str| gateway.request(Method::GET, &format!("/bucket/{key}")).anonymous();
    assert_eq!(anonymous("public/k").send().await.ok().text(), "for all");
    for key in
        ["secret/k", "public/../secret/k", "public/%2e%2e/secret/k", "public%2F..%2Fsecret%2Fk", "secret%2Fk"]
    {
        let answer = anonymous(key).send().await;
        assert!(answer.status.is_client_error(), "{key}: {} {}", answer.status, answer.text());
        assert!(!answer.text().contains(SECRET), "{key}");
    }
}
