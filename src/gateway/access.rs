//! Who may do what, and what a request asks for: the door between authentication and operation.
//!
//! `facts` are read once per request, `action` says what an operation needs, `request` what conditions
//! can ask, `decision` decides, and an `admission` goes with the request to its operation.

mod action;
mod admission;
mod decision;
mod facts;
mod judge;
mod request;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use http::{Extensions, HeaderMap};
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{
    CopyObjectInput, CopySource, PostObjectInput, PutObjectLegalHoldInput, PutObjectRetentionInput,
    PutObjectTaggingInput, TaggingDirective, UploadPartCopyInput,
};
use s3s::{S3ErrorCode, S3Request, S3Result};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::account::{Account, Accounts, Role};
use super::blocking::Blocking;
use super::config::Ownership;
use super::error::s3;
use super::fields::FormFields;
use super::metrics::Metrics;
use super::ops::{Source, read_spaces};
use super::rdma::gate::Gate;
use super::request::RequestContext;
use crate::store::Store;
pub(crate) use action::Action;
use action::Also;
pub(crate) use admission::{Admission, SourceAdmission, denied};
pub(crate) use facts::{BucketFacts, PublicAccessBlock, attribute};
use judge::{Asked, Judge};
use request::Query;

/// Operations that change nothing.
fn reads_only(operation: &str) -> bool {
    operation.starts_with("Get") || operation.starts_with("Head") || operation.starts_with("List")
}

/// A name of an operation that lives for ever. There are as many as s3s has operations.
fn interned(name: &str) -> &'static str {
    static NAMES: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());
    if let Some(known) = NAMES.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return known;
    }
    let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

/// The checks of this gateway.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) accounts: Accounts,
    pub(crate) store: Store,
    pub(crate) blocking: Blocking,
    pub(crate) gate: Gate,
    pub(crate) default_ownership: Ownership,
    pub(crate) read_only: bool,
    pub(crate) metrics: Arc<Metrics>,
}

/// Operations whose decision waits for what their body says.
fn is_decided_later(operation: &str) -> bool {
    matches!(operation, "PostObject" | "PutObjectTagging" | "PutObjectRetention" | "PutObjectLegalHold")
}

/// A request that is not decided about yet.
#[derive(Clone, Debug)]
struct Undecided {
    admission: Admission,
    asked: Asked,
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    // What is no text is not the name of any account.
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

/// Compares the owner of a bucket with the one that a header expects.
fn check_owner(headers: &HeaderMap, name: &str, bucket: &BucketFacts) -> S3Result<()> {
    match text(headers, name) {
        Some(expected) if expected != bucket.owner() => Err(denied()),
        _ => Ok(()),
    }
}

impl Access {
    /// The account behind a request; none when it is not signed.
    fn account(&self, cx: &S3AccessContext<'_>) -> S3Result<Option<Account>> {
        let Some(credentials) = cx.credentials() else { return Ok(None) };
        self.accounts.find(&credentials.access_key).map(Some)
    }

    /// Decides about operations that no bucket has a say in; none for the others.
    fn admit_without_bucket(
        &self,
        account: Option<&Account>,
        operation: &str,
    ) -> Option<S3Result<Admission>> {
        let allowed = match operation {
            "ListBuckets" => account.is_some(),
            "CreateBucket" => account.is_some_and(|a| matches!(a.role, Role::Admin | Role::UserPlus)),
            _ => return None,
        };
        let admission = Admission::new(account.cloned(), None, Default::default());
        Some(if allowed { Ok(admission) } else { Err(denied()) })
    }

    async fn load(&self, bucket: &str) -> S3Result<BucketFacts> {
        let (store, bucket) = (self.store.clone(), bucket.to_owned());
        let (root, ownership) = (self.accounts.root().to_owned(), self.default_ownership);
        self.blocking.run(move || BucketFacts::load(&store, &bucket, &root, ownership)).await?
    }

    /// Reads the facts and decides, in one visit to a blocking thread.
    async fn admit(
        &self,
        cx: &S3AccessContext<'_>,
        context: Option<Arc<RequestContext>>,
        account: Option<Account>,
        operation: &'static str,
    ) -> S3Result<(Admission, Option<Asked>)> {
        let bucket = cx.s3_path().get_bucket_name().ok_or_else(denied)?.to_owned();
        let query = Query::of(cx.uri())?;
        let asked = Asked {
            action: Action::of(operation, query.version().is_some()),
            also: Also::of(operation, query.version().is_some(), cx.headers()),
            key: cx.s3_path().get_object_key().map(str::to_owned),
            version: query.version().map(str::to_owned),
            upload: query.get("uploadId").map(str::to_owned),
        };
        let (store, mut headers) = (self.store.clone(), cx.headers().clone());
        let (root, ownership) = (self.accounts.root().to_owned(), self.default_ownership);
        self.blocking
            .run(move || {
                let bucket = BucketFacts::load(&store, &bucket, &root, ownership)?;
                check_owner(&headers, "x-amz-expected-bucket-owner", &bucket)?;
                if operation == "PostObject" {
                    // They are the form's, whose fields say what is put.
                    let of_object: Vec<_> =
                        headers.keys().filter(|name| name.as_str().starts_with("x-amz-")).cloned().collect();
                    of_object.iter().for_each(|name| drop(headers.remove(name)));
                }
                // Only policies look at them.
                let values = match &bucket.policy {
                    None => Default::default(),
                    Some(_) => request::values(
                        &headers,
                        &query,
                        context.as_deref(),
                        account.as_ref(),
                        bucket.owner(),
                    ),
                };
                let mut admission = Admission::new(account, Some(bucket), values);
                if operation == "DeleteObjects" {
                    // The operation asks for each key; a refusal is one key's.
                    return Ok((admission, None));
                }
                if is_decided_later(operation) {
                    return Ok((admission, Some(asked)));
                }
                Judge { store: &store, admission: &mut admission }.settle(&asked)?;
                Ok((admission, None))
            })
            .await?
    }

    /// Decides about a request whose body is known by now. `refine` adds what that says.
    async fn decide_late(
        &self,
        extensions: &mut Extensions,
        refine: impl FnOnce(&mut Undecided),
    ) -> S3Result<()> {
        let mut undecided: Undecided = extensions.remove().ok_or_else(denied)?;
        refine(&mut undecided);
        let Undecided { mut admission, asked } = undecided;
        let store = self.store.clone();
        let admission = self
            .blocking
            .run(move || -> S3Result<Admission> {
                Judge { store: &store, admission: &mut admission }.settle(&asked)?;
                Ok(admission)
            })
            .await??;
        extensions.insert(Arc::new(admission));
        Ok(())
    }

    /// Decides whether the caller may read what a copy reads, after it was decided that it may write.
    async fn admit_source(
        &self,
        extensions: &mut Extensions,
        headers: &HeaderMap,
        source: &CopySource,
        takes_tags: bool,
    ) -> S3Result<()> {
        let target = Admission::of(extensions)?;
        let source = Source::of(source)?;
        let version = source.version.is_some();
        let bucket = self.load(&source.bucket).await?;
        check_owner(headers, "x-amz-source-expected-bucket-owner", &bucket)?;
        let context = RequestContext::of(extensions).cloned();
        let account = target.account().cloned();
        let query = Query::of_version(source.version.as_deref());
        let values = request::values(headers, &query, context.as_deref(), account.as_ref(), bucket.owner());
        let mut admission = Admission::new(account, Some(bucket), values);
        let asked = Asked {
            action: Action::get_object(version),
            also: Also::default(),
            key: Some(source.key),
            version: source.version,
            upload: None,
        };
        let store = self.store.clone();
        let admission = self
            .blocking
            .run(move || -> S3Result<Admission> {
                let mut judge = Judge { store: &store, admission: &mut admission };
                judge.settle(&asked)?;
                if takes_tags {
                    judge.settle_tags(&asked)?;
                }
                Ok(admission)
            })
            .await??;
        let mut target = Admission::clone(&target);
        target.hides_absence |= admission.hides_absence;
        extensions.insert(Arc::new(target));
        extensions.insert(SourceAdmission(Arc::new(admission)));
        Ok(())
    }
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let context = RequestContext::of(cx.extensions_mut()).cloned();
        let operation = interned(cx.s3_op().name());
        if let Some(context) = &context {
            let mut outcome = context.outcome();
            outcome.operation = Some(operation);
            outcome.bucket = cx.s3_path().get_bucket_name().map(str::to_owned);
            outcome.key = cx.s3_path().get_object_key().map(str::to_owned);
            outcome.requester = cx.credentials().map(|c| c.access_key.clone());
        }
        let account = self.account(cx)?;
        let (admission, undecided) = match self.admit_without_bucket(account.as_ref(), operation) {
            Some(admission) => (admission?, None),
            None => self.admit(cx, context.clone(), account, operation).await?,
        };
        if self.read_only && !reads_only(operation) {
            return Err(s3(S3ErrorCode::AccessDenied, "this gateway is read-only"));
        }
        let intent = match &context {
            Some(context) => {
                self.gate.decide(operation, context, cx.uri(), cx.headers()).inspect_err(|error| {
                    if error.status_code() == Some(http::StatusCode::NOT_IMPLEMENTED) {
                        self.metrics.rdma_declined();
                    }
                })?
            }
            None => None,
        };
        let extensions = cx.extensions_mut();
        match undecided {
            Some(asked) => drop(extensions.insert(Undecided { admission, asked })),
            None => drop(extensions.insert(Arc::new(admission))),
        }
        if let Some(intent) = intent {
            extensions.insert(intent);
        }
        Ok(())
    }

    async fn copy_object(&self, req: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        let replaces = req.input.tagging_directive.as_ref().map(TaggingDirective::as_str) == Some("REPLACE");
        read_spaces(&req.headers, &mut req.input.copy_source);
        self.admit_source(&mut req.extensions, &req.headers, &req.input.copy_source, !replaces).await
    }

    async fn upload_part_copy(&self, req: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        read_spaces(&req.headers, &mut req.input.copy_source);
        self.admit_source(&mut req.extensions, &req.headers, &req.input.copy_source, false).await
    }

    async fn post_object(&self, req: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        // What a PUT says by headers, a form says by fields.
        let fields = match req.extensions.get::<FormFields>() {
            Some(fields) => fields.headers()?,
            None => HeaderMap::new(),
        };
        let key = req.input.key.clone();
        self.decide_late(&mut req.extensions, move |undecided| {
            undecided.asked.also = Also::of("PostObject", false, &fields);
            undecided.asked.key = Some(key);
            let values = &mut undecided.admission.values;
            values.set("s3:authType", "POST");
            request::set_headers(values, &fields);
        })
        .await
    }

    async fn put_object_tagging(&self, req: &mut S3Request<PutObjectTaggingInput>) -> S3Result<()> {
        let tags = req.input.tagging.tag_set.iter();
        let pairs = tags.filter_map(|tag| Some((tag.key.clone()?, tag.value.clone().unwrap_or_default())));
        let tags = pairs.collect();
        self.decide_late(&mut req.extensions, move |undecided| {
            request::set_request_tags(&mut undecided.admission.values, &tags);
        })
        .await
    }

    async fn put_object_retention(&self, req: &mut S3Request<PutObjectRetentionInput>) -> S3Result<()> {
        let retention = req.input.retention.clone();
        self.decide_late(&mut req.extensions, move |undecided| {
            let Some(retention) = retention else { return };
            let values = &mut undecided.admission.values;
            if let Some(mode) = retention.mode {
                values.set("s3:object-lock-mode", mode.as_str());
            }
            let until = retention.retain_until_date.map(OffsetDateTime::from);
            if let Some(until) = until.and_then(|date| date.format(&Rfc3339).ok()) {
                request::set_retention_date(values, &until);
            }
        })
        .await
    }

    async fn put_object_legal_hold(&self, req: &mut S3Request<PutObjectLegalHoldInput>) -> S3Result<()> {
        let status = req.input.legal_hold.as_ref().and_then(|hold| hold.status.clone());
        self.decide_late(&mut req.extensions, move |undecided| {
            if let Some(status) = status {
                undecided.admission.values.set("s3:object-lock-legal-hold", status.as_str());
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_change_something() {
        for operation in [
            "PutObject",
            "CopyObject",
            "UploadPartCopy",
            "DeleteObjects",
            "CreateBucket",
            "AbortMultipartUpload",
        ] {
            assert!(!reads_only(operation), "{operation}");
        }
        assert!(reads_only("GetObject") && reads_only("ListParts") && reads_only("HeadBucket"));
    }
}
