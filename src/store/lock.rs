//! Locks on keys, good among processes and, where the file system says so, among machines.
//!
//! A lock is held for the moment in which a write looks at what is there and puts its own in place,
//! never while a body arrives. 256 lock files in `.sgwtmp/locks` of each bucket serve all its keys,
//! chosen by a hash of the key: nothing needs to be cleaned up, and a crash releases the lock.

mod reach;

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{self as rfs, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::bucket::Bucket;
use super::error::Result;
use super::fs::{Fs, Ownership, stat};
use super::types::LockMode;
pub(crate) use reach::{Reach, reach_of_flock};

/// The directory of lock files below `.sgwtmp`.
pub(crate) const LOCK_DIR: &str = "locks";

/// Locks inside this process.
const IN_PROCESS: usize = 256;

/// A lock that ends when this value is dropped.
#[derive(Debug)]
pub(crate) enum KeyLock<'a> {
    /// An open, locked file.
    File(#[expect(dead_code, reason = "held for its lock")] OwnedFd),
    /// A mutex of this process.
    Process(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'a, ()>),
    /// None needed: nothing can be written here.
    Nothing,
}

/// Gives out locks.
#[derive(Debug)]
pub(crate) struct Locks {
    mode: LockMode,
    process: Vec<Mutex<()>>,
    /// Apart from those of keys: who holds one of these takes one of those.
    uploads: Vec<Mutex<()>>,
}

impl Locks {
    pub(crate) fn new(mode: LockMode) -> Self {
        let mutexes = || (0..IN_PROCESS).map(|_| Mutex::new(())).collect();
        Self { mode, process: mutexes(), uploads: mutexes() }
    }

    /// Waits for the exclusive lock of a key. A thread holds one at a time.
    pub(crate) fn exclusive(
        &self,
        fs: &Fs,
        owner: &Ownership,
        bucket: &Bucket,
        key: &str,
    ) -> Result<KeyLock<'_>> {
        if self.mode == LockMode::Process {
            return Ok(in_process(&self.process, &(bucket.name(), key)));
        }
        lock_file(fs, owner, bucket, &file_name(key), FlockOperation::LockExclusive)
            .map(KeyLock::File)
            .map_err(|error| bucket.error("lock", key, error))
    }

    /// Waits until nobody has the exclusive lock of a key. Where there is no lock file, or it may not
    /// be opened, nobody has it; a reader makes none.
    pub(crate) fn shared(&self, bucket: &Bucket, key: &str) -> Result<KeyLock<'_>> {
        if self.mode == LockMode::Process {
            return Ok(in_process(&self.process, &(bucket.name(), key)));
        }
        let path = format!("{}/{LOCK_DIR}/{}", super::key::TEMP_DIR, file_name(key));
        // Some network file systems lock only what is open for writing.
        match bucket.open(&path, OFlags::RDWR) {
            Ok(file) => {
                flock(&file, FlockOperation::LockShared).map_err(|error| bucket.error("lock", key, error))?;
                Ok(KeyLock::File(file))
            }
            Err(Errno::NOENT | Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(KeyLock::Nothing),
            Err(error) => Err(bucket.error("lock", key, error)),
        }
    }

    /// Waits for the lock of an upload, inside this process.
    pub(crate) fn upload(&self, id: &str) -> KeyLock<'_> {
        in_process(&self.uploads, &id)
    }

    /// Waits for every lock of a bucket that is to be removed, and removes the lock files.
    pub(crate) fn remove_all(&self, fs: &Fs, bucket: &Bucket) -> Result<(), Errno> {
        let dir = match bucket.open(&format!("{}/{LOCK_DIR}", super::key::TEMP_DIR), super::fs::DIR) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        for (name, _) in super::fs::entries(&dir)? {
            if let Ok(file) = fs.open_beneath(&dir, &name, OFlags::RDWR) {
                flock(&file, FlockOperation::LockExclusive)?;
                fs.unlink(&dir, &name)?;
            }
        }
        Ok(())
    }
}

/// The lock file that a key shares with others.
fn file_name(key: &str) -> String {
    format!("{:02x}", Sha256::digest(key.as_bytes())[0])
}

fn in_process<'a>(mutexes: &'a [Mutex<()>], of: &impl Hash) -> KeyLock<'a> {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    let mutex = &mutexes[usize::try_from(hasher.finish() % mutexes.len() as u64).unwrap_or(0)];
    // The mutex guards no data, so a panic elsewhere leaves nothing half done in it.
    KeyLock::Process(mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

fn lock_file(
    fs: &Fs,
    owner: &Ownership,
    bucket: &Bucket,
    name: &str,
    operation: FlockOperation,
) -> Result<OwnedFd, Errno> {
    for _ in 0..super::commit::TRIES {
        let path = format!("{}/{LOCK_DIR}/{name}", super::key::TEMP_DIR);
        let file = match bucket.open(&path, OFlags::RDWR) {
            Err(Errno::NOENT) => match make_lock_file(fs, owner, bucket, name) {
                // Somebody removes the lock files, and perhaps the bucket with them.
                Err(Errno::NOENT) if !bucket.is_gone() => continue,
                // No room for it. All who find none agree on the bucket's directory, so that room can
                // still be made by deleting what was never locked before.
                Err(Errno::NOSPC | Errno::DQUOT) => bucket.open("", super::fs::DIR)?,
                other => other?,
            },
            other => other?,
        };
        flock(&file, operation)?;
        // A removed bucket takes its lock files along; a lock on one of those protects nothing.
        if stat(&file)?.st_nlink > 0 {
            return Ok(file);
        }
    }
    Err(Errno::NOENT)
}

fn make_lock_file(fs: &Fs, owner: &Ownership, bucket: &Bucket, name: &str) -> Result<OwnedFd, Errno> {
    let temp = bucket.temp_dir(fs, owner)?;
    let (dir, _) = fs.make_dirs(&temp, LOCK_DIR, owner)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(0o600 | (owner.file_mode & 0o066));
    let file = rfs::openat(dir, name, flags, mode)?;
    fs.chown(&file, owner)?;
    Ok(file)
}

/// `flock` that waits through signals.
pub(crate) fn flock(file: &OwnedFd, operation: FlockOperation) -> Result<(), Errno> {
    loop {
        match rfs::flock(file, operation) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
