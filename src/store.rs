//! S3 objects in a POSIX directory: names, attributes, atomic publication, listing.
//!
//! Every function blocks; callers run them off the async runtime. Knows neither HTTP nor RDMA.

pub mod error;
pub mod types;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

pub use error::{Error, Result};
pub use types::*;

/// A directory served as S3 buckets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {}

#[allow(missing_docs, unused_variables)]
impl Store {
    /// Opens `root`, checks that it can be written to and that user xattrs work, sweeps old temporaries.
    pub fn open(root: &Path, options: StoreOptions) -> Result<Self> {
        unimplemented!()
    }

    // --- buckets
    pub fn list_buckets(&self) -> Result<Vec<BucketInfo>> {
        unimplemented!()
    }
    /// `attributes`: bucket xattrs to set with the creation (`acl`, `ownership`, `bucket-lock` …).
    pub fn create_bucket(&self, bucket: &str, attributes: &BTreeMap<String, Vec<u8>>) -> Result<()> {
        unimplemented!()
    }
    pub fn head_bucket(&self, bucket: &str) -> Result<BucketInfo> {
        unimplemented!()
    }
    pub fn delete_bucket(&self, bucket: &str) -> Result<()> {
        unimplemented!()
    }
    /// Raw bucket configuration by its attribute name (`acl`, `policy`, `cors`, `X-Amz-Tagging`, …).
    pub fn bucket_attribute(&self, bucket: &str, name: &str) -> Result<Option<Vec<u8>>> {
        unimplemented!()
    }
    pub fn set_bucket_attribute(&self, bucket: &str, name: &str, value: Option<&[u8]>) -> Result<()> {
        unimplemented!()
    }

    // --- objects
    /// Checks name, bucket and conditions and opens an unnamed file for a new object.
    pub fn begin_put(&self, bucket: &str, key: &str, request: &PutRequest) -> Result<PendingObject> {
        unimplemented!()
    }
    /// Opens an object for reading: attributes and bytes of one inode, whatever is overwritten later.
    pub fn open_object(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<ObjectReader> {
        unimplemented!()
    }
    /// Attributes only (HEAD).
    pub fn head_object(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<ObjectInfo> {
        unimplemented!()
    }
    pub fn delete_object(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        conditions: &WriteConditions,
    ) -> Result<Deleted> {
        unimplemented!()
    }
    pub fn list_objects(&self, bucket: &str, request: &ListRequest) -> Result<ListPage> {
        unimplemented!()
    }
    /// As [`delete_object`](Self::delete_object), with the right to override GOVERNANCE retention.
    pub fn delete_object_with(&self, bucket: &str, key: &str, request: &DeleteRequest) -> Result<Deleted> {
        unimplemented!()
    }
    /// Copies the bytes of an open object, without moving them where the file system can.
    pub fn copy_object(
        &self,
        source: &ObjectReader,
        bucket: &str,
        key: &str,
        request: &CopyRequest,
    ) -> Result<ObjectInfo> {
        unimplemented!()
    }
    /// Replaces the tags of an object in place (none or empty: removes them).
    pub fn set_object_tags(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        tags: Option<&BTreeMap<String, String>>,
    ) -> Result<ObjectInfo> {
        unimplemented!()
    }
    /// Replaces the retention (JSON `Mode`, `RetainUntilDate`) of an object in place. Refused when
    /// that shortens a COMPLIANCE retention, or a GOVERNANCE one without `bypass_governance`.
    pub fn set_object_retention(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        retention: &[u8],
        bypass_governance: bool,
    ) -> Result<ObjectInfo> {
        unimplemented!()
    }
    pub fn set_object_legal_hold(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        on: bool,
    ) -> Result<ObjectInfo> {
        unimplemented!()
    }
    /// Replaces the raw ACL of an object in place.
    pub fn set_object_acl(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        acl: Option<&[u8]>,
    ) -> Result<ObjectInfo> {
        unimplemented!()
    }

    // --- versioning
    /// Whether the store has a versioning directory at all.
    pub fn versioning_available(&self) -> bool {
        unimplemented!()
    }
    pub fn versioning(&self, bucket: &str) -> Result<Versioning> {
        unimplemented!()
    }
    /// `Off` is refused: S3 cannot go back to it.
    pub fn set_versioning(&self, bucket: &str, state: Versioning) -> Result<()> {
        unimplemented!()
    }
    pub fn list_versions(&self, bucket: &str, request: &ListVersionsRequest) -> Result<VersionPage> {
        unimplemented!()
    }

    // --- upkeep
    /// Removes temporaries older than the limit now; also done by [`Store::open`].
    pub fn sweep(&self) -> Result<Vec<Swept>> {
        unimplemented!()
    }

    // --- multipart (may come after the rest; must answer, never pretend)
    pub fn create_upload(&self, bucket: &str, key: &str, request: &CreateUpload) -> Result<String> {
        unimplemented!()
    }
    pub fn begin_part(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        part: u32,
        size_hint: Option<u64>,
    ) -> Result<PendingPart> {
        unimplemented!()
    }
    pub fn complete_upload(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        request: &CompleteUpload,
    ) -> Result<ObjectInfo> {
        unimplemented!()
    }
    pub fn abort_upload(&self, bucket: &str, key: &str, upload_id: &str) -> Result<()> {
        unimplemented!()
    }
    pub fn list_parts(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        after: u32,
        max: usize,
    ) -> Result<PartPage> {
        unimplemented!()
    }
    pub fn list_uploads(&self, bucket: &str, request: &ListRequest) -> Result<UploadPage> {
        unimplemented!()
    }
}

/// A new object that nobody sees yet. Dropped without [`publish`](Self::publish), nothing remains.
#[derive(Debug)]
pub struct PendingObject {}

#[allow(missing_docs, unused_variables)]
impl PendingObject {
    /// Writes at an offset, from any thread.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        unimplemented!()
    }
    /// A handle that writes to the same file and can outlive this value; after publication it refuses.
    pub fn sink(&self) -> ObjectSink {
        unimplemented!()
    }
    /// Copies a range of an open object to an offset of this one, in the kernel where it can.
    pub fn copy_from(
        &self,
        source: &ObjectReader,
        range: std::ops::Range<u64>,
        offset: u64,
    ) -> io::Result<()> {
        unimplemented!()
    }
    /// Sets the attributes, syncs as the durability level says, checks the conditions again, and
    /// makes the object appear in one step.
    pub fn publish(self, size: u64, attributes: ObjectAttributes) -> Result<ObjectInfo> {
        unimplemented!()
    }
}

/// A part being uploaded; as [`PendingObject`].
#[derive(Debug)]
pub struct PendingPart {}

#[allow(missing_docs, unused_variables)]
impl PendingPart {
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        unimplemented!()
    }
    /// As [`PendingObject::sink`].
    pub fn sink(&self) -> ObjectSink {
        unimplemented!()
    }
    /// As [`PendingObject::copy_from`].
    pub fn copy_from(
        &self,
        source: &ObjectReader,
        range: std::ops::Range<u64>,
        offset: u64,
    ) -> io::Result<()> {
        unimplemented!()
    }
    pub fn publish(self, size: u64, etag: &str, checksums: Option<&Checksums>) -> Result<PartInfo> {
        unimplemented!()
    }
}

/// Writes into a pending object or part from anywhere. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ObjectSink {}

#[allow(missing_docs, unused_variables)]
impl ObjectSink {
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        unimplemented!()
    }
}

/// An open object.
#[derive(Debug)]
pub struct ObjectReader {}

#[allow(missing_docs, unused_variables)]
impl ObjectReader {
    pub fn info(&self) -> &ObjectInfo {
        unimplemented!()
    }
    /// The open file, for `sendfile` and the like.
    pub fn file(&self) -> &std::fs::File {
        unimplemented!()
    }
    /// Opens the same inode for `O_DIRECT` reads too; false where the file system has none.
    pub fn enable_direct_io(&mut self) -> bool {
        unimplemented!()
    }
    /// Fills `data` from `offset`; `UnexpectedEof` when the file is shorter.
    pub fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        unimplemented!()
    }
}
