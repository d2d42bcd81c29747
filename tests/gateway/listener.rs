//! Listeners, limits, counters, logs, shutdown.

use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{TestGateway, pattern, read_answer, send};

#[tokio::test]
async fn every_answer_has_an_id_and_errors_repeat_it() {
    let gateway = TestGateway::plain().await;
    let answer = gateway.get("missing").await;
    let id = answer.header("x-amz-request-id").to_owned();
    assert_eq!(id.len(), 16);
    assert_eq!(answer.element("RequestId"), Some(id.clone()));
    assert_ne!(gateway.get("missing").await.header("x-amz-request-id"), id);
    assert!(!answer.element("Message").unwrap().is_empty());
}

#[tokio::test]
async fn health_needs_no_signature() {
    let gateway = TestGateway::plain_with(|c| c.health = Some("/healthz".into())).await;
    let answer = gateway.request(Method::GET, "/healthz").anonymous().send().await.ok();
    assert!(answer.body.is_empty());
    gateway.request(Method::PUT, "/healthz").anonymous().send().await.fails(403, "AccessDenied");
}

#[tokio::test]
async fn too_many_requests_slow_down() {
    let gateway = TestGateway::plain_with(|c| c.max_requests = 1).await;
    // A request that stays: its body does not come.
    let _held = gateway.request(Method::PUT, "/bucket/slow").half_sent(10, b"12345").await;
    let mut answer = gateway.get("key").await;
    for _ in 0..100 {
        if answer.status == 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer = gateway.get("key").await;
    }
    answer.fails(503, "SlowDown");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let gateway = TestGateway::plain_with(|c| c.max_connections = 1).await;
    gateway.put("key", "x").await.ok();
    let held = TcpStream::connect(&gateway.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waiting = gateway.get("key");
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err());
    drop(held);
    waiting.await.ok();
}

#[tokio::test]
async fn bodies_are_counted_at_the_listener() {
    let gateway = TestGateway::plain().await;
    gateway.put("key", pattern(3_000_000, 1)).await.ok();
    gateway.get("key").await.ok();
    gateway.request(Method::GET, "/bucket/key").header("range", "bytes=0-99").send().await.ok();
    gateway.head("key").await.ok();
    gateway.settle().await;
    let bytes = gateway.bytes();
    assert_eq!((bytes.http_in, bytes.http_out), (3_000_000, 3_000_100));
    assert_eq!((bytes.rdma_in, bytes.rdma_out), (0, 0));
    let metrics = gateway.running().metrics();
    assert_eq!((metrics.requests("PutObject", 200), metrics.requests("GetObject", 206)), (1, 1));
}

#[tokio::test]
async fn metrics_are_served() {
    let gateway = TestGateway::plain_with(|c| c.metrics_listen = Some("127.0.0.1:0".parse().unwrap())).await;
    gateway.put("key", "x").await.ok();
    gateway.settle().await;
    let address = gateway.running().metrics_address().unwrap().to_owned();
    let page =
        send(&address, Method::GET, "/metrics", Default::default(), Default::default(), true).await.ok();
    let text = page.text();
    assert!(
        text.contains("vgwrdma_requests_total{operation=\"PutObject\",status=\"200\",carrier=\"http\"} 1\n")
    );
    assert!(text.contains("vgwrdma_build_info{"));
    assert_eq!(
        send(&address, Method::GET, "/", Default::default(), Default::default(), true).await.status,
        404
    );
}

#[tokio::test]
async fn the_access_log_tells_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let log = path.clone();
    let mut gateway = TestGateway::plain_with(|c| c.access_log = Some(log)).await;
    gateway.put("a%20key", "12345").await.ok();
    gateway.get("a%20key").await.ok();
    gateway.get("missing").await;
    gateway.request(Method::GET, "/bucket/a%20key").send_presigned().await.ok();
    gateway.settle().await;
    assert!(gateway.gateway.take().unwrap().shutdown().await);
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(
        lines[0].contains(" REST.PUT.OBJECT a%20key \"PUT /bucket/a%20key HTTP/1.1\" 200 - - 5 "),
        "{text}"
    );
    assert!(lines[0].ends_with(" http 5"), "{text}");
    assert!(lines[1].contains(" 200 - 5 5 ") && lines[1].ends_with(" http 5"), "{text}");
    assert!(lines[2].contains(" 404 NoSuchKey "), "{text}");
    assert!(lines[3].contains("X-Amz-Signature=-") && lines[3].contains(" QueryString "), "{text}");
}

#[tokio::test]
async fn a_unix_socket_serves_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s3.sock");
    let address = path.to_str().unwrap().parse().unwrap();
    let gateway = TestGateway::plain_with(|c| c.listen.push(address)).await;
    let get = gateway.request(Method::GET, "/").wire(None);
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(&get).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn virtual_hosts() {
    let gateway = TestGateway::plain_with(|c| c.virtual_domains = vec!["s3.test".into()]).await;
    gateway.request(Method::PUT, "/bucket/key").body("x").send().await.ok();
    let mut headers = http::HeaderMap::new();
    headers.insert("host", "bucket.s3.test".parse().unwrap());
    gateway.signer().sign("GET", "http://bucket.s3.test/key", &mut headers, "UNSIGNED-PAYLOAD");
    let answer = send(&gateway.address, Method::GET, "/key", headers, Default::default(), true).await.ok();
    assert_eq!(answer.text(), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_requests_end() {
    let mut gateway = TestGateway::plain().await;
    let put = gateway.request(Method::PUT, "/bucket/key");
    let mut stream = put.half_sent(10, b"12345").await;
    let idle = TcpStream::connect(&gateway.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let running = gateway.gateway.take().unwrap();
    let stop = tokio::spawn(running.shutdown());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(TcpStream::connect(&gateway.address).await.is_err(), "still listening");
    assert!(!stop.is_finished(), "did not wait for the request");
    stream.write_all(b"67890").await.unwrap();
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(stop.await.unwrap());
    drop(idle);
    assert_eq!(std::fs::read_to_string(gateway.file("key")).unwrap(), "1234567890");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_for_ever() {
    let mut gateway = TestGateway::plain_with(|c| c.grace = Duration::from_millis(300)).await;
    let stream = gateway.request(Method::PUT, "/bucket/key").half_sent(10, b"12345").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!gateway.gateway.take().unwrap().shutdown().await);
    drop(stream);
}

#[tokio::test]
async fn a_body_that_stalls_ends_the_request() {
    let gateway = TestGateway::plain_with(|c| c.body_patience = Duration::from_millis(200)).await;
    for (stated, sent) in [(10, 5), (4_000_000, 2_000_000)] {
        let mut stream =
            gateway.request(Method::PUT, "/bucket/key").half_sent(stated, &pattern(sent, 1)).await;
        let answer = read_answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("RequestTimeout"), "{answer}");
    }
    gateway.get("key").await.fails(404, "NoSuchKey");
    assert!(gateway.debris().is_empty());
}

/// Writes a fresh certificate of a name and returns it.
fn certificate(
    directory: &std::path::Path,
    name: &str,
) -> tokio_rustls::rustls::pki_types::CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// The status line of a GET over TLS, by a client that trusts one certificate.
async fn over_tls(
    gateway: &TestGateway,
    name: &'static str,
    trusted: tokio_rustls::rustls::pki_types::CertificateDer<'static>,
) -> std::io::Result<String> {
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(std::sync::Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = TcpStream::connect(&gateway.address).await?;
    let mut stream = connector.connect(name.try_into().unwrap(), stream).await?;
    stream.write_all(&gateway.request(Method::GET, "/").wire(None)).await?;
    let mut line = vec![0; 15];
    stream.read_exact(&mut line).await?;
    Ok(String::from_utf8(line).unwrap())
}

#[tokio::test]
async fn tls_and_a_new_certificate_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let old = certificate(directory.path(), "old.test");
    let files = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let gateway = TestGateway::plain_with(|c| c.tls = Some(files)).await;
    assert_eq!(over_tls(&gateway, "old.test", old.clone()).await.unwrap(), "HTTP/1.1 200 OK");
    // Nonsense in the files keeps what works.
    std::fs::write(directory.path().join("cert.pem"), "nonsense").unwrap();
    gateway.running().reload();
    assert!(over_tls(&gateway, "old.test", old.clone()).await.is_ok());
    let new = certificate(directory.path(), "new.test");
    gateway.running().reload();
    assert_eq!(over_tls(&gateway, "new.test", new).await.unwrap(), "HTTP/1.1 200 OK");
    assert!(over_tls(&gateway, "old.test", old).await.is_err());
    // Plain HTTP on the TLS port is no reason to stop.
    let mut plain = TcpStream::connect(&gateway.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP/"));
}
