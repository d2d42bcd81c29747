//! Connections to the gateway: made within a deadline, kept for the next request.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::body::RequestBody;
use super::{Endpoint, Error, Result};

/// How long the steps of a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection stands, name look-up and TLS included.
    pub connect: Duration,
    /// From the request until the head of the reply, an RDMA transfer or a request body included.
    pub reply: Duration,
    /// Between two pieces of a response body.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            reply: Duration::from_secs(60),
            stall: Duration::from_secs(30),
        }
    }
}

/// Idle connections to one endpoint, and the means to make more.
pub(crate) struct Pool {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
    timeouts: Timeouts,
    idle: Mutex<Vec<SendRequest<RequestBody>>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(endpoint: Endpoint, tls: Option<TlsConnector>, timeouts: Timeouts) -> Self {
        Self { endpoint, tls, timeouts, idle: Mutex::default() }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a request on an idle or a new connection, and waits for the head of the reply.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
        operation: &str,
    ) -> Result<Response> {
        loop {
            let (mut sender, reused) = self.checkout().await?;
            let sent =
                timeout(self.timeouts.reply, sender.try_send_request(request)).await.map_err(|_| {
                    Error::Timeout {
                        operation: operation.to_owned(),
                        what: "no reply",
                        after: self.timeouts.reply,
                    }
                })?;
            match sent {
                Ok(reply) => {
                    let (head, body) = reply.into_parts();
                    return Ok(Response {
                        head,
                        body,
                        connection: Some(sender),
                        pool: Arc::clone(self),
                        operation: operation.to_owned(),
                    });
                }
                Err(mut failure) => match failure.take_message() {
                    // The gateway closed an idle connection; nothing of the request was written.
                    Some(unsent) if reused => request = unsent,
                    _ => {
                        return Err(Error::Transport {
                            operation: operation.to_owned(),
                            source: Box::new(failure.into_error()),
                        });
                    }
                },
            }
        }
    }

    async fn checkout(&self) -> Result<(SendRequest<RequestBody>, bool)> {
        while let Some(mut sender) = self.pop_idle() {
            if sender.ready().await.is_ok() {
                return Ok((sender, true));
            }
        }
        let failed = |source| Error::Connect { endpoint: self.endpoint.authority(), source };
        let limit = self.timeouts.connect;
        match timeout(limit, self.connect()).await {
            Ok(connected) => Ok((connected.map_err(failed)?, false)),
            Err(_) => Err(failed(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no connection within {} s", limit.as_secs_f64()),
            ))),
        }
    }

    async fn connect(&self) -> io::Result<SendRequest<RequestBody>> {
        let tcp = TcpStream::connect((self.endpoint.host(), self.endpoint.port())).await?;
        // A request is one small write that the gateway waits for.
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return handshake(TokioIo::new(tcp)).await;
        };
        let name = ServerName::try_from(self.endpoint.host().to_owned())
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        handshake(TokioIo::new(tls.connect(name, tcp).await?)).await
    }

    fn pop_idle(&self) -> Option<SendRequest<RequestBody>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, sender: SendRequest<RequestBody>) {
        if !sender.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        }
    }
}

async fn handshake<T>(io: T) -> io::Result<SendRequest<RequestBody>>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new().handshake(io).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
    Ok(sender)
}

/// A reply whose body has not been read yet.
pub(crate) struct Response {
    head: Parts,
    body: Incoming,
    connection: Option<SendRequest<RequestBody>>,
    pool: Arc<Pool>,
    operation: String,
}

impl Response {
    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    pub(crate) fn operation(&self) -> &str {
        &self.operation
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// `Content-Length`.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.header("content-length")?.trim().parse().ok()
    }

    /// The next piece of the body; `None` at its end, where the connection goes back to the pool.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        let stall = self.pool.timeouts.stall;
        loop {
            let frame = timeout(stall, self.body.frame()).await.map_err(|_| Error::Timeout {
                operation: self.operation.clone(),
                what: "no further part of the body",
                after: stall,
            })?;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    return Err(Error::Transport {
                        operation: self.operation.clone(),
                        source: Box::new(error),
                    });
                }
                None => {
                    if let Some(connection) = self.connection.take() {
                        self.pool.keep(connection);
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// The whole body, at most `limit` bytes of it; the rest is not read.
    pub(crate) async fn text(&mut self, limit: usize) -> Result<Bytes> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await? {
            let room = limit - all.len();
            all.extend_from_slice(&piece[..piece.len().min(room)]);
            if all.len() == limit {
                break;
            }
        }
        Ok(all.freeze())
    }

    /// Reads a short body to its end, so that the connection can be used again.
    pub(crate) async fn drain(mut self) -> Result<()> {
        self.text(64 << 10).await.map(drop)
    }
}
