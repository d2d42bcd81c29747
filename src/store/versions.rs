//! Older versions: kept below the versioning directory, the current one in the bucket.
//!
//! `DIR/<bucket>/<ab>/<cd>/<ef>/<sha256 of the key>/<version id or null>`. Every step that moves
//! versions holds the key's lock. A version is linked into its place (or copied, when the directory
//! is on another file system) before the current name is given away, so that a crash leaves it in two
//! places at most, never in none; where an id appears twice, the current one counts.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::Stat;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::attributes::name;
use super::bucket::Bucket;
use super::error::{Error, Result};
use super::fs::{DIR, READ, Temp, entries, modified, random_name};
use super::inner::Inner;
use super::keeper::{Keeper, Subject};
use super::key::Key;
use super::object::{Found, Slot, is_absent};
use super::types::Versioning;
use super::ulid::Ulid;

/// The id of versions made while versioning was off or suspended.
pub(crate) const NULL: &str = "null";

/// Below the bucket's directory in the versioning directory, where a key's versions are.
pub(crate) fn version_dir(key: &str) -> String {
    let hash = hex::encode(Sha256::digest(key.as_bytes()));
    format!("{}/{}/{}/{hash}", &hash[..2], &hash[2..4], &hash[4..6])
}

/// How the paths begin that attributes of versions are kept under.
pub(crate) const VERSION_PREFIX: &str = "versions:";

/// What the attributes of a version are kept under.
pub(crate) fn version_path(key: &str, id: &str) -> String {
    format!("{VERSION_PREFIX}{}/{id}", version_dir(key))
}

/// Where a version sorts: by its id, the null version by its time.
pub(crate) fn order_of(id: &str, stat: &Stat) -> Ulid {
    Ulid::parse(id).unwrap_or_else(|| {
        let time = modified(stat).duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis());
        // After all ids of the same millisecond: those were given before it was replaced.
        Ulid::at(u64::try_from(time).unwrap_or(0), u128::MAX)
    })
}

/// Checks the form of a version id.
pub(crate) fn check_id(id: &str) -> Result<()> {
    if id == NULL || Ulid::parse(id).is_some() {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("{id:?} is not a version id")))
}

/// A version in the versioning directory.
#[derive(Debug)]
pub(crate) struct Older {
    pub(crate) id: String,
    pub(crate) found: Box<Found>,
}

impl Inner {
    pub(crate) fn versioning_of(&self, bucket: &Bucket) -> Result<Versioning> {
        if self.versions.is_none() {
            return Ok(Versioning::Off);
        }
        let subject = Subject::new(bucket.dir(), bucket, "");
        Ok(match self.keeper.read(self.means(), subject, name::VERSIONING)?.as_deref() {
            Some([1, ..]) => Versioning::Enabled,
            Some(_) => Versioning::Suspended,
            None => Versioning::Off,
        })
    }

    pub(crate) fn set_versioning(&self, bucket: &str, state: Versioning) -> Result<()> {
        self.writable()?;
        if self.versions.is_none() {
            self.bucket(bucket)?;
            return Err(Error::NotImplemented("versioning without a versioning directory"));
        }
        let value: &[u8] = match state {
            Versioning::Enabled => &[1],
            Versioning::Suspended => {
                if super::object_lock::is_enabled(
                    self.bucket_attribute(bucket, name::BUCKET_LOCK)?.as_deref(),
                ) {
                    return Err(Error::InvalidArgument(format!(
                        "versioning of bucket {bucket:?} cannot be suspended, because object lock is on"
                    )));
                }
                &[0]
            }
            Versioning::Off => {
                return Err(Error::InvalidArgument(
                    "versioning can be suspended, not switched off".to_owned(),
                ));
            }
        };
        self.set_bucket_attribute(bucket, name::VERSIONING, Some(value))
    }

    /// The bucket's directory in the versioning directory.
    fn versions_of(&self, bucket: &Bucket) -> Result<OwnedFd, Errno> {
        let versions = self.versions.as_ref().ok_or(Errno::NOENT)?;
        self.fs.open_beneath(versions, bucket.name(), DIR)
    }

    /// Finds a version by its id, current or older. A delete marker is found too.
    pub(crate) fn find_version(&self, bucket: &Bucket, key: &Key, id: &str) -> Result<Option<Box<Found>>> {
        check_id(id)?;
        // It may be on its way between the two places: then it is in the other one.
        for _ in 0..4 {
            if let Some(found) = self.current(bucket, key)?
                && found.version_id() == id
            {
                return Ok(Some(found));
            }
            if let Some(found) = self.older_version(bucket, key, id)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    pub(crate) fn older_version(&self, bucket: &Bucket, key: &Key, id: &str) -> Result<Option<Box<Found>>> {
        if self.versions.is_none() || key.is_dir() {
            return Ok(None);
        }
        let path = format!("{}/{id}", version_dir(key.as_str()));
        let slot = self.load(bucket, &version_path(key.as_str(), id), || {
            self.fs.open_beneath(self.versions_of(bucket)?, &path, READ)
        })?;
        Ok(match slot {
            Slot::File(found) => Some(found),
            _ => None,
        })
    }

    /// All older versions of a key, from the newest; the id of the current one left out.
    pub(crate) fn older_versions(
        &self,
        bucket: &Bucket,
        key: &Key,
        current: Option<&str>,
    ) -> Result<Vec<Older>> {
        let fail = |error| bucket.error("read the versions of", key.as_str(), error);
        let dir = match self
            .versions_of(bucket)
            .and_then(|versions| self.fs.open_beneath(versions, &version_dir(key.as_str()), DIR))
        {
            Err(error) if is_absent(error) => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut all = Vec::new();
        for (id, is_dir) in entries(&dir).map_err(fail)? {
            if is_dir || check_id(&id).is_err() || current == Some(id.as_str()) {
                continue;
            }
            if let Some(found) = self.older_version(bucket, key, &id)? {
                all.push(Older { id, found });
            }
        }
        all.sort_by_key(|v| std::cmp::Reverse(order_of(&v.id, &v.found.stat)));
        Ok(all)
    }

    /// Puts the current object among the older versions as well; the caller replaces it then.
    pub(crate) fn archive(&self, bucket: &Bucket, key: &Key, found: &Found) -> Result<()> {
        let fail = |error| bucket.error("keep the version of", key.as_str(), error);
        let versions = self.versions.as_ref().ok_or_else(|| fail(Errno::NOENT))?;
        let id = found.version_id();
        let place = format!("{}/{}", bucket.name(), version_dir(key.as_str()));
        for _ in 0..super::commit::TRIES {
            let (dir, made) = self.fs.make_dirs(versions, &place, &self.owner).map_err(fail)?;
            let home = self.fs.open_beneath(versions, bucket.name(), DIR).map_err(fail)?;
            let temp_dir = self.fs.temp_dir(&home, &self.owner).map_err(fail)?;
            let parent = self.fs.open_beneath(bucket.dir(), key.parent(), DIR).map_err(fail)?;
            // A second name first, then moved: what a crash or another gateway left under the id is replaced.
            let helper = random_name();
            let path = version_path(key.as_str(), &id);
            let mut linked = match self.fs.link(&parent, key.name(), &temp_dir, &helper) {
                Ok(()) => {
                    let file = self.fs.open_beneath(&temp_dir, &helper, READ).map_err(fail)?;
                    let place = self.fs.open_beneath(&temp_dir, "", DIR).map_err(fail)?;
                    let temp = Temp::adopt(File::from(file), place, &helper);
                    if matches!(self.keeper, Keeper::Sidecar(_)) {
                        let subject = Subject::new(&**temp.file(), bucket, &path);
                        self.keeper.write_new(self.means(), subject, &found.raw)?;
                    }
                    temp
                }
                Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS) => {
                    self.copy_of(found, &home, bucket, key, &path)?
                }
                Err(error) => return Err(fail(error)),
            };
            match linked.replace(&self.fs, &home, &self.owner, &dir, &id) {
                // Renaming one link of an inode over another does nothing at all; then the helper stays.
                Ok(()) => drop(self.fs.unlink(&temp_dir, &helper)),
                // A delete removed the directory because it was empty.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(fail(error)),
            }
            if self.sync_names() {
                self.fs.sync_dir(&dir, &id).map_err(fail)?;
                for dir in made.iter().rev() {
                    self.fs.sync_dir(dir, &place).map_err(fail)?;
                }
            }
            return Ok(());
        }
        Err(fail(Errno::BUSY))
    }

    /// A copy with data, attributes and time, not yet in its place.
    fn copy_of(&self, found: &Found, home: &OwnedFd, bucket: &Bucket, key: &Key, path: &str) -> Result<Temp> {
        let fail = |error| bucket.error("copy the version of", key.as_str(), error);
        let temp = Temp::create(&self.fs, home, &self.owner, key.as_str()).map_err(fail)?;
        let size = u64::try_from(found.stat.st_size).unwrap_or(0);
        self.fs
            .copy(&found.file, 0, temp.file(), 0, size, key.as_str())
            .map_err(|e| Error::io("copy the version of", &bucket.display(key.as_str()), e))?;
        let time = |sec, nsec| rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec };
        let times = rustix::fs::Timestamps {
            last_access: time(found.stat.st_atime, i64::try_from(found.stat.st_atime_nsec).unwrap_or(0)),
            last_modification: time(
                found.stat.st_mtime,
                i64::try_from(found.stat.st_mtime_nsec).unwrap_or(0),
            ),
        };
        rustix::fs::futimens(&**temp.file(), &times).map_err(fail)?;
        self.keeper.write_new(self.means(), Subject::new(&**temp.file(), bucket, path), &found.raw)?;
        if self.sync_files() {
            self.fs.sync_file(&**temp.file(), key.as_str()).map_err(fail)?;
        }
        Ok(temp)
    }

    /// Makes the newest older version current in place of what is there, or of nothing. False when
    /// there is none.
    pub(crate) fn restore(&self, bucket: &Bucket, key: &Key, except: &str) -> Result<bool> {
        let fail = |error| bucket.error("restore the version of", key.as_str(), error);
        let Some(newest) = self.older_versions(bucket, key, Some(except))?.into_iter().next() else {
            return Ok(false);
        };
        let versions = self.versions_of(bucket).map_err(fail)?;
        let dir = self.fs.open_beneath(&versions, &version_dir(key.as_str()), DIR).map_err(fail)?;
        let (parent, made) = self.parent_dir(bucket, key)?;
        let old_path = version_path(key.as_str(), &newest.id);
        if matches!(self.keeper, Keeper::Sidecar(_)) {
            let subject = Subject::new(&newest.found.file, bucket, key.path());
            self.keeper.write_new(self.means(), subject, &newest.found.raw)?;
        }
        match self.fs.rename(&dir, &newest.id, &parent, key.name()) {
            Ok(()) => {
                if matches!(self.keeper, Keeper::Sidecar(_)) {
                    let subject = Subject::new(&newest.found.file, bucket, &old_path);
                    self.keeper.forget(self.means(), subject);
                }
            }
            Err(Errno::XDEV) => {
                let mut temp = self.copy_of(&newest.found, bucket.dir(), bucket, key, key.path())?;
                temp.replace(&self.fs, bucket.dir(), &self.owner, &parent, key.name()).map_err(fail)?;
                if self.sync_names() {
                    self.fs.sync_dir(&parent, key.name()).map_err(fail)?;
                }
                self.fs.unlink(&dir, &newest.id).map_err(fail)?;
                self.keeper.forget(self.means(), Subject::new(&newest.found.file, bucket, &old_path));
            }
            Err(error) => return Err(fail(error)),
        }
        if self.sync_names() {
            self.fs.sync_dir(&parent, key.name()).map_err(fail)?;
            for dir in made.iter().rev() {
                self.fs.sync_dir(dir, key.parent()).map_err(fail)?;
            }
        }
        self.tidy_version_dirs(bucket, key);
        Ok(true)
    }

    /// Removes an older version. False when it is not there.
    pub(crate) fn remove_version(&self, bucket: &Bucket, key: &Key, id: &str) -> Result<bool> {
        let fail = |error| bucket.error("remove the version of", key.as_str(), error);
        let dir = match self
            .versions_of(bucket)
            .and_then(|versions| self.fs.open_beneath(versions, &version_dir(key.as_str()), DIR))
        {
            Err(error) if is_absent(error) => return Ok(false),
            other => other.map_err(fail)?,
        };
        let old = self.older_version(bucket, key, id)?;
        match self.fs.unlink(&dir, id) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(fail(error)),
        }
        if self.sync_names() {
            self.fs.sync_dir(&dir, id).map_err(fail)?;
        }
        if let Some(old) = old {
            let path = version_path(key.as_str(), id);
            // The same inode may be current as well, with its overflow file; see the module's head.
            let current = self.slot_locked(bucket, key)?;
            if !matches!(&current, Slot::File(now) if now.is_same(&old.stat)) {
                self.keeper.forget(self.means(), Subject::new(&old.file, bucket, &path));
            }
        }
        self.tidy_version_dirs(bucket, key);
        Ok(true)
    }

    /// The null version goes when a new one takes its place.
    pub(crate) fn remove_null_version(&self, bucket: &Bucket, key: &Key) -> Result<()> {
        self.remove_version(bucket, key, NULL).map(|_| ())
    }

    /// Removes the directories of a key's versions as far as they are empty.
    fn tidy_version_dirs(&self, bucket: &Bucket, key: &Key) {
        let Ok(versions) = self.versions_of(bucket) else { return };
        let path = version_dir(key.as_str());
        let mut path = path.as_str();
        loop {
            let (parent, last) = path.rsplit_once('/').unwrap_or(("", path));
            let Ok(dir) = self.fs.open_beneath(&versions, parent, DIR) else { return };
            if self.fs.remove_dir(dir, last).is_err() || parent.is_empty() {
                return;
            }
            path = parent;
        }
    }
}
