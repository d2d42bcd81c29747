//! Files that nobody sees yet, and the steps that give them their name.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self as rfs, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::super::key::TEMP_DIR;
use super::{Fs, FsOp, Ownership, stat_at};

/// A new file without a name, or where the file system has no such thing with one in the bucket's
/// directory of temporary data. Dropped before it is published, nothing of it remains.
#[derive(Debug)]
pub(crate) struct Temp {
    file: Arc<File>,
    /// Its name and the directory in which it has it, unless it has none.
    name: Option<(OwnedFd, String)>,
    /// Whether the name stays when this is dropped.
    kept: bool,
}

impl Temp {
    /// Makes one in the directory of temporary data below `home`, the directory of a bucket.
    pub(crate) fn create(fs: &Fs, home: impl AsFd, owner: &Ownership, label: &str) -> Result<Self, Errno> {
        fs.note(FsOp::Create, label)?;
        let mode = Mode::from_raw_mode(owner.file_mode);
        if !fs.no_tmpfile {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let open = || rfs::openat(&home, TEMP_DIR, flags, mode);
            let opened = match open() {
                Err(Errno::NOENT) => fs.temp_dir(&home, owner).and_then(|_| open()),
                other => other,
            };
            match opened {
                Ok(fd) => {
                    fs.chown(&fd, owner)?;
                    return Ok(Self { file: Arc::new(File::from(fd)), name: None, kept: false });
                }
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS | Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        let dir = fs.temp_dir(&home, owner)?;
        let name = random_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rfs::openat(&dir, &name, flags, mode)?;
        let temp = Self { file: Arc::new(File::from(fd)), name: Some((dir, name)), kept: false };
        // Tells a sweep that somebody is still at it; where locks do not work, age alone counts.
        let _ = rfs::flock(&temp.file, FlockOperation::NonBlockingLockShared);
        fs.chown(&temp.file, owner)?;
        Ok(temp)
    }

    /// Takes over a file that already has a name in `dir`.
    pub(crate) fn adopt(file: File, dir: OwnedFd, name: &str) -> Self {
        Self { file: Arc::new(file), name: Some((dir, name.to_owned())), kept: false }
    }

    /// As [`adopt`](Self::adopt), but the file stays there if it is not published.
    pub(crate) fn adopt_kept(file: File, dir: OwnedFd, name: &str) -> Self {
        Self { file: Arc::new(file), name: Some((dir, name.to_owned())), kept: true }
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives the file its name unless that exists: `EXIST`.
    pub(crate) fn link_new(&mut self, fs: &Fs, to_dir: impl AsFd, to: &str) -> Result<(), Errno> {
        let Some((dir, name)) = &self.name else {
            fs.note(FsOp::Link, to)?;
            return rfs::linkat(rfs::CWD, self.in_proc(), to_dir, to, AtFlags::SYMLINK_FOLLOW);
        };
        match fs.rename_new(dir, name, &to_dir, to) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            other => {
                if other.is_ok() {
                    self.name = None;
                }
                return other;
            }
        }
        match fs.link(dir, name, &to_dir, to) {
            Ok(()) => {
                self.kept = false; // the temporary name goes when this value is dropped
                Ok(())
            }
            // No hard links either. The caller holds the key's lock, so look and then rename.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => match stat_at(&to_dir, to) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => self.rename(fs, to_dir, to),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Gives the file its name in place of what had it, in one step. The helper name that an unnamed
    /// file needs for that is in the directory of temporary data below `home`, so that a crash leaves
    /// nothing in a listing.
    pub(crate) fn replace(
        &mut self,
        fs: &Fs,
        home: impl AsFd,
        owner: &Ownership,
        to_dir: impl AsFd,
        to: &str,
    ) -> Result<(), Errno> {
        if self.name.is_none() {
            let dir = fs.temp_dir(home, owner)?;
            let helper = random_name();
            fs.note(FsOp::Link, &helper)?;
            rfs::linkat(rfs::CWD, self.in_proc(), &dir, &helper, AtFlags::SYMLINK_FOLLOW)?;
            self.name = Some((dir, helper));
        }
        self.rename(fs, to_dir, to)
    }

    fn rename(&mut self, fs: &Fs, to_dir: impl AsFd, to: &str) -> Result<(), Errno> {
        let Some((dir, name)) = &self.name else { return Err(Errno::INVAL) };
        fs.rename(dir, name, to_dir, to)?;
        self.name = None;
        Ok(())
    }

    /// The path by which an open file without a name can be linked.
    fn in_proc(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if let Some((dir, name)) = self.name.take()
            && !self.kept
            && let Err(error) = rfs::unlinkat(&dir, &name, AtFlags::empty())
            && error != Errno::NOENT
        {
            tracing::warn!(name, %error, "a temporary file could not be removed; the next sweep will");
        }
    }
}

/// A name that no other process takes: 128 random bits.
pub(crate) fn random_name() -> String {
    hex::encode(random_bytes::<16>())
}

/// Random bytes from the kernel.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        // Names must be unique, not secret: time and a counter do when the kernel has no randomness yet.
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| u64::try_from(d.as_nanos() & u128::from(u64::MAX)).unwrap_or(0));
        let seed = [nanos.to_le_bytes(), COUNTER.fetch_add(1, Ordering::Relaxed).to_le_bytes()].concat();
        for (byte, source) in bytes.iter_mut().zip(seed.iter().cycle()) {
            *byte = *source;
        }
    }
    bytes
}
