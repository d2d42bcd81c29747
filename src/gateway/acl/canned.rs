//! Canned ACLs: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/acl-overview.html#canned-acl>.

use super::{ALL_USERS, AUTHENTICATED_USERS, Acl, Grantee, LOG_DELIVERY, Permission};

/// The canned ACL that gives an object to the bucket's owner.
pub(super) const BUCKET_OWNER_FULL_CONTROL: &str = "bucket-owner-full-control";

impl Acl {
    /// The canned ACL of this name; `bucket_owner` is the owner of the bucket that an object is in.
    pub(super) fn canned(name: &str, owner: &str, bucket_owner: &str) -> Option<Self> {
        let mut acl = Self::private(owner);
        let others = match name {
            // What it grants is for a service that there is none of here.
            "private" | "aws-exec-read" => vec![],
            "public-read" => vec![Grantee::group(ALL_USERS, Permission::Read)],
            "public-read-write" => vec![
                Grantee::group(ALL_USERS, Permission::Read),
                Grantee::group(ALL_USERS, Permission::Write),
            ],
            "authenticated-read" => vec![Grantee::group(AUTHENTICATED_USERS, Permission::Read)],
            "log-delivery-write" => vec![
                Grantee::group(LOG_DELIVERY, Permission::Write),
                Grantee::group(LOG_DELIVERY, Permission::ReadAcp),
            ],
            "bucket-owner-read" | BUCKET_OWNER_FULL_CONTROL if owner == bucket_owner => vec![],
            "bucket-owner-read" => vec![Grantee::user(bucket_owner, Permission::Read)],
            BUCKET_OWNER_FULL_CONTROL => vec![Grantee::user(bucket_owner, Permission::FullControl)],
            _ => return None,
        };
        acl.grantees.extend(others);
        Some(acl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::policy::Caller;
    use test_case::test_case;

    #[test_case("private" => (true, false, false, false))]
    #[test_case("public-read" => (false, true, true, false))]
    #[test_case("public-read-write" => (false, true, true, false))]
    #[test_case("authenticated-read" => (false, false, true, false))]
    #[test_case("bucket-owner-read" => (false, false, false, true))]
    #[test_case("bucket-owner-full-control" => (false, false, false, true))]
    #[test_case("aws-exec-read" => (true, false, false, false))]
    #[test_case("log-delivery-write" => (false, false, false, false))]
    fn who_reads(name: &str) -> (bool, bool, bool, bool) {
        let acl = Acl::canned(name, "ann", "bob").unwrap();
        let read = |caller| acl.grants(caller, Permission::Read, true);
        assert!(read(Caller::Account("ann")));
        (acl.is_private(), read(Caller::Anonymous), read(Caller::Account("eve")), {
            read(Caller::Account("bob")) && !read(Caller::Account("eve"))
        })
    }

    #[test]
    fn others_are_unknown() {
        assert_eq!(Acl::canned("public-ready", "ann", "ann"), None);
        assert_eq!(Acl::canned("bucket-owner-read", "ann", "ann"), Some(Acl::private("ann")));
    }
}
