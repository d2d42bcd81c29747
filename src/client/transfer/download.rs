//! Downloads of objects and ranges.

use std::ops::Range;

use http::{Method, StatusCode};

use super::super::body::Filler;
use super::super::connection::Response;
use super::super::request::Call;
use super::super::standard::stored_checksums;
use super::{Carrier, GetOptions, Got, Judged, declined, judged, start_of, too_large};
use crate::client::{Breach, Buffer, Client, ContentRange, Error, MAX_TRANSFER, Result};
use crate::rdma::Op;

impl Client {
    /// Downloads an object into the buffer, by RDMA.
    ///
    /// The gateway may write from `options.offset` to the buffer's end (or as many bytes as were
    /// asked for), at most [`MAX_TRANSFER`]; a larger object is an error.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Reply`] also when another number of bytes came than
    /// `options` expects.
    pub async fn get(
        &self,
        bucket: &str,
        key: &str,
        buffer: &mut Buffer,
        options: &GetOptions,
    ) -> Result<Got> {
        let window = window_length(buffer, options)?;
        let mut attempts = self.attempts();
        loop {
            let outcome = self.download_once(bucket, key, buffer, options, window).await;
            if let Some((done, attempts)) = attempts.end(outcome).await {
                return done.map(|got| Got { attempts, ..got });
            }
        }
    }

    /// Downloads `range` of an object into the buffer at `offset`, by RDMA.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_range(
        &self,
        bucket: &str,
        key: &str,
        range: Range<u64>,
        buffer: &mut Buffer,
        offset: usize,
    ) -> Result<Got> {
        let options = GetOptions { offset, range: Some(range), ..GetOptions::default() };
        self.get(bucket, key, buffer, &options).await
    }

    /// Downloads an object into the buffer from the body of the reply.
    ///
    /// # Errors
    /// The S3 error; [`Error::BodyLength`] when more or less came than fits or is expected.
    pub async fn get_http(
        &self,
        bucket: &str,
        key: &str,
        buffer: &mut Buffer,
        options: &GetOptions,
    ) -> Result<Got> {
        let window = window_length(buffer, options)?;
        let mut attempts = self.attempts();
        loop {
            let outcome = match self.execute(get_call(bucket, key, options)?).await {
                Ok(reply) => take_body(reply, buffer, options, window).await,
                Err(error) => Err(error),
            };
            if let Some((done, attempts)) = attempts.end(outcome).await {
                return done.map(|got| Got { attempts, ..got });
            }
        }
    }

    /// Makes one attempt to download into the `window` bytes that `token` opens: the control path
    /// for tokens that were minted elsewhere, such as those that [`CuClient::get`] hands to its
    /// closure. `offset` and `fall_back` of the options have no meaning here.
    ///
    /// After an error whose [`is_answer`](Error::is_answer) is false the gateway may still be
    /// writing.
    ///
    /// [`CuClient::get`]: crate::rdma::CuClient::get
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_by_token(
        &self,
        bucket: &str,
        key: &str,
        token: &str,
        window: u64,
        options: &GetOptions,
    ) -> Result<Got> {
        let call = get_call(bucket, key, options)?;
        match self.download_token(call, token, start_of(token)?, window, options).await? {
            Ok(got) => Ok(got),
            Err(reply) => Err(declined(reply).await),
        }
    }

    async fn download_once(
        &self,
        bucket: &str,
        key: &str,
        buffer: &mut Buffer,
        options: &GetOptions,
        window: usize,
    ) -> Result<Got> {
        // A request that was not answered may still write: its access ends first.
        buffer.settle()?;
        let call = get_call(bucket, key, options)?;
        let token = buffer.token(options.offset, window, Op::Get)?;
        let start = token.descriptor().address;
        let sent = self.download_token(call, token.as_str(), start, window as u64, options).await;
        if sent.as_ref().err().is_none_or(Error::is_answer) {
            token.finish();
        }
        match sent? {
            Ok(got) => Ok(got),
            Err(reply) if !options.fall_back => Err(declined(reply).await),
            Err(reply) if reply.status() == StatusCode::NOT_IMPLEMENTED => {
                let reply = self.execute(get_call(bucket, key, options)?).await?;
                take_body(reply, buffer, options, window).await
            }
            Err(reply) => take_body(reply, buffer, options, window).await,
        }
    }

    /// The inner error is the reply of a gateway that declined.
    async fn download_token(
        &self,
        call: Call<'_>,
        token: &str,
        start: u64,
        window: u64,
        options: &GetOptions,
    ) -> Result<Result<Got, Response>> {
        let headers = self.shared.dialect.headers(token, start, window)?;
        let (bytes, reply) = match judged(self.send(call.headers(headers)).await?, false).await? {
            Judged::Done { bytes, reply } => (bytes, reply),
            Judged::Declined(reply) => return Ok(Err(reply)),
        };
        let breach = |breach| Error::Reply { operation: reply.operation().to_owned(), breach };
        let range = answered_range(&reply, options)?;
        if bytes > window {
            return Err(breach(Breach::Overrun { transferred: bytes, window }));
        }
        let expected = options.expect.or(range.map(|r| r.length()));
        if let Some(expected) = expected.filter(|&expected| expected != bytes) {
            return Err(breach(Breach::ByteCount { transferred: bytes, expected }));
        }
        let got = got(&reply, bytes, range, Carrier::Rdma);
        reply.drain().await?;
        Ok(Ok(got))
    }
}

/// Writes the body of a reply into the buffer.
async fn take_body(
    mut reply: Response,
    buffer: &mut Buffer,
    options: &GetOptions,
    window: usize,
) -> Result<Got> {
    let operation = reply.operation().to_owned();
    let range = answered_range(&reply, options)?;
    let expected = options.expect.or(range.map(|r| r.length())).or(reply.content_length());
    if let Some(actual) = reply.content_length().filter(|&actual| expected.is_some_and(|e| e != actual)) {
        return Err(Error::BodyLength { operation, actual, expected: expected.unwrap_or_default() });
    }
    let mut filler = Filler::new(buffer, options.offset, window)?;
    let mut bytes = 0u64;
    while let Some(piece) = reply.next().await? {
        filler.take(&piece, &operation)?;
        bytes += piece.len() as u64;
    }
    if let Some(expected) = expected.filter(|&expected| expected != bytes) {
        return Err(Error::BodyLength { operation, actual: bytes, expected });
    }
    Ok(got(&reply, bytes, range, Carrier::Http))
}

/// How many bytes the gateway may write.
fn window_length(buffer: &Buffer, options: &GetOptions) -> Result<usize> {
    buffer.check(options.offset, 0)?;
    let room = (buffer.len() - options.offset) as u64;
    let asked = match &options.range {
        Some(range) if range.start >= range.end => {
            return Err(Error::Invalid { what: format!("the range {range:?} of the object is empty") });
        }
        Some(range) => range.end - range.start,
        // An empty object is asked for with a window too: the library mints none of 0 bytes.
        None => options.expect.unwrap_or(room.min(MAX_TRANSFER)).max(1),
    };
    if asked > MAX_TRANSFER {
        return Err(too_large(asked));
    }
    if asked > room {
        return Err(Error::Invalid {
            what: format!("{asked} bytes do not fit in the buffer's {room} from offset {}", options.offset),
        });
    }
    Ok(asked as usize)
}

fn get_call<'a>(bucket: &'a str, key: &'a str, options: &GetOptions) -> Result<Call<'a>> {
    let mut call = Call::new(Method::GET, bucket, Some(key));
    if let Some(range) = &options.range {
        call = call.header("range", &format!("bytes={}-{}", range.start, range.end - 1))?;
    }
    if let Some(etag) = &options.if_match {
        call = call.header("if-match", etag)?;
    }
    if options.checksums {
        call = call.header("x-amz-checksum-mode", "ENABLED")?;
    }
    Ok(call)
}

/// Checks that a ranged request was answered with its range, or the part of it that exists.
fn answered_range(reply: &Response, options: &GetOptions) -> Result<Option<ContentRange>> {
    let Some(asked) = &options.range else { return Ok(None) };
    let header = reply.header("content-range");
    let answered = header.and_then(ContentRange::parse);
    let fits = |r: &ContentRange| {
        let last = r.total.map_or(asked.end, |total| asked.end.min(total)) - 1;
        r.first == asked.start && r.last == last
    };
    match answered.filter(fits) {
        Some(range) => Ok(Some(range)),
        None => Err(Error::Reply {
            operation: reply.operation().to_owned(),
            breach: Breach::Range {
                answered: header.unwrap_or("no Content-Range").to_owned(),
                asked: format!("bytes={}-{}", asked.start, asked.end - 1),
            },
        }),
    }
}

fn got(reply: &Response, bytes: u64, range: Option<ContentRange>, carrier: Carrier) -> Got {
    Got {
        bytes,
        etag: reply.header("etag").map(str::to_owned),
        range,
        checksums: stored_checksums(reply.headers()),
        carrier,
        attempts: 1,
    }
}
