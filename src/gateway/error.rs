//! The one place where failures become S3 error codes.
//!
//! Codes and statuses: <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>.
//! Causes inside the gateway are logged and never sent.

use std::io;

use http::{HeaderMap, HeaderValue, StatusCode};
use s3s::{S3Error, S3ErrorCode};

use super::body::RequestBodyError;
use crate::store;

/// An error with a code and a text for the client.
pub(crate) fn s3(code: S3ErrorCode, message: impl Into<String>) -> S3Error {
    S3Error::with_message(code, message.into())
}

/// As [`s3`], with a status of its own; for codes that s3s does not know or knows otherwise.
pub(crate) fn s3_status(code: S3ErrorCode, status: StatusCode, message: impl Into<String>) -> S3Error {
    let mut error = s3(code, message);
    error.set_status_code(status);
    error
}

/// Adds headers to an error's response.
pub(crate) fn with_headers(mut error: S3Error, headers: HeaderMap) -> S3Error {
    let mut all = error.headers().cloned().unwrap_or_default();
    // s3s puts these in place of the response's own headers, so the content type must be among them.
    all.entry(http::header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/xml"));
    all.extend(headers);
    error.set_headers(all);
    error
}

/// An unexpected failure: logged here, and shown to the client only as `InternalError`.
pub(crate) fn internal(context: &str, cause: &dyn std::fmt::Display) -> S3Error {
    tracing::error!(%cause, "{context}");
    s3(S3ErrorCode::InternalError, "We encountered an internal error. Please try again.")
}

impl From<store::Error> for S3Error {
    fn from(error: store::Error) -> Self {
        use store::Error as E;
        let text = error.to_string();
        match error {
            E::NoSuchBucket(_) => s3(S3ErrorCode::NoSuchBucket, text),
            E::BucketExists(_) => s3(S3ErrorCode::BucketAlreadyOwnedByYou, text),
            E::BucketNotEmpty(_) => s3(S3ErrorCode::BucketNotEmpty, text),
            E::InvalidBucketName(..) => s3(S3ErrorCode::InvalidBucketName, text),
            E::NoSuchKey(_) => s3(S3ErrorCode::NoSuchKey, text),
            E::NoSuchVersion { .. } => s3(S3ErrorCode::NoSuchVersion, text),
            E::DeleteMarker { version, current } => {
                let code = if current { S3ErrorCode::NoSuchKey } else { S3ErrorCode::MethodNotAllowed };
                let mut headers = HeaderMap::new();
                headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
                if let Ok(version) = HeaderValue::try_from(version) {
                    headers.insert("x-amz-version-id", version);
                }
                with_headers(s3(code, text), headers)
            }
            E::InvalidKey { .. } | E::InvalidArgument(_) => s3(S3ErrorCode::InvalidArgument, text),
            E::KeyTooLong(_) => s3(S3ErrorCode::KeyTooLongError, text),
            E::KeyConflict { .. } => s3_status(S3ErrorCode::InvalidRequest, StatusCode::CONFLICT, text),
            E::PreconditionFailed(_) => s3(S3ErrorCode::PreconditionFailed, text),
            E::NoSuchUpload(_) => s3(S3ErrorCode::NoSuchUpload, text),
            E::InvalidPart { .. } => s3(S3ErrorCode::InvalidPart, text),
            E::InvalidPartOrder => s3(S3ErrorCode::InvalidPartOrder, text),
            E::EntityTooSmall(_) => s3(S3ErrorCode::EntityTooSmall, text),
            E::BadDigest(_) => s3(S3ErrorCode::BadDigest, text),
            E::Denied(_) => s3(S3ErrorCode::AccessDenied, text),
            E::IncompleteBody { .. } => s3(S3ErrorCode::IncompleteBody, text),
            E::CopyToItself(_) => s3(S3ErrorCode::InvalidRequest, text),
            E::NoSpace { .. } => {
                tracing::error!("{text}");
                storage_full()
            }
            E::QuotaExceeded { .. } => {
                tracing::error!("{text}");
                quota_exceeded()
            }
            E::NotImplemented(_) => s3(S3ErrorCode::NotImplemented, text),
            E::Io { ref source, .. } => io_error(&text, source),
        }
    }
}

/// What a failed system call on the object's file means to the client.
pub(crate) fn io_error(context: &str, cause: &io::Error) -> S3Error {
    match cause.kind() {
        io::ErrorKind::StorageFull => {
            tracing::error!(%cause, "{context}");
            storage_full()
        }
        io::ErrorKind::QuotaExceeded => {
            tracing::error!(%cause, "{context}");
            quota_exceeded()
        }
        io::ErrorKind::FileTooLarge => {
            s3(S3ErrorCode::EntityTooLarge, "the file system takes no file of this size")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            s3(S3ErrorCode::AccessDenied, "the storage behind the gateway is read-only")
        }
        _ => internal(context, cause),
    }
}

/// Amazon S3 is never full, so it has no code for that. Status 507 is what MinIO and versitygw answer,
/// the code is versitygw's; AWS's SDKs do not try such a request again, which would not help.
fn storage_full() -> S3Error {
    s3_status(
        S3ErrorCode::Custom("InsufficientStorage".into()),
        StatusCode::INSUFFICIENT_STORAGE,
        "the storage behind the gateway is full",
    )
}

/// As versitygw answers it.
fn quota_exceeded() -> S3Error {
    s3_status(
        S3ErrorCode::Custom("QuotaExceeded".into()),
        StatusCode::FORBIDDEN,
        "a quota of the storage behind the gateway is used up",
    )
}

/// What a failure in the middle of a request body means.
///
/// The bodies that s3s wraps (aws-chunked framing, payload hash) report by types it does not export,
/// so they are told apart by their texts, which [tests](mod@self) pin by real requests.
pub(crate) fn body_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> S3Error {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(this) = cause {
        let text = this.to_string();
        if let Some(RequestBodyError::Stalled(_)) = this.downcast_ref() {
            return s3(
                S3ErrorCode::RequestTimeout,
                "Your socket connection to the server was not read from or written to within the timeout period.",
            );
        }
        if text.contains("Sha256Mismatch") {
            return s3(
                S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()),
                "the provided x-amz-content-sha256 does not match what was computed",
            )
            .with_status(StatusCode::BAD_REQUEST);
        }
        if text.contains("SignatureMismatch") {
            return s3(
                S3ErrorCode::SignatureDoesNotMatch,
                "the signature of a chunk of the body does not match",
            );
        }
        if text.contains("Incomplete") || text.contains("LengthMismatch") {
            return s3(
                S3ErrorCode::IncompleteBody,
                "the body does not have the number of bytes that the headers state",
            );
        }
        if text.contains("AwsChunkedStreamError: FormatError")
            || text.contains("TooLarge")
            || text.contains("TooManyTrailerHeaders")
        {
            return s3(S3ErrorCode::InvalidRequest, "the aws-chunked framing of the body is malformed");
        }
        cause = this.source();
    }
    tracing::debug!(%error, "the request body broke off");
    s3(S3ErrorCode::IncompleteBody, "the body ended before all of it was read")
}

/// A status for an error, in the middle of an expression.
trait WithStatus {
    fn with_status(self, status: StatusCode) -> Self;
}

impl WithStatus for S3Error {
    fn with_status(mut self, status: StatusCode) -> Self {
        self.set_status_code(status);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(store::Error::NoSuchBucket("b".into()) => ("NoSuchBucket".into(), 404))]
    #[test_case(store::Error::NoSuchKey("k".into()) => ("NoSuchKey".into(), 404))]
    #[test_case(store::Error::BucketNotEmpty("b".into()) => ("BucketNotEmpty".into(), 409))]
    #[test_case(store::Error::KeyTooLong(2000) => ("KeyTooLongError".into(), 400))]
    #[test_case(store::Error::KeyConflict { key: "a/b".into(), conflict: "a".into(), reason: "x" } => ("InvalidRequest".into(), 409))]
    #[test_case(store::Error::PreconditionFailed("If-Match") => ("PreconditionFailed".into(), 412))]
    #[test_case(store::Error::EntityTooSmall(1) => ("EntityTooSmall".into(), 400))]
    #[test_case(store::Error::BadDigest("x".into()) => ("BadDigest".into(), 400))]
    #[test_case(store::Error::NotImplemented("x") => ("NotImplemented".into(), 501))]
    #[test_case(store::Error::DeleteMarker { version: "1".into(), current: true } => ("NoSuchKey".into(), 404))]
    #[test_case(store::Error::DeleteMarker { version: "1".into(), current: false } => ("MethodNotAllowed".into(), 405))]
    fn codes(error: store::Error) -> (String, u16) {
        let error = S3Error::from(error);
        (error.code().as_str().to_owned(), error.status_code().unwrap().as_u16())
    }

    #[test]
    fn causes_stay_inside() {
        let error = S3Error::from(store::Error::Io {
            operation: "open",
            path: "secret/place".into(),
            source: io::Error::other("disk on fire"),
        });
        assert_eq!(error.code().as_str(), "InternalError");
        assert!(!error.message().unwrap().contains("secret"));
        assert!(!error.message().unwrap().contains("fire"));
    }

    #[test]
    fn a_full_disk_is_told() {
        for (errno, code, status) in [
            (libc::ENOSPC, "InsufficientStorage", 507),
            (libc::EDQUOT, "QuotaExceeded", 403),
            (libc::EROFS, "AccessDenied", 403),
            (libc::EFBIG, "EntityTooLarge", 400),
            (libc::EIO, "InternalError", 500),
        ] {
            let by_system_call = io_error("write", &io::Error::from_raw_os_error(errno));
            let by_store = S3Error::from(store::Error::io("write", "k", io::Error::from_raw_os_error(errno)));
            for error in [by_system_call, by_store] {
                let status_now = error.status_code().or(error.code().status_code());
                assert_eq!((error.code().as_str(), status_now.unwrap().as_u16()), (code, status));
            }
        }
    }
}
