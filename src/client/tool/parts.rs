//! Multipart uploads of the tool: all parts by one carrier, given up when one fails.

use std::ops::Range;

use super::plan::Mode;
use crate::client::{Buffer, Client, CompletedPart, Error, PartOf, Put, PutOptions, Result};
use crate::digest::Algorithm;

/// A multipart upload to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upload<'a> {
    pub(super) client: &'a Client,
    pub(super) bucket: &'a str,
    pub(super) key: &'a str,
    /// What carries the parts.
    pub(super) mode: Mode,
    /// The body of the request where the gateway declines RDMA.
    pub(super) fall_back: bool,
    /// The checksum that is sent with each part.
    pub(super) checksum: Option<Algorithm>,
}

impl<'a> Upload<'a> {
    /// Starts the upload, has `send` upload the parts, and completes it with the checksum of the
    /// whole that `send` gives beside them. Whatever fails, no part is left behind.
    pub(super) async fn run<E: From<Error>>(
        self,
        send: impl AsyncFnOnce(Parts<'a>) -> Result<(Vec<CompletedPart>, Option<String>), E>,
    ) -> Result<(), E> {
        let Self { client, bucket, key, .. } = self;
        let id = client.create_multipart_with(bucket, key, self.checksum).await?;
        let parts = Parts { upload: self, id: id.clone() };
        let completed = match send(parts).await {
            Ok((parts, whole)) => {
                let options = self.options(whole);
                client.complete_multipart_with(bucket, key, &id, &parts, &options).await.map_err(E::from)
            }
            Err(error) => Err(error),
        };
        if completed.is_err()
            && let Err(error) = client.abort_multipart(bucket, key, &id).await
        {
            tracing::warn!(%error, key, "the parts of a failed upload are left behind");
        }
        completed
    }

    fn options(&self, sum: Option<String>) -> PutOptions {
        PutOptions { fall_back: self.fall_back, checksum: self.checksum.zip(sum) }
    }
}

/// An upload that has been started.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    upload: Upload<'a>,
    id: String,
}

impl Parts<'_> {
    /// Uploads `range` of the buffer as a part, with its checksum in base64.
    pub(super) async fn send(
        &self,
        number: u32,
        buffer: &Buffer,
        range: Range<usize>,
        sum: Option<String>,
    ) -> Result<(CompletedPart, Put)> {
        let Upload { client, bucket, key, mode, .. } = self.upload;
        let part = PartOf { bucket, key, upload_id: &self.id, number };
        let options = self.upload.options(sum);
        let put = match mode {
            Mode::Rdma(_) => client.upload_part_with(part, buffer, range, &options).await?,
            Mode::Standard => client.upload_part_http(part, buffer, range, &options).await?,
        };
        Ok((CompletedPart { number, etag: put.etag.clone() }, put))
    }
}
