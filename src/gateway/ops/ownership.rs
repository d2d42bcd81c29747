//! Ownership controls of buckets.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::gateway::access::attribute::OWNERSHIP;
use crate::gateway::acl::acl_with_ownership;
use crate::gateway::config::Ownership;
use crate::gateway::error::{s3, s3_status};
use crate::gateway::s3::{Extras, ObjectService};

pub(crate) async fn get_bucket_ownership_controls(
    service: &ObjectService,
    req: S3Request<GetBucketOwnershipControlsInput>,
) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
    let bucket = req.input.bucket;
    let value = service.on_store(move |store| store.bucket_attribute(&bucket, OWNERSHIP)).await?;
    let setting = value.and_then(|v| String::from_utf8(v).ok()).ok_or_else(|| {
        s3_status(
            S3ErrorCode::Custom("OwnershipControlsNotFoundError".into()),
            http::StatusCode::NOT_FOUND,
            "The bucket ownership controls were not found",
        )
    })?;
    Ok(S3Response::new(GetBucketOwnershipControlsOutput {
        ownership_controls: Some(OwnershipControls {
            rules: vec![OwnershipControlsRule { object_ownership: setting.into() }],
        }),
    }))
}

/// The setting that a document or header names.
///
/// # Errors
/// `InvalidArgument` for another.
pub(super) fn ownership(setting: &ObjectOwnership) -> S3Result<Ownership> {
    Ownership::from_name(setting.as_str()).ok_or_else(|| {
        s3(S3ErrorCode::InvalidArgument, format!("Invalid ObjectOwnership {:?}", setting.as_str()))
    })
}

pub(crate) async fn put_bucket_ownership_controls(
    service: &ObjectService,
    req: S3Request<PutBucketOwnershipControlsInput>,
) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    let [rule] = &*input.ownership_controls.rules else {
        return Err(s3(S3ErrorCode::MalformedXML, "ownership controls have one rule"));
    };
    let setting = ownership(&rule.object_ownership)?;
    if !setting.has_acls() && !admission.bucket()?.acl.is_private() {
        return Err(acl_with_ownership());
    }
    let value = setting.name().as_bytes();
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, OWNERSHIP, Some(value))).await?;
    Ok(S3Response::new(PutBucketOwnershipControlsOutput {}))
}

pub(crate) async fn delete_bucket_ownership_controls(
    service: &ObjectService,
    req: S3Request<DeleteBucketOwnershipControlsInput>,
) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
    let bucket = req.input.bucket;
    service.on_store(move |store| store.set_bucket_attribute(&bucket, OWNERSHIP, None)).await?;
    Ok(S3Response::new(DeleteBucketOwnershipControlsOutput {}))
}
