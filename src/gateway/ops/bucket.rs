//! Buckets.

use std::collections::BTreeMap;

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::gateway::access::attribute::{ACL, OWNERSHIP};
use crate::gateway::access::{BucketFacts, denied};
use crate::gateway::account::Role;
use crate::gateway::acl::{Acl, AclRequest};
use crate::gateway::error::s3;
use crate::gateway::s3::{Extras, ObjectService};
use crate::store;

/// Most buckets on a page of ListBuckets.
const PAGE: usize = 10_000;

impl ObjectService {
    /// An account as an owner, for answers.
    pub(crate) fn owner(&self, access: &str) -> Owner {
        Owner { display_name: Some(access.to_owned()), id: Some(access.to_owned()) }
    }
}

pub(crate) async fn list_buckets(
    service: &ObjectService,
    req: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let admission = req.admission()?;
    let account = admission.account().ok_or_else(denied)?;
    let (access, all) = (account.access.clone(), account.role == Role::Admin);
    let input = req.input;
    let most = match input.max_buckets {
        None => PAGE,
        Some(n) => usize::try_from(n)
            .ok()
            .filter(|n| (1..=PAGE).contains(n))
            .ok_or_else(|| s3(S3ErrorCode::InvalidArgument, "max-buckets must be from 1 to 10000"))?,
    };
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.clone().unwrap_or_default();
    let who = access.clone();
    let mut found = service
        .on_store(move |store| {
            let mut found = store.list_buckets()?;
            found.retain(|b| b.name.starts_with(&prefix) && (after.is_empty() || b.name > after));
            if !all {
                found.retain(|b| {
                    store
                        .bucket_attribute(&b.name, ACL)
                        .ok()
                        .and_then(|value| Acl::parse(value.as_deref(), "").ok())
                        .is_some_and(|acl| acl.owner == who)
                });
            }
            found.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(found)
        })
        .await?;
    let more = found.len() > most;
    found.truncate(most);
    let continuation_token = found.last().filter(|_| more).map(|b| b.name.clone());
    let buckets = found
        .into_iter()
        .map(|b| Bucket {
            bucket_region: Some(service.region.clone()),
            creation_date: Some(b.created.into()),
            name: Some(b.name),
        })
        .collect();
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token,
        owner: Some(service.owner(&access)),
        prefix: input.prefix,
    }))
}

pub(crate) async fn create_bucket(
    service: &ObjectService,
    req: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let owner = req.admission()?.caller().ok_or_else(denied)?.to_owned();
    let acl = AclRequest::read(&req.headers, req.input.acl.as_ref().map(BucketCannedACL::as_str))?;
    let input = req.input;
    let constraint = input.create_bucket_configuration.and_then(|c| c.location_constraint);
    if let Some(constraint) = constraint.filter(|c| !c.as_str().is_empty() && c.as_str() != service.region) {
        return Err(s3(
            S3ErrorCode::InvalidLocationConstraint,
            format!(
                "The specified location constraint {:?} is not valid; this is {:?}",
                constraint.as_str(),
                service.region
            ),
        ));
    }
    let locked = input.object_lock_enabled_for_bucket == Some(true);
    if locked && !service.store.versioning_available() {
        return Err(s3(
            S3ErrorCode::NotImplemented,
            "object lock needs versions, and this gateway has no --versioning-dir",
        ));
    }
    let asked_ownership = input.object_ownership.as_ref().map(super::ownership::ownership).transpose()?;
    let ownership = asked_ownership.unwrap_or(service.default_ownership);
    let acl = acl.of_new_bucket(&owner, ownership, &service.accounts)?;
    let mut attributes = BTreeMap::new();
    attributes.insert(ACL.to_owned(), acl.to_json());
    attributes.insert(OWNERSHIP.to_owned(), ownership.name().as_bytes().to_vec());
    if locked {
        attributes.insert("bucket-lock".to_owned(), super::lock::new_configuration());
    }
    let bucket = input.bucket;
    let location = format!("/{bucket}");
    let (root, default) = (service.accounts.root().to_owned(), service.default_ownership);
    let store = service.store.clone();
    let found = service
        .blocking
        .run(move || -> S3Result<Option<BucketFacts>> {
            match store.create_bucket(&bucket, &attributes) {
                Err(store::Error::BucketExists(_)) => {
                    return BucketFacts::load(&store, &bucket, &root, default).map(Some);
                }
                other => other?,
            }
            if locked {
                store.set_versioning(&bucket, store::Versioning::Enabled)?;
            }
            Ok(None)
        })
        .await??;
    let same = |found: &BucketFacts| {
        found.acl == acl && !locked && asked_ownership.is_none_or(|asked| asked == found.ownership)
    };
    match found {
        Some(found) if found.owner() != owner => Err(s3(
            S3ErrorCode::BucketAlreadyExists,
            "The requested bucket name is not available, it belongs to another account.",
        )),
        Some(_) if service.region != "us-east-1" => Err(s3(
            S3ErrorCode::BucketAlreadyOwnedByYou,
            "Your previous request to create the named bucket succeeded and you already own it.",
        )),
        // In this region S3 takes creating a bucket again for a success, and here that changes nothing.
        Some(found) if !same(&found) => Err(s3(
            S3ErrorCode::BucketAlreadyExists,
            "The bucket is yours already, with other settings than these.",
        )),
        _ => Ok(S3Response::new(CreateBucketOutput { location: Some(location) })),
    }
}

pub(crate) async fn head_bucket(
    service: &ObjectService,
    req: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    let bucket = req.input.bucket;
    service.on_store(move |store| store.head_bucket(&bucket)).await?;
    Ok(S3Response::new(HeadBucketOutput {
        bucket_region: Some(service.region.clone()),
        ..Default::default()
    }))
}

pub(crate) async fn delete_bucket(
    service: &ObjectService,
    req: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let bucket = req.input.bucket;
    service.on_store(move |store| store.delete_bucket(&bucket)).await?;
    Ok(S3Response::with_status(DeleteBucketOutput {}, http::StatusCode::NO_CONTENT))
}

pub(crate) async fn get_bucket_location(
    service: &ObjectService,
    req: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    let bucket = req.input.bucket;
    service.on_store(move |store| store.head_bucket(&bucket)).await?;
    // S3 says nothing for us-east-1.
    let constraint = (service.region != "us-east-1").then(|| service.region.clone().into());
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint: constraint }))
}
