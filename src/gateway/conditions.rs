//! Conditional headers of reads and writes.
//!
//! The order is that of RFC 9110 section 13.2.2, which S3 follows: `If-Match` outranks
//! `If-Unmodified-Since`, `If-None-Match` outranks `If-Modified-Since`.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, header};
use s3s::dto::{ETag, ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result};
use time::OffsetDateTime;

use super::error::{s3, with_headers};
use crate::store::{ObjectInfo, WriteConditions};

/// Conditions of a read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadConditions {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

/// Whether a condition names the ETag. A list of ETags arrives as one value with quotes inside.
fn names(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(tag) => {
            tag.value().split("\", \"").flat_map(|t| t.split("\",\"")).any(|t| t == etag)
        }
    }
}

fn whole_seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

impl ReadConditions {
    /// Checks them against an object.
    ///
    /// # Errors
    /// `PreconditionFailed` (412), or `NotModified` (304) with the headers such an answer carries.
    pub(crate) fn check(&self, object: &ObjectInfo) -> S3Result<()> {
        let modified = whole_seconds(object.modified);
        let since = |time: &Timestamp| OffsetDateTime::from(time.clone()).unix_timestamp();
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(condition), _) if !names(condition, &object.etag) => return Err(failed("If-Match")),
            (None, Some(time)) if modified > since(time) => return Err(failed("If-Unmodified-Since")),
            _ => {}
        }
        let unchanged = match (&self.if_none_match, &self.if_modified_since) {
            (Some(condition), _) => names(condition, &object.etag),
            (None, Some(time)) => modified <= since(time),
            (None, None) => false,
        };
        if unchanged { Err(not_modified(object)) } else { Ok(()) }
    }
}

fn failed(condition: &str) -> S3Error {
    s3(
        S3ErrorCode::PreconditionFailed,
        format!("At least one of the pre-conditions you specified did not hold: {condition}"),
    )
}

fn not_modified(object: &ObjectInfo) -> S3Error {
    let mut headers = HeaderMap::new();
    if let Ok(etag) = ETag::Strong(object.etag.clone()).to_http_header() {
        headers.insert(header::ETAG, etag);
    }
    if let Ok(time) = HeaderValue::try_from(http_date(object.modified)) {
        headers.insert(header::LAST_MODIFIED, time);
    }
    with_headers(S3Error::new(S3ErrorCode::NotModified), headers)
}

/// A time as HTTP writes it (RFC 9110 section 5.6.7).
pub(crate) fn http_date(time: SystemTime) -> String {
    let format = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    OffsetDateTime::from(time).format(format).unwrap_or_default()
}

/// Conditions of a PUT, CompleteMultipartUpload or copy destination.
pub(crate) fn write_conditions(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> WriteConditions {
    let mut conditions = WriteConditions { if_match: if_match.map(condition_text), ..Default::default() };
    match if_none_match {
        None => {}
        Some(ETagCondition::Any) => conditions.if_none_match_any = true,
        Some(ETagCondition::ETag(tag)) => conditions.if_none_match = Some(tag.into_value()),
    }
    conditions
}

/// The ETag a condition names, without quotes, or `*`.
pub(crate) fn condition_text(condition: ETagCondition) -> String {
    match condition {
        ETagCondition::Any => "*".to_owned(),
        ETagCondition::ETag(tag) => tag.into_value(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use test_case::test_case;

    fn object() -> ObjectInfo {
        ObjectInfo {
            key: "k".into(),
            size: 1,
            // Half a second past: HTTP dates know whole seconds only.
            modified: UNIX_EPOCH + Duration::from_millis(1_700_000_000_500),
            etag: "abc".into(),
            version_id: None,
            attributes: crate::store::ObjectAttributes::default(),
        }
    }

    const SAME: i64 = 1_700_000_000;

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(OffsetDateTime::from_unix_timestamp(seconds).unwrap().into())
    }

    fn tag(text: &str) -> Option<ETagCondition> {
        Some(text.parse().unwrap())
    }

    #[test_case(tag("\"abc\""), None, None, None => 200)]
    #[test_case(tag("*"), None, None, None => 200)]
    #[test_case(tag("\"x\", \"abc\""), None, None, None => 200)]
    #[test_case(tag("\"x\""), None, None, None => 412)]
    #[test_case(None, tag("\"abc\""), None, None => 304)]
    #[test_case(None, tag("\"x\""), None, None => 200)]
    #[test_case(None, None, at(SAME), None => 304; "not modified since the same second")]
    #[test_case(None, None, at(SAME - 1), None => 200; "modified since")]
    #[test_case(None, None, None, at(SAME) => 200; "unmodified since the same second")]
    #[test_case(None, None, None, at(SAME - 1) => 412)]
    #[test_case(tag("\"abc\""), None, None, at(SAME - 1) => 200; "If-Match outranks If-Unmodified-Since")]
    #[test_case(None, tag("\"x\""), at(SAME), None => 200; "If-None-Match outranks If-Modified-Since")]
    #[test_case(tag("\"x\""), tag("\"abc\""), None, None => 412; "412 before 304")]
    fn order(
        if_match: Option<ETagCondition>,
        if_none_match: Option<ETagCondition>,
        if_modified_since: Option<Timestamp>,
        if_unmodified_since: Option<Timestamp>,
    ) -> u16 {
        let conditions = ReadConditions { if_match, if_none_match, if_modified_since, if_unmodified_since };
        match conditions.check(&object()) {
            Ok(()) => 200,
            Err(error) => error.status_code().unwrap().as_u16(),
        }
    }

    #[test]
    fn a_304_carries_validators() {
        let error =
            ReadConditions { if_none_match: tag("*"), ..Default::default() }.check(&object()).unwrap_err();
        let headers = error.headers().unwrap();
        assert_eq!(headers["etag"], "\"abc\"");
        assert_eq!(headers["last-modified"], "Tue, 14 Nov 2023 22:13:20 GMT");
    }

    #[test]
    fn conditions_of_writes() {
        assert!(write_conditions(None, tag("*")).if_none_match_any);
        assert_eq!(write_conditions(tag("\"abc\""), None).if_match.unwrap(), "abc");
        assert_eq!(write_conditions(tag("*"), None).if_match.unwrap(), "*");
        assert_eq!(write_conditions(None, tag("\"abc\"")).if_none_match.unwrap(), "abc");
    }
}
