//! Object lock: the bucket's configuration, retention and legal hold of objects.

use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::gateway::access::{Action, Admission};
use crate::gateway::error::{s3, s3_status};
use crate::gateway::s3::{Extras, ObjectService};
use crate::store::object_lock::{Retention, default_retention, is_enabled};
use crate::store::{Store, Versioning};

/// The bucket attribute with the configuration.
pub(super) const ATTRIBUTE: &str = "bucket-lock";

fn missing() -> s3s::S3Error {
    s3(S3ErrorCode::InvalidRequest, "Bucket is missing Object Lock Configuration")
}

/// What a write asks for by its headers.
#[derive(Clone, Debug, Default)]
pub(super) struct LockHeaders {
    retention: Option<Vec<u8>>,
    legal_hold: Option<bool>,
}

/// The stored form of a retention.
fn stored(mode: &str, until: OffsetDateTime) -> S3Result<Vec<u8>> {
    if !matches!(mode, "GOVERNANCE" | "COMPLIANCE") {
        return Err(s3(S3ErrorCode::MalformedXML, format!("unknown retention mode {mode:?}")));
    }
    if until <= OffsetDateTime::now_utc() {
        return Err(s3(S3ErrorCode::InvalidArgument, "The retain until date must be in the future!"));
    }
    let retain_until_date = until
        .format(&Rfc3339)
        .map_err(|_| s3(S3ErrorCode::InvalidArgument, "The retain until date is out of range"))?;
    let retention = Retention { mode: mode.to_owned(), retain_until_date };
    serde_json::to_vec(&retention).map_err(|error| crate::gateway::error::internal("retention", &error))
}

impl LockHeaders {
    /// Reads `x-amz-object-lock-*`.
    ///
    /// # Errors
    /// `InvalidArgument` for a mode without a date and the other way round, and for malformed ones.
    pub(super) fn read(headers: &HeaderMap) -> S3Result<Self> {
        let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap_or(""));
        let invalid = |what: &str| s3(S3ErrorCode::InvalidArgument, what);
        let retention = match (text("x-amz-object-lock-mode"), text("x-amz-object-lock-retain-until-date")) {
            (None, None) => None,
            (Some(mode), Some(date)) => {
                let until = OffsetDateTime::parse(date, &Rfc3339)
                    .map_err(|_| invalid("x-amz-object-lock-retain-until-date is no RFC 3339 date"))?;
                if !matches!(mode, "GOVERNANCE" | "COMPLIANCE") {
                    return Err(invalid("Unknown wormMode directive."));
                }
                Some(stored(mode, until)?)
            }
            _ => {
                return Err(invalid(
                    "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied",
                ));
            }
        };
        let legal_hold = match text("x-amz-object-lock-legal-hold") {
            None => None,
            Some("ON") => Some(true),
            Some("OFF") => Some(false),
            Some(_) => return Err(invalid("Legal Hold must be either of 'ON' or 'OFF'")),
        };
        Ok(Self { retention, legal_hold })
    }

    /// Whether anything is asked for.
    pub(super) fn any(&self) -> bool {
        self.retention.is_some() || self.legal_hold.is_some()
    }
}

/// Retention and legal hold of a new object: what was asked for, or the bucket's default.
///
/// # Errors
/// `InvalidRequest` when something is asked for in a bucket without object lock.
pub(super) fn with_default(
    store: &Store,
    bucket: &str,
    asked: LockHeaders,
) -> S3Result<(Option<Vec<u8>>, Option<bool>)> {
    // A bucket that is not there is reported by what comes after this.
    let configuration = store.bucket_attribute(bucket, ATTRIBUTE).unwrap_or_default();
    if asked.any() && !is_enabled(configuration.as_deref()) {
        return Err(missing());
    }
    let default = || default_retention(configuration.as_deref()?, OffsetDateTime::now_utc());
    Ok((asked.retention.or_else(default), asked.legal_hold))
}

/// The configuration of a new bucket with object lock.
pub(super) fn new_configuration() -> Vec<u8> {
    let now = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
    format!("{{\"Enabled\":true,\"DefaultRetention\":null,\"CreatedAt\":\"{now}\"}}").into_bytes()
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredDefault {
    #[serde(default)]
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    days: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    years: Option<i32>,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredConfiguration {
    #[serde(default)]
    enabled: bool,
    default_retention: Option<StoredDefault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
}

pub(crate) async fn get_object_lock_configuration(
    service: &ObjectService,
    req: S3Request<GetObjectLockConfigurationInput>,
) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
    let input = req.input;
    let value = service.on_store(move |store| store.bucket_attribute(&input.bucket, ATTRIBUTE)).await?;
    let configuration: Option<StoredConfiguration> =
        value.as_deref().and_then(|json| serde_json::from_slice(json).ok());
    let Some(configuration) = configuration.filter(|c| c.enabled) else {
        return Err(s3_status(
            S3ErrorCode::ObjectLockConfigurationNotFoundError,
            http::StatusCode::NOT_FOUND,
            "Object Lock configuration does not exist for this bucket",
        ));
    };
    let rule = configuration.default_retention.map(|default| ObjectLockRule {
        default_retention: Some(DefaultRetention {
            days: default.days,
            mode: Some(default.mode.into()),
            years: default.years,
        }),
    });
    Ok(S3Response::new(GetObjectLockConfigurationOutput {
        object_lock_configuration: Some(ObjectLockConfiguration {
            object_lock_enabled: Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED)),
            rule,
        }),
    }))
}

pub(crate) async fn put_object_lock_configuration(
    service: &ObjectService,
    req: S3Request<PutObjectLockConfigurationInput>,
) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
    let input = req.input;
    let malformed = |what: &str| s3(S3ErrorCode::MalformedXML, what);
    let configuration =
        input.object_lock_configuration.ok_or_else(|| malformed("there is no configuration"))?;
    if configuration.object_lock_enabled.as_ref().map(ObjectLockEnabled::as_str) != Some("Enabled") {
        return Err(malformed("ObjectLockEnabled must be Enabled"));
    }
    let default_retention = match configuration.rule.and_then(|r| r.default_retention) {
        None => None,
        Some(default) => {
            let mode = default.mode.map(|m| m.as_str().to_owned()).unwrap_or_default();
            if !matches!(mode.as_str(), "GOVERNANCE" | "COMPLIANCE") {
                return Err(malformed("the mode must be GOVERNANCE or COMPLIANCE"));
            }
            match (default.days, default.years) {
                (Some(_), Some(_)) | (None, None) => {
                    return Err(malformed("give either Days or Years"));
                }
                (Some(n), None) | (None, Some(n)) if n <= 0 => {
                    return Err(s3_status(
                        S3ErrorCode::Custom("InvalidRetentionPeriod".into()),
                        http::StatusCode::BAD_REQUEST,
                        "Default retention period must be a positive integer value.",
                    ));
                }
                (days, years) => Some(StoredDefault { mode, days, years }),
            }
        }
    };
    let bucket = input.bucket;
    let set = service
        .on_store(move |store| {
            let found = store.bucket_attribute(&bucket, ATTRIBUTE)?;
            if store.versioning(&bucket)? != Versioning::Enabled {
                return Ok(false);
            }
            let created_at = found
                .and_then(|json| serde_json::from_slice::<StoredConfiguration>(&json).ok())
                .and_then(|c| c.created_at)
                .or_else(|| OffsetDateTime::now_utc().format(&Rfc3339).ok());
            let new = StoredConfiguration { enabled: true, default_retention, created_at };
            let json = serde_json::to_vec(&new).unwrap_or_default();
            store.set_bucket_attribute(&bucket, ATTRIBUTE, Some(&json))?;
            Ok(true)
        })
        .await?;
    if set {
        Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
    } else {
        Err(s3(
            S3ErrorCode::InvalidBucketState,
            "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration",
        ))
    }
}

/// Whether the caller asks to override retentions in GOVERNANCE mode, and may.
pub(super) fn may_bypass(admission: &Admission, key: &str, asked: Option<bool>) -> bool {
    asked == Some(true) && admission.allows(Action::BYPASS_GOVERNANCE, key, None)
}

/// Refuses operations on locks in buckets that have none.
async fn demand_lock(service: &ObjectService, bucket: &str) -> S3Result<()> {
    let bucket = bucket.to_owned();
    let value = service.on_store(move |store| store.bucket_attribute(&bucket, ATTRIBUTE)).await?;
    if is_enabled(value.as_deref()) { Ok(()) } else { Err(missing()) }
}

pub(crate) async fn put_object_retention(
    service: &ObjectService,
    req: S3Request<PutObjectRetentionInput>,
) -> S3Result<S3Response<PutObjectRetentionOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    let bypass = may_bypass(&admission, &input.key, input.bypass_governance_retention);
    demand_lock(service, &input.bucket).await?;
    let malformed = || s3(S3ErrorCode::MalformedXML, "a retention has a Mode and a RetainUntilDate");
    let retention = input.retention.ok_or_else(malformed)?;
    let (Some(mode), Some(until)) = (retention.mode, retention.retain_until_date) else {
        return Err(malformed());
    };
    let json = stored(mode.as_str(), until.into())?;
    service
        .on_store(move |store| {
            let version = input.version_id.as_deref();
            store.set_object_retention(&input.bucket, &input.key, version, &json, bypass)
        })
        .await?;
    Ok(S3Response::new(PutObjectRetentionOutput::default()))
}

fn no_lock(what: &str) -> s3s::S3Error {
    s3_status(
        S3ErrorCode::NoSuchObjectLockConfiguration,
        http::StatusCode::NOT_FOUND,
        format!("The specified object does not have a {what}"),
    )
}

pub(crate) async fn get_object_retention(
    service: &ObjectService,
    req: S3Request<GetObjectRetentionInput>,
) -> S3Result<S3Response<GetObjectRetentionOutput>> {
    let input = req.input;
    demand_lock(service, &input.bucket).await?;
    let info = service
        .on_store(move |store| store.head_object(&input.bucket, &input.key, input.version_id.as_deref()))
        .await?;
    let json = info.attributes.retention.ok_or_else(|| no_lock("retention"))?;
    let retention = Retention::parse(&json)?;
    Ok(S3Response::new(GetObjectRetentionOutput {
        retention: Some(ObjectLockRetention {
            retain_until_date: Some(retention.until()?.into()),
            mode: Some(retention.mode.into()),
        }),
    }))
}

pub(crate) async fn put_object_legal_hold(
    service: &ObjectService,
    req: S3Request<PutObjectLegalHoldInput>,
) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
    let input = req.input;
    demand_lock(service, &input.bucket).await?;
    let status = input.legal_hold.and_then(|hold| hold.status);
    let on = match status.as_ref().map(ObjectLockLegalHoldStatus::as_str) {
        Some("ON") => true,
        Some("OFF") => false,
        _ => return Err(s3(S3ErrorCode::MalformedXML, "the Status of a legal hold is ON or OFF")),
    };
    service
        .on_store(move |store| {
            store.set_object_legal_hold(&input.bucket, &input.key, input.version_id.as_deref(), on)
        })
        .await?;
    Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
}

pub(crate) async fn get_object_legal_hold(
    service: &ObjectService,
    req: S3Request<GetObjectLegalHoldInput>,
) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
    let input = req.input;
    demand_lock(service, &input.bucket).await?;
    let info = service
        .on_store(move |store| store.head_object(&input.bucket, &input.key, input.version_id.as_deref()))
        .await?;
    let on = info.attributes.legal_hold.ok_or_else(|| no_lock("legal hold"))?;
    let status = if on { ObjectLockLegalHoldStatus::ON } else { ObjectLockLegalHoldStatus::OFF };
    Ok(S3Response::new(GetObjectLegalHoldOutput {
        legal_hold: Some(ObjectLockLegalHold {
            status: Some(ObjectLockLegalHoldStatus::from_static(status)),
        }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn read(list: &[(&'static str, &'static str)]) -> Result<(bool, Option<bool>), String> {
        let headers = list.iter().map(|(n, v)| ((*n).parse().unwrap(), v.parse().unwrap())).collect();
        let lock = LockHeaders::read(&headers).map_err(|e| e.code().as_str().to_owned())?;
        Ok((lock.retention.is_some(), lock.legal_hold))
    }

    const MODE: &str = "x-amz-object-lock-mode";
    const DATE: &str = "x-amz-object-lock-retain-until-date";

    #[test_case(&[] => Ok((false, None)))]
    #[test_case(&[(MODE, "GOVERNANCE"), (DATE, "2999-01-01T00:00:00Z")] => Ok((true, None)))]
    #[test_case(&[("x-amz-object-lock-legal-hold", "ON")] => Ok((false, Some(true))))]
    #[test_case(&[("x-amz-object-lock-legal-hold", "on")] => Err("InvalidArgument".into()))]
    #[test_case(&[(MODE, "GOVERNANCE")] => Err("InvalidArgument".into()))]
    #[test_case(&[(DATE, "2999-01-01T00:00:00Z")] => Err("InvalidArgument".into()))]
    #[test_case(&[(MODE, "X"), (DATE, "2999-01-01T00:00:00Z")] => Err("InvalidArgument".into()))]
    #[test_case(&[(MODE, "COMPLIANCE"), (DATE, "2001-01-01T00:00:00Z")] => Err("InvalidArgument".into()))]
    #[test_case(&[(MODE, "COMPLIANCE"), (DATE, "soon")] => Err("InvalidArgument".into()))]
    fn headers(list: &[(&'static str, &'static str)]) -> Result<(bool, Option<bool>), String> {
        read(list)
    }

    #[test]
    fn a_new_configuration_is_enabled() {
        assert!(is_enabled(Some(&new_configuration())));
    }
}
