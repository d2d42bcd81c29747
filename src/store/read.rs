//! Reading objects.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::error::{Error, Result};
use super::fs::{DirectFile, Fs};
use super::inner::Inner;
use super::key::Key;
use super::object::Found;
use super::types::{ObjectInfo, Versioning};

/// An open object: attributes and bytes of one inode, whatever is written to the key later.
#[derive(Debug)]
pub struct ObjectReader {
    file: File,
    direct: Option<DirectFile>,
    fs: Arc<Fs>,
    info: ObjectInfo,
    bucket: String,
    /// Whether a version was named when it was opened.
    pub(crate) version_asked: bool,
    /// Whether it has no stored ETag that holds.
    pub(crate) is_foreign: bool,
}

impl ObjectReader {
    /// What HEAD says.
    pub fn info(&self) -> &ObjectInfo {
        &self.info
    }

    /// The bucket that it was opened in.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The open file, for `sendfile` and the like.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Opens the same inode for `O_DIRECT` reads too; false where the file system has none.
    pub fn enable_direct_io(&mut self) -> bool {
        if self.direct.is_none() {
            self.direct = DirectFile::open(&self.fs, &self.file, OFlags::RDONLY, &self.info.key);
        }
        self.direct.is_some()
    }

    /// Fills `data` from `offset`, from any thread.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file is shorter; else what the file system says.
    pub fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let length = data.len();
        self.read_block(offset, length, data)
    }

    /// As [`read_at`](Self::read_at) into the first `length` bytes of `chunk`; what is behind them
    /// may be overwritten, which lets a direct read go on to the end of a page.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_block(&self, offset: u64, length: usize, chunk: &mut [u8]) -> io::Result<()> {
        let direct = self.direct.as_ref();
        let done = direct.map_or(Ok(0), |direct| direct.read_pages(offset, length, chunk))?;
        if done == length {
            return Ok(());
        }
        self.file.read_exact_at(&mut chunk[done..length], offset + done as u64)
    }
}

impl Inner {
    /// Finds an object or a version of it that is no delete marker.
    fn readable(
        &self,
        bucket: &super::bucket::Bucket,
        key: &Key,
        version: Option<&str>,
    ) -> Result<(Box<Found>, Versioning)> {
        let versioning = self.versioning_of(bucket)?;
        let found = match version {
            None => self.current(bucket, key)?,
            Some(id) => self.find_version(bucket, key, id)?,
        };
        let Some(mut found) = found else {
            let key = key.as_str().to_owned();
            return Err(match version {
                None => Error::NoSuchKey(key),
                Some(version) => Error::NoSuchVersion { key, version: version.to_owned() },
            });
        };
        if found.is_marker() {
            return Err(Error::DeleteMarker { version: found.version_id(), current: version.is_none() });
        }
        if version.is_none() {
            self.ensure_etag(bucket, key, &mut found);
        }
        Ok((found, versioning))
    }

    pub(crate) fn open_object(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<ObjectReader> {
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let (found, versioning) = self.readable(&bucket, &key, version)?;
        let info = found.info(key.as_str(), versioning);
        Ok(ObjectReader {
            info,
            direct: None,
            fs: Arc::clone(&self.fs),
            bucket: bucket.name().to_owned(),
            version_asked: version.is_some(),
            is_foreign: super::copy::is_foreign(&found),
            file: found.file,
        })
    }

    pub(crate) fn head_object(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<ObjectInfo> {
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let (found, versioning) = self.readable(&bucket, &key, version)?;
        Ok(found.info(key.as_str(), versioning))
    }
}
