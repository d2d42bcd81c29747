//! Multipart uploads whose parts move by RDMA.

use std::fmt::Write as _;
use std::ops::Range;

use http::Method;
use serde::Deserialize;

use super::body::RequestBody;
use super::request::Call;
use super::transfer::{Put, PutOptions};
use super::{Buffer, Client, Error, Result};

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
        let call = || Call::new(Method::POST, bucket, Some(key)).query("uploads", "");
        let mut reply = self.execute_until_done(|| Ok(call())).await?;
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
        let put = self
            .upload(|| part_call(bucket, key, upload_id, number), buffer, range, &PutOptions::default())
            .await?;
        completed(number, put, key)
    }

    /// Uploads `range` of the buffer as a part, in the body of the request.
    ///
    /// # Errors
    /// As [`put_http`](Self::put_http).
    pub async fn upload_part_http(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        number: u32,
        buffer: &Buffer,
        range: Range<usize>,
    ) -> Result<CompletedPart> {
        let put = self
            .upload_http(|| part_call(bucket, key, upload_id, number), buffer, range, &PutOptions::default())
            .await?;
        completed(number, put, key)
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
        let mut document =
            String::from(r#"<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">"#);
        for part in parts {
            let etag = quick_xml::escape::escape(&part.etag);
            let _ =
                write!(document, "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", part.number);
        }
        document.push_str("</CompleteMultipartUpload>");
        let call = || {
            Call::new(Method::POST, bucket, Some(key))
                .query("uploadId", upload_id)
                .body(RequestBody::bytes(document.clone()))
        };
        let mut reply = self.execute_until_done(|| Ok(call())).await?;
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

fn part_call<'a>(bucket: &'a str, key: &'a str, upload_id: &'a str, number: u32) -> Result<Call<'a>> {
    if !(1..=MAX_PARTS).contains(&number) {
        return Err(Error::Invalid {
            what: format!("part number {number} is not between 1 and {MAX_PARTS}"),
        });
    }
    Ok(Call::new(Method::PUT, bucket, Some(key)).query("partNumber", number).query("uploadId", upload_id))
}

fn completed(number: u32, put: Put, key: &str) -> Result<CompletedPart> {
    if put.etag.is_empty() {
        return Err(Error::Transport {
            operation: format!("PUT part {number} of {key}"),
            source: "the reply has no ETag".into(),
        });
    }
    Ok(CompletedPart { number, etag: put.etag })
}
