//! Who gets in.

use http::Method;

use crate::fixture::{BUCKET, TestGateway};
use crate::people::People;
use crate::sign::Signer;

#[tokio::test]
async fn wrong_secrets_keys_regions_and_clocks() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "x").await.ok();
    let get = |signer: Signer| gateway.request(Method::GET, "/bucket/key").signer(signer).send();
    let good = gateway.signer();
    get(Signer { secret: "wrong".into(), ..good.clone() }).await.fails(403, "SignatureDoesNotMatch");
    get(Signer { access: "nobody".into(), ..good.clone() }).await.fails(403, "InvalidAccessKeyId");
    for region in ["eu-west-1", "US"] {
        let refused = get(Signer { region: region.into(), ..good.clone() }).await;
        refused.fails(400, "AuthorizationHeaderMalformed");
        assert_eq!(refused.element("Region").as_deref(), Some("us-east-1"), "{region}");
    }
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

#[tokio::test]
async fn roles() {
    let people = People::new().await;
    let gateway = &people.gateway;
    let by = |name: &str, method: Method, path: &str| people.by(name, method, path);
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
