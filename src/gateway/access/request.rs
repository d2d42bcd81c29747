//! What a request says to the conditions of policies.

use std::collections::BTreeMap;

use http::{HeaderMap, Uri, header};
use percent_encoding::percent_decode_str;
use s3s::{S3ErrorCode, S3Result};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::gateway::account::Account;
use crate::gateway::error::s3;
use crate::gateway::headers::tags_from_header;
use crate::gateway::policy::Values;
use crate::gateway::request::RequestContext;

/// Parameters of a request's query, decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// Those of a request.
    ///
    /// # Errors
    /// `InvalidArgument` when one comes twice: what is decided about must be what is done.
    pub(super) fn of(uri: &Uri) -> S3Result<Self> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let mut parameters = BTreeMap::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if parameters.insert(decoded(name), decoded(&value.replace('+', " "))).is_some() {
                return Err(s3(S3ErrorCode::InvalidArgument, "a parameter of the query is given twice"));
            }
        }
        Ok(Self(parameters))
    }

    /// One that names a version, or none.
    pub(super) fn of_version(version: Option<&str>) -> Self {
        Self(version.map(|id| ("versionId".to_owned(), id.to_owned())).into_iter().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The version that is asked for.
    pub(super) fn version(&self) -> Option<&str> {
        self.get("versionId").filter(|id| !id.is_empty())
    }
}

/// Headers that are condition keys under their own names, after `s3:`.
const HEADERS: [&str; 16] = [
    "if-match",
    "if-none-match",
    "x-amz-acl",
    "x-amz-content-sha256",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-metadata-directive",
    "x-amz-object-ownership",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];

/// Headers under other names.
const RENAMED: [(&str, &str); 4] = [
    ("referer", "aws:Referer"),
    ("user-agent", "aws:UserAgent"),
    ("x-amz-object-lock-mode", "s3:object-lock-mode"),
    ("x-amz-object-lock-legal-hold", "s3:object-lock-legal-hold"),
];

/// Parameters of the query, by their condition keys.
const PARAMETERS: [(&str, &str); 4] = [
    ("prefix", "s3:prefix"),
    ("delimiter", "s3:delimiter"),
    ("max-keys", "s3:max-keys"),
    ("versionId", "s3:VersionId"),
];

/// The values of a request under all condition keys but those of the object.
pub(super) fn values(
    headers: &HeaderMap,
    query: &Query,
    context: Option<&RequestContext>,
    account: Option<&Account>,
    bucket_owner: &str,
) -> Values {
    let mut values = Values::default();
    set_headers(&mut values, headers);
    for (name, key) in PARAMETERS {
        if let Some(value) = query.get(name) {
            values.set(key, value);
        }
    }
    let now = OffsetDateTime::now_utc();
    values.set("aws:CurrentTime", now.format(&Rfc3339).unwrap_or_default());
    values.set("aws:EpochTime", now.unix_timestamp().to_string());
    set_caller(&mut values, account);
    values.set("aws:ResourceAccount", bucket_owner);
    values.set("s3:ResourceAccount", bucket_owner);
    if let Some(context) = context {
        values.set("aws:SecureTransport", context.tls.is_some().to_string());
        if let Some(peer) = context.peer {
            values.set("aws:SourceIp", peer.to_canonical().to_string());
        }
        if let Some(version) = context.tls.and_then(|tls| tls.strip_prefix("TLSv")) {
            values.set("s3:TlsVersion", version);
        }
    }
    set_signature(&mut values, headers, query, now);
    values
}

/// Sets what headers say, or the fields of a form that stand for them.
pub(super) fn set_headers(values: &mut Values, headers: &HeaderMap) {
    let text = |name: &str| headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    // Lines of the same name are one value, as for signatures.
    let joined = |name: &str| {
        let lines: Vec<_> =
            headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    };
    for name in HEADERS {
        if let Some(value) = joined(name) {
            values.set(&format!("s3:{name}"), value);
        }
    }
    for (name, key) in RENAMED {
        if let Some(value) = joined(name) {
            values.set(key, value);
        }
    }
    if let Some(source) = text("x-amz-copy-source") {
        let path = source.trim_start_matches('/').split("?versionId=").next().unwrap_or_default();
        values.set("s3:x-amz-copy-source", percent_decode_str(path).decode_utf8_lossy());
    }
    if let Some(until) = text("x-amz-object-lock-retain-until-date") {
        set_retention_date(values, &until);
    }
    if let Some(tags) = text("x-amz-tagging").and_then(|t| tags_from_header(&t).ok()) {
        set_request_tags(values, &tags);
    }
}

fn set_caller(values: &mut Values, account: Option<&Account>) {
    match account {
        None => {
            values.set("aws:PrincipalType", "Anonymous");
            values.set("aws:userid", "anonymous");
        }
        Some(account) => {
            let name = &account.access;
            values.set("aws:PrincipalType", "User");
            values.set("aws:userid", name);
            values.set("aws:username", name);
            values.set("aws:PrincipalAccount", name);
            values.set("aws:PrincipalArn", format!("arn:aws:iam::{name}:user/{name}"));
        }
    }
}

/// Sets what is asked about the tags that a request brings.
pub(super) fn set_request_tags(values: &mut Values, tags: &BTreeMap<String, String>) {
    values.set_tags("s3:RequestObjectTag", tags);
    if !tags.is_empty() {
        values.set_all("s3:RequestObjectTagKeys", tags.keys().cloned().collect());
    }
}

/// Sets what is asked about the date that a request retains an object until.
pub(super) fn set_retention_date(values: &mut Values, until: &str) {
    values.set("s3:object-lock-retain-until-date", until);
    if let Ok(date) = OffsetDateTime::parse(until, &Rfc3339) {
        // As S3 has it: begun days count.
        let seconds = (date - OffsetDateTime::now_utc()).whole_seconds().max(0);
        let days = seconds.div_euclid(86_400) + i64::from(seconds % 86_400 > 0);
        values.set("s3:object-lock-remaining-retention-days", days.to_string());
    }
}

/// Sets how the request is signed, and how long ago, in milliseconds.
fn set_signature(values: &mut Values, headers: &HeaderMap, query: &Query, now: OffsetDateTime) {
    let (version, kind) = match headers.get(header::AUTHORIZATION).map(|v| v.as_bytes()) {
        Some(value) if value.starts_with(b"AWS4-") => ("AWS4-HMAC-SHA256", "REST-HEADER"),
        Some(_) => ("AWS", "REST-HEADER"),
        None if query.get("X-Amz-Signature").is_some() => ("AWS4-HMAC-SHA256", "REST-QUERY-STRING"),
        None if query.get("Signature").is_some() => ("AWS", "REST-QUERY-STRING"),
        None => return,
    };
    values.set("s3:signatureversion", version);
    values.set("s3:authType", kind);
    let date = query.get("X-Amz-Date").or_else(|| headers.get("x-amz-date")?.to_str().ok());
    let form = format_description!("[year][month][day]T[hour][minute][second]Z");
    if let Some(date) = date.and_then(|text| time::PrimitiveDateTime::parse(text, form).ok()) {
        let age = (now - date.assume_utc()).whole_milliseconds().max(0);
        values.set("s3:signatureAge", age.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::policy::{Caller, Policy, Question, Verdict, object_arn};
    use test_case::test_case;

    #[test]
    fn a_parameter_comes_once() {
        let query = |text: &str| Query::of(&text.parse().unwrap());
        assert_eq!(query("/b/k?versionId=x&a").unwrap().version(), Some("x"));
        assert_eq!(query("/b/k?versionId=").unwrap().version(), None);
        assert!(query("/b/k?versionId=x&versionId=y").is_err());
        assert!(query("/b/k?version%49d=x&versionId=x").is_err());
    }

    #[test]
    fn a_second_line_of_a_header_is_not_overlooked() {
        let granted = r#"{"StringEquals":{"s3:x-amz-grant-read":"id=ann"}}"#;
        let once = ("x-amz-grant-read", "id=ann");
        assert!(meets(granted, &[once], ""));
        assert!(!meets(granted, &[once, ("x-amz-grant-read", "id=eve")], ""));
    }

    /// Whether a request with these headers and this query meets a condition.
    fn meets(condition: &str, list: &[(&'static str, &str)], query: &str) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        let query = Query::of(&format!("/b/k?{query}").parse().unwrap()).unwrap();
        let peer = Some("::ffff:10.0.0.1".parse().unwrap());
        let context = RequestContext::new(String::new(), peer, None, Some("TLSv1.3"), &headers);
        let values = values(&headers, &query, Some(&context), None, "ann");
        let text = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*","Condition":{condition}}}]}}"#
        );
        let policy = Policy::new(text.as_bytes(), "b").unwrap();
        let resource = object_arn("b", "k");
        let question = Question {
            caller: Caller::Anonymous,
            action: "s3:GetObject",
            resource: &resource,
            values: &values,
        };
        policy.verdict(&question) == Verdict::Allow
    }

    #[test_case(r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, &[], "")]
    #[test_case(r#"{"Bool":{"aws:SecureTransport":"true"}}"#, &[], "")]
    #[test_case(r#"{"NumericGreaterThanEquals":{"s3:TlsVersion":"1.2"}}"#, &[], "")]
    #[test_case(r#"{"StringLike":{"aws:Referer":"http://a/*"}}"#, &[("referer", "http://a/b")], "")]
    #[test_case(r#"{"StringEquals":{"s3:prefix":"a b/"}}"#, &[], "prefix=a+b%2F&list-type=2")]
    #[test_case(r#"{"NumericLessThanEquals":{"s3:max-keys":"10"}}"#, &[], "max-keys=10")]
    #[test_case(r#"{"StringEquals":{"s3:VersionId":"x"}}"#, &[], "versionId=x")]
    #[test_case(r#"{"StringEquals":{"s3:x-amz-copy-source":"c/ä k"}}"#, &[("x-amz-copy-source", "/c/%C3%A4%20k?versionId=1")], "")]
    #[test_case(r#"{"StringEquals":{"s3:RequestObjectTag/a":"1"},"ForAllValues:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}"#, &[("x-amz-tagging", "a=1")], "")]
    #[test_case(r#"{"StringEquals":{"s3:signatureversion":"AWS4-HMAC-SHA256","s3:authType":"REST-HEADER"}}"#, &[("authorization", "AWS4-HMAC-SHA256 x")], "")]
    #[test_case(r#"{"StringEquals":{"s3:authType":"REST-QUERY-STRING"},"NumericGreaterThan":{"s3:signatureAge":"600000"}}"#, &[], "X-Amz-Signature=x&X-Amz-Date=20200101T000000Z")]
    #[test_case(r#"{"NumericGreaterThan":{"s3:object-lock-remaining-retention-days":"365"}}"#, &[("x-amz-object-lock-retain-until-date", "2999-01-01T00:00:00Z")], "")]
    #[test_case(r#"{"StringEquals":{"aws:PrincipalType":"Anonymous"},"Null":{"aws:username":"true"}}"#, &[], "")]
    #[test_case(r#"{"DateGreaterThan":{"aws:CurrentTime":"2020-01-01T00:00:00Z"}}"#, &[], "")]
    #[test_case(r#"{"Null":{"s3:if-none-match":"false"}}"#, &[("if-none-match", "*")], "")]
    fn conditions(condition: &str, headers: &[(&'static str, &str)], query: &str) {
        assert!(meets(condition, headers, query));
        let opposite = r#"{"StringEquals":{"s3:x-amz-acl":"never"}}"#;
        assert!(!meets(opposite, headers, query));
    }
}
