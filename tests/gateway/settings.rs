//! Copies, tags, versions, locks, ACLs.

use http::Method;

use crate::fixture::{ACCESS, Answer, TestGateway, pattern};

async fn copy(gateway: &TestGateway, from: &str, to: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = gateway
        .request(Method::PUT, &format!("/bucket/{to}"))
        .header("x-amz-copy-source", format!("bucket/{from}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies() {
    let gateway = TestGateway::plain().await;
    let data = pattern(2_000_000, 1);
    let put = gateway
        .request(Method::PUT, "/bucket/a%20b")
        .header("content-type", "text/x-test")
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-tagging", "a=1")
        .body(data.clone())
        .send()
        .await
        .ok();
    let copied = copy(&gateway, "a%20b", "copy", &[]).await.ok();
    assert_eq!(copied.element("ETag").as_deref(), Some(put.header("etag")));
    let got = gateway.get("copy").await.ok();
    assert!(got.body == data);
    assert_eq!((got.header("content-type"), got.header("x-amz-meta-colour")), ("text/x-test", "blue"));
    assert_eq!(got.header("x-amz-tagging-count"), "1");
    let replace = [
        ("x-amz-metadata-directive", "REPLACE"),
        ("x-amz-tagging-directive", "REPLACE"),
        ("x-amz-meta-size", "large"),
    ];
    copy(&gateway, "copy", "copy", &replace).await.ok();
    let got = gateway.get("copy").await.ok();
    assert!(got.body == data);
    assert_eq!((got.header("x-amz-meta-colour"), got.header("x-amz-meta-size")), ("", "large"));
    assert_eq!(got.header("x-amz-tagging-count"), "");
    let with_sum = copy(&gateway, "a%20b", "sum", &[("x-amz-checksum-algorithm", "SHA256")]).await.ok();
    assert!(with_sum.element("ChecksumSHA256").is_some(), "{}", with_sum.text());
}

#[tokio::test]
async fn what_copies_refuse() {
    let gateway = TestGateway::plain().await;
    let etag = gateway.put("key", "data").await.ok().header("etag").to_owned();
    copy(&gateway, "key", "key", &[]).await.fails(400, "InvalidRequest");
    copy(&gateway, "missing", "copy", &[]).await.fails(404, "NoSuchKey");
    copy(&gateway, "key", "copy", &[("x-amz-copy-source-if-match", "\"no\"")])
        .await
        .fails(412, "PreconditionFailed");
    copy(&gateway, "key", "copy", &[("x-amz-copy-source-if-none-match", &etag)])
        .await
        .fails(412, "PreconditionFailed");
    copy(&gateway, "key", "copy", &[("x-amz-metadata-directive", "MIX")]).await.fails(400, "InvalidArgument");
    copy(&gateway, "key", "key", &[("if-none-match", "*"), ("x-amz-metadata-directive", "REPLACE")])
        .await
        .fails(412, "PreconditionFailed");
    gateway.get("copy").await.fails(404, "NoSuchKey");
    copy(&gateway, "key", "copy", &[("x-amz-copy-source-if-match", &etag)]).await.ok();
}

#[tokio::test]
async fn tags_of_objects_and_buckets() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "data").await.ok();
    let tagging = |pairs: &[(&str, &str)]| {
        let set: String =
            pairs.iter().map(|(k, v)| format!("<Tag><Key>{k}</Key><Value>{v}</Value></Tag>")).collect();
        format!("<Tagging><TagSet>{set}</TagSet></Tagging>")
    };
    for path in ["/bucket/key?tagging", "/bucket?tagging"] {
        let put = |pairs: &[(&str, &str)]| gateway.request(Method::PUT, path).body(tagging(pairs)).send();
        put(&[("a", "1"), ("b", "2")]).await.ok();
        let got = gateway.request(Method::GET, path).send().await.ok();
        assert_eq!(
            (got.elements("Key"), got.elements("Value")),
            (vec!["a".into(), "b".into()], vec!["1".into(), "2".into()])
        );
        put(&[("a", "1"), ("a", "2")]).await.fails(400, "InvalidTag");
        assert_eq!(gateway.request(Method::DELETE, path).send().await.status, 204);
    }
    gateway.request(Method::GET, "/bucket?tagging").send().await.fails(404, "NoSuchTagSet");
    assert!(gateway.request(Method::GET, "/bucket/key?tagging").send().await.ok().elements("Key").is_empty());
    gateway.request(Method::GET, "/bucket/missing?tagging").send().await.fails(404, "NoSuchKey");
}

/// A gateway with a directory for versions.
async fn versioned() -> (TestGateway, tempfile::TempDir) {
    let versions = tempfile::tempdir().unwrap();
    let directory = versions.path().to_owned();
    let gateway = TestGateway::plain_with(|c| c.store.versioning_dir = Some(directory)).await;
    (gateway, versions)
}

async fn set_versioning(gateway: &TestGateway, status: &str) {
    let document = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
    gateway.request(Method::PUT, "/bucket?versioning").body(document).send().await.ok();
}

#[tokio::test]
async fn versions() {
    let (gateway, _directory) = versioned().await;
    assert_eq!(gateway.request(Method::GET, "/bucket?versioning").send().await.ok().element("Status"), None);
    set_versioning(&gateway, "Enabled").await;
    let status = gateway.request(Method::GET, "/bucket?versioning").send().await.ok().element("Status");
    assert_eq!(status.as_deref(), Some("Enabled"));
    let one = gateway.put("key", "one").await.ok().header("x-amz-version-id").to_owned();
    let two = gateway.put("key", "two").await.ok().header("x-amz-version-id").to_owned();
    assert!(!one.is_empty() && one != two);
    let get =
        |version: &str| gateway.request(Method::GET, &format!("/bucket/key?versionId={version}")).send();
    assert_eq!((get(&one).await.ok().text(), get(&two).await.ok().text()), ("one".into(), "two".into()));
    let marker = gateway.request(Method::DELETE, "/bucket/key").send().await;
    assert_eq!(marker.header("x-amz-delete-marker"), "true");
    let marker = marker.header("x-amz-version-id").to_owned();
    let gone = gateway.get("key").await;
    gone.fails(404, "NoSuchKey");
    assert_eq!(gone.header("x-amz-delete-marker"), "true");
    get(&marker).await.fails(405, "MethodNotAllowed");
    let listed = gateway.request(Method::GET, "/bucket?versions").send().await.ok();
    assert_eq!(
        listed.elements("VersionId"),
        [marker.clone(), two.clone(), one.clone()]
            .into_iter()
            .filter(|v| listed.text().contains(v.as_str()))
            .collect::<Vec<_>>()
    );
    assert_eq!(listed.text().matches("<DeleteMarker>").count(), 1);
    assert_eq!(listed.text().matches("<Version>").count(), 2);
    gateway.request(Method::DELETE, &format!("/bucket/key?versionId={marker}")).send().await;
    assert_eq!(gateway.get("key").await.ok().text(), "two");
    gateway.request(Method::DELETE, &format!("/bucket/key?versionId={two}")).send().await;
    assert_eq!(gateway.get("key").await.ok().text(), "one");
}

#[tokio::test]
async fn without_a_versioning_directory() {
    let gateway = TestGateway::plain().await;
    let document = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let put = gateway.request(Method::PUT, "/bucket?versioning").body(document).send().await;
    put.fails(501, "NotImplemented");
    gateway.put("key", "x").await.ok();
    let listed = gateway.request(Method::GET, "/bucket?versions").send().await.ok();
    assert_eq!(listed.elements("VersionId"), ["null"]);
}

#[tokio::test]
async fn locks_hold() {
    let (gateway, _directory) = versioned().await;
    let create = gateway.request(Method::PUT, "/locked").header("x-amz-bucket-object-lock-enabled", "true");
    create.send().await.ok();
    let shown = gateway.request(Method::GET, "/locked?object-lock").send().await.ok();
    assert_eq!(shown.element("ObjectLockEnabled").as_deref(), Some("Enabled"));
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                <Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    gateway.request(Method::PUT, "/locked?object-lock").body(rule).send().await.ok();
    let put = gateway.request(Method::PUT, "/locked/key").body("data").send().await.ok();
    let version = put.header("x-amz-version-id").to_owned();
    let head = gateway.request(Method::HEAD, "/locked/key").send().await.ok();
    assert_eq!(head.header("x-amz-object-lock-mode"), "GOVERNANCE");
    assert!(!head.header("x-amz-object-lock-retain-until-date").is_empty());
    let path = format!("/locked/key?versionId={version}");
    gateway.request(Method::DELETE, &path).send().await.fails(403, "AccessDenied");
    let hold = "<LegalHold><Status>ON</Status></LegalHold>";
    gateway.request(Method::PUT, "/locked/key?legal-hold").body(hold).send().await.ok();
    let held = gateway.request(Method::GET, "/locked/key?legal-hold").send().await.ok();
    assert_eq!(held.element("Status").as_deref(), Some("ON"));
    let bypass =
        || gateway.request(Method::DELETE, &path).header("x-amz-bypass-governance-retention", "true");
    bypass().send().await.fails(403, "AccessDenied");
    let off = hold.replace("ON", "OFF");
    gateway.request(Method::PUT, "/locked/key?legal-hold").body(off).send().await.ok();
    assert_eq!(bypass().send().await.status, 204);
    let until = "<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>2999-01-01T00:00:00Z</RetainUntilDate></Retention>";
    gateway
        .request(Method::PUT, "/bucket/key?retention")
        .body(until)
        .send()
        .await
        .fails(400, "InvalidRequest");
    gateway
        .request(Method::GET, "/bucket?object-lock")
        .send()
        .await
        .fails(404, "ObjectLockConfigurationNotFoundError");
}

#[tokio::test]
async fn acls_and_ownership() {
    let gateway = TestGateway::plain().await;
    gateway.request(Method::PUT, "/mine").send().await.ok();
    let acl = gateway.request(Method::GET, "/mine?acl").send().await.ok();
    assert_eq!(acl.element("Permission").as_deref(), Some("FULL_CONTROL"));
    assert!(acl.elements("ID").iter().all(|id| id == ACCESS));
    let shown = gateway.request(Method::GET, "/mine?ownershipControls").send().await.ok();
    assert_eq!(shown.element("ObjectOwnership").as_deref(), Some("BucketOwnerEnforced"));
    let policy = "<AccessControlPolicy><Owner><ID>x</ID></Owner><AccessControlList><Grant>\
        <Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\"><ID>test-access</ID></Grantee>\
        <Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>";
    let put = || gateway.request(Method::PUT, "/mine?acl").body(policy);
    put().send().await.fails(400, "AccessControlListNotSupported");
    let writer = "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerPreferred</ObjectOwnership></Rule></OwnershipControls>";
    gateway.request(Method::PUT, "/mine?ownershipControls").body(writer).send().await.ok();
    put().send().await.ok();
    let acl = gateway.request(Method::GET, "/mine?acl").send().await.ok();
    assert_eq!(acl.elements("Permission"), ["READ"], "{}", acl.text());
    gateway.request(Method::PUT, "/mine?acl").header("x-amz-acl", "private").send().await.ok();
    assert_eq!(gateway.request(Method::DELETE, "/mine?ownershipControls").send().await.status, 204);
    gateway
        .request(Method::GET, "/mine?ownershipControls")
        .send()
        .await
        .fails(404, "OwnershipControlsNotFoundError");
    gateway.request(Method::PUT, "/mine/key").body("x").send().await.ok();
    let object = gateway.request(Method::GET, "/mine/key?acl").send().await.ok();
    assert_eq!(object.element("Permission").as_deref(), Some("FULL_CONTROL"));
}
