//! Uploads of objects and parts.

use std::ops::Range;

use http::Method;

use super::super::body::{Feeder, RequestBody};
use super::super::connection::Response;
use super::super::request::Call;
use super::super::standard::{stored_checksums, with_checksum};
use super::{Carrier, Judged, Put, PutOptions, declined, judged, start_of, too_large};
use crate::client::{Breach, Buffer, Client, Error, MAX_TRANSFER, Result};
use crate::rdma::Op;

impl Client {
    /// Uploads `range` of the buffer as an object, by RDMA.
    ///
    /// At most [`MAX_TRANSFER`] bytes. An empty range makes an empty object, without RDMA.
    ///
    /// # Errors
    /// [`Error::Declined`] when the gateway does not do RDMA; [`Error::Reply`] when its answer
    /// does not confirm the transfer; the S3 error; transport failures after the last attempt.
    pub async fn put(&self, bucket: &str, key: &str, buffer: &Buffer, range: Range<usize>) -> Result<Put> {
        self.put_with(bucket, key, buffer, range, &PutOptions::default()).await
    }

    /// As [`put`](Self::put), with options.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_with(
        &self,
        bucket: &str,
        key: &str,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        self.upload(|| Ok(Call::new(Method::PUT, bucket, Some(key))), buffer, range, options).await
    }

    /// Uploads `range` of the buffer as an object, in the body of the request.
    ///
    /// # Errors
    /// The S3 error; transport failures after the last attempt.
    pub async fn put_http(
        &self,
        bucket: &str,
        key: &str,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        self.upload_http(|| Ok(Call::new(Method::PUT, bucket, Some(key))), buffer, range, options).await
    }

    /// Makes one attempt to upload the `length` bytes that `token` opens: the control path for
    /// tokens that were minted elsewhere, such as those that [`CuClient::put`] hands to its closure.
    ///
    /// After an error whose [`is_answer`](Error::is_answer) is false the gateway may still be
    /// reading.
    ///
    /// [`CuClient::put`]: crate::rdma::CuClient::put
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_by_token(&self, bucket: &str, key: &str, token: &str, length: u64) -> Result<Put> {
        let call = Call::new(Method::PUT, bucket, Some(key));
        self.upload_token(call, token, start_of(token)?, length).await
    }

    /// Uploads by RDMA with the request that `call` makes: an object, or a part of one.
    pub(crate) async fn upload<'a>(
        &self,
        call: impl Fn() -> Result<Call<'a>>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        check(buffer, &range)?;
        if range.is_empty() {
            return self.upload_http(call, buffer, range, options).await;
        }
        let mut attempts = self.attempts();
        let sent = loop {
            let outcome = self.upload_once(&call, buffer, range.clone(), options).await;
            if let Some(done) = attempts.end(outcome).await {
                break done;
            }
        };
        match sent {
            (Ok(put), attempts) => Ok(Put { attempts, ..put }),
            (Err(Error::Declined { .. }), _) if options.fall_back => {
                self.upload_http(call, buffer, range, options).await
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn upload_once<'a>(
        &self,
        call: &impl Fn() -> Result<Call<'a>>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        let call = with_checksum(call()?, options)?;
        let token = buffer.token(range.start, range.len(), Op::Put)?;
        let start = token.descriptor().address;
        let sent = self.upload_token(call, token.as_str(), start, range.len() as u64).await;
        if sent.as_ref().err().is_none_or(Error::is_answer) {
            token.finish();
        }
        sent
    }

    async fn upload_token(&self, call: Call<'_>, token: &str, start: u64, length: u64) -> Result<Put> {
        let headers = self.shared.dialect.headers(token, start, length)?;
        match judged(self.send(call.headers(headers)).await?, true).await? {
            Judged::Done { bytes, reply } if bytes != length => Err(Error::Reply {
                operation: reply.operation().to_owned(),
                breach: Breach::ByteCount { transferred: bytes, expected: length },
            }),
            Judged::Done { reply, .. } => put(reply, Carrier::Rdma).await,
            Judged::Declined(reply) => Err(declined(reply).await),
        }
    }

    /// As [`upload`](Self::upload), over the body.
    pub(crate) async fn upload_http<'a>(
        &self,
        call: impl Fn() -> Result<Call<'a>>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        check(buffer, &range)?;
        let mut attempts = self.attempts();
        loop {
            let outcome = self.upload_body_once(&call, buffer, range.clone(), options).await;
            if let Some((done, attempts)) = attempts.end(outcome).await {
                return done.map(|put| Put { attempts, ..put });
            }
        }
    }

    async fn upload_body_once<'a>(
        &self,
        call: &impl Fn() -> Result<Call<'a>>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        let call = with_checksum(call()?, options)?;
        if range.is_empty() {
            return put(self.execute(call.body(RequestBody::Empty)).await?, Carrier::Http).await;
        }
        let (feeder, body) = Feeder::new(buffer, range);
        let (reply, fed) = futures_util::future::join(self.execute(call.body(body)), feeder.run()).await;
        fed?;
        put(reply?, Carrier::Http).await
    }
}

fn check(buffer: &Buffer, range: &Range<usize>) -> Result<()> {
    if range.start > range.end {
        return Err(Error::Invalid { what: format!("the range {range:?} ends before it starts") });
    }
    if range.len() as u64 > MAX_TRANSFER {
        return Err(too_large(range.len() as u64));
    }
    buffer.check(range.start, range.len())
}

async fn put(reply: Response, carrier: Carrier) -> Result<Put> {
    let put = Put {
        etag: reply.header("etag").unwrap_or_default().to_owned(),
        checksums: stored_checksums(reply.headers()),
        carrier,
        attempts: 1,
    };
    reply.drain().await?;
    Ok(put)
}
