//! PUT and GET of objects, by RDMA and over the HTTP body: what is asked, and what comes of it.

mod download;
mod upload;

use std::ops::Range;

use http::StatusCode;

use super::connection::Response;
use super::reply::{Verdict, judge};
use super::request::s3_error;
use super::{ContentRange, Error, MAX_TRANSFER, Result};
use crate::digest::Algorithm;
use crate::rdma::Descriptor;

/// What carried the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// RDMA, between the gateway and the buffer.
    Rdma,
    /// The body of the HTTP message.
    Http,
}

/// Extras of an upload.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PutOptions {
    /// Sends the body over HTTP when the gateway declines RDMA, instead of an error.
    pub fall_back: bool,
    /// A checksum of the bytes, base64; the gateway refuses the upload when it differs.
    pub checksum: Option<(Algorithm, String)>,
}

/// Extras of a download.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GetOptions {
    /// Where in the buffer the bytes go.
    pub offset: usize,
    /// The part of the object that is wanted, `start..end`; the whole object otherwise.
    pub range: Option<Range<u64>>,
    /// How many bytes must come. Otherwise any number that fits is taken.
    pub expect: Option<u64>,
    /// Takes the body over HTTP when the gateway declines RDMA, instead of an error.
    pub fall_back: bool,
    /// Only while the object has this `ETag`, as it was sent, with its quotes.
    pub if_match: Option<String>,
    /// Asks for the stored checksums (`x-amz-checksum-mode: ENABLED`).
    pub checksums: bool,
}

impl GetOptions {
    /// The whole object, which must have `bytes` bytes.
    pub fn exactly(bytes: u64) -> Self {
        Self { expect: Some(bytes), ..Self::default() }
    }
}

/// Outcome of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Put {
    /// `ETag`, as sent, with its quotes.
    pub etag: String,
    /// Checksums that the gateway computed, base64.
    pub checksums: Vec<(Algorithm, String)>,
    /// What carried the bytes.
    pub carrier: Carrier,
    /// How many attempts it took.
    pub attempts: u32,
}

/// Outcome of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Got {
    /// Bytes now in the buffer.
    pub bytes: u64,
    /// `ETag`, as sent, with its quotes.
    pub etag: Option<String>,
    /// For ranged requests, where the bytes lie in the object.
    pub range: Option<ContentRange>,
    /// Checksums of the whole object, base64, when they were asked for and are stored.
    pub checksums: Vec<(Algorithm, String)>,
    /// What carried the bytes.
    pub carrier: Carrier,
    /// How many attempts it took.
    pub attempts: u32,
}

/// What a reply to an RDMA request came to.
enum Judged {
    /// The bytes moved.
    Done { bytes: u64, reply: Response },
    /// The gateway does not use RDMA. A GET's reply then holds the object, unless its status is 501.
    Declined(Response),
}

/// Judges the reply to an RDMA request; see [`reply`](super::reply).
async fn judged(reply: Response, upload: bool) -> Result<Judged> {
    if reply.status().as_u16() >= 300 && reply.status() != StatusCode::NOT_IMPLEMENTED {
        return Err(s3_error(reply).await);
    }
    match judge(reply.status(), reply.headers(), upload) {
        Ok(Verdict::Done { bytes }) => Ok(Judged::Done { bytes, reply }),
        Ok(Verdict::Declined) => Ok(Judged::Declined(reply)),
        Err(breach) => Err(Error::Reply { operation: reply.operation().to_owned(), breach }),
    }
}

/// The error of a reply that declines RDMA.
async fn declined(reply: Response) -> Error {
    let operation = reply.operation().to_owned();
    if reply.status().as_u16() < 300 {
        return Error::Declined { operation, reason: "x-amz-rdma-reply: 501".to_owned() };
    }
    match s3_error(reply).await {
        Error::S3 { status, code, message, .. } => {
            Error::Declined { operation, reason: format!("{} {code}: {message}", status.as_u16()) }
        }
        other => other,
    }
}

/// First address of a token from elsewhere.
fn start_of(token: &str) -> Result<u64> {
    Descriptor::parse(token)
        .map(|descriptor| descriptor.address)
        .map_err(|e| Error::Invalid { what: format!("the token is no descriptor: {e}") })
}

fn too_large(bytes: u64) -> Error {
    Error::Invalid {
        what: format!("{bytes} bytes are more than one request moves, {MAX_TRANSFER}; use parts or ranges"),
    }
}
