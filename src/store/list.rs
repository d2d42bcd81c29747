//! Listing: all keys of a bucket in byte order, without reading more than a page needs.

mod batch;
mod versions;
mod walk;

use rustix::io::Errno;

use super::attributes::{decode_checksums, name as attribute};
use super::bucket::Bucket;
use super::error::Result;
use super::etag;
use super::fs::{DIR, READ, for_each_entry, is_file, modified, stat};
use super::inner::Inner;
use super::keeper::Subject;
use super::key::{is_listed_name, successor};
use super::object::{Found, Slot, is_absent};
use super::types::{ListPage, ListRequest, ListedObject};
pub(crate) use batch::Batches;
use walk::{Step, Walk};

/// How keys roll up into common prefixes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollUp<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) delimiter: Option<&'a str>,
}

impl<'a> RollUp<'a> {
    pub(crate) fn new(prefix: &'a str, delimiter: Option<&'a str>) -> Self {
        Self { prefix, delimiter: delimiter.filter(|d| !d.is_empty()) }
    }

    /// The common prefix that a key (or the beginning of keys) falls under.
    pub(crate) fn common<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter?;
        let rest = key.strip_prefix(self.prefix)?;
        let end = rest.find(delimiter)? + delimiter.len();
        Some(&key[..self.prefix.len() + end])
    }

    /// The smallest key that may be listed after `marker`, as an inclusive bound.
    pub(crate) fn start(&self, marker: Option<&str>) -> Option<Vec<u8>> {
        let prefix = self.prefix.as_bytes();
        let after = match marker {
            None => return Some(prefix.to_vec()),
            // All keys of that common prefix are listed as it, which is not after the marker.
            Some(marker) if self.common(marker).is_some() => {
                successor(self.common(marker).unwrap_or_default().as_bytes())?
            }
            Some(marker) => [marker.as_bytes(), b"\0"].concat(),
        };
        Some(after.max(prefix.to_vec()))
    }
}

impl Inner {
    pub(crate) fn list_objects(&self, bucket: &str, request: &ListRequest) -> Result<ListPage> {
        let bucket = self.bucket(bucket)?;
        let roll_up = RollUp::new(&request.prefix, request.delimiter.as_deref());
        let mut page = ListPage::default();
        let Some(start) = roll_up.start(request.start_after.as_deref()) else { return Ok(page) };
        if request.max_keys == 0 {
            return Ok(page);
        }
        let mut walk = Walk::new(self, &bucket, &request.prefix, start)?;
        walk.acls = request.acls;
        let mut last = String::new();
        while let Some(step) = walk.next()? {
            let full = page.objects.len() + page.common_prefixes.len() == request.max_keys;
            let (key, is_dir) = match &step {
                Step::Dir(key) => (key, true),
                Step::File(key) => (key, false),
            };
            if let Some(common) = roll_up.common(key) {
                let common = common.to_owned();
                let listed =
                    if is_dir { self.holds_object(&bucket, key)? } else { walk.object(key)?.is_some() };
                if !listed {
                    if is_dir {
                        walk.skip();
                    }
                    continue;
                }
                if full {
                    page.next = Some(last);
                    return Ok(page);
                }
                match successor(common.as_bytes()) {
                    Some(next) => walk.seek(next),
                    None => return Ok(page),
                }
                last.clone_from(&common);
                page.common_prefixes.push(common);
                continue;
            }
            let key = key.clone();
            let object = if is_dir { walk.directory_object(&key)? } else { walk.object(&key)? };
            let Some(object) = object else { continue };
            if full {
                page.next = Some(last);
                return Ok(page);
            }
            last = key;
            page.objects.push(object);
        }
        Ok(page)
    }

    /// Whether any object is below a directory (its key with the slash), the directory object itself
    /// included. Stops at the first.
    pub(crate) fn holds_object(&self, bucket: &Bucket, key: &str) -> Result<bool> {
        // Without versions there are no delete markers, and any file will do.
        self.holds(bucket, key, self.versions.is_none())
    }

    /// As [`holds_object`](Self::holds_object), delete markers counted or not.
    fn holds(&self, bucket: &Bucket, key: &str, markers: bool) -> Result<bool> {
        let path = key.strip_suffix('/').unwrap_or(key);
        let fail = |error| bucket.error("read directory", path, error);
        let dir = match bucket.open(path, DIR) {
            Err(error) if is_absent(error) => return Ok(false),
            Err(Errno::ACCESS) => return Ok(false),
            other => other.map_err(fail)?,
        };
        if !path.is_empty()
            && self.keeper.read(self.means(), Subject::new(&dir, bucket, path), attribute::ETAG)?.is_some()
        {
            return Ok(true);
        }
        let mut dirs = Vec::new();
        let mut found = Ok(false);
        for_each_entry(&dir, |name, kind| {
            if !is_listed_name(name) {
                return true;
            }
            let Ok(name) = std::str::from_utf8(name) else { return true };
            if kind.is_dir() {
                dirs.push(name.to_owned());
            } else if kind.is_file() {
                found = if markers { Ok(true) } else { self.is_object(bucket, &dir, name, path) };
            }
            matches!(found, Ok(false))
        })
        .map_err(fail)?;
        if found? {
            return Ok(true);
        }
        let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        for name in dirs {
            if self.holds(bucket, &format!("{}/", child(&name)), markers)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file in an open directory is no delete marker.
    fn is_object(
        &self,
        bucket: &Bucket,
        dir: &std::os::fd::OwnedFd,
        name: &str,
        parent: &str,
    ) -> Result<bool> {
        let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
        match self.fs.open_beneath(dir, name, READ) {
            Ok(file) => {
                let subject = Subject::new(&file, bucket, &path);
                Ok(self.keeper.read(self.means(), subject, attribute::DELETE_MARKER)?.is_none())
            }
            Err(error) if is_absent(error) => Ok(false),
            // It is listed although it cannot be read.
            Err(Errno::ACCESS | Errno::PERM) => Ok(true),
            Err(error) => Err(bucket.error("read", &path, error)),
        }
    }

    /// Whether any directory at the top of a bucket is, or holds, an object.
    pub(crate) fn has_explicit_dirs(&self, bucket: &Bucket) -> Result<bool> {
        self.holds_object(bucket, "")
    }

    /// What a listing says of the file `name` in an open directory; none when it is no object.
    fn listed_file(
        &self,
        bucket: &Bucket,
        dir: &std::os::fd::OwnedFd,
        file_name: &str,
        key: &str,
        acls: bool,
    ) -> Result<Option<ListedObject>> {
        let fail = |error| bucket.error("list", key, error);
        let file = match self.fs.open_beneath(dir, file_name, READ) {
            Err(error) if is_absent(error) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => return self.listed_unreadable(bucket, dir, file_name, key),
            other => other.map_err(fail)?,
        };
        let found = stat(&file).map_err(fail)?;
        if !is_file(&found) {
            return Ok(None);
        }
        if !matches!(self.keeper, super::keeper::Keeper::Attributes) {
            // One sidecar file holds all; and it may have to be sought again.
            let slot = self.load(bucket, key, || self.fs.open_beneath(dir, file_name, READ))?;
            return Ok(match slot {
                Slot::File(found) if !found.is_marker() => Some(listed(key, &found)),
                _ => None,
            });
        }
        let mut raw = super::attributes::Raw::new();
        let subject = Subject::new(&file, bucket, key);
        let mut read = |name: &str| -> Result<bool> {
            let value = self.fs.attribute(&file, name).map_err(fail)?;
            Ok(value.is_some_and(|value| raw.insert(name.to_owned(), value).is_none()))
        };
        if self.versions.is_some() && read(attribute::DELETE_MARKER)? {
            return Ok(None);
        }
        // Without an ETag the others say nothing.
        if read(attribute::ETAG)? {
            read(attribute::STAMP)?;
            if !read(attribute::CHECKSUMS)?
                && let Some(outside) = self.keeper.read(self.means(), subject, attribute::CHECKSUMS)?
            {
                raw.insert(attribute::CHECKSUMS.to_owned(), outside);
            }
        }
        if acls && let Some(outside) = self.keeper.read(self.means(), subject, attribute::ACL)? {
            raw.insert(attribute::ACL.to_owned(), outside);
        }
        etag::forget_copied_stamp(&mut raw, &found, &file);
        Ok(Some(listed(key, &Found { file: file.into(), stat: found, raw })))
    }

    /// A file that the gateway may not open is listed as what it is.
    fn listed_unreadable(
        &self,
        bucket: &Bucket,
        dir: &std::os::fd::OwnedFd,
        file_name: &str,
        key: &str,
    ) -> Result<Option<ListedObject>> {
        match super::fs::stat_at(dir, file_name) {
            Ok(found) if is_file(&found) => Ok(Some(ListedObject {
                key: key.to_owned(),
                size: u64::try_from(found.st_size).unwrap_or(0),
                modified: modified(&found),
                etag: etag::derived(&found),
                checksum_algorithm: None,
                checksum_type: None,
                acl: None,
            })),
            Ok(_) => Ok(None),
            Err(error) if is_absent(error) => Ok(None),
            Err(error) => Err(bucket.error("list", key, error)),
        }
    }
}

/// What a listing says of a found object.
pub(crate) fn listed(key: &str, found: &Found) -> ListedObject {
    let stored = etag::stored(&found.raw, &found.stat);
    let checksums = found
        .raw
        .get(attribute::CHECKSUMS)
        .filter(|_| stored.is_some())
        .and_then(|v| decode_checksums(v))
        .filter(|c| !c.values.is_empty());
    ListedObject {
        key: key.to_owned(),
        size: if found.is_dir() { 0 } else { u64::try_from(found.stat.st_size).unwrap_or(0) },
        modified: modified(&found.stat),
        etag: stored.unwrap_or_else(|| etag::derived(&found.stat)),
        checksum_type: checksums.as_ref().map(|c| c.kind),
        checksum_algorithm: checksums.map(|c| c.algorithm),
        acl: found.raw.get(attribute::ACL).cloned(),
    }
}
