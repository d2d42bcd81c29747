//! A bucket's lifecycle rules.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::gateway::error::s3;
use crate::gateway::lifecycle::{ATTRIBUTE, checked};
use crate::gateway::s3::ObjectService;
use crate::gateway::xml::{from_xml, to_xml};

pub(crate) async fn put_bucket_lifecycle_configuration(
    service: &ObjectService,
    req: S3Request<PutBucketLifecycleConfigurationInput>,
) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
    let input = req.input;
    if !service.applies_lifecycles {
        // Rules that nobody applies would be a promise not kept.
        return Err(s3(
            S3ErrorCode::NotImplemented,
            "lifecycle rules are switched off in this gateway (--lifecycle-interval 0)",
        ));
    }
    let configuration = input
        .lifecycle_configuration
        .ok_or_else(|| s3(S3ErrorCode::MalformedXML, "there is no lifecycle configuration"))?;
    let document = to_xml(&checked(configuration)?)?;
    service
        .on_store(move |store| store.set_bucket_attribute(&input.bucket, ATTRIBUTE, Some(&document)))
        .await?;
    Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
}

pub(crate) async fn get_bucket_lifecycle_configuration(
    service: &ObjectService,
    req: S3Request<GetBucketLifecycleConfigurationInput>,
) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
    let input = req.input;
    let absent = ("NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist");
    let document = service.bucket_configuration(input.bucket, ATTRIBUTE, absent).await?;
    let configuration: BucketLifecycleConfiguration = from_xml(&document)?;
    Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
        rules: Some(configuration.rules),
        ..Default::default()
    }))
}

pub(crate) async fn delete_bucket_lifecycle(
    service: &ObjectService,
    req: S3Request<DeleteBucketLifecycleInput>,
) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
    let input = req.input;
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, ATTRIBUTE, None)).await?;
    Ok(S3Response::with_status(DeleteBucketLifecycleOutput {}, http::StatusCode::NO_CONTENT))
}
