//! What is put right, or refused, before s3s looks at a request's signature.
//!
//! s3s checks signatures themselves, and version 4 dates. It does not look at the dates of version 2,
//! takes one form of what those cover, and answers malformed credentials by other codes than S3.

use http::{HeaderMap, HeaderValue, Request, Uri, header};
use percent_encoding::percent_decode_str;
use s3s::{S3ErrorCode, S3Result};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Duration, OffsetDateTime, PrimitiveDateTime};

use super::version2;
use crate::gateway::account::Accounts;
use crate::gateway::error::s3;

/// How far the clocks of client and gateway may be apart.
const SKEW: Duration = Duration::minutes(15);

/// Longest validity of a presigned URL, in seconds.
const WEEK: i64 = 7 * 24 * 3600;

/// A date of RFC 9110 after its day of the week, which is not compared.
const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[day padding:none] [month repr:short] [year] [hour]:[minute]:[second]");

/// As version 4 signatures write it.
const AMZ_DATE: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");

/// Refuses what no signature can make valid, and brings what remains into the form that s3s takes.
///
/// # Errors
/// `AccessDenied`, `RequestTimeTooSkewed`, `AuthorizationHeaderMalformed` or `InvalidArgument`, as S3
/// has it.
pub(super) fn prepare<B>(
    req: &mut Request<B>,
    accounts: &Accounts,
    region: &str,
    now: OffsetDateTime,
) -> S3Result<()> {
    let query = req.uri().query().unwrap_or_default();
    if let Some(seconds) = parameter(query, "X-Amz-Expires")
        && !seconds.parse::<i64>().is_ok_and(|n| (1..=WEEK).contains(&n))
    {
        return Err(s3(S3ErrorCode::AccessDenied, "X-Amz-Expires must be from 1 to 604800 seconds"));
    }
    if has_useless_range(req) {
        req.headers_mut().remove(header::RANGE);
    }
    let query = req.uri().query().unwrap_or_default();
    let authorization = text(req.headers(), header::AUTHORIZATION.as_str());
    let by_header = match authorization.as_deref() {
        Some("") => return Err(s3(S3ErrorCode::AccessDenied, "The Authorization header is empty")),
        Some(value) if value.starts_with("AWS ") => {
            if !value.contains(':') {
                return Err(s3(S3ErrorCode::InvalidArgument, "The Authorization header is invalid"));
            }
            check_date(req.headers(), now)?;
            true
        }
        Some(_) => {
            if let Some(scope) = scope_region(req.headers()).filter(|scope| *scope != region) {
                return Err(s3(
                    S3ErrorCode::AuthorizationHeaderMalformed,
                    format!(
                        "The authorization header is malformed; the region '{scope}' is wrong; expecting '{region}'"
                    ),
                ));
            }
            adopt_date(req.headers_mut());
            return Ok(());
        }
        None => false,
    };
    let presigned = parameter(query, "Signature").is_some() && parameter(query, "AWSAccessKeyId").is_some();
    if (by_header || presigned) && version2::covers_slash(req, accounts) {
        add_slash(req.uri_mut());
    }
    Ok(())
}

/// The value of a query parameter.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| match pair.split_once('=') {
        Some((key, value)) => (key == name).then_some(value),
        None => (pair == name).then_some(""),
    })?;
    Some(percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned())
}

/// Whether a `Range` is to be ignored: it is malformed, or asks for several parts, of which S3 gives
/// the whole instead. One that the signature covers has to stay, and s3s then refuses it.
///
/// RFC 9110 section 14.2.
fn has_useless_range<B>(req: &Request<B>) -> bool {
    let Some(range) = text(req.headers(), header::RANGE.as_str()) else { return false };
    let covering = match text(req.headers(), header::AUTHORIZATION.as_str()) {
        Some(value) => {
            value.split([',', ' ']).find_map(|p| p.strip_prefix("SignedHeaders=")).map(str::to_owned)
        }
        None => parameter(req.uri().query().unwrap_or_default(), "X-Amz-SignedHeaders"),
    };
    let is_signed = covering.is_some_and(|names| names.split(';').any(|n| n.eq_ignore_ascii_case("range")));
    !is_signed && s3s::dto::Range::parse(&range).is_err()
}

/// The region of the credential scope, for version 4 signatures in the header.
fn scope_region(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let credential = value.split([' ', ',']).find_map(|part| part.strip_prefix("Credential="))?;
    // <access key>/<date>/<region>/<service>/aws4_request; an access key may hold slashes.
    credential.rsplit('/').nth(2)
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
}

fn parse_date(value: &str) -> Option<OffsetDateTime> {
    let date = value.split_once(", ").map_or(value, |(_, rest)| rest);
    let date = ["GMT", "UTC", "+0000", "-0000"].iter().find_map(|zone| date.strip_suffix(zone))?;
    PrimitiveDateTime::parse(date.trim_end(), HTTP_DATE).ok().map(PrimitiveDateTime::assume_utc)
}

/// Checks the time that a version 2 signature covers.
fn check_date(headers: &HeaderMap, now: OffsetDateTime) -> S3Result<()> {
    let value = text(headers, "x-amz-date").or_else(|| text(headers, "date"));
    let iso = |v: &str| PrimitiveDateTime::parse(v, AMZ_DATE).ok().map(PrimitiveDateTime::assume_utc);
    let date = value.and_then(|v| parse_date(&v).or_else(|| iso(&v)));
    let Some(date) = date.filter(|date| *date >= OffsetDateTime::UNIX_EPOCH) else {
        return Err(s3(
            S3ErrorCode::AccessDenied,
            "AWS authentication requires a valid Date or x-amz-date header",
        ));
    };
    if (now - date).abs() > SKEW {
        return Err(s3(
            S3ErrorCode::RequestTimeTooSkewed,
            "The difference between the request time and the current time is too large.",
        ));
    }
    Ok(())
}

/// A version 4 signature may rest on the `Date` header alone; s3s wants the other one, which the
/// signature then does not cover.
fn adopt_date(headers: &mut HeaderMap) {
    if headers.contains_key("x-amz-date") {
        return;
    }
    let date = text(headers, "date").and_then(|value| parse_date(&value));
    if let Some(value) = date.and_then(|d| d.format(AMZ_DATE).ok())
        && let Ok(value) = HeaderValue::try_from(value)
    {
        headers.insert("x-amz-date", value);
    }
}

/// `/bucket?…` becomes `/bucket/?…`, which means the same.
fn add_slash(uri: &mut Uri) {
    let path = uri.path();
    let whole = match uri.query() {
        Some(query) => format!("{path}/?{query}"),
        None => format!("{path}/"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = whole.parse().ok();
    if let Ok(new) = Uri::from_parts(parts) {
        *uri = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;
    use time::macros::datetime;

    const NOW: OffsetDateTime = datetime!(2026-08-05 12:00 UTC);

    fn prepared(uri: &str, headers: &[(&'static str, &str)]) -> Result<Request<()>, String> {
        let mut req = Request::builder().uri(uri).body(()).unwrap();
        for (name, value) in headers {
            req.headers_mut().insert(*name, value.parse().unwrap());
        }
        let accounts = Accounts::new("root", "secret", Vec::new());
        prepare(&mut req, &accounts, "us-east-1", NOW).map_err(|e| e.code().as_str().to_owned())?;
        Ok(req)
    }

    const V2: &str = "AWS root:c2lnbmF0dXJl";

    #[test_case("Wed, 05 Aug 2026 12:10:00 GMT" => None)]
    #[test_case("Mon, 05 Aug 2026 12:10:00 +0000" => None; "the day of the week is not compared")]
    #[test_case("20260805T115000Z" => None)]
    #[test_case("Tue, 07 Jul 2010 21:53:04 GMT" => Some("RequestTimeTooSkewed".into()))]
    #[test_case("Tue, 07 Jul 9999 21:53:04 GMT" => Some("RequestTimeTooSkewed".into()))]
    #[test_case("Tue, 07 Jul 1950 21:53:04 GMT" => Some("AccessDenied".into()))]
    #[test_case("Bad Date" => Some("AccessDenied".into()))]
    #[test_case("" => Some("AccessDenied".into()))]
    fn dates_of_version_2(date: &str) -> Option<String> {
        prepared("/b/k", &[("authorization", V2), ("x-amz-date", date)]).err()
    }

    #[test_case("/b/k", &[] => None)]
    #[test_case("/b/k", &[("authorization", "")] => Some("AccessDenied".into()))]
    #[test_case("/b/k", &[("authorization", "AWS nonsense")] => Some("InvalidArgument".into()))]
    #[test_case("/b/k", &[("authorization", V2)] => Some("AccessDenied".into()); "no date")]
    #[test_case("/b/k?X-Amz-Expires=1", &[] => None)]
    #[test_case("/b/k?X-Amz-Expires=0", &[] => Some("AccessDenied".into()))]
    #[test_case("/b/k?X-Amz-Expires=-7", &[] => Some("AccessDenied".into()))]
    #[test_case("/b/k?X-Amz-Expires=604801", &[] => Some("AccessDenied".into()))]
    fn refused(uri: &str, headers: &[(&'static str, &str)]) -> Option<String> {
        prepared(uri, headers).err()
    }

    #[test_case("bytes=0-1" => true)]
    #[test_case("bytes=0-1,3-4" => false; "several")]
    #[test_case("bytes=5-1" => false)]
    #[test_case("lines=1-2" => false)]
    fn ranges_that_stay(range: &str) -> bool {
        let req = prepared("/b/k", &[("range", range)]).unwrap();
        let signed = prepared("/b/k?X-Amz-SignedHeaders=host%3Brange", &[("range", range)]).unwrap();
        assert!(signed.headers().contains_key("range"));
        req.headers().contains_key("range")
    }

    #[test]
    fn region_of_the_scope() {
        let mut headers = HeaderMap::new();
        assert_eq!(scope_region(&headers), None);
        let value = "AWS4-HMAC-SHA256 Credential=a/b/20260101/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        assert_eq!(scope_region(&headers), Some("eu-west-1"));
    }

    #[test]
    fn a_date_serves_version_4() {
        let v4 = ("authorization", "AWS4-HMAC-SHA256 Credential=x");
        let req = prepared("/b/k", &[v4, ("date", "Wed, 05 Aug 2026 12:10:00 GMT")]).unwrap();
        assert_eq!(req.headers()["x-amz-date"], "20260805T121000Z");
    }

    #[test]
    fn the_slash_after_the_bucket() {
        let mut uri = "/bucket?acl".parse().unwrap();
        add_slash(&mut uri);
        assert_eq!(uri.to_string(), "/bucket/?acl");
    }
}
