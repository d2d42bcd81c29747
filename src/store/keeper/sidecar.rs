//! Attributes as files in a directory apart, for file systems without extended attributes.
//!
//! Two files cannot be replaced in one step, so the attribute file is *named by the identity of the
//! data file* that it describes: inode number and modification time (for a directory the time of
//! its birth, since its modification time changes with its entries). A writer puts the attribute
//! file in place first and then publishes the data file by one rename; a reader opens the data file
//! and looks for the attributes of exactly that file. So it finds the attributes of the object whose
//! bytes it holds, or none, never another's. The writer removes the old attribute file last; a
//! reader that came between sees that its file has been replaced and starts again.
//!
//! `DIR/<bucket>/.vgwrdma/<ab>/<sha256 of the path>/<identity>` is JSON. Attributes of a bucket are
//! single files `DIR/<bucket>/meta/<name>`, as versitygw keeps them. What versitygw stored for an
//! object (`DIR/<bucket>/<key>/meta/<name>`) is read while there is nothing of ours for the key.
//! A file edited in place has another identity: it is then served as one put there from outside.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self as rfs, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::super::attributes::Raw;
use super::super::commit::TRIES;
use super::super::error::{Error, Result};
use super::super::fs::{self, DIR, Fs, READ, entries, is_dir};
use super::overflow::Form;
use super::{Means, Subject};
use crate::store::attributes::to_json;

/// The directory of ours in each bucket's directory.
const OURS: &str = ".vgwrdma";
/// The directory of attribute files, as versitygw names it.
const META: &str = "meta";

/// The sidecar directory.
#[derive(Debug)]
pub(crate) struct Sidecar {
    dir: OwnedFd,
}

impl Sidecar {
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let dir = rfs::open(path, DIR | OFlags::CLOEXEC, rfs::Mode::empty())?;
        Ok(Self { dir })
    }

    pub(super) fn read_all(&self, means: Means<'_>, subject: Subject<'_>) -> Result<(Raw, bool)> {
        let fail = |error| failed("read", subject, error);
        if subject.path.is_empty() {
            return Ok((self.loose(means.fs, subject, META)?, true));
        }
        let place = place(subject);
        match self.entry(means.fs, subject, &place) {
            Ok(Some(raw)) => Ok((raw, true)),
            Ok(None) => match means.fs.open_beneath(&self.dir, &place, DIR) {
                Ok(_) => Ok((Raw::new(), false)),
                Err(Errno::NOENT) => {
                    let raw = self.loose(means.fs, subject, &format!("{}/{META}", subject.path))?;
                    let found = !raw.is_empty();
                    Ok((raw, found))
                }
                Err(error) => Err(fail(error)),
            },
            Err(error) => Err(fail(error)),
        }
    }

    pub(super) fn read(&self, means: Means<'_>, subject: Subject<'_>, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.read_all(means, subject)?.0.remove(name))
    }

    pub(super) fn write_new(&self, means: Means<'_>, subject: Subject<'_>, raw: &Raw) -> Result<()> {
        let fail = |error| failed("write", subject, error);
        let identity = identity(subject).map_err(fail)?;
        let json = to_json(&Form::new(subject.path, raw));
        let place = place(subject);
        for _ in 0..TRIES {
            let dir = means.fs.make_dirs_durably(&self.dir, &place, means.owner, means.sync).map_err(fail)?;
            match means.fs.write_small(&dir, &identity, &json, means.owner, means.sync) {
                // The last attribute file of the path went, and the directory with it.
                Err(Errno::NOENT) => {}
                other => return other.map_err(fail),
            }
        }
        Err(fail(Errno::BUSY))
    }

    pub(super) fn update(
        &self,
        means: Means<'_>,
        subject: Subject<'_>,
        changes: &[(&str, Option<&[u8]>)],
    ) -> Result<()> {
        if subject.path.is_empty() {
            return self.update_bucket(means, subject, changes);
        }
        let mut raw = self.read_all(means, subject)?.0;
        for &(name, value) in changes {
            match value {
                Some(value) => raw.insert(name.to_owned(), value.to_vec()),
                None => raw.remove(name),
            };
        }
        self.write_new(means, subject, &raw)
    }

    fn update_bucket(
        &self,
        means: Means<'_>,
        subject: Subject<'_>,
        changes: &[(&str, Option<&[u8]>)],
    ) -> Result<()> {
        let fail = |error| failed("write", subject, error);
        let path = format!("{}/{META}", subject.bucket.name());
        let dir = means.fs.make_dirs_durably(&self.dir, &path, means.owner, means.sync).map_err(fail)?;
        for &(name, value) in changes {
            match value {
                Some(value) => means.fs.write_small(&dir, name, value, means.owner, means.sync),
                None => match means.fs.unlink(&dir, name) {
                    Err(Errno::NOENT) => Ok(()),
                    other => other,
                },
            }
            .map_err(fail)?;
        }
        Ok(())
    }

    pub(super) fn forget(&self, means: Means<'_>, subject: Subject<'_>) {
        if subject.path.is_empty() {
            return;
        }
        let (Ok(identity), place) = (identity(subject), place(subject)) else { return };
        if let Ok(dir) = means.fs.open_beneath(&self.dir, &place, DIR) {
            let _ = means.fs.unlink(&dir, &identity);
            self.tidy(means.fs, &place);
        }
        let theirs = format!("{}/{}", subject.bucket.name(), subject.path);
        if let Ok(dir) = means.fs.open_beneath(&self.dir, &theirs, DIR) {
            let _ = means.fs.remove_tree(dir, META);
        }
    }

    /// Visits every attribute file of objects in a bucket. `each` gets its path below the sidecar
    /// directory, the file, and the directory and name under which it can be removed.
    pub(crate) fn for_each(
        &self,
        fs: &Fs,
        bucket: &str,
        mut each: impl FnMut(&str, OwnedFd, &OwnedFd, &str) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let top = format!("{bucket}/{OURS}");
        for (group, _) in entries_of(fs, &self.dir, &top)? {
            let group = format!("{top}/{group}");
            for (hash, _) in entries_of(fs, &self.dir, &group)? {
                let place = format!("{group}/{hash}");
                for (name, _) in entries_of(fs, &self.dir, &place)? {
                    let dir = match fs.open_beneath(&self.dir, &place, DIR) {
                        Err(Errno::NOENT) => break,
                        other => other?,
                    };
                    if let Ok(file) = fs.open_beneath(&dir, &name, READ) {
                        each(&format!("{place}/{name}"), file, &dir, &name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes the directory of a path's attribute files when it is empty.
    pub(crate) fn tidy(&self, fs: &Fs, place: &str) {
        if let Some((parent, name)) = place.rsplit_once('/')
            && let Ok(parent) = fs.open_beneath(&self.dir, parent, DIR)
        {
            let _ = fs.remove_dir(parent, name);
        }
    }

    /// Drops all attributes of a removed bucket and what was in it.
    pub(crate) fn forget_bucket(&self, fs: &Fs, bucket: &str) {
        if let Err(error) = fs.remove_tree(&self.dir, bucket) {
            tracing::warn!(bucket, %error, "the sidecar directory of a removed bucket stays");
        }
    }

    /// The attribute file for exactly this data file.
    fn entry(&self, fs: &Fs, subject: Subject<'_>, place: &str) -> Result<Option<Raw>, Errno> {
        let identity = identity(subject)?;
        let file = match fs.open_beneath(&self.dir, &format!("{place}/{identity}"), READ) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let mut json = Vec::new();
        std::fs::File::from(file)
            .read_to_end(&mut json)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let form: Form = serde_json::from_slice(&json).map_err(|_| Errno::BADMSG)?;
        Ok(Some(form.into_raw()))
    }

    /// Attributes as one file each, below the bucket's directory.
    fn loose(&self, fs: &Fs, subject: Subject<'_>, path: &str) -> Result<Raw> {
        let fail = |error| failed("read", subject, error);
        let path = format!("{}/{path}", subject.bucket.name());
        let dir = match fs.open_beneath(&self.dir, &path, DIR) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(Raw::new()),
            other => other.map_err(fail)?,
        };
        let mut raw = Raw::new();
        for (name, is_dir) in entries(&dir).map_err(fail)? {
            if is_dir {
                continue;
            }
            match fs.open_beneath(&dir, &name, READ) {
                Err(Errno::NOENT) => {}
                other => {
                    let mut value = Vec::new();
                    std::fs::File::from(other.map_err(fail)?)
                        .read_to_end(&mut value)
                        .map_err(|e| Error::io("read the sidecar of", subject.path, e))?;
                    raw.insert(name, value);
                }
            }
        }
        Ok(raw)
    }
}

/// The directory of a path's attribute files, below the sidecar directory.
fn place(subject: Subject<'_>) -> String {
    let hash = hex::encode(Sha256::digest(subject.path.as_bytes()));
    format!("{}/{OURS}/{}/{hash}", subject.bucket.name(), &hash[..2])
}

/// The entries of a directory that need not be there.
fn entries_of(fs: &Fs, root: &OwnedFd, path: &str) -> Result<Vec<(String, bool)>, Errno> {
    match fs.open_beneath(root, path, DIR) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Vec::new()),
        other => entries(other?),
    }
}

/// What tells this data file from every other that had its path before.
pub(crate) fn identity(subject: Subject<'_>) -> Result<String, Errno> {
    let stat = fs::stat(subject.file)?;
    if !is_dir(&stat) {
        return Ok(format!("f{:x}-{:x}-{:x}", stat.st_ino, stat.st_mtime, stat.st_mtime_nsec));
    }
    let born = fs::born(subject.file)
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0, |time| time.as_nanos());
    Ok(format!("d{:x}-{born:x}", stat.st_ino))
}

fn failed(operation: &'static str, subject: Subject<'_>, error: Errno) -> Error {
    let path = format!("sidecar of {}", subject.bucket.display(subject.path));
    Error::fs(operation, &path, error)
}
