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

    /// Whether an account other than root may use the bucket.
    pub(crate) fn allows(&self, access: &str, read: bool) -> bool {
        let granted = |g: &Grantee| {
            (g.access == access && g.kind != "Group")
                && match g.permission.as_str() {
                    "FULL_CONTROL" => true,
                    "READ" => read,
                    "WRITE" => !read,
                    _ => false,
                }
        };
        (!access.is_empty() && self.owner == access) || self.grantees.iter().any(granted)
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
        assert!(acl.allows("ann", false));
        assert!(acl.allows("bob", true) && !acl.allows("bob", false));
        assert!(!acl.allows("eve", true));
        assert!(Acl::parse(Some(br#"{"Owner":"ann","Grantees":null}"#)).unwrap().allows("ann", true));
        assert!(Acl::parse(Some(b"nonsense")).is_err());
        assert!(!Acl::parse(None).unwrap().allows("", true));
        let private = Acl::private("ann");
        assert_eq!(Acl::parse(Some(&private.to_json())).unwrap(), private);
    }
}
