//! Cross-origin requests.

use http::{HeaderMap, Method};

use crate::fixture::{BUCKET, TestGateway, send};

const RULES: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>http://*.example</AllowedOrigin>\
    <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader>\
    <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>300</MaxAgeSeconds></CORSRule></CORSConfiguration>";

async fn preflight(
    gateway: &TestGateway,
    headers: &[(&'static str, &'static str)],
) -> crate::fixture::Answer {
    let mut map: HeaderMap = headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
    map.insert("host", gateway.address.parse().unwrap());
    let path = format!("/{BUCKET}/key?X-Amz-Signature=of-another-method");
    send(&gateway.address, Method::OPTIONS, &path, map, Default::default(), true).await
}

#[tokio::test]
async fn a_buckets_rules_are_kept_and_applied() {
    let gateway = TestGateway::plain().await;
    let cors = format!("/{BUCKET}?cors");
    gateway.request(Method::GET, &cors).send().await.fails(404, "NoSuchCORSConfiguration");
    let asks = [("origin", "http://a.example"), ("access-control-request-method", "PUT")];
    preflight(&gateway, &asks).await.fails(403, "AccessForbidden");

    gateway.request(Method::PUT, &cors).body(RULES).send().await.ok();
    let stored = gateway.request(Method::GET, &cors).send().await.ok();
    assert_eq!(stored.elements("AllowedMethod"), ["GET", "PUT"]);

    let names = ("access-control-request-headers", "X-Amz-Date");
    let allowed = preflight(&gateway, &[asks[0], asks[1], names]).await.ok();
    assert_eq!(allowed.header("access-control-allow-origin"), "http://a.example");
    assert_eq!(allowed.header("access-control-allow-methods"), "GET, PUT");
    assert_eq!(allowed.header("access-control-allow-headers"), "x-amz-date");
    assert_eq!(allowed.header("access-control-max-age"), "300");
    preflight(&gateway, &[asks[0]]).await.fails(400, "BadRequest");
    preflight(&gateway, &[("origin", "http://else"), asks[1]]).await.fails(403, "AccessForbidden");

    // Answers of the requests themselves, of errors too.
    let got = gateway.request(Method::GET, "/bucket/key").header("origin", "http://a.example").send().await;
    got.fails(404, "NoSuchKey");
    assert_eq!(got.header("access-control-allow-origin"), "http://a.example");
    assert_eq!(got.header("access-control-expose-headers"), "ETag");
    let got = gateway.request(Method::GET, "/bucket/key").header("origin", "http://else").send().await;
    assert_eq!(got.header("access-control-allow-origin"), "");

    gateway.request(Method::DELETE, &cors).send().await.ok();
    gateway.request(Method::GET, &cors).send().await.fails(404, "NoSuchCORSConfiguration");
}

#[tokio::test]
async fn rules_that_s3_refuses() {
    let gateway = TestGateway::plain().await;
    let put = async |rules: String| gateway.request(Method::PUT, "/bucket?cors").body(rules).send().await;
    put(RULES.replace(">PUT<", ">PATCH<")).await.fails(400, "InvalidRequest");
    put(RULES.replace("http://*.example", "http://*.*")).await.fails(400, "InvalidRequest");
    put(RULES.replace(">ETag<", ">*<")).await.fails(400, "InvalidRequest");
    put("<CORSConfiguration></CORSConfiguration>".to_owned()).await.fails(400, "MalformedXML");
}
