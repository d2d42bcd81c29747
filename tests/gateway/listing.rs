//! Listings.

use http::Method;

use crate::fixture::TestGateway;

async fn filled() -> TestGateway {
    let gateway = TestGateway::plain().await;
    for key in ["a-b", "a/1", "a/2", "a/sub/3", "b", "c%20d/e%2Bf", "z"] {
        gateway.put(key, key.to_owned()).await.ok();
    }
    gateway
}

async fn list(gateway: &TestGateway, query: &str) -> crate::fixture::Answer {
    gateway.request(Method::GET, &format!("/bucket?{query}")).send().await.ok()
}

#[tokio::test]
async fn keys_in_byte_order() {
    let gateway = filled().await;
    let all = ["a-b", "a/1", "a/2", "a/sub/3", "b", "c d/e+f", "z"];
    assert_eq!(list(&gateway, "list-type=2").await.elements("Key"), all);
    assert_eq!(list(&gateway, "").await.elements("Key"), all);
    assert_eq!(list(&gateway, "list-type=2").await.element("KeyCount").as_deref(), Some("7"));
    assert_eq!(list(&gateway, "list-type=2&prefix=a/").await.elements("Key"), ["a/1", "a/2", "a/sub/3"]);
    assert_eq!(list(&gateway, "list-type=2&start-after=a/2").await.elements("Key"), all[3..]);
    assert_eq!(list(&gateway, "marker=a/2").await.elements("Key"), all[3..]);
}

#[tokio::test]
async fn common_prefixes() {
    let gateway = filled().await;
    let answer = list(&gateway, "delimiter=/&list-type=2").await;
    assert_eq!(answer.elements("Key"), ["a-b", "b", "z"]);
    let prefixes: Vec<_> = answer.elements("Prefix").into_iter().filter(|p| !p.is_empty()).collect();
    assert_eq!(prefixes, ["a/", "c d/"]);
}

#[tokio::test]
async fn pages_v2() {
    let gateway = filled().await;
    let (mut keys, mut token) = (Vec::new(), None);
    loop {
        let more = token.map_or(String::new(), |t| format!("continuation-token={t}&"));
        let answer = list(&gateway, &format!("{more}list-type=2&max-keys=2")).await;
        let page = answer.elements("Key");
        assert!(page.len() <= 2);
        keys.extend(page);
        token = answer.element("NextContinuationToken");
        assert_eq!(
            answer.element("IsTruncated").as_deref(),
            Some(if token.is_some() { "true" } else { "false" })
        );
        if token.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["a-b", "a/1", "a/2", "a/sub/3", "b", "c d/e+f", "z"]);
}

#[tokio::test]
async fn pages_v1_with_a_delimiter() {
    let gateway = filled().await;
    let (mut entries, mut marker) = (Vec::new(), None);
    loop {
        let more = marker.map_or(String::new(), |m: String| format!("&marker={}", m.replace(' ', "%20")));
        let answer = list(&gateway, &format!("delimiter=/{more}&max-keys=1")).await;
        entries.extend(answer.elements("Key"));
        entries.extend(
            answer
                .text()
                .split("<CommonPrefixes><Prefix>")
                .skip(1)
                .map(|p| p.split('<').next().unwrap().to_owned()),
        );
        marker = answer.element("NextMarker");
        if marker.is_none() {
            break;
        }
    }
    assert_eq!(entries, ["a-b", "a/", "b", "c d/", "z"]);
}

#[tokio::test]
async fn url_encoding() {
    let gateway = filled().await;
    let answer = list(&gateway, "encoding-type=url&list-type=2&prefix=c%20d").await;
    assert_eq!(answer.elements("Key"), ["c%20d/e%2Bf"]);
    assert_eq!(answer.element("EncodingType").as_deref(), Some("url"));
    assert_eq!(answer.element("Prefix").as_deref(), Some("c%20d"));
    let bad = gateway.request(Method::GET, "/bucket?encoding-type=hex").send().await;
    bad.fails(400, "InvalidArgument");
}

#[tokio::test]
async fn edges() {
    let gateway = filled().await;
    assert!(list(&gateway, "list-type=2&max-keys=0").await.elements("Key").is_empty());
    for query in ["list-type=2&max-keys=-1", "continuation-token=%2A%2A&list-type=2"] {
        let answer = gateway.request(Method::GET, &format!("/bucket?{query}")).send().await;
        answer.fails(400, "InvalidArgument");
    }
    gateway.request(Method::GET, "/no-such-bucket?list-type=2").send().await.fails(404, "NoSuchBucket");
    gateway.request(Method::GET, "/no-such-bucket?max-keys=0").send().await.fails(404, "NoSuchBucket");
    assert!(list(&gateway, "list-type=2").await.element("Owner").is_none());
    assert!(list(&gateway, "fetch-owner=true&list-type=2").await.element("Owner").is_some());
}
