//! Versioning.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::list::{Encoding, count, owner_of};
use crate::gateway::checksum;
use crate::gateway::error::s3;
use crate::gateway::s3::{Extras, ObjectService};
use crate::store::object_lock::is_enabled;
use crate::store::{ListVersionsRequest, VersionPage, Versioning};

pub(crate) async fn get_bucket_versioning(
    service: &ObjectService,
    req: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    let input = req.input;
    let state = service.on_store(move |store| store.versioning(&input.bucket)).await?;
    let status = match state {
        Versioning::Off => None,
        Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
        Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
    };
    Ok(S3Response::new(GetBucketVersioningOutput {
        status: status.map(BucketVersioningStatus::from_static),
        ..Default::default()
    }))
}

pub(crate) async fn put_bucket_versioning(
    service: &ObjectService,
    req: S3Request<PutBucketVersioningInput>,
) -> S3Result<S3Response<PutBucketVersioningOutput>> {
    let input = req.input;
    let configuration = input.versioning_configuration;
    if configuration.mfa_delete.as_ref().is_some_and(|m| m.as_str() == "Enabled") {
        return Err(s3(S3ErrorCode::NotImplemented, "MFA delete is not implemented"));
    }
    let state = match configuration.status.as_ref().map(BucketVersioningStatus::as_str) {
        Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
        Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
        _ => return Err(s3(S3ErrorCode::MalformedXML, "the Status of versioning is Enabled or Suspended")),
    };
    let bucket = input.bucket;
    let locked = service
        .on_store(move |store| {
            let locked = is_enabled(store.bucket_attribute(&bucket, super::lock::ATTRIBUTE)?.as_deref());
            if !(locked && state == Versioning::Suspended) {
                store.set_versioning(&bucket, state)?;
                return Ok(false);
            }
            Ok(true)
        })
        .await?;
    if locked {
        return Err(s3(
            S3ErrorCode::InvalidBucketState,
            "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.",
        ));
    }
    Ok(S3Response::new(PutBucketVersioningOutput {}))
}

pub(crate) async fn list_object_versions(
    service: &ObjectService,
    req: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let admission = req.admission()?;
    let bucket_facts = admission.bucket()?;
    let input = req.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let max_keys = count(input.max_keys, "max-keys")?;
    let key_marker = input.key_marker.clone().filter(|m| !m.is_empty());
    let version_marker = input.version_id_marker.clone().filter(|m| !m.is_empty());
    if version_marker.is_some() && key_marker.is_none() {
        return Err(s3(
            S3ErrorCode::InvalidArgument,
            "A version-id marker cannot be specified without a key marker.",
        ));
    }
    let request = ListVersionsRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().filter(|d| !d.is_empty()),
        key_marker,
        version_marker,
        max_keys,
    };
    let bucket = input.bucket.clone();
    let page = service
        .on_store(move |store| {
            if request.max_keys == 0 {
                store.head_bucket(&bucket)?;
                return Ok(VersionPage::default());
            }
            store.list_versions(&bucket, &request)
        })
        .await?;
    let (mut versions, mut markers) = (Vec::new(), Vec::new());
    for version in page.versions {
        let owner = owner_of(bucket_facts, version.acl.as_deref());
        if version.delete_marker {
            markers.push(DeleteMarkerEntry {
                is_latest: Some(version.is_latest),
                key: Some(encoding.text(version.key)),
                last_modified: Some(version.modified.into()),
                owner: Some(owner),
                version_id: Some(version.version_id),
            });
            continue;
        }
        versions.push(ObjectVersion {
            checksum_algorithm: version.checksum_algorithm.map(|a| vec![ChecksumAlgorithm::from(a)]),
            checksum_type: version.checksum_type.map(checksum::kind),
            e_tag: Some(ETag::Strong(version.etag)),
            is_latest: Some(version.is_latest),
            key: Some(encoding.text(version.key)),
            last_modified: Some(version.modified.into()),
            owner: Some(owner),
            restore_status: None,
            size: i64::try_from(version.size).ok(),
            storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
            version_id: Some(version.version_id),
        });
    }
    let prefixes: Vec<CommonPrefix> = page
        .common_prefixes
        .into_iter()
        .map(|prefix| CommonPrefix { prefix: Some(encoding.text(prefix)) })
        .collect();
    let truncated = page.next.is_some();
    let (next_key, next_version) = page.next.unzip();
    Ok(S3Response::new(ListObjectVersionsOutput {
        common_prefixes: Some(prefixes).filter(|p| !p.is_empty()),
        delete_markers: Some(markers).filter(|m| !m.is_empty()),
        delimiter: input.delimiter.map(|d| encoding.text(d)),
        encoding_type: encoding.kind(),
        is_truncated: Some(truncated),
        key_marker: Some(encoding.text(input.key_marker.unwrap_or_default())),
        max_keys: i32::try_from(max_keys).ok(),
        name: Some(input.bucket),
        next_key_marker: next_key.map(|k| encoding.text(k)),
        next_version_id_marker: next_version.filter(|v| !v.is_empty()),
        prefix: Some(encoding.text(input.prefix.unwrap_or_default())),
        request_charged: None,
        version_id_marker: input.version_id_marker,
        versions: Some(versions).filter(|v| !v.is_empty()),
    }))
}
