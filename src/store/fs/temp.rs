//! Files that nobody sees yet, and the steps that give them their name.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self as rfs, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Fs, FsOp, Ownership, stat_at};

/// A new file without a name, or where the file system has no such thing with one in the bucket's
/// directory of temporary data. Dropped before it is published, nothing of it remains.
#[derive(Debug)]
pub(crate) struct Temp {
    file: Arc<File>,
    /// The bucket's `.sgwtmp`.
    dir: Arc<OwnedFd>,
    /// Its name there, unless it has none.
    name: Option<String>,
    /// Whether the name stays when this is dropped.
    kept: bool,
}

impl Temp {
    pub(crate) fn create(fs: &Fs, dir: &Arc<OwnedFd>, owner: &Ownership, label: &str) -> Result<Self, Errno> {
        fs.note(FsOp::Create, label)?;
        let mode = Mode::from_raw_mode(owner.file_mode);
        if !fs.no_tmpfile {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            match rfs::openat(dir, ".", flags, mode) {
                Ok(fd) => {
                    fs.chown(&fd, owner)?;
                    return Ok(Self {
                        file: Arc::new(File::from(fd)),
                        dir: Arc::clone(dir),
                        name: None,
                        kept: false,
                    });
                }
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS | Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        let name = random_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rfs::openat(dir, &name, flags, mode)?;
        let temp =
            Self { file: Arc::new(File::from(fd)), dir: Arc::clone(dir), name: Some(name), kept: false };
        // Tells a sweep that somebody is still at it; where locks do not work, age alone counts.
        let _ = rfs::flock(&temp.file, FlockOperation::NonBlockingLockShared);
        fs.chown(&temp.file, owner)?;
        Ok(temp)
    }

    /// Takes over a file that already has a name in `dir`.
    pub(crate) fn adopt(file: File, dir: &Arc<OwnedFd>, name: &str) -> Self {
        Self { file: Arc::new(file), dir: Arc::clone(dir), name: Some(name.to_owned()), kept: false }
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// As [`adopt`](Self::adopt), but the file stays there if it is not published.
    pub(crate) fn adopt_kept(file: File, dir: &Arc<OwnedFd>, name: &str) -> Self {
        Self { file: Arc::new(file), dir: Arc::clone(dir), name: Some(name.to_owned()), kept: true }
    }

    /// Gives the file its name unless that exists: `EXIST`.
    pub(crate) fn link_new(&mut self, fs: &Fs, to_dir: impl AsFd, to: &str) -> Result<(), Errno> {
        let Some(name) = self.name.clone() else {
            fs.note(FsOp::Link, to)?;
            let proc = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            return rfs::linkat(rfs::CWD, proc, to_dir, to, AtFlags::SYMLINK_FOLLOW);
        };
        match fs.rename_new(&self.dir, &name, &to_dir, to) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            other => {
                if other.is_ok() {
                    self.name = None;
                }
                return other;
            }
        }
        match fs.link(&self.dir, &name, &to_dir, to) {
            Ok(()) => Ok(()), // the temporary name goes when this value is dropped
            // No hard links either. The caller holds the key's lock, so look and then rename.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => match stat_at(&to_dir, to) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => self.replace(fs, to_dir, to),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Gives the file its name in place of what had it, in one step. The helper name that this
    /// takes is in `.sgwtmp`, so that a crash leaves nothing in a listing.
    pub(crate) fn replace(&mut self, fs: &Fs, to_dir: impl AsFd, to: &str) -> Result<(), Errno> {
        let name = match self.name.clone() {
            Some(name) => name,
            None => {
                let helper = random_name();
                fs.note(FsOp::Link, &helper)?;
                let proc = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                rfs::linkat(rfs::CWD, proc, &self.dir, &helper, AtFlags::SYMLINK_FOLLOW)?;
                self.name = Some(helper.clone());
                helper
            }
        };
        fs.rename(&self.dir, &name, to_dir, to)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if let Some(name) = self.name.take()
            && !self.kept
            && let Err(error) = rfs::unlinkat(&self.dir, &name, AtFlags::empty())
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
