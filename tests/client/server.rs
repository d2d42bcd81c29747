//! A scripted HTTP server: it keeps what it was sent and answers what a test tells it to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `PUT`.
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// Number of the connection, from 0.
    pub(crate) connection: usize,
}

impl Request {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The headers that the signature covers.
    pub(crate) fn signed_headers(&self) -> Vec<&str> {
        let authorization = self.header("authorization").unwrap_or_default();
        let list = authorization.split("SignedHeaders=").nth(1).unwrap_or_default();
        list.split(',').next().unwrap_or_default().split(';').collect()
    }
}

/// What to answer.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes; the connection stays open.
    Send(Vec<u8>),
    /// These bytes, then the end of the connection.
    SendAndClose(Vec<u8>),
}

impl Reply {
    /// A status, headers as lines, and a body with its length.
    pub(crate) fn new(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut text = format!("HTTP/1.1 {status} Scripted\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        Self::Send([text.as_bytes(), body].concat())
    }

    /// A transfer by RDMA that went well.
    pub(crate) fn rdma(status: u16, bytes: u64) -> Self {
        let (status_text, bytes) = (status.to_string(), bytes.to_string());
        let headers = [
            ("x-amz-rdma-reply", status_text.as_str()),
            ("x-amz-rdma-bytes-transferred", bytes.as_str()),
            ("ETag", "\"e\""),
        ];
        Self::new(status, &headers, b"")
    }

    /// An S3 error.
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        Self::new(status, &[("x-amz-request-id", "REQ1")], body.as_bytes())
    }

    /// The end of the connection without an answer.
    pub(crate) fn close() -> Self {
        Self::SendAndClose(Vec::new())
    }
}

/// The server. It listens until the process ends.
#[derive(Clone)]
pub(crate) struct Server {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server that answers with what `script` says of each request and its number, from 0.
    pub(crate) fn start(script: impl FnMut(&Request, usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { url, requests: Arc::default() };
        let (requests, script) = (Arc::clone(&server.requests), Arc::new(Mutex::new(script)));
        let connections = AtomicUsize::new(0);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let connection = connections.fetch_add(1, Ordering::Relaxed);
                let (requests, script) = (Arc::clone(&requests), Arc::clone(&script));
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Some(request) = read_request(&mut reader, connection) {
                        let number = {
                            let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
                            requests.push(request.clone());
                            requests.len() - 1
                        };
                        let reply = script.lock().unwrap_or_else(PoisonError::into_inner)(&request, number);
                        if !send(&stream, reply) {
                            return;
                        }
                    }
                });
            }
        });
        server
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What came so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn send(mut stream: &TcpStream, reply: Reply) -> bool {
    match reply {
        Reply::Send(bytes) => stream.write_all(&bytes).is_ok(),
        Reply::SendAndClose(bytes) => {
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Both);
            false
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(n, _)| n == "content-length").map_or(0, |(_, v)| v.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, target, headers, body, connection })
}
