//! Why the store refused or failed.

use std::io;

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failures by what S3 makes of them. Texts name the bucket or key and the cure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `NoSuchBucket`.
    #[error("bucket {0:?} does not exist")]
    NoSuchBucket(String),
    /// `BucketAlreadyOwnedByYou` / `BucketAlreadyExists`: the gateway knows who asks.
    #[error("bucket {0:?} exists already")]
    BucketExists(String),
    /// `BucketNotEmpty`.
    #[error("bucket {0:?} is not empty")]
    BucketNotEmpty(String),
    /// `InvalidBucketName`.
    #[error("{0:?} is not a valid bucket name: {1}")]
    InvalidBucketName(String, &'static str),
    /// `NoSuchKey`.
    #[error("key {0:?} does not exist")]
    NoSuchKey(String),
    /// `NoSuchVersion`.
    #[error("version {version:?} of key {key:?} does not exist")]
    NoSuchVersion {
        /// The key.
        key: String,
        /// The version asked for.
        version: String,
    },
    /// `MethodNotAllowed`, with the delete marker's version.
    #[error("the version is a delete marker")]
    DeleteMarker {
        /// Its version id.
        version: String,
        /// True when it is the current version (then GET says `NoSuchKey`).
        current: bool,
    },
    /// `InvalidArgument`: a key no file can be named by, with the reason.
    #[error("key {key:?} cannot be stored: {reason}")]
    InvalidKey {
        /// The key.
        key: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// `KeyTooLongError`.
    #[error("key of {0} bytes is too long, or a component of it is longer than 255 bytes")]
    KeyTooLong(usize),
    /// 409: a prefix of the key is an object, or the key is a directory with children.
    #[error("key {key:?} conflicts with existing {conflict:?}: {reason}")]
    KeyConflict {
        /// The key.
        key: String,
        /// What stands in its way.
        conflict: String,
        /// How.
        reason: &'static str,
    },
    /// `PreconditionFailed` (412), with the condition's name.
    #[error("condition {0} does not hold")]
    PreconditionFailed(&'static str),
    /// `NoSuchUpload`.
    #[error("upload {0:?} does not exist; it may have been completed or aborted")]
    NoSuchUpload(String),
    /// `InvalidPart`.
    #[error("part {number}: {reason}")]
    InvalidPart {
        /// Part number.
        number: u32,
        /// What does not match.
        reason: String,
    },
    /// `InvalidPartOrder`.
    #[error("parts must be listed in ascending order of their numbers")]
    InvalidPartOrder,
    /// `EntityTooSmall`.
    #[error("part {0} is smaller than 5 MiB and not the last")]
    EntityTooSmall(u32),
    /// `InvalidArgument` in general.
    #[error("{0}")]
    InvalidArgument(String),
    /// `BadDigest`.
    #[error("checksum mismatch: {0}")]
    BadDigest(String),
    /// `AccessDenied`: the store is read-only, or an object lock holds.
    #[error("{0}")]
    Denied(String),
    /// `IncompleteBody`: fewer bytes were written than the object is to have.
    #[error("the body of {key:?} ended after {received} of {expected} bytes")]
    IncompleteBody {
        /// The key.
        key: String,
        /// Bytes announced.
        expected: u64,
        /// Bytes received.
        received: u64,
    },
    /// `InvalidRequest`: a copy onto itself that changes nothing.
    #[error("copying {0:?} onto itself changes nothing; replace its metadata, tags or storage class")]
    CopyToItself(String),
    /// The disk is full.
    #[error("no space left for {path:?}: the file system is full")]
    NoSpace {
        /// What was to be stored, relative to the root.
        path: String,
    },
    /// A quota of the file system is used up.
    #[error("no space left for {path:?}: the quota of its owner or directory is used up")]
    QuotaExceeded {
        /// What was to be stored, relative to the root.
        path: String,
    },
    /// `NotImplemented`.
    #[error("{0} is not implemented")]
    NotImplemented(&'static str),
    /// Anything the file system said.
    #[error("{operation} {path:?}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what, relative to the root.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    /// What the file system said about `path`, as S3 tells it apart where it does.
    pub(crate) fn fs(operation: &'static str, path: &str, error: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let path = path.to_owned();
        match error {
            Errno::NOSPC => Self::NoSpace { path },
            Errno::DQUOT => Self::QuotaExceeded { path },
            Errno::ROFS => Self::Denied(format!("{path:?}: the file system is mounted read-only")),
            Errno::ACCESS | Errno::PERM => Self::Denied(format!(
                "{path:?}: the file system does not let the gateway's user {operation} it"
            )),
            Errno::NAMETOOLONG => Self::KeyTooLong(path.len()),
            error => Self::Io { operation, path, source: error.into() },
        }
    }

    /// As [`fs`](Self::fs), for errors of the standard library.
    pub(crate) fn io(operation: &'static str, path: &str, error: io::Error) -> Self {
        match rustix::io::Errno::from_io_error(&error) {
            Some(errno) => Self::fs(operation, path, errno),
            None => Self::Io { operation, path: path.to_owned(), source: error },
        }
    }
}
