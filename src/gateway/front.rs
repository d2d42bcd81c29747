//! Around every request: its id, limits, health, counters, access log, and the last touch on answers.

mod answer;
pub(crate) mod form;
mod prepare;
mod version2;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use time::OffsetDateTime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use answer::touched;
use prepare::prepare;

use super::access_log::{AccessLog, Entry};
use super::account::Accounts;
use super::body::{CountedRequest, ObservedResponse, ResponseObserver};
use super::config::Config;
use super::cors::Cors;
use super::error::s3;
use super::listen::Ends;
use super::metrics::{Finished, Metrics};
use super::rdma::foreign;
use super::request::{Carrier, RequestContext};

/// What all requests of a gateway pass through. Share it in an `Arc`.
pub(crate) struct Front {
    service: S3Service,
    cors: Cors,
    accounts: Accounts,
    region: String,
    metrics: Arc<Metrics>,
    log: Option<AccessLog>,
    requests: Arc<Semaphore>,
    health: Option<String>,
    body_patience: Duration,
    /// Ids are this, which differs from start to start, and a count.
    id_base: u64,
    id_next: AtomicU64,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

/// Longest body whose length is found by reading it, in bytes: s3s wants to know it before.
const LENGTHLESS: usize = 4 << 20;

/// The body of every answer.
pub(crate) type ResponseBody = ObservedResponse<Body, Finish>;

impl Front {
    pub(crate) fn new(
        service: S3Service,
        cors: Cors,
        accounts: Accounts,
        metrics: Arc<Metrics>,
        log: Option<AccessLog>,
        config: &Config,
    ) -> Self {
        let mut seed = [0; 8];
        // Only to tell the ids of one start from those of another.
        let id_base = getrandom::fill(&mut seed).map_or(0, |()| u64::from_le_bytes(seed));
        let requests = Arc::new(Semaphore::new(config.max_requests.clamp(1, Semaphore::MAX_PERMITS)));
        Self {
            service,
            cors,
            accounts,
            metrics,
            log,
            requests,
            region: config.region.clone(),
            health: config.health.clone(),
            body_patience: config.body_patience,
            id_base,
            id_next: AtomicU64::new(0),
        }
    }

    fn next_id(&self) -> String {
        let n = self.id_next.fetch_add(1, Ordering::Relaxed);
        format!("{:016X}", self.id_base.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Serves one request.
    pub(crate) async fn serve(
        self: Arc<Self>,
        req: Request<Incoming>,
        ends: Ends,
        tls: Option<&'static str>,
    ) -> Response<ResponseBody> {
        let (head, body) = req.into_parts();
        let body = CountedRequest::new(body, &head.headers, Arc::clone(&self.metrics), self.body_patience);
        let req = Request::from_parts(head, body);
        let context =
            Arc::new(RequestContext::new(self.next_id(), ends.peer, ends.local, tls, req.headers()));
        self.metrics.request_started();
        let mut finish = Finish {
            metrics: Arc::clone(&self.metrics),
            log: self.log.clone(),
            head: Head::of(&req, tls),
            context: Arc::clone(&context),
            permit: None,
            status: 0,
            error: None,
            sent: 0,
            turned: None,
        };
        let head = req.method() == Method::HEAD;
        let answer = if self.is_health(&req) {
            context.outcome().operation = Some("Health");
            Response::new(Body::empty())
        } else if let Some(refusal) = foreign::control(req.method(), req.uri().path()) {
            self.metrics.rdma_declined();
            error_answer(refusal)
        } else if let Ok(permit) = Arc::clone(&self.requests).try_acquire_owned() {
            finish.permit = Some(permit);
            self.answer(req, &context).await
        } else {
            error_response(S3ErrorCode::SlowDown, "Please reduce your request rate.")
        };
        let operation = context.outcome().operation;
        let mut answer = touched(answer, head, operation, &context.id, &mut finish.error);
        finish.status = answer.status().as_u16();
        finish.turned = Some(Instant::now());
        if let Ok(id) = HeaderValue::try_from(context.id.as_str()) {
            answer.headers_mut().insert("x-amz-request-id", id);
        }
        answer.headers_mut().insert(header::SERVER, HeaderValue::from_static("vgwrdma"));
        answer.map(|body| ObservedResponse::new(body, finish))
    }

    async fn answer(&self, req: Request<CountedRequest>, context: &Arc<RequestContext>) -> Response<Body> {
        if req.method() == Method::OPTIONS {
            context.outcome().operation = Some("Preflight");
            return self.cors.preflight(&req).await.unwrap_or_else(error_answer);
        }
        let crossing = self.cors.crossing(&req);
        let mut answer = self.passed_on(req, context).await;
        if let Some(crossing) = crossing {
            answer.headers_mut().extend(self.cors.headers(&crossing).await);
        }
        answer
    }

    async fn passed_on(
        &self,
        mut req: Request<CountedRequest>,
        context: &Arc<RequestContext>,
    ) -> Response<Body> {
        if let Err(error) = prepare(&mut req, &self.accounts, &self.region, OffsetDateTime::now_utc()) {
            return error_answer(error);
        }
        let (parts, body) = req.into_parts();
        let mut req = match with_body(parts, body).await {
            Ok(req) => req,
            Err(error) => return error_answer(error),
        };
        req.extensions_mut().insert(Arc::clone(context));
        match self.service.call(req).await {
            Ok(answer) => answer,
            Err(error) => {
                let error: s3s::StdError = error.into();
                tracing::error!(request = context.id, %error, "cannot answer");
                error_response(
                    S3ErrorCode::InternalError,
                    "We encountered an internal error. Please try again.",
                )
            }
        }
    }

    fn is_health(&self, req: &Request<CountedRequest>) -> bool {
        self.health.as_deref() == Some(req.uri().path())
            && matches!(*req.method(), Method::GET | Method::HEAD)
    }
}

/// Gives a request its body, as s3s takes it.
async fn with_body(mut parts: http::request::Parts, mut body: CountedRequest) -> S3Result<Request<Body>> {
    let headers = &parts.headers;
    if parts.method == Method::POST
        && let Some(boundary) = form::boundary(headers)
    {
        let (fields, body) = form::prepare_form(body, &boundary).await?;
        parts.extensions.insert(fields);
        return Ok(Request::from_parts(parts, Body::http_body(body)));
    }
    let states_length = [header::CONTENT_LENGTH.as_str(), "x-amz-decoded-content-length"];
    if headers.contains_key(header::TRANSFER_ENCODING)
        && states_length.iter().all(|name| !headers.contains_key(*name))
    {
        let body = form::gathered(&mut body, LENGTHLESS).await?;
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        return Ok(Request::from_parts(parts, Body::from(body)));
    }
    Ok(Request::from_parts(parts, Body::http_body(body)))
}

fn error_response(code: S3ErrorCode, message: &str) -> Response<Body> {
    error_answer(s3(code, message))
}

fn error_answer(error: S3Error) -> Response<Body> {
    error.to_http_response().unwrap_or_else(|_| {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        answer
    })
}

/// What the access log says of a request's head.
struct Head {
    method: Method,
    uri: http::Uri,
    time: SystemTime,
    referer: Option<String>,
    user_agent: Option<String>,
    host: Option<String>,
    signature_version: Option<&'static str>,
    auth_type: Option<&'static str>,
    tls: Option<&'static str>,
}

impl Head {
    fn of<B>(req: &Request<B>, tls: Option<&'static str>) -> Self {
        let headers: &HeaderMap = req.headers();
        let text = |name: header::HeaderName| {
            headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let query = req.uri().query().unwrap_or("");
        let authorization = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let (signature_version, auth_type) = match authorization {
            Some(value) if value.starts_with(b"AWS4-") => (Some("SigV4"), Some("AuthHeader")),
            Some(_) => (Some("SigV2"), Some("AuthHeader")),
            None if query.contains("X-Amz-Signature=") => (Some("SigV4"), Some("QueryString")),
            None if query.contains("Signature=") => (Some("SigV2"), Some("QueryString")),
            None => (None, None),
        };
        Self {
            method: req.method().clone(),
            uri: req.uri().clone(),
            time: SystemTime::now(),
            referer: text(header::REFERER),
            user_agent: text(header::USER_AGENT),
            host: text(header::HOST),
            signature_version,
            auth_type,
            tls,
        }
    }
}

/// Ends a request's accounts when its answer is out, or its client gone.
pub(crate) struct Finish {
    metrics: Arc<Metrics>,
    log: Option<AccessLog>,
    head: Head,
    context: Arc<RequestContext>,
    permit: Option<OwnedSemaphorePermit>,
    status: u16,
    error: Option<String>,
    sent: u64,
    /// When the answer's head was ready; none when the client went before.
    turned: Option<Instant>,
}

impl std::fmt::Debug for Finish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finish").field("request", &self.context.id).finish_non_exhaustive()
    }
}

impl ResponseObserver for Finish {
    fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
        self.metrics.http_sent(bytes);
    }
}

/// The status of requests whose client left before the answer, as nginx logs it.
const CLIENT_GONE: u16 = 499;

impl Drop for Finish {
    fn drop(&mut self) {
        drop(self.permit.take());
        let outcome = self.context.outcome().clone();
        let total = self.context.started.elapsed();
        let status = if self.turned.is_some() { self.status } else { CLIENT_GONE };
        let moved = match outcome.carrier {
            Carrier::Rdma => outcome.rdma_in + outcome.rdma_out,
            Carrier::Http => match self.head.method {
                Method::PUT | Method::POST => outcome.object_size.unwrap_or(0),
                _ => self.sent,
            },
        };
        self.metrics.request_finished(&Finished {
            operation: outcome.operation.unwrap_or("Unknown"),
            status,
            carrier: outcome.carrier,
            elapsed: total,
            rdma_in: outcome.rdma_in,
            rdma_out: outcome.rdma_out,
        });
        tracing::debug!(
            request = self.context.id,
            operation = outcome.operation,
            status,
            carrier = outcome.carrier.name(),
            bytes = moved,
            ms = total.as_millis() as u64,
            "served"
        );
        let Some(log) = &self.log else { return };
        let head = &mut self.head;
        log.write(&Entry {
            bucket: outcome.bucket,
            time: head.time,
            remote: self.context.peer,
            requester: outcome.requester,
            request_id: self.context.id.clone(),
            method: head.method.clone(),
            operation: outcome.operation,
            key: outcome.key,
            uri: head.uri.clone(),
            status,
            error: self.error.take(),
            bytes_sent: self.sent,
            object_size: outcome.object_size,
            total,
            turn_around: self.turned.map_or(total, |t| t.duration_since(self.context.started)),
            referer: head.referer.take(),
            user_agent: head.user_agent.take(),
            version: outcome.version,
            signature_version: head.signature_version,
            auth_type: head.auth_type,
            host: head.host.take(),
            tls: head.tls,
            carrier: outcome.carrier.name(),
            moved,
        });
    }
}
