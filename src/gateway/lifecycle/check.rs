//! Whether a bucket's lifecycle rules are ones that S3, and this gateway, accept.

use std::collections::BTreeSet;

use s3s::dto::{
    BucketLifecycleConfiguration, ExpirationStatus, LifecycleExpiration, LifecycleRule, LifecycleRuleFilter,
    NoncurrentVersionExpiration, Timestamp,
};
use s3s::{S3ErrorCode, S3Result};
use time::{OffsetDateTime, Time};

use crate::gateway::error::{internal, s3};

/// Most rules of a bucket.
const RULES: usize = 1000;

/// Longest id of a rule, in bytes.
const ID: usize = 255;

fn malformed<T>(what: &str) -> S3Result<T> {
    Err(s3(S3ErrorCode::MalformedXML, what))
}

fn invalid<T>(what: &str) -> S3Result<T> {
    Err(s3(S3ErrorCode::InvalidArgument, what))
}

/// The configuration with an id for each rule that came without.
///
/// # Errors
/// `MalformedXML`, `InvalidArgument` or `InvalidRequest` for what S3 refuses, `NotImplemented` for
/// transitions.
pub(crate) fn checked(
    mut configuration: BucketLifecycleConfiguration,
) -> S3Result<BucketLifecycleConfiguration> {
    if !(1..=RULES).contains(&configuration.rules.len()) {
        return malformed("a lifecycle configuration has from 1 to 1000 rules");
    }
    let mut ids = BTreeSet::new();
    for rule in &mut configuration.rules {
        let id = match rule.id.take().filter(|id| !id.is_empty()) {
            Some(id) if id.len() > ID => return invalid("ID length should not exceed allowed limit of 255"),
            Some(id) => id,
            None => new_id()?,
        };
        if !ids.insert(id.clone()) {
            return invalid("Rule ID must be unique. Found same ID for more than one rule");
        }
        rule.id = Some(id);
        check_rule(rule)?;
    }
    Ok(configuration)
}

fn new_id() -> S3Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| internal("no random numbers", &error))?;
    Ok(hex::encode(bytes))
}

fn check_rule(rule: &LifecycleRule) -> S3Result<()> {
    if ![ExpirationStatus::ENABLED, ExpirationStatus::DISABLED].contains(&rule.status.as_str()) {
        return malformed("the Status of a rule is Enabled or Disabled");
    }
    match (&rule.prefix, &rule.filter) {
        (Some(_), Some(_)) => return malformed("a rule has a Filter or a Prefix, not both"),
        (None, None) => return malformed("a rule has a Filter"),
        _ => {}
    }
    let has_tags = rule.filter.as_ref().map(check_filter).transpose()?.unwrap_or(false);
    for transition in rule.transitions.iter().flatten() {
        check_date(transition.date.as_ref())?;
    }
    if let Some(expiration) = &rule.expiration {
        check_expiration(expiration, has_tags)?;
    }
    if let Some(noncurrent) = &rule.noncurrent_version_expiration {
        check_noncurrent(noncurrent)?;
    }
    if let Some(abort) = &rule.abort_incomplete_multipart_upload {
        if abort.days_after_initiation.is_none_or(|days| days < 1) {
            return invalid("'DaysAfterInitiation' must be a positive integer");
        }
        if has_tags {
            return Err(s3(
                S3ErrorCode::InvalidRequest,
                "AbortIncompleteMultipartUpload cannot be specified with Tags.",
            ));
        }
    }
    if rule.transitions.is_some() || rule.noncurrent_version_transitions.is_some() {
        return Err(s3(
            S3ErrorCode::NotImplemented,
            "transitions are not implemented: the only storage class here is STANDARD",
        ));
    }
    if rule.expiration.is_none()
        && rule.noncurrent_version_expiration.is_none()
        && rule.abort_incomplete_multipart_upload.is_none()
    {
        return Err(s3(S3ErrorCode::InvalidRequest, "At least one action needs to be specified in a rule"));
    }
    Ok(())
}

/// Checks a filter and tells whether it is about tags.
fn check_filter(filter: &LifecycleRuleFilter) -> S3Result<bool> {
    let conditions = [
        filter.and.is_some(),
        filter.prefix.is_some(),
        filter.tag.is_some(),
        filter.object_size_greater_than.is_some(),
        filter.object_size_less_than.is_some(),
    ];
    if conditions.iter().filter(|is_set| **is_set).count() > 1 {
        return malformed("a Filter has one condition; several go into And");
    }
    let tags = filter.and.as_ref().and_then(|and| and.tags.as_deref()).unwrap_or_default();
    if tags.iter().chain(&filter.tag).any(|tag| tag.key.as_deref().is_none_or(str::is_empty)) {
        return malformed("a Tag has a Key and a Value");
    }
    Ok(filter.tag.is_some() || !tags.is_empty())
}

fn check_expiration(expiration: &LifecycleExpiration, has_tags: bool) -> S3Result<()> {
    let marker = expiration.expired_object_delete_marker.is_some();
    match (expiration.days, &expiration.date, marker) {
        (Some(days), None, false) if days < 1 => {
            invalid("'Days' for Expiration action must be a positive integer")
        }
        (Some(_), None, false) => Ok(()),
        (None, Some(date), false) => check_date(Some(date)),
        (None, None, true) if has_tags => {
            Err(s3(S3ErrorCode::InvalidRequest, "ExpiredObjectDeleteMarker cannot be specified with Tags."))
        }
        (None, None, true) => Ok(()),
        _ => malformed("an Expiration has one of Days, Date and ExpiredObjectDeleteMarker"),
    }
}

fn check_date(date: Option<&Timestamp>) -> S3Result<()> {
    match date {
        Some(date) if OffsetDateTime::from(date.clone()).time() != Time::MIDNIGHT => {
            invalid("'Date' must be at midnight GMT")
        }
        _ => Ok(()),
    }
}

fn check_noncurrent(noncurrent: &NoncurrentVersionExpiration) -> S3Result<()> {
    if noncurrent.noncurrent_days.is_none_or(|days| days < 1) {
        return invalid("'NoncurrentDays' for NoncurrentVersionExpiration action must be a positive integer");
    }
    if noncurrent.newer_noncurrent_versions.is_some_and(|n| !(1..=100).contains(&n)) {
        return invalid("'NewerNoncurrentVersions' must be from 1 to 100");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::xml::from_xml;
    use test_case::test_case;

    fn outcome(rules: &str) -> Result<usize, String> {
        let document = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
        let name = |e: s3s::S3Error| e.code().as_str().to_owned();
        let configuration = from_xml::<BucketLifecycleConfiguration>(document.as_bytes()).map_err(name)?;
        let configuration = checked(configuration).map_err(name)?;
        assert!(configuration.rules.iter().all(|r| r.id.is_some()));
        Ok(configuration.rules.len())
    }

    fn rule(rest: &str) -> String {
        format!("<Rule><Status>Enabled</Status><Filter/>{rest}</Rule>")
    }

    #[test_case("<Expiration><Days>1</Days></Expiration>" => Ok(1))]
    #[test_case("<Expiration><Days>0</Days></Expiration>" => Err("InvalidArgument".into()))]
    #[test_case("<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>" => Ok(1))]
    #[test_case("<Expiration><Date>2030-01-01T10:00:00Z</Date></Expiration>" => Err("InvalidArgument".into()))]
    #[test_case("<Expiration></Expiration>" => Err("MalformedXML".into()))]
    #[test_case("<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays></NoncurrentVersionExpiration>" => Ok(1))]
    #[test_case("<AbortIncompleteMultipartUpload><DaysAfterInitiation>0</DaysAfterInitiation></AbortIncompleteMultipartUpload>" => Err("InvalidArgument".into()))]
    #[test_case("<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>" => Err("NotImplemented".into()))]
    #[test_case("<Prefix>a</Prefix><Expiration><Days>1</Days></Expiration>" => Err("MalformedXML".into()); "prefix and filter")]
    #[test_case("" => Err("InvalidRequest".into()); "no action")]
    fn rules(rest: &str) -> Result<usize, String> {
        outcome(&rule(rest))
    }

    #[test]
    fn ids_are_given_once() {
        let days = "<Expiration><Days>1</Days></Expiration>";
        assert_eq!(outcome(&rule(days).repeat(2)), Ok(2));
        let same = rule(&format!("<ID>x</ID>{days}")).repeat(2);
        assert_eq!(outcome(&same), Err("InvalidArgument".into()));
        let long = rule(&format!("<ID>{}</ID>{days}", "a".repeat(256)));
        assert_eq!(outcome(&long), Err("InvalidArgument".into()));
        assert_eq!(outcome(""), Err("MalformedXML".into()));
    }
}
