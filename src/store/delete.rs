//! Deletion, and the removal of directories that it leaves empty.

use rustix::io::Errno;

use super::attributes::{OBJECT_NAMES, Raw, name};
use super::bucket::Bucket;
use super::commit::{Purpose, TRIES, check, check_delete, close_apart, current_of};
use super::error::{Error, Result};
use super::fs::{DIR, Temp, is_empty_dir, stat, stat_at};
use super::inner::Inner;
use super::keeper::Subject;
use super::key::Key;
use super::object::{Found, Slot, is_absent};
use super::object_lock;
use super::types::{DeleteRequest, Deleted, Versioning};
use super::versions::check_id;

impl Inner {
    pub(crate) fn delete(&self, bucket: &str, key: &str, request: &DeleteRequest) -> Result<Deleted> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let deleted = match &request.version {
            Some(id) => {
                check_id(id)?;
                self.delete_version(&bucket, &key, id, request)?
            }
            None if key.is_dir() => self.delete_directory(&bucket, &key, request)?,
            None => match self.versioning_of(&bucket)? {
                Versioning::Off => self.delete_current(&bucket, &key, request)?,
                _ => self.put_marker(&bucket, &key, request)?,
            },
        };
        Ok(deleted)
    }

    /// Removes the object itself: there are no versions.
    fn delete_current(&self, bucket: &Bucket, key: &Key, request: &DeleteRequest) -> Result<Deleted> {
        let removed = {
            let _lock = self.locks.exclusive(&self.fs, &self.owner, bucket, key.as_str())?;
            let slot = self.slot_locked(bucket, key)?;
            let found = match slot {
                Slot::File(found) => Some(found),
                _ => None,
            };
            check_delete(found.as_deref(), &request.conditions)?;
            let Some(found) = found else { return Ok(Deleted::default()) };
            object_lock::check(&found.raw, key.as_str(), request.bypass_governance)?;
            self.unlink_current(bucket, key, found)?
        };
        self.remove_empty_parents(bucket, key);
        Ok(Deleted { existed: removed, ..Deleted::default() })
    }

    /// Takes the name of a found object away. False when somebody was faster.
    fn unlink_current(&self, bucket: &Bucket, key: &Key, found: Box<Found>) -> Result<bool> {
        let fail = |error| bucket.error("delete", key.as_str(), error);
        let parent = match bucket.open(key.parent(), DIR) {
            Err(error) if is_absent(error) => return Ok(false),
            other => other.map_err(fail)?,
        };
        match self.fs.unlink(&parent, key.name()) {
            Ok(()) => {}
            // A directory is there by now: the object is gone all the same.
            Err(Errno::NOENT | Errno::ISDIR | Errno::PERM) if is_gone(&parent, key, &found) => {
                return Ok(false);
            }
            Err(error) => return Err(fail(error)),
        }
        if self.sync_names() {
            self.fs.sync_dir(&parent, key.name()).map_err(fail)?;
        }
        self.keeper.forget(self.means(), Subject::new(&found.file, bucket, key.path()));
        close_apart(*found);
        Ok(true)
    }

    /// Hides the object behind a delete marker: an empty file, the object being kept as a version.
    fn put_marker(&self, bucket: &Bucket, key: &Key, request: &DeleteRequest) -> Result<Deleted> {
        let fail = |error| bucket.error("make a delete marker for", key.as_str(), error);
        let existed = self.current(bucket, key)?.is_some_and(|found| !found.is_marker());
        let temp = Temp::create(&self.fs, bucket.dir(), &self.owner, key.as_str()).map_err(fail)?;
        let raw = Raw::from([(name::DELETE_MARKER.to_owned(), Vec::new())]);
        match self.publish(bucket, key, temp, raw, &request.conditions, Purpose::Marker) {
            Ok(info) => Ok(Deleted { version_id: info.version_id, delete_marker: true, existed }),
            // Where no object of that key can be, none needs to be hidden.
            Err(Error::KeyConflict { .. }) => Ok(Deleted::default()),
            Err(error) => Err(error),
        }
    }

    /// Removes one version for good; when it was the current one the newest older one takes its place.
    fn delete_version(
        &self,
        bucket: &Bucket,
        key: &Key,
        id: &str,
        request: &DeleteRequest,
    ) -> Result<Deleted> {
        if key.is_dir() {
            if id == super::versions::NULL {
                return self.delete_directory(bucket, key, request);
            }
            return Ok(Deleted { version_id: Some(id.to_owned()), ..Deleted::default() });
        }
        let mut deleted = Deleted { version_id: Some(id.to_owned()), delete_marker: false, existed: true };
        {
            let _lock = self.locks.exclusive(&self.fs, &self.owner, bucket, key.as_str())?;
            let current = match self.slot_locked(bucket, key)? {
                Slot::File(found) if found.version_id() == id => Some(found),
                _ => None,
            };
            let is_current = current.is_some();
            let found = match current {
                Some(found) => Some(found),
                None => self.older_version(bucket, key, id)?,
            };
            let Some(found) = found else {
                return Ok(Deleted { existed: false, ..deleted });
            };
            check_delete(Some(&found), &request.conditions)?;
            object_lock::check(&found.raw, key.as_str(), request.bypass_governance)?;
            deleted.delete_marker = found.is_marker();
            if !is_current {
                deleted.existed = self.remove_version(bucket, key, id)?;
            } else if self.restore(bucket, key, id)? {
                self.keeper.forget(self.means(), Subject::new(&found.file, bucket, key.path()));
                self.remove_version(bucket, key, id)?;
            } else {
                self.unlink_current(bucket, key, found)?;
                self.remove_version(bucket, key, id)?;
            }
        }
        self.remove_empty_parents(bucket, key);
        Ok(deleted)
    }

    /// A directory object with children stays as a directory, but is no object any more.
    fn delete_directory(&self, bucket: &Bucket, key: &Key, request: &DeleteRequest) -> Result<Deleted> {
        let fail = |error| bucket.error("delete", key.as_str(), error);
        let existed = {
            let _lock = self.locks.exclusive(&self.fs, &self.owner, bucket, key.as_str())?;
            let slot = self.slot_locked(bucket, key)?;
            check_delete(current_of(&slot).filter(|f| f.is_dir()), &request.conditions)?;
            let Slot::Dir(found) = slot else { return Ok(Deleted::default()) };
            let explicit = found.is_explicit();
            if explicit {
                object_lock::check(&found.raw, key.as_str(), request.bypass_governance)?;
            }
            let parent = match bucket.open(key.parent(), DIR) {
                Err(error) if is_absent(error) => return Ok(Deleted::default()),
                other => other.map_err(fail)?,
            };
            match self.fs.remove_dir(&parent, key.name()) {
                Ok(()) => {
                    self.keeper.forget(self.means(), Subject::new(&found.file, bucket, key.path()));
                }
                Err(Errno::NOTEMPTY | Errno::EXIST) if explicit => {
                    let names = found.raw.keys().map(String::as_str);
                    let ours =
                        names.filter(|n| OBJECT_NAMES.contains(n) || n.starts_with(name::OLD_METADATA));
                    // The ETag makes it an object, so it goes first.
                    let mut changes: Vec<(&str, Option<&[u8]>)> = ours.map(|n| (n, None)).collect();
                    changes.sort_by_key(|(n, _)| *n != name::ETAG);
                    let subject = Subject::new(&found.file, bucket, key.path());
                    self.keeper.update(self.means(), subject, &changes)?;
                    if self.sync_names() {
                        self.fs.sync_dir(&found.file, key.name()).map_err(fail)?;
                    }
                }
                Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(fail(error)),
            }
            if self.sync_names() && explicit {
                self.fs.sync_dir(&parent, key.name()).map_err(fail)?;
            }
            explicit
        };
        self.remove_empty_parents(bucket, key);
        Ok(Deleted { existed, ..Deleted::default() })
    }

    /// Removes the directories above a key as long as they are empty and no objects themselves. Never
    /// an error: a creator that is faster keeps them, one that is slower makes them anew.
    pub(crate) fn remove_empty_parents(&self, bucket: &Bucket, key: &Key) {
        let mut path = key.parent();
        while !path.is_empty() {
            let Ok(dir) = Key::parse(&format!("{path}/")) else { return };
            match self.remove_if_empty(bucket, &dir) {
                Ok(true) => path = path.rsplit_once('/').map_or("", |(parent, _)| parent),
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(path = bucket.display(path), %error, "an empty directory stays");
                    return;
                }
            }
        }
    }

    fn remove_if_empty(&self, bucket: &Bucket, key: &Key) -> Result<bool> {
        let fail = |error| bucket.error("remove directory", key.as_str(), error);
        // Most parents have other children; they need no lock.
        match bucket.open(key.path(), DIR) {
            Ok(dir) if !is_empty_dir(&dir).map_err(fail)? => return Ok(false),
            Ok(_) => {}
            Err(error) if is_absent(error) => return Ok(true),
            Err(error) => return Err(fail(error)),
        }
        // Against somebody who makes it a directory object right now.
        let _lock = self.locks.exclusive(&self.fs, &self.owner, bucket, key.as_str())?;
        let found = match self.slot_locked(bucket, key)? {
            Slot::Dir(found) if found.is_explicit() => return Ok(false),
            Slot::Dir(found) => found,
            _ => return Ok(true),
        };
        let parent = match bucket.open(key.parent(), DIR) {
            Err(error) if is_absent(error) => return Ok(true),
            other => other.map_err(fail)?,
        };
        match self.fs.remove_dir(parent, key.name()) {
            Ok(()) | Err(Errno::NOENT) => {
                self.keeper.forget(self.means(), Subject::new(&found.file, bucket, key.path()));
                Ok(true)
            }
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(fail(error)),
        }
    }

    /// Puts a directory object: the directory with its attributes, made if need be.
    pub(crate) fn put_directory(
        &self,
        bucket: &Bucket,
        key: &Key,
        mut raw: Raw,
        conditions: &super::types::WriteConditions,
    ) -> Result<Found> {
        let fail = |error| bucket.error("make directory", key.as_str(), error);
        raw.entry(name::ETAG.to_owned()).or_insert_with(|| b"\"d41d8cd98f00b204e9800998ecf8427e\"".to_vec());
        let _lock = self.locks.exclusive(&self.fs, &self.owner, bucket, key.as_str())?;
        for _ in 0..TRIES {
            let slot = self.slot_locked(bucket, key)?;
            check(key, current_of(&slot).filter(|f| f.is_dir()), conditions)?;
            if matches!(slot, Slot::File(_)) {
                return Err(file_in_the_way(key));
            }
            let (parent, made) = self.parent_dir(bucket, key)?;
            let found = match slot {
                Slot::Dir(found) => found,
                _ => {
                    match self.fs.make_dir(&parent, key.name(), &self.owner) {
                        Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
                        Err(error) => return Err(fail(error)),
                    }
                    match self.slot_locked(bucket, key)? {
                        Slot::Dir(found) => found,
                        _ => continue,
                    }
                }
            };
            // Values left from before go; the ETag, which makes it an object, comes last.
            let mut changes: Vec<(&str, Option<&[u8]>)> = OBJECT_NAMES
                .iter()
                .filter(|n| found.raw.contains_key(**n) && !raw.contains_key(**n))
                .map(|n| (*n, None))
                .collect();
            let mut values: Vec<_> = raw.iter().map(|(n, v)| (n.as_str(), Some(v.as_slice()))).collect();
            values.sort_by_key(|(n, _)| *n == name::ETAG);
            changes.extend(values);
            let subject = Subject::new(&found.file, bucket, key.path());
            self.keeper.update(self.means(), subject, &changes)?;
            // Gateways that do not know our locks may have removed it as an empty parent.
            if !matches!(stat_at(&parent, key.name()), Ok(now) if found.is_same(&now)) {
                continue;
            }
            if self.sync_names() {
                self.fs.sync_dir(&found.file, key.name()).map_err(fail)?;
                self.fs.sync_dir(&parent, key.name()).map_err(fail)?;
                for dir in made.iter().rev() {
                    self.fs.sync_dir(dir, key.parent()).map_err(fail)?;
                }
            }
            let stat = stat(&found.file).map_err(fail)?;
            return Ok(Found { stat, raw, ..*found });
        }
        Err(fail(Errno::BUSY))
    }
}

/// Whether a key's name leads to something else than was found, or to nothing.
fn is_gone(parent: &std::os::fd::OwnedFd, key: &Key, found: &Found) -> bool {
    !matches!(stat_at(parent, key.name()), Ok(now) if found.is_same(&now))
}

/// A directory object cannot be where an object is.
pub(crate) fn file_in_the_way(key: &Key) -> Error {
    Error::KeyConflict {
        key: key.as_str().to_owned(),
        conflict: key.path().to_owned(),
        reason: "an object of that name is where the directory would be",
    }
}
