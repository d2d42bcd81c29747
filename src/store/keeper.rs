//! Where attributes live: beside the inode, in an overflow file when they do not fit there, or in
//! sidecar files where the file system has no attributes.

mod overflow;
mod sidecar;

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::attributes::{Raw, name};
use super::bucket::Bucket;
use super::error::{Error, Result};
use super::fs::{Fs, Ownership};
pub(crate) use overflow::{Form as OverflowForm, OVERFLOW_DIR};
pub(crate) use sidecar::{Sidecar, identity};

/// The file or directory whose attributes are meant.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) bucket: &'a Bucket,
    /// Its path in the bucket (empty for the bucket), or for an older version `versions:` and more.
    pub(crate) path: &'a str,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(file: &'a impl AsFd, bucket: &'a Bucket, path: &'a str) -> Self {
        Self { file: file.as_fd(), bucket, path }
    }
}

/// Reads and writes attributes.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// Extended attributes `user.*`.
    Attributes,
    /// Files below a directory.
    Sidecar(Sidecar),
}

/// What the keeper needs of the store.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) owner: &'a Ownership,
    pub(crate) sync: bool,
}

impl Keeper {
    /// All attributes. False when some are missing: the file was replaced meanwhile, or somebody
    /// removed what belongs to it.
    pub(crate) fn read_all(&self, means: Means<'_>, subject: Subject<'_>) -> Result<(Raw, bool)> {
        let mut raw = match self {
            Self::Sidecar(sidecar) => return sidecar.read_all(means, subject),
            Self::Attributes => Raw::new(),
        };
        let fail = |error| failed("read the attributes of", subject, error);
        for name in means.fs.attribute_names(subject.file).map_err(fail)? {
            if let Some(value) = means.fs.attribute(subject.file, &name).map_err(fail)? {
                raw.insert(name, value);
            }
        }
        let mut whole = true;
        if let Some(mut id) = raw.remove(name::OVERFLOW) {
            loop {
                if let Some(outside) = overflow::read(subject, &id)? {
                    raw.extend(outside);
                    break;
                }
                // It is replaced at each change of an attribute: look whether there is another.
                match means.fs.attribute(subject.file, name::OVERFLOW).map_err(fail)? {
                    Some(new) if new != id => id = new,
                    Some(_) => {
                        whole = false;
                        break;
                    }
                    None => return self.read_all(means, subject),
                }
            }
        }
        Ok((raw, whole))
    }

    /// One attribute.
    pub(crate) fn read(&self, means: Means<'_>, subject: Subject<'_>, name: &str) -> Result<Option<Vec<u8>>> {
        if let Self::Sidecar(sidecar) = self {
            return sidecar.read(means, subject, name);
        }
        let fail = |error| failed("read an attribute of", subject, error);
        // An overflow file wins: an attribute that moves there is removed beside the inode last.
        if means.fs.attribute(subject.file, name::OVERFLOW).map_err(fail)?.is_some() {
            return Ok(self.read_all(means, subject)?.0.remove(name));
        }
        means.fs.attribute(subject.file, name).map_err(fail)
    }

    /// Several attributes, in the order of their names.
    pub(crate) fn read_some<const N: usize>(
        &self,
        means: Means<'_>,
        subject: Subject<'_>,
        names: [&str; N],
    ) -> Result<[Option<Vec<u8>>; N]> {
        if matches!(self, Self::Attributes) {
            let read = |name: &str| {
                means
                    .fs
                    .attribute(subject.file, name)
                    .map_err(|error| failed("read an attribute of", subject, error))
            };
            if read(name::OVERFLOW)?.is_none() {
                let mut values = [const { None }; N];
                for (value, name) in values.iter_mut().zip(names) {
                    *value = read(name)?;
                }
                // One that moved to an overflow file meanwhile is there, and not missing.
                if read(name::OVERFLOW)?.is_none() {
                    return Ok(values);
                }
            }
        }
        let (mut raw, _) = self.read_all(means, subject)?;
        Ok(names.map(|name| raw.remove(name)))
    }

    /// Sets the attributes of a file that nobody sees yet, and that has none.
    pub(crate) fn write_new(&self, means: Means<'_>, subject: Subject<'_>, raw: &Raw) -> Result<()> {
        match self {
            Self::Sidecar(sidecar) => sidecar.write_new(means, subject, raw),
            Self::Attributes => overflow::write_new(means, subject, raw),
        }
    }

    /// Changes attributes of a file in use: each in one step, the overflow file all its in one.
    /// The caller holds the lock of the key or bucket.
    pub(crate) fn update(
        &self,
        means: Means<'_>,
        subject: Subject<'_>,
        changes: &[(&str, Option<&[u8]>)],
    ) -> Result<()> {
        match self {
            Self::Sidecar(sidecar) => sidecar.update(means, subject, changes),
            Self::Attributes => overflow::update(means, subject, changes),
        }
    }

    /// Drops what is kept outside the inode of a file that is gone (still open here), or is about
    /// to be dropped unpublished. Failing to is no error: a sweep finds what is left.
    pub(crate) fn forget(&self, means: Means<'_>, subject: Subject<'_>) {
        match self {
            Self::Sidecar(sidecar) => sidecar.forget(means, subject),
            Self::Attributes => {
                if let Ok(Some(id)) = means.fs.attribute(subject.file, name::OVERFLOW) {
                    overflow::remove(means, subject, &id);
                }
            }
        }
    }
}

fn failed(operation: &'static str, subject: Subject<'_>, error: Errno) -> Error {
    if error == Errno::OPNOTSUPP {
        return Error::Io {
            operation: "attributes are not supported by the file system (use a sidecar directory):",
            path: subject.bucket.display(subject.path),
            source: error.into(),
        };
    }
    subject.bucket.error(operation, subject.path, error)
}
