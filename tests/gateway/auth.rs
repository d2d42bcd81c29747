//! Who gets in.

use http::Method;
use std::os::unix::fs::PermissionsExt;

use crate::fixture::{BUCKET, TestGateway};
use crate::sign::Signer;

#[tokio::test]
async fn wrong_secrets_keys_regions_and_clocks() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "x").await.ok();
    let get = |signer: Signer| gateway.request(Method::GET, "/bucket/key").signer(signer).send();
    let good = gateway.signer();
    get(Signer { secret: "wrong".into(), ..good.clone() }).await.fails(403, "SignatureDoesNotMatch");
    get(Signer { access: "nobody".into(), ..good.clone() }).await.fails(403, "InvalidAccessKeyId");
    get(Signer { region: "eu-west-1".into(), ..good.clone() })
        .await
        .fails(400, "AuthorizationHeaderMalformed");
    get(Signer { skew: -3600, ..good.clone() }).await.fails(403, "RequestTimeTooSkewed");
    get(Signer { skew: 3600, ..good.clone() }).await.fails(403, "RequestTimeTooSkewed");
    get(good).await.ok();
    gateway.request(Method::GET, "/bucket/key").anonymous().send().await.fails(403, "AccessDenied");
    gateway.request(Method::PUT, "/bucket/key").anonymous().body("y").send().await.fails(403, "AccessDenied");
    assert_eq!(gateway.get("key").await.ok().text(), "x");
}

#[tokio::test]
async fn presigned_urls() {
    let gateway = TestGateway::plain().await;
    gateway.request(Method::PUT, "/bucket/a%20key").body("data").send_presigned().await.ok();
    let got = gateway.request(Method::GET, "/bucket/a%20key").send_presigned().await.ok();
    assert_eq!(got.text(), "data");
    let late = Signer { skew: -3600, ..gateway.signer() };
    gateway
        .request(Method::GET, "/bucket/a%20key")
        .signer(late)
        .send_presigned()
        .await
        .fails(403, "AccessDenied");
    let wrong = Signer { secret: "wrong".into(), ..gateway.signer() };
    gateway
        .request(Method::GET, "/bucket/a%20key")
        .signer(wrong)
        .send_presigned()
        .await
        .fails(403, "SignatureDoesNotMatch");
}

/// A gateway with accounts beside root.
async fn with_users() -> (TestGateway, tempfile::TempDir) {
    let iam = tempfile::tempdir().unwrap();
    let user = |name: &str, role: &str| {
        format!(
            r#""{name}":{{"access":"{name}","secret":"{name}-secret","role":"{role}","userID":0,"groupID":0,"projectID":0}}"#
        )
    };
    let text = format!(
        "{{\"accessAccounts\":{{{},{},{}}}}}",
        user("ann", "userplus"),
        user("bob", "user"),
        user("eve", "admin")
    );
    let file = iam.path().join("users.json");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let directory = iam.path().to_owned();
    (TestGateway::plain_with(|c| c.iam_dir = Some(directory)).await, iam)
}

#[tokio::test]
async fn roles() {
    let (gateway, _iam) = with_users().await;
    let by = |name: &str, method: Method, path: &str| {
        let signer = Signer { access: name.into(), secret: format!("{name}-secret"), ..gateway.signer() };
        gateway.request(method, path).signer(signer)
    };
    by("bob", Method::PUT, "/bobs-bucket").send().await.fails(403, "AccessDenied");
    by("ann", Method::PUT, "/anns-bucket").send().await.ok();
    by("ann", Method::PUT, "/anns-bucket/key").body("hers").send().await.ok();
    by("bob", Method::GET, "/anns-bucket/key").send().await.fails(403, "AccessDenied");
    by("bob", Method::GET, "/anns-bucket?list-type=2").send().await.fails(403, "AccessDenied");
    by("bob", Method::PUT, "/anns-bucket/key").body("his").send().await.fails(403, "AccessDenied");
    by("bob", Method::GET, &format!("/{BUCKET}")).send().await.fails(403, "AccessDenied");
    by("ann", Method::PUT, "/bucket").send().await.fails(409, "BucketAlreadyExists");
    assert_eq!(by("eve", Method::GET, "/anns-bucket/key").send().await.ok().text(), "hers");
    assert_eq!(by("ann", Method::GET, "/").send().await.ok().elements("Name"), ["anns-bucket"]);
    assert!(by("bob", Method::GET, "/").send().await.ok().elements("Name").is_empty());
    assert_eq!(by("eve", Method::GET, "/").send().await.ok().elements("Name"), ["anns-bucket", BUCKET]);
    let wrong = Signer { access: "ann".into(), secret: "guess".into(), ..gateway.signer() };
    gateway.request(Method::GET, "/").signer(wrong).send().await.fails(403, "SignatureDoesNotMatch");
}

#[tokio::test]
async fn grants_reach_as_far_as_they_say() {
    let (gateway, _iam) = with_users().await;
    let by = |name: &str, method: Method, path: &str| {
        let signer = Signer { access: name.into(), secret: format!("{name}-secret"), ..gateway.signer() };
        gateway.request(method, path).signer(signer)
    };
    by("ann", Method::PUT, "/shared").header("x-amz-object-ownership", "ObjectWriter").send().await.ok();
    by("ann", Method::PUT, "/shared/key").body("hers").send().await.ok();
    by("ann", Method::PUT, "/private").send().await.ok();
    by("ann", Method::PUT, "/private/secret").body("hers").send().await.ok();
    let grant = |permission: &str| {
        format!(
            "<AccessControlPolicy><AccessControlList><Grant><Grantee \
             xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\"><ID>bob</ID></Grantee>\
             <Permission>{permission}</Permission></Grant></AccessControlList></AccessControlPolicy>"
        )
    };
    by("ann", Method::PUT, "/shared?acl").body(grant("READ")).send().await.ok();
    by("bob", Method::GET, "/shared/key").send().await.ok();
    by("bob", Method::GET, "/shared?list-type=2").send().await.ok();
    by("bob", Method::PUT, "/shared/key").body("his").send().await.fails(403, "AccessDenied");
    by("bob", Method::GET, "/shared?acl").send().await.fails(403, "AccessDenied");
    by("ann", Method::PUT, "/shared?acl").body(grant("WRITE")).send().await.ok();
    by("bob", Method::PUT, "/shared/his").body("his").send().await.ok();
    by("bob", Method::GET, "/shared/key").send().await.fails(403, "AccessDenied");
    by("bob", Method::DELETE, "/shared").send().await.fails(403, "AccessDenied");
    by("bob", Method::PUT, "/shared?acl").body(grant("FULL_CONTROL")).send().await.fails(403, "AccessDenied");
    // Whoever may write somewhere may not therefore read elsewhere.
    let copy = by("bob", Method::PUT, "/shared/copy").header("x-amz-copy-source", "private/secret");
    copy.send().await.fails(403, "AccessDenied");
    by("ann", Method::PUT, "/shared/copy").header("x-amz-copy-source", "private/secret").send().await.ok();
}
