//! Every known client of S3 over RDMA against this gateway, on the software SDK: its own headers,
//! its own way to sign, and its own idea of success.

mod rules;
mod table;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::{HeaderName, Method};
use vgwrdma::rdma::{
    ClientMemory, CuClient, CuServer, Descriptor, HostMemory, HugePages, Op, OwnedToken, Tunables,
};
use vgwrdma::transfer::Engine;
use vgwrdma::transfer::cuobj::CuEndpoint;
use vgwrdma::transfer::transport::memory::RemoteMemory;

use crate::fixture::{Answer, TestGateway, TestRequest, engine_config, pattern, sha256_hex};
use rules::Verdict;
use table::{CLIENTS, Client, Declined, Form, Ranges, Signing};

/// Registered memory of a client, with a token out for it.
struct Registered {
    memory: ClientMemory,
    token: OwnedToken,
}

impl Registered {
    fn new(bytes: &[u8], op: Op) -> Self {
        let memory = CuClient::open().unwrap().register(bytes.to_vec()).unwrap();
        let token = memory.owned_token(op, 0, bytes.len()).unwrap();
        Self { memory, token }
    }

    fn descriptor(&self) -> &Descriptor {
        self.token.descriptor()
    }

    /// What the memory holds after the operation.
    fn bytes(self) -> Vec<u8> {
        self.token.finish();
        let mut bytes = vec![0; self.memory.len()];
        self.memory.copy_out(0, &mut bytes).unwrap();
        bytes
    }
}

/// A gateway whose engine works on the software SDK and looks in every header that clients use.
async fn gateway() -> TestGateway {
    let config = engine_config();
    let server = CuServer::open(IpAddr::V4(Ipv4Addr::LOCALHOST), 19100, &Tunables::default()).unwrap();
    let slab = HostMemory::allocate(16 * config.chunk_size, HugePages::Off).unwrap();
    let (slab, leases) = slab.into_leases(config.chunk_size).unwrap();
    let endpoint = Arc::new(CuEndpoint::new(server, &[slab]).unwrap());
    let engine = Arc::new(Engine::start(config, vec![endpoint], leases).unwrap());
    let names = ["x-rdma-info", "x-amz-meta-rdma-token"].map(HeaderName::from_static);
    TestGateway::start(|c| c.tokens.extra_headers = names.to_vec(), Some(engine), RemoteMemory::new()).await
}

impl Client {
    /// A request with this client's token headers.
    fn request(&self, gateway: &TestGateway, method: Method, path: &str, memory: &Registered) -> TestRequest {
        let descriptor = memory.descriptor();
        let token = memory.token.as_str().to_owned();
        let (address, size) = (descriptor.address, descriptor.size);
        let mut request = gateway.request(method, path).header(
            self.token_header,
            match self.form {
                Form::Suffixed => format!("{token}:{address:016x}:{size:016x}"),
                Form::Plain | Form::Triple => token,
            },
        );
        if self.form == Form::Triple {
            request = request
                .header("x-cuobj-content-length", size.to_string())
                .header("x-cuobj-remote-buf-start", address.to_string());
        }
        if self.signing == Signing::EmptyHash { request.payload(sha256_hex(b"")) } else { request }
    }

    async fn send(&self, request: TestRequest) -> Answer {
        if self.signing == Signing::Presigned { request.send_presigned().await } else { request.send().await }
    }

    async fn put(&self, gateway: &TestGateway, path: &str, data: &[u8]) -> (Answer, Verdict) {
        let memory = Registered::new(data, Op::Put);
        let mut request = self.request(gateway, Method::PUT, path, &memory);
        for (name, value) in (self.put_headers)(data) {
            request = request.header(name, value);
        }
        let answer = self.send(request).await;
        let verdict = (self.put_done)(&answer, data.len());
        (answer, verdict)
    }

    /// Gets bytes `first..=last`, of an object of `size` bytes, into fresh memory.
    async fn get(
        &self,
        gateway: &TestGateway,
        key: &str,
        (first, last, size): (usize, usize, usize),
    ) -> (Answer, Verdict, Vec<u8>) {
        let length = last - first + 1;
        let memory = Registered::new(&vec![0xee; length], Op::Get);
        let mut request = self.request(gateway, Method::GET, &format!("/bucket/{key}"), &memory);
        for (name, value) in self.get_headers {
            request = request.header(name, value);
        }
        if self.ranges == Ranges::Always || length < size {
            request = request.header("range", format!("bytes={first}-{last}"));
        }
        if self.if_match {
            request = request.header("if-match", gateway.head(key).await.ok().header("etag"));
        }
        let answer = self.send(request).await;
        let verdict = (self.get_done)(&answer, length);
        (answer, verdict, memory.bytes())
    }
}

async fn complete(gateway: &TestGateway, key: &str, id: &str, etags: &[String]) {
    let parts: String = etags
        .iter()
        .zip(1..)
        .map(|(etag, n)| format!("<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let path = format!("/bucket/{key}?uploadId={id}");
    gateway.request(Method::POST, &path).body(document).send().await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_gets_what_it_expects() {
    let gateway = gateway().await;
    let data = pattern(200_003, 3);
    for (number, client) in CLIENTS.iter().enumerate() {
        let (name, key, size) = (client.name, format!("key-{number}"), data.len());
        if client.puts {
            let (answer, verdict) = client.put(&gateway, &format!("/bucket/{key}"), &data).await;
            assert_eq!(verdict, Verdict::Done(size), "{name}: PUT: {answer:?}");
            assert!(std::fs::read(gateway.file(&key)).unwrap() == data, "{name}");
        } else {
            gateway.put(&key, data.clone()).await.ok();
        }
        let head = gateway.head(&key).await.ok();
        assert_eq!(head.header("x-amz-meta-rdma-token"), "", "{name}: a token is no metadata");

        let (answer, verdict, bytes) = client.get(&gateway, &key, (0, size - 1, size)).await;
        assert_eq!(verdict, Verdict::Done(size), "{name}: GET: {answer:?}");
        assert!(bytes == data && answer.body.is_empty(), "{name}");
        if client.ranges != Ranges::Never {
            let (answer, verdict, bytes) = client.get(&gateway, &key, (70_001, 150_000, size)).await;
            assert_eq!(verdict, Verdict::Done(80_000), "{name}: range GET: {answer:?}");
            assert!(bytes == data[70_001..=150_000], "{name}");
        }
        if client.parts {
            let key = format!("parts-{number}");
            let created = gateway.request(Method::POST, &format!("/bucket/{key}?uploads=")).send().await.ok();
            let id = created.element("UploadId").unwrap();
            let parts = [pattern(5 << 20, 1), pattern(70_000, 2)];
            let mut etags = Vec::new();
            for (part, n) in parts.iter().zip(1..) {
                let path = format!("/bucket/{key}?partNumber={n}&uploadId={id}");
                let (answer, verdict) = client.put(&gateway, &path, part).await;
                assert_eq!(verdict, Verdict::Done(part.len()), "{name}: UploadPart: {answer:?}");
                etags.push(answer.header("etag").to_owned());
            }
            complete(&gateway, &key, &id, &etags).await;
            assert!(std::fs::read(gateway.file(&key)).unwrap() == parts.concat(), "{name}");
        }
    }
    gateway.settle().await;
    assert_eq!(gateway.stats().failures.len(), 0);
}

/// A gateway without RDMA: no client may take its refusal for success, and each can go on in its way.
#[tokio::test(flavor = "multi_thread")]
async fn no_client_takes_a_refusal_for_success() {
    let names = ["x-rdma-info", "x-amz-meta-rdma-token"].map(HeaderName::from_static);
    let gateway = TestGateway::plain_with(|c| c.tokens.extra_headers = names.to_vec()).await;
    let data = pattern(100_000, 4);
    for (number, client) in CLIENTS.iter().enumerate() {
        let (name, key) = (client.name, format!("key-{number}"));
        if client.puts {
            let (answer, verdict) = client.put(&gateway, &format!("/bucket/{key}"), &data).await;
            assert_eq!(verdict, Verdict::Declined, "{name}: PUT: {answer:?}");
            assert!(!gateway.file(&key).exists(), "{name}");
        }
        gateway.put(&key, data.clone()).await.ok();
        let (answer, verdict, memory) = client.get(&gateway, &key, (0, data.len() - 1, data.len())).await;
        assert_eq!(verdict, Verdict::Declined, "{name}: GET: {answer:?}");
        assert!(memory.iter().all(|b| *b == 0xee), "{name}");
        if client.declined == Declined::GoesOverHttp {
            assert!(answer.body == data, "{name}: the body is there without a second request");
        }
    }
    gateway.settle().await;
}

/// elbencho's own command-line client signs nothing at all.
#[tokio::test]
async fn a_client_that_does_not_sign_is_refused() {
    let gateway = gateway().await;
    let memory = Registered::new(b"data", Op::Put);
    let request = gateway.request(Method::PUT, "/bucket/key").anonymous();
    let answer = request
        .header("x-amz-rdma-token", memory.token.as_str())
        .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        .send()
        .await;
    answer.fails(403, "AccessDenied");
    assert!(!gateway.file("key").exists());
}

/// The dialects over reliable connections: setting up is refused in their terms, object requests
/// that come nevertheless are declined, and a plain body works.
#[tokio::test]
async fn dialects_that_are_not_spoken_fall_back() {
    let gateway = gateway().await;
    let hip = format!("01{}", "0a".repeat(43));
    let hip_v1 = format!("{hip}:00007f0000001000:0000000000000004");
    let shim = "rc:00112233445566778899aabbccddeeff:00007f0012340000:00000004:00001a2b";
    for (path, headers) in [
        ("/.s3rdma-rc/connect", &[("x-amz-rdma-token", hip.as_str()), ("x-amz-rdma-psn", "00a1b2")][..]),
        ("/.s3rdma-rc/disconnect", &[("x-amz-rdma-session", "00112233445566778899aabbccddeeff")]),
        (
            "/.hipobj-rc/prepare",
            &[
                ("x-amz-rdma-protocol", "hipobj-rc-v2"),
                ("x-amz-rdma-token", hip.as_str()),
                ("x-amz-rdma-op", "PUT"),
                ("x-amz-rdma-target", "/bucket/key"),
            ],
        ),
    ] {
        // The shim does not sign these requests, hipObject does.
        for request in [gateway.request(Method::POST, path), gateway.request(Method::POST, path).anonymous()]
        {
            let answer = headers.iter().fold(request, |r, (name, value)| r.header(name, value)).send().await;
            answer.fails(501, "NotImplemented");
            assert_eq!(answer.header("x-amz-rdma-reply"), "501", "{path}");
            assert_eq!(answer.header("x-amz-rdma-protocol-status"), "unsupported", "{path}");
        }
    }
    for token in [shim, &hip, &hip_v1] {
        let put = gateway.request(Method::PUT, "/bucket/key").header("x-amz-rdma-token", token).send().await;
        put.fails(501, "NotImplemented");
        assert_eq!(put.header("x-amz-rdma-reply"), "501");
        assert_eq!(put.header("x-amz-rdma-protocol-status"), "unsupported");
        assert!(!gateway.file("key").exists());
        gateway.put("key", "over http").await.ok();
        let get = gateway.request(Method::GET, "/bucket/key").header("x-amz-rdma-token", token).send().await;
        assert_eq!(
            (get.ok().text().as_str(), std::fs::remove_file(gateway.file("key")).is_ok()),
            ("over http", true)
        );
    }
}
