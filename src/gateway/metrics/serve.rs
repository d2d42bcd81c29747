//! The listener for Prometheus.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::{Metrics, engine};
use crate::gateway::listen::{Accepted, Listener};
use crate::transfer::Engine;

/// Serves `/metrics` until it is told to stop.
pub(crate) async fn serve(
    listener: Listener,
    metrics: Arc<Metrics>,
    engine: Option<Arc<Engine>>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|s| *s) => return,
            accepted = listener.accept() => accepted,
        };
        let (metrics, engine) = (Arc::clone(&metrics), engine.clone());
        match accepted {
            Ok(Accepted::Tcp(stream, _)) => drop(tokio::spawn(talk(stream, metrics, engine))),
            Ok(Accepted::Unix(stream)) => drop(tokio::spawn(talk(stream, metrics, engine))),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn talk<S>(stream: S, metrics: Arc<Metrics>, engine: Option<Arc<Engine>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |req: Request<Incoming>| {
        let answer = answer(&req, &metrics, engine.as_deref());
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(60))
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection for metrics ended");
    }
}

fn answer<B>(req: &Request<B>, metrics: &Metrics, engine: Option<&Engine>) -> Response<Full<Bytes>> {
    let (status, text) = match (req.method(), req.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let mut text = metrics.render();
            engine::render(&mut text, engine);
            (StatusCode::OK, text)
        }
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "try /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
    };
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
