//! S3 objects in a POSIX directory: names, attributes, atomic publication, listing.
//!
//! Each directory directly below the root is a bucket, each file below it an object. All state is in
//! the file system (attributes, names), every change of an object is one rename or link, and nothing
//! is remembered that another gateway's write could make wrong, so that several gateways may serve
//! the same directory. The layout is that of versitygw's posix backend; see `attributes`, `keeper`,
//! `multipart` and `versions` for its parts.
//!
//! Every function blocks; callers run them off the async runtime, from as many threads as they like.
//! Knows neither HTTP nor RDMA.
//!
//! What holds:
//! - A reader sees the bytes and attributes of one object, whatever is written meanwhile.
//! - What is acknowledged survives a crash as the durability level says; what is not leaves at most
//!   a file in `.sgwtmp`, which no key reaches and a sweep removes.
//! - Conditional writes are decided when the object is published, under a lock of its key.
//! - A file system holds a file or a directory under a name: `a` and `a/b` exclude each other.

mod attributes;
mod bucket;
mod commit;
mod content_type;
mod copy;
mod delete;
pub mod error;
mod etag;
mod fs;
mod inner;
mod keeper;
mod key;
mod list;
mod lock;
mod multipart;
mod object;
pub mod object_lock;
mod put;
mod read;
mod sweep;
pub mod types;
mod ulid;
mod update;
mod versions;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub use error::{Error, Result};
pub use fs::{FsObserver, FsOp};
use inner::Inner;
pub use multipart::PendingPart;
pub use put::{ObjectSink, PendingObject};
pub use read::ObjectReader;
pub use types::*;

/// A directory served as S3 buckets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

impl Store {
    /// Opens `root`, checks that it can be written to and that user xattrs work, sweeps old temporaries.
    ///
    /// # Errors
    /// Says what is missing and what to do: attributes (a sidecar directory), locks that reach all
    /// machines (the lock mode), a versioning or sidecar directory outside the root.
    pub fn open(root: &Path, options: StoreOptions) -> Result<Self> {
        Self::open_observed(root, options, None)
    }

    /// As [`open`](Self::open), with somebody who is told of each change to the file system.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_observed(
        root: &Path,
        options: StoreOptions,
        observer: Option<Arc<dyn FsObserver>>,
    ) -> Result<Self> {
        let store = Self { inner: Arc::new(Inner::open(root, options, observer)?) };
        if !store.inner.options.read_only {
            // What cannot be swept is no reason not to serve.
            if let Err(error) = store.inner.sweep(false) {
                tracing::warn!(%error, "old temporaries could not be swept");
            }
        }
        Ok(store)
    }

    // --- buckets

    /// All buckets, by name.
    ///
    /// # Errors
    /// Only what the file system says.
    pub fn list_buckets(&self) -> Result<Vec<BucketInfo>> {
        self.inner.list_buckets()
    }

    /// Makes a bucket. `attributes`: bucket xattrs to set with the creation (`acl`, `ownership`,
    /// `bucket-lock` …).
    ///
    /// # Errors
    /// [`Error::BucketExists`], [`Error::InvalidBucketName`].
    pub fn create_bucket(&self, bucket: &str, attributes: &BTreeMap<String, Vec<u8>>) -> Result<()> {
        self.inner.create_bucket(bucket, attributes)
    }

    /// Whether a bucket exists, and since when.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn head_bucket(&self, bucket: &str) -> Result<BucketInfo> {
        self.inner.head_bucket(bucket)
    }

    /// Removes a bucket without objects and versions; pending uploads go with it.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::BucketNotEmpty`].
    pub fn delete_bucket(&self, bucket: &str) -> Result<()> {
        self.inner.delete_bucket(bucket)
    }

    /// Raw bucket configuration by its attribute name (`acl`, `policy`, `cors`, `X-Amz-Tagging`, …).
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn bucket_attribute(&self, bucket: &str, name: &str) -> Result<Option<Vec<u8>>> {
        self.inner.bucket_attribute(bucket, name)
    }

    /// Several attributes of a bucket in one look, in the order of their names.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn bucket_attributes<const N: usize>(
        &self,
        bucket: &str,
        names: [&str; N],
    ) -> Result<[Option<Vec<u8>>; N]> {
        self.inner.bucket_attributes(bucket, names)
    }

    /// Sets or removes bucket configuration of any size.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn set_bucket_attribute(&self, bucket: &str, name: &str, value: Option<&[u8]>) -> Result<()> {
        self.inner.set_bucket_attribute(bucket, name, value)
    }

    // --- objects

    /// Checks name, bucket and conditions and opens an unnamed file for a new object. A key that
    /// ends in `/` is a directory object, which takes no data.
    ///
    /// # Errors
    /// Everything that publication would refuse as things are now.
    pub fn begin_put(&self, bucket: &str, key: &str, request: &PutRequest) -> Result<PendingObject> {
        self.inner.begin_put(bucket, key, request)
    }

    /// Opens an object for reading: attributes and bytes of one inode, whatever is overwritten later.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`].
    pub fn open_object(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<ObjectReader> {
        self.inner.open_object(bucket, key, version)
    }

    /// Attributes only (HEAD).
    ///
    /// # Errors
    /// As [`open_object`](Self::open_object).
    pub fn head_object(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<ObjectInfo> {
        self.inner.head_object(bucket, key, version)
    }

    /// Deletes an object, or makes a delete marker, or removes a version. No error when there is
    /// nothing (unless a condition speaks of it).
    ///
    /// # Errors
    /// [`Error::PreconditionFailed`], [`Error::Denied`] while retention or a legal hold lasts.
    pub fn delete_object(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        conditions: &WriteConditions,
    ) -> Result<Deleted> {
        let request = DeleteRequest {
            version: version.map(str::to_owned),
            conditions: conditions.clone(),
            bypass_governance: false,
        };
        self.inner.delete(bucket, key, &request)
    }

    /// As [`delete_object`](Self::delete_object), with the right to override GOVERNANCE retention.
    ///
    /// # Errors
    /// As there.
    pub fn delete_object_with(&self, bucket: &str, key: &str, request: &DeleteRequest) -> Result<Deleted> {
        self.inner.delete(bucket, key, request)
    }

    /// A page of objects in the byte order of their keys.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn list_objects(&self, bucket: &str, request: &ListRequest) -> Result<ListPage> {
        self.inner.list_objects(bucket, request)
    }

    /// Copies the bytes of an open object, without moving them where the file system can.
    ///
    /// # Errors
    /// [`Error::CopyToItself`] when nothing would change; else as [`PendingObject::publish`].
    pub fn copy_object(
        &self,
        source: &ObjectReader,
        bucket: &str,
        key: &str,
        request: &CopyRequest,
    ) -> Result<ObjectInfo> {
        self.inner.copy_object(source, bucket, key, request)
    }

    // --- attributes of objects, changed in place

    /// Replaces the tags of an object (none or empty: removes them).
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`].
    pub fn set_object_tags(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        tags: Option<&BTreeMap<String, String>>,
    ) -> Result<ObjectInfo> {
        self.inner.set_object_tags(bucket, key, version, tags)
    }

    /// Replaces the retention (JSON `Mode`, `RetainUntilDate`) of an object.
    ///
    /// # Errors
    /// As [`set_object_tags`](Self::set_object_tags); [`Error::Denied`] when that weakens a COMPLIANCE
    /// retention, or a GOVERNANCE one without `bypass_governance`.
    pub fn set_object_retention(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        retention: &[u8],
        bypass_governance: bool,
    ) -> Result<ObjectInfo> {
        self.inner.set_object_retention(bucket, key, version, retention, bypass_governance)
    }

    /// Puts an object under a legal hold, or releases it.
    ///
    /// # Errors
    /// As [`set_object_tags`](Self::set_object_tags).
    pub fn set_object_legal_hold(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        on: bool,
    ) -> Result<ObjectInfo> {
        self.inner.set_object_legal_hold(bucket, key, version, on)
    }

    /// Replaces the raw ACL of an object.
    ///
    /// # Errors
    /// As [`set_object_tags`](Self::set_object_tags).
    pub fn set_object_acl(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        acl: Option<&[u8]>,
    ) -> Result<ObjectInfo> {
        self.inner.set_object_acl(bucket, key, version, acl)
    }

    // --- versioning

    /// Whether the store has a versioning directory at all.
    pub fn versioning_available(&self) -> bool {
        self.inner.versions.is_some()
    }

    /// Whether a bucket keeps older versions.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn versioning(&self, bucket: &str) -> Result<Versioning> {
        self.inner.versioning_of(&self.inner.bucket(bucket)?)
    }

    /// Switches versioning on or suspends it; `Off` is refused, since S3 cannot go back to it.
    ///
    /// # Errors
    /// [`Error::NotImplemented`] without a versioning directory; [`Error::InvalidArgument`] when object
    /// lock needs it.
    pub fn set_versioning(&self, bucket: &str, state: Versioning) -> Result<()> {
        self.inner.set_versioning(bucket, state)
    }

    /// A page of versions and delete markers, by key and then from the newest.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn list_versions(&self, bucket: &str, request: &ListVersionsRequest) -> Result<VersionPage> {
        self.inner.list_versions(bucket, request)
    }

    // --- multipart uploads

    /// Starts an upload; returns its id.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a checksum type that its algorithm cannot have, or a key that
    /// ends in a slash.
    pub fn create_upload(&self, bucket: &str, key: &str, request: &CreateUpload) -> Result<String> {
        self.inner.create_upload(bucket, key, request)
    }

    /// Opens an unnamed file for a part (1 to 10000).
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`], [`Error::InvalidArgument`].
    pub fn begin_part(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        part: u32,
        size_hint: Option<u64>,
    ) -> Result<PendingPart> {
        self.inner.begin_part(bucket, key, upload_id, part, size_hint)
    }

    /// Makes an object of the parts. Asked again after it was done, it answers the same, as long as the
    /// object is there.
    ///
    /// # Errors
    /// [`Error::InvalidPart`], [`Error::InvalidPartOrder`], [`Error::EntityTooSmall`],
    /// [`Error::BadDigest`], [`Error::NoSuchUpload`], and those of [`PendingObject::publish`]. The
    /// upload is still there then and can be completed again.
    pub fn complete_upload(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        request: &CompleteUpload,
    ) -> Result<ObjectInfo> {
        self.inner.complete_upload(bucket, key, upload_id, request)
    }

    /// Removes an upload with its parts.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`].
    pub fn abort_upload(&self, bucket: &str, key: &str, upload_id: &str) -> Result<()> {
        self.inner.abort_upload(bucket, key, upload_id)
    }

    /// Whose a pending upload is.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`].
    pub fn upload_claims(&self, bucket: &str, key: &str, upload_id: &str) -> Result<UploadClaims> {
        self.inner.upload_claims(bucket, key, upload_id)
    }

    /// At most `max` parts with numbers greater than `after`, in their order.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`].
    pub fn list_parts(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        after: u32,
        max: usize,
    ) -> Result<PartPage> {
        self.inner.list_parts(bucket, key, upload_id, after, max)
    }

    /// A page of pending uploads, by key and then upload id.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub fn list_uploads(&self, bucket: &str, request: &ListRequest) -> Result<UploadPage> {
        self.inner.list_uploads(bucket, request)
    }

    // --- upkeep

    /// Room in the file system that holds the root.
    ///
    /// # Errors
    /// Only what the file system says.
    pub fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    /// Removes temporaries older than the limit in all buckets, with a log line each. [`Store::open`]
    /// does it too; this looks for attribute overflow files without an owner besides.
    ///
    /// # Errors
    /// Only what the file system says.
    pub fn sweep(&self) -> Result<Vec<Swept>> {
        self.inner.sweep(true)
    }
}
