//! GetObject and HeadObject.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use crate::digest::Algorithm;
use crate::gateway::checksum::{self, set_checksums};
use crate::gateway::conditions::ReadConditions;
use crate::gateway::error::{internal, io_error};
use crate::gateway::headers::set_object_headers;
use crate::gateway::range::{Extent, resolve};
use crate::gateway::rdma::crc::SummedSource;
use crate::gateway::rdma::{Intent, Target, reply};
use crate::gateway::request::{Carrier, RequestContext};
use crate::gateway::s3::{Extras, ObjectService};
use crate::gateway::stream::{READ, ReadAhead, read_buffer};
use crate::store::object_lock::Retention;
use crate::store::{ChecksumType, Checksums, ObjectInfo, ObjectReader};
use crate::transfer::{BlockSource, RemoteWindow, TransferError};

/// An open object as the engine and the response stream read it.
pub(super) struct ObjectSource(pub(super) ObjectReader);

impl BlockSource for ObjectSource {
    fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, data)
    }

    fn read_block(&self, offset: u64, length: usize, chunk: &mut [u8]) -> io::Result<()> {
        self.0.read_block(offset, length, chunk)
    }
}

/// How an object is opened.
struct Opened {
    source: Arc<ObjectSource>,
    extent: Extent,
    /// The first bytes, when they were read at once.
    first: Option<Bytes>,
}

/// Which checksum headers an answer about a part of an object may carry: those of the whole object
/// when the whole is asked for, and of a part of a multipart object its own.
fn told_checksums(
    info: &ObjectInfo,
    extent: &Extent,
    part: Option<i32>,
    mode: Option<&ChecksumMode>,
) -> Option<Checksums> {
    if !mode.is_some_and(|m| m.as_str().eq_ignore_ascii_case(ChecksumMode::ENABLED)) {
        return None;
    }
    let whole = info.attributes.checksums.as_ref()?;
    if let Some(part) = part.filter(|_| !info.attributes.part_ends.is_empty()) {
        let index = usize::try_from(part).ok()?.checked_sub(1)?;
        let value = info.attributes.part_checksums.get(index)?.clone();
        return Some(Checksums { values: [(whole.algorithm.clone(), value)].into(), ..whole.clone() });
    }
    extent.is_whole().then(|| whole.clone())
}

/// Headers that s3s's outputs have no field for, or hold in a narrower form.
fn extra_headers(info: &ObjectInfo) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let expires = info.attributes.expires.as_deref();
    if let Some(value) = expires.filter(|e| crate::gateway::headers::expires(Some(e)).is_none())
        && let Ok(value) = HeaderValue::from_bytes(value.as_bytes())
    {
        headers.insert(header::EXPIRES, value);
    }
    headers
}

fn part_count(info: &ObjectInfo, part: Option<i32>) -> Option<i32> {
    part?;
    i32::try_from(info.attributes.part_ends.len()).ok().filter(|n| *n > 0)
}

/// Sets what the outputs of GET and HEAD say of locks.
macro_rules! set_lock {
    ($output:expr, $info:expr) => {{
        let attributes = &$info.attributes;
        let retention = attributes.retention.as_deref().and_then(|json| Retention::parse(json).ok());
        if let Some(retention) = retention {
            $output.object_lock_retain_until_date = retention.until().ok().map(Into::into);
            $output.object_lock_mode = Some(retention.mode.into());
        }
        $output.object_lock_legal_hold_status = attributes.legal_hold.map(|on| {
            let status = if on { ObjectLockLegalHoldStatus::ON } else { ObjectLockLegalHoldStatus::OFF };
            ObjectLockLegalHoldStatus::from_static(status)
        });
    }};
}

fn tag_count(info: &ObjectInfo) -> Option<i32> {
    i32::try_from(info.attributes.tags.len()).ok().filter(|n| *n > 0)
}

fn note(context: Option<&Arc<RequestContext>>, info: &ObjectInfo) {
    if let Some(context) = context {
        let mut outcome = context.outcome();
        outcome.object_size = Some(info.size);
        outcome.version.clone_from(&info.version_id);
    }
}

pub(crate) async fn get_object(
    service: &ObjectService,
    req: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let (context, admission) = (req.context().cloned(), req.admission()?);
    let intent = req.extensions.get::<Intent>().cloned();
    let input = req.input;
    let conditions = ReadConditions {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    let (bucket, key, version) = (input.bucket, input.key, input.version_id);
    let (range, part) = (input.range, input.part_number);
    let read_now = !matches!(intent, Some(Intent::Transfer(_)));
    let (store, direct_io_from) = (service.store.clone(), service.direct_io_from);
    let opened = service
        .blocking
        .run(move || -> S3Result<Opened> {
            let mut reader = store.open_object(&bucket, &key, version.as_deref())?;
            admission.confirm(reader.info())?;
            conditions.check(reader.info())?;
            let extent = resolve(reader.info().size, range, part, &reader.info().attributes.part_ends)?;
            if !read_now && direct_io_from.is_some_and(|from| extent.length >= from) {
                // Where the file system has no direct reads, ordinary ones serve as well.
                reader.enable_direct_io();
            }
            let source = Arc::new(ObjectSource(reader));
            let length = usize::try_from(extent.length).map_or(READ, |n| n.min(READ));
            let first = if read_now && length > 0 {
                let read = read_buffer(&*source, extent.start, length);
                Some(read.map_err(|e| io_error("cannot read an object's data", &e))?)
            } else {
                None
            };
            Ok(Opened { source, extent, first })
        })
        .await??;
    let info = opened.source.0.info().clone();
    note(context.as_ref(), &info);

    let mut output = GetObjectOutput::default();
    set_object_headers!(output, &info, &opened.extent);
    let told = told_checksums(&info, &opened.extent, part, input.checksum_mode.as_ref());
    set_checksums!(output, told.as_ref());
    output.checksum_type = told.map(|c| checksum::kind(c.kind));
    output.parts_count = part_count(&info, part);
    output.tag_count = tag_count(&info);
    set_lock!(output, info);
    let mut headers = extra_headers(&info);

    if let Some(Intent::Transfer(target)) = &intent {
        let sent = service.push(target, &opened, context.as_deref()).await?;
        if let Sent::ByRdma { crc64nvme } = sent {
            let status = if opened.extent.partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
            headers.extend(reply::transferred(status, opened.extent.length));
            output.checksum_crc64nvme = output.checksum_crc64nvme.or(crc64nvme);
            output.content_length = Some(0);
            return Ok(S3Response::with_headers(output, headers));
        }
    }
    if intent.is_some() {
        service.metrics.rdma_declined();
        headers.extend(reply::declined());
    }
    let Opened { source, extent, first } = opened;
    let stream = ReadAhead::new(source, extent.start, extent.length, first);
    output.body = Some(StreamingBlob::new(stream));
    Ok(S3Response::with_headers(output, headers))
}

/// What became of a GET by RDMA.
enum Sent {
    /// The bytes are in the client's memory.
    ByRdma { crc64nvme: Option<String> },
    /// Nothing was begun, the answer carries them.
    Declined,
}

impl ObjectService {
    /// Writes an object, or a part of it, into the client's memory.
    async fn push(
        &self,
        target: &Target,
        opened: &Opened,
        context: Option<&RequestContext>,
    ) -> S3Result<Sent> {
        let extent = opened.extent;
        if extent.length > target.window.size {
            return Err(reply::window_too_small(extent.length, target.window.size));
        }
        let Some(engine) = &self.engine else { return Ok(Sent::Declined) };
        let info = opened.source.0.info();
        // The stored checksum of the whole serves the client end to end. That of a part is made from
        // the bytes as they are read.
        let stored = info
            .attributes
            .checksums
            .as_ref()
            .filter(|c| extent.is_whole() && c.kind == ChecksumType::FullObject);
        let stored = checksum::value(stored, Algorithm::Crc64Nvme);
        let window = RemoteWindow {
            descriptor: Arc::clone(&target.descriptor),
            start: target.window.base,
            length: extent.length,
            endpoint_hint: context.and_then(|c| c.local),
        };
        let sent = if extent.length == 0 {
            let empty = SummedSource::new(Arc::clone(&opened.source));
            Ok((0, stored.or_else(|| empty.checksum(extent.start, 0))))
        } else if let Some(stored) = stored {
            let source = Arc::clone(&opened.source);
            engine.push(window, source, extent.start).await.map(|report| (report.bytes, Some(stored)))
        } else {
            let source = Arc::new(SummedSource::new(Arc::clone(&opened.source)));
            let pushed = engine.push(window, Arc::clone(&source), extent.start).await;
            pushed.map(|report| (report.bytes, source.checksum(extent.start, extent.length)))
        };
        match sent {
            Ok((bytes, _)) if bytes != extent.length => Err(internal("an RDMA transfer ended early", &bytes)),
            Ok((bytes, crc64nvme)) => {
                if let Some(context) = context {
                    let mut outcome = context.outcome();
                    outcome.carrier = Carrier::Rdma;
                    outcome.rdma_out = bytes;
                }
                Ok(Sent::ByRdma { crc64nvme })
            }
            // Before the first operation: the body over HTTP serves the client at once.
            Err(TransferError::Busy { .. } | TransferError::NoEndpoint | TransferError::ShuttingDown) => {
                Ok(Sent::Declined)
            }
            Err(error) => {
                if let Some(context) = context {
                    context.outcome().carrier = Carrier::Rdma;
                }
                Err(reply::failed(&error))
            }
        }
    }
}

pub(crate) async fn head_object(
    service: &ObjectService,
    req: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let (context, admission) = (req.context().cloned(), req.admission()?);
    let input = req.input;
    let (bucket, key, version) = (input.bucket, input.key, input.version_id);
    let info = service.on_store(move |store| store.head_object(&bucket, &key, version.as_deref())).await?;
    admission.confirm(&info)?;
    note(context.as_ref(), &info);
    let conditions = ReadConditions {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    conditions.check(&info)?;
    let extent = resolve(info.size, input.range, input.part_number, &info.attributes.part_ends)?;
    let mut output = HeadObjectOutput::default();
    set_object_headers!(output, &info, &extent);
    let told = told_checksums(&info, &extent, input.part_number, input.checksum_mode.as_ref());
    set_checksums!(output, told.as_ref());
    output.checksum_type = told.map(|c| checksum::kind(c.kind));
    output.parts_count = part_count(&info, input.part_number);
    set_lock!(output, info);
    let mut headers = extra_headers(&info);
    if let Some(tags) = tag_count(&info) {
        headers.insert("x-amz-tagging-count", HeaderValue::from(tags));
    }
    Ok(S3Response::with_headers(output, headers))
}
