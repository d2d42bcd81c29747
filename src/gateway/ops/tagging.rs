//! Tags of objects and buckets.

use std::collections::BTreeMap;

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use crate::gateway::error::internal;
use crate::gateway::headers::checked_tags;
use crate::gateway::s3::ObjectService;

/// The bucket attribute with the tags, a JSON object.
const ATTRIBUTE: &str = "X-Amz-Tagging";

/// Most tags of an object, and of a bucket.
const OBJECT_TAGS: usize = 10;
const BUCKET_TAGS: usize = 50;

fn read(set: TagSet, most: usize) -> S3Result<BTreeMap<String, String>> {
    let pairs = set.into_iter().map(|t| (t.key.unwrap_or_default(), t.value.unwrap_or_default()));
    checked_tags(pairs.collect(), most)
}

fn shown(tags: BTreeMap<String, String>) -> TagSet {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

pub(crate) async fn get_object_tagging(
    service: &ObjectService,
    req: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let input = req.input;
    let info = service
        .on_store(move |store| store.head_object(&input.bucket, &input.key, input.version_id.as_deref()))
        .await?;
    Ok(S3Response::new(GetObjectTaggingOutput {
        tag_set: shown(info.attributes.tags),
        version_id: info.version_id,
    }))
}

pub(crate) async fn put_object_tagging(
    service: &ObjectService,
    req: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let input = req.input;
    let tags = read(input.tagging.tag_set, OBJECT_TAGS)?;
    let info = service
        .on_store(move |store| {
            store.set_object_tags(&input.bucket, &input.key, input.version_id.as_deref(), Some(&tags))
        })
        .await?;
    Ok(S3Response::new(PutObjectTaggingOutput { version_id: info.version_id }))
}

pub(crate) async fn delete_object_tagging(
    service: &ObjectService,
    req: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let input = req.input;
    let info = service
        .on_store(move |store| {
            store.set_object_tags(&input.bucket, &input.key, input.version_id.as_deref(), None)
        })
        .await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput { version_id: info.version_id }))
}

pub(crate) async fn get_bucket_tagging(
    service: &ObjectService,
    req: S3Request<GetBucketTaggingInput>,
) -> S3Result<S3Response<GetBucketTaggingOutput>> {
    let input = req.input;
    let absent = ("NoSuchTagSet", "The TagSet does not exist");
    let json = service.bucket_configuration(input.bucket, ATTRIBUTE, absent).await?;
    let tags: BTreeMap<String, String> =
        serde_json::from_slice(&json).map_err(|error| internal("malformed tags of a bucket", &error))?;
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set: shown(tags) }))
}

pub(crate) async fn put_bucket_tagging(
    service: &ObjectService,
    req: S3Request<PutBucketTaggingInput>,
) -> S3Result<S3Response<PutBucketTaggingOutput>> {
    let input = req.input;
    let tags = read(input.tagging.tag_set, BUCKET_TAGS)?;
    let json = serde_json::to_vec(&tags).map_err(|error| internal("tags of a bucket", &error))?;
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, ATTRIBUTE, Some(&json))).await?;
    Ok(S3Response::new(PutBucketTaggingOutput {}))
}

pub(crate) async fn delete_bucket_tagging(
    service: &ObjectService,
    req: S3Request<DeleteBucketTaggingInput>,
) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
    let input = req.input;
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, ATTRIBUTE, None)).await?;
    Ok(S3Response::new(DeleteBucketTaggingOutput {}))
}
