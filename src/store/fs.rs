//! The file layer: each change that the store makes to the file system passes here, below an open
//! directory descriptor, so that paths cannot escape and tests can see the order and inject errors.

mod copy;
mod direct;
mod temp;
mod xattr;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    self as rfs, AtFlags, FallocateFlags, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid,
};
use rustix::io::Errno;

use super::key::TEMP_DIR;
pub(crate) use direct::DirectFile;
pub(crate) use temp::{Temp, random_bytes, random_name};

/// A change to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsOp {
    /// Opening a new file, unnamed or temporary.
    Create,
    /// Reserving space.
    Reserve,
    /// Writing data.
    Write,
    /// Copying data between files.
    Copy,
    /// Opening a file once more, past the page cache. Changes nothing; the other way is taken when it
    /// fails.
    OpenDirect,
    /// Setting or removing an attribute.
    SetAttribute,
    /// Making a file's data and attributes durable.
    SyncFile,
    /// Making a directory's entries durable.
    SyncDir,
    /// Making a directory.
    MakeDir,
    /// Giving a file a name that did not exist.
    Link,
    /// Moving a file or directory.
    Rename,
    /// Removing a file's name.
    Unlink,
    /// Removing a directory.
    RemoveDir,
}

/// Is told of each change before it is made, and can make it fail. For tests.
pub trait FsObserver: Send + Sync {
    /// `name` is the last component, or the key, of what is changed.
    ///
    /// # Errors
    /// An error is what the operation then fails with.
    fn before(&self, op: FsOp, name: &str) -> io::Result<()>;
}

/// The file system with the ways that this kernel lacks remembered.
pub(crate) struct Fs {
    observer: Option<Arc<dyn FsObserver>>,
    no_openat2: AtomicBool,
    said: direct::Said,
    pub(crate) no_tmpfile: bool,
    pub(crate) no_copy_range: bool,
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs").field("no_tmpfile", &self.no_tmpfile).finish_non_exhaustive()
    }
}

/// Owner and mode of what the store makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ownership {
    pub(crate) dir_mode: u32,
    pub(crate) file_mode: u32,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

impl Ownership {
    fn chowns(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

/// Flags to open a directory for its entries.
pub(crate) const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// Flags to open a file for reading: never blocks on a FIFO, never takes a terminal.
pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// `f_type` of tmpfs (statfs(2)).
const TMPFS_MAGIC: rfs::FsWord = 0x0102_1994;

impl Fs {
    pub(crate) fn new(no_tmpfile: bool, no_copy_range: bool, observer: Option<Arc<dyn FsObserver>>) -> Self {
        // O_TMPFILE files are published through /proc; without it they could never be.
        let no_proc = rfs::stat("/proc/self/fd").is_err();
        Self {
            observer,
            no_openat2: AtomicBool::new(false),
            said: direct::Said::default(),
            no_tmpfile: no_tmpfile || no_proc,
            no_copy_range,
        }
    }

    /// Behaves as on kernels before 5.6.
    #[cfg(test)]
    pub(crate) fn forget_openat2(&self) {
        self.no_openat2.store(true, Ordering::Relaxed);
    }

    /// Tells the observer; its error becomes the operation's.
    pub(crate) fn note(&self, op: FsOp, name: &str) -> Result<(), Errno> {
        match &self.observer {
            None => Ok(()),
            Some(observer) => {
                observer.before(op, name).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
        }
    }

    /// Opens `path` below `dir`, following no symbolic link and never leaving `dir`. An empty path
    /// opens `dir` itself once more.
    pub(crate) fn open_beneath(&self, dir: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if path.is_empty() {
            return rfs::openat(dir, ".", flags, Mode::empty());
        }
        if !self.no_openat2.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
            loop {
                match rfs::openat2(&dir, path, flags, Mode::empty(), resolve) {
                    // A rename elsewhere was in the way; the kernel asks to try again.
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(Errno::NOSYS | Errno::PERM) => {
                        self.no_openat2.store(true, Ordering::Relaxed);
                        break;
                    }
                    other => return other,
                }
            }
        }
        open_by_component(dir.as_fd(), path, flags)
    }

    /// Opens the directory `path` below `dir`, making what is missing. The second value holds the
    /// directories that got a new entry, outermost first, to be synced.
    pub(crate) fn make_dirs(
        &self,
        dir: impl AsFd,
        path: &str,
        owner: &Ownership,
    ) -> Result<(OwnedFd, Vec<OwnedFd>), Errno> {
        'again: for _ in 0..1000 {
            match self.open_beneath(&dir, path, DIR) {
                Err(Errno::NOENT) => {}
                other => return other.map(|fd| (fd, Vec::new())),
            }
            let mut changed = Vec::new();
            let mut at = self.open_beneath(&dir, "", DIR)?;
            for component in path.split('/') {
                let made = match self.make_dir(&at, component, owner) {
                    Ok(()) => true,
                    Err(Errno::EXIST) => false,
                    // A delete removed the directory that we stand in.
                    Err(Errno::NOENT) => continue 'again,
                    Err(error) => return Err(error),
                };
                let next = match self.open_beneath(&at, component, DIR) {
                    Err(Errno::NOENT) => continue 'again,
                    other => other?,
                };
                let parent = std::mem::replace(&mut at, next);
                if made {
                    changed.push(parent);
                }
            }
            return Ok((at, changed));
        }
        Err(Errno::NOENT)
    }

    /// As [`make_dirs`](Self::make_dirs), with what is made on stable storage when `sync` says so: for
    /// directories that are made on the way to something else and whose loss would take it along.
    pub(crate) fn make_dirs_durably(
        &self,
        dir: impl AsFd,
        path: &str,
        owner: &Ownership,
        sync: bool,
    ) -> Result<OwnedFd, Errno> {
        let (made, changed) = self.make_dirs(dir, path, owner)?;
        for dir in changed.iter().rev().filter(|_| sync) {
            self.sync_dir(dir, path)?;
        }
        Ok(made)
    }

    /// The directory of temporary data in `home`. Made when it is not there, and then durable at any
    /// level, since pending uploads are below it; that happens once in a bucket's life.
    pub(crate) fn temp_dir(&self, home: impl AsFd, owner: &Ownership) -> Result<OwnedFd, Errno> {
        self.make_dirs_durably(home, TEMP_DIR, owner, true)
    }

    pub(crate) fn make_dir(&self, dir: impl AsFd, name: &str, owner: &Ownership) -> Result<(), Errno> {
        self.note(FsOp::MakeDir, name)?;
        rfs::mkdirat(&dir, name, Mode::from_raw_mode(owner.dir_mode))?;
        if owner.chowns() {
            let (uid, gid) = (owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw));
            rfs::chownat(&dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    pub(crate) fn chown(&self, file: impl AsFd, owner: &Ownership) -> Result<(), Errno> {
        if owner.chowns() {
            rfs::fchown(file, owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw))?;
        }
        Ok(())
    }

    /// Reserves space so that a full disk shows before the body is taken; file systems that cannot
    /// do without. On tmpfs, where reserving is to get page after page from the kernel, it only looks
    /// whether there is room: otherwise the writes, which run side by side, would wait for that.
    pub(crate) fn reserve(&self, file: impl AsFd, size: u64, name: &str) -> Result<(), Errno> {
        self.note(FsOp::Reserve, name)?;
        if rfs::fstatfs(&file).is_ok_and(|found| found.f_type == TMPFS_MAGIC) {
            let found = rfs::fstatvfs(&file)?;
            // Without a limit there are no blocks to count.
            let is_full = found.f_blocks > 0 && found.f_bavail.saturating_mul(found.f_frsize) < size;
            return if is_full { Err(Errno::NOSPC) } else { Ok(()) };
        }
        match rfs::fallocate(file, FallocateFlags::empty(), 0, size) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes data and attributes durable. `fsync`, not `fdatasync`: the attributes are part of what
    /// is acknowledged, and a new file's size and blocks are written by either.
    pub(crate) fn sync_file(&self, file: impl AsFd, name: &str) -> Result<(), Errno> {
        self.note(FsOp::SyncFile, name)?;
        rfs::fsync(file)
    }

    pub(crate) fn sync_dir(&self, dir: impl AsFd, name: &str) -> Result<(), Errno> {
        self.note(FsOp::SyncDir, name)?;
        match rfs::fsync(dir) {
            // Some file systems cannot sync directories, and need not.
            Err(Errno::INVAL) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn rename(
        &self,
        from_dir: impl AsFd,
        from: &str,
        to_dir: impl AsFd,
        to: &str,
    ) -> Result<(), Errno> {
        self.note(FsOp::Rename, to)?;
        rfs::renameat(from_dir, from, to_dir, to)
    }

    /// Moves unless the target exists (`EXIST`). `INVAL` or `NOSYS` where the file system cannot.
    pub(crate) fn rename_new(
        &self,
        from_dir: impl AsFd,
        from: &str,
        to_dir: impl AsFd,
        to: &str,
    ) -> Result<(), Errno> {
        self.note(FsOp::Rename, to)?;
        rfs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE)
    }

    pub(crate) fn link(
        &self,
        from_dir: impl AsFd,
        from: &str,
        to_dir: impl AsFd,
        to: &str,
    ) -> Result<(), Errno> {
        self.note(FsOp::Link, to)?;
        rfs::linkat(from_dir, from, to_dir, to, AtFlags::empty())
    }

    pub(crate) fn unlink(&self, dir: impl AsFd, name: &str) -> Result<(), Errno> {
        self.note(FsOp::Unlink, name)?;
        rfs::unlinkat(dir, name, AtFlags::empty())
    }

    pub(crate) fn remove_dir(&self, dir: impl AsFd, name: &str) -> Result<(), Errno> {
        self.note(FsOp::RemoveDir, name)?;
        rfs::unlinkat(dir, name, AtFlags::REMOVEDIR)
    }

    /// Removes a directory with all below it, following no links.
    pub(crate) fn remove_tree(&self, dir: impl AsFd, name: &str) -> Result<(), Errno> {
        let inner = match self.open_beneath(&dir, name, DIR) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        for (entry, is_dir) in entries(&inner)? {
            let result = if is_dir { self.remove_tree(&inner, &entry) } else { self.unlink(&inner, &entry) };
            match result {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        match self.remove_dir(dir, name) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// Replaces the small file `name` in one step.
    pub(crate) fn write_small(
        &self,
        dir: impl AsFd,
        name: &str,
        data: &[u8],
        owner: &Ownership,
        sync: bool,
    ) -> Result<(), Errno> {
        let helper = temp::random_name();
        self.note(FsOp::Create, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = File::from(rfs::openat(&dir, &helper, flags, Mode::from_raw_mode(owner.file_mode))?);
        let written = (|| {
            self.chown(&file, owner)?;
            self.note(FsOp::Write, name)?;
            io::Write::write_all(&mut &file, data)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            if sync {
                self.sync_file(&file, name)?;
            }
            self.rename(&dir, &helper, &dir, name)
        })();
        if written.is_err() {
            let _ = self.unlink(&dir, &helper);
        }
        written?;
        if sync { self.sync_dir(&dir, name) } else { Ok(()) }
    }
}

/// The old way: one component at a time, none of them a symbolic link.
fn open_by_component(dir: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut at: Option<OwnedFd> = None;
    let (parents, name) = path.rsplit_once('/').map_or(("", path), |(parents, name)| (parents, name));
    for component in parents.split('/').filter(|_| !parents.is_empty()).chain([name]) {
        if matches!(component, "" | "." | "..") {
            return Err(Errno::INVAL);
        }
    }
    for component in parents.split('/').filter(|_| !parents.is_empty()) {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = at.as_ref().map_or(dir, |fd| fd.as_fd());
        at = Some(rfs::openat(from, component, step, Mode::empty())?);
    }
    rfs::openat(at.as_ref().map_or(dir, |fd| fd.as_fd()), name, flags, Mode::empty())
}

/// `fstat`.
pub(crate) fn stat(file: impl AsFd) -> Result<Stat, Errno> {
    rfs::fstat(file)
}

/// `fstatat` that follows no link.
pub(crate) fn stat_at(dir: impl AsFd, name: &str) -> Result<Stat, Errno> {
    rfs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Whether it is a directory.
pub(crate) fn is_dir(stat: &Stat) -> bool {
    rfs::FileType::from_raw_mode(stat.st_mode).is_dir()
}

/// Whether it is a regular file.
pub(crate) fn is_file(stat: &Stat) -> bool {
    rfs::FileType::from_raw_mode(stat.st_mode).is_file()
}

/// Modification time.
pub(crate) fn modified(stat: &Stat) -> std::time::SystemTime {
    from_unix(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

/// When a file was made, where the file system tells.
pub(crate) fn born(file: impl AsFd) -> Option<std::time::SystemTime> {
    let statx = rfs::statx(file, "", AtFlags::EMPTY_PATH, rfs::StatxFlags::BTIME).ok()?;
    let known = statx.stx_mask & rfs::StatxFlags::BTIME.bits() != 0;
    known.then(|| from_unix(statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec))
}

/// A time of the file system as a `SystemTime`.
pub(crate) fn from_unix(seconds: i64, nanos: u32) -> std::time::SystemTime {
    let epoch = std::time::UNIX_EPOCH;
    let whole = std::time::Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { epoch.checked_sub(whole) } else { epoch.checked_add(whole) };
    base.and_then(|t| t.checked_add(std::time::Duration::from_nanos(nanos.into()))).unwrap_or(epoch)
}

/// Calls `each` with name and type of all entries but `.` and `..`, until it returns false. The type
/// is looked up where the directory does not tell.
pub(crate) fn for_each_entry(
    dir: impl AsFd,
    mut each: impl FnMut(&[u8], rfs::FileType) -> bool,
) -> Result<(), Errno> {
    let dir = dir.as_fd();
    rfs::seek(dir, rfs::SeekFrom::Start(0))?;
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut raw = rfs::RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        let entry = match entry {
            Err(Errno::INTR) => continue,
            // The directory was removed while it was read.
            Err(Errno::NOENT) => break,
            other => other?,
        };
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            rfs::FileType::Unknown => match rfs::statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => rfs::FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            },
            kind => kind,
        };
        if !each(name, kind) {
            break;
        }
    }
    Ok(())
}

/// Names (those in UTF-8) of all entries, and whether each is a directory.
pub(crate) fn entries(dir: impl AsFd) -> Result<Vec<(String, bool)>, Errno> {
    let mut all = Vec::new();
    for_each_entry(dir, |name, kind| {
        if let Ok(name) = std::str::from_utf8(name) {
            all.push((name.to_owned(), kind.is_dir()));
        }
        true
    })?;
    Ok(all)
}

/// Whether a directory, just opened, has no entries.
pub(crate) fn is_empty_dir(dir: impl AsFd) -> Result<bool, Errno> {
    // Room for a few entries only: the kernel fills what it is given, and the first one decides.
    let mut buffer = Vec::with_capacity(1 << 10);
    let mut raw = rfs::RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            Ok(_) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(Errno::NOENT) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/a/b")).unwrap();
        std::fs::write(dir.path().join("root/a/b/file"), "inside").unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        symlink("../secret", dir.path().join("root/up")).unwrap();
        symlink("a", dir.path().join("root/within")).unwrap();
        symlink("/", dir.path().join("root/a/absolute")).unwrap();
        let root = std::fs::File::open(dir.path().join("root")).unwrap();
        (dir, root.into())
    }

    /// On kernels with `openat2` and on those without.
    #[test]
    fn nothing_leads_out() {
        for old_kernel in [false, true] {
            let fs = Fs::new(false, false, None);
            if old_kernel {
                fs.forget_openat2();
            }
            let (_dir, root) = tree();
            let open = |path: &str| fs.open_beneath(&root, path, READ).map(|_| ());
            for inside in ["", "a", "a/b", "a/b/file"] {
                assert_eq!(open(inside), Ok(()), "{inside}");
            }
            for outside in [
                "up",
                "within",
                "within/b",
                "a/absolute",
                "a/absolute/etc",
                "../secret",
                "a/../../secret",
                "..",
                "/etc/passwd",
                "a/b/file/x",
                "none",
                "none/x",
                "/proc/self/root",
            ] {
                assert!(open(outside).is_err(), "{outside}");
            }
            let (made, changed) = fs.make_dirs(&root, "x/y/z", &OWNER).unwrap();
            assert!(is_dir(&stat(made).unwrap()));
            assert_eq!(changed.len(), 3);
            assert_eq!(fs.make_dirs(&root, "x/y/z", &OWNER).unwrap().1.len(), 0);
            assert!(fs.make_dirs(&root, "within/c", &OWNER).is_err());
            assert!(fs.make_dirs(&root, "a/b/file/c", &OWNER).is_err());
            fs.remove_tree(&root, "a").unwrap();
            assert_eq!(open("a"), Err(Errno::NOENT));
            assert!(std::fs::read_dir("/etc").is_ok(), "links are removed, not followed");
        }
    }

    const OWNER: Ownership = Ownership { dir_mode: 0o755, file_mode: 0o644, uid: None, gid: None };

    #[test]
    fn a_small_file_is_replaced_whole() {
        let (_dir, root) = tree();
        let fs = Fs::new(false, false, None);
        for text in ["first", "2"] {
            fs.write_small(&root, "small", text.as_bytes(), &OWNER, true).unwrap();
            let file = File::from(fs.open_beneath(&root, "small", READ).unwrap());
            assert_eq!(io::read_to_string(file).unwrap(), text);
        }
        assert_eq!(entries(fs.open_beneath(&root, "", DIR).unwrap()).unwrap().len(), 4, "no helper is left");
    }

    #[test]
    fn times() {
        assert_eq!(from_unix(0, 0), std::time::UNIX_EPOCH);
        assert!(from_unix(-1, 0) < from_unix(0, 0));
    }
}
