//! Signed requests over a connection of their own, with bodies by HTTP or by RDMA; a gateway that dies
//! meanwhile is an answer that is lost, not a failed test.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use vgwrdma::rdma::{CuClient, HostMemory, HugePages, Op};

use crate::process::{ACCESS, SECRET};
use crate::sign::Signer;

/// No whole answer came: nobody knows whether the request was carried out.
#[derive(Debug)]
pub(crate) struct Lost(#[expect(dead_code, reason = "shown by Debug")] String);

/// What carries a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Http,
    Rdma,
}

/// A client of one gateway.
#[derive(Clone)]
pub(crate) struct S3 {
    address: String,
    rdma: CuClient,
}

/// A request before it is signed.
#[derive(Clone)]
pub(crate) struct Call {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    /// `path` with its query, as it goes over the wire.
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers.insert(name, HeaderValue::from_str(value.as_ref()).unwrap());
        self
    }

    pub(crate) fn query(mut self, query: &str) -> Self {
        self.path = format!("{}?{query}", self.path);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

impl S3 {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), rdma: CuClient::open().unwrap() }
    }

    /// Sends a request with its body in it.
    pub(crate) async fn send(&self, call: Call) -> Result<Answer, Lost> {
        let mut headers = call.headers;
        headers.insert("host", HeaderValue::from_str(&self.address).unwrap());
        let signer =
            Signer { access: ACCESS.into(), secret: SECRET.into(), region: "us-east-1".into(), skew: 0 };
        let url = format!("http://{}{}", self.address, call.path);
        signer.sign(call.method.as_str(), &url, &mut headers, "UNSIGNED-PAYLOAD");
        headers.insert("content-length", HeaderValue::from(call.body.len()));
        let mut request = http::Request::new(Full::new(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = call.path.parse().unwrap();
        *request.headers_mut() = headers;
        exchange(&self.address, request).await.map_err(|error| Lost(error.to_string()))
    }

    /// Sends an upload by the carrier that is named; an empty body needs none.
    pub(crate) async fn upload(&self, carrier: Carrier, call: Call, body: &[u8]) -> Result<Answer, Lost> {
        if carrier == Carrier::Http || body.is_empty() {
            return self.send(call.body(body.to_vec())).await;
        }
        let mut memory =
            self.rdma.register(HostMemory::allocate(body.len(), HugePages::Off).unwrap()).unwrap();
        memory.copy_in(0, body).unwrap();
        let token = memory.owned_token(Op::Put, 0, body.len()).unwrap();
        let answer = self.send(call.header("x-amz-rdma-token", token.as_str())).await?;
        if answer.status == 200 {
            assert_eq!(answer.header("x-amz-rdma-reply"), "200", "the body moved by RDMA");
            token.finish();
        }
        Ok(answer)
    }

    /// Gets an object; one of at most `most` bytes when by RDMA. Its bytes are the answer's body
    /// either way.
    pub(crate) async fn download(&self, carrier: Carrier, call: Call, most: usize) -> Result<Answer, Lost> {
        if carrier == Carrier::Http {
            return self.send(call).await;
        }
        let memory = self.rdma.register(HostMemory::allocate(most, HugePages::Off).unwrap()).unwrap();
        let token = memory.owned_token(Op::Get, 0, most).unwrap();
        let mut answer = self.send(call.header("x-amz-rdma-token", token.as_str())).await?;
        if answer.status == 200 && answer.header("x-amz-rdma-reply") == "200" {
            let length: usize = answer.header("x-amz-rdma-bytes-transferred").parse().unwrap();
            token.finish();
            let mut bytes = vec![0; length];
            memory.copy_out(0, &mut bytes).unwrap();
            answer.body = bytes.into();
        }
        Ok(answer)
    }
}

async fn exchange(
    address: &str,
    request: http::Request<Full<Bytes>>,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    };
    let answer = answer.await;
    connection.abort();
    answer
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Contents of all elements of that name.
    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let text = self.text();
        let rest = text.split(&open).skip(1).filter_map(|rest| rest.split_once(&close));
        rest.map(|(value, _)| value.replace("&quot;", "\"").replace("&#34;", "\"")).collect()
    }

    /// Status and S3 error code.
    pub(crate) fn error(&self) -> (u16, String) {
        (self.status, self.elements("Code").pop().unwrap_or_default())
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        // CompleteMultipartUpload may say it in the body.
        let failed = !(200..300).contains(&self.status) || self.text().contains("<Error>");
        assert!(!failed, "{} {}", self.status, self.text());
        self
    }
}
