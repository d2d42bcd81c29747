//! ACLs of buckets and objects.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use crate::gateway::access::attribute::ACL;
use crate::gateway::acl::{AclRequest, shown};
use crate::gateway::s3::{Extras, ObjectService};

pub(crate) async fn get_bucket_acl(
    service: &ObjectService,
    req: S3Request<GetBucketAclInput>,
) -> S3Result<S3Response<GetBucketAclOutput>> {
    let admission = req.admission()?;
    let acl = &admission.bucket()?.acl;
    Ok(S3Response::new(GetBucketAclOutput {
        grants: Some(shown(acl)),
        owner: Some(service.owner(&acl.owner)),
    }))
}

pub(crate) async fn put_bucket_acl(
    service: &ObjectService,
    req: S3Request<PutBucketAclInput>,
) -> S3Result<S3Response<PutBucketAclOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    let request = AclRequest::read(&req.headers, input.acl.as_ref().map(BucketCannedACL::as_str))?;
    let request = request.with_document(input.access_control_policy)?;
    let json = request.of_bucket(admission.bucket()?, &service.accounts)?.to_json();
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, ACL, Some(&json))).await?;
    Ok(S3Response::new(PutBucketAclOutput {}))
}

pub(crate) async fn get_object_acl(
    service: &ObjectService,
    req: S3Request<GetObjectAclInput>,
) -> S3Result<S3Response<GetObjectAclOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    let info = service
        .on_store(move |store| store.head_object(&input.bucket, &input.key, input.version_id.as_deref()))
        .await?;
    admission.confirm(&info)?;
    let acl = admission.bucket()?.object_acl(info.attributes.acl.as_deref())?;
    Ok(S3Response::new(GetObjectAclOutput {
        grants: Some(shown(&acl)),
        owner: Some(service.owner(&acl.owner)),
        request_charged: None,
    }))
}

pub(crate) async fn put_object_acl(
    service: &ObjectService,
    req: S3Request<PutObjectAclInput>,
) -> S3Result<S3Response<PutObjectAclOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    let request = AclRequest::read(&req.headers, input.acl.as_ref().map(ObjectCannedACL::as_str))?;
    let request = request.with_document(input.access_control_policy)?;
    let accounts = service.accounts.clone();
    let store = service.store.clone();
    service
        .blocking
        .run(move || -> S3Result<()> {
            let (bucket, version) = (admission.bucket()?, input.version_id.as_deref());
            let info = store.head_object(&input.bucket, &input.key, version)?;
            admission.confirm(&info)?;
            let owner = bucket.object_acl(info.attributes.acl.as_deref())?.owner;
            let json = request.of_existing(&owner, bucket, &accounts)?.to_json();
            store.set_object_acl(&input.bucket, &input.key, version, Some(&json))?;
            Ok(())
        })
        .await??;
    Ok(S3Response::new(PutObjectAclOutput::default()))
}
