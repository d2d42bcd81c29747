//! One signed request and its answer, with S3 errors read from the body.

use std::time::{Duration, SystemTime};

use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::body::RequestBody;
use super::connection::Response;
use super::sign::sign_request;
use super::{Client, Error, Result};

/// What S3 leaves as it is in a query (the unreserved characters of RFC 3986).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// And in a path, where slashes separate.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// Longest error document that is read.
const ERROR_BODY_LIMIT: usize = 64 << 10;

/// A request before it is signed. Made anew for each attempt.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) bucket: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) query: Vec<(&'a str, String)>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: RequestBody,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, bucket: &'a str, key: Option<&'a str>) -> Self {
        Self { method, bucket, key, query: Vec::new(), headers: Vec::new(), body: RequestBody::Empty }
    }

    pub(crate) fn query(mut self, name: &'a str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Error::Invalid { what: format!("{name}: {value:?} cannot be sent in a header") })?;
        self.headers.push((HeaderName::from_static(name), value));
        Ok(self)
    }

    pub(crate) fn headers(mut self, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Self {
        self.headers.extend(headers);
        self
    }

    pub(crate) fn body(mut self, body: RequestBody) -> Self {
        self.body = body;
        self
    }

    /// Method and target, for messages.
    pub(crate) fn name(&self) -> String {
        match self.key {
            Some(key) => format!("{} {}/{key}", self.method, self.bucket),
            None => format!("{} {}", self.method, self.bucket),
        }
    }

    fn target(&self) -> String {
        let mut target = format!("/{}", utf8_percent_encode(self.bucket, PATH));
        if let Some(key) = self.key {
            target.push('/');
            target.extend(utf8_percent_encode(key, PATH));
        }
        for (i, (name, value)) in self.query.iter().enumerate() {
            target.push(if i == 0 { '?' } else { '&' });
            target.extend(utf8_percent_encode(name, QUERY));
            target.push('=');
            target.extend(utf8_percent_encode(value, QUERY));
        }
        target
    }
}

impl Client {
    /// Signs and sends; gives the reply whatever its status.
    pub(crate) async fn send(&self, call: Call<'_>) -> Result<Response> {
        let operation = call.name();
        if call.bucket.is_empty() || call.bucket.contains('/') {
            return Err(Error::Invalid { what: format!("{:?} is not a bucket name", call.bucket) });
        }
        if call.key == Some("") {
            return Err(Error::Invalid { what: "the object key is empty".to_owned() });
        }
        let shared = &self.shared;
        let invalid = |what: String| Error::Invalid { what };
        let mut headers = HeaderMap::new();
        let host = HeaderValue::try_from(shared.pool.endpoint().authority())
            .map_err(|_| invalid("the endpoint's host cannot be sent in a header".to_owned()))?;
        let agent = HeaderValue::try_from(&shared.user_agent)
            .map_err(|_| invalid("the user agent cannot be sent in a header".to_owned()))?;
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, agent);
        headers.extend(call.headers.iter().cloned());
        let length = call.body.length();
        if length > 0 || matches!(call.method, Method::PUT | Method::POST) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let target = call.target();
        if let Some(credentials) = &shared.credentials {
            let url = format!("{}{target}", shared.pool.endpoint().origin());
            sign_request(credentials, &shared.region, SystemTime::now(), &call.method, &url, &mut headers)?;
        }
        let mut request = Request::new(call.body);
        *request.method_mut() = call.method;
        *request.uri_mut() =
            target.parse().map_err(|e| invalid(format!("{target:?} is not a target: {e}")))?;
        *request.headers_mut() = headers;
        shared.pool.send(request, &operation).await
    }

    /// Sends, and turns every status of 300 and above into an error.
    pub(crate) async fn execute(&self, call: Call<'_>) -> Result<Response> {
        let reply = self.send(call).await?;
        if reply.status().as_u16() < 300 { Ok(reply) } else { Err(s3_error(reply).await) }
    }

    /// Counts the attempts of one request.
    pub(crate) fn attempts(&self) -> Attempts {
        Attempts { number: 1, most: self.shared.attempts }
    }

    /// Sends until there is a success or the attempts are used up.
    pub(crate) async fn execute_until_done<'a>(
        &self,
        call: impl Fn() -> Result<Call<'a>>,
    ) -> Result<Response> {
        let mut attempts = self.attempts();
        loop {
            let outcome = match call() {
                Ok(call) => self.execute(call).await,
                Err(error) => Err(error),
            };
            if let Some((done, _)) = attempts.end(outcome).await {
                return done;
            }
        }
    }
}

/// Attempts of one request: so many, with a pause between them.
#[derive(Debug)]
pub(crate) struct Attempts {
    number: u32,
    most: u32,
}

impl Attempts {
    /// Takes the outcome of an attempt. Gives it back with the number of attempts when it is final;
    /// otherwise waits, and another attempt is due.
    pub(crate) async fn end<T>(&mut self, outcome: Result<T>) -> Option<(Result<T>, u32)> {
        match outcome {
            Err(error) if error.is_retryable() && self.number < self.most => {
                tracing::debug!(%error, attempt = self.number, "trying again");
                tokio::time::sleep(pause(&error, self.number)).await;
                self.number += 1;
                None
            }
            outcome => Some((outcome, self.number)),
        }
    }
}

/// How long to wait before the next attempt: as told, or a little, more each time.
fn pause(error: &Error, attempt: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(5);
    let told = match error {
        Error::S3 { retry_after, .. } => *retry_after,
        _ => None,
    };
    told.unwrap_or(Duration::from_millis(50) * (1 << attempt.min(6))).min(LONGEST)
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct ErrorDocument {
    code: String,
    message: String,
    request_id: Option<String>,
}

/// Reads the S3 error of a reply with a status of 300 and above.
pub(crate) async fn s3_error(mut reply: Response) -> Error {
    let status = reply.status();
    let operation = reply.operation().to_owned();
    let request_id = reply.header("x-amz-request-id").map(str::to_owned);
    let retry_after =
        reply.header("retry-after").and_then(|v| v.trim().parse().ok()).map(Duration::from_secs);
    // The status alone is an answer; a body that breaks off changes nothing about it.
    let body = reply.text(ERROR_BODY_LIMIT).await.unwrap_or_default();
    let document: ErrorDocument = quick_xml::de::from_reader(&body[..]).unwrap_or_default();
    let reason = || status.canonical_reason().unwrap_or("unknown").replace(' ', "");
    Error::S3 {
        operation,
        status,
        code: if document.code.is_empty() { reason() } else { document.code },
        message: if document.message.is_empty() { plain_text(&body) } else { document.message },
        request_id: request_id.or(document.request_id),
        retry_after,
    }
}

/// The start of a body that is no S3 error document, in one line.
fn plain_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() { "no message".to_owned() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_encoded_as_s3_signs_them() {
        let call = Call::new(Method::PUT, "bucket", Some("a b/ü+?#"))
            .query("partNumber", 3)
            .query("uploadId", "x/y=");
        assert_eq!(call.target(), "/bucket/a%20b/%C3%BC%2B%3F%23?partNumber=3&uploadId=x%2Fy%3D");
        assert_eq!(call.name(), "PUT bucket/a b/ü+?#");
    }

    #[test]
    fn pauses_follow_the_gateway_within_bounds() {
        let slow_down = |retry_after| Error::S3 {
            operation: String::new(),
            status: http::StatusCode::SERVICE_UNAVAILABLE,
            code: "SlowDown".into(),
            message: String::new(),
            request_id: None,
            retry_after,
        };
        assert_eq!(pause(&slow_down(Some(Duration::from_secs(2))), 1), Duration::from_secs(2));
        assert_eq!(pause(&slow_down(Some(Duration::from_secs(600))), 1), Duration::from_secs(5));
        assert_eq!(pause(&slow_down(None), 1), Duration::from_millis(100));
    }
}
