//! A bucket whose configuration versitygw wrote, laid out by hand, and ours as it reads it.

use http::Method;
use rustix::fs::XattrFlags;

use crate::fixture::{ACCESS, TestGateway};

const POLICY: &str = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/open/*"}]}"#;

fn attribute(path: &std::path::Path, name: &str) -> String {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, format!("user.{name}"), &mut *value).unwrap();
    value.truncate(length);
    String::from_utf8(value).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_theirs() {
    let gateway = TestGateway::plain().await;
    let bucket = gateway.file("");
    let set = |name: &str, value: &str| {
        rustix::fs::setxattr(&bucket, format!("user.{name}"), value.as_bytes(), XattrFlags::empty()).unwrap();
    };
    set("ownership", "BucketOwnerPreferred");
    let owner = format!(r#"{{"Permission":"FULL_CONTROL","Access":"{ACCESS}","Type":"CanonicalUser"}}"#);
    let everybody = r#"{"Permission":"READ","Access":"all-users","Type":"Group"}"#;
    set("acl", &format!(r#"{{"Owner":"{ACCESS}","Grantees":[{owner},{everybody}]}}"#));
    set("policy", POLICY);
    set("X-Amz-Tagging", r#"{"colour":"red"}"#);
    for key in ["open/k", "closed/k"] {
        std::fs::create_dir_all(gateway.file(key).parent().unwrap()).unwrap();
        std::fs::write(gateway.file(key), "by cp").unwrap();
    }
    let get = |target: &str| gateway.request(Method::GET, target);
    let listed = get("/bucket?list-type=2").anonymous().send().await.ok();
    assert_eq!(listed.elements("Key"), ["closed/k", "open/k"]);
    assert_eq!(get("/bucket/open/k").anonymous().send().await.ok().text(), "by cp");
    get("/bucket/closed/k").anonymous().send().await.fails(403, "AccessDenied");
    assert_eq!(get("/bucket?policy=").send().await.ok().text(), POLICY);
    assert_eq!(get("/bucket?tagging=").send().await.ok().elements("Value"), ["red"]);
    let ownership = get("/bucket?ownershipControls=").send().await.ok();
    assert_eq!(ownership.elements("ObjectOwnership"), ["BucketOwnerPreferred"]);
    let acl = get("/bucket?acl=").send().await.ok();
    let mut permissions = acl.elements("Permission");
    permissions.sort();
    assert_eq!(permissions, ["FULL_CONTROL", "READ"]);
    assert_eq!(acl.elements("URI"), ["http://acs.amazonaws.com/groups/global/AllUsers"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_ours() {
    let gateway = TestGateway::plain().await;
    gateway.request(Method::PUT, "/mine").header("x-amz-object-ownership", "ObjectWriter").send().await.ok();
    let path = gateway.root.path().join("mine");
    assert_eq!(attribute(&path, "ownership"), "ObjectWriter");
    gateway.request(Method::PUT, "/mine?acl=").header("x-amz-acl", "public-read").send().await.ok();
    let acl: serde_json::Value = serde_json::from_str(&attribute(&path, "acl")).unwrap();
    assert_eq!(acl["Owner"], ACCESS);
    let everybody = serde_json::json!({"Permission": "READ", "Access": "all-users", "Type": "Group"});
    assert!(acl["Grantees"].as_array().unwrap().contains(&everybody), "{acl}");
    let policy = POLICY.replace(":::bucket/", ":::mine/");
    gateway.request(Method::PUT, "/mine?policy=").body(policy.clone()).send().await.ok();
    assert_eq!(attribute(&path, "policy"), policy);
    // What a client leaves out is stored too: other programs would guess it.
    gateway.request(Method::PUT, "/mine/k.txt").body("x").send().await.ok();
    assert_eq!(attribute(&path.join("k.txt"), "content-type"), "binary/octet-stream");
}
