//! A walk over the keys of a bucket in byte order.
//!
//! A directory `a` sorts as `a/` among its neighbours: after `a-b` and `a.b`, before `a0`. With that,
//! depth first is the order of full keys, and the walk can start at any key and jump forward.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::super::attributes::name;
use super::super::bucket::Bucket;
use super::super::error::{Error, Result};
use super::super::fs::DIR;
use super::super::inner::Inner;
use super::super::key::{Key, successor};
use super::super::object::{Slot, is_absent};
use super::super::types::ListedObject;
use super::batch::Batch;
use super::listed;

/// What the walk has come to.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A file with this key. It may be no object after all.
    File(String),
    /// A directory with this key, which ends in a slash; its keys come next unless it is skipped.
    Dir(String),
}

/// An open directory on the way.
#[derive(Debug)]
struct Level {
    dir: OwnedFd,
    /// The beginning of all its keys.
    prefix: String,
    batch: Arc<Batch>,
    at: usize,
    /// Upper bound of names, when only those with the listing's prefix matter.
    upto: Option<Vec<u8>>,
}

/// The walk; its steps are in order, each key at most once.
pub(crate) struct Walk<'a> {
    inner: &'a Inner,
    bucket: &'a Bucket,
    levels: Vec<Level>,
    /// No key before this one (inclusive).
    start: Vec<u8>,
    /// The directory that the prefix names, still to be stepped on.
    first: Option<String>,
    /// The directory of the last step, not entered yet.
    pending: Option<(String, Option<OwnedFd>)>,
    /// Whether the objects' ACLs are wanted.
    pub(crate) acls: bool,
}

/// The first name in a directory that can matter for keys from `bound` (below it) on.
fn head(bound: &[u8]) -> &[u8] {
    bound.iter().position(|&b| b == b'/').map_or(bound, |slash| &bound[..=slash])
}

impl<'a> Walk<'a> {
    /// Starts at the first key with `prefix` that is not before `start`.
    pub(crate) fn new(inner: &'a Inner, bucket: &'a Bucket, prefix: &str, start: Vec<u8>) -> Result<Self> {
        let mut walk =
            Self { inner, bucket, levels: Vec::new(), start, first: None, pending: None, acls: false };
        let cut = prefix.rfind('/').map_or(0, |slash| slash + 1);
        let (parent, name) = prefix.split_at(cut);
        // No key has such a prefix, or none from the start on.
        if !parent.is_empty() && Key::parse(parent).is_err() || !walk.start.starts_with(parent.as_bytes()) {
            return Ok(walk);
        }
        if !parent.is_empty() && name.is_empty() && walk.start == parent.as_bytes() {
            // The directory object itself has the prefix too.
            walk.first = Some(parent.to_owned());
            return Ok(walk);
        }
        let upto = if name.is_empty() { None } else { successor(name.as_bytes()) };
        if let Some(dir) = walk.open(parent)? {
            walk.push(dir, parent.to_owned(), upto)?;
        }
        Ok(walk)
    }

    /// The next file or directory in order. A directory that was not skipped is entered first.
    pub(crate) fn next(&mut self) -> Result<Option<Step>> {
        if let Some(first) = self.first.take() {
            self.pending = Some((first.clone(), None));
            return Ok(Some(Step::Dir(first)));
        }
        if let Some((prefix, dir)) = self.pending.take() {
            let dir = match dir {
                Some(dir) => Some(dir),
                None => self.open(&prefix)?,
            };
            if let Some(dir) = dir {
                self.push(dir, prefix, None)?;
            }
        }
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let Some(name) = level.batch.names.get(level.at) else {
                let last = level.batch.names.len().checked_sub(1).and_then(|at| level.batch.names.get(at));
                match last {
                    Some(last) if !level.batch.complete => {
                        let from = [last, b"\0"].concat();
                        self.refill(&from)?;
                    }
                    _ => {
                        self.levels.pop();
                    }
                }
                continue;
            };
            level.at += 1;
            // Names that are not UTF-8 are no keys, and neither are paths longer than a key can be.
            let Ok(name) = std::str::from_utf8(name) else { continue };
            let key = format!("{}{name}", level.prefix);
            if key.len() > 1024 {
                continue;
            }
            if !key.ends_with('/') {
                return Ok(Some(Step::File(key)));
            }
            self.pending = Some((key.clone(), None));
            return Ok(Some(Step::Dir(key)));
        }
    }

    /// Leaves out the directory of the last step.
    pub(crate) fn skip(&mut self) {
        self.pending = None;
    }

    /// Jumps forward to the first key that is not before `bound`.
    pub(crate) fn seek(&mut self, bound: Vec<u8>) {
        self.pending = None;
        self.first = None;
        while let Some(level) = self.levels.last_mut() {
            let prefix = level.prefix.as_bytes();
            if let Some(rest) = bound.strip_prefix(prefix) {
                level.at = level.at.max(level.batch.names.seek(head(rest)));
                break;
            }
            if bound.as_slice() < prefix {
                break;
            }
            self.levels.pop();
        }
        self.start = bound;
    }

    /// The object of the last step, a file.
    pub(crate) fn object(&self, key: &str) -> Result<Option<ListedObject>> {
        let Some(level) = self.levels.last() else { return Ok(None) };
        let name = key.get(level.prefix.len()..).unwrap_or_default();
        self.inner.listed_file(self.bucket, &level.dir, name, key, self.acls)
    }

    /// The object of the last step, a directory, when it is one and not before the start.
    pub(crate) fn directory_object(&mut self, key: &str) -> Result<Option<ListedObject>> {
        let Some(dir) = self.open(key)? else {
            self.pending = None;
            return Ok(None);
        };
        let path = key.strip_suffix('/').unwrap_or(key);
        let subject = super::Subject::new(&dir, self.bucket, path);
        let means = self.inner.means();
        let explicit = key.as_bytes() >= self.start.as_slice()
            && self.inner.keeper.read(means, subject, name::ETAG)?.is_some();
        let mut object = None;
        if explicit
            && let Ok(parsed) = Key::parse(key)
            && let Slot::Dir(found) = self.inner.slot(self.bucket, &parsed)?
            && found.is_explicit()
        {
            object = Some(listed(key, &found));
        }
        self.pending = Some((key.to_owned(), Some(dir)));
        Ok(object)
    }

    /// Opens a directory by its key; none when it is gone or may not be read.
    fn open(&self, key: &str) -> Result<Option<OwnedFd>> {
        let opened = match self.levels.last() {
            Some(level) if key.len() > level.prefix.len() && key.starts_with(&level.prefix) => {
                let name = key[level.prefix.len()..].trim_end_matches('/');
                self.inner.fs.open_beneath(&level.dir, name, DIR)
            }
            _ => self.bucket.open(key.trim_end_matches('/'), DIR),
        };
        match opened {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if is_absent(error) => Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => {
                tracing::warn!(
                    path = self.bucket.display(key),
                    "listing leaves out a directory that it may not read"
                );
                Ok(None)
            }
            Err(error) => Err(Error::fs("open directory", &self.bucket.display(key), error)),
        }
    }

    fn push(&mut self, dir: OwnedFd, prefix: String, upto: Option<Vec<u8>>) -> Result<()> {
        let from =
            self.start.strip_prefix(prefix.as_bytes()).map(|rest| head(rest).to_vec()).unwrap_or_default();
        let batch = self.batch(&dir, &prefix, &from, upto.as_deref())?;
        let at = batch.names.seek(&from);
        self.levels.push(Level { dir, prefix, batch, at, upto });
        Ok(())
    }

    /// Goes on in the same directory after the end of its batch.
    fn refill(&mut self, from: &[u8]) -> Result<()> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        // A jump may have led past the end of the batch.
        let from = match self.start.strip_prefix(level.prefix.as_bytes()) {
            Some(rest) => from.max(head(rest)).to_vec(),
            None => from.to_vec(),
        };
        let batch = self.batch(&level.dir, &level.prefix, &from, level.upto.as_deref())?;
        if let Some(level) = self.levels.last_mut() {
            level.at = batch.names.seek(&from);
            level.batch = batch;
        }
        Ok(())
    }

    fn batch(&self, dir: &OwnedFd, prefix: &str, from: &[u8], upto: Option<&[u8]>) -> Result<Arc<Batch>> {
        self.inner
            .batches
            .get(dir, from, upto)
            .map_err(|error| Error::fs("read directory", &self.bucket.display(prefix), error))
    }
}
