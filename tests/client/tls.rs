//! Endpoints with `https`: who is trusted.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use rcgen::CertifiedKey;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};
use vgwrdma::client::{Client, Credentials, Error, Trust};

/// A server for `localhost` with a certificate of its own that answers every request with 200. Gives
/// its URL and writes its certificate to `bundle`.
fn serve(bundle: &Path) -> String {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(bundle, cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.flush();
        }
    });
    url
}

async fn reach(url: &str, trust: Trust) -> Result<bool, Error> {
    let client = Client::builder(url)
        .credentials(Credentials::new("access", "secret"))
        .attempts(1)
        .trust(trust)
        .build()?;
    client.ensure_bucket("bucket").await
}

#[tokio::test]
async fn a_bundle_names_whom_to_trust() {
    let directory = tempfile::tempdir().unwrap();
    let (own, other) = (directory.path().join("own.pem"), directory.path().join("other.pem"));
    let url = serve(&own);
    serve(&other);
    assert!(!reach(&url, Trust::Bundle(own.clone())).await.unwrap());
    let error = reach(&url, Trust::Bundle(other)).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    // The name must be the certificate's.
    let by_other_name = url.replace("localhost", "127.0.0.2");
    assert!(reach(&by_other_name, Trust::Bundle(own.clone())).await.is_err());
    let by_address = url.replace("localhost", "127.0.0.1");
    assert!(!reach(&by_address, Trust::Bundle(own)).await.unwrap());
}

#[tokio::test]
async fn anyone_is_anyone() {
    let directory = tempfile::tempdir().unwrap();
    let url = serve(&directory.path().join("own.pem"));
    assert!(!reach(&url, Trust::Anyone).await.unwrap());
}

#[tokio::test]
async fn a_server_without_tls_is_told() {
    let server = crate::server::Server::start(|_, _| crate::server::Reply::new(200, &[], b""));
    let url = server.url().replace("http://", "https://");
    let error = reach(&url, Trust::Anyone).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
}
