//! ACLs and ownership controls of buckets, and what is told of objects' ACLs.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::gateway::acl::{self, Acl};
use crate::gateway::error::{s3, s3_status};
use crate::gateway::s3::ObjectService;

/// The bucket attribute with the ownership setting.
const OWNERSHIP: &str = "ownership";

fn not_supported() -> S3Error {
    s3_status(
        S3ErrorCode::Custom("AccessControlListNotSupported".into()),
        http::StatusCode::BAD_REQUEST,
        "The bucket does not allow ACLs",
    )
}

fn grants(service: &ObjectService, acl: &Acl) -> Vec<Grant> {
    let grant = |g: &acl::Grantee| {
        let user = g.kind != "Group";
        Grant {
            grantee: Some(Grantee {
                display_name: user.then(|| g.access.clone()),
                email_address: None,
                id: user.then(|| g.access.clone()),
                type_: Type::from(if g.kind.is_empty() {
                    "CanonicalUser".to_owned()
                } else {
                    g.kind.clone()
                }),
                uri: (!user).then(|| format!("http://acs.amazonaws.com/groups/global/{}", g.access)),
            }),
            permission: Some(g.permission.clone().into()),
        }
    };
    if acl.grantees.is_empty() {
        let owner = if acl.owner.is_empty() { service.accounts.root() } else { &acl.owner };
        return Acl::private(owner).grantees.iter().map(grant).collect();
    }
    acl.grantees.iter().map(grant).collect()
}

pub(crate) async fn get_bucket_acl(
    service: &ObjectService,
    req: S3Request<GetBucketAclInput>,
) -> S3Result<S3Response<GetBucketAclOutput>> {
    let input = req.input;
    service.check_owner(&input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let acl = service.bucket_acl(&input.bucket).await?;
    Ok(S3Response::new(GetBucketAclOutput {
        grants: Some(grants(service, &acl)),
        owner: Some(service.owner(&acl.owner)),
    }))
}

/// Sets grants to accounts. Grants to everybody are refused: anonymous requests are not let in.
pub(crate) async fn put_bucket_acl(
    service: &ObjectService,
    req: S3Request<PutBucketAclInput>,
) -> S3Result<S3Response<PutBucketAclOutput>> {
    let input = req.input;
    service.check_owner(&input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let owner = service.bucket_acl(&input.bucket).await?.owner;
    let headers = [
        &input.grant_full_control,
        &input.grant_read,
        &input.grant_read_acp,
        &input.grant_write,
        &input.grant_write_acp,
    ];
    if headers.iter().any(|h| h.is_some()) {
        return Err(s3(
            S3ErrorCode::NotImplemented,
            "x-amz-grant-* is not implemented; send an AccessControlPolicy",
        ));
    }
    let new = match (&input.acl, input.access_control_policy) {
        (Some(canned), None) if canned.as_str() == "private" => Acl::private(&owner),
        (Some(canned), None) => {
            return Err(s3(
                S3ErrorCode::NotImplemented,
                format!("the canned ACL {:?} is not implemented", canned.as_str()),
            ));
        }
        (None, Some(policy)) => {
            let name = input.bucket.clone();
            let setting = service.on_store(move |store| store.bucket_attribute(&name, OWNERSHIP)).await?;
            if setting.as_deref() == Some(b"BucketOwnerEnforced") {
                return Err(not_supported());
            }
            Acl { owner: owner.clone(), grantees: grantees(policy)? }
        }
        _ => {
            return Err(s3(
                S3ErrorCode::MalformedACLError,
                "give either a canned ACL or an AccessControlPolicy",
            ));
        }
    };
    let json = new.to_json();
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, "acl", Some(&json))).await?;
    Ok(S3Response::new(PutBucketAclOutput {}))
}

fn grantees(policy: AccessControlPolicy) -> S3Result<Vec<acl::Grantee>> {
    let mut found = Vec::new();
    for grant in policy.grants.unwrap_or_default() {
        let malformed = || s3(S3ErrorCode::MalformedACLError, "a grant has a Grantee and a Permission");
        let (grantee, permission) =
            (grant.grantee.ok_or_else(malformed)?, grant.permission.ok_or_else(malformed)?);
        let Some(access) = grantee.id.filter(|_| grantee.type_.as_str() == "CanonicalUser") else {
            return Err(s3(S3ErrorCode::NotImplemented, "grants go to accounts by their ID, not to groups"));
        };
        if !["FULL_CONTROL", "READ", "WRITE", "READ_ACP", "WRITE_ACP"].contains(&permission.as_str()) {
            return Err(malformed());
        }
        found.push(acl::Grantee {
            permission: permission.as_str().to_owned(),
            access,
            kind: "CanonicalUser".to_owned(),
        });
    }
    Ok(found)
}

/// An object is its bucket's owner's, whoever put it there.
pub(crate) async fn get_object_acl(
    service: &ObjectService,
    req: S3Request<GetObjectAclInput>,
) -> S3Result<S3Response<GetObjectAclOutput>> {
    let input = req.input;
    service.check_owner(&input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let owner = service.bucket_acl(&input.bucket).await?.owner;
    service
        .on_store(move |store| store.head_object(&input.bucket, &input.key, input.version_id.as_deref()))
        .await?;
    Ok(S3Response::new(GetObjectAclOutput {
        grants: Some(grants(service, &Acl::private(&owner))),
        owner: Some(service.owner(&owner)),
        request_charged: None,
    }))
}

pub(crate) async fn put_object_acl(
    service: &ObjectService,
    req: S3Request<PutObjectAclInput>,
) -> S3Result<S3Response<PutObjectAclOutput>> {
    let input = req.input;
    service.check_owner(&input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let canned = input.acl.as_ref().map(ObjectCannedACL::as_str);
    if !matches!(canned, Some("private" | "bucket-owner-full-control"))
        || input.access_control_policy.is_some()
    {
        return Err(not_supported());
    }
    service
        .on_store(move |store| store.head_object(&input.bucket, &input.key, input.version_id.as_deref()))
        .await?;
    Ok(S3Response::new(PutObjectAclOutput::default()))
}

pub(crate) async fn get_bucket_ownership_controls(
    service: &ObjectService,
    req: S3Request<GetBucketOwnershipControlsInput>,
) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
    let input = req.input;
    service.check_owner(&input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let value = service.on_store(move |store| store.bucket_attribute(&input.bucket, OWNERSHIP)).await?;
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

/// The setting of a valid document.
pub(super) fn ownership(setting: &ObjectOwnership) -> S3Result<Vec<u8>> {
    let known = [
        ObjectOwnership::BUCKET_OWNER_ENFORCED,
        ObjectOwnership::BUCKET_OWNER_PREFERRED,
        ObjectOwnership::OBJECT_WRITER,
    ];
    if known.contains(&setting.as_str()) {
        Ok(setting.as_str().as_bytes().to_vec())
    } else {
        Err(s3(S3ErrorCode::InvalidArgument, format!("Invalid ObjectOwnership {:?}", setting.as_str())))
    }
}

pub(crate) async fn put_bucket_ownership_controls(
    service: &ObjectService,
    req: S3Request<PutBucketOwnershipControlsInput>,
) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
    let input = req.input;
    service.check_owner(&input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let [rule] = &*input.ownership_controls.rules else {
        return Err(s3(S3ErrorCode::MalformedXML, "ownership controls have one rule"));
    };
    let setting = ownership(&rule.object_ownership)?;
    service
        .on_store(move |store| store.set_bucket_attribute(&input.bucket, OWNERSHIP, Some(&setting)))
        .await?;
    Ok(S3Response::new(PutBucketOwnershipControlsOutput {}))
}

pub(crate) async fn delete_bucket_ownership_controls(
    service: &ObjectService,
    req: S3Request<DeleteBucketOwnershipControlsInput>,
) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
    let input = req.input;
    service.check_owner(&input.bucket, input.expected_bucket_owner.as_deref()).await?;
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, OWNERSHIP, None)).await?;
    Ok(S3Response::new(DeleteBucketOwnershipControlsOutput {}))
}
