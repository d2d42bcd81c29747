//! The headers of an answer to a request with a token.
//!
//! The reply equals the HTTP status, and the bytes are always said: some clients refuse anything
//! else. A PUT that is not carried out gets status 501, since some clients take any 200 with an
//! ETag as success.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use s3s::{S3Error, S3ErrorCode};

use crate::gateway::error::{s3, s3_status, with_headers};
use crate::transfer::{Side, TransferError};

/// Name of the header with the outcome.
pub(crate) const REPLY: HeaderName = HeaderName::from_static("x-amz-rdma-reply");
/// Name of the header with the number of bytes that moved.
pub(crate) const BYTES: HeaderName = HeaderName::from_static("x-amz-rdma-bytes-transferred");

/// Headers of an answer whose body moved by RDMA.
pub(crate) fn transferred(status: StatusCode, bytes: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(REPLY, HeaderValue::from(status.as_u16()));
    headers.insert(BYTES, HeaderValue::from(bytes));
    headers
}

/// Headers of an answer that carries over HTTP what was asked for by RDMA.
pub(crate) fn declined() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(REPLY, HeaderValue::from(StatusCode::NOT_IMPLEMENTED.as_u16()));
    headers
}

/// The refusal of a PUT that this gateway cannot serve by RDMA: the client sends a body instead.
pub(crate) fn put_declined(why: &str) -> S3Error {
    let error = s3(S3ErrorCode::NotImplemented, format!("{why}; send the object in the body"));
    with_headers(error, declined())
}

/// The refusal of a PUT that has a token and a body. The connection is closed after it: what the
/// client believes to have framed cannot be known.
pub(crate) fn body_beside_token(name: &str) -> S3Error {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let error = s3(
        S3ErrorCode::InvalidRequest,
        format!("{name}: a request with an RDMA token must have Content-Length 0 and no body"),
    );
    with_headers(error, headers)
}

/// What a failed transfer tells the client.
pub(crate) fn failed(error: &TransferError) -> S3Error {
    let because = error.status().map_or_else(|| error.to_string(), |status| status.to_string());
    match error.side() {
        Side::Client => s3(
            S3ErrorCode::InvalidArgument,
            format!("the memory that the RDMA token names cannot be used: {because}"),
        ),
        Side::Fabric => {
            tracing::warn!(%error, "an RDMA transfer failed");
            s3(
                S3ErrorCode::ServiceUnavailable,
                format!("the RDMA transfer failed: {because}; please try again"),
            )
        }
        Side::Load => s3(S3ErrorCode::SlowDown, format!("please reduce your request rate: {because}")),
        Side::Storage => match error {
            TransferError::Sink(cause) => {
                super::super::error::io_error("cannot write an object's data", cause)
            }
            TransferError::Source(cause) => {
                super::super::error::io_error("cannot read an object's data", cause)
            }
            other => super::super::error::internal("an RDMA transfer failed", other),
        },
        Side::Internal => super::super::error::internal("an RDMA transfer failed", error),
    }
}

/// Object larger than the client's memory.
pub(crate) fn window_too_small(object: u64, window: u64) -> S3Error {
    s3(
        S3ErrorCode::InvalidArgument,
        format!("the {object} bytes asked for do not fit in the {window} bytes that the RDMA token names"),
    )
}

/// A signature that leaves the token out.
pub(crate) fn unsigned(name: &str) -> S3Error {
    s3_status(
        S3ErrorCode::AccessDenied,
        StatusCode::FORBIDDEN,
        format!("{name} must be among the signed headers of the request"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::WcStatus;
    use std::time::Duration;
    use test_case::test_case;

    #[test_case(TransferError::of_status(WcStatus::REM_ACCESS_ERR), "IBV_WC_REM_ACCESS_ERR" => (400, "InvalidArgument".to_owned()))]
    #[test_case(TransferError::of_status(WcStatus::RETRY_EXC_ERR), "IBV_WC_RETRY_EXC_ERR" => (503, "ServiceUnavailable".to_owned()))]
    #[test_case(TransferError::Timeout { waited: Duration::from_secs(1) }, "without completion" => (503, "ServiceUnavailable".to_owned()))]
    #[test_case(TransferError::Busy { waited: Duration::from_secs(1) }, "pool" => (503, "SlowDown".to_owned()))]
    #[test_case(TransferError::ShuttingDown, "shutting down" => (503, "SlowDown".to_owned()))]
    #[test_case(TransferError::Sink(std::io::Error::other("secret")), "internal" => (500, "InternalError".to_owned()))]
    fn failures(error: TransferError, names: &str) -> (u16, String) {
        let error = failed(&error);
        assert!(error.message().unwrap().contains(names), "{error}");
        assert!(!error.message().unwrap().contains("secret"));
        (error.status_code().unwrap().as_u16(), error.code().as_str().to_owned())
    }

    #[test]
    fn replies_equal_the_status() {
        let headers = transferred(StatusCode::PARTIAL_CONTENT, 0);
        assert_eq!(headers[REPLY], "206");
        assert_eq!(headers[BYTES], "0");
        let error = put_declined("RDMA is off");
        assert_eq!(error.status_code(), Some(StatusCode::NOT_IMPLEMENTED));
        assert_eq!(error.headers().unwrap()[REPLY], "501");
    }
}
