//! What the gateway puts right around s3s, and what it tells beside an object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Method};
use sha1::Sha1;
use time::OffsetDateTime;

use crate::fixture::{ACCESS, Answer, BUCKET, SECRET, TestGateway, send};

fn version_2(text: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn date(ago: time::Duration) -> String {
    let form = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    (OffsetDateTime::now_utc() - ago).format(form).unwrap()
}

/// A request signed by version 2 over `covered`.
async fn signed_2(gateway: &TestGateway, path: &str, covered: &str, date: &str) -> Answer {
    let signature = version_2(&format!("GET\n\n\n{date}\n{covered}"));
    let mut headers = HeaderMap::new();
    headers.insert("host", gateway.address.parse().unwrap());
    headers.insert("date", date.parse().unwrap());
    headers.insert("authorization", format!("AWS {ACCESS}:{signature}").parse().unwrap());
    send(&gateway.address, Method::GET, path, headers, Default::default(), true).await
}

#[tokio::test]
async fn version_2_signatures() {
    let gateway = TestGateway::plain().await;
    let now = date(time::Duration::ZERO);
    for covered in ["/bucket?acl", "/bucket/?acl"] {
        signed_2(&gateway, "/bucket?acl", covered, &now).await.ok();
    }
    signed_2(&gateway, "/bucket?acl", "/other?acl", &now).await.fails(403, "SignatureDoesNotMatch");
    let old = date(time::Duration::hours(1));
    signed_2(&gateway, "/bucket", "/bucket", &old).await.fails(403, "RequestTimeTooSkewed");
    signed_2(&gateway, "/bucket", "/bucket", "soon").await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn a_range_of_many_parts_is_ignored() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", "0123456789").await.ok();
    let get = || gateway.request(Method::GET, "/bucket/key");
    for range in ["bytes=0-1,4-5", "bytes=5-1", "chapters=1"] {
        let whole = get().unsigned_header("range", range).send().await;
        assert_eq!((whole.status.as_u16(), whole.text().as_str()), (200, "0123456789"), "{range}");
    }
    assert_eq!(get().unsigned_header("range", "bytes=0-1").send().await.text(), "01");
}

#[tokio::test]
async fn presigned_urls_last_from_a_second_to_a_week() {
    let gateway = TestGateway::plain().await;
    for seconds in ["0", "-1", "604801", "soon"] {
        let path = format!("/bucket/key?X-Amz-Expires={seconds}&X-Amz-Signature=x");
        gateway.request(Method::GET, &path).anonymous().send().await.fails(403, "AccessDenied");
    }
}

#[tokio::test]
async fn a_body_without_a_stated_length() {
    let gateway = TestGateway::plain().await;
    let put = gateway.request(Method::PUT, "/bucket/key").body("some data").without_length();
    put.send().await.ok();
    assert_eq!(gateway.get("key").await.ok().text(), "some data");
    let put = gateway.request(Method::PUT, "/bucket/large").body(vec![0; 5 << 20]).without_length();
    put.send().await.fails(411, "MissingContentLength");
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in fields {
        text += &format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    text + "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a b.txt\"\r\n\r\ndata\r\n--X--\r\n"
}

async fn post(gateway: &TestGateway, key: &str, conditions: &str) -> Answer {
    let policy = format!("{{\"expiration\":\"2999-01-01T00:00:00Z\",\"conditions\":[{conditions}]}}");
    let policy = STANDARD.encode(policy);
    let signature = version_2(&policy);
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let body = form(&[
        ("key", key),
        ("Content-Type", "text/x-form"),
        ("tagging", tags),
        ("success_action_redirect", "http://next.example/"),
        ("AWSAccessKeyId", ACCESS),
        ("signature", &signature),
        ("policy", &policy),
    ]);
    gateway
        .request(Method::POST, &format!("/{BUCKET}"))
        .anonymous()
        .header("content-type", "multipart/form-data; boundary=X")
        .body(body)
        .send()
        .await
}

#[tokio::test]
async fn forms() {
    let gateway = TestGateway::plain().await;
    let conditions = "{\"bucket\":\"bucket\"},[\"starts-with\",\"$key\",\"in/\"],\
        [\"starts-with\",\"$Content-Type\",\"\"],[\"starts-with\",\"$tagging\",\"\"],\
        [\"starts-with\",\"$success_action_redirect\",\"\"]";
    let posted = post(&gateway, "in/${filename}", conditions).await;
    assert_eq!(posted.status, 303, "{}", posted.text());
    let got = gateway.get("in/a%20b.txt").await.ok();
    assert_eq!((got.text().as_str(), got.header("content-type")), ("data", "text/x-form"));
    assert_eq!(got.header("x-amz-tagging-count"), "1");
    let etag = got.header("etag").trim_matches('"');
    assert!(
        posted.header("location").ends_with(&format!("etag=%22{etag}%22")),
        "{}",
        posted.header("location")
    );
    post(&gateway, "out/${filename}", conditions).await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn a_plus_in_a_copy_source_is_a_space() {
    let gateway = TestGateway::plain().await;
    gateway.put("a%20b", "space").await.ok();
    gateway.put("a%2Bb", "plus").await.ok();
    for (source, data) in [("bucket/a+b", "space"), ("bucket/a%20b", "space"), ("bucket/a%2Bb", "plus")] {
        let copy = gateway.request(Method::PUT, "/bucket/copy").header("x-amz-copy-source", source);
        copy.send().await.ok();
        assert_eq!(gateway.get("copy").await.ok().text(), data, "{source}");
    }
}

#[tokio::test]
async fn tags_are_counted_and_attributes_have_a_bare_etag() {
    let gateway = TestGateway::plain().await;
    let put = gateway.request(Method::PUT, "/bucket/key").header("x-amz-tagging", "a=1&b=2").body("x");
    let etag = put.send().await.ok().header("etag").to_owned();
    assert_eq!(gateway.head("key").await.ok().header("x-amz-tagging-count"), "2");
    let attributes = gateway.request(Method::GET, "/bucket/key?attributes");
    let attributes = attributes.header("x-amz-object-attributes", "ETag").send().await.ok();
    assert_eq!(attributes.element("ETag").unwrap(), etag.trim_matches('"'));
}

#[tokio::test]
async fn lifecycle_rules_are_kept_or_refused() {
    let rules = "<LifecycleConfiguration><Rule><Status>Enabled</Status><Prefix>logs/</Prefix>\
        <Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>";
    let gateway = TestGateway::plain().await;
    let lifecycle = |method| gateway.request(method, "/bucket?lifecycle");
    lifecycle(Method::GET).send().await.fails(404, "NoSuchLifecycleConfiguration");
    lifecycle(Method::PUT).body(rules).send().await.ok();
    let stored = lifecycle(Method::GET).send().await.ok();
    assert_eq!(
        (stored.element("Days").unwrap(), stored.element("Prefix").unwrap()),
        ("3".into(), "logs/".into())
    );
    assert!(stored.element("ID").is_some());
    lifecycle(Method::DELETE).send().await.ok();
    lifecycle(Method::GET).send().await.fails(404, "NoSuchLifecycleConfiguration");

    let without = TestGateway::plain_with(|c| c.lifecycle_interval = None).await;
    without.request(Method::PUT, "/bucket?lifecycle").body(rules).send().await.fails(501, "NotImplemented");
}

#[tokio::test]
async fn lifecycle_rules_are_applied() {
    let gateway =
        TestGateway::plain_with(|c| c.lifecycle_interval = Some(std::time::Duration::from_millis(20))).await;
    gateway.put("logs/old", "x").await.ok();
    gateway.put("kept", "x").await.ok();
    let rules = "<LifecycleConfiguration><Rule><Status>Enabled</Status><Prefix>logs/</Prefix>\
        <Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration></Rule></LifecycleConfiguration>";
    gateway.request(Method::PUT, "/bucket?lifecycle").body(rules).send().await.ok();
    gateway.until("the object has expired", |g| !g.file("logs/old").exists()).await;
    gateway.get("kept").await.ok();
}
