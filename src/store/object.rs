//! One object as it is on disk: found, opened, its attributes read from the same descriptor.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::Stat;
use rustix::io::Errno;

use super::attributes::{self, Raw, name};
use super::bucket::Bucket;
use super::content_type;
use super::error::Result;
use super::etag;
use super::fs::{READ, is_dir, is_file, modified, stat};
use super::inner::Inner;
use super::keeper::Subject;
use super::key::Key;
use super::types::{ObjectInfo, Versioning};

/// An open file or directory with its attributes.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: File,
    pub(crate) stat: Stat,
    pub(crate) raw: Raw,
}

impl Found {
    pub(crate) fn is_dir(&self) -> bool {
        is_dir(&self.stat)
    }

    /// Whether it marks a deletion.
    pub(crate) fn is_marker(&self) -> bool {
        self.raw.contains_key(name::DELETE_MARKER)
    }

    /// Its version id, `null` when it has none.
    pub(crate) fn version_id(&self) -> String {
        version_id_of(&self.raw)
    }

    /// Whether a directory was put as an object.
    pub(crate) fn is_explicit(&self) -> bool {
        self.raw.contains_key(name::ETAG)
    }

    /// Whether both are the same inode.
    pub(crate) fn is_same(&self, other: &Stat) -> bool {
        self.stat.st_ino == other.st_ino && self.stat.st_dev == other.st_dev
    }

    /// The stored ETag when it still holds, else the one derived from the inode.
    pub(crate) fn etag(&self) -> String {
        etag::stored(&self.raw, &self.stat).unwrap_or_else(|| etag::derived(&self.stat))
    }

    /// What HEAD says of it.
    pub(crate) fn info(&self, key: &str, versioning: Versioning) -> ObjectInfo {
        info_of(&self.raw, &self.stat, key, versioning)
    }
}

/// What HEAD says of a file with these attributes.
pub(crate) fn info_of(raw: &Raw, stat: &Stat, key: &str, versioning: Versioning) -> ObjectInfo {
    let mut stored = attributes::decode(raw);
    let etag = etag::stored(raw, stat);
    if etag.is_none() {
        // It was put there, or edited, from outside: digests and parts say nothing about it.
        stored.checksums = None;
        stored.part_ends.clear();
        stored.part_checksums.clear();
        stored.content_type = stored.content_type.or_else(|| Some(content_type::guess(key).to_owned()));
    }
    if is_dir(stat) {
        stored.content_type = stored.content_type.or_else(|| Some(content_type::DIRECTORY.to_owned()));
    }
    let version = version_id_of(raw);
    let etag = etag.unwrap_or_else(|| etag::derived(stat));
    stored.etag = Some(etag.clone());
    ObjectInfo {
        key: key.to_owned(),
        size: if is_dir(stat) { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) },
        modified: modified(stat),
        etag,
        version_id: (versioning != Versioning::Off || version != super::versions::NULL).then_some(version),
        attributes: stored,
    }
}

fn version_id_of(raw: &Raw) -> String {
    raw.get(name::VERSION_ID)
        .map(|v| String::from_utf8_lossy(v).into_owned())
        .filter(|v| !v.is_empty())
        .unwrap_or_else(|| super::versions::NULL.to_owned())
}

/// What is at a path.
#[derive(Debug)]
pub(crate) enum Slot {
    Absent,
    File(Box<Found>),
    Dir(Box<Found>),
}

/// Whether the error means that no object has that path.
pub(crate) fn is_absent(error: Errno) -> bool {
    // A symbolic link in the path, a file where a directory should be, a socket.
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO)
}

impl Inner {
    /// Opens what `open` finds and reads its attributes, all of one inode. `path` is what the
    /// attributes are kept under.
    pub(crate) fn load(
        &self,
        bucket: &Bucket,
        path: &str,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<Slot> {
        let fail = |error| bucket.error("open", path, error);
        let mut tries = 0;
        loop {
            let file = match open() {
                Err(error) if is_absent(error) => return Ok(Slot::Absent),
                other => File::from(other.map_err(fail)?),
            };
            let found = stat(&file).map_err(fail)?;
            if !is_file(&found) && !is_dir(&found) {
                return Ok(Slot::Absent);
            }
            let (mut raw, whole) = self.keeper.read_all(self.means(), Subject::new(&file, bucket, path))?;
            etag::forget_copied_stamp(&mut raw, &found, &file);
            let found = Box::new(Found { file, stat: found, raw });
            if !whole && tries < 100 {
                // Part of the attributes is gone: somebody replaced the object after it was opened.
                tries += 1;
                let now = match open() {
                    Err(error) if is_absent(error) => return Ok(Slot::Absent),
                    other => stat(other.map_err(fail)?).map_err(fail)?,
                };
                if !found.is_same(&now) {
                    continue;
                }
            }
            return Ok(if found.is_dir() { Slot::Dir(found) } else { Slot::File(found) });
        }
    }

    /// What is at the path of a key, a directory object or not.
    pub(crate) fn slot(&self, bucket: &Bucket, key: &Key) -> Result<Slot> {
        if key.is_dir() {
            // Several attributes of a directory change one by one; its writers hold this lock.
            let _lock = self.locks.shared(bucket, key.as_str())?;
            return self.slot_locked(bucket, key);
        }
        self.slot_locked(bucket, key)
    }

    /// As [`slot`](Self::slot), by a caller that holds the key's lock.
    pub(crate) fn slot_locked(&self, bucket: &Bucket, key: &Key) -> Result<Slot> {
        self.load(bucket, key.path(), || bucket.open(key.path(), READ))
    }

    /// The object that a key names now, a delete marker included.
    pub(crate) fn current(&self, bucket: &Bucket, key: &Key) -> Result<Option<Box<Found>>> {
        Ok(match self.slot(bucket, key)? {
            Slot::File(found) if !key.is_dir() => Some(found),
            Slot::Dir(found) if key.is_dir() && found.is_explicit() => Some(found),
            _ => None,
        })
    }
}
