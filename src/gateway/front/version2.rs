//! Which of two names of a bucket a version 2 signature covers.
//!
//! For a request to `/bucket`, clients sign `/bucket` (as the rules say) or `/bucket/` (as botocore
//! does), and S3 takes both. s3s takes what the path says. Here the second form is tried, and when it
//! is the one, the path is made to say it. s3s verifies the signature all the same.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/RESTAuthentication.html>

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Request, header};
use sha1::Sha1;

use super::prepare::parameter;
use crate::gateway::account::Accounts;

/// Query parameters that name a part of a bucket, and so belong to what is signed.
const SUB_RESOURCES: [&str; 21] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "policy",
    "replication",
    "requestPayment",
    "tagging",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Whether the request is to a bucket without a slash after its name, and signed with one.
pub(super) fn covers_slash<B>(req: &Request<B>, accounts: &Accounts) -> bool {
    let path = req.uri().path();
    let is_bucket = path.strip_prefix('/').is_some_and(|name| !name.is_empty() && !name.contains('/'));
    is_bucket && signed_with_slash(req, accounts).unwrap_or(false)
}

fn signed_with_slash<B>(req: &Request<B>, accounts: &Accounts) -> Option<bool> {
    let query = req.uri().query().unwrap_or_default();
    let (access, signature, date) = match req.headers().get(header::AUTHORIZATION) {
        Some(value) => {
            let (access, signature) = value.to_str().ok()?.strip_prefix("AWS ")?.split_once(':')?;
            let date = if req.headers().contains_key("x-amz-date") { "" } else { text(req, "date") };
            (access.to_owned(), signature.to_owned(), date.to_owned())
        }
        None => (
            parameter(query, "AWSAccessKeyId")?,
            parameter(query, "Signature")?,
            parameter(query, "Expires")?,
        ),
    };
    let account = accounts.find(&access).ok()?;
    let mut mac = Hmac::<Sha1>::new_from_slice(account.secret.expose().as_bytes()).ok()?;
    mac.update(string_to_sign(req, &date, query).as_bytes());
    Some(mac.verify_slice(&STANDARD.decode(signature).ok()?).is_ok())
}

fn text<'a, B>(req: &'a Request<B>, name: &str) -> &'a str {
    req.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

fn string_to_sign<B>(req: &Request<B>, date: &str, query: &str) -> String {
    let mut lines = vec![
        req.method().as_str().to_owned(),
        text(req, "content-md5").to_owned(),
        text(req, "content-type").to_owned(),
        date.to_owned(),
    ];
    lines.extend(amz_headers(req.headers()));
    let resources: Vec<String> = SUB_RESOURCES
        .iter()
        .filter_map(|name| {
            let value = parameter(query, name)?;
            Some(if value.is_empty() { (*name).to_owned() } else { format!("{name}={value}") })
        })
        .collect();
    let separator = if resources.is_empty() { "" } else { "?" };
    lines.push(format!("{}/{separator}{}", req.uri().path(), resources.join("&")));
    lines.join("\n")
}

fn amz_headers(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in headers {
        if name.as_str().starts_with("x-amz-") {
            found.entry(name.as_str()).or_default().push(value.to_str().unwrap_or_default().trim());
        }
    }
    found.into_iter().map(|(name, values)| format!("{name}:{}", values.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn signature(covered: &str) -> String {
        let mut mac = Hmac::<Sha1>::new_from_slice(b"secret").unwrap();
        mac.update(covered.as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
    }

    #[test_case("/bucket?acl", "GET\n\n\nnow\nx-amz-meta-a:1\n/bucket/?acl" => true)]
    #[test_case("/bucket?acl", "GET\n\n\nnow\nx-amz-meta-a:1\n/bucket?acl" => false)]
    #[test_case("/bucket/", "GET\n\n\nnow\nx-amz-meta-a:1\n/bucket/" => false; "it is there already")]
    #[test_case("/bucket/key", "GET\n\n\nnow\nx-amz-meta-a:1\n/bucket/key/" => false; "a key's slash counts")]
    fn by_header(uri: &str, covered: &str) -> bool {
        let req = Request::builder()
            .uri(uri)
            .header("date", "now")
            .header("x-amz-meta-a", " 1")
            .header("authorization", format!("AWS root:{}", signature(covered)))
            .body(())
            .unwrap();
        covers_slash(&req, &Accounts::new("root", "secret", Vec::new()))
    }

    #[test]
    fn by_query() {
        let signature = signature("GET\n\n\n99\n/bucket/").replace('+', "%2B").replace('/', "%2F");
        let uri = format!("/bucket?AWSAccessKeyId=root&Expires=99&Signature={signature}");
        let req = Request::builder().uri(uri).body(()).unwrap();
        assert!(covers_slash(&req, &Accounts::new("root", "secret", Vec::new())));
        assert!(!covers_slash(&req, &Accounts::new("root", "other", Vec::new())));
    }
}
