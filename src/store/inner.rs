//! What all operations share: the open root, the settings, the means.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self as rfs, Access, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::error::{Error, Result};
use super::fs::{DIR, Fs, FsObserver, Ownership, random_name, stat};
use super::keeper::{Keeper, Means, Sidecar};
use super::list::Batches;
use super::lock::{Locks, Reach, reach_of_flock};
use super::types::{Durability, LockMode, Space, StoreOptions};

/// The store behind its handle.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) root: OwnedFd,
    pub(crate) options: StoreOptions,
    pub(crate) fs: Arc<Fs>,
    pub(crate) owner: Ownership,
    pub(crate) keeper: Keeper,
    pub(crate) locks: Locks,
    /// Where older versions live.
    pub(crate) versions: Option<OwnedFd>,
    pub(crate) batches: Batches,
}

impl Inner {
    pub(crate) fn open(
        root: &Path,
        options: StoreOptions,
        observer: Option<Arc<dyn FsObserver>>,
    ) -> Result<Self> {
        let shown = root.display().to_string();
        let dir = open_dir(root)?;
        let keeper = match &options.sidecar {
            None => Keeper::Attributes,
            Some(path) => {
                outside(root, path, "sidecar")?;
                let sidecar = Sidecar::open(path).map_err(|error| {
                    Error::fs("open the sidecar directory", &path.display().to_string(), error)
                })?;
                Keeper::Sidecar(sidecar)
            }
        };
        let versions = match &options.versioning_dir {
            None => None,
            Some(path) => {
                outside(root, path, "versioning")?;
                Some(open_dir(path)?)
            }
        };
        let fs = Fs::new(options.disable_otmpfile, options.disable_copy_file_range, observer);
        let owner = Ownership {
            dir_mode: options.dir_mode,
            file_mode: options.file_mode,
            uid: options.chown_uid,
            gid: options.chown_gid,
        };
        if !options.read_only {
            check_locks(&dir, &shown, options.lock_mode)?;
        }
        probe(&dir, &shown, &options)?;
        if !options.read_only {
            for path in [&options.versioning_dir, &options.sidecar].into_iter().flatten() {
                let shown = path.display().to_string();
                rfs::access(path, Access::WRITE_OK | Access::EXEC_OK)
                    .map_err(|error| Error::fs("write to the directory", &shown, error))?;
            }
        }
        Ok(Self {
            root: dir,
            fs: Arc::new(fs),
            owner,
            keeper,
            locks: Locks::new(options.lock_mode),
            versions,
            batches: Batches::default(),
            options,
        })
    }

    /// Refuses a write where there are to be none.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::Denied("the store is read-only; writes are switched off".to_owned()));
        }
        Ok(())
    }

    pub(crate) fn space(&self) -> Result<Space> {
        let found =
            rfs::fstatvfs(&self.root).map_err(|error| Error::fs("stat the file system of", ".", error))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { total_bytes: bytes(found.f_blocks), available_bytes: bytes(found.f_bavail) })
    }

    pub(crate) fn means(&self) -> Means<'_> {
        Means { fs: &self.fs, owner: &self.owner, sync: self.sync_files() }
    }

    /// Whether data is synced before it is acknowledged.
    pub(crate) fn sync_files(&self) -> bool {
        self.options.durability != Durability::None
    }

    /// Whether directory entries are too.
    pub(crate) fn sync_names(&self) -> bool {
        self.options.durability == Durability::Full
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    rfs::open(path, DIR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::fs("open directory", &path.display().to_string(), error))
}

/// Refuses a directory inside the root: it would be a bucket, or in one.
fn outside(root: &Path, path: &Path, what: &'static str) -> Result<()> {
    let resolve = |path: &Path| {
        path.canonicalize().map_err(|e| Error::io("find directory", &path.display().to_string(), e))
    };
    if resolve(path)?.starts_with(resolve(root)?) {
        return Err(Error::InvalidArgument(format!(
            "the {what} directory {} is inside the root directory {}; put it elsewhere",
            path.display(),
            root.display()
        )));
    }
    Ok(())
}

/// Tries what every write will need, so that a wrong set-up shows at start.
fn probe(root: &OwnedFd, shown: &str, options: &StoreOptions) -> Result<()> {
    if options.read_only {
        if options.sidecar.is_none()
            && let Err(error @ (Errno::OPNOTSUPP | Errno::NOSYS)) =
                rfs::fgetxattr(root, "user.vgwrdma.probe", &mut [0_u8; 16])
        {
            return Err(no_attributes(shown, error));
        }
        return Ok(());
    }
    let name = format!(".vgwrdma-probe-{}", random_name());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rfs::openat(root, &name, flags, Mode::from_raw_mode(0o600))
        .map_err(|error| Error::fs("write to the root directory", shown, error))?;
    let set = if options.sidecar.is_some() {
        Ok(())
    } else {
        rfs::fsetxattr(&file, "user.vgwrdma.probe", b"1", rfs::XattrFlags::empty())
    };
    let locked = match options.lock_mode {
        LockMode::Process => Ok(()),
        LockMode::Shared | LockMode::Node => rfs::flock(&file, FlockOperation::NonBlockingLockExclusive),
    };
    let _ = rfs::unlinkat(root, &name, AtFlags::empty());
    if let Err(error) = locked {
        return Err(Error::Io {
            operation: "flock does not work on the file system (state by the lock mode that no other gateway \
                        writes there, if that is so):",
            path: shown.to_owned(),
            source: error.into(),
        });
    }
    match set {
        Err(error @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)) => Err(no_attributes(shown, error)),
        other => other.map_err(|error| Error::fs("set an attribute below", shown, error)),
    }
}

fn no_attributes(shown: &str, error: Errno) -> Error {
    Error::Io {
        operation: "the file system has no user attributes; keep them in a sidecar directory instead:",
        path: shown.to_owned(),
        source: error.into(),
    }
}

/// Fails closed where locks that must reach other machines are known not to.
fn check_locks(root: &OwnedFd, shown: &str, mode: LockMode) -> Result<()> {
    if mode != LockMode::Shared {
        return Ok(());
    }
    let fail = |error| Error::fs("stat the root directory", shown, error);
    let device = stat(root).map_err(fail)?.st_dev;
    let device = format!("{}:{}", rfs::major(device), rfs::minor(device));
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match reach_of_flock(&table, &device) {
        Reach::All => Ok(()),
        Reach::Unknown(reason) => {
            tracing::warn!(
                root = shown,
                reason,
                "conditional writes hold only if flock reaches all gateways"
            );
            Ok(())
        }
        Reach::NodeOnly(reason) => Err(Error::InvalidArgument(format!(
            "{shown}: {reason}, so that locks do not reach other machines; mount it with shared locks, or \
             state by the lock mode that only this machine writes there"
        ))),
    }
}
