//! Around every request: its id, limits, health, counters, access log, and the last touch on answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use s3s::service::S3Service;
use s3s::{Body, S3ErrorCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access_log::{AccessLog, Entry};
use super::body::{CountedRequest, ObservedResponse, ResponseObserver};
use super::error::s3;
use super::listen::Ends;
use super::metrics::{Finished, Metrics};
use super::rdma::foreign;
use super::request::{Carrier, RequestContext};

/// What all requests of a gateway pass through. Share it in an `Arc`.
pub(crate) struct Front {
    service: S3Service,
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

/// The body of every answer.
pub(crate) type ResponseBody = ObservedResponse<Body, Finish>;

impl Front {
    pub(crate) fn new(
        service: S3Service,
        metrics: Arc<Metrics>,
        log: Option<AccessLog>,
        max_requests: usize,
        health: Option<String>,
        body_patience: Duration,
    ) -> Self {
        let mut seed = [0; 8];
        // Only to tell the ids of one start from those of another.
        let id_base = getrandom::fill(&mut seed).map_or(0, |()| u64::from_le_bytes(seed));
        let requests = Arc::new(Semaphore::new(max_requests.clamp(1, Semaphore::MAX_PERMITS)));
        Self { service, metrics, log, requests, health, body_patience, id_base, id_next: AtomicU64::new(0) }
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
        let context = Arc::new(RequestContext::new(self.next_id(), ends.peer, ends.local, req.headers()));
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
            response_of(refusal)
        } else if let Ok(permit) = Arc::clone(&self.requests).try_acquire_owned() {
            finish.permit = Some(permit);
            self.answer(req, &context).await
        } else {
            error_response(S3ErrorCode::SlowDown, "Please reduce your request rate.")
        };
        let mut answer = touched(answer, head, &context.id, &mut finish.error);
        finish.status = answer.status().as_u16();
        finish.turned = Some(Instant::now());
        if let Ok(id) = HeaderValue::try_from(context.id.as_str()) {
            answer.headers_mut().insert("x-amz-request-id", id);
        }
        answer.headers_mut().insert(header::SERVER, HeaderValue::from_static("vgwrdma"));
        answer.map(|body| ObservedResponse::new(body, finish))
    }

    async fn answer(&self, req: Request<Incoming>, context: &Arc<RequestContext>) -> Response<Body> {
        let metrics = Arc::clone(&self.metrics);
        let patience = self.body_patience;
        let mut req = req.map(|body| Body::http_body(CountedRequest::new(body, metrics, patience)));
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

    fn is_health(&self, req: &Request<Incoming>) -> bool {
        self.health.as_deref() == Some(req.uri().path())
            && matches!(*req.method(), Method::GET | Method::HEAD)
    }
}

fn error_response(code: S3ErrorCode, message: &str) -> Response<Body> {
    response_of(s3(code, message))
}

fn response_of(error: s3s::S3Error) -> Response<Body> {
    error.to_http_response().unwrap_or_else(|_| {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        answer
    })
}

/// Makes an answer of s3s what HTTP and S3 want it to be, and notes the error code in it.
fn touched(answer: Response<Body>, head: bool, id: &str, code: &mut Option<String>) -> Response<Body> {
    let (mut parts, mut body) = answer.into_parts();
    if parts.status == StatusCode::NOT_MODIFIED {
        // RFC 9110 section 15.4.5: no content.
        for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE] {
            parts.headers.remove(name);
        }
        return Response::from_parts(parts, Body::empty());
    }
    if head && parts.status == StatusCode::OK && parts.headers.contains_key(header::CONTENT_RANGE) {
        parts.status = StatusCode::PARTIAL_CONTENT;
    }
    if parts.status.as_u16() >= 400
        && let Some(document) = body.bytes()
        && let Some(extended) = with_request_id(&document, id, code)
    {
        body = Body::from(extended);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, body)
}

/// Adds the request's id to an error document, and a text where s3s has none.
fn with_request_id(document: &Bytes, id: &str, code: &mut Option<String>) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(document).ok()?;
    let start = text.find("<Code>")? + "<Code>".len();
    let name = text[start..].split('<').next()?;
    *code = Some(name.to_owned());
    if text.contains("<RequestId>") {
        return None;
    }
    let end = text.rfind("</Error>")?;
    let message = if text.contains("<Message>") {
        String::new()
    } else {
        format!("<Message>{}</Message>", usual_message(name))
    };
    Some(format!("{}{message}<RequestId>{id}</RequestId>{}", &text[..end], &text[end..]).into_bytes())
}

/// What is to be said of errors that s3s raises without a text.
fn usual_message(code: &str) -> &'static str {
    match code {
        "InvalidBucketName" => {
            "The specified bucket is not valid: names have 3 to 63 lower-case letters, digits, dots and hyphens."
        }
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        }
        "KeyTooLongError" => "Your key is too long.",
        "InvalidURI" => "Couldn't parse the specified URI.",
        "MalformedXML" => {
            "The XML you provided was not well-formed or did not validate against our published schema."
        }
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "IncompleteBody" => "The body does not have the number of bytes that the headers state.",
        "AccessDenied" => "Access Denied",
        "NotImplemented" => "A header or operation that you asked for is not implemented.",
        "MaxMessageLengthExceeded" => "Your request was too big.",
        "InternalError" => "We encountered an internal error. Please try again.",
        _ => "The request cannot be served.",
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of(status: u16, body: &str) -> Response<Body> {
        let mut answer = Response::new(Body::from(body.to_owned()));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer
    }

    #[test]
    fn errors_get_the_request_id() {
        let mut code = None;
        let document = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>";
        let answer = touched(answer_of(404, document), false, "ABC", &mut code);
        let text = String::from_utf8(answer.into_body().bytes().unwrap().to_vec()).unwrap();
        assert!(text.ends_with("</Message><RequestId>ABC</RequestId></Error>"), "{text}");
        assert_eq!(code.as_deref(), Some("NoSuchKey"));
        let document = "<Error><Code>X</Code><Message>m</Message></Error>";
        let answer = touched(answer_of(400, document), false, "ABC", &mut code);
        let text = String::from_utf8(answer.into_body().bytes().unwrap().to_vec()).unwrap();
        assert_eq!(text, "<Error><Code>X</Code><Message>m</Message><RequestId>ABC</RequestId></Error>");
    }

    #[test]
    fn a_304_has_no_body_and_a_ranged_head_is_206() {
        let mut code = None;
        let not_modified = touched(answer_of(304, "<Error>"), false, "", &mut code);
        assert!(not_modified.into_body().bytes().unwrap().is_empty());
        let mut ranged = answer_of(200, "");
        ranged.headers_mut().insert(header::CONTENT_RANGE, HeaderValue::from_static("bytes 0-0/1"));
        assert_eq!(touched(ranged, true, "", &mut code).status(), StatusCode::PARTIAL_CONTENT);
    }
}
