//! Cross-origin requests: which of a bucket's rules lets a browser's page in, and what it is told.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/userguide/cors.html>

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use percent_encoding::percent_decode_str;
use s3s::dto::{CORSConfiguration, CORSRule};
use s3s::host::{MultiDomain, S3Host};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::blocking::Blocking;
use super::error::s3_status;
use super::xml::from_xml;
use crate::store::Store;

/// The bucket attribute with the rules, XML.
pub(crate) const ATTRIBUTE: &str = "cors";

/// Methods that a rule may allow.
pub(crate) const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// Answers preflight requests, and adds headers to the answers of cross-origin requests.
pub(crate) struct Cors {
    pub(crate) store: Store,
    pub(crate) blocking: Blocking,
    /// Domains whose sub-domains are buckets.
    pub(crate) domains: Option<MultiDomain>,
}

/// A request as the rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    bucket: String,
    origin: String,
    method: String,
    /// Names of `Access-Control-Request-Headers`, in lower case.
    headers: Vec<String>,
    preflight: bool,
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().filter(|value| !value.is_empty())
}

impl Cors {
    /// The cross-origin request that this is; none when its origin or its bucket is not stated.
    pub(crate) fn crossing<B>(&self, req: &Request<B>) -> Option<Crossing> {
        let headers = req.headers();
        let origin = text(headers, &header::ORIGIN)?.to_owned();
        let preflight = req.method() == Method::OPTIONS;
        let asked = text(headers, &header::ACCESS_CONTROL_REQUEST_METHOD);
        let method = asked.map_or_else(|| req.method().as_str().to_owned(), str::to_owned);
        let names = text(headers, &header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
        let headers = names.split(',').map(|n| n.trim().to_ascii_lowercase()).filter(|n| !n.is_empty());
        Some(Crossing {
            bucket: self.bucket(req.uri(), req.headers())?,
            origin,
            method,
            headers: headers.collect(),
            preflight,
        })
    }

    fn bucket(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let host = text(headers, &header::HOST);
        if let (Some(domains), Some(host)) = (&self.domains, host)
            && let Ok(virtual_host) = domains.parse_host_header(host)
            && let Some(bucket) = virtual_host.bucket()
        {
            return Some(bucket.to_owned());
        }
        let segment = uri.path().trim_start_matches('/').split('/').next()?;
        let bucket = percent_decode_str(segment).decode_utf8().ok()?;
        (!bucket.is_empty()).then(|| bucket.into_owned())
    }

    async fn rules(&self, bucket: &str) -> S3Result<Vec<CORSRule>> {
        let (store, bucket) = (self.store.clone(), bucket.to_owned());
        let document = self.blocking.run(move || store.bucket_attribute(&bucket, ATTRIBUTE)).await??;
        Ok(match document {
            Some(document) => from_xml::<CORSConfiguration>(&document)?.cors_rules,
            None => Vec::new(),
        })
    }

    /// What the answer of a cross-origin request says to the browser; nothing when no rule allows it.
    pub(crate) async fn headers(&self, crossing: &Crossing) -> HeaderMap {
        // A bucket that is not there, or whose rules cannot be read, allows nothing.
        let rules = self.rules(&crossing.bucket).await.unwrap_or_default();
        granted(&rules, crossing).unwrap_or_default()
    }

    /// Answers an OPTIONS request, which carries no signature.
    pub(crate) async fn preflight<B>(&self, req: &Request<B>) -> S3Result<Response<Body>> {
        let bad = |what: &str| {
            s3_status(
                S3ErrorCode::Custom("BadRequest".into()),
                http::StatusCode::BAD_REQUEST,
                format!("Insufficient information. {what}"),
            )
        };
        if text(req.headers(), &header::ORIGIN).is_none() {
            return Err(bad("Origin request header needed."));
        }
        let method = text(req.headers(), &header::ACCESS_CONTROL_REQUEST_METHOD);
        if !method.is_some_and(|m| METHODS.contains(&m)) {
            return Err(bad("Access-Control-Request-Method needed, one of GET, PUT, POST, DELETE, HEAD."));
        }
        let crossing = self.crossing(req).ok_or_else(|| bad("A bucket is needed."))?;
        let rules = self.rules(&crossing.bucket).await?;
        if rules.is_empty() {
            return Err(forbidden("CORSResponse: CORS is not enabled for this bucket."));
        }
        let headers = granted(&rules, &crossing).ok_or_else(|| {
            forbidden(
                "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.",
            )
        })?;
        let mut answer = Response::new(Body::empty());
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

fn forbidden(what: &str) -> S3Error {
    s3_status(S3ErrorCode::Custom("AccessForbidden".into()), http::StatusCode::FORBIDDEN, what)
}

/// Whether a text matches a pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

/// Headers by the first rule that allows the request.
fn granted(rules: &[CORSRule], crossing: &Crossing) -> Option<HeaderMap> {
    let (rule, origin) = rules.iter().find_map(|rule| {
        let origin = rule.allowed_origins.iter().find(|o| matches(o, &crossing.origin))?;
        let method = rule.allowed_methods.contains(&crossing.method);
        let allows = |name: &String| {
            rule.allowed_headers.iter().flatten().any(|p| matches(&p.to_ascii_lowercase(), name))
        };
        (method && crossing.headers.iter().all(allows)).then_some((rule, origin))
    })?;
    let mut told = HeaderMap::new();
    let mut tell = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            told.insert(name, value);
        }
    };
    if origin == "*" {
        tell(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*".to_owned());
    } else {
        tell(header::ACCESS_CONTROL_ALLOW_ORIGIN, crossing.origin.clone());
        tell(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true".to_owned());
    }
    tell(header::ACCESS_CONTROL_ALLOW_METHODS, rule.allowed_methods.join(", "));
    if let Some(names) = rule.expose_headers.as_ref().filter(|n| !n.is_empty()) {
        tell(header::ACCESS_CONTROL_EXPOSE_HEADERS, names.join(", "));
    }
    if crossing.preflight {
        if !crossing.headers.is_empty() {
            tell(header::ACCESS_CONTROL_ALLOW_HEADERS, crossing.headers.join(", "));
        }
        if let Some(seconds) = rule.max_age_seconds {
            tell(header::ACCESS_CONTROL_MAX_AGE, seconds.to_string());
        }
    }
    tell(header::VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method".to_owned());
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("*", "anything" => true)]
    #[test_case("http://a.example", "http://a.example" => true)]
    #[test_case("http://*.example", "http://a.example" => true)]
    #[test_case("start*end", "startend" => true)]
    #[test_case("start*tend", "startend" => false; "the ends do not overlap")]
    #[test_case("*suffix", "a.suffix.b" => false)]
    fn patterns(pattern: &str, text: &str) -> bool {
        matches(pattern, text)
    }

    fn asks(method: &str, origin: &str, headers: &[&str]) -> Option<HeaderMap> {
        let rule = |origin: &str, method: &str| CORSRule {
            allowed_origins: vec![origin.to_owned()],
            allowed_methods: vec![method.to_owned()],
            allowed_headers: Some(vec!["x-amz-*".to_owned()]),
            expose_headers: None,
            id: None,
            max_age_seconds: Some(60),
        };
        let crossing = Crossing {
            bucket: "b".into(),
            origin: origin.into(),
            method: method.into(),
            headers: headers.iter().map(|h| (*h).to_owned()).collect(),
            preflight: true,
        };
        granted(&[rule("http://*.example", "GET"), rule("*", "PUT")], &crossing)
    }

    #[test]
    fn the_first_rule_that_allows_it() {
        let get = asks("GET", "http://a.example", &["x-amz-date"]).unwrap();
        assert_eq!(get["access-control-allow-origin"], "http://a.example");
        assert_eq!(get["access-control-allow-headers"], "x-amz-date");
        assert_eq!(get["access-control-max-age"], "60");
        let put = asks("PUT", "http://a.example", &[]).unwrap();
        assert_eq!(put["access-control-allow-origin"], "*");
        assert!(!put.contains_key("access-control-allow-credentials"));
        assert!(asks("GET", "http://other", &[]).is_none());
        assert!(asks("GET", "http://a.example", &["authorization"]).is_none());
    }
}
