//! What the door leaves with a request that it lets in.

use std::sync::Arc;

use s3s::{S3Error, S3ErrorCode, S3Result};

use super::action::Action;
use super::decision::{Case, Decision};
use super::facts::{BucketFacts, ObjectFacts};
use crate::gateway::account::Account;
use crate::gateway::error::s3;
use crate::gateway::policy::Values;
use crate::store::ObjectInfo;

/// The condition keys of the tags that an object has.
pub(super) const EXISTING_TAGS: &str = "s3:ExistingObjectTag";

/// A caller who was let in, and the facts that this rested on.
///
/// Every operation demands one of its request: one that no decision was made about is not served.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    account: Option<Account>,
    bucket: Option<BucketFacts>,
    pub(super) values: Values,
    /// Whether the caller may not know which keys there are.
    pub(super) hides_absence: bool,
    /// The object that was looked at, and what about it was decided.
    pub(super) judged: Option<(Action, ObjectFacts)>,
}

/// That of the object which a copy reads.
#[derive(Clone, Debug)]
pub(crate) struct SourceAdmission(pub(super) Arc<Admission>);

impl SourceAdmission {
    /// That of a request.
    ///
    /// # Errors
    /// `AccessDenied` when there is none.
    pub(crate) fn of(extensions: &http::Extensions) -> S3Result<Arc<Admission>> {
        extensions.get::<Self>().map(|source| Arc::clone(&source.0)).ok_or_else(denied)
    }
}

/// The refusal, the same whatever the reason.
pub(crate) fn denied() -> S3Error {
    s3(S3ErrorCode::AccessDenied, "Access Denied")
}

impl Admission {
    pub(super) fn new(account: Option<Account>, bucket: Option<BucketFacts>, values: Values) -> Self {
        Self { account, bucket, values, hides_absence: false, judged: None }
    }

    /// That of a request.
    ///
    /// # Errors
    /// `AccessDenied` when there is none.
    pub(crate) fn of(extensions: &http::Extensions) -> S3Result<Arc<Self>> {
        extensions.get::<Arc<Self>>().cloned().ok_or_else(denied)
    }

    /// The caller; none is somebody anonymous.
    pub(crate) fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// Name of the caller's account.
    pub(crate) fn caller(&self) -> Option<&str> {
        self.account.as_ref().map(|account| account.access.as_str())
    }

    /// The bucket of the request.
    ///
    /// # Errors
    /// `InternalError` for operations that have none.
    pub(crate) fn bucket(&self) -> S3Result<&BucketFacts> {
        self.bucket.as_ref().ok_or_else(|| crate::gateway::error::internal("access", &"there is no bucket"))
    }

    /// Whether the caller has a right over a key of the bucket too.
    pub(crate) fn allows(&self, action: Action, key: &str, version: Option<&str>) -> bool {
        let Some(bucket) = &self.bucket else { return false };
        let mut values = self.values.clone();
        if let Some(version) = version {
            values.set("s3:VersionId", version);
        }
        let account = self.account.as_ref();
        let case = Case { account, bucket, key: Some(key), object: None, values: &values };
        case.decide(action) == Decision::Allow
    }

    /// Compares the object that an operation opened with the one that was decided about, and decides
    /// again when it has been replaced since.
    ///
    /// # Errors
    /// `AccessDenied` when the caller may not have the one that is there now.
    pub(crate) fn confirm(&self, info: &ObjectInfo) -> S3Result<()> {
        let Some((action, judged)) = &self.judged else { return Ok(()) };
        let bucket = self.bucket()?;
        let now = ObjectFacts::of(bucket, info)?;
        if now == *judged {
            return Ok(());
        }
        let mut values = self.values.clone();
        values.set_tags(EXISTING_TAGS, &now.tags);
        let account = self.account.as_ref();
        let case = Case { account, bucket, key: Some(&info.key), object: Some(&now), values: &values };
        if case.decide(*action) == Decision::Allow { Ok(()) } else { Err(denied()) }
    }

    /// What an operation's failure looks like to the caller: who may not list keys is not told that
    /// one is missing.
    pub(crate) fn shown(&self, error: S3Error) -> S3Error {
        let tells = matches!(error.code(), S3ErrorCode::NoSuchKey | S3ErrorCode::NoSuchVersion);
        if self.hides_absence && tells { denied() } else { error }
    }
}
