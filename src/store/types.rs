//! The object model: what the store takes and gives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How much of a write is on stable storage before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// The file's data and the directory entry.
    #[default]
    Full,
    /// The file's data only.
    Data,
    /// Nothing is synced.
    None,
}

/// What the ETag of an object uploaded in one piece is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EtagMode {
    /// MD5 of the bytes, as S3 has it.
    #[default]
    Md5,
    /// `CRC64NVME-<base64>`.
    Checksum,
}

/// Who else writes to the directory, and so how far the per-key locks must reach.
///
/// Every publication, conditional or not, holds its key's lock for the moment of check and rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LockMode {
    /// `flock` on files below `.sgwtmp/locks`: gateways on several machines may share the
    /// directory. Refused at start where the mount options say that `flock` stays on one node
    /// (Lustre `localflock`, NFS `local_lock`), since conditional writes would then not hold.
    #[default]
    Shared,
    /// As `Shared`, but only gateways of this machine write there: a node-local `flock` will do.
    Node,
    /// Locks inside this process only: no other gateway writes there.
    Process,
}

/// The ETag of files that were not put through a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ForeignEtag {
    /// Made of inode number, size and modification time; costs nothing, changes with the file.
    #[default]
    Inode,
    /// The MD5 of the content, computed at the first GET or HEAD and kept with the file until it
    /// changes. Listings show the `Inode` form until then.
    Md5,
}

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// See [`Durability`].
    pub durability: Durability,
    /// Permission bits of directories the store makes, before the umask.
    pub dir_mode: u32,
    /// Permission bits of object files, before the umask.
    pub file_mode: u32,
    /// Owner and group given to files and directories, when set.
    pub chown_uid: Option<u32>,
    /// See `chown_uid`.
    pub chown_gid: Option<u32>,
    /// Whether symbolic links directly under the root are buckets.
    pub bucket_links: bool,
    /// Where older versions live; versioning is off without it.
    pub versioning_dir: Option<PathBuf>,
    /// Keep attributes as files below this directory instead of xattrs.
    pub sidecar: Option<PathBuf>,
    /// Use named temporary files even where `O_TMPFILE` works.
    pub disable_otmpfile: bool,
    /// Never use `copy_file_range`.
    pub disable_copy_file_range: bool,
    /// Accept bucket names outside the DNS rules.
    pub relaxed_bucket_names: bool,
    /// Temporaries older than this are swept.
    pub sweep_after: Duration,
    /// Refuse every write.
    pub read_only: bool,
    /// See [`LockMode`].
    pub lock_mode: LockMode,
    /// See [`ForeignEtag`].
    pub foreign_etag: ForeignEtag,
    /// Smallest size of a part that is not the last, in bytes. S3's, but for tests that want many.
    #[doc(hidden)]
    pub min_part_size: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            dir_mode: 0o755,
            file_mode: 0o644,
            chown_uid: None,
            chown_gid: None,
            bucket_links: false,
            versioning_dir: None,
            sidecar: None,
            disable_otmpfile: false,
            disable_copy_file_range: false,
            relaxed_bucket_names: false,
            sweep_after: Duration::from_secs(24 * 3600),
            read_only: false,
            lock_mode: LockMode::Shared,
            foreign_etag: ForeignEtag::Inode,
            min_part_size: 5 << 20,
        }
    }
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name: the directory's.
    pub name: String,
    /// When it was made (as far as the file system tells).
    pub created: SystemTime,
}

/// The standard headers an object keeps, and the rest of what its xattrs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectAttributes {
    /// ETag without quotes. The xattr stores it with quotes.
    pub etag: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Encoding`.
    pub content_encoding: Option<String>,
    /// `Content-Disposition`.
    pub content_disposition: Option<String>,
    /// `Content-Language`.
    pub content_language: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// `Expires`, as sent.
    pub expires: Option<String>,
    /// `x-amz-website-redirect-location`.
    pub website_redirect: Option<String>,
    /// `x-amz-meta-*`, names in lower case without the prefix.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Stored checksums.
    pub checksums: Option<Checksums>,
    /// Ends of the parts of a multipart object, cumulative.
    pub part_ends: Vec<u64>,
    /// Base64 checksums of those parts, by the algorithm of `checksums`; none when some part has none.
    pub part_checksums: Vec<String>,
    /// Retention and legal hold, raw, as their xattrs hold them.
    pub retention: Option<Vec<u8>>,
    /// See `retention`.
    pub legal_hold: Option<bool>,
    /// Object ACL, raw JSON, when one was set.
    pub acl: Option<Vec<u8>>,
}

/// Whether a checksum covers the object or is composed of the parts' checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumType {
    /// Over all bytes.
    FullObject,
    /// Over the parts' checksums; the value ends in `-N`.
    Composite,
}

/// Stored checksums of an object or part: base64 values by algorithm name (`CRC64NVME` …).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksums {
    /// The algorithm asked for at upload, upper case.
    pub algorithm: String,
    /// See [`ChecksumType`].
    pub kind: ChecksumType,
    /// Algorithm name (upper case) → base64 value.
    pub values: BTreeMap<String, String>,
}

/// An object as seen by HEAD and GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The key.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Last modification.
    pub modified: SystemTime,
    /// ETag without quotes; always there.
    pub etag: String,
    /// Version id, when versioning gave one.
    pub version_id: Option<String>,
    /// Stored headers and the like.
    pub attributes: ObjectAttributes,
}

impl ObjectInfo {
    /// The bytes of part `number` (from 1); an object put in one piece has part 1 only.
    pub fn part(&self, number: u32) -> Option<Range<u64>> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let ends = &self.attributes.part_ends;
        if ends.is_empty() {
            return (index == 0).then_some(0..self.size);
        }
        let start = if index == 0 { 0 } else { *ends.get(index - 1)? };
        Some(start..*ends.get(index)?)
    }

    /// How many parts it was uploaded in; none when it was put in one piece.
    pub fn part_count(&self) -> Option<usize> {
        Some(self.attributes.part_ends.len()).filter(|count| *count > 0)
    }
}

/// Room in the file system that holds the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// What the gateway's user can still fill, in bytes.
    pub available_bytes: u64,
}

/// Conditions of a write (`If-Match`, `If-None-Match`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// `If-None-Match: *`: the key must not exist.
    pub if_none_match_any: bool,
    /// `If-None-Match: "etag"` without quotes: the key must not hold that object.
    pub if_none_match: Option<String>,
    /// `If-Match: "etag"` without quotes, or `*`.
    pub if_match: Option<String>,
    /// Conditions of DeleteObject: expected size.
    pub if_match_size: Option<u64>,
    /// Conditions of DeleteObject: expected modification time.
    pub if_match_modified: Option<SystemTime>,
}

/// What [`Store::begin_put`](super::Store::begin_put) needs to know.
#[derive(Clone, Debug, Default)]
pub struct PutRequest {
    /// The body's size, when known: the space is reserved first.
    pub size_hint: Option<u64>,
    /// Checked now and again at publication.
    pub conditions: WriteConditions,
    /// Open the data file so that `O_DIRECT` writes are possible.
    pub direct_io: bool,
}

/// Answer of a delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// The version removed, or of the marker made.
    pub version_id: Option<String>,
    /// Whether a delete marker was made or removed.
    pub delete_marker: bool,
    /// False when there was nothing to delete.
    pub existed: bool,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Only keys that start with it.
    pub prefix: String,
    /// Keys sharing the text up to its next occurrence after the prefix are rolled up. Any string.
    pub delimiter: Option<String>,
    /// Only keys (and common prefixes) after this one, in byte order.
    pub start_after: Option<String>,
    /// For uploads: only upload ids after this one within the key `start_after`.
    pub upload_id_marker: Option<String>,
    /// Most entries on the page (keys and prefixes together).
    pub max_keys: usize,
    /// Whether the ACLs of the objects are wanted.
    pub acls: bool,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// The key.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Last modification.
    pub modified: SystemTime,
    /// ETag without quotes.
    pub etag: String,
    /// Checksum algorithm stored, when there is one.
    pub checksum_algorithm: Option<String>,
    /// Type of the stored checksum, when there is one.
    pub checksum_type: Option<ChecksumType>,
    /// Its ACL, raw JSON, when one was set and asked for.
    pub acl: Option<Vec<u8>>,
}

/// A page of objects and common prefixes, each in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects.
    pub objects: Vec<ListedObject>,
    /// Common prefixes.
    pub common_prefixes: Vec<String>,
    /// Where the next page starts (pass as `start_after`); none on the last page.
    pub next: Option<String>,
}

/// What a multipart upload starts with.
#[derive(Clone, Debug, Default)]
pub struct CreateUpload {
    /// Attributes the object will have.
    pub attributes: ObjectAttributes,
    /// Checksum algorithm and type declared, when any.
    pub checksum: Option<(String, ChecksumType)>,
    /// Name of the account that starts it.
    pub initiator: Option<String>,
}

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// 1 to 10000.
    pub number: u32,
    /// Size in bytes.
    pub size: u64,
    /// ETag without quotes.
    pub etag: String,
    /// When it was uploaded.
    pub modified: SystemTime,
    /// Its checksums.
    pub checksums: Option<Checksums>,
}

/// A part named in CompleteMultipartUpload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedPart {
    /// Part number.
    pub number: u32,
    /// ETag the client was given, without quotes.
    pub etag: Option<String>,
    /// Checksums the client states: algorithm → base64.
    pub checksums: BTreeMap<String, String>,
}

/// CompleteMultipartUpload.
#[derive(Clone, Debug, Default)]
pub struct CompleteUpload {
    /// In the client's order.
    pub parts: Vec<CompletedPart>,
    /// Whole-object checksums the client states.
    pub checksums: BTreeMap<String, String>,
    /// Conditions of the write.
    pub conditions: WriteConditions,
    /// Size the client states.
    pub expected_size: Option<u64>,
}

/// Whose an upload is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadClaims {
    /// The account that started it, when that was noted.
    pub initiator: Option<String>,
    /// ACL that the object will have, raw JSON.
    pub acl: Option<Vec<u8>>,
}

/// A page of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartPage {
    /// In the order of their numbers.
    pub parts: Vec<PartInfo>,
    /// Whether there are more.
    pub truncated: bool,
    /// Checksum algorithm and type of the upload.
    pub checksum: Option<(String, ChecksumType)>,
    /// Whose upload it is.
    pub claims: UploadClaims,
}

/// A pending upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    /// The key it will become.
    pub key: String,
    /// Its id.
    pub upload_id: String,
    /// When it was started.
    pub initiated: SystemTime,
    /// Checksum algorithm and type declared.
    pub checksum: Option<(String, ChecksumType)>,
    /// Whose upload it is.
    pub claims: UploadClaims,
}

/// A page of uploads, by key and then upload id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadPage {
    /// Uploads.
    pub uploads: Vec<UploadInfo>,
    /// Common prefixes.
    pub common_prefixes: Vec<String>,
    /// Key and upload id markers of the next page.
    pub next: Option<(String, String)>,
}

/// Whether a bucket keeps older versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Versioning {
    /// Never switched on, or the store has no versioning directory.
    #[default]
    Off,
    /// Every write makes a version with its own id.
    Enabled,
    /// Writes replace the `null` version; older ones stay.
    Suspended,
}

/// What to delete, and when not to.
#[derive(Clone, Debug, Default)]
pub struct DeleteRequest {
    /// A version id, or `null`; without it the current version (or a marker is made).
    pub version: Option<String>,
    /// Conditions on what is there.
    pub conditions: WriteConditions,
    /// Whether a retention in GOVERNANCE mode may be overridden (the caller has checked the right).
    pub bypass_governance: bool,
}

/// A page of versions.
#[derive(Clone, Debug, Default)]
pub struct ListVersionsRequest {
    /// Only keys that start with it.
    pub prefix: String,
    /// As in [`ListRequest`].
    pub delimiter: Option<String>,
    /// Only keys (and common prefixes) after this one; with `version_marker`, its later versions too.
    pub key_marker: Option<String>,
    /// Only versions of the key `key_marker` that come after this one.
    pub version_marker: Option<String>,
    /// Most entries on the page.
    pub max_keys: usize,
}

/// One version or delete marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    /// The key.
    pub key: String,
    /// A 26-character id, or `null`.
    pub version_id: String,
    /// Whether it is the current version.
    pub is_latest: bool,
    /// Whether it is a delete marker (then size and ETag mean nothing).
    pub delete_marker: bool,
    /// Size in bytes.
    pub size: u64,
    /// Last modification.
    pub modified: SystemTime,
    /// ETag without quotes.
    pub etag: String,
    /// Checksum algorithm stored, when there is one.
    pub checksum_algorithm: Option<String>,
    /// Type of the stored checksum, when there is one.
    pub checksum_type: Option<ChecksumType>,
    /// Its ACL, raw JSON, when one was set and asked for.
    pub acl: Option<Vec<u8>>,
}

/// A page of versions, by key and then from the newest to the oldest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionPage {
    /// Versions and delete markers.
    pub versions: Vec<ListedVersion>,
    /// Common prefixes.
    pub common_prefixes: Vec<String>,
    /// Key and version id markers of the next page; the id is empty after a common prefix.
    pub next: Option<(String, String)>,
}

/// CopyObject, beside source and target.
#[derive(Clone, Debug, Default)]
pub struct CopyRequest {
    /// Conditions on the target.
    pub conditions: WriteConditions,
    /// `x-amz-metadata-directive: REPLACE` with the new headers and metadata (of this value only
    /// those are used); without it they are copied.
    pub replace_metadata: Option<ObjectAttributes>,
    /// `x-amz-tagging-directive: REPLACE` with the new tags; without it they are copied.
    pub replace_tags: Option<BTreeMap<String, String>>,
    /// ETag and checksums of the bytes, when the caller computed new ones; else the source's stay.
    pub digests: Option<(String, Option<Checksums>)>,
    /// Retention of the copy: never taken from the source.
    pub retention: Option<Vec<u8>>,
    /// Legal hold of the copy: never taken from the source.
    pub legal_hold: Option<bool>,
    /// ACL of the copy: never taken from the source.
    pub acl: Option<Vec<u8>>,
    /// Whether anything else of the request changes the object (encryption, storage class), so that
    /// copying it onto itself is allowed.
    pub changes_otherwise: bool,
}

/// One temporary that a sweep removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Its path below the root.
    pub path: String,
    /// How old it was.
    pub age: Duration,
}
