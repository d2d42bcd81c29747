//! Access control lists of buckets and objects, in the form that versitygw keeps them in.

mod ask;
mod canned;
mod wire;

use s3s::S3Result;

use super::error::internal;
use super::policy::Caller;
pub(crate) use ask::{AclRequest, acl_with_ownership};
pub(crate) use wire::shown;

/// `{"Owner", "Grantees": [{"Permission", "Access", "Type"}]}`: the attribute `acl`.
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
    pub(crate) permission: Permission,
    /// An access key, or the name of a group.
    #[serde(rename = "Access")]
    pub(crate) access: String,
    #[serde(rename = "Type", default)]
    pub(crate) kind: Kind,
}

/// Whether a grant goes to an account or to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Kind {
    #[default]
    CanonicalUser,
    Group,
    /// What another program wrote; it grants nothing.
    #[serde(other)]
    Unknown,
}

/// What a grant permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Permission {
    Read,
    Write,
    ReadAcp,
    WriteAcp,
    FullControl,
}

/// Group of everybody, anonymous callers too; the name is versitygw's.
const ALL_USERS: &str = "all-users";
/// Group of all accounts.
const AUTHENTICATED_USERS: &str = "authenticated-users";
/// Group of the service that writes access logs, which there is none of here.
const LOG_DELIVERY: &str = "log-delivery";

fn null_is_empty<'de, D>(deserializer: D) -> Result<Vec<Grantee>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    use serde::Deserialize;
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Permission {
    const ALL: [Self; 5] = [Self::Read, Self::Write, Self::ReadAcp, Self::WriteAcp, Self::FullControl];

    /// The name in S3's documents.
    fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::ReadAcp => "READ_ACP",
            Self::WriteAcp => "WRITE_ACP",
            Self::FullControl => "FULL_CONTROL",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.name() == name)
    }
}

impl Grantee {
    fn user(access: &str, permission: Permission) -> Self {
        Self { permission, access: access.to_owned(), kind: Kind::CanonicalUser }
    }

    fn group(name: &str, permission: Permission) -> Self {
        Self { permission, access: name.to_owned(), kind: Kind::Group }
    }

    fn is_public(&self) -> bool {
        self.kind == Kind::Group && (self.access == ALL_USERS || self.access == AUTHENTICATED_USERS)
    }

    fn is_for(&self, caller: Caller<'_>) -> bool {
        match (self.kind, caller) {
            (Kind::CanonicalUser, Caller::Account(access)) => self.access == access,
            (Kind::Group, Caller::Anonymous) => self.access == ALL_USERS,
            (Kind::Group, Caller::Account(_)) => self.is_public(),
            _ => false,
        }
    }
}

impl Acl {
    /// Everything to `owner`, nothing to others.
    pub(crate) fn private(owner: &str) -> Self {
        Self { owner: owner.to_owned(), grantees: vec![Grantee::user(owner, Permission::FullControl)] }
    }

    /// Reads the attribute; without one, everything is `owner`'s.
    ///
    /// # Errors
    /// `InternalError` for what cannot be read: then nothing is granted.
    pub(crate) fn parse(value: Option<&[u8]>, owner: &str) -> S3Result<Self> {
        let Some(value) = value else { return Ok(Self::private(owner)) };
        let mut acl: Self =
            serde_json::from_slice(value).map_err(|error| internal("malformed acl attribute", &error))?;
        if acl.owner.is_empty() {
            owner.clone_into(&mut acl.owner);
        }
        Ok(acl)
    }

    /// The attribute's value.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether it grants a permission; grants to the public can be left out.
    pub(crate) fn grants(&self, caller: Caller<'_>, permission: Permission, to_public: bool) -> bool {
        self.grantees.iter().any(|grant| {
            (grant.permission == permission || grant.permission == Permission::FullControl)
                && grant.is_for(caller)
                && (to_public || !grant.is_public())
        })
    }

    /// Whether it grants anything to everybody, or to all accounts.
    pub(crate) fn is_public(&self) -> bool {
        self.grantees.iter().any(Grantee::is_public)
    }

    /// Whether it grants nothing to others than its owner.
    pub(crate) fn is_private(&self) -> bool {
        self.grantees.iter().all(|g| g.kind == Kind::CanonicalUser && g.access == self.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVE: Caller<'_> = Caller::Account("eve");

    #[test]
    fn the_form_of_versitygw() {
        let text =
            br#"{"Owner":"ann","Grantees":[{"Permission":"READ","Access":"bob","Type":"CanonicalUser"}]}"#;
        let acl = Acl::parse(Some(text), "root").unwrap();
        assert_eq!(acl.owner, "ann");
        let bob = Caller::Account("bob");
        assert!(acl.grants(bob, Permission::Read, true));
        for permission in [Permission::Write, Permission::ReadAcp, Permission::WriteAcp] {
            assert!(!acl.grants(bob, permission, true));
        }
        assert!(
            !acl.grants(EVE, Permission::Read, true)
                && !acl.grants(Caller::Anonymous, Permission::Read, true)
        );
        assert!(!acl.is_public() && !acl.is_private());
        assert_eq!(serde_json::to_string(&acl).unwrap().as_bytes(), text);
        let none = Acl::parse(Some(br#"{"Owner":"","Grantees":null}"#), "root").unwrap();
        assert_eq!((none.owner.as_str(), none.grantees.len()), ("root", 0));
        assert_eq!(Acl::parse(None, "root").unwrap(), Acl::private("root"));
        for wrong in
            [&b"nonsense"[..], br#"{"Owner":"ann","Grantees":[{"Permission":"ALL","Access":"bob"}]}"#]
        {
            assert!(Acl::parse(Some(wrong), "root").is_err());
        }
    }

    #[test]
    fn groups() {
        let text = br#"{"Owner":"ann","Grantees":[{"Permission":"READ","Access":"all-users","Type":"Group"},
            {"Permission":"WRITE","Access":"authenticated-users","Type":"Group"},
            {"Permission":"READ_ACP","Access":"all-users","Type":"CanonicalUser"},
            {"Permission":"WRITE_ACP","Access":"eve","Type":"Alien"}]}"#;
        let acl = Acl::parse(Some(text), "root").unwrap();
        assert!(acl.is_public());
        assert!(
            acl.grants(Caller::Anonymous, Permission::Read, true) && acl.grants(EVE, Permission::Read, true)
        );
        assert!(!acl.grants(Caller::Anonymous, Permission::Write, true));
        assert!(acl.grants(EVE, Permission::Write, true));
        assert!(!acl.grants(EVE, Permission::Write, false), "left out");
        assert!(
            !acl.grants(Caller::Anonymous, Permission::ReadAcp, true),
            "an account of that name is no group"
        );
        assert!(!acl.grants(EVE, Permission::WriteAcp, true));
    }
}
