//! Bucket policies over HTTP and RDMA.

use http::Method;
use test_case::test_case;

use crate::people::People;

const READ: &str =
    r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::shop/*"}"#;

#[tokio::test]
async fn set_get_delete() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    people.get("ann", "/shop?policy").await.fails(404, "NoSuchBucketPolicy");
    people.set_policy("shop", &[READ]).await;
    let text = format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{READ}]}}");
    assert_eq!(people.get("ann", "/shop?policy").await.ok().text(), text, "as it was written");
    let status = people.get("ann", "/shop?policyStatus").await.ok();
    assert_eq!(status.element("IsPublic").as_deref(), Some("true"));
    people.get("bob", "/shop?policy").await.fails(403, "AccessDenied");
    people.put("bob", "/shop?policy", &text).await.fails(403, "AccessDenied");
    assert_eq!(people.by("ann", Method::DELETE, "/shop?policy").send().await.status, 204);
    people.get("ann", "/shop?policy").await.fails(404, "NoSuchBucketPolicy");
    let status = people.get("ann", "/shop?policyStatus").await.ok();
    assert_eq!(status.element("IsPublic").as_deref(), Some("false"));
    for wrong in [
        "",
        "nonsense",
        &text.replace("GetObject", "FetchObject"),
        &text.replace("shop/*", "other/*"),
        &text.replace("\"*\"", r#"{"AWS":"nobody-here"}"#),
        &text.replace("\"Effect\"", r#""Condition":{"StringEquals":{"aws:Unknown":"x"}},"Effect""#),
    ] {
        people.put("ann", "/shop?policy", wrong).await.fails(400, "MalformedPolicy");
    }
    people.get("ann", "/shop?policy").await.fails(404, "NoSuchBucketPolicy");
}

#[tokio::test]
async fn anonymous_as_far_as_the_policy_says() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    people.put("ann", "/shop/key", "data").await.ok();
    people.get("nobody", "/shop/key").await.fails(403, "AccessDenied");
    people.set_policy("shop", &[READ]).await;
    assert_eq!(people.get("nobody", "/shop/key").await.ok().text(), "data");
    assert_eq!(people.get("bob", "/shop/key").await.ok().text(), "data");
    people.put("nobody", "/shop/key", "new").await.fails(403, "AccessDenied");
    people.get("nobody", "/shop").await.fails(403, "AccessDenied");
    people.get("nobody", "/shop/key?acl").await.fails(403, "AccessDenied");
    people.get("nobody", "/").await.fails(403, "AccessDenied");
    people.put("nobody", "/bucket-of-nobody", "").await.fails(403, "AccessDenied");
    people.get("nobody", "/no-such-bucket/key").await.fails(404, "NoSuchBucket");
    // Whether a key is missing is known to those who may list.
    people.get("nobody", "/shop/missing").await.fails(403, "AccessDenied");
    assert_eq!(people.by("nobody", Method::HEAD, "/shop/missing").send().await.status, 403);
    let list = r#"{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"arn:aws:s3:::shop","Condition":{"StringLike":{"s3:prefix":"open/*"}}}"#;
    people.set_policy("shop", &[READ, list]).await;
    people.get("nobody", "/shop/open/missing").await.fails(404, "NoSuchKey");
    people.get("nobody", "/shop/missing").await.fails(403, "AccessDenied");
    people.get("nobody", "/shop?prefix=open/").await.ok();
    people.get("nobody", "/shop?prefix=o").await.fails(403, "AccessDenied");
    people.set_policy("shop", &[list]).await;
    people.get("nobody", "/shop/open/missing").await.fails(404, "NoSuchKey");
    people.get("nobody", "/shop/key").await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn a_deny_holds_for_the_owner_and_for_administrators() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    people.put("ann", "/shop/key", "data").await.ok();
    let deny = r#"{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::shop","arn:aws:s3:::shop/*"]}"#;
    people.set_policy("shop", &[READ, deny]).await;
    for name in ["ann", "bob", "eve", "nobody"] {
        people.get(name, "/shop/key").await.fails(403, "AccessDenied");
        people.get(name, "/shop").await.fails(403, "AccessDenied");
        people.put(name, "/shop/key", "new").await.fails(403, "AccessDenied");
        people.by(name, Method::DELETE, "/shop").send().await.fails(403, "AccessDenied");
    }
    people.gateway.request(Method::GET, "/shop/key").send().await.fails(403, "AccessDenied");
    // But not over the way out.
    people.get("ann", "/shop?policy").await.ok();
    assert_eq!(people.by("eve", Method::DELETE, "/shop?policy").send().await.status, 204);
    assert_eq!(people.get("ann", "/shop/key").await.ok().text(), "data");
}

#[tokio::test]
async fn a_policy_that_versitygw_stored_is_evaluated() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    people.put("ann", "/shop/key", "data").await.ok();
    let set = |text: &str| {
        let bucket = std::fs::File::open(people.gateway.root.path().join("shop")).unwrap();
        rustix::fs::fsetxattr(&bucket, "user.policy", text.as_bytes(), rustix::fs::XattrFlags::empty())
            .unwrap();
    };
    set(
        r#"{"Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":["s3:GetObject"],"Resource":["arn:aws:s3:::shop/*"]}]}"#,
    );
    assert_eq!(people.get("bob", "/shop/key").await.ok().text(), "data");
    people.get("nobody", "/shop/key").await.fails(403, "AccessDenied");
    // A condition that is not known here makes the permission none.
    set(
        r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::shop/*","Condition":{"StringEquals":{"aws:Unknown":"x"}}}]}"#,
    );
    people.get("bob", "/shop/key").await.fails(403, "AccessDenied");
    // What is no policy may have been meant to deny.
    set("nonsense");
    people.get("ann", "/shop/key").await.fails(403, "AccessDenied");
    people.get("eve", "/shop/key").await.fails(403, "AccessDenied");
    people.set_policy("shop", &[READ]).await;
    people.get("ann", "/shop/key").await.ok();
}

#[tokio::test]
async fn a_long_policy_is_kept_and_evaluated() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    people.put("ann", "/shop/last", "data").await.ok();
    let key = |name: &str| READ.replace("shop/*", &format!("shop/{name}"));
    // More than fits beside an inode.
    let mut statements: Vec<String> = (0..150).map(|n| key(&format!("some-key-{n}"))).collect();
    statements.push(key("last"));
    people.set_policy("shop", &statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(people.get("nobody", "/shop/last").await.ok().text(), "data");
    people.get("nobody", "/shop/some-key-1").await.fails(403, "AccessDenied");
    assert!(people.get("ann", "/shop?policy").await.ok().text().len() > 15_000);
    let many: Vec<String> = (0..250).map(|n| key(&format!("some-key-{n}"))).collect();
    let text = format!("{{\"Statement\":[{}]}}", many.join(","));
    people.put("ann", "/shop?policy", &text).await.fails(400, "MalformedPolicy");
}

/// A statement about bob.
fn bob(action: &str, resource: &str, condition: &str) -> String {
    format!(
        r#"{{"Effect":"Allow","Principal":{{"AWS":"bob"}},"Action":"{action}","Resource":"arn:aws:s3:::shop/{resource}","Condition":{condition}}}"#
    )
}

#[tokio::test]
async fn tags_decide() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    for (key, tags) in [("open", "class=public"), ("closed", "class=secret"), ("bare", "")] {
        let put = people.by("ann", Method::PUT, &format!("/shop/{key}")).body("x");
        if tags.is_empty() { put } else { put.header("x-amz-tagging", tags) }.send().await.ok();
    }
    let existing = r#"{"StringEquals":{"s3:ExistingObjectTag/class":"public"}}"#;
    let sent = r#"{"StringEquals":{"s3:RequestObjectTag/class":"public"}}"#;
    let statements = [
        bob("s3:GetObject", "*", existing),
        bob("s3:PutObject", "new", sent),
        bob("s3:PutObjectTagging", "*", sent),
    ];
    people.set_policy("shop", &statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
    people.get("bob", "/shop/open").await.ok();
    people.get("bob", "/shop/closed").await.fails(403, "AccessDenied");
    people.get("bob", "/shop/bare").await.fails(403, "AccessDenied");
    people.get("bob", "/shop/open?tagging").await.fails(403, "AccessDenied");
    let put = |tags: &str| {
        people.by("bob", Method::PUT, "/shop/new").body("x").header("x-amz-tagging", tags).send()
    };
    put("class=secret").await.fails(403, "AccessDenied");
    put("class=public").await.ok();
    people.put("bob", "/shop/new", "x").await.fails(403, "AccessDenied");
    let tagging = |value: &str| {
        format!("<Tagging><TagSet><Tag><Key>class</Key><Value>{value}</Value></Tag></TagSet></Tagging>")
    };
    people.put("bob", "/shop/bare?tagging", &tagging("secret")).await.fails(403, "AccessDenied");
    people.put("bob", "/shop/bare?tagging", &tagging("public")).await.ok();
    people.get("bob", "/shop/bare").await.ok();
    people.by("bob", Method::DELETE, "/shop/bare?tagging").send().await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn copies_need_a_right_on_both_sides() {
    let people = People::new().await;
    for bucket in ["shop", "vault"] {
        people.put("ann", &format!("/{bucket}"), "").await.ok();
    }
    people.put("ann", "/vault/open", "open").await.ok();
    people.put("ann", "/vault/closed", "closed").await.ok();
    let tagged = people.by("ann", Method::PUT, "/vault/tagged").header("x-amz-tagging", "a=1").body("t");
    tagged.send().await.ok();
    people.set_policy("shop", &[&bob("s3:*", "*", "{}")]).await;
    let copy =
        |from: &str| people.by("bob", Method::PUT, "/shop/copy").header("x-amz-copy-source", from).send();
    copy("vault/open").await.fails(403, "AccessDenied");
    let read = |key: &str| {
        format!(
            r#"{{"Effect":"Allow","Principal":{{"AWS":"bob"}},"Action":"s3:GetObject","Resource":"arn:aws:s3:::vault/{key}"}}"#
        )
    };
    people.set_policy("vault", &[&read("open"), &read("tagged"), &read("missing")]).await;
    copy("vault/open").await.ok();
    assert_eq!(people.get("bob", "/shop/copy").await.ok().text(), "open");
    copy("vault/closed").await.fails(403, "AccessDenied");
    copy("vault/missing").await.fails(403, "AccessDenied");
    // Tags go along with a copy, and are as little to be read.
    copy("vault/tagged").await.fails(403, "AccessDenied");
    let without_tags = people
        .by("bob", Method::PUT, "/shop/copy")
        .header("x-amz-copy-source", "vault/tagged")
        .header("x-amz-tagging-directive", "REPLACE");
    without_tags.send().await.ok();
    let started = people.by("bob", Method::POST, "/shop/big?uploads").send().await.ok();
    let id = started.element("UploadId").unwrap();
    let part = |from: &str| {
        let path = format!("/shop/big?partNumber=1&uploadId={id}");
        people.by("bob", Method::PUT, &path).header("x-amz-copy-source", from).send()
    };
    part("vault/closed").await.fails(403, "AccessDenied");
    part("vault/open").await.ok();
    let other = people
        .by("bob", Method::PUT, "/shop/copy")
        .header("x-amz-copy-source", "vault/open")
        .header("x-amz-source-expected-bucket-owner", "eve");
    other.send().await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn each_key_of_a_delete_is_asked_about() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    for key in ["keep", "mine-1", "mine-2"] {
        people.put("ann", &format!("/shop/{key}"), "x").await.ok();
    }
    people.set_policy("shop", &[&bob("s3:DeleteObject", "mine-*", "{}")]).await;
    let keys = "<Delete><Object><Key>keep</Key></Object><Object><Key>mine-1</Key></Object></Delete>";
    let answer = people.by("bob", Method::POST, "/shop?delete").body(keys).send().await.ok();
    assert_eq!(answer.elements("Code"), ["AccessDenied"], "{}", answer.text());
    assert!(people.gateway.root.path().join("shop/keep").exists());
    assert!(!people.gateway.root.path().join("shop/mine-1").exists());
    let answer = people.by("nobody", Method::POST, "/shop?delete").body(keys).send().await.ok();
    assert_eq!(answer.elements("Code").len(), 2, "{}", answer.text());
    people.by("bob", Method::DELETE, "/shop/keep").send().await.fails(403, "AccessDenied");
    assert_eq!(people.by("bob", Method::DELETE, "/shop/mine-2").send().await.status, 204);
}

#[tokio::test]
async fn versions_and_uploads_have_rights_of_their_own() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    people.put("ann", "/shop?versioning", enabled).await.ok();
    let first = people.put("ann", "/shop/key", "one").await.ok().header("x-amz-version-id").to_owned();
    people.put("ann", "/shop/key", "two").await.ok();
    people.set_policy("shop", &[&bob("s3:GetObject", "*", "{}"), &bob("s3:PutObject", "*", "{}")]).await;
    assert_eq!(people.get("bob", "/shop/key").await.ok().text(), "two");
    let version = format!("/shop/key?versionId={first}");
    people.get("bob", &version).await.fails(403, "AccessDenied");
    people.by("bob", Method::DELETE, &version).send().await.fails(403, "AccessDenied");
    people
        .set_policy("shop", &[&bob("s3:GetObjectVersion", "*", "{}"), &bob("s3:PutObject", "*", "{}")])
        .await;
    assert_eq!(people.get("bob", &version).await.ok().text(), "one");
    // Who starts an upload may look at it and end it, without further rights.
    let start = || people.by("bob", Method::POST, "/shop/big?uploads").send();
    let id = start().await.ok().element("UploadId").unwrap();
    let of = |id: &str| format!("/shop/big?uploadId={id}");
    let parts = people.get("bob", &of(&id)).await.ok();
    assert!(
        parts.text().contains("<Initiator><DisplayName>bob") || parts.elements("ID").contains(&"bob".into())
    );
    assert_eq!(people.by("bob", Method::DELETE, &of(&id)).send().await.status, 204);
    let anns = people.by("ann", Method::POST, "/shop/big?uploads").send().await.ok();
    let anns = anns.element("UploadId").unwrap();
    people.get("bob", &of(&anns)).await.fails(403, "AccessDenied");
    people.by("bob", Method::DELETE, &of(&anns)).send().await.fails(403, "AccessDenied");
    people.get("bob", "/shop?uploads").await.fails(403, "AccessDenied");
}

#[test_case("x-amz-acl", "bucket-owner-full-control", 403; "denied by its condition")]
#[test_case("x-amz-meta-a", "b", 200; "not asked for")]
#[tokio::test]
async fn an_acl_with_a_write_can_be_denied(name: &str, value: &str, status: u16) {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    let deny =
        r#"{"Effect":"Deny","Principal":"*","Action":"s3:PutObjectAcl","Resource":"arn:aws:s3:::shop/*"}"#;
    people.set_policy("shop", &[&bob("s3:PutObject", "*", "{}"), deny]).await;
    let put = people.by("bob", Method::PUT, "/shop/key").header(name, value).body("x").send().await;
    assert_eq!(put.status, status, "{}", put.text());
}

#[tokio::test]
async fn the_expected_owner_is_compared_everywhere() {
    let people = People::new().await;
    people.put("ann", "/shop", "").await.ok();
    people.put("ann", "/shop/key", "data").await.ok();
    for (method, path) in [
        (Method::GET, "/shop/key"),
        (Method::GET, "/shop"),
        (Method::GET, "/shop?policy"),
        (Method::PUT, "/shop/key"),
        (Method::DELETE, "/shop/key"),
        (Method::GET, "/shop?uploads"),
    ] {
        let request = people.by("ann", method, path).header("x-amz-expected-bucket-owner", "bob");
        request.send().await.fails(403, "AccessDenied");
    }
    let right = people.by("ann", Method::GET, "/shop/key").header("x-amz-expected-bucket-owner", "ann");
    assert_eq!(right.send().await.ok().text(), "data");
}

#[tokio::test]
async fn what_is_refused_moves_no_byte_by_rdma() {
    let people = People::with_rdma().await;
    people.put("ann", "/shop", "").await.ok();
    people.put("ann", "/shop/open", "data").await.ok();
    people.put("ann", "/shop/closed", "data").await.ok();
    let open =
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::shop/open"}"#;
    let deny = r#"{"Effect":"Deny","Principal":{"AWS":"ann"},"Action":"s3:*Object","Resource":"arn:aws:s3:::shop/closed"}"#;
    people.set_policy("shop", &[open, deny]).await;
    let memory = people.gateway.memory.register(b"....");
    for (name, method, path) in [
        ("nobody", Method::GET, "/shop/closed"),
        ("nobody", Method::PUT, "/shop/open"),
        ("nobody", Method::PUT, "/shop/open?partNumber=1&uploadId=x"),
        ("bob", Method::GET, "/shop/closed"),
        ("bob", Method::PUT, "/shop/new"),
        ("ann", Method::GET, "/shop/closed"),
        ("ann", Method::PUT, "/shop/closed"),
    ] {
        people.by(name, method, path).token(&memory).send().await.fails(403, "AccessDenied");
    }
    people.gateway.settle().await;
    let stats = people.gateway.stats();
    assert_eq!((stats.operations_done, stats.transfers_failed), (0, 0));
    assert_eq!(people.gateway.memory.bytes(&memory), b"....");
    assert!(people.gateway.debris().is_empty());
    // What is allowed moves.
    let get = people.by("nobody", Method::GET, "/shop/open").token(&memory).send().await.ok();
    assert_eq!(get.header("x-amz-rdma-reply"), "200");
    assert_eq!(people.gateway.memory.bytes(&memory), b"data");
}
