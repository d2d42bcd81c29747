//! Publication: the one step in which a finished file becomes the object.

use std::os::fd::OwnedFd;
use std::time::UNIX_EPOCH;

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::attributes::{Raw, name, stamp};
use super::bucket::Bucket;
use super::error::{Error, Result};
use super::fs::{DIR, Temp, is_dir, is_empty_dir, is_file, modified, stat, stat_at};
use super::inner::Inner;
use super::keeper::{Keeper, Subject};
use super::key::Key;
use super::object::{Found, Slot, info_of};
use super::object_lock;
use super::types::{ObjectInfo, Versioning, WriteConditions};
use super::ulid::Ulid;

/// How often a step is tried that others keep getting in the way of.
pub(crate) const TRIES: usize = 1000;

/// What a file becomes, and so what conditions mean where there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Object,
    /// A delete marker: a condition on what is not there does not stand in the way of deleting it.
    Marker,
}

/// A file that has its name.
struct Placed {
    parent: OwnedFd,
    /// Directories that got a new entry because they had to be made.
    made: Vec<OwnedFd>,
    /// What it replaced, when that is gone now, or keeps its attributes elsewhere.
    replaced: Option<Box<Found>>,
}

impl Inner {
    /// Publishes `temp` as the object `key`: attributes, data to disk, conditions and name under the
    /// key's lock, directories to disk. On any error what was there stays, and `temp` is gone.
    pub(crate) fn publish(
        &self,
        bucket: &Bucket,
        key: &Key,
        mut temp: Temp,
        mut raw: Raw,
        conditions: &WriteConditions,
        purpose: Purpose,
    ) -> Result<ObjectInfo> {
        let versioning = self.versioning_of(bucket)?;
        if versioning == Versioning::Enabled {
            raw.insert(name::VERSION_ID.to_owned(), Ulid::now().to_string().into_bytes());
        }
        let mut sealed = self.seal(bucket, key, &temp, &mut raw)?;
        let placed = (|| {
            let _lock = self.locks.exclusive(&self.fs, &self.owner, bucket, key.as_str())?;
            self.place(bucket, key, &mut temp, &mut raw, &mut sealed, conditions, purpose, versioning)
        })();
        let file = std::sync::Arc::clone(temp.file());
        let placed = match placed {
            Ok(placed) => placed,
            Err(error) => {
                self.keeper.forget(self.means(), Subject::new(&*file, bucket, key.path()));
                return Err(error);
            }
        };
        let fail = |error| bucket.error("sync", key.as_str(), error);
        if self.sync_names() {
            self.fs.sync_dir(&placed.parent, key.name()).map_err(fail)?;
            for dir in placed.made.iter().rev() {
                self.fs.sync_dir(dir, key.parent()).map_err(fail)?;
            }
        }
        if let Some(old) = placed.replaced {
            self.keeper.forget(self.means(), Subject::new(&old.file, bucket, key.path()));
            close_apart(*old);
        }
        Ok(info_of(&raw, &sealed, key.as_str(), versioning))
    }

    /// Gives the file its attributes and brings both to disk.
    fn seal(&self, bucket: &Bucket, key: &Key, temp: &Temp, raw: &mut Raw) -> Result<Stat> {
        let fail = |error| bucket.error("sync", key.as_str(), error);
        let file = temp.file();
        let sealed = stat(&**file).map_err(fail)?;
        raw.insert(name::STAMP.to_owned(), stamp(&sealed));
        let subject = Subject::new(&**file, bucket, key.path());
        self.keeper.write_new(self.means(), subject, raw).inspect_err(|_| {
            self.keeper.forget(self.means(), subject);
        })?;
        if self.sync_files() {
            self.fs.sync_file(&**file, key.as_str()).map_err(|error| {
                self.keeper.forget(self.means(), subject);
                fail(error)
            })?;
        }
        Ok(sealed)
    }

    #[expect(clippy::too_many_arguments, reason = "one step of publish, cut out for its loop")]
    fn place(
        &self,
        bucket: &Bucket,
        key: &Key,
        temp: &mut Temp,
        raw: &mut Raw,
        sealed: &mut Stat,
        conditions: &WriteConditions,
        purpose: Purpose,
        versioning: Versioning,
    ) -> Result<Placed> {
        let fail = |error| bucket.error("publish", key.as_str(), error);
        // Without anything to look at, the link itself tells whether the key exists.
        let mut look = versioning != Versioning::Off || conditions.needs_current();
        for round in 0..TRIES {
            if round > 10 {
                std::thread::yield_now();
            }
            let slot = if look { self.slot_locked(bucket, key)? } else { Slot::Absent };
            if look {
                match purpose {
                    Purpose::Object => check(key, current_of(&slot), conditions)?,
                    Purpose::Marker => check_delete(current_of(&slot), conditions)?,
                }
            }
            let (parent, made) = self.parent_dir(bucket, key)?;
            let mut replaced = None;
            let done = match slot {
                Slot::Absent => temp.link_new(&self.fs, &parent, key.name()),
                Slot::Dir(found) => {
                    self.make_way(bucket, key, &parent, &found)?;
                    continue;
                }
                Slot::File(found) => {
                    let keeps_old = self.keeps_old(&found, versioning);
                    if keeps_old {
                        self.follow(bucket, key, temp, raw, sealed, &found, versioning)?;
                        self.archive(bucket, key, &found)?;
                    } else if !found.is_marker() {
                        object_lock::check(&found.raw, key.as_str(), false)?;
                    }
                    let done = temp.replace(&self.fs, bucket.dir(), &self.owner, &parent, key.name());
                    // Sidecar files of a version are under another path than those of the object.
                    let apart = matches!(self.keeper, Keeper::Sidecar(_));
                    replaced = (!keeps_old || apart).then_some(found);
                    done
                }
            };
            match done {
                Ok(()) => {
                    if versioning == Versioning::Suspended {
                        self.remove_null_version(bucket, key)?;
                    }
                    return Ok(Placed { parent, made, replaced });
                }
                Err(Errno::EXIST) => {
                    // Either it has just been made, or it is a link or device, which no key sees.
                    if let Ok(there) = stat_at(&parent, key.name())
                        && !is_file(&there)
                        && !is_dir(&there)
                    {
                        return Err(Error::KeyConflict {
                            key: key.as_str().to_owned(),
                            conflict: key.as_str().to_owned(),
                            reason: "a symbolic link or special file has that name; it is not overwritten",
                        });
                    }
                    look = true;
                }
                Err(Errno::NOENT) if bucket.is_gone() => {
                    return Err(Error::NoSuchBucket(bucket.name().to_owned()));
                }
                // The directory was removed, or something put in the way.
                Err(Errno::NOENT | Errno::ISDIR | Errno::NOTEMPTY | Errno::STALE) => {}
                Err(Errno::XDEV) => {
                    return Err(Error::Io {
                        operation: "another file system is mounted below the bucket, which objects cannot \
                                    be moved to:",
                        path: bucket.display(key.as_str()),
                        source: Errno::XDEV.into(),
                    });
                }
                Err(error) => return Err(fail(error)),
            }
        }
        Err(fail(Errno::BUSY))
    }

    /// Whether a write leaves the current object as an older version.
    fn keeps_old(&self, found: &Found, versioning: Versioning) -> bool {
        match versioning {
            Versioning::Off => false,
            Versioning::Enabled => true,
            Versioning::Suspended => found.version_id() != super::versions::NULL,
        }
    }

    /// Makes the new version sort after the one that it follows, whatever the clocks say.
    #[expect(clippy::too_many_arguments, reason = "one step of place, cut out for its length")]
    fn follow(
        &self,
        bucket: &Bucket,
        key: &Key,
        temp: &Temp,
        raw: &mut Raw,
        sealed: &mut Stat,
        before: &Found,
        versioning: Versioning,
    ) -> Result<()> {
        let fail = |error| bucket.error("publish", key.as_str(), error);
        let file = temp.file();
        let before = super::versions::order_of(&before.version_id(), &before.stat);
        if versioning == Versioning::Enabled {
            let id = raw.get(name::VERSION_ID).and_then(|v| Ulid::parse(std::str::from_utf8(v).ok()?));
            if id.is_some_and(|id| id > before) {
                return Ok(());
            }
            let id = before.next().to_string().into_bytes();
            let subject = Subject::new(&**file, bucket, key.path());
            self.keeper.update(self.means(), subject, &[(name::VERSION_ID, Some(&id))])?;
            raw.insert(name::VERSION_ID.to_owned(), id);
        } else {
            let own = super::versions::order_of(super::versions::NULL, sealed);
            if own > before {
                return Ok(());
            }
            // A null version is put in order by its time.
            self.keeper.forget(self.means(), Subject::new(&**file, bucket, key.path()));
            let now = UNIX_EPOCH.elapsed().map_or(0, |d| d.as_millis()).max(u128::from(before.millis()) + 1);
            let now = u64::try_from(now).unwrap_or(0);
            let time = Timespec {
                tv_sec: i64::try_from(now / 1000).unwrap_or(0),
                tv_nsec: i64::try_from(now % 1000 * 1_000_000).unwrap_or(0),
            };
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            rustix::fs::futimens(&**file, &Timestamps { last_access: omit, last_modification: time })
                .map_err(fail)?;
            *sealed = self.seal(bucket, key, temp, raw)?;
            return Ok(());
        }
        if self.sync_files() {
            self.fs.sync_file(&**file, key.as_str()).map_err(fail)?;
        }
        Ok(())
    }

    /// The directory of a key, made with all above it.
    pub(crate) fn parent_dir(&self, bucket: &Bucket, key: &Key) -> Result<(OwnedFd, Vec<OwnedFd>)> {
        match self.fs.make_dirs(bucket.dir(), key.parent(), &self.owner) {
            Ok(done) => Ok(done),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(self.conflict(bucket, key)),
            // The bucket itself is gone.
            Err(Errno::NOENT) => Err(Error::NoSuchBucket(bucket.name().to_owned())),
            Err(error) => Err(bucket.error("make the directory of", key.as_str(), error)),
        }
    }

    /// Which prefix of the key is not a directory.
    pub(crate) fn conflict(&self, bucket: &Bucket, key: &Key) -> Error {
        let cuts = key.parent().match_indices('/').map(|(at, _)| at).chain([key.parent().len()]);
        let mut conflict = key.parent();
        for at in cuts {
            if matches!(bucket.open(&key.parent()[..at], DIR), Err(Errno::NOTDIR | Errno::LOOP)) {
                conflict = &key.parent()[..at];
                break;
            }
        }
        Error::KeyConflict {
            key: key.as_str().to_owned(),
            conflict: conflict.to_owned(),
            reason: "an object (or a link) of that name is where a directory would be; a file system holds one or \
                     the other",
        }
    }

    /// Whether a directory where an object is to be is empty and no object, and so can go.
    pub(crate) fn check_way(&self, bucket: &Bucket, key: &Key, found: &Found) -> Result<()> {
        let fail = |error| bucket.error("read directory", key.as_str(), error);
        let inner = self.fs.open_beneath(&found.file, "", DIR).map_err(fail)?;
        if !found.is_explicit() && is_empty_dir(inner).map_err(fail)? {
            return Ok(());
        }
        Err(Error::KeyConflict {
            key: key.as_str().to_owned(),
            conflict: format!("{}/", key.as_str()),
            reason: "a directory of that name exists; a file system holds one or the other",
        })
    }

    /// Removes such a directory.
    fn make_way(&self, bucket: &Bucket, key: &Key, parent: &OwnedFd, found: &Found) -> Result<()> {
        self.check_way(bucket, key, found)?;
        match self.fs.remove_dir(parent, key.name()) {
            // Not empty any more: the next look says so.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(bucket.error("remove directory", key.as_str(), error)),
        }
    }
}

/// Closes a file that has lost its name. Freeing much space takes time that the request need not
/// wait for.
pub(crate) fn close_apart(found: Found) {
    if found.stat.st_size >= 8 << 20 {
        // Without another thread it is closed here, when the closure is dropped.
        drop(std::thread::Builder::new().name("close".to_owned()).spawn(move || drop(found)));
    }
}

impl WriteConditions {
    /// Whether they say something about the object that is there.
    pub(crate) fn needs_current(&self) -> bool {
        self.if_match.is_some()
            || self.if_match_size.is_some()
            || self.if_match_modified.is_some()
            || self.if_none_match.is_some()
    }
}

/// The object in a slot, a directory that is no object not counted.
pub(crate) fn current_of(slot: &Slot) -> Option<&Found> {
    match slot {
        Slot::File(found) => Some(found),
        Slot::Dir(found) if found.is_explicit() => Some(found),
        _ => None,
    }
}

/// Checks the conditions of a write against what is there; a delete marker counts as nothing.
pub(crate) fn check(key: &Key, found: Option<&Found>, conditions: &WriteConditions) -> Result<()> {
    let found = found.filter(|f| !f.is_marker());
    if let Some(found) = found
        && (conditions.if_none_match_any
            || conditions.if_none_match.as_ref().is_some_and(|e| *e == found.etag()))
    {
        return Err(Error::PreconditionFailed("If-None-Match"));
    }
    match found {
        Some(found) => check_match(found, conditions),
        None if conditions.if_match.is_some() => Err(Error::NoSuchKey(key.as_str().to_owned())),
        None => Ok(()),
    }
}

/// Checks the conditions of a delete. They hold of nothing, since deleting nothing is no error; of a
/// delete marker holds what does of an object without ETag.
pub(crate) fn check_delete(found: Option<&Found>, conditions: &WriteConditions) -> Result<()> {
    match found {
        Some(found) => check_match(found, conditions),
        None => Ok(()),
    }
}

fn check_match(found: &Found, conditions: &WriteConditions) -> Result<()> {
    if let Some(etag) = &conditions.if_match
        && etag != "*"
        && (found.is_marker() || *etag != found.etag())
    {
        return Err(Error::PreconditionFailed("If-Match"));
    }
    if let Some(size) = conditions.if_match_size {
        let is = if found.is_dir() { 0 } else { u64::try_from(found.stat.st_size).unwrap_or(0) };
        if size != is {
            return Err(Error::PreconditionFailed("x-amz-if-match-size"));
        }
    }
    if let Some(time) = conditions.if_match_modified {
        let seconds = |t: std::time::SystemTime| t.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        // HTTP dates have whole seconds.
        if seconds(time) != seconds(modified(&found.stat)) {
            return Err(Error::PreconditionFailed("x-amz-if-match-last-modified-time"));
        }
    }
    Ok(())
}
