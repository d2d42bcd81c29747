//! Who may do what, and what a request asks for: the check between authentication and operation.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{CopyObjectInput, CopySource, UploadPartCopyInput};
use s3s::path::S3Path;
use s3s::{S3ErrorCode, S3Request, S3Result};

use super::account::{Account, Accounts, Role};
use super::acl::{Acl, Need};
use super::blocking::Blocking;
use super::error::s3;
use super::metrics::Metrics;
use super::ops::Source;
use super::rdma::gate::Gate;
use super::request::RequestContext;
use crate::store::Store;

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
    pub(crate) region: String,
    pub(crate) read_only: bool,
    pub(crate) metrics: Arc<Metrics>,
}

/// The region of the credential scope, for version 4 signatures in the header.
fn scope_region(headers: &http::HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let credential = value.split([' ', ',']).find_map(|part| part.strip_prefix("Credential="))?;
    // <access key>/<date>/<region>/<service>/aws4_request; an access key may hold slashes.
    credential.rsplit('/').nth(2)
}

impl Access {
    async fn may(&self, account: &Account, operation: &str, path: &S3Path) -> S3Result<()> {
        let denied = || Err(s3(S3ErrorCode::AccessDenied, "Access Denied"));
        if account.role == Role::Admin {
            return Ok(());
        }
        match operation {
            "ListBuckets" => return Ok(()),
            "CreateBucket" => return if account.role == Role::UserPlus { Ok(()) } else { denied() },
            _ => {}
        }
        let Some(bucket) = path.get_bucket_name() else { return denied() };
        let acl = self.acl(bucket).await?;
        if acl.allows(&account.access, Need::of(operation)) { Ok(()) } else { denied() }
    }

    /// Whether the caller may read what a copy reads.
    async fn may_copy_from(&self, account: Option<&Account>, source: &CopySource) -> S3Result<()> {
        let denied = || s3(S3ErrorCode::AccessDenied, "Access Denied");
        let account = account.ok_or_else(denied)?;
        let source = Source::of(source)?;
        if account.role == Role::Admin || self.acl(&source.bucket).await?.allows(&account.access, Need::Read)
        {
            Ok(())
        } else {
            Err(denied())
        }
    }

    async fn acl(&self, bucket: &str) -> S3Result<Acl> {
        let (store, bucket) = (self.store.clone(), bucket.to_owned());
        let value = self.blocking.run(move || store.bucket_attribute(&bucket, "acl")).await??;
        Acl::parse(value.as_deref())
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
        let Some(credentials) = cx.credentials() else {
            return Err(s3(
                S3ErrorCode::AccessDenied,
                "Anonymous requests are not allowed: sign the request",
            ));
        };
        if let Some(region) = scope_region(cx.headers())
            && region != self.region
        {
            return Err(s3(
                S3ErrorCode::AuthorizationHeaderMalformed,
                format!(
                    "The authorization header is malformed; the region '{region}' is wrong; expecting '{}'",
                    self.region
                ),
            ));
        }
        let account = self.accounts.find(&credentials.access_key)?;
        self.may(&account, operation, cx.s3_path()).await?;
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
        extensions.insert(account);
        if let Some(intent) = intent {
            extensions.insert(intent);
        }
        Ok(())
    }

    async fn copy_object(&self, req: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        self.may_copy_from(req.extensions.get(), &req.input.copy_source).await
    }

    async fn upload_part_copy(&self, req: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        self.may_copy_from(req.extensions.get(), &req.input.copy_source).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_of_the_scope() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(scope_region(&headers), None);
        let value = "AWS4-HMAC-SHA256 Credential=a/b/20260101/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        headers.insert(http::header::AUTHORIZATION, value.parse().unwrap());
        assert_eq!(scope_region(&headers), Some("eu-west-1"));
    }

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
