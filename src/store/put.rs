//! Objects and parts that are being written.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::attributes;
use super::bucket::Bucket;
use super::commit::{Purpose, check, current_of};
use super::error::{Error, Result};
use super::fs::{DirectFile, Fs, FsOp, Temp};
use super::inner::Inner;
use super::key::Key;
use super::object::Slot;
use super::read::ObjectReader;
use super::types::{ObjectAttributes, ObjectInfo, PutRequest, Versioning, WriteConditions};

/// Bodies from this size on get their space reserved.
const RESERVE_FROM: u64 = 256 << 10;

/// The data of a file that is being written.
#[derive(Debug)]
pub(crate) struct Body {
    file: Arc<File>,
    /// The same file for writes past the page cache.
    direct: Option<DirectFile>,
    fs: Arc<Fs>,
    label: String,
    /// Bytes written.
    written: AtomicU64,
    /// Where the last byte written ends.
    end: AtomicU64,
    /// How far the file may reach: reserved space and failed writes counted.
    extent: AtomicU64,
    /// Set when nothing may be written any more. Writers hold it for reading.
    sealed: RwLock<bool>,
}

impl Body {
    fn new(fs: &Arc<Fs>, temp: &Temp, label: &str, reserved: u64, direct_io: bool) -> Arc<Self> {
        let file = Arc::clone(temp.file());
        let direct = direct_io.then(|| DirectFile::open(fs, &file, OFlags::WRONLY, label)).flatten();
        Arc::new(Self {
            file,
            direct,
            fs: Arc::clone(fs),
            label: label.to_owned(),
            written: AtomicU64::new(0),
            end: AtomicU64::new(0),
            extent: AtomicU64::new(reserved),
            sealed: RwLock::new(false),
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let sealed = self.sealed.read().unwrap_or_else(PoisonError::into_inner);
        if *sealed {
            return Err(io::Error::other(format!(
                "{} is finished; nothing can be written to it",
                self.label
            )));
        }
        self.fs.note(FsOp::Write, &self.label)?;
        self.extent.fetch_max(offset + data.len() as u64, Ordering::Relaxed);
        let done = self.direct.as_ref().map_or(Ok(0), |direct| direct.write_pages(offset, data))?;
        if done < data.len() {
            self.file.write_all_at(&data[done..], offset + done as u64)?;
        }
        self.count(offset, data.len() as u64);
        Ok(())
    }

    fn copy_from(&self, source: &ObjectReader, range: Range<u64>, offset: u64) -> io::Result<()> {
        let sealed = self.sealed.read().unwrap_or_else(PoisonError::into_inner);
        if *sealed {
            return Err(io::Error::other(format!(
                "{} is finished; nothing can be written to it",
                self.label
            )));
        }
        let length = range.end.saturating_sub(range.start);
        self.extent.fetch_max(offset + length, Ordering::Relaxed);
        self.fs.copy(source.file(), range.start, &self.file, offset, length, &self.label)?;
        self.count(offset, length);
        Ok(())
    }

    fn count(&self, offset: u64, length: u64) {
        self.written.fetch_add(length, Ordering::Relaxed);
        if length > 0 {
            self.end.fetch_max(offset + length, Ordering::Relaxed);
        }
    }

    /// Ends writing and cuts the file to `size`; refuses when less was written than that.
    pub(crate) fn finish(&self, size: u64, key: &str, shown: &str) -> Result<()> {
        let mut sealed = self.sealed.write().unwrap_or_else(PoisonError::into_inner);
        *sealed = true;
        let received = self.written.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        if received < size || end < size {
            return Err(Error::IncompleteBody { key: key.to_owned(), expected: size, received });
        }
        if self.extent.load(Ordering::Relaxed) != size {
            self.file.set_len(size).map_err(|error| Error::io("cut", shown, error))?;
        }
        Ok(())
    }
}

/// Writes into a pending object or part from anywhere. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ObjectSink {
    /// None for a directory object, which takes no data.
    body: Option<Arc<Body>>,
}

impl ObjectSink {
    pub(crate) fn new(body: &Arc<Body>) -> Self {
        Self { body: Some(Arc::clone(body)) }
    }

    /// Writes all of `data` at byte `offset`, from any thread; offsets may come in any order.
    ///
    /// # Errors
    /// What the file system says, `StorageFull` and `QuotaExceeded` among it; any error once the
    /// object has been published.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match &self.body {
            Some(body) => body.write_at(offset, data),
            None if data.is_empty() => Ok(()),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "a directory object holds no data")),
        }
    }

    pub(crate) fn copy_from(&self, source: &ObjectReader, range: Range<u64>, offset: u64) -> io::Result<()> {
        match &self.body {
            Some(body) => body.copy_from(source, range, offset),
            None => self.write_at(offset, if range.is_empty() { &[] } else { &[0] }),
        }
    }

    /// Ends writing; see [`Body::finish`].
    pub(crate) fn finish(&self, size: u64, key: &str, shown: &str) -> Result<()> {
        match &self.body {
            Some(body) => body.finish(size, key, shown),
            None => Ok(()),
        }
    }
}

/// A new object that nobody sees yet. Dropped without [`publish`](Self::publish), nothing remains.
#[derive(Debug)]
pub struct PendingObject {
    inner: Arc<Inner>,
    bucket: Bucket,
    key: Key,
    conditions: WriteConditions,
    sink: ObjectSink,
    /// None for a directory object.
    temp: Option<Temp>,
}

impl PendingObject {
    /// Writes at an offset, from any thread.
    ///
    /// # Errors
    /// As [`ObjectSink::write_at`]; a directory object takes no data.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.sink.write_at(offset, data)
    }

    /// A handle that writes to the same file and can outlive this value; after publication it refuses.
    pub fn sink(&self) -> ObjectSink {
        self.sink.clone()
    }

    /// Copies a range of an open object to an offset of this one, in the kernel where it can.
    ///
    /// # Errors
    /// `UnexpectedEof` when the source is shorter; else as [`write_at`](Self::write_at).
    pub fn copy_from(&self, source: &ObjectReader, range: Range<u64>, offset: u64) -> io::Result<()> {
        self.sink.copy_from(source, range, offset)
    }

    /// Sets the attributes, syncs as the durability level says, checks the conditions again, and
    /// makes the object appear in one step.
    ///
    /// # Errors
    /// [`Error::IncompleteBody`] when fewer than `size` bytes were written,
    /// [`Error::PreconditionFailed`], [`Error::KeyConflict`], [`Error::Denied`] when the object there is
    /// locked, [`Error::NoSpace`]. What was there before stays then, and nothing else remains.
    pub fn publish(self, size: u64, attributes: ObjectAttributes) -> Result<ObjectInfo> {
        let raw = attributes::encode(&attributes, None);
        let shown = self.bucket.display(self.key.as_str());
        match self.temp {
            Some(temp) => {
                self.sink.finish(size, self.key.as_str(), &shown)?;
                self.inner.publish(&self.bucket, &self.key, temp, raw, &self.conditions, Purpose::Object)
            }
            None if size > 0 => Err(directory_with_data(&self.key)),
            None => {
                let found = self.inner.put_directory(&self.bucket, &self.key, raw, &self.conditions)?;
                Ok(found.info(self.key.as_str(), Versioning::Off))
            }
        }
    }
}

fn directory_with_data(key: &Key) -> Error {
    Error::InvalidArgument(format!(
        "{:?} ends in a slash: it is a directory, which holds no data",
        key.as_str()
    ))
}

impl Inner {
    pub(crate) fn begin_put(
        self: &Arc<Self>,
        bucket: &str,
        key: &str,
        request: &PutRequest,
    ) -> Result<PendingObject> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let size = request.size_hint.unwrap_or(0);
        if key.is_dir() && size > 0 {
            return Err(directory_with_data(&key));
        }
        self.foresee(&bucket, &key, &request.conditions)?;
        let (temp, sink) = if key.is_dir() {
            (None, ObjectSink { body: None })
        } else {
            let (temp, sink) = self.begin_file(&bucket, key.as_str(), size, request.direct_io)?;
            (Some(temp), sink)
        };
        let conditions = request.conditions.clone();
        Ok(PendingObject { inner: Arc::clone(self), bucket, key, conditions, sink, temp })
    }

    /// Refuses early what publication would refuse, before a body is taken.
    pub(crate) fn foresee(&self, bucket: &Bucket, key: &Key, conditions: &WriteConditions) -> Result<()> {
        // Most keys are new; whether they can be, one look tells.
        match bucket.open(key.path(), OFlags::PATH) {
            Err(Errno::NOENT) => return check(key, None, conditions),
            Err(Errno::NOTDIR | Errno::LOOP) if !key.parent().is_empty() => {
                return Err(self.conflict(bucket, key));
            }
            Err(Errno::NAMETOOLONG) => return Err(Error::KeyTooLong(key.as_str().len())),
            _ => {}
        }
        let slot = self.slot(bucket, key)?;
        check(key, current_of(&slot), conditions)?;
        match &slot {
            Slot::Dir(found) if !key.is_dir() => self.check_way(bucket, key, found)?,
            Slot::File(_) if key.is_dir() => return Err(super::delete::file_in_the_way(key)),
            _ => {}
        }
        let versioned = self.versioning_of(bucket)? == Versioning::Enabled;
        if let (false, Some(found)) = (versioned, current_of(&slot)) {
            super::object_lock::check(&found.raw, key.as_str(), false)?;
        }
        Ok(())
    }

    /// A new file in the bucket, with its space reserved.
    pub(crate) fn begin_file(
        &self,
        bucket: &Bucket,
        label: &str,
        size: u64,
        direct_io: bool,
    ) -> Result<(Temp, ObjectSink)> {
        let fail = |error| bucket.error("create", label, error);
        let temp = Temp::create(&self.fs, bucket.dir(), &self.owner, label).map_err(fail)?;
        let reserved = if size >= RESERVE_FROM { size } else { 0 };
        if reserved > 0 {
            let fail = |error| bucket.error("reserve space for", label, error);
            self.fs.reserve(&**temp.file(), reserved, label).map_err(fail)?;
        }
        let sink = ObjectSink::new(&Body::new(&self.fs, &temp, label, reserved, direct_io));
        Ok((temp, sink))
    }
}
