//! Parts that are being uploaded.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;

use super::super::attributes::{Raw, encode_checksums, name};
use super::super::bucket::Bucket;
use super::super::error::{Error, Result};
use super::super::fs::{DIR, READ, Temp, modified, stat};
use super::super::inner::Inner;
use super::super::keeper::Subject;
use super::super::key::Key;
use super::super::object::is_absent;
use super::super::put::ObjectSink;
use super::super::read::ObjectReader;
use super::super::types::{ChecksumType, Checksums, PartInfo};
use super::{MAX_PARTS, key_dir};
use crate::digest::Algorithm;

/// A part being uploaded; as [`PendingObject`](super::super::PendingObject).
#[derive(Debug)]
pub struct PendingPart {
    inner: Arc<Inner>,
    bucket: Bucket,
    key: Key,
    upload_id: String,
    number: u32,
    declared: Option<(String, ChecksumType)>,
    temp: Temp,
    sink: ObjectSink,
}

impl Inner {
    pub(crate) fn begin_part(
        self: &Arc<Self>,
        bucket: &str,
        key: &str,
        upload_id: &str,
        part: u32,
        size_hint: Option<u64>,
    ) -> Result<PendingPart> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        if !(1..=MAX_PARTS).contains(&part) {
            return Err(Error::InvalidArgument(format!(
                "part number {part} is not between 1 and {MAX_PARTS}"
            )));
        }
        let upload = self.upload(&bucket, &key, upload_id)?;
        let declared = upload.declared();
        let label = format!("{} part {part}", key.as_str());
        let (temp, sink) = self.begin_file(&bucket, &label, size_hint.unwrap_or(0), false)?;
        let inner = Arc::clone(self);
        Ok(PendingPart {
            inner,
            bucket,
            key,
            upload_id: upload_id.to_owned(),
            number: part,
            declared,
            temp,
            sink,
        })
    }
}

impl PendingPart {
    /// Checksum algorithm and type that the upload was declared with.
    pub fn declared_checksum(&self) -> Option<&(String, ChecksumType)> {
        self.declared.as_ref()
    }

    /// Writes at an offset, from any thread.
    ///
    /// # Errors
    /// As [`ObjectSink::write_at`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.sink.write_at(offset, data)
    }

    /// A handle that writes to the same file and can outlive this value; after publication it refuses.
    pub fn sink(&self) -> ObjectSink {
        self.sink.clone()
    }

    /// Copies a range of an open object to an offset of this part, in the kernel where it can.
    ///
    /// # Errors
    /// `UnexpectedEof` when the source is shorter; else as [`write_at`](Self::write_at).
    pub fn copy_from(&self, source: &ObjectReader, range: Range<u64>, offset: u64) -> io::Result<()> {
        self.sink.copy_from(source, range, offset)
    }

    /// Makes the part appear in one step, in place of an earlier one of its number. `etag` is
    /// without quotes.
    ///
    /// # Errors
    /// [`Error::IncompleteBody`], [`Error::NoSuchUpload`] when it was completed or aborted meanwhile.
    pub fn publish(self, size: u64, etag: &str, checksums: Option<&Checksums>) -> Result<PartInfo> {
        let path = format!("{}/{}/{}", key_dir(&self.key), self.upload_id, self.number);
        let shown = self.bucket.display(&path);
        self.sink.finish(size, self.key.as_str(), &shown)?;
        let raw = self.raw(etag, checksums);
        let Self { inner, bucket, key, upload_id, number, mut temp, .. } = self;
        let file = Arc::clone(temp.file());
        let subject = Subject::new(&*file, &bucket, &path);
        inner.place_part(&mut temp, &key, &upload_id, number, &raw, subject).inspect_err(|_| {
            inner.keeper.forget(inner.means(), subject);
        })?;
        let modified = stat(&*file).map(|s| modified(&s)).unwrap_or_else(|_| SystemTime::now());
        Ok(PartInfo { number, size, etag: etag.to_owned(), modified, checksums: checksums.cloned() })
    }

    fn raw(&self, etag: &str, checksums: Option<&Checksums>) -> Raw {
        let mut raw = Raw::from([(name::ETAG.to_owned(), format!("\"{etag}\"").into_bytes())]);
        let Some(checksums) = checksums else { return raw };
        let crc = checksums.values.get(Algorithm::Crc64Nvme.name());
        match (&self.declared, crc) {
            (None, Some(crc)) => {
                raw.insert(name::PART_CRC64NVME.to_owned(), crc.clone().into_bytes());
            }
            (Some((algorithm, kind)), _) => {
                let mut declared = checksums.clone();
                declared.algorithm.clone_from(algorithm);
                declared.kind = *kind;
                raw.insert(name::CHECKSUMS.to_owned(), encode_checksums(&declared));
            }
            (None, None) => {}
        }
        if self.declared.is_none() && checksums.values.keys().any(|k| k != Algorithm::Crc64Nvme.name()) {
            raw.insert(name::UNDECLARED_CHECKSUMS.to_owned(), encode_checksums(checksums));
        }
        raw
    }
}

impl Inner {
    fn place_part(
        &self,
        temp: &mut Temp,
        key: &Key,
        upload_id: &str,
        number: u32,
        raw: &Raw,
        subject: Subject<'_>,
    ) -> Result<()> {
        let fail = |error| subject.bucket.error("publish", subject.path, error);
        self.keeper.write_new(self.means(), subject, raw)?;
        if self.sync_files() {
            self.fs.sync_file(subject.file, key.as_str()).map_err(fail)?;
        }
        let name = number.to_string();
        let missing = || Error::NoSuchUpload(upload_id.to_owned());
        let dir = match subject.bucket.open(&format!("{}/{upload_id}", key_dir(key)), DIR) {
            Err(error) if is_absent(error) => return Err(missing()),
            other => other.map_err(fail)?,
        };
        let mut old = None;
        let mut done = temp.link_new(&self.fs, &dir, &name);
        if done == Err(Errno::EXIST) {
            old = self.fs.open_beneath(&dir, &name, READ).ok();
            done = temp.replace(&self.fs, subject.bucket.dir(), &self.owner, &dir, &name);
        }
        match done {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(missing()),
            Err(error) => return Err(fail(error)),
        }
        if let Some(old) = old {
            self.keeper.forget(self.means(), Subject::new(&old, subject.bucket, subject.path));
        }
        if self.sync_names() {
            self.fs.sync_dir(&dir, &name).map_err(fail)?;
        }
        Ok(())
    }
}
