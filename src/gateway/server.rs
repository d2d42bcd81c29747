//! Accepting and serving connections, up to their end.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::front::Front;
use super::listen::{Accepted, Ends, Listener};
use super::metrics::Metrics;

/// How long a client may take for a request's head, a TLS handshake, or until it asks again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bound of hyper's read buffer, in bytes: large bodies come in large pieces.
const READ_BUFFER: usize = 512 << 10;

/// What connections are served with.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) front: Arc<Front>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limit: Arc<Semaphore>,
    pub(crate) keep_alive: bool,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Counts an open connection for as long as it lives.
struct Open(Arc<Metrics>);

impl Open {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.connection_opened();
        Self(Arc::clone(metrics))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connection_closed();
    }
}

/// Accepts on all listeners until `stop` says so; then lets the requests in progress end, for at
/// most the time that `grace` takes to pass.
pub(crate) async fn serve(
    listeners: Vec<Listener>,
    connections: Connections,
    mut stop: watch::Receiver<bool>,
    grace: impl Future<Output = ()>,
) {
    let graceful = Arc::new(GracefulShutdown::new());
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        let (connections, graceful, mut stop) = (connections.clone(), Arc::clone(&graceful), stop.clone());
        acceptors.spawn(async move {
            tokio::select! {
                _ = stop.wait_for(|s| *s) => {}
                () = accept(&listener, connections, graceful) => {}
            }
        });
    }
    // Ends with an error only when the sender is gone, which also means to stop.
    let _ = stop.wait_for(|s| *s).await;
    while acceptors.join_next().await.is_some() {}
    let Ok(graceful) = Arc::try_unwrap(graceful).map_err(drop) else { return };
    tokio::select! {
        () = graceful.shutdown() => {}
        () = grace => tracing::warn!("requests were still in progress at the end of the shutdown"),
    }
}

async fn accept(listener: &Listener, connections: Connections, graceful: Arc<GracefulShutdown>) {
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&connections.limit).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(accepted) => {
                let (connections, watcher) = (connections.clone(), graceful.watcher());
                tokio::spawn(async move {
                    let _open = Open::new(&connections.metrics);
                    match accepted {
                        Accepted::Tcp(stream, ends) => connections.handshake(stream, ends, watcher).await,
                        Accepted::Unix(stream) => {
                            connections.handshake(stream, Ends::default(), watcher).await
                        }
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of descriptors, or a client that left the queue: neither ends the listener.
                tracing::warn!(%error, listener = listener.name(), "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl Connections {
    async fn handshake<S>(&self, stream: S, ends: Ends, watcher: hyper_util::server::graceful::Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = &self.tls else { return self.talk(stream, ends, None, watcher).await };
        match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let version = match stream.get_ref().1.protocol_version() {
                    Some(tokio_rustls::rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
                    _ => "TLSv1.2",
                };
                self.talk(stream, ends, Some(version), watcher).await;
            }
            Ok(Err(error)) => {
                self.metrics.connection_refused();
                tracing::debug!(%error, peer = ?ends.peer, "TLS handshake failed");
            }
            Err(_) => self.metrics.connection_refused(),
        }
    }

    async fn talk<S>(
        &self,
        stream: S,
        ends: Ends,
        tls: Option<&'static str>,
        watcher: hyper_util::server::graceful::Watcher,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let front = Arc::clone(&self.front);
        let service = service_fn(move |req| {
            let front = Arc::clone(&front);
            async move { Ok::<_, Infallible>(front.serve(req, ends, tls).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(READ_BUFFER)
            .keep_alive(self.keep_alive)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, peer = ?ends.peer, "connection ended");
        }
    }
}
