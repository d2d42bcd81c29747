//! Buckets: the directories directly below the root.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{self as rfs, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::attributes::Raw;
use super::error::{Error, Result};
use super::fs::{DIR, Fs, Ownership, born, entries, for_each_entry, modified, random_name, stat};
use super::inner::Inner;
use super::keeper::{Keeper, Subject};
use super::key::{TEMP_DIR, check_bucket_name, is_listed_name};
use super::types::BucketInfo;

/// An open bucket: its directory, whatever happens to the name.
#[derive(Debug)]
pub(crate) struct Bucket {
    name: String,
    dir: OwnedFd,
    fs: Arc<Fs>,
}

impl Bucket {
    pub(crate) fn new(name: &str, dir: OwnedFd, fs: Arc<Fs>) -> Self {
        Self { name: name.to_owned(), dir, fs }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// The path below the root, for messages.
    pub(crate) fn display(&self, path: &str) -> String {
        if path.is_empty() { self.name.clone() } else { format!("{}/{path}", self.name) }
    }

    /// What the file system said about a path in the bucket. Of a bucket that was removed since it
    /// was opened, it says that nothing is there.
    pub(crate) fn error(&self, operation: &'static str, path: &str, error: Errno) -> Error {
        if error == Errno::NOENT && self.is_gone() {
            return Error::NoSuchBucket(self.name.clone());
        }
        Error::fs(operation, &self.display(path), error)
    }

    /// Whether the directory was removed.
    pub(crate) fn is_gone(&self) -> bool {
        stat(&self.dir).is_ok_and(|found| found.st_nlink == 0)
    }

    /// Opens a path in the bucket.
    pub(crate) fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.fs.open_beneath(&self.dir, path, flags)
    }

    /// The directory of temporary data, made when it is not there.
    pub(crate) fn temp_dir(&self, fs: &Fs, owner: &Ownership) -> Result<OwnedFd, Errno> {
        fs.temp_dir(&self.dir, owner)
    }
}

impl Inner {
    /// Opens a bucket.
    pub(crate) fn bucket(&self, name: &str) -> Result<Bucket> {
        // A name that no bucket can have is one that does not exist; only creation explains it.
        if check_bucket_name(name, true).is_err() {
            return Err(Error::NoSuchBucket(name.to_owned()));
        }
        let mut flags = DIR | OFlags::CLOEXEC;
        if !self.options.bucket_links {
            flags |= OFlags::NOFOLLOW;
        }
        match rfs::openat(&self.root, name, flags, Mode::empty()) {
            Ok(dir) => Ok(Bucket::new(name, dir, Arc::clone(&self.fs))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(Error::NoSuchBucket(name.to_owned())),
            Err(error) => Err(Error::fs("open bucket", name, error)),
        }
    }

    pub(crate) fn list_buckets(&self) -> Result<Vec<BucketInfo>> {
        let fail = |error| Error::fs("read the root directory", ".", error);
        let root = self.fs.open_beneath(&self.root, "", DIR).map_err(fail)?;
        let mut names = Vec::new();
        for_each_entry(&root, |name, kind| {
            if let Ok(name) = std::str::from_utf8(name)
                && (kind.is_dir() || (kind.is_symlink() && self.options.bucket_links))
                && check_bucket_name(name, self.options.relaxed_bucket_names).is_ok()
            {
                names.push(name.to_owned());
            }
            true
        })
        .map_err(fail)?;
        names.sort_unstable();
        let mut buckets = Vec::with_capacity(names.len());
        for name in names {
            match self.head_bucket(&name) {
                Ok(info) => buckets.push(info),
                // Removed meanwhile, or a link that leads nowhere.
                Err(Error::NoSuchBucket(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(buckets)
    }

    pub(crate) fn head_bucket(&self, name: &str) -> Result<BucketInfo> {
        let bucket = self.bucket(name)?;
        let created = match born(bucket.dir()) {
            Some(born) => born,
            None => modified(&stat(bucket.dir()).map_err(|error| Error::fs("stat bucket", name, error))?),
        };
        Ok(BucketInfo { name: name.to_owned(), created })
    }

    pub(crate) fn create_bucket(&self, name: &str, attributes: &BTreeMap<String, Vec<u8>>) -> Result<()> {
        self.writable()?;
        check_bucket_name(name, self.options.relaxed_bucket_names)?;
        match self.bucket(name) {
            Ok(_) => return Err(Error::BucketExists(name.to_owned())),
            Err(Error::NoSuchBucket(_)) => {}
            Err(error) => return Err(error),
        }
        let fail = |error| Error::fs("create bucket", name, error);
        // Made apart with all its attributes and then moved: nobody sees a bucket without its ACL.
        let temp = self.fs.temp_dir(&self.root, &self.owner).map_err(fail)?;
        let helper = random_name();
        self.fs.make_dir(&temp, &helper, &self.owner).map_err(fail)?;
        let made = (|| {
            let dir = self.fs.open_beneath(&temp, &helper, DIR).map_err(fail)?;
            let bucket = Bucket::new(name, dir, Arc::clone(&self.fs));
            self.fs.make_dir(bucket.dir(), TEMP_DIR, &self.owner).map_err(fail)?;
            if !attributes.is_empty() {
                self.write_bucket_attributes(&bucket, attributes)?;
            }
            if self.sync_names() {
                self.fs.sync_dir(bucket.dir(), name).map_err(fail)?;
            }
            match self.fs.rename_new(&temp, &helper, &self.root, name) {
                Err(Errno::EXIST | Errno::NOTEMPTY) => Err(Error::BucketExists(name.to_owned())),
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    self.create_bucket_in_place(name, attributes)
                }
                other => other.map_err(fail),
            }
        })();
        // Nothing is left there after the move.
        let _ = self.fs.remove_tree(&temp, &helper);
        made?;
        if self.sync_names() {
            self.fs.sync_dir(&self.root, name).map_err(fail)?;
        }
        Ok(())
    }

    /// For file systems that cannot move without replacing.
    fn create_bucket_in_place(&self, name: &str, attributes: &Raw) -> Result<()> {
        match self.fs.make_dir(&self.root, name, &self.owner) {
            Err(Errno::EXIST) => return Err(Error::BucketExists(name.to_owned())),
            other => other.map_err(|error| Error::fs("create bucket", name, error))?,
        }
        let bucket = self.bucket(name)?;
        if attributes.is_empty() { Ok(()) } else { self.write_bucket_attributes(&bucket, attributes) }
    }

    fn write_bucket_attributes(&self, bucket: &Bucket, attributes: &Raw) -> Result<()> {
        let changes: Vec<(&str, Option<&[u8]>)> =
            attributes.iter().map(|(name, value)| (name.as_str(), Some(value.as_slice()))).collect();
        self.keeper.update(self.means(), Subject::new(bucket.dir(), bucket, ""), &changes)
    }

    /// Removes a bucket that holds no object and no version. Pending uploads go with it.
    pub(crate) fn delete_bucket(&self, name: &str) -> Result<()> {
        self.writable()?;
        let bucket = self.bucket(name)?;
        let fail = |error| match error {
            Errno::NOTEMPTY | Errno::EXIST => Error::BucketNotEmpty(name.to_owned()),
            error => Error::fs("remove bucket", name, error),
        };
        // Anything that is not a directory, a foreign link too, is somebody's data.
        if holds_files(&self.fs, bucket.dir(), true).map_err(fail)? || self.has_explicit_dirs(&bucket)? {
            return Err(Error::BucketNotEmpty(name.to_owned()));
        }
        if let Some(versions) = &self.versions {
            match self.fs.open_beneath(versions, name, DIR) {
                Ok(dir) if holds_files(&self.fs, &dir, true).map_err(fail)? => {
                    return Err(Error::BucketNotEmpty(name.to_owned()));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        // Only empty directories are removed outside `.sgwtmp`, so an object that is published
        // meanwhile survives, and the bucket with it.
        let dir = self.fs.open_beneath(bucket.dir(), "", DIR).map_err(fail)?;
        for (entry, is_dir) in entries(&dir).map_err(fail)? {
            if is_dir && is_listed_name(entry.as_bytes()) {
                remove_empty_tree(&self.fs, &dir, &entry).map_err(fail)?;
            }
        }
        self.locks.remove_all(&self.fs, &bucket).map_err(fail)?;
        self.fs.remove_tree(&dir, TEMP_DIR).map_err(fail)?;
        self.fs.remove_dir(&self.root, name).map_err(fail)?;
        if let Some(versions) = &self.versions {
            self.fs.remove_tree(versions, name).map_err(fail)?;
        }
        if let Keeper::Sidecar(sidecar) = &self.keeper {
            sidecar.forget_bucket(&self.fs, name);
        }
        if self.sync_names() {
            self.fs.sync_dir(&self.root, name).map_err(fail)?;
        }
        Ok(())
    }

    pub(crate) fn bucket_attribute(&self, name: &str, attribute: &str) -> Result<Option<Vec<u8>>> {
        let bucket = self.bucket(name)?;
        self.keeper.read(self.means(), Subject::new(bucket.dir(), &bucket, ""), attribute)
    }

    pub(crate) fn bucket_attributes<const N: usize>(
        &self,
        name: &str,
        attributes: [&str; N],
    ) -> Result<[Option<Vec<u8>>; N]> {
        let bucket = self.bucket(name)?;
        self.keeper.read_some(self.means(), Subject::new(bucket.dir(), &bucket, ""), attributes)
    }

    pub(crate) fn set_bucket_attribute(
        &self,
        name: &str,
        attribute: &str,
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.writable()?;
        let bucket = self.bucket(name)?;
        let _lock = self.locks.exclusive(&self.fs, &self.owner, &bucket, "")?;
        let subject = Subject::new(bucket.dir(), &bucket, "");
        self.keeper.update(self.means(), subject, &[(attribute, value)])?;
        if self.sync_names() {
            self.fs.sync_dir(bucket.dir(), name).map_err(|error| Error::fs("sync bucket", name, error))?;
        }
        Ok(())
    }
}

/// Whether any entry below is not a directory; `.sgwtmp` at the top does not count.
fn holds_files(fs: &Fs, dir: &OwnedFd, top: bool) -> Result<bool, Errno> {
    let dir = fs.open_beneath(dir, "", DIR)?;
    let mut found = false;
    let mut inner = Vec::new();
    for_each_entry(&dir, |name, kind| {
        if kind != FileType::Directory {
            found = true;
        } else if !(top && name == TEMP_DIR.as_bytes()) {
            match std::str::from_utf8(name) {
                Ok(name) => inner.push(name.to_owned()),
                // No key leads there; it is not ours to remove.
                Err(_) => found = true,
            }
        }
        !found
    })?;
    for name in inner {
        if found {
            break;
        }
        match fs.open_beneath(&dir, &name, DIR) {
            Ok(dir) => found = holds_files(fs, &dir, false)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Removes directories as long as they are empty.
fn remove_empty_tree(fs: &Fs, dir: &OwnedFd, name: &str) -> Result<(), Errno> {
    let inner = match fs.open_beneath(dir, name, DIR) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    for (entry, is_dir) in entries(&inner)? {
        if !is_dir {
            return Err(Errno::NOTEMPTY);
        }
        remove_empty_tree(fs, &inner, &entry)?;
    }
    match fs.remove_dir(dir, name) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
