//! A bucket's owner and grants, as versitygw stores them in the `acl` attribute.

use s3s::S3Result;

use super::error::internal;

/// `{"Owner", "Grantees": [{"Permission", "Access", "Type"}]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Acl {
    /// Access key of the owner; empty when nobody was noted.
    #[serde(rename = "Owner", default)]
    pub(crate) owner: String,
    #[serde(rename = "Grantees", default, deserialize_with = "null_is_empty")]
    pub(crate) grantees: Vec<Grantee>,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Grantee {
    #[serde(rename = "Permission")]
    pub(crate) permission: String,
    #[serde(rename = "Access")]
    pub(crate) access: String,
    #[serde(rename = "Type", default)]
    pub(crate) kind: String,
}

fn null_is_empty<'de, D>(deserializer: D) -> Result<Vec<Grantee>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    use serde::Deserialize;
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Acl {
    /// A private bucket of `owner`.
    pub(crate) fn private(owner: &str) -> Self {
        let grant = Grantee {
            permission: "FULL_CONTROL".to_owned(),
            access: owner.to_owned(),
            kind: "CanonicalUser".to_owned(),
        };
        Self { owner: owner.to_owned(), grantees: vec![grant] }
    }

    /// Reads the attribute; a bucket without one belongs to nobody but the root account.
    ///
    /// # Errors
    /// `InternalError` for what cannot be read: then nothing is granted.
    pub(crate) fn parse(value: Option<&[u8]>) -> S3Result<Self> {
        match value {
            None => Ok(Self::default()),
            Some(value) => {
                serde_json::from_slice(value).map_err(|e| internal("malformed acl of a bucket", &e))
            }
        }
    }

    /// The attribute's value.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether an account other than root may do something in the bucket.
    pub(crate) fn allows(&self, access: &str, need: Need) -> bool {
        let granted = |g: &Grantee| {
            let permission = match need {
                Need::Read => "READ",
                Need::Write => "WRITE",
                Need::ReadAcl => "READ_ACP",
                Need::WriteAcl => "WRITE_ACP",
                Need::Own => return false,
            };
            g.access == access
                && g.kind != "Group"
                && (g.permission == permission || g.permission == "FULL_CONTROL")
        };
        (!access.is_empty() && self.owner == access) || self.grantees.iter().any(granted)
    }
}

/// What an operation needs in its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Look at objects and listings.
    Read,
    /// Put and delete objects.
    Write,
    /// Look at the ACL.
    ReadAcl,
    /// Change the ACL.
    WriteAcl,
    /// Everything else: the bucket's settings, and its end.
    Own,
}

impl Need {
    /// Of an operation, by its name.
    pub(crate) fn of(operation: &str) -> Self {
        match operation {
            "GetObject"
            | "HeadObject"
            | "GetObjectAttributes"
            | "GetObjectTagging"
            | "ListObjects"
            | "ListObjectsV2"
            | "ListObjectVersions"
            | "ListParts"
            | "ListMultipartUploads"
            | "HeadBucket"
            | "GetBucketLocation" => Self::Read,
            "PutObject"
            | "PostObject"
            | "CopyObject"
            | "UploadPart"
            | "UploadPartCopy"
            | "CreateMultipartUpload"
            | "CompleteMultipartUpload"
            | "AbortMultipartUpload"
            | "DeleteObject"
            | "DeleteObjects"
            | "PutObjectTagging"
            | "DeleteObjectTagging" => Self::Write,
            "GetBucketAcl" | "GetObjectAcl" => Self::ReadAcl,
            "PutBucketAcl" | "PutObjectAcl" => Self::WriteAcl,
            _ => Self::Own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_versitygw() {
        let text =
            br#"{"Owner":"ann","Grantees":[{"Permission":"READ","Access":"bob","Type":"CanonicalUser"}]}"#;
        let acl = Acl::parse(Some(text)).unwrap();
        assert!(acl.allows("ann", Need::Own));
        assert!(acl.allows("bob", Need::Read));
        for need in [Need::Write, Need::ReadAcl, Need::WriteAcl, Need::Own] {
            assert!(!acl.allows("bob", need));
        }
        assert!(!acl.allows("eve", Need::Read));
        assert!(Acl::parse(Some(br#"{"Owner":"ann","Grantees":null}"#)).unwrap().allows("ann", Need::Own));
        assert!(Acl::parse(Some(b"nonsense")).is_err());
        assert!(!Acl::parse(None).unwrap().allows("", Need::Read));
        let full = Acl { owner: "ann".into(), grantees: Acl::private("bob").grantees };
        assert!(full.allows("bob", Need::WriteAcl) && !full.allows("bob", Need::Own));
        assert_eq!(Need::of("DeleteBucket"), Need::Own);
        assert_eq!(Need::of("PutObjectLockConfiguration"), Need::Own);
        let private = Acl::private("ann");
        assert_eq!(Acl::parse(Some(&private.to_json())).unwrap(), private);
    }
}
