//! The ACL that a request asks for.

use http::HeaderMap;
use s3s::dto::AccessControlPolicy;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::canned::BUCKET_OWNER_FULL_CONTROL;
use super::{Acl, Permission};
use crate::gateway::access::BucketFacts;
use crate::gateway::account::Accounts;
use crate::gateway::config::Ownership;
use crate::gateway::error::{s3, s3_status};

/// Headers with grants, by what they grant.
const GRANTS: [(&str, Permission); 5] = [
    ("x-amz-grant-read", Permission::Read),
    ("x-amz-grant-write", Permission::Write),
    ("x-amz-grant-read-acp", Permission::ReadAcp),
    ("x-amz-grant-write-acp", Permission::WriteAcp),
    ("x-amz-grant-full-control", Permission::FullControl),
];

/// `x-amz-acl`, `x-amz-grant-*`, or a document.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclRequest {
    canned: Option<String>,
    grants: Vec<(Permission, String)>,
    document: Option<AccessControlPolicy>,
}

/// What S3 answers where there are no ACLs.
fn not_supported() -> S3Error {
    s3_status(
        S3ErrorCode::Custom("AccessControlListNotSupported".into()),
        http::StatusCode::BAD_REQUEST,
        "The bucket does not allow ACLs",
    )
}

fn blocked() -> S3Error {
    s3(S3ErrorCode::AccessDenied, "the bucket's public access block refuses public ACLs")
}

impl AclRequest {
    /// Whether headers ask for an ACL.
    pub(crate) fn is_in(headers: &HeaderMap) -> bool {
        headers.contains_key("x-amz-acl") || GRANTS.iter().any(|(name, _)| headers.contains_key(*name))
    }

    /// Reads what a request asks for; `canned` is what s3s found in headers or form.
    ///
    /// # Errors
    /// `InvalidRequest` when it asks in more than one way.
    pub(crate) fn read(headers: &HeaderMap, canned: Option<&str>) -> S3Result<Self> {
        let grants: Vec<_> = GRANTS
            .into_iter()
            .flat_map(|(name, permission)| headers.get_all(name).iter().map(move |v| (permission, v)))
            .map(|(permission, value)| (permission, String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        if canned.is_some() && !grants.is_empty() {
            return Err(s3(
                S3ErrorCode::InvalidRequest,
                "Specifying both Canned ACLs and Header Grants is not allowed",
            ));
        }
        Ok(Self { canned: canned.map(str::to_owned), grants, document: None })
    }

    /// Adds the document of PutBucketAcl or PutObjectAcl.
    ///
    /// # Errors
    /// `MalformedACLError` when the request asks for nothing, or in more than one way.
    pub(crate) fn with_document(mut self, document: Option<AccessControlPolicy>) -> S3Result<Self> {
        if self.is_empty() != document.is_some() {
            return Err(s3(
                S3ErrorCode::MalformedACLError,
                "give one of x-amz-acl, x-amz-grant-* and an AccessControlPolicy",
            ));
        }
        self.document = document;
        Ok(self)
    }

    /// Whether nothing is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.canned.is_none() && self.grants.is_empty() && self.document.is_none()
    }

    /// The ACL asked for over what is `owner`'s, in a bucket of `bucket_owner`.
    fn acl(self, owner: &str, bucket_owner: &str, accounts: &Accounts) -> S3Result<Acl> {
        if let Some(document) = self.document {
            return Acl::from_document(document, owner, accounts);
        }
        if let Some(name) = &self.canned {
            return Acl::canned(name, owner, bucket_owner)
                .ok_or_else(|| s3(S3ErrorCode::InvalidArgument, format!("{name:?} is no canned ACL")));
        }
        if self.grants.is_empty() {
            return Ok(Acl::private(owner));
        }
        let mut acl = Acl { owner: owner.to_owned(), grantees: Vec::new() };
        for (permission, value) in &self.grants {
            acl.add_from_header(*permission, value, accounts)?;
        }
        Ok(acl)
    }

    /// The ACL of a new bucket.
    ///
    /// # Errors
    /// `InvalidBucketAclWithObjectOwnership` for grants where ACLs do not count.
    pub(crate) fn of_new_bucket(
        self,
        owner: &str,
        ownership: Ownership,
        accounts: &Accounts,
    ) -> S3Result<Acl> {
        let acl = self.acl(owner, owner, accounts)?;
        if ownership.has_acls() || acl.is_private() { Ok(acl) } else { Err(acl_with_ownership()) }
    }

    /// The ACL to set on a bucket.
    ///
    /// # Errors
    /// `AccessControlListNotSupported`, and `AccessDenied` for public ones where they are blocked.
    pub(crate) fn of_bucket(self, bucket: &BucketFacts, accounts: &Accounts) -> S3Result<Acl> {
        self.of_existing(bucket.owner(), bucket, accounts)
    }

    /// The ACL to set on an object of `owner`, or on the bucket.
    ///
    /// # Errors
    /// As [`of_bucket`](Self::of_bucket).
    pub(crate) fn of_existing(self, owner: &str, bucket: &BucketFacts, accounts: &Accounts) -> S3Result<Acl> {
        if !bucket.ownership.has_acls() {
            return Err(not_supported());
        }
        let acl = self.acl(owner, bucket.owner(), accounts)?;
        if bucket.blocks.block_public_acls && acl.is_public() { Err(blocked()) } else { Ok(acl) }
    }

    /// The ACL of a new object that `writer` puts (none: somebody anonymous, whose objects are the
    /// bucket's owner's). None when it would say the same as having none.
    ///
    /// # Errors
    /// `AccessControlListNotSupported`, and `AccessDenied` for public ones where they are blocked.
    pub(crate) fn of_new_object(
        self,
        writer: Option<&str>,
        bucket: &BucketFacts,
        accounts: &Accounts,
    ) -> S3Result<Option<Vec<u8>>> {
        let bucket_owner = bucket.owner();
        if !bucket.ownership.has_acls() {
            return if self.is_empty() || self.gives_all_to(bucket_owner) {
                Ok(None)
            } else {
                Err(not_supported())
            };
        }
        let gives_away = bucket.ownership == Ownership::BucketOwnerPreferred
            && self.canned.as_deref() == Some(BUCKET_OWNER_FULL_CONTROL);
        let owner = writer.filter(|_| !gives_away).unwrap_or(bucket_owner);
        let acl = self.of_existing(owner, bucket, accounts)?;
        Ok((acl != Acl::private(bucket_owner)).then(|| acl.to_json()))
    }

    /// Whether it only gives full control to the bucket's owner, which is allowed without ACLs too.
    fn gives_all_to(&self, bucket_owner: &str) -> bool {
        match (self.canned.as_deref(), &*self.grants) {
            (Some(canned), _) => canned == BUCKET_OWNER_FULL_CONTROL,
            (None, [(Permission::FullControl, value)]) => {
                value.trim().strip_prefix("id=").map(|id| id.trim_matches('"')) == Some(bucket_owner)
            }
            _ => false,
        }
    }
}

/// What S3 answers when a bucket's ACL grants something that its ownership setting leaves no room for.
pub(crate) fn acl_with_ownership() -> S3Error {
    s3_status(
        S3ErrorCode::Custom("InvalidBucketAclWithObjectOwnership".into()),
        http::StatusCode::BAD_REQUEST,
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn new_object(
        headers: &[(&'static str, &'static str)],
        canned: Option<&str>,
        ownership: Ownership,
        blocks: bool,
    ) -> Result<Option<String>, String> {
        let accounts = Accounts::new("root", "secret", Vec::new());
        let headers = headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
        let mut bucket = BucketFacts::of("bucket", "root", ownership);
        bucket.blocks.block_public_acls = blocks;
        let acl = AclRequest::read(&headers, canned)
            .and_then(|request| request.of_new_object(Some("ann"), &bucket, &accounts))
            .map_err(|error| error.code().as_str().to_owned())?;
        Ok(acl.map(|json| Acl::parse(Some(&json), "").unwrap().owner))
    }

    const FULL: &str = "x-amz-grant-full-control";

    #[test_case(&[], None => Ok(None))]
    #[test_case(&[], Some("bucket-owner-full-control") => Ok(None))]
    #[test_case(&[(FULL, "id=\"root\"")], None => Ok(None))]
    #[test_case(&[(FULL, "id=ann")], None => Err("AccessControlListNotSupported".into()))]
    #[test_case(&[], Some("private") => Err("AccessControlListNotSupported".into()))]
    #[test_case(&[(FULL, "id=root")], Some("private") => Err("InvalidRequest".into()))]
    fn without_acls(
        headers: &[(&'static str, &'static str)],
        canned: Option<&str>,
    ) -> Result<Option<String>, String> {
        new_object(headers, canned, Ownership::BucketOwnerEnforced, false)
    }

    #[test_case(None, Ownership::ObjectWriter, false => Ok(Some("ann".into())))]
    #[test_case(Some("bucket-owner-full-control"), Ownership::ObjectWriter, false => Ok(Some("ann".into())))]
    #[test_case(None, Ownership::BucketOwnerPreferred, false => Ok(Some("ann".into())))]
    #[test_case(Some("bucket-owner-full-control"), Ownership::BucketOwnerPreferred, false => Ok(None); "given away")]
    #[test_case(Some("public-read"), Ownership::ObjectWriter, true => Err("AccessDenied".into()))]
    #[test_case(Some("private"), Ownership::ObjectWriter, true => Ok(Some("ann".into())))]
    #[test_case(Some("nonsense"), Ownership::ObjectWriter, true => Err("InvalidArgument".into()))]
    fn with_acls(canned: Option<&str>, ownership: Ownership, blocks: bool) -> Result<Option<String>, String> {
        new_object(&[], canned, ownership, blocks)
    }
}
