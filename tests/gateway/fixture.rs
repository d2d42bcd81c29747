//! A gateway over a directory of its own, and requests to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vgwrdma::gateway::Gateway;
use vgwrdma::gateway::config::Config;
use vgwrdma::gateway::metrics::BytesMoved;
use vgwrdma::rdma::Descriptor;
use vgwrdma::store::Durability;
use vgwrdma::transfer::transport::Endpoint;
use vgwrdma::transfer::transport::memory::{MemoryConfig, MemoryEndpoint, RemoteMemory, leases};
use vgwrdma::transfer::{Engine, EngineConfig, EngineStats};

use crate::sign::Signer;

pub(crate) const ACCESS: &str = "test-access";
pub(crate) const SECRET: &str = "test-secret-9a7c";
pub(crate) const BUCKET: &str = "bucket";
pub(crate) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Chunk size of the engine in tests, so that small objects take several operations.
pub(crate) const CHUNK: usize = 64 << 10;

/// A running gateway with one bucket.
pub(crate) struct TestGateway {
    pub(crate) gateway: Option<Gateway>,
    pub(crate) address: String,
    pub(crate) root: TempDir,
    /// What clients register; reached by the gateway's engine, when there is one.
    pub(crate) memory: RemoteMemory,
    pub(crate) engine: Option<Arc<Engine>>,
    /// Channels of the engine at the start.
    channels: usize,
}

pub(crate) fn test_config(root: &TempDir) -> Config {
    let mut config = Config::new(root.path(), ACCESS, SECRET);
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config.store.durability = Durability::None;
    config.grace = Duration::from_secs(5);
    config
}

pub(crate) fn engine_config() -> EngineConfig {
    EngineConfig {
        chunk_size: CHUNK,
        lanes: 1,
        channels_per_lane: 4,
        depth: 4,
        // Long, so that no test depends on the machine's load; what a busy engine does is tested by
        // its limit on transfers.
        chunk_wait: Duration::from_secs(60),
        completion_timeout: Duration::from_secs(60),
        worker_threads: 4,
        ..EngineConfig::default()
    }
}

impl TestGateway {
    /// Plain S3.
    pub(crate) async fn plain() -> Self {
        Self::start(|_| {}, None, RemoteMemory::new()).await
    }

    /// Plain S3 with changed settings.
    pub(crate) async fn plain_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start(change, None, RemoteMemory::new()).await
    }

    /// With RDMA to [`memory`](Self::memory).
    pub(crate) async fn with_rdma() -> Self {
        Self::rdma_with(|_| {}, engine_config(), |endpoint| endpoint).await
    }

    /// With RDMA, changed settings, and the endpoint wrapped.
    pub(crate) async fn rdma_with(
        change: impl FnOnce(&mut Config),
        engine: EngineConfig,
        wrap: impl FnOnce(Arc<dyn Endpoint>) -> Arc<dyn Endpoint>,
    ) -> Self {
        Self::rdma_in(TempDir::new().unwrap(), 16, change, engine, wrap).await
    }

    /// As [`rdma_with`](Self::rdma_with), in a directory and with a number of chunks.
    pub(crate) async fn rdma_in(
        root: TempDir,
        chunks: usize,
        change: impl FnOnce(&mut Config),
        engine: EngineConfig,
        wrap: impl FnOnce(Arc<dyn Endpoint>) -> Arc<dyn Endpoint>,
    ) -> Self {
        let memory = RemoteMemory::new();
        let endpoint = wrap(Arc::new(MemoryEndpoint::new(memory.clone(), MemoryConfig::default())));
        let pool = leases(chunks, engine.chunk_size).unwrap();
        let engine = Arc::new(Engine::start(engine, vec![endpoint], pool).unwrap());
        Self::start_in(root, change, Some(engine), memory).await
    }

    pub(crate) async fn start(
        change: impl FnOnce(&mut Config),
        engine: Option<Arc<Engine>>,
        memory: RemoteMemory,
    ) -> Self {
        Self::start_in(TempDir::new().unwrap(), change, engine, memory).await
    }

    async fn start_in(
        root: TempDir,
        change: impl FnOnce(&mut Config),
        engine: Option<Arc<Engine>>,
        memory: RemoteMemory,
    ) -> Self {
        std::fs::create_dir(root.path().join(BUCKET)).unwrap();
        let mut config = test_config(&root);
        change(&mut config);
        let gateway = Gateway::start(config, engine.clone()).await.unwrap();
        let address = gateway.addresses()[0].clone();
        let channels = engine.as_ref().map_or(0, |e| e.stats().channels_open);
        Self { gateway: Some(gateway), address, root, memory, engine, channels }
    }

    pub(crate) fn signer(&self) -> Signer {
        Signer { access: ACCESS.into(), secret: SECRET.into(), region: "us-east-1".into(), skew: 0 }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> TestRequest {
        TestRequest {
            address: self.address.clone(),
            method,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            unsigned: HeaderMap::new(),
            body: Bytes::new(),
            payload: UNSIGNED.into(),
            signer: Some(self.signer()),
            state_length: true,
        }
    }

    pub(crate) async fn get(&self, key: &str) -> Answer {
        self.request(Method::GET, &format!("/{BUCKET}/{key}")).send().await
    }

    pub(crate) async fn head(&self, key: &str) -> Answer {
        self.request(Method::HEAD, &format!("/{BUCKET}/{key}")).send().await
    }

    pub(crate) async fn put(&self, key: &str, body: impl Into<Bytes>) -> Answer {
        self.request(Method::PUT, &format!("/{BUCKET}/{key}")).body(body).send().await
    }

    /// Path of an object's file.
    pub(crate) fn file(&self, key: &str) -> PathBuf {
        self.root.path().join(BUCKET).join(key)
    }

    pub(crate) fn bytes(&self) -> BytesMoved {
        self.running().metrics().bytes()
    }

    pub(crate) fn running(&self) -> &Gateway {
        self.gateway.as_ref().expect("the gateway runs")
    }

    /// The engine's gauges and counters.
    pub(crate) fn stats(&self) -> EngineStats {
        self.engine.as_ref().expect("a gateway with RDMA").stats()
    }

    /// Waits for something that happens by itself.
    pub(crate) async fn until(&self, what: &str, happened: impl Fn(&Self) -> bool) {
        for _ in 0..2000 {
            if happened(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it did not come to pass that {what}");
    }

    /// Waits until nothing is in flight any more, neither in the listener nor in the engine.
    pub(crate) async fn settle(&self) {
        for _ in 0..1000 {
            let unrest = self.engine.as_ref().and_then(|e| e.stats().unrest());
            if unrest.is_none() && self.running().metrics().in_flight() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not at rest: {:?}", self.engine.as_ref().and_then(|e| e.stats().unrest()));
    }

    /// Temporary files below the bucket.
    pub(crate) fn debris(&self) -> Vec<PathBuf> {
        fn walk(directory: PathBuf, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    walk(entry.path(), found);
                } else if entry.metadata().is_ok_and(|m| m.len() > 0) {
                    found.push(entry.path());
                }
            }
        }
        let mut found = Vec::new();
        walk(self.root.path().join(".sgwtmp"), &mut found);
        walk(self.file(".sgwtmp"), &mut found);
        found
    }
}

/// The end of every test: all chunks and channels are back and all gauges zero.
impl Drop for TestGateway {
    fn drop(&mut self) {
        let Some(engine) = self.engine.as_ref().filter(|_| !std::thread::panicking()) else { return };
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let stats = engine.stats();
            if stats.unrest().is_none() && stats.channels_open == self.channels {
                return;
            }
            assert!(Instant::now() < until, "not at rest at the end of the test: {stats:#?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A request in the making.
#[derive(Clone)]
pub(crate) struct TestRequest {
    address: String,
    method: Method,
    path: String,
    headers: HeaderMap,
    unsigned: HeaderMap,
    body: Bytes,
    payload: String,
    signer: Option<Signer>,
    state_length: bool,
}

impl TestRequest {
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers.append(name, HeaderValue::from_str(value.as_ref()).unwrap());
        self
    }

    /// A header that the signature does not cover.
    pub(crate) fn unsigned_header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.unsigned.append(name, HeaderValue::from_str(value.as_ref()).unwrap());
        self
    }

    pub(crate) fn token(self, descriptor: &Descriptor) -> Self {
        self.header("x-amz-rdma-token", descriptor.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Value of `x-amz-content-sha256`.
    pub(crate) fn payload(mut self, payload: impl Into<String>) -> Self {
        self.payload = payload.into();
        self
    }

    pub(crate) fn signer(mut self, signer: Signer) -> Self {
        self.signer = Some(signer);
        self
    }

    pub(crate) fn anonymous(mut self) -> Self {
        self.signer = None;
        self
    }

    /// Leaves Content-Length out; the body goes chunked.
    pub(crate) fn without_length(mut self) -> Self {
        self.state_length = false;
        self
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Path, query and headers as they go out.
    fn signed(&self) -> (String, HeaderMap) {
        let mut headers = self.headers.clone();
        headers.insert("host", HeaderValue::from_str(&self.address).unwrap());
        if let Some(signer) = &self.signer {
            signer.sign(self.method.as_str(), &self.url(), &mut headers, &self.payload);
        }
        headers.extend(self.unsigned.clone());
        (self.path.clone(), headers)
    }

    pub(crate) async fn send(self) -> Answer {
        let (path, mut headers) = self.signed();
        if self.state_length && (self.method == Method::PUT || !self.body.is_empty()) {
            headers.insert("content-length", HeaderValue::from(self.body.len()));
        }
        send(&self.address, self.method, &path, headers, self.body, self.state_length).await
    }

    /// The head of the request as it goes over the wire, for tests that send the rest by hand.
    pub(crate) fn wire(&self, length: Option<u64>) -> Vec<u8> {
        let (path, headers) = self.signed();
        let mut text = format!("{} {path} HTTP/1.1\r\n", self.method);
        for (name, value) in &headers {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        if let Some(length) = length {
            text.push_str(&format!("content-length: {length}\r\n"));
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// A connection on which the head and `body` have been sent.
    pub(crate) async fn half_sent(&self, length: u64, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(&self.wire(Some(length))).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// Sends it presigned: the signature is in the URL, and covers the headers given so far.
    pub(crate) async fn send_presigned(self) -> Answer {
        let mut headers = self.headers.clone();
        headers.insert("host", HeaderValue::from_str(&self.address).unwrap());
        let signer = self.signer.clone().unwrap();
        let url = signer.presign(self.method.as_str(), &self.url(), &headers, Duration::from_secs(60));
        headers.extend(self.unsigned.clone());
        if self.method == Method::PUT {
            headers.insert("content-length", HeaderValue::from(self.body.len()));
        }
        let path = url.strip_prefix(&format!("http://{}", self.address)).unwrap().to_owned();
        send(&self.address, self.method, &path, headers, self.body, true).await
    }
}

pub(crate) async fn send(
    address: &str,
    method: Method,
    path: &str,
    headers: HeaderMap,
    body: Bytes,
    state_length: bool,
) -> Answer {
    let stream = TcpStream::connect(address).await.unwrap();
    let body = if state_length {
        Full::new(body).boxed()
    } else {
        let frames = futures_util::stream::iter([Ok(http_body::Frame::data(body))]);
        http_body_util::StreamBody::new(frames).boxed()
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let task = tokio::spawn(connection);
    let mut request = http::Request::builder().method(method).uri(path).body(body).unwrap();
    *request.headers_mut() = headers;
    let answer = sender.send_request(request).await.unwrap();
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes);
    drop(sender);
    task.abort();
    let body = body.expect("the whole body");
    Answer { status: parts.status, headers: parts.headers, body }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Content of the first element of that name in the body.
    pub(crate) fn element(&self, name: &str) -> Option<String> {
        elements(&self.text(), name).into_iter().next()
    }

    /// Contents of all elements of that name.
    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        elements(&self.text(), name)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    /// Status and S3 error code.
    pub(crate) fn error(&self) -> (u16, String) {
        (self.status.as_u16(), self.element("Code").unwrap_or_default())
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.is_success(), "{} {}", self.status, self.text());
        self
    }

    #[track_caller]
    pub(crate) fn fails(&self, status: u16, code: &str) {
        assert_eq!(self.error(), (status, code.to_owned()), "{}", self.text());
    }
}

fn elements(text: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    text.split(&open)
        .skip(1)
        .filter_map(|rest| rest.split_once(&close))
        .map(|(value, _)| value.replace("&quot;", "\"").replace("&lt;", "<").replace("&amp;", "&"))
        .collect()
}

/// Reads an answer that was requested by hand, up to the end of the connection or the body.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(n)) => bytes.extend(&buffer[..n]),
            Err(_) => panic!("the gateway neither answers nor closes: {}", String::from_utf8_lossy(&bytes)),
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, rest)) = text.split_once("\r\n\r\n")
            && let Some(length) = head.lines().find_map(|l| l.strip_prefix("content-length: "))
            && rest.len() >= length.parse().unwrap()
        {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

pub(crate) fn md5_hex(data: &[u8]) -> String {
    use md5::Digest as _;
    hex::encode(md5::Md5::digest(data))
}

pub(crate) fn sha256_hex(data: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(data))
}

/// CRC-64/NVME in base64.
pub(crate) fn crc64nvme(data: &[u8]) -> String {
    use vgwrdma::digest::{Algorithm, Digester};
    let mut digester = Digester::new(false, [Algorithm::Crc64Nvme]);
    digester.update(data);
    digester.finish().base64(Algorithm::Crc64Nvme).unwrap()
}
