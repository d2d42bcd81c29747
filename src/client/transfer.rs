//! PUT and GET of objects, by RDMA and over the HTTP body.

use std::ops::Range;

use http::Method;

use super::body::{Feeder, Filler, RequestBody};
use super::connection::Response;
use super::reply::{Verdict, judge};
use super::request::{Call, s3_error};
use super::standard::{checksum_header, stored_checksums};
use super::{Breach, Buffer, Client, ContentRange, Error, MAX_TRANSFER, Result};
use crate::digest::Algorithm;
use crate::rdma::Op;

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
        let got = self
            .retry(async |_| {
                // A request that was not answered may still write: its access ends first.
                buffer.settle()?;
                self.get_once(bucket, key, buffer, options, window).await
            })
            .await?;
        Ok(Got { attempts: got.1, ..got.0 })
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
        let got = self
            .retry(async |_| {
                let reply = self.execute(get_call(bucket, key, options)?).await?;
                self.take_body(reply, buffer, options, window).await
            })
            .await?;
        Ok(Got { attempts: got.1, ..got.0 })
    }

    async fn get_once(
        &self,
        bucket: &str,
        key: &str,
        buffer: &mut Buffer,
        options: &GetOptions,
        window: usize,
    ) -> Result<Got> {
        let token = buffer.token(options.offset, window, Op::Get)?;
        let headers = self.shared.dialect.headers(&token, window as u64)?;
        let outcome = match get_call(bucket, key, options) {
            Ok(call) => self.send(call.headers(headers)).await,
            Err(error) => Err(error),
        };
        let reply = match outcome {
            Ok(reply) if reply.status().as_u16() < 300 || reply.status().as_u16() == 501 => reply,
            Ok(reply) => {
                let error = s3_error(reply).await;
                if error.is_answer() {
                    token.finish();
                }
                return Err(error);
            }
            Err(error) => {
                if error.is_answer() {
                    token.finish();
                }
                return Err(error);
            }
        };
        token.finish();
        let breach = |breach| Error::Reply { operation: reply.operation().to_owned(), breach };
        match judge(reply.status(), reply.headers(), false).map_err(breach)? {
            Verdict::Declined if reply.status().as_u16() >= 300 => {
                let declined = declined(reply).await;
                if !options.fall_back {
                    return Err(declined);
                }
                let reply = self.execute(get_call(bucket, key, options)?).await?;
                self.take_body(reply, buffer, options, window).await
            }
            Verdict::Declined if options.fall_back => self.take_body(reply, buffer, options, window).await,
            Verdict::Declined => Err(declined(reply).await),
            Verdict::Done { bytes } => {
                let range = answered_range(&reply, options)?;
                if bytes > window as u64 {
                    return Err(breach(Breach::Overrun { transferred: bytes, window: window as u64 }));
                }
                let expected = options.expect.or(range.map(|r| r.length()));
                if let Some(expected) = expected.filter(|&expected| expected != bytes) {
                    return Err(breach(Breach::ByteCount { transferred: bytes, expected }));
                }
                let got = got(&reply, bytes, range, Carrier::Rdma);
                reply.drain().await?;
                Ok(got)
            }
        }
    }

    async fn take_body(
        &self,
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

    /// Uploads by RDMA with the request that `call` makes: an object, or a part of one.
    pub(crate) async fn upload<'a>(
        &self,
        call: impl Fn() -> Result<Call<'a>>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        check_put(buffer, &range)?;
        if range.is_empty() {
            return self.upload_http(call, buffer, range, options).await;
        }
        let sent =
            self.retry(async |_| self.upload_once(call()?, buffer, range.clone(), options).await).await;
        match sent {
            Ok((put, attempts)) => Ok(Put { attempts, ..put }),
            Err(Error::Declined { .. }) if options.fall_back => {
                self.upload_http(call, buffer, range, options).await
            }
            Err(error) => Err(error),
        }
    }

    async fn upload_once(
        &self,
        call: Call<'_>,
        buffer: &Buffer,
        range: Range<usize>,
        options: &PutOptions,
    ) -> Result<Put> {
        let length = range.len() as u64;
        let call = with_checksum(call, options)?;
        let token = buffer.token(range.start, range.len(), Op::Put)?;
        let headers = self.shared.dialect.headers(&token, length)?;
        let reply = match self.send(call.headers(headers)).await {
            Ok(reply) => reply,
            Err(error) => {
                if error.is_answer() {
                    token.finish();
                }
                return Err(error);
            }
        };
        if reply.status().as_u16() >= 300 && reply.status().as_u16() != 501 {
            let error = s3_error(reply).await;
            if error.is_answer() {
                token.finish();
            }
            return Err(error);
        }
        token.finish();
        let breach = |breach| Error::Reply { operation: reply.operation().to_owned(), breach };
        match judge(reply.status(), reply.headers(), true).map_err(breach)? {
            Verdict::Declined => Err(declined(reply).await),
            Verdict::Done { bytes } if bytes != length => {
                Err(breach(Breach::ByteCount { transferred: bytes, expected: length }))
            }
            Verdict::Done { .. } => put(reply, Carrier::Rdma).await,
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
        check_put(buffer, &range)?;
        let (put, attempts) = self
            .retry(async |_| {
                let call = with_checksum(call()?, options)?;
                if range.is_empty() {
                    return put(self.execute(call.body(RequestBody::Empty)).await?, Carrier::Http).await;
                }
                let (feeder, body) = Feeder::new(buffer, range.clone());
                let (reply, fed) =
                    futures_util::future::join(self.execute(call.body(body)), feeder.run()).await;
                fed?;
                put(reply?, Carrier::Http).await
            })
            .await?;
        Ok(Put { attempts, ..put })
    }
}

fn check_put(buffer: &Buffer, range: &Range<usize>) -> Result<()> {
    if range.start > range.end {
        return Err(Error::Invalid { what: format!("the range {range:?} ends before it starts") });
    }
    if range.len() as u64 > MAX_TRANSFER {
        return Err(too_large(range.len() as u64));
    }
    buffer.check(range.start, range.len())
}

fn too_large(bytes: u64) -> Error {
    Error::Invalid {
        what: format!("{bytes} bytes are more than one request moves, {MAX_TRANSFER}; upload in parts"),
    }
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

fn with_checksum<'a>(call: Call<'a>, options: &PutOptions) -> Result<Call<'a>> {
    let Some((algorithm, value)) = &options.checksum else { return Ok(call) };
    let name = http::header::HeaderName::try_from(checksum_header(*algorithm))
        .map_err(|e| Error::Invalid { what: e.to_string() })?;
    let value = http::HeaderValue::from_str(value)
        .map_err(|_| Error::Invalid { what: "the checksum is not base64".to_owned() })?;
    Ok(call.headers([(name, value)]))
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

async fn declined(reply: Response) -> Error {
    let operation = reply.operation().to_owned();
    if reply.status().as_u16() < 300 {
        return Error::Declined { operation, reason: "x-amz-rdma-reply: 501".to_owned() };
    }
    match s3_error(reply).await {
        Error::S3 { code, message, .. } => {
            Error::Declined { operation, reason: format!("{code}: {message}") }
        }
        other => other,
    }
}
