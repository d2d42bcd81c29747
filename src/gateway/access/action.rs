//! Which actions of policies an operation takes, and what of ACLs stands for them.
//!
//! From "Required permissions for Amazon S3 API operations" and "Access control list (ACL) overview"
//! of the S3 user guide.

use http::HeaderMap;

use crate::gateway::acl::{AclRequest, Permission};

/// What an action is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// The bucket.
    Bucket,
    /// A key in it: an object to be, or whatever is there, which is the bucket's owner's affair.
    Key,
    /// An object that is there, and so its owner's affair.
    Object,
}

/// A right that a caller may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    /// The name in policies.
    pub(crate) name: &'static str,
    pub(crate) on: On,
    /// The permission that stands for it in the ACL of the object ([`On::Object`]) or of the bucket.
    pub(crate) acl: Option<Permission>,
}

const fn bucket(name: &'static str, acl: Option<Permission>) -> Action {
    Action { name, on: On::Bucket, acl }
}

const fn key(name: &'static str) -> Action {
    Action { name, on: On::Key, acl: Some(Permission::Write) }
}

const fn object(name: &'static str, acl: Option<Permission>) -> Action {
    Action { name, on: On::Object, acl }
}

impl Action {
    pub(crate) const LIST_BUCKET: Self = bucket("s3:ListBucket", Some(Permission::Read));
    pub(crate) const LIST_VERSIONS: Self = bucket("s3:ListBucketVersions", Some(Permission::Read));
    pub(crate) const BYPASS_GOVERNANCE: Self =
        Self { name: "s3:BypassGovernanceRetention", on: On::Key, acl: None };
    pub(crate) const PUT_OBJECT_ACL: Self = key("s3:PutObjectAcl");

    /// Reading an object, or a version of it.
    pub(crate) const fn get_object(version: bool) -> Self {
        object(if version { "s3:GetObjectVersion" } else { "s3:GetObject" }, Some(Permission::Read))
    }

    /// Reading the tags of an object, or of a version of it.
    pub(crate) const fn get_object_tagging(version: bool) -> Self {
        object(if version { "s3:GetObjectVersionTagging" } else { "s3:GetObjectTagging" }, None)
    }

    /// Deleting an object, or a version of it for good, which is not in what a grant of WRITE gives.
    pub(crate) const fn delete_object(version: bool) -> Self {
        if version {
            Self { name: "s3:DeleteObjectVersion", on: On::Key, acl: None }
        } else {
            key("s3:DeleteObject")
        }
    }

    /// The action of an operation on a bucket or object; `version` says whether it names a version.
    pub(crate) fn of(operation: &str, version: bool) -> Self {
        let either = |plain, of_version, acl| object(if version { of_version } else { plain }, acl);
        let read = Some(Permission::Read);
        match operation {
            "GetObject" | "HeadObject" | "SelectObjectContent" => Self::get_object(version),
            "GetObjectAttributes" => either("s3:GetObjectAttributes", "s3:GetObjectVersionAttributes", read),
            "GetObjectTorrent" => either("s3:GetObjectTorrent", "s3:GetObjectVersionTorrent", read),
            "GetObjectTagging" => Self::get_object_tagging(version),
            "PutObjectTagging" => either("s3:PutObjectTagging", "s3:PutObjectVersionTagging", None),
            "DeleteObjectTagging" => either("s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging", None),
            "GetObjectAcl" => either("s3:GetObjectAcl", "s3:GetObjectVersionAcl", Some(Permission::ReadAcp)),
            "PutObjectAcl" => either("s3:PutObjectAcl", "s3:PutObjectVersionAcl", Some(Permission::WriteAcp)),
            "GetObjectRetention" => object("s3:GetObjectRetention", None),
            "PutObjectRetention" => object("s3:PutObjectRetention", None),
            "GetObjectLegalHold" => object("s3:GetObjectLegalHold", None),
            "PutObjectLegalHold" => object("s3:PutObjectLegalHold", None),
            "RestoreObject" => object("s3:RestoreObject", None),
            "PutObject"
            | "PostObject"
            | "CopyObject"
            | "CreateMultipartUpload"
            | "UploadPart"
            | "UploadPartCopy"
            | "CompleteMultipartUpload" => key("s3:PutObject"),
            "DeleteObject" => Self::delete_object(version),
            // Of the bucket's ACL, WRITE stands for what else may be done to uploads of others.
            "AbortMultipartUpload" => key("s3:AbortMultipartUpload"),
            "ListParts" => key("s3:ListMultipartUploadParts"),
            "ListObjects" | "ListObjectsV2" | "HeadBucket" => Self::LIST_BUCKET,
            "ListObjectVersions" => Self::LIST_VERSIONS,
            "ListMultipartUploads" => bucket("s3:ListBucketMultipartUploads", read),
            "GetBucketAcl" => bucket("s3:GetBucketAcl", Some(Permission::ReadAcp)),
            "PutBucketAcl" => bucket("s3:PutBucketAcl", Some(Permission::WriteAcp)),
            // As versitygw has it: clients ask for the region before they read.
            "GetBucketLocation" => bucket("s3:GetBucketLocation", read),
            _ => bucket(setting(operation), None),
        }
    }
}

/// The action of an operation on a bucket's settings.
fn setting(operation: &str) -> &'static str {
    match operation {
        "DeleteBucket" => "s3:DeleteBucket",
        "GetBucketPolicy" => "s3:GetBucketPolicy",
        "PutBucketPolicy" => "s3:PutBucketPolicy",
        "DeleteBucketPolicy" => "s3:DeleteBucketPolicy",
        "GetBucketPolicyStatus" => "s3:GetBucketPolicyStatus",
        "GetPublicAccessBlock" => "s3:GetBucketPublicAccessBlock",
        "PutPublicAccessBlock" | "DeletePublicAccessBlock" => "s3:PutBucketPublicAccessBlock",
        "GetBucketOwnershipControls" => "s3:GetBucketOwnershipControls",
        "PutBucketOwnershipControls" | "DeleteBucketOwnershipControls" => "s3:PutBucketOwnershipControls",
        "GetBucketTagging" => "s3:GetBucketTagging",
        "PutBucketTagging" | "DeleteBucketTagging" => "s3:PutBucketTagging",
        "GetBucketVersioning" => "s3:GetBucketVersioning",
        "PutBucketVersioning" => "s3:PutBucketVersioning",
        "GetBucketCors" => "s3:GetBucketCORS",
        "PutBucketCors" | "DeleteBucketCors" => "s3:PutBucketCORS",
        "GetBucketLifecycle" | "GetBucketLifecycleConfiguration" => "s3:GetLifecycleConfiguration",
        "PutBucketLifecycle" | "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => {
            "s3:PutLifecycleConfiguration"
        }
        "GetObjectLockConfiguration" => "s3:GetBucketObjectLockConfiguration",
        "PutObjectLockConfiguration" => "s3:PutBucketObjectLockConfiguration",
        "GetBucketWebsite" => "s3:GetBucketWebsite",
        "PutBucketWebsite" => "s3:PutBucketWebsite",
        "DeleteBucketWebsite" => "s3:DeleteBucketWebsite",
        "GetBucketEncryption" => "s3:GetEncryptionConfiguration",
        "PutBucketEncryption" | "DeleteBucketEncryption" => "s3:PutEncryptionConfiguration",
        "GetBucketReplication" => "s3:GetReplicationConfiguration",
        "PutBucketReplication" | "DeleteBucketReplication" => "s3:PutReplicationConfiguration",
        "GetBucketNotification" | "GetBucketNotificationConfiguration" => "s3:GetBucketNotification",
        "PutBucketNotification" | "PutBucketNotificationConfiguration" => "s3:PutBucketNotification",
        "GetBucketLogging" => "s3:GetBucketLogging",
        "PutBucketLogging" => "s3:PutBucketLogging",
        "GetBucketRequestPayment" => "s3:GetBucketRequestPayment",
        "PutBucketRequestPayment" => "s3:PutBucketRequestPayment",
        "GetBucketAccelerateConfiguration" => "s3:GetAccelerateConfiguration",
        "PutBucketAccelerateConfiguration" => "s3:PutAccelerateConfiguration",
        // Not served; it can be denied and allowed with everything only.
        _ => "s3:Unlisted",
    }
}

/// What an operation asks for beside its action.
#[derive(Clone, Debug, Default)]
pub(crate) struct Also {
    /// Rights that are needed too.
    pub(crate) needed: Vec<Action>,
    /// Rights that must not be denied. Their absence is no refusal: policies that let others write
    /// name `s3:PutObject` alone, and confine the ACL by conditions.
    pub(crate) not_denied: Vec<Action>,
}

impl Also {
    /// Of an operation with these headers.
    pub(crate) fn of(operation: &str, version: bool, headers: &HeaderMap) -> Self {
        let mut also = Self::default();
        match operation {
            "GetObjectAttributes" => also.needed.push(Action::get_object(version)),
            "PutObject" | "PostObject" | "CopyObject" | "CreateMultipartUpload" => {
                if headers.contains_key("x-amz-tagging") {
                    also.needed.push(key("s3:PutObjectTagging"));
                }
                if headers.contains_key("x-amz-object-lock-mode") {
                    also.needed.push(Action { acl: None, ..key("s3:PutObjectRetention") });
                }
                if headers.contains_key("x-amz-object-lock-legal-hold") {
                    also.needed.push(Action { acl: None, ..key("s3:PutObjectLegalHold") });
                }
                if AclRequest::is_in(headers) {
                    also.not_denied.push(Action::PUT_OBJECT_ACL);
                }
            }
            _ => {}
        }
        also
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("GetObject", false => "s3:GetObject")]
    #[test_case("HeadObject", true => "s3:GetObjectVersion")]
    #[test_case("DeleteObjectTagging", true => "s3:DeleteObjectVersionTagging")]
    #[test_case("CompleteMultipartUpload", false => "s3:PutObject")]
    #[test_case("DeletePublicAccessBlock", false => "s3:PutBucketPublicAccessBlock")]
    #[test_case("HeadBucket", false => "s3:ListBucket")]
    #[test_case("PutBucketInventoryConfiguration", false => "s3:Unlisted")]
    fn names(operation: &str, version: bool) -> &'static str {
        Action::of(operation, version).name
    }

    #[test]
    fn writes_ask_for_what_their_headers_do() {
        let headers: HeaderMap = ["x-amz-tagging", "x-amz-acl", "x-amz-object-lock-mode"]
            .iter()
            .map(|name| (name.parse().unwrap(), "x".parse().unwrap()))
            .collect();
        let also = Also::of("PutObject", false, &headers);
        let names: Vec<_> = also.needed.iter().map(|a| a.name).collect();
        assert_eq!(names, ["s3:PutObjectTagging", "s3:PutObjectRetention"]);
        assert_eq!(also.not_denied.len(), 1);
        assert!(Also::of("GetObject", false, &headers).needed.is_empty());
    }
}
