//! Retention and legal hold: what may not be deleted or overwritten yet.
//!
//! Forms as versitygw keeps them: an object's retention is JSON `Mode` and `RetainUntilDate`
//! (RFC 3339), its legal hold one byte; a bucket's configuration is JSON `Enabled`,
//! `DefaultRetention` (`Mode`, and `Days` or `Years`) and `CreatedAt`.

use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::attributes::{Raw, name, to_json};
use super::error::{Error, Result};

/// An object's retention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Retention {
    /// `GOVERNANCE` or `COMPLIANCE`.
    #[serde(default)]
    pub mode: String,
    /// RFC 3339.
    #[serde(default)]
    pub retain_until_date: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BucketLock {
    #[serde(default)]
    enabled: bool,
    default_retention: Option<DefaultRetention>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DefaultRetention {
    #[serde(default)]
    mode: String,
    days: Option<i64>,
    years: Option<i32>,
}

impl Retention {
    /// Reads the stored form.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not JSON, the mode is unknown or the date cannot be read.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let bad = |why: String| Error::InvalidArgument(format!("retention: {why}"));
        let retention: Self = serde_json::from_slice(json).map_err(|e| bad(e.to_string()))?;
        if !matches!(retention.mode.as_str(), "GOVERNANCE" | "COMPLIANCE") {
            return Err(bad(format!("unknown mode {:?}", retention.mode)));
        }
        retention.until()?;
        Ok(retention)
    }

    /// The end of the retention.
    ///
    /// # Errors
    /// `InvalidArgument` when the date cannot be read.
    pub fn until(&self) -> Result<OffsetDateTime> {
        OffsetDateTime::parse(&self.retain_until_date, &Rfc3339).map_err(|error| {
            Error::InvalidArgument(format!("retention date {:?}: {error}", self.retain_until_date))
        })
    }

    fn is_active(&self) -> Result<bool> {
        Ok(self.until()? > OffsetDateTime::now_utc())
    }
}

/// Whether object lock is on in a bucket with this configuration (attribute `bucket-lock`).
pub fn is_enabled(bucket_lock: Option<&[u8]>) -> bool {
    bucket_lock
        .and_then(|json| serde_json::from_slice::<BucketLock>(json).ok())
        .is_some_and(|lock| lock.enabled)
}

/// The retention that a new object gets from its bucket's configuration at `now`, in the stored form.
pub fn default_retention(bucket_lock: &[u8], now: OffsetDateTime) -> Option<Vec<u8>> {
    let lock: BucketLock = serde_json::from_slice(bucket_lock).ok()?;
    let rule = lock.default_retention.filter(|_| lock.enabled)?;
    let until = match (rule.days, rule.years) {
        (Some(days), _) => {
            now.checked_add(Duration::checked_seconds_f64(0.0)?.checked_add(Duration::days(days))?)?
        }
        (None, Some(years)) => {
            let year = now.year().checked_add(years)?;
            // The 29th of February has no counterpart in most years.
            now.replace_year(year).or_else(|_| now.replace_day(28)?.replace_year(year)).ok()?
        }
        (None, None) => return None,
    };
    let retain_until_date = until.format(&Rfc3339).ok()?;
    Some(to_json(&Retention { mode: rule.mode, retain_until_date }))
}

/// Refuses the removal of an object with these attributes while it is held.
pub(crate) fn check(raw: &Raw, key: &str, bypass_governance: bool) -> Result<()> {
    if raw.get(name::LEGAL_HOLD).is_some_and(|hold| hold.first() == Some(&1)) {
        return Err(Error::Denied(format!("{key:?} is under a legal hold; release it first")));
    }
    let Some(json) = raw.get(name::RETENTION).filter(|json| !json.is_empty()) else { return Ok(()) };
    // A retention that cannot be read protects: it must not be lost by a mistake in it.
    let retention = Retention::parse(json)
        .map_err(|error| Error::Denied(format!("{key:?} has a retention that cannot be read: {error}")))?;
    if !retention.is_active()? || (bypass_governance && retention.mode == "GOVERNANCE") {
        return Ok(());
    }
    Err(Error::Denied(format!(
        "{key:?} is retained until {} in {} mode",
        retention.retain_until_date, retention.mode
    )))
}

/// Refuses a new retention that weakens the present one.
pub(crate) fn check_change(raw: &Raw, key: &str, new: &[u8], bypass_governance: bool) -> Result<()> {
    let new = Retention::parse(new)?;
    let Some(json) = raw.get(name::RETENTION).filter(|json| !json.is_empty()) else { return Ok(()) };
    let Ok(old) = Retention::parse(json) else { return Ok(()) };
    if !old.is_active()? {
        return Ok(());
    }
    let weaker = new.until()? < old.until()? || (old.mode == "COMPLIANCE" && new.mode != old.mode);
    // Leaving GOVERNANCE for COMPLIANCE, or shortening it, takes the right to bypass it.
    let allowed = match old.mode.as_str() {
        "COMPLIANCE" => !weaker,
        _ => bypass_governance || (!weaker && new.mode == old.mode),
    };
    if allowed {
        return Ok(());
    }
    Err(Error::Denied(format!(
        "the {} retention of {key:?} until {} cannot be weakened",
        old.mode, old.retain_until_date
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;
    use time::macros::datetime;

    fn held(mode: &str, until: &str) -> Raw {
        let json = format!(r#"{{"Mode":"{mode}","RetainUntilDate":"{until}"}}"#);
        Raw::from([(name::RETENTION.to_owned(), json.into_bytes())])
    }

    const PAST: &str = "2001-01-01T00:00:00Z";
    const FUTURE: &str = "2999-01-01T00:00:00Z";
    const LATER: &str = "2999-06-01T00:00:00Z";

    #[test_case("GOVERNANCE", FUTURE, false => false)]
    #[test_case("GOVERNANCE", FUTURE, true => true)]
    #[test_case("COMPLIANCE", FUTURE, true => false)]
    #[test_case("COMPLIANCE", PAST, false => true)]
    #[test_case("COMPLIANCE", "rubbish", true => false; "unreadable protects")]
    fn deletes(mode: &str, until: &str, bypass: bool) -> bool {
        check(&held(mode, until), "k", bypass).is_ok()
    }

    #[test]
    fn legal_hold() {
        let raw = |byte| Raw::from([(name::LEGAL_HOLD.to_owned(), vec![byte])]);
        assert!(check(&raw(1), "k", true).is_err());
        assert!(check(&raw(0), "k", false).is_ok());
        assert!(check(&Raw::new(), "k", false).is_ok());
    }

    #[test_case("GOVERNANCE", "GOVERNANCE", LATER, false => true; "longer")]
    #[test_case("GOVERNANCE", "GOVERNANCE", PAST, false => false; "shorter")]
    #[test_case("GOVERNANCE", "GOVERNANCE", PAST, true => true; "shorter with bypass")]
    #[test_case("GOVERNANCE", "COMPLIANCE", LATER, false => false; "other mode")]
    #[test_case("GOVERNANCE", "COMPLIANCE", LATER, true => true; "other mode with bypass")]
    #[test_case("COMPLIANCE", "COMPLIANCE", LATER, false => true; "compliance longer")]
    #[test_case("COMPLIANCE", "GOVERNANCE", LATER, true => false; "compliance to governance")]
    #[test_case("COMPLIANCE", "COMPLIANCE", PAST, true => false; "compliance shorter")]
    fn changes(old: &str, new: &str, until: &str, bypass: bool) -> bool {
        let new = held(new, until).remove(name::RETENTION).unwrap();
        check_change(&held(old, FUTURE), "k", &new, bypass).is_ok()
    }

    #[test]
    fn defaults() {
        let now = datetime!(2024-02-29 12:00 UTC);
        let until = |json: &str| {
            default_retention(json.as_bytes(), now).map(|r| Retention::parse(&r).unwrap().retain_until_date)
        };
        let days = r#"{"Enabled":true,"DefaultRetention":{"Mode":"COMPLIANCE","Days":2},"CreatedAt":null}"#;
        assert_eq!(until(days).unwrap(), "2024-03-02T12:00:00Z");
        let years = r#"{"Enabled":true,"DefaultRetention":{"Mode":"GOVERNANCE","Years":1,"Days":null}}"#;
        assert_eq!(until(years).unwrap(), "2025-02-28T12:00:00Z");
        assert_eq!(until(r#"{"Enabled":true,"DefaultRetention":null}"#), None);
        assert_eq!(until(r#"{"Enabled":false,"DefaultRetention":{"Mode":"GOVERNANCE","Days":1}}"#), None);
        assert!(is_enabled(Some(days.as_bytes())) && !is_enabled(Some(b"{}")) && !is_enabled(None));
    }
}
