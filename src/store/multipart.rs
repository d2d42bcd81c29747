//! Multipart uploads: parts beside each other until they become one object.
//!
//! `.sgwtmp/multipart/<sha256 of the key>` has the attribute `objname` with the key and a directory
//! for each upload id, with the attributes of the object to be (`checksums` with algorithm and type
//! only) and files `<part number>` with `etag` and `checksums` or `part-crc64nvme`: versitygw's
//! layout. Beside the parts there may be `lock`, and what [`assembly`] keeps.

mod assembly;
mod complete;
mod part;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::attributes::{self, Raw, decode_checksums, encode_checksums, name};
use super::bucket::Bucket;
use super::error::{Error, Result};
use super::fs::{DIR, entries, modified, random_bytes, random_name, stat};
use super::inner::Inner;
use super::keeper::{Keeper, Subject};
use super::key::Key;
use super::list::RollUp;
use super::lock::flock;
use super::object::is_absent;
use super::types::{
    ChecksumType, Checksums, CreateUpload, ListRequest, LockMode, PartInfo, PartPage, UploadClaims,
    UploadInfo, UploadPage,
};
use crate::digest::Algorithm;
pub use part::PendingPart;

/// The directory of uploads in a bucket.
const UPLOADS: &str = ".sgwtmp/multipart";
/// Most parts of an upload.
pub(crate) const MAX_PARTS: u32 = 10_000;
/// The file in an upload's directory whose lock the completion holds.
const LOCK: &str = "lock";

/// An open upload.
#[derive(Debug)]
struct Upload {
    id: String,
    dir: OwnedFd,
    /// Its path in the bucket.
    path: String,
    raw: Raw,
}

/// The directory of a key's uploads.
fn key_dir(key: &Key) -> String {
    format!("{UPLOADS}/{}", hex::encode(Sha256::digest(key.as_str().as_bytes())))
}

/// Whether it can be the id of an upload that is not being completed by versitygw, which renames those
/// to `….inprogress`.
fn is_upload_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 128
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// A part number from a file name.
fn part_number(name: &str) -> Option<u32> {
    let number: u32 = name.parse().ok()?;
    ((1..=MAX_PARTS).contains(&number) && number.to_string() == name).then_some(number)
}

/// A random id in the form of a UUID of version 4 (RFC 9562), as versitygw's.
fn new_upload_id() -> String {
    let mut bytes = random_bytes::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// What an upload's attributes say of whose it is.
fn claims(raw: &Raw) -> UploadClaims {
    let initiator = raw.get(name::INITIATOR).map(|v| String::from_utf8_lossy(v).into_owned());
    UploadClaims { initiator, acl: raw.get(name::ACL).cloned() }
}

impl Upload {
    /// Checksum algorithm and type declared at creation.
    fn declared(&self) -> Option<(String, ChecksumType)> {
        let checksums = decode_checksums(self.raw.get(name::CHECKSUMS)?)?;
        Some((checksums.algorithm, checksums.kind))
    }
}

impl Inner {
    pub(crate) fn create_upload(&self, bucket: &str, key: &str, request: &CreateUpload) -> Result<String> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        if key.is_dir() {
            return Err(Error::InvalidArgument(format!(
                "{:?} ends in a slash: it is a directory, which holds no data",
                key.as_str()
            )));
        }
        let mut raw = attributes::encode(&request.attributes, None);
        raw.remove(name::ETAG);
        raw.remove(name::CHECKSUMS);
        raw.remove(name::MULTIPART);
        if let Some((algorithm, kind)) = &request.checksum {
            let combines = Algorithm::from_name(algorithm).is_some_and(Algorithm::is_crc);
            if *kind == ChecksumType::FullObject && !combines {
                return Err(Error::InvalidArgument(format!(
                    "checksum type FULL_OBJECT cannot be used with {algorithm}, which cannot be combined from \
                     parts; use COMPOSITE"
                )));
            }
            if *kind == ChecksumType::Composite
                && Algorithm::from_name(algorithm) == Some(Algorithm::Crc64Nvme)
            {
                return Err(Error::InvalidArgument(
                    "checksum type COMPOSITE cannot be used with CRC64NVME; use FULL_OBJECT".to_owned(),
                ));
            }
            let declared =
                Checksums { algorithm: algorithm.to_uppercase(), kind: *kind, values: BTreeMap::new() };
            raw.insert(name::CHECKSUMS.to_owned(), encode_checksums(&declared));
        }
        if let Some(initiator) = &request.initiator {
            raw.insert(name::INITIATOR.to_owned(), initiator.clone().into_bytes());
        }
        // Made apart and moved when complete: nobody sees an upload without its attributes.
        let fail = |error| bucket.error("create an upload for", key.as_str(), error);
        let id = new_upload_id();
        let key_path = key_dir(&key);
        let path = format!("{key_path}/{id}");
        let temp = bucket.temp_dir(&self.fs, &self.owner).map_err(fail)?;
        let helper = random_name();
        self.fs.make_dir(&temp, &helper, &self.owner).map_err(fail)?;
        let made = (|| {
            let dir = self.fs.open_beneath(&temp, &helper, DIR).map_err(fail)?;
            self.keeper.write_new(self.means(), Subject::new(&dir, &bucket, &path), &raw)?;
            if self.sync_names() {
                self.fs.sync_dir(&dir, &id).map_err(fail)?;
            }
            for _ in 0..super::commit::TRIES {
                let (parent, changed) =
                    self.fs.make_dirs(bucket.dir(), &key_path, &self.owner).map_err(fail)?;
                let subject = Subject::new(&parent, &bucket, &key_path);
                let named = [(name::UPLOAD_KEY, Some(key.as_str().as_bytes()))];
                self.keeper.update(self.means(), subject, &named)?;
                match self.fs.rename(&temp, &helper, &parent, &id) {
                    // The last upload of the key went, and its directory with it.
                    Err(Errno::NOENT) => continue,
                    other => other.map_err(fail)?,
                }
                if self.sync_names() {
                    self.fs.sync_dir(&parent, &id).map_err(fail)?;
                    for dir in changed.iter().rev() {
                        self.fs.sync_dir(dir, UPLOADS).map_err(fail)?;
                    }
                }
                return Ok(());
            }
            Err(fail(Errno::BUSY))
        })();
        if made.is_err() {
            let _ = self.fs.remove_tree(&temp, &helper);
        }
        made.map(|()| id)
    }

    /// Opens an upload.
    fn upload(&self, bucket: &Bucket, key: &Key, id: &str) -> Result<Upload> {
        let missing = || Error::NoSuchUpload(id.to_owned());
        if !is_upload_id(id) {
            return Err(missing());
        }
        let path = format!("{}/{id}", key_dir(key));
        let dir = match bucket.open(&path, DIR) {
            Err(error) if is_absent(error) => return Err(missing()),
            other => other.map_err(|error| bucket.error("open the upload of", key.as_str(), error))?,
        };
        let (raw, _) = self.keeper.read_all(self.means(), Subject::new(&dir, bucket, &path))?;
        Ok(Upload { id: id.to_owned(), dir, path, raw })
    }

    /// Waits until nobody else completes or aborts the upload, and fails when it is gone by then.
    fn lock_upload(&self, bucket: &Bucket, key: &Key, upload: &Upload) -> Result<super::lock::KeyLock<'_>> {
        let fail = |error| bucket.error("lock the upload of", key.as_str(), error);
        if self.options.lock_mode == LockMode::Process {
            let lock = self.locks.upload(&upload.id);
            self.upload(bucket, key, &upload.id)?;
            return Ok(lock);
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat(&upload.dir, LOCK, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::NOENT) => return Err(Error::NoSuchUpload(upload.id.clone())),
            other => other.map_err(fail)?,
        };
        flock(&file, FlockOperation::LockExclusive).map_err(fail)?;
        if stat(&file).map_err(fail)?.st_nlink == 0 || self.upload(bucket, key, &upload.id).is_err() {
            return Err(Error::NoSuchUpload(upload.id.clone()));
        }
        Ok(super::lock::KeyLock::File(file))
    }

    /// Makes an upload disappear in one step, and removes what it was.
    fn remove_upload(&self, bucket: &Bucket, key: &Key, upload: &Upload) -> Result<()> {
        let fail = |error| bucket.error("remove the upload of", key.as_str(), error);
        let key_path = key_dir(key);
        let parent = bucket.open(&key_path, DIR).map_err(fail)?;
        let temp = bucket.temp_dir(&self.fs, &self.owner).map_err(fail)?;
        let helper = random_name();
        match self.fs.rename(&parent, &upload.id, &temp, &helper) {
            Err(Errno::NOENT) => return Err(Error::NoSuchUpload(upload.id.clone())),
            other => other.map_err(fail)?,
        }
        if self.sync_names() {
            self.fs.sync_dir(&parent, &upload.id).map_err(fail)?;
        }
        if matches!(self.keeper, Keeper::Sidecar(_))
            && let Ok(dir) = self.fs.open_beneath(&temp, &helper, DIR)
        {
            for (name, _) in entries(&dir).unwrap_or_default() {
                if let Ok(file) = self.fs.open_beneath(&dir, &name, super::fs::READ) {
                    let path = format!("{}/{name}", upload.path);
                    self.keeper.forget(self.means(), Subject::new(&file, bucket, &path));
                }
            }
        }
        self.keeper.forget(self.means(), Subject::new(&upload.dir, bucket, &upload.path));
        if let Err(error) = self.fs.remove_tree(&temp, &helper) {
            tracing::warn!(upload = upload.id, %error, "parts of a finished upload stay until the next sweep");
        }
        // Fails while the key has other uploads.
        if let Some((uploads, hash)) = key_path.rsplit_once('/')
            && let Ok(uploads) = bucket.open(uploads, DIR)
            && self.fs.remove_dir(uploads, hash).is_ok()
        {
            self.keeper.forget(self.means(), Subject::new(&parent, bucket, &key_path));
        }
        Ok(())
    }

    pub(crate) fn abort_upload(&self, bucket: &str, key: &str, id: &str) -> Result<()> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let upload = self.upload(&bucket, &key, id)?;
        let _lock = self.lock_upload(&bucket, &key, &upload)?;
        self.remove_upload(&bucket, &key, &upload)
    }

    pub(crate) fn upload_claims(&self, bucket: &str, key: &str, id: &str) -> Result<UploadClaims> {
        let bucket = self.bucket(bucket)?;
        Ok(claims(&self.upload(&bucket, &Key::parse(key)?, id)?.raw))
    }

    pub(crate) fn list_parts(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        after: u32,
        max: usize,
    ) -> Result<PartPage> {
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let upload = self.upload(&bucket, &key, id)?;
        let fail = |error| bucket.error("read the upload of", key.as_str(), error);
        // First the files and then what was assembled: a part moves from here to there.
        let dir = self.fs.open_beneath(&upload.dir, "", DIR).map_err(fail)?;
        let names = entries(dir).map_err(fail)?;
        let assembled = self.assembled(&upload)?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|(name, _)| part_number(name)).collect();
        numbers.extend(assembled.iter().map(|part| part.number));
        numbers.sort_unstable();
        numbers.dedup();
        let mut page =
            PartPage { checksum: upload.declared(), claims: claims(&upload.raw), ..PartPage::default() };
        for number in numbers.into_iter().filter(|&number| number > after) {
            let part = match self.part_info(&bucket, &upload, number)? {
                Some(info) => info,
                None => match assembled.iter().find(|part| part.number == number) {
                    Some(part) => part.info(),
                    None => continue,
                },
            };
            if page.parts.len() == max {
                page.truncated = true;
                break;
            }
            page.parts.push(part);
        }
        Ok(page)
    }

    /// What is known of a part that is in a file of its own.
    fn part_info(&self, bucket: &Bucket, upload: &Upload, number: u32) -> Result<Option<PartInfo>> {
        let name = number.to_string();
        let path = format!("{}/{name}", upload.path);
        let slot = self.load(bucket, &path, || self.fs.open_beneath(&upload.dir, &name, super::fs::READ))?;
        let super::object::Slot::File(found) = slot else { return Ok(None) };
        let etag = found.raw.get(name::ETAG).and_then(|v| attributes::decode_etag(v)).unwrap_or_default();
        let stored = found.raw.get(name::CHECKSUMS).or_else(|| found.raw.get(name::UNDECLARED_CHECKSUMS));
        let mut checksums = stored.and_then(|v| decode_checksums(v));
        if let Some(crc) = found.raw.get(name::PART_CRC64NVME) {
            let crc = String::from_utf8_lossy(crc).into_owned();
            let name = Algorithm::Crc64Nvme.name();
            checksums
                .get_or_insert_with(|| Checksums {
                    algorithm: name.to_owned(),
                    kind: ChecksumType::FullObject,
                    values: BTreeMap::new(),
                })
                .values
                .insert(name.to_owned(), crc);
        }
        Ok(Some(PartInfo {
            number,
            size: u64::try_from(found.stat.st_size).unwrap_or(0),
            etag,
            modified: modified(&found.stat),
            checksums: checksums.filter(|c| !c.values.is_empty()),
        }))
    }

    pub(crate) fn list_uploads(&self, bucket: &str, request: &ListRequest) -> Result<UploadPage> {
        let bucket = self.bucket(bucket)?;
        let fail = |error| Error::fs("read the uploads of", bucket.name(), error);
        let mut page = UploadPage::default();
        let dir = match bucket.open(UPLOADS, DIR) {
            Err(error) if is_absent(error) => return Ok(page),
            other => other.map_err(fail)?,
        };
        let roll_up = RollUp::new(&request.prefix, request.delimiter.as_deref());
        let marker = request.start_after.as_deref();
        let id_marker = request.upload_id_marker.as_deref().filter(|id| !id.is_empty());
        // The directories are named by hashes, so all keys are looked at before the first is known.
        let mut keys: BTreeMap<String, String> = BTreeMap::new();
        for (hash, is_dir) in entries(&dir).map_err(fail)? {
            if !is_dir {
                continue;
            }
            let path = format!("{UPLOADS}/{hash}");
            let Ok(sub) = bucket.open(&path, DIR) else { continue };
            let Some(key) =
                self.keeper.read(self.means(), Subject::new(&sub, &bucket, &path), name::UPLOAD_KEY)?
            else {
                continue;
            };
            let Ok(key) = String::from_utf8(key) else { continue };
            let after = marker.is_none_or(|m| key.as_str() > m || (key == m && id_marker.is_some()));
            if key.starts_with(&request.prefix) && after {
                keys.insert(key, path);
            }
        }
        let mut last = (String::new(), String::new());
        for (key, path) in keys {
            let common = roll_up.common(&key);
            if common.is_some_and(|c| {
                marker.is_some_and(|m| c <= m) || page.common_prefixes.last().is_some_and(|l| l == c)
            }) {
                continue;
            }
            let Ok(sub) = bucket.open(&path, DIR) else { continue };
            let mut ids: Vec<String> = entries(&sub)
                .map_err(fail)?
                .into_iter()
                .filter(|(id, is_dir)| *is_dir && is_upload_id(id))
                .map(|(id, _)| id)
                .filter(|id| marker != Some(key.as_str()) || id_marker.is_some_and(|m| id.as_str() > m))
                .collect();
            ids.sort_unstable();
            for id in ids {
                let path = format!("{path}/{id}");
                let Ok(upload) = bucket.open(&path, DIR) else { continue };
                if page.uploads.len() + page.common_prefixes.len() == request.max_keys {
                    page.next = (request.max_keys > 0).then_some(last);
                    return Ok(page);
                }
                if let Some(common) = common {
                    last = (common.to_owned(), String::new());
                    page.common_prefixes.push(common.to_owned());
                    break;
                }
                last = (key.clone(), id.clone());
                page.uploads.push(self.upload_info(&bucket, &upload, &path, &key, id)?);
            }
        }
        Ok(page)
    }

    fn upload_info(
        &self,
        bucket: &Bucket,
        dir: &OwnedFd,
        path: &str,
        key: &str,
        upload_id: String,
    ) -> Result<UploadInfo> {
        let (raw, _) = self.keeper.read_all(self.means(), Subject::new(dir, bucket, path))?;
        let checksums = raw.get(name::CHECKSUMS);
        let checksum = checksums.and_then(|v| decode_checksums(v)).map(|c| (c.algorithm, c.kind));
        let found = stat(dir).map_err(|error| bucket.error("stat the upload of", key, error))?;
        // Its modification time changes with each part; that of its birth stays, where there is one.
        let initiated = super::fs::born(dir).unwrap_or_else(|| modified(&found));
        Ok(UploadInfo { key: key.to_owned(), upload_id, initiated, checksum, claims: claims(&raw) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers() {
        let id = new_upload_id();
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'4'));
        assert!(is_upload_id(&id));
        for bad in ["", "..", "a/b", "x.abc.inprogress", "a\0"] {
            assert!(!is_upload_id(bad), "{bad}");
        }
        assert_eq!(part_number("1"), Some(1));
        assert_eq!(part_number("10000"), Some(10_000));
        for bad in ["0", "01", "+1", "10001", "lock", "-1", "assembly"] {
            assert_eq!(part_number(bad), None, "{bad}");
        }
    }
}
