//! ACLs of buckets and objects, ownership of objects, and the public access block.

use http::Method;
use test_case::test_case;
use vgwrdma::gateway::config::Ownership;

use crate::people::People;

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";

fn document(owner: &str, grants: &[(&str, &str, &str)]) -> String {
    let grants: String = grants
        .iter()
        .map(|(kind, who, permission)| {
            let element = if *kind == "Group" { "URI" } else { "ID" };
            format!(
                "<Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"{kind}\">\
                 <{element}>{who}</{element}></Grantee><Permission>{permission}</Permission></Grant>"
            )
        })
        .collect();
    format!(
        "<AccessControlPolicy><Owner><ID>{owner}</ID></Owner><AccessControlList>{grants}</AccessControlList>\
         </AccessControlPolicy>"
    )
}

#[tokio::test]
async fn canned_acls_of_buckets() {
    let people = People::with(Ownership::ObjectWriter).await;
    let create = people.by("ann", Method::PUT, "/shop").header("x-amz-acl", "public-read");
    create.send().await.ok();
    let acl = people.get("ann", "/shop?acl").await.ok();
    assert_eq!(acl.elements("Permission"), ["READ", "FULL_CONTROL"]);
    assert_eq!(acl.elements("URI"), [ALL_USERS]);
    people.get("nobody", "/shop").await.ok();
    people.put("nobody", "/shop/key", "x").await.fails(403, "AccessDenied");
    people.get("bob", "/shop?acl").await.fails(403, "AccessDenied");
    let set = |canned: &str| people.by("ann", Method::PUT, "/shop?acl").header("x-amz-acl", canned).send();
    set("authenticated-read").await.ok();
    people.get("nobody", "/shop").await.fails(403, "AccessDenied");
    people.get("bob", "/shop").await.ok();
    set("public-read-write").await.ok();
    people.put("nobody", "/shop/key", "x").await.ok();
    // What somebody anonymous puts is the bucket's owner's.
    assert_eq!(people.get("ann", "/shop/key").await.ok().text(), "x");
    people.get("nobody", "/shop/key").await.fails(403, "AccessDenied");
    let listed = people.get("ann", "/shop").await.ok();
    assert_eq!(listed.elements("ID"), ["ann"]);
    set("public-ready").await.fails(400, "InvalidArgument");
    set("private").await.ok();
    people.get("bob", "/shop").await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn canned_acls_of_objects() {
    let people = People::with(Ownership::ObjectWriter).await;
    people.by("ann", Method::PUT, "/shop").header("x-amz-acl", "public-read-write").send().await.ok();
    let put = |key: &str, canned: &str| {
        people.by("ann", Method::PUT, &format!("/shop/{key}")).header("x-amz-acl", canned).body("x").send()
    };
    put("open", "public-read").await.ok();
    put("closed", "private").await.ok();
    people.get("nobody", "/shop/open").await.ok();
    // The bucket's READ is about its listing.
    people.get("nobody", "/shop/closed").await.fails(403, "AccessDenied");
    people.get("nobody", "/shop/missing").await.fails(404, "NoSuchKey");
    let copy =
        people.by("ann", Method::PUT, "/shop/copy").header("x-amz-copy-source", "shop/open").send().await;
    copy.ok();
    people.get("nobody", "/shop/copy").await.fails(403, "AccessDenied");
    people.by("ann", Method::PUT, "/shop/closed?acl").header("x-amz-acl", "public-read").send().await.ok();
    people.get("nobody", "/shop/closed").await.ok();
    people.put("ann", "/shop/closed", "anew").await.ok();
    people.get("nobody", "/shop/closed").await.fails(403, "AccessDenied");
    // An object of bob's in ann's bucket.
    people.put("bob", "/shop/bobs", "his").await.ok();
    people.get("ann", "/shop/bobs").await.fails(403, "AccessDenied");
    people.get("ann", "/shop/bobs?acl").await.fails(403, "AccessDenied");
    let listed = people.get("ann", "/shop?list-type=2&fetch-owner=true&prefix=bobs").await.ok();
    assert_eq!(listed.elements("ID"), ["bob"]);
    let give = people.by("bob", Method::PUT, "/shop/bobs?acl").header("x-amz-acl", "bucket-owner-read");
    give.send().await.ok();
    assert_eq!(people.get("ann", "/shop/bobs").await.ok().text(), "his");
    assert_eq!(
        people.get("bob", "/shop/bobs?acl").await.ok().elements("Permission"),
        ["FULL_CONTROL", "READ"]
    );
    assert_eq!(people.by("ann", Method::DELETE, "/shop/bobs").send().await.status, 204);
    // A multipart upload carries its ACL to the object.
    let start = people.by("ann", Method::POST, "/shop/big?uploads").header("x-amz-acl", "public-read");
    let id = start.send().await.ok().element("UploadId").unwrap();
    let path = format!("/shop/big?partNumber=1&uploadId={id}");
    let etag = people.put("ann", &path, "data").await.ok().header("etag").to_owned();
    let parts = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let complete = people.by("ann", Method::POST, &format!("/shop/big?uploadId={id}")).body(parts);
    complete.send().await.ok();
    assert_eq!(people.get("nobody", "/shop/big").await.ok().text(), "data");
}

#[tokio::test]
async fn grants_by_header_and_document() {
    let people = People::with(Ownership::ObjectWriter).await;
    let create = people.by("ann", Method::PUT, "/shop").header("x-amz-grant-read", "id=\"bob\"");
    create.header("x-amz-grant-full-control", "id=ann").send().await.ok();
    people.get("bob", "/shop").await.ok();
    people.get("nobody", "/shop").await.fails(403, "AccessDenied");
    let put = people.by("ann", Method::PUT, "/shop/key").header("x-amz-grant-read-acp", "id=bob").body("x");
    put.send().await.ok();
    people.get("bob", "/shop/key?acl").await.ok();
    people.get("bob", "/shop/key").await.fails(403, "AccessDenied");
    let set = |path: &str, grants: &[(&str, &str, &str)]| {
        people.by("ann", Method::PUT, path).body(document("ann", grants)).send()
    };
    let group = ("Group", ALL_USERS, "READ");
    set("/shop/key?acl", &[("CanonicalUser", "bob", "WRITE_ACP"), group]).await.ok();
    people.get("nobody", "/shop/key").await.ok();
    people.put("bob", "/shop/key?acl", &document("ann", &[])).await.ok();
    people.get("nobody", "/shop/key").await.fails(403, "AccessDenied");
    assert_eq!(people.get("ann", "/shop/key").await.ok().text(), "x", "the owner needs no grant");
    set("/shop?acl", &[]).await.ok();
    assert!(people.get("ann", "/shop?acl").await.ok().elements("Grant").is_empty());
    set("/shop?acl", &[("CanonicalUser", "nobody-here", "READ")]).await.fails(400, "InvalidArgument");
    set("/shop?acl", &[("Group", "http://example.com/", "READ")]).await.fails(400, "InvalidArgument");
    set("/shop?acl", &[("CanonicalUser", "bob", "EVERYTHING")]).await.fails(400, "MalformedACLError");
    set("/shop?acl", &[("AmazonCustomerByEmail", "bob", "READ")])
        .await
        .fails(400, "UnresolvableGrantByEmailAddress");
    people.put("ann", "/shop?acl", "").await.fails(400, "MalformedACLError");
    let both = people.by("ann", Method::PUT, "/shop?acl").header("x-amz-acl", "private");
    both.header("x-amz-grant-read", "id=bob").send().await.fails(400, "InvalidRequest");
}

#[tokio::test]
async fn grants_reach_as_far_as_they_say() {
    let people = People::with(Ownership::ObjectWriter).await;
    people.put("ann", "/shared", "").await.ok();
    people.put("ann", "/shared/key", "hers").await.ok();
    people.put("ann", "/private", "").await.ok();
    people.put("ann", "/private/secret", "hers").await.ok();
    let grant = |permission: &'static str| {
        people
            .by("ann", Method::PUT, "/shared?acl")
            .body(document("ann", &[("CanonicalUser", "bob", permission)]))
    };
    grant("READ").send().await.ok();
    people.get("bob", "/shared?list-type=2").await.ok();
    people.get("bob", "/shared/key").await.fails(403, "AccessDenied");
    people.put("bob", "/shared/key", "his").await.fails(403, "AccessDenied");
    people.get("bob", "/shared?acl").await.fails(403, "AccessDenied");
    grant("WRITE").send().await.ok();
    people.put("bob", "/shared/his", "his").await.ok();
    people.get("bob", "/shared").await.fails(403, "AccessDenied");
    people.by("bob", Method::DELETE, "/shared").send().await.fails(403, "AccessDenied");
    people.put("bob", "/shared?acl", &document("ann", &[])).await.fails(403, "AccessDenied");
    // Whoever may write somewhere may not therefore read elsewhere.
    let copy = people.by("bob", Method::PUT, "/shared/copy").header("x-amz-copy-source", "private/secret");
    copy.send().await.fails(403, "AccessDenied");
    grant("FULL_CONTROL").send().await.ok();
    people.get("bob", "/shared?acl").await.ok();
    people.get("bob", "/shared?policy").await.fails(403, "AccessDenied");
    people.by("bob", Method::DELETE, "/shared/key").send().await.ok();
}

#[test_case(Ownership::BucketOwnerEnforced, "ann", "ann"; "enforced")]
#[test_case(Ownership::BucketOwnerPreferred, "bob", "ann"; "preferred")]
#[test_case(Ownership::ObjectWriter, "bob", "bob"; "writer")]
#[tokio::test]
async fn who_owns_what_others_put(ownership: Ownership, plain: &str, given: &str) {
    let people = People::new().await;
    let create = people.by("ann", Method::PUT, "/shop").header("x-amz-object-ownership", ownership.name());
    create.send().await.ok();
    let all = r#"{"Effect":"Allow","Principal":{"AWS":"bob"},"Action":"*","Resource":["arn:aws:s3:::shop","arn:aws:s3:::shop/*"]}"#;
    people.set_policy("shop", &[all]).await;
    let put = |key: &str| people.by("bob", Method::PUT, &format!("/shop/{key}")).body("x");
    put("plain").send().await.ok();
    put("given").header("x-amz-acl", "bucket-owner-full-control").send().await.ok();
    for (key, owner) in [("plain", plain), ("given", given)] {
        let acl = people.get("eve", &format!("/shop/{key}?acl")).await.ok();
        assert_eq!(acl.elements("ID")[0], owner, "{key}");
    }
    let private = put("private").header("x-amz-acl", "private").send().await;
    if ownership.has_acls() {
        private.ok();
    } else {
        private.fails(400, "AccessControlListNotSupported");
        let set = people.by("ann", Method::PUT, "/shop?acl").header("x-amz-acl", "private");
        set.send().await.fails(400, "AccessControlListNotSupported");
        let set = people.by("ann", Method::PUT, "/shop/plain?acl").header("x-amz-acl", "private");
        set.send().await.fails(400, "AccessControlListNotSupported");
    }
}

#[tokio::test]
async fn ownership_and_acls_of_buckets_agree() {
    let people = People::new().await;
    let create = people.by("ann", Method::PUT, "/shop").header("x-amz-acl", "public-read");
    create.clone().send().await.fails(400, "InvalidBucketAclWithObjectOwnership");
    create.header("x-amz-object-ownership", "ObjectWriter").send().await.ok();
    let set = |setting: &str| {
        let body = format!(
            "<OwnershipControls><Rule><ObjectOwnership>{setting}</ObjectOwnership></Rule></OwnershipControls>"
        );
        people.by("ann", Method::PUT, "/shop?ownershipControls").body(body).send()
    };
    set("BucketOwnerEnforced").await.fails(400, "InvalidBucketAclWithObjectOwnership");
    set("Nobody").await.fails(400, "InvalidArgument");
    people.by("ann", Method::PUT, "/shop?acl").header("x-amz-acl", "private").send().await.ok();
    set("BucketOwnerEnforced").await.ok();
    people.get("bob", "/shop?ownershipControls").await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn creating_a_bucket_again() {
    let people = People::with(Ownership::ObjectWriter).await;
    people.put("ann", "/shop", "").await.ok();
    people.put("ann", "/shop/key", "x").await.ok();
    people.put("ann", "/shop", "").await.ok();
    assert_eq!(people.get("ann", "/shop/key").await.ok().text(), "x");
    let open = people.by("ann", Method::PUT, "/shop").header("x-amz-acl", "public-read").send().await;
    open.fails(409, "BucketAlreadyExists");
    people.put("eve", "/shop", "").await.fails(409, "BucketAlreadyExists");
    people.get("nobody", "/shop").await.fails(403, "AccessDenied");
}

fn block(which: &str) -> String {
    let all = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];
    let elements: String = all.map(|name| format!("<{name}>{}</{name}>", name == which)).concat();
    format!("<PublicAccessBlockConfiguration>{elements}</PublicAccessBlockConfiguration>")
}

#[tokio::test]
async fn the_public_access_block() {
    let people = People::with(Ownership::ObjectWriter).await;
    let read = r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::shop/by-policy"}"#;
    people.by("ann", Method::PUT, "/shop").header("x-amz-acl", "public-read").send().await.ok();
    let put = |key: &str, acl: &str| {
        people.by("ann", Method::PUT, &format!("/shop/{key}")).header("x-amz-acl", acl).body("x").send()
    };
    put("by-acl", "public-read").await.ok();
    put("by-policy", "private").await.ok();
    people.set_policy("shop", &[read]).await;
    people.get("ann", "/shop?publicAccessBlock").await.fails(404, "NoSuchPublicAccessBlockConfiguration");
    people.put("bob", "/shop?publicAccessBlock", &block("")).await.fails(403, "AccessDenied");
    let set = |which: &'static str| async {
        people.put("ann", "/shop?publicAccessBlock", &block(which)).await.ok();
        let shown = people.get("ann", "/shop?publicAccessBlock").await.ok();
        assert_eq!(shown.element(which).as_deref(), Some("true"), "{}", shown.text());
    };
    set("BlockPublicAcls").await;
    put("more", "public-read").await.fails(403, "AccessDenied");
    put("more", "authenticated-read").await.fails(403, "AccessDenied");
    put("more", "private").await.ok();
    let acl = people.by("ann", Method::PUT, "/shop?acl").header("x-amz-acl", "public-read-write");
    acl.send().await.fails(403, "AccessDenied");
    let acl = people.by("ann", Method::PUT, "/shop/more?acl").header("x-amz-acl", "public-read");
    acl.send().await.fails(403, "AccessDenied");
    people.get("nobody", "/shop/by-acl").await.ok();
    set("IgnorePublicAcls").await;
    people.get("nobody", "/shop/by-acl").await.fails(403, "AccessDenied");
    people.get("nobody", "/shop").await.fails(403, "AccessDenied");
    people.get("nobody", "/shop/by-policy").await.ok();
    set("BlockPublicPolicy").await;
    let text = format!("{{\"Statement\":[{read}]}}");
    people.put("ann", "/shop?policy", &text).await.fails(403, "AccessDenied");
    people.put("ann", "/shop?policy", &text.replace("\"*\"", r#"{"AWS":"bob"}"#)).await.ok();
    assert_eq!(people.by("ann", Method::DELETE, "/shop?publicAccessBlock").send().await.status, 204);
    people.set_policy("shop", &[read]).await;
    set("RestrictPublicBuckets").await;
    people.get("nobody", "/shop/by-policy").await.fails(403, "AccessDenied");
    people.get("bob", "/shop/by-policy").await.fails(403, "AccessDenied");
    people.get("ann", "/shop/by-policy").await.ok();
    people.get("nobody", "/shop/by-acl").await.ok();
}

#[tokio::test]
async fn acls_belong_to_versions() {
    let people = People::with(Ownership::ObjectWriter).await;
    people.by("ann", Method::PUT, "/shop").send().await.ok();
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    people.put("ann", "/shop?versioning", enabled).await.ok();
    let first = people.put("ann", "/shop/key", "one").await.ok().header("x-amz-version-id").to_owned();
    people.put("ann", "/shop/key", "two").await.ok();
    let path = format!("/shop/key?acl&versionId={first}");
    people.by("ann", Method::PUT, &path).header("x-amz-acl", "public-read").send().await.ok();
    assert_eq!(people.get("nobody", &format!("/shop/key?versionId={first}")).await.ok().text(), "one");
    people.get("nobody", "/shop/key").await.fails(403, "AccessDenied");
    assert_eq!(people.get("ann", &path).await.ok().elements("URI"), [ALL_USERS]);
    assert!(people.get("ann", "/shop/key?acl").await.ok().elements("URI").is_empty());
    let listed = people.get("ann", "/shop?versions").await.ok();
    assert_eq!(listed.elements("ID"), ["ann", "ann"]);
}

#[tokio::test]
async fn forms_are_decided_about_like_puts() {
    let people = People::with(Ownership::ObjectWriter).await;
    people.put("ann", "/shop", "").await.ok();
    let field = |name: &str, value: &str| {
        format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let form = [
        field("key", "form"),
        field("acl", "public-read"),
        field("tagging", tags),
        field("file", "data"),
        "--X--\r\n".to_owned(),
    ]
    .concat();
    let request = || {
        let request = people.by("nobody", Method::POST, "/shop").body(form.clone());
        request.unsigned_header("content-type", "multipart/form-data; boundary=X")
    };
    let post = || request().send();
    post().await.fails(403, "AccessDenied");
    people.by("ann", Method::PUT, "/shop?acl").header("x-amz-acl", "public-read-write").send().await.ok();
    let statement = |effect: &str, condition: &str| {
        format!(
            r#"{{"Effect":"{effect}","Principal":"*","Action":"s3:PutObject*","Resource":"arn:aws:s3:::shop/*","Condition":{{"StringEquals":{condition}}}}}"#
        )
    };
    for condition in [r#"{"s3:RequestObjectTag/a":"1"}"#, r#"{"s3:x-amz-acl":"public-read"}"#] {
        people.set_policy("shop", &[&statement("Deny", condition)]).await;
        post().await.fails(403, "AccessDenied");
    }
    people.by("ann", Method::DELETE, "/shop?policy").send().await.ok();
    assert_eq!(post().await.status, 204);
    assert_eq!(people.get("nobody", "/shop/form").await.ok().text(), "data");
    let stored = people.get("ann", "/shop/form?tagging").await.ok();
    assert_eq!(
        (stored.element("Key").as_deref(), stored.element("Value").as_deref()),
        (Some("a"), Some("1"))
    );
    // Of the request's headers, none says what is put.
    people.by("ann", Method::PUT, "/shop?acl").header("x-amz-acl", "private").send().await.ok();
    people.set_policy("shop", &[&statement("Allow", r#"{"s3:x-amz-acl":"private"}"#)]).await;
    request().unsigned_header("x-amz-acl", "private").send().await.fails(403, "AccessDenied");
}
