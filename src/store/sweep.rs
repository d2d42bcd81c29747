//! Upkeep: temporaries that a crash left, and overflow files that nobody refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::attributes::name;
use super::bucket::Bucket;
use super::error::{Error, Result};
use super::fs::{DIR, READ, entries, for_each_entry, from_unix, modified, stat};
use super::inner::Inner;
use super::keeper::{Keeper, OVERFLOW_DIR, OverflowForm, Sidecar, Subject, identity};
use super::key::TEMP_DIR;
use super::lock::LOCK_DIR;
use super::object::is_absent;
use super::types::Swept;
use super::versions::VERSION_PREFIX;

/// What in `.sgwtmp` is not temporary.
const LASTING: [&str; 3] = ["multipart", LOCK_DIR, OVERFLOW_DIR];

impl Inner {
    /// Removes old temporaries in all buckets; `thorough` looks for overflow files without owner too,
    /// which may take a walk through a bucket.
    pub(crate) fn sweep(&self, thorough: bool) -> Result<Vec<Swept>> {
        self.writable()?;
        let mut swept = Vec::new();
        let fail = |error| Error::fs("sweep", ".", error);
        self.sweep_dir(&self.root, "", &mut swept).map_err(fail)?;
        for info in self.list_buckets()? {
            match self.sweep_bucket(&info.name, thorough, &mut swept) {
                Ok(()) | Err(Error::NoSuchBucket(_)) => {}
                // The others are swept all the same.
                Err(error) => tracing::warn!(bucket = info.name, %error, "a bucket could not be swept"),
            }
        }
        Ok(swept)
    }

    fn sweep_bucket(&self, name: &str, thorough: bool, swept: &mut Vec<Swept>) -> Result<()> {
        let bucket = self.bucket(name)?;
        let fail = |error| bucket.error("sweep", "", error);
        self.sweep_dir(bucket.dir(), bucket.name(), swept).map_err(fail)?;
        self.sweep_uploads(&bucket, swept).map_err(fail)?;
        if let Some(dir) = self.versions_dir(&bucket) {
            self.sweep_dir(&dir, bucket.name(), swept).map_err(fail)?;
        }
        if thorough {
            self.sweep_overflow(&bucket, swept)?;
            if let Keeper::Sidecar(sidecar) = &self.keeper {
                self.sweep_sidecar(sidecar, &bucket, swept).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// The bucket's directory of older versions, when there is one.
    fn versions_dir(&self, bucket: &Bucket) -> Option<OwnedFd> {
        self.fs.open_beneath(self.versions.as_ref()?, bucket.name(), DIR).ok()
    }

    /// Removes what is old in the `.sgwtmp` of a directory.
    fn sweep_dir(&self, dir: &OwnedFd, shown: &str, swept: &mut Vec<Swept>) -> Result<(), Errno> {
        let temp = match self.fs.open_beneath(dir, TEMP_DIR, DIR) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            other => other?,
        };
        for (name, is_dir) in entries(&temp)? {
            if is_dir && LASTING.contains(&name.as_str()) {
                continue;
            }
            let path = if shown.is_empty() {
                format!("{TEMP_DIR}/{name}")
            } else {
                format!("{shown}/{TEMP_DIR}/{name}")
            };
            self.sweep_entry(&temp, &name, is_dir, path, swept)?;
        }
        Ok(())
    }

    fn sweep_entry(
        &self,
        dir: &OwnedFd,
        name: &str,
        is_dir: bool,
        path: String,
        swept: &mut Vec<Swept>,
    ) -> Result<(), Errno> {
        let file = match self.fs.open_beneath(dir, name, READ) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => return Ok(()),
            other => other?,
        };
        let Some(age) = age(&file)?.filter(|age| *age >= self.options.sweep_after) else { return Ok(()) };
        // Somebody still writes to it, however slowly.
        if !is_dir
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        {
            return Ok(());
        }
        let removed = if is_dir { self.fs.remove_tree(dir, name) } else { self.fs.unlink(dir, name) };
        match removed {
            Ok(()) => {
                tracing::info!(path, age_seconds = age.as_secs(), "swept an old temporary");
                swept.push(Swept { path, age });
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes stray files beside uploads, and directories of keys without uploads. Uploads stay until
    /// they are completed or aborted.
    fn sweep_uploads(&self, bucket: &Bucket, swept: &mut Vec<Swept>) -> Result<(), Errno> {
        let uploads = match bucket.open(&format!("{TEMP_DIR}/multipart"), DIR) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        for (hash, is_dir) in entries(&uploads)? {
            if !is_dir {
                continue;
            }
            let dir = match self.fs.open_beneath(&uploads, &hash, DIR) {
                Err(Errno::NOENT) => continue,
                other => other?,
            };
            for (name, is_dir) in entries(&dir)? {
                if !is_dir {
                    let path = bucket.display(&format!("{TEMP_DIR}/multipart/{hash}/{name}"));
                    self.sweep_entry(&dir, &name, false, path, swept)?;
                }
            }
            if age(&dir)?.is_some_and(|age| age >= self.options.sweep_after) {
                let _ = self.fs.remove_dir(&uploads, &hash);
            }
        }
        Ok(())
    }

    /// Removes overflow files that nothing in the bucket refers to.
    fn sweep_overflow(&self, bucket: &Bucket, swept: &mut Vec<Swept>) -> Result<()> {
        let fail = |error| Error::fs("sweep", bucket.name(), error);
        let dir = match bucket.open(&format!("{TEMP_DIR}/{OVERFLOW_DIR}"), DIR) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(fail)?,
        };
        let mut candidates: BTreeMap<String, Duration> = BTreeMap::new();
        for (id, _) in entries(&dir).map_err(fail)? {
            let Ok(file) = self.fs.open_beneath(&dir, &id, READ) else { continue };
            let Some(age) = age(&file).map_err(fail)?.filter(|age| *age >= self.options.sweep_after) else {
                continue;
            };
            if !self.is_referred_to(bucket, &id, file) {
                candidates.insert(id, age);
            }
        }
        if candidates.is_empty() {
            return Ok(());
        }
        // Its object may have been moved through the file system: only a look at all of them tells.
        let mut used = BTreeSet::new();
        self.collect_references(bucket.dir(), &mut used).map_err(fail)?;
        if let Some(dir) = self.versions_dir(bucket) {
            self.collect_references(&dir, &mut used).map_err(fail)?;
        }
        for (id, age) in candidates {
            if !used.contains(id.as_bytes()) && self.fs.unlink(&dir, &id).is_ok() {
                let path = bucket.display(&format!("{TEMP_DIR}/{OVERFLOW_DIR}/{id}"));
                tracing::info!(
                    path,
                    age_seconds = age.as_secs(),
                    "swept attributes of an object that is gone"
                );
                swept.push(Swept { path, age });
            }
        }
        Ok(())
    }

    /// Whether the object that an overflow file was written for still refers to it.
    fn is_referred_to(&self, bucket: &Bucket, id: &str, file: OwnedFd) -> bool {
        let mut json = Vec::new();
        if std::fs::File::from(file).read_to_end(&mut json).is_err() {
            return true;
        }
        let Ok(form) = serde_json::from_slice::<OverflowForm>(&json) else { return false };
        let Ok(object) = bucket.open(&form.path, READ) else { return false };
        self.fs.attribute(object, name::OVERFLOW).is_ok_and(|found| found.is_some_and(|f| f == id.as_bytes()))
    }

    /// Removes attribute files whose data file was never published, or has gone.
    fn sweep_sidecar(&self, sidecar: &Sidecar, bucket: &Bucket, swept: &mut Vec<Swept>) -> Result<(), Errno> {
        sidecar.for_each(&self.fs, bucket.name(), |path, file, dir, name| {
            let Some(age) = age(&file)?.filter(|age| *age >= self.options.sweep_after) else { return Ok(()) };
            let mut json = Vec::new();
            if std::fs::File::from(file).read_to_end(&mut json).is_err() {
                return Ok(());
            }
            // What is no whole attribute file was being written when somebody died.
            if let Ok(form) = serde_json::from_slice::<OverflowForm>(&json)
                && self.describes(bucket, &form.path, name)
            {
                return Ok(());
            }
            match self.fs.unlink(dir, name) {
                Ok(()) => {
                    tracing::info!(
                        path,
                        age_seconds = age.as_secs(),
                        "swept attributes of a file that is gone"
                    );
                    swept.push(Swept { path: path.to_owned(), age });
                    sidecar.tidy(&self.fs, path.rsplit_once('/').map_or("", |(place, _)| place));
                    Ok(())
                }
                Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    /// Whether the file at `path` is the one that an attribute file of that name belongs to. When
    /// that cannot be told, it is.
    fn describes(&self, bucket: &Bucket, path: &str, name: &str) -> bool {
        let opened = match path.strip_prefix(VERSION_PREFIX) {
            Some(version) => match self.versions_dir(bucket) {
                Some(dir) => self.fs.open_beneath(&dir, version, READ),
                // Served without its versioning directory for now.
                None => return true,
            },
            None => bucket.open(path, READ),
        };
        match opened {
            Ok(file) => identity(Subject::new(&file, bucket, path)).is_ok_and(|found| found == name),
            Err(error) => !is_absent(error),
        }
    }

    fn collect_references(&self, dir: &OwnedFd, used: &mut BTreeSet<Vec<u8>>) -> Result<(), Errno> {
        let dir = self.fs.open_beneath(dir, "", DIR)?;
        if let Some(id) = self.fs.attribute(&dir, name::OVERFLOW)? {
            used.insert(id);
        }
        let mut names = Vec::new();
        for_each_entry(&dir, |name, kind| {
            if let Ok(name) = std::str::from_utf8(name)
                && (kind.is_dir() || kind.is_file())
            {
                names.push((name.to_owned(), kind.is_dir()));
            }
            true
        })?;
        for (name, is_dir) in names {
            let file = match self.fs.open_beneath(&dir, &name, READ) {
                Err(Errno::NOENT) => continue,
                // What cannot be read may refer to anything: nothing is removed then.
                other => other?,
            };
            if is_dir {
                self.collect_references(&file, used)?;
            } else if let Some(id) = self.fs.attribute(&file, name::OVERFLOW)? {
                used.insert(id);
            }
        }
        Ok(())
    }
}

/// Time since a file last changed in any way; none when that lies in the future.
fn age(file: &OwnedFd) -> Result<Option<Duration>, Errno> {
    let found = stat(file)?;
    let changed = from_unix(found.st_ctime, u32::try_from(found.st_ctime_nsec).unwrap_or(0));
    Ok(SystemTime::now().duration_since(changed.max(modified(&found))).ok())
}
