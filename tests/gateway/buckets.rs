//! Buckets over HTTP.

use http::Method;

use crate::fixture::{ACCESS, BUCKET, TestGateway};

#[tokio::test]
async fn create_list_head_delete() {
    let gateway = TestGateway::plain().await;
    let answer = gateway.request(Method::PUT, "/other-bucket").send().await.ok();
    assert_eq!(answer.header("location"), "/other-bucket");
    // As S3 has it in this region.
    gateway.request(Method::PUT, "/other-bucket").send().await.ok();
    let listed = gateway.request(Method::GET, "/").send().await.ok();
    assert_eq!(listed.elements("Name"), [BUCKET, "other-bucket"]);
    assert_eq!(listed.element("ID").as_deref(), Some(ACCESS));
    let head = gateway.request(Method::HEAD, "/other-bucket").send().await.ok();
    assert_eq!(head.header("x-amz-bucket-region"), "us-east-1");
    let location = gateway.request(Method::GET, "/other-bucket?location").send().await.ok();
    assert!(location.text().contains("LocationConstraint"), "{}", location.text());
    assert_eq!(gateway.request(Method::DELETE, "/other-bucket").send().await.status, 204);
    assert_eq!(gateway.request(Method::HEAD, "/other-bucket").send().await.status, 404);
    gateway.request(Method::DELETE, "/other-bucket").send().await.fails(404, "NoSuchBucket");
    gateway.put("key", "x").await.ok();
    gateway.request(Method::DELETE, "/bucket").send().await.fails(409, "BucketNotEmpty");
}

#[tokio::test]
async fn a_bucket_is_made_once_in_other_regions() {
    let gateway = TestGateway::plain_with(|c| c.region = "eu-west-1".into()).await;
    let signer = || crate::sign::Signer { region: "eu-west-1".into(), ..gateway.signer() };
    let create = || gateway.request(Method::PUT, "/other-bucket").signer(signer()).send();
    create().await.ok();
    create().await.fails(409, "BucketAlreadyOwnedByYou");
}

#[tokio::test]
async fn what_create_bucket_refuses() {
    let gateway = TestGateway::plain().await;
    let create = |name: &str| gateway.request(Method::PUT, &format!("/{name}"));
    create("Upper").send().await.fails(400, "InvalidBucketName");
    create("ab").send().await.fails(400, "InvalidBucketName");
    create("192.168.0.1").send().await.fails(400, "InvalidBucketName");
    create("locked")
        .header("x-amz-bucket-object-lock-enabled", "true")
        .send()
        .await
        .fails(501, "NotImplemented");
    create("public")
        .header("x-amz-acl", "public-read")
        .send()
        .await
        .fails(400, "InvalidBucketAclWithObjectOwnership");
    let elsewhere = "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
    create("elsewhere").body(elsewhere).send().await.fails(400, "InvalidLocationConstraint");
    let listed = gateway.request(Method::GET, "/").send().await.ok();
    assert_eq!(listed.elements("Name"), [BUCKET]);
}

#[tokio::test]
async fn pages_of_buckets() {
    let gateway = TestGateway::plain().await;
    for name in ["page-a", "page-b", "page-c"] {
        gateway.request(Method::PUT, &format!("/{name}")).send().await.ok();
    }
    let first = gateway.request(Method::GET, "/?max-buckets=2&prefix=page-").send().await.ok();
    assert_eq!(first.elements("Name"), ["page-a", "page-b"]);
    let token = first.element("ContinuationToken").unwrap();
    let path = format!("/?continuation-token={token}&max-buckets=2&prefix=page-");
    let second = gateway.request(Method::GET, &path).send().await.ok();
    assert_eq!(second.elements("Name"), ["page-c"]);
    assert_eq!(second.element("ContinuationToken"), None);
    gateway.request(Method::GET, "/?max-buckets=0").send().await.fails(400, "InvalidArgument");
}

#[tokio::test]
async fn an_unexpected_owner_is_refused() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "x").await.ok();
    for (method, path) in
        [(Method::HEAD, "/bucket"), (Method::GET, "/bucket/key"), (Method::DELETE, "/bucket/key")]
    {
        let owner = "x-amz-expected-bucket-owner";
        let answer = gateway.request(method.clone(), path).header(owner, "somebody").send().await;
        assert_eq!(answer.status, 403, "{method} {path}");
        if method != Method::DELETE {
            gateway.request(method, path).header(owner, ACCESS).send().await.ok();
        }
    }
    gateway.get("key").await.ok();
}

#[tokio::test]
async fn what_is_not_there_is_not_implemented() {
    let gateway = TestGateway::plain().await;
    for path in ["/bucket?analytics&id=1", "/bucket?replication", "/bucket/key?torrent"] {
        gateway.request(Method::GET, path).send().await.fails(501, "NotImplemented");
    }
}

#[tokio::test]
async fn relaxed_names() {
    let gateway = TestGateway::plain_with(|c| c.store.relaxed_bucket_names = true).await;
    gateway.request(Method::PUT, "/Upper_case").send().await.ok();
    gateway.request(Method::PUT, "/..").send().await.fails(400, "InvalidBucketName");
}

#[tokio::test]
async fn a_read_only_gateway_changes_nothing() {
    let gateway = TestGateway::plain_with(|c| c.store.read_only = true).await;
    std::fs::write(gateway.file("key"), "there").unwrap();
    assert_eq!(gateway.get("key").await.ok().text(), "there");
    gateway.put("key", "x").await.fails(403, "AccessDenied");
    gateway.request(Method::DELETE, "/bucket/key").send().await.fails(403, "AccessDenied");
    gateway
        .request(Method::PUT, "/bucket/copy")
        .header("x-amz-copy-source", "bucket/key")
        .send()
        .await
        .fails(403, "AccessDenied");
    gateway
        .request(Method::PUT, "/bucket/key?partNumber=1&uploadId=x")
        .header("x-amz-copy-source", "bucket/key")
        .send()
        .await
        .fails(403, "AccessDenied");
    gateway.request(Method::PUT, "/new-bucket").send().await.fails(403, "AccessDenied");
    let delete = "<Delete><Object><Key>key</Key></Object></Delete>";
    gateway.request(Method::POST, "/bucket?delete").body(delete).send().await.fails(403, "AccessDenied");
    assert_eq!(std::fs::read_to_string(gateway.file("key")).unwrap(), "there");
}
