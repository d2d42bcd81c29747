//! Attributes changed in place: tags, retention, legal hold, ACL.

use std::collections::BTreeMap;

use super::attributes::{name, to_json};
use super::bucket::Bucket;
use super::error::{Error, Result};
use super::inner::Inner;
use super::keeper::Subject;
use super::key::Key;
use super::object::{Found, Slot};
use super::object_lock;
use super::types::ObjectInfo;
use super::versions::{check_id, version_path};

impl Inner {
    pub(crate) fn set_object_tags(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        tags: Option<&BTreeMap<String, String>>,
    ) -> Result<ObjectInfo> {
        let value = tags.filter(|tags| !tags.is_empty()).map(to_json);
        self.update_object(bucket, key, version, name::TAGS, value.as_deref(), |_| Ok(()))
    }

    pub(crate) fn set_object_retention(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        retention: &[u8],
        bypass_governance: bool,
    ) -> Result<ObjectInfo> {
        self.update_object(bucket, key, version, name::RETENTION, Some(retention), |found| {
            object_lock::check_change(&found.raw, key, retention, bypass_governance)
        })
    }

    pub(crate) fn set_object_legal_hold(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        on: bool,
    ) -> Result<ObjectInfo> {
        self.update_object(bucket, key, version, name::LEGAL_HOLD, Some(&[u8::from(on)]), |_| Ok(()))
    }

    pub(crate) fn set_object_acl(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        acl: Option<&[u8]>,
    ) -> Result<ObjectInfo> {
        self.update_object(bucket, key, version, name::ACL, acl, |_| Ok(()))
    }

    /// Sets or removes one attribute in one step, under the key's lock: neither another change nor
    /// an overwrite comes between look and change.
    fn update_object(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        attribute: &str,
        value: Option<&[u8]>,
        allowed: impl Fn(&Found) -> Result<()>,
    ) -> Result<ObjectInfo> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let _lock = self.locks.exclusive(&self.fs, &self.owner, &bucket, key.as_str())?;
        let (mut found, path) = self.found_to_update(&bucket, &key, version)?;
        if found.is_marker() {
            return Err(Error::DeleteMarker { version: found.version_id(), current: version.is_none() });
        }
        allowed(&found)?;
        self.keeper.update(self.means(), Subject::new(&found.file, &bucket, &path), &[(attribute, value)])?;
        if self.sync_files() {
            let fail = |error| bucket.error("sync", key.as_str(), error);
            self.fs.sync_file(&found.file, key.as_str()).map_err(fail)?;
        }
        match value {
            Some(value) => found.raw.insert(attribute.to_owned(), value.to_vec()),
            None => found.raw.remove(attribute),
        };
        Ok(found.info(key.as_str(), self.versioning_of(&bucket)?))
    }

    /// The object or version, and what its attributes are kept under.
    fn found_to_update(
        &self,
        bucket: &Bucket,
        key: &Key,
        version: Option<&str>,
    ) -> Result<(Box<Found>, String)> {
        let current = match self.slot_locked(bucket, key)? {
            Slot::File(found) if !key.is_dir() => Some(found),
            Slot::Dir(found) if key.is_dir() && found.is_explicit() => Some(found),
            _ => None,
        };
        let Some(id) = version else {
            let found = current.ok_or_else(|| Error::NoSuchKey(key.as_str().to_owned()))?;
            return Ok((found, key.path().to_owned()));
        };
        check_id(id)?;
        if let Some(found) = current.filter(|found| found.version_id() == id) {
            return Ok((found, key.path().to_owned()));
        }
        let found = self
            .older_version(bucket, key, id)?
            .ok_or_else(|| Error::NoSuchVersion { key: key.as_str().to_owned(), version: id.to_owned() })?;
        Ok((found, version_path(key.as_str(), id)))
    }
}
