//! ACLs as S3's documents and headers have them.

use s3s::dto;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::{ALL_USERS, AUTHENTICATED_USERS, Acl, Grantee, Kind, LOG_DELIVERY, Permission};
use crate::gateway::account::Accounts;
use crate::gateway::error::{s3, s3_status};

/// Most grants of an ACL.
const GRANTS: usize = 100;

/// Groups by their URIs.
const GROUPS: [(&str, &str); 3] = [
    (ALL_USERS, "http://acs.amazonaws.com/groups/global/AllUsers"),
    (AUTHENTICATED_USERS, "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"),
    (LOG_DELIVERY, "http://acs.amazonaws.com/groups/s3/LogDelivery"),
];

fn malformed(what: &str) -> S3Error {
    s3(S3ErrorCode::MalformedACLError, what)
}

fn by_id(id: &str, owner: &str, accounts: &Accounts) -> S3Result<(Kind, String)> {
    if id != owner && accounts.find(id).is_err() {
        return Err(s3(S3ErrorCode::InvalidArgument, format!("Invalid id: there is no account {id:?}")));
    }
    Ok((Kind::CanonicalUser, id.to_owned()))
}

fn by_uri(uri: &str) -> S3Result<(Kind, String)> {
    let (name, _) = GROUPS
        .into_iter()
        .find(|(_, known)| *known == uri)
        .ok_or_else(|| s3(S3ErrorCode::InvalidArgument, format!("Invalid group uri {uri:?}")))?;
    Ok((Kind::Group, name.to_owned()))
}

fn by_email() -> S3Error {
    s3_status(
        S3ErrorCode::UnresolvableGrantByEmailAddress,
        http::StatusCode::BAD_REQUEST,
        "The e-mail address you provided does not match any account on record.",
    )
}

impl Acl {
    /// The grants of an `AccessControlPolicy` over what is `owner`'s.
    ///
    /// # Errors
    /// `MalformedACLError`, `InvalidArgument` for accounts and groups that there are not,
    /// `UnresolvableGrantByEmailAddress`.
    pub(super) fn from_document(
        document: dto::AccessControlPolicy,
        owner: &str,
        accounts: &Accounts,
    ) -> S3Result<Self> {
        let grants = document.grants.unwrap_or_default();
        if grants.len() > GRANTS {
            return Err(malformed("an ACL has at most 100 grants"));
        }
        let mut acl = Self { owner: owner.to_owned(), grantees: Vec::with_capacity(grants.len()) };
        for grant in grants {
            let missing = || malformed("a grant has a Grantee and a Permission");
            let (grantee, permission) =
                (grant.grantee.ok_or_else(missing)?, grant.permission.ok_or_else(missing)?);
            let permission = Permission::from_name(permission.as_str())
                .ok_or_else(|| malformed("the Permission of a grant is not one of S3's"))?;
            let (kind, access) = match grantee.type_.as_str() {
                "CanonicalUser" => by_id(&grantee.id.ok_or_else(missing)?, owner, accounts)?,
                "Group" => by_uri(&grantee.uri.ok_or_else(missing)?)?,
                "AmazonCustomerByEmail" => return Err(by_email()),
                _ => return Err(malformed("the type of a Grantee is not one of S3's")),
            };
            acl.grantees.push(Grantee { permission, access, kind });
        }
        Ok(acl)
    }

    /// Adds the grants of a header: `id="…", uri="…", emailAddress="…"`.
    ///
    /// # Errors
    /// As [`from_document`](Self::from_document).
    pub(super) fn add_from_header(
        &mut self,
        permission: Permission,
        value: &str,
        accounts: &Accounts,
    ) -> S3Result<()> {
        for grant in value.split(',') {
            let (name, value) = grant.trim().split_once('=').ok_or_else(|| {
                s3(
                    S3ErrorCode::InvalidArgument,
                    "Argument format not recognized: x-amz-grant-* holds id=, uri=",
                )
            })?;
            let value = value.trim().trim_matches('"');
            let (kind, access) = match name.trim() {
                "id" => by_id(value, &self.owner, accounts)?,
                "uri" => by_uri(value)?,
                "emailAddress" => return Err(by_email()),
                _ => return Err(s3(S3ErrorCode::InvalidArgument, "Argument format not recognized")),
            };
            self.grantees.push(Grantee { permission, access, kind });
        }
        if self.grantees.len() > GRANTS {
            return Err(malformed("an ACL has at most 100 grants"));
        }
        Ok(())
    }
}

/// The grants as S3 lists them. Those to groups come first, which clients of Ceph rely on.
pub(crate) fn shown(acl: &Acl) -> Vec<dto::Grant> {
    let (groups, users): (Vec<_>, Vec<_>) = acl.grantees.iter().partition(|g| g.kind == Kind::Group);
    let grant = |grantee: &Grantee| {
        let user = (grantee.kind != Kind::Group).then(|| grantee.access.clone());
        let uri = GROUPS.into_iter().find(|(name, _)| user.is_none() && *name == grantee.access);
        let kind = if user.is_some() { dto::Type::CANONICAL_USER } else { dto::Type::GROUP };
        dto::Grant {
            grantee: Some(dto::Grantee {
                display_name: user.clone(),
                email_address: None,
                id: user,
                type_: dto::Type::from_static(kind),
                uri: uri.map(|(_, uri)| uri.to_owned()),
            }),
            permission: Some(dto::Permission::from_static(grantee.permission.name())),
        }
    };
    groups.into_iter().chain(users).map(grant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn header(value: &str) -> Result<Vec<Grantee>, String> {
        let accounts = Accounts::new("root", "secret", Vec::new());
        let mut acl = Acl { owner: "ann".into(), grantees: Vec::new() };
        acl.add_from_header(Permission::Read, value, &accounts).map_err(|e| e.code().as_str().to_owned())?;
        Ok(acl.grantees)
    }

    #[test]
    fn headers() {
        let all =
            header(r#"id="root", id=ann,uri="http://acs.amazonaws.com/groups/global/AllUsers""#).unwrap();
        let access: Vec<_> = all.iter().map(|g| (g.access.as_str(), g.kind)).collect();
        let user = Kind::CanonicalUser;
        assert_eq!(access, [("root", user), ("ann", user), (ALL_USERS, Kind::Group)]);
    }

    #[test_case("id=nobody" => "InvalidArgument")]
    #[test_case("uri=\"x\"" => "InvalidArgument")]
    #[test_case("emailAddress=\"a@b\"" => "UnresolvableGrantByEmailAddress")]
    #[test_case("root" => "InvalidArgument")]
    #[test_case("name=root" => "InvalidArgument")]
    fn wrong_headers(value: &str) -> String {
        header(value).unwrap_err()
    }

    #[test]
    fn groups_come_first() {
        let acl = Acl {
            owner: "ann".into(),
            grantees: vec![
                Grantee::user("ann", Permission::FullControl),
                Grantee::group(ALL_USERS, Permission::Read),
            ],
        };
        let shown = shown(&acl);
        let uri = shown[0].grantee.as_ref().unwrap().uri.as_deref();
        assert_eq!(uri, Some("http://acs.amazonaws.com/groups/global/AllUsers"));
        assert_eq!(shown[1].grantee.as_ref().unwrap().id.as_deref(), Some("ann"));
    }
}
