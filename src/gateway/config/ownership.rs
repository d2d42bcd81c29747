//! Who owns the objects in a bucket.

/// The setting "object ownership" of buckets, and with it whether ACLs count:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/about-object-ownership.html>.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Ownership {
    /// The bucket's owner owns every object, and there are no ACLs.
    #[default]
    BucketOwnerEnforced,
    /// Who puts an object owns it, unless the canned ACL `bucket-owner-full-control` gives it away.
    BucketOwnerPreferred,
    /// Who puts an object owns it.
    ObjectWriter,
}

impl Ownership {
    /// The name in S3's documents and in the attribute `ownership` of a bucket.
    pub fn name(self) -> &'static str {
        match self {
            Self::BucketOwnerEnforced => "BucketOwnerEnforced",
            Self::BucketOwnerPreferred => "BucketOwnerPreferred",
            Self::ObjectWriter => "ObjectWriter",
        }
    }

    /// The setting of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::BucketOwnerEnforced, Self::BucketOwnerPreferred, Self::ObjectWriter]
            .into_iter()
            .find(|ownership| ownership.name() == name)
    }

    /// Whether ACLs of the bucket and of its objects count.
    pub fn has_acls(self) -> bool {
        self != Self::BucketOwnerEnforced
    }
}
