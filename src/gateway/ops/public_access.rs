//! Public access blocks of buckets.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use crate::gateway::access::PublicAccessBlock;
use crate::gateway::access::attribute::PUBLIC_ACCESS_BLOCK;
use crate::gateway::error::internal;
use crate::gateway::s3::{Extras, ObjectService};

pub(crate) async fn get_public_access_block(
    service: &ObjectService,
    req: S3Request<GetPublicAccessBlockInput>,
) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
    let blocks = req.admission()?.bucket()?.blocks;
    let bucket = req.input.bucket;
    let absent =
        ("NoSuchPublicAccessBlockConfiguration", "The public access block configuration was not found");
    service.bucket_configuration(bucket, PUBLIC_ACCESS_BLOCK, absent).await?;
    Ok(S3Response::new(GetPublicAccessBlockOutput {
        public_access_block_configuration: Some(PublicAccessBlockConfiguration {
            block_public_acls: Some(blocks.block_public_acls),
            block_public_policy: Some(blocks.block_public_policy),
            ignore_public_acls: Some(blocks.ignore_public_acls),
            restrict_public_buckets: Some(blocks.restrict_public_buckets),
        }),
    }))
}

pub(crate) async fn put_public_access_block(
    service: &ObjectService,
    req: S3Request<PutPublicAccessBlockInput>,
) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
    let input = req.input;
    let asked = input.public_access_block_configuration;
    let blocks = PublicAccessBlock {
        block_public_acls: asked.block_public_acls.unwrap_or(false),
        ignore_public_acls: asked.ignore_public_acls.unwrap_or(false),
        block_public_policy: asked.block_public_policy.unwrap_or(false),
        restrict_public_buckets: asked.restrict_public_buckets.unwrap_or(false),
    };
    let json = serde_json::to_vec(&blocks).map_err(|error| internal("public access block", &error))?;
    service
        .on_store(move |store| store.set_bucket_attribute(&input.bucket, PUBLIC_ACCESS_BLOCK, Some(&json)))
        .await?;
    Ok(S3Response::new(PutPublicAccessBlockOutput {}))
}

pub(crate) async fn delete_public_access_block(
    service: &ObjectService,
    req: S3Request<DeletePublicAccessBlockInput>,
) -> S3Result<S3Response<DeletePublicAccessBlockOutput>> {
    let bucket = req.input.bucket;
    service.on_store(move |store| store.set_bucket_attribute(&bucket, PUBLIC_ACCESS_BLOCK, None)).await?;
    Ok(S3Response::with_status(DeletePublicAccessBlockOutput {}, http::StatusCode::NO_CONTENT))
}
