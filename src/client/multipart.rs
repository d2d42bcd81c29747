//! Multipart uploads whose parts move by RDMA.

use std::fmt::Write as _;
use std::ops::Range;

use http::Method;
use serde::Deserialize;

use super::body::RequestBody;
use super::request::Call;
use super::standard::with_checksum;
use super::transfer::{Put, PutOptions};
use super::{Buffer, Client, Error, Result};
use crate::digest::Algorithm;

/// Most parts of an upload, and the highest part number (S3 user guide, "Multipart upload limits").
pub const MAX_PARTS: u32 = 10_000;

/// A part that has been uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedPart {
    /// From 1 to [`MAX_PARTS`].
    pub number: u32,
    /// The `ETag` that its upload was answered with.
    pub etag: String,
}

/// Which part of which upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The object's key.
    pub key: &'a str,
    /// From [`Client::create_multipart`].
    pub upload_id: &'a str,
    /// From 1 to [`MAX_PARTS`].
    pub number: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Initiated {
    upload_id: String,
}

impl Client {
    /// Starts a multipart upload and gives its id.
    ///
    /// # Errors
    /// The S3 error.
    pub async fn create_multipart(&self, bucket: &str, key: &str) -> Result<String> {
        self.create_multipart_with(bucket, key, None).await
    }

    /// As [`create_multipart`](Self::create_multipart); with an algorithm, parts and the object have
    /// checksums of it. A CRC is then one of the whole object, a SHA one of the parts' (S3 user guide,
    /// "Checking object integrity").
    ///
    /// # Errors
    /// The S3 error.
    pub async fn create_multipart_with(
        &self,
        bucket: &str,
        key: &str,
        checksum: Option<Algorithm>,
    ) -> Result<String> {
        let call = || {
            let call = Call::new(Method::POST, bucket, Some(key)).query("uploads", "");
            let Some(algorithm) = checksum else { return Ok(call) };
            let kind = if algorithm.is_crc() { "FULL_OBJECT" } else { "COMPOSITE" };
            call.header("x-amz-checksum-algorithm", algorithm.name())?.header("x-amz-checksum-type", kind)
        };
        let mut reply = self.execute_until_done(call).await?;
        let operation = reply.operation().to_owned();
        let body = reply.text(64 << 10).await?;
        let document: Initiated = quick_xml::de::from_reader(&body[..]).map_err(|e| Error::Transport {
            operation,
            source: format!("the reply is no InitiateMultipartUploadResult: {e}").into(),
        })?;
        Ok(document.upload_id)
    }

    /// Uploads `range` of the buffer as a part, by RDMA.
    ///
    /// Parts of one upload may be sent at the same time, from the same buffer.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn upload_part(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        number: u32,
        buffer: &Buffer,
        range: Range<usize>,
    ) -> Result<CompletedPart> {
        let part = PartOf { bucket, key, upload_id, number };
        let put = self.upload_part_with(part, buffer, range, &PutOptions::default()).await?;
        Ok(CompletedPart { number, etag: put.etag })
    }

    /// As [`upload_part`](Self::upload_part), with options.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn upload_part_with(
        &self,
        part: PartOf<'_>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        part.confirmed(self.upload(|| part.call(), buffer, range, options).await?)
    }

    /// Uploads `range` of the buffer as a part, in the body of the request.
    ///
    /// # Errors
    /// As [`put_http`](Self::put_http).
    pub async fn upload_part_http(
        &self,
        part: PartOf<'_>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        part.confirmed(self.upload_http(|| part.call(), buffer, range, options).await?)
    }

    /// Makes the object of its parts, which must be in ascending order.
    ///
    /// # Errors
    /// The S3 error; also one that comes in the body of a 200, as S3 does for long completions.
    pub async fn complete_multipart(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        parts: &[CompletedPart],
    ) -> Result<()> {
        self.complete_multipart_with(bucket, key, upload_id, parts, &PutOptions::default()).await
    }

    /// As [`complete_multipart`](Self::complete_multipart), with the checksum that the whole object
    /// must have; the gateway refuses to make another one.
    ///
    /// # Errors
    /// As [`complete_multipart`](Self::complete_multipart).
    pub async fn complete_multipart_with(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        parts: &[CompletedPart],
        options: &PutOptions,
    ) -> Result<()> {
        let mut document =
            String::from(r#"<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">"#);
        for part in parts {
            let etag = quick_xml::escape::escape(&part.etag);
            let _ =
                write!(document, "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", part.number);
        }
        document.push_str("</CompleteMultipartUpload>");
        let call = || {
            let call = Call::new(Method::POST, bucket, Some(key)).query("uploadId", upload_id);
            with_checksum(call.body(RequestBody::bytes(document.clone())), options)
        };
        let mut reply = self.execute_until_done(call).await?;
        let status = reply.status();
        let operation = reply.operation().to_owned();
        let body = reply.text(64 << 10).await?;
        let late: std::result::Result<LateError, _> = quick_xml::de::from_reader(&body[..]);
        match late {
            Ok(LateError::Error { code, message }) => {
                Err(Error::S3 { operation, status, code, message, request_id: None, retry_after: None })
            }
            _ => Ok(()),
        }
    }

    /// Gives an upload up and frees its parts.
    ///
    /// # Errors
    /// The S3 error.
    pub async fn abort_multipart(&self, bucket: &str, key: &str, upload_id: &str) -> Result<()> {
        let call = || Call::new(Method::DELETE, bucket, Some(key)).query("uploadId", upload_id);
        self.execute_until_done(|| Ok(call())).await?.drain().await
    }
}

#[derive(Deserialize)]
enum LateError {
    Error {
        #[serde(rename = "Code", default)]
        code: String,
        #[serde(rename = "Message", default)]
        message: String,
    },
    #[serde(other)]
    Other,
}

impl<'a> PartOf<'a> {
    fn call(self) -> Result<Call<'a>> {
        let Self { bucket, key, upload_id, number } = self;
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(Error::Invalid {
                what: format!("part number {number} is not between 1 and {MAX_PARTS}"),
            });
        }
        Ok(Call::new(Method::PUT, bucket, Some(key)).query("partNumber", number).query("uploadId", upload_id))
    }

    /// The reply, if it has the ETag that the completion needs.
    fn confirmed(self, put: Put) -> Result<Put> {
        if put.etag.is_empty() {
            return Err(Error::Transport {
                operation: format!("PUT part {} of {}", self.number, self.key),
                source: "the reply has no ETag".into(),
            });
        }
        Ok(put)
    }
}
