//! Sorted runs of a directory's entries.
//!
//! A directory gives its entries in no order, so a page of it takes a pass over all of them. One
//! pass keeps the next [`BATCH`] names in order, which serves many pages: paging through N entries
//! takes N / BATCH passes, and memory does not grow with the directory. A batch is kept between
//! requests under the directory's identity and change time, read before and after the pass and
//! compared at each use: whoever adds or removes an entry, on whatever machine, changes that time, so
//! a kept batch is never used for a directory that has changed.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::Stat;
use rustix::io::Errno;

use super::super::fs::{for_each_entry, modified, stat};
use super::super::key::is_listed_name;

/// Names in a batch.
const BATCH: usize = 128 << 10;
/// Smaller batches are read again rather than kept.
const KEEP_FROM: usize = 2048;
/// Most bytes of kept batches.
const KEPT_BYTES: usize = 24 << 20;
/// A directory changed as lately as this may change again within the same tick of the clock that
/// stamps it, unseen; its batches are not kept. Generous for clocks of other machines.
const SETTLED: Duration = Duration::from_secs(3);

/// Names in byte order, directories with a slash at the end.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    spans: Vec<(u32, u16)>,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        self.spans.get(at).map(|&span| text(&self.bytes, span))
    }

    /// The first name that is not less than `bound`.
    pub(crate) fn seek(&self, bound: &[u8]) -> usize {
        self.spans.partition_point(|&span| text(&self.bytes, span) < bound)
    }

    fn push(&mut self, name: &[u8]) {
        // A name has at most 255 bytes and a slash, and a batch is cut long before 4 GiB.
        if let (Ok(start), Ok(length)) = (u32::try_from(self.bytes.len()), u16::try_from(name.len())) {
            self.bytes.extend_from_slice(name);
            self.spans.push((start, length));
        }
    }

    /// Keeps the smallest `count`, in order; true when any were dropped.
    fn keep_smallest(&mut self, count: usize) -> bool {
        let cut = self.spans.len() > count;
        let bytes = &self.bytes;
        if cut {
            self.spans.select_nth_unstable_by(count, |&a, &b| text(bytes, a).cmp(text(bytes, b)));
            self.spans.truncate(count);
        }
        self.spans.sort_unstable_by(|&a, &b| text(bytes, a).cmp(text(bytes, b)));
        if cut {
            let mut compact = Self::default();
            for &span in &self.spans {
                compact.push(text(bytes, span));
            }
            *self = compact;
        }
        cut
    }

    fn size(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<(u32, u16)>()
    }
}

fn text(bytes: &[u8], (start, length): (u32, u16)) -> &[u8] {
    let start = start as usize;
    &bytes[start..start + usize::from(length)]
}

/// The part of a directory's names from `from` on, below `upto`.
#[derive(Debug)]
pub(crate) struct Batch {
    from: Vec<u8>,
    upto: Option<Vec<u8>>,
    pub(crate) names: Names,
    /// Whether it reaches to the end of the directory (or to `upto`).
    pub(crate) complete: bool,
}

impl Batch {
    fn covers(&self, from: &[u8], upto: Option<&[u8]>) -> bool {
        let last = self.names.len().checked_sub(1).and_then(|at| self.names.get(at));
        let reaches = self.complete || last.is_some_and(|last| from <= last);
        self.from.as_slice() <= from && self.upto.as_deref() == upto && reaches
    }
}

/// Reads the next batch of a directory.
fn read(dir: &OwnedFd, from: &[u8], upto: Option<&[u8]>, limit: usize) -> Result<Batch, Errno> {
    let mut names = Names::default();
    let mut cut: Option<Vec<u8>> = None;
    let mut slashed = Vec::with_capacity(256);
    for_each_entry(dir, |name, kind| {
        if !is_listed_name(name) || !(kind.is_dir() || kind.is_file()) {
            return true;
        }
        let name = if kind.is_dir() {
            slashed.clear();
            slashed.extend_from_slice(name);
            slashed.push(b'/');
            slashed.as_slice()
        } else {
            name
        };
        if name < from || upto.is_some_and(|u| name >= u) || cut.as_deref().is_some_and(|c| name > c) {
            return true;
        }
        names.push(name);
        if names.len() >= 2 * limit {
            names.keep_smallest(limit);
            cut = names.get(limit - 1).map(<[u8]>::to_vec);
        }
        true
    })?;
    let dropped = names.keep_smallest(limit) || cut.is_some();
    names.bytes.shrink_to_fit();
    names.spans.shrink_to_fit();
    Ok(Batch { from: from.to_vec(), upto: upto.map(<[u8]>::to_vec), names, complete: !dropped })
}

/// What a directory is known by and tells its changes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    fn of(stat: &Stat) -> Self {
        let nanos = |n| i64::try_from(n).unwrap_or(0);
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        }
    }
}

/// The batches kept between requests.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    kept: Mutex<Vec<(Mark, Arc<Batch>)>>,
}

impl Batches {
    /// The batch of a directory that holds the names from `from` on, below `upto`.
    pub(crate) fn get(&self, dir: &OwnedFd, from: &[u8], upto: Option<&[u8]>) -> Result<Arc<Batch>, Errno> {
        let before = stat(dir)?;
        let mark = Mark::of(&before);
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|(m, _)| m.inode != mark.inode || m.device != mark.device || *m == mark);
            if let Some(at) = kept.iter().position(|(m, b)| *m == mark && b.covers(from, upto)) {
                let entry = kept.remove(at);
                let batch = Arc::clone(&entry.1);
                kept.push(entry);
                return Ok(batch);
            }
        }
        let settled = SystemTime::now().duration_since(modified(&before)).is_ok_and(|age| age > SETTLED);
        let batch = Arc::new(read(dir, from, upto, BATCH)?);
        if settled && batch.names.len() >= KEEP_FROM && Mark::of(&stat(dir)?) == mark {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push((mark, Arc::clone(&batch)));
            // The latest are at the end; as many stay as there is room for.
            let mut size = 0;
            let full = kept.iter().rposition(|(_, batch)| {
                size += batch.names.size();
                size > KEPT_BYTES
            });
            kept.drain(..full.map_or(0, |at| at + 1));
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn open(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    fn all(names: &Names) -> Vec<String> {
        (0..names.len()).map(|at| String::from_utf8(names.get(at).unwrap().to_vec()).unwrap()).collect()
    }

    #[test]
    fn directories_sort_with_their_slash() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a-b", "a.b", "a0", "b"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::create_dir(dir.path().join(".sgwtmp")).unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("link")).unwrap();
        let batch = read(&open(dir.path()), b"", None, 100).unwrap();
        assert_eq!(all(&batch.names), ["a-b", "a.b", "a/", "a0", "b"]);
        assert!(batch.complete);
        let some = read(&open(dir.path()), b"a.", Some(b"a0"), 100).unwrap();
        assert_eq!(all(&some.names), ["a.b", "a/"]);
    }

    #[test]
    fn batches_join_without_gap_or_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected: Vec<String> = (0..500).map(|n| format!("{:x}", n * 7919 % 4096)).collect();
        for name in &expected {
            fs::write(dir.path().join(name), "").unwrap();
        }
        expected.sort();
        for limit in [1, 7, 100, 499, 500, 1000] {
            let (mut names, mut from) = (Vec::new(), Vec::new());
            loop {
                let batch = read(&open(dir.path()), &from, None, limit).unwrap();
                names.extend(all(&batch.names));
                if batch.complete {
                    break;
                }
                from = [names.last().unwrap().as_bytes(), b"\0"].concat();
            }
            assert_eq!(names, expected, "limit {limit}");
        }
    }

    #[test]
    fn a_kept_batch_is_dropped_when_the_directory_changes() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..KEEP_FROM {
            fs::write(dir.path().join(format!("{n:06}")), "").unwrap();
        }
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(rustix::fs::CWD, dir.path(), &times, rustix::fs::AtFlags::empty()).unwrap();
        let batches = Batches::default();
        let fd = open(dir.path());
        let first = batches.get(&fd, b"", None).unwrap();
        assert!(Arc::ptr_eq(&first, &batches.get(&fd, b"000100", None).unwrap()), "kept");
        fs::write(dir.path().join("new"), "").unwrap();
        let second = batches.get(&fd, b"", None).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(second.names.len(), KEEP_FROM + 1);
        let third = batches.get(&fd, b"", None).unwrap();
        assert!(!Arc::ptr_eq(&second, &third), "too fresh to keep");
    }
}
