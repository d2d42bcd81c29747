//! What a decision about access rests on, as it is stored with the bucket and the object.

use std::collections::BTreeMap;

use s3s::S3Result;

use crate::gateway::acl::Acl;
use crate::gateway::config::Ownership;
use crate::gateway::policy::{Malformed, Policy};
use crate::store::{ObjectInfo, Store};

/// Attributes of a bucket.
pub(crate) mod attribute {
    pub(crate) const ACL: &str = "acl";
    pub(crate) const OWNERSHIP: &str = "ownership";
    pub(crate) const POLICY: &str = "policy";
    /// Ours; versitygw has none.
    pub(crate) const PUBLIC_ACCESS_BLOCK: &str = "vgwrdma.public-access-block";
}

/// The public access block of a bucket:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html>.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct PublicAccessBlock {
    pub(crate) block_public_acls: bool,
    pub(crate) ignore_public_acls: bool,
    pub(crate) block_public_policy: bool,
    pub(crate) restrict_public_buckets: bool,
}

impl PublicAccessBlock {
    /// Reads the attribute. One that cannot be read blocks everything.
    fn stored(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::default() };
        serde_json::from_slice(value).unwrap_or_else(|error| {
            tracing::error!(%error, "malformed public access block: taken as one that blocks everything");
            Self {
                block_public_acls: true,
                ignore_public_acls: true,
                block_public_policy: true,
                restrict_public_buckets: true,
            }
        })
    }
}

/// A bucket.
#[derive(Clone, Debug)]
pub(crate) struct BucketFacts {
    pub(crate) name: String,
    /// Owner and grants.
    pub(crate) acl: Acl,
    pub(crate) ownership: Ownership,
    /// The policy, when there is one; an error when it cannot be read.
    pub(crate) policy: Option<Result<Policy, Malformed>>,
    pub(crate) blocks: PublicAccessBlock,
}

impl BucketFacts {
    /// Reads them. A bucket of nobody is `root`'s; `ownership` is for one that says nothing of it.
    ///
    /// # Errors
    /// `NoSuchBucket`; `InternalError` for what cannot be read.
    pub(crate) fn load(store: &Store, name: &str, root: &str, ownership: Ownership) -> S3Result<Self> {
        use attribute::{ACL, OWNERSHIP, POLICY, PUBLIC_ACCESS_BLOCK};
        let [acl, stored, policy, blocks] =
            store.bucket_attributes(name, [ACL, OWNERSHIP, POLICY, PUBLIC_ACCESS_BLOCK])?;
        let ownership = match stored.as_deref().and_then(|v| std::str::from_utf8(v).ok()) {
            None => ownership,
            // A setting of another program that is not known gives no rights.
            Some(name) => Ownership::from_name(name.trim()).unwrap_or_default(),
        };
        Ok(Self {
            name: name.to_owned(),
            acl: Acl::parse(acl.as_deref(), root)?,
            ownership,
            policy: policy.filter(|p| !p.is_empty()).map(|p| Policy::stored(&p)),
            blocks: PublicAccessBlock::stored(blocks.as_deref()),
        })
    }

    /// Access key of the owner.
    pub(crate) fn owner(&self) -> &str {
        &self.acl.owner
    }

    /// The policy, when there is one that can be read.
    pub(crate) fn readable_policy(&self) -> Option<&Policy> {
        self.policy.as_ref()?.as_ref().ok()
    }

    /// Access key of the owner of an object with this `acl` attribute.
    ///
    /// # Errors
    /// `InternalError` for what cannot be read.
    pub(crate) fn object_acl(&self, acl: Option<&[u8]>) -> S3Result<Acl> {
        // Where ACLs do not count, every object is the bucket's owner's.
        Acl::parse(acl.filter(|_| self.ownership.has_acls()), self.owner())
    }

    /// A bucket without anything but an owner.
    #[cfg(test)]
    pub(crate) fn of(name: &str, owner: &str, ownership: Ownership) -> Self {
        Self {
            name: name.to_owned(),
            acl: Acl::private(owner),
            ownership,
            policy: None,
            blocks: PublicAccessBlock::default(),
        }
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectFacts {
    /// Owner and grants.
    pub(crate) acl: Acl,
    pub(crate) tags: BTreeMap<String, String>,
}

impl ObjectFacts {
    /// Those of an object that is there.
    ///
    /// # Errors
    /// `InternalError` for an ACL that cannot be read.
    pub(crate) fn of(bucket: &BucketFacts, info: &ObjectInfo) -> S3Result<Self> {
        let acl = bucket.object_acl(info.attributes.acl.as_deref())?;
        Ok(Self { acl, tags: info.attributes.tags.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_cannot_be_read_block() {
        assert_eq!(PublicAccessBlock::stored(None), PublicAccessBlock::default());
        let some = PublicAccessBlock::stored(Some(br#"{"IgnorePublicAcls":true}"#));
        assert!(some.ignore_public_acls && !some.block_public_acls);
        let all = PublicAccessBlock::stored(Some(b"nonsense"));
        assert!(all.restrict_public_buckets && all.block_public_policy);
    }

    #[test]
    fn without_acls_everything_is_the_owners() {
        let json = br#"{"Owner":"bob","Grantees":[]}"#;
        let enforced = BucketFacts::of("b", "ann", Ownership::BucketOwnerEnforced);
        assert_eq!(enforced.object_acl(Some(json)).unwrap(), Acl::private("ann"));
        let writer = BucketFacts::of("b", "ann", Ownership::ObjectWriter);
        assert_eq!(writer.object_acl(Some(json)).unwrap().owner, "bob");
        assert_eq!(writer.object_acl(None).unwrap().owner, "ann");
    }
}
