//! CopyObject: a new object of the bytes of an open one.

use std::os::unix::fs::FileExt as _;

use rustix::fs::ioctl_ficlone;

use super::attributes::{self, name};
use super::commit::Purpose;
use super::error::{Error, Result};
use super::etag;
use super::fs::FsOp;
use super::inner::Inner;
use super::key::Key;
use super::read::ObjectReader;
use super::types::{ChecksumType, Checksums, CopyRequest, ObjectAttributes, ObjectInfo, Versioning};
use crate::digest::{Algorithm, Digester};

impl Inner {
    pub(crate) fn copy_object(
        &self,
        source: &ObjectReader,
        bucket: &str,
        key: &str,
        request: &CopyRequest,
    ) -> Result<ObjectInfo> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let info = source.info();
        let itself = source.bucket() == bucket.name() && info.key == key.as_str() && !source.version_asked;
        let changes =
            request.replace_metadata.is_some() || request.replace_tags.is_some() || request.changes_otherwise;
        if itself && !changes {
            return Err(Error::CopyToItself(key.as_str().to_owned()));
        }
        self.foresee(&bucket, &key, &request.conditions)?;
        let raw = attributes::encode(&self.copied_attributes(source, request)?, None);
        if key.is_dir() {
            if info.size > 0 {
                return Err(Error::InvalidArgument(format!(
                    "{:?} ends in a slash: it is a directory, which holds no data",
                    key.as_str()
                )));
            }
            let found = self.put_directory(&bucket, &key, raw, &request.conditions)?;
            return Ok(found.info(key.as_str(), Versioning::Off));
        }
        let (temp, _) = self.begin_file(&bucket, key.as_str(), 0, false)?;
        if info.size > 0 {
            let fail = |error| Error::io("copy to", &bucket.display(key.as_str()), error);
            self.fs.note(FsOp::Copy, key.as_str()).map_err(|error| fail(error.into()))?;
            // All blocks shared at once where the file system can.
            if self.fs.no_copy_range || ioctl_ficlone(&**temp.file(), source.file()).is_err() {
                self.fs.copy(source.file(), 0, temp.file(), 0, info.size, key.as_str()).map_err(fail)?;
            }
        }
        self.publish(&bucket, &key, temp, raw, &request.conditions, Purpose::Object)
    }

    fn copied_attributes(&self, source: &ObjectReader, request: &CopyRequest) -> Result<ObjectAttributes> {
        let info = source.info();
        let mut attributes = match &request.replace_metadata {
            None => info.attributes.clone(),
            Some(new) => ObjectAttributes {
                tags: info.attributes.tags.clone(),
                checksums: info.attributes.checksums.clone(),
                part_ends: info.attributes.part_ends.clone(),
                part_checksums: info.attributes.part_checksums.clone(),
                ..new.clone()
            },
        };
        if let Some(tags) = &request.replace_tags {
            attributes.tags.clone_from(tags);
        }
        attributes.retention.clone_from(&request.retention);
        attributes.legal_hold = request.legal_hold;
        attributes.acl.clone_from(&request.acl);
        attributes.etag = Some(info.etag.clone());
        if let Some((etag, checksums)) = &request.digests {
            attributes.etag = Some(etag.clone());
            attributes.checksums.clone_from(checksums);
            attributes.part_ends.clear();
            attributes.part_checksums.clear();
        } else if source.is_foreign {
            // Its ETag is that of another inode; the copy gets a real one.
            let (etag, checksums) = digests_of(source)?;
            attributes.etag = Some(etag);
            attributes.checksums = Some(checksums);
        }
        Ok(attributes)
    }
}

/// MD5 and CRC64NVME of the content.
fn digests_of(source: &ObjectReader) -> Result<(String, Checksums)> {
    let algorithm = Algorithm::Crc64Nvme;
    let mut digester = Digester::new(true, [algorithm]);
    let mut buffer = vec![0; 1 << 20];
    let (size, mut at) = (source.info().size, 0);
    while at < size {
        let step = buffer.len().min(usize::try_from(size - at).unwrap_or(buffer.len()));
        source
            .file()
            .read_exact_at(&mut buffer[..step], at)
            .map_err(|error| Error::io("read", &source.info().key, error))?;
        digester.update(&buffer[..step]);
        at += step as u64;
    }
    let digests = digester.finish();
    let checksums = Checksums {
        algorithm: algorithm.name().to_owned(),
        kind: ChecksumType::FullObject,
        values: [(algorithm.name().to_owned(), digests.base64(algorithm).unwrap_or_default())].into(),
    };
    Ok((digests.md5_hex().unwrap_or_default(), checksums))
}

/// Whether an object has no stored ETag that holds.
pub(crate) fn is_foreign(found: &super::object::Found) -> bool {
    !found.raw.contains_key(name::ETAG) || etag::stored(&found.raw, &found.stat).is_none()
}
