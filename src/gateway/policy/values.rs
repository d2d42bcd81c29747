//! What a request says under the condition keys of policies.

use std::collections::BTreeMap;

/// Keys that conditions may ask for, in lower case; a slash at the end goes before a tag's key.
///
/// From the "Condition keys for Amazon S3" and "AWS global condition context keys" of the AWS
/// documentation: those for which this gateway has an answer.
const KNOWN: [&str; 46] = [
    "aws:currenttime",
    "aws:epochtime",
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principaltype",
    "aws:referer",
    "aws:resourceaccount",
    "aws:securetransport",
    "aws:sourceip",
    "aws:useragent",
    "aws:userid",
    "aws:username",
    "s3:authtype",
    "s3:delimiter",
    "s3:existingobjecttag/",
    "s3:if-match",
    "s3:if-none-match",
    "s3:locationconstraint",
    "s3:max-keys",
    "s3:object-lock-legal-hold",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
    "s3:object-lock-retain-until-date",
    "s3:prefix",
    "s3:requestobjecttag/",
    "s3:requestobjecttagkeys",
    "s3:resourceaccount",
    "s3:signatureage",
    "s3:signatureversion",
    "s3:tlsversion",
    "s3:versionid",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-read-acp",
    "s3:x-amz-grant-write",
    "s3:x-amz-grant-write-acp",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-object-ownership",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-server-side-encryption-customer-algorithm",
    "s3:x-amz-storage-class",
    "s3:x-amz-website-redirect-location",
];

/// The form of a key that spellings share: keys do not mind the case, the keys of tags do.
fn canonical(key: &str) -> String {
    match key.split_once('/') {
        None => key.to_ascii_lowercase(),
        Some((head, tag)) => format!("{}/{tag}", head.to_ascii_lowercase()),
    }
}

/// Whether this gateway can answer a condition key.
pub(super) fn is_known(key: &str) -> bool {
    let key = canonical(key);
    match key.split_once('/') {
        None => KNOWN.contains(&key.as_str()),
        Some((head, tag)) => !tag.is_empty() && KNOWN.contains(&format!("{head}/").as_str()),
    }
}

/// Whether a condition key is about the tags that an object has.
pub(super) fn is_existing_tag(key: &str) -> bool {
    canonical(key).starts_with("s3:existingobjecttag/")
}

/// Values of a request by condition key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    by_key: BTreeMap<String, Vec<String>>,
}

impl Values {
    /// Sets the one value of a key.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        self.set_all(key, vec![value.into()]);
    }

    /// Sets all values of a key.
    pub(crate) fn set_all(&mut self, key: &str, values: Vec<String>) {
        self.by_key.insert(canonical(key), values);
    }

    /// Sets the values of tags: `head` is `s3:ExistingObjectTag` or `s3:RequestObjectTag`.
    pub(crate) fn set_tags(&mut self, head: &str, tags: &BTreeMap<String, String>) {
        let head = canonical(head);
        self.by_key.retain(|key, _| key.strip_prefix(head.as_str()).is_none_or(|r| !r.starts_with('/')));
        for (key, value) in tags {
            self.set(&format!("{head}/{key}"), value);
        }
    }

    /// The values of a key; none when the request has none.
    pub(super) fn get(&self, key: &str) -> Option<&[String]> {
        self.by_key.get(&canonical(key)).map(Vec::as_slice)
    }

    /// The value of a key that has one.
    pub(super) fn single(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            [value] => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let mut values = Values::default();
        values.set("aws:SourceIp", "10.0.0.1");
        values.set_tags("s3:ExistingObjectTag", &[("Key".to_owned(), "v".to_owned())].into());
        assert_eq!(values.single("AWS:sourceIP"), Some("10.0.0.1"));
        assert_eq!(values.single("s3:existingobjecttag/Key"), Some("v"));
        assert_eq!(values.single("s3:ExistingObjectTag/key"), None);
        values.set_tags("s3:ExistingObjectTag", &BTreeMap::new());
        assert_eq!(values.single("s3:ExistingObjectTag/Key"), None, "new tags replace the old ones");
        assert!(is_known("S3:Prefix") && is_known("s3:RequestObjectTag/a"));
        assert!(!is_known("s3:RequestObjectTag/") && !is_known("s3:RequestObjectTag"));
        assert!(!is_known("aws:PrincipalOrgID") && !is_known("s3:x-amz-nonsense"));
    }
}
