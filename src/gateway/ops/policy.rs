//! Bucket policies.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::gateway::access::attribute::POLICY;
use crate::gateway::access::denied;
use crate::gateway::error::{internal, s3_status};
use crate::gateway::policy::Policy;
use crate::gateway::s3::{Extras, ObjectService};

fn malformed(what: &str) -> S3Error {
    s3_status(S3ErrorCode::MalformedPolicy, http::StatusCode::BAD_REQUEST, what)
}

/// Sets the policy as it was sent: what is read back is what was written.
pub(crate) async fn put_bucket_policy(
    service: &ObjectService,
    req: S3Request<PutBucketPolicyInput>,
) -> S3Result<S3Response<PutBucketPolicyOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    let text = input.policy.into_bytes();
    let policy = Policy::new(&text, &input.bucket).map_err(|error| malformed(&error.to_string()))?;
    if let Some(name) = policy.named_accounts().find(|name| service.accounts.find(name).is_err()) {
        return Err(malformed(&format!("Invalid principal in policy: there is no account {name:?}")));
    }
    if admission.bucket()?.blocks.block_public_policy && policy.is_public() {
        return Err(denied());
    }
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, POLICY, Some(&text))).await?;
    Ok(S3Response::with_status(PutBucketPolicyOutput {}, http::StatusCode::NO_CONTENT))
}

pub(crate) async fn get_bucket_policy(
    service: &ObjectService,
    req: S3Request<GetBucketPolicyInput>,
) -> S3Result<S3Response<GetBucketPolicyOutput>> {
    let bucket = req.input.bucket;
    let policy = service.on_store(move |store| store.bucket_attribute(&bucket, POLICY)).await?;
    let policy = policy.filter(|text| !text.is_empty()).ok_or_else(|| {
        s3_status(
            S3ErrorCode::NoSuchBucketPolicy,
            http::StatusCode::NOT_FOUND,
            "The bucket policy does not exist",
        )
    })?;
    let policy =
        String::from_utf8(policy).map_err(|error| internal("malformed policy of a bucket", &error))?;
    Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(policy) }))
}

pub(crate) async fn delete_bucket_policy(
    service: &ObjectService,
    req: S3Request<DeleteBucketPolicyInput>,
) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
    let bucket = req.input.bucket;
    service.on_store(move |store| store.set_bucket_attribute(&bucket, POLICY, None)).await?;
    Ok(S3Response::with_status(DeleteBucketPolicyOutput {}, http::StatusCode::NO_CONTENT))
}

/// Says whether policy or ACL let everybody in, also where a public access block takes no notice of
/// them.
pub(crate) async fn get_bucket_policy_status(
    _: &ObjectService,
    req: S3Request<GetBucketPolicyStatusInput>,
) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
    let admission = req.admission()?;
    let bucket = admission.bucket()?;
    let by_policy = bucket.readable_policy().is_some_and(Policy::is_public);
    let by_acl = bucket.ownership.has_acls() && bucket.acl.is_public();
    let is_public = Some(by_policy || by_acl);
    Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status: Some(PolicyStatus { is_public }) }))
}
