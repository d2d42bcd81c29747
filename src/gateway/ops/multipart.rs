//! Multipart uploads.

use std::collections::BTreeMap;
use std::io;

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::list::{Encoding, count, owner_of};
use super::lock::{LockHeaders, with_default};
use super::receive::{Incoming, Pending};
use crate::digest::{Algorithm, Digests};
use crate::gateway::access::BucketFacts;
use crate::gateway::checksum::{self, set_checksums};
use crate::gateway::conditions::write_conditions;
use crate::gateway::error::s3;
use crate::gateway::headers;
use crate::gateway::s3::{Extras, ObjectService};
use crate::store::{
    self, Checksums, CompleteUpload, CompletedPart, CreateUpload, EtagMode, ListRequest, PartInfo,
    PendingPart, UploadClaims,
};
use crate::transfer::BlockSink;

/// Highest part number.
const PARTS: u32 = 10_000;

/// A pending part and what it will be published with.
struct NewPart {
    pending: PendingPart,
    mode: EtagMode,
    chosen: Option<Algorithm>,
}

impl BlockSink for NewPart {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pending.write_at(offset, data)
    }
}

impl Pending for NewPart {
    type Published = PartInfo;

    fn publish(self, size: u64, digests: &Digests) -> store::Result<PartInfo> {
        let checksums = checksum::stored(self.chosen, digests);
        self.pending.publish(size, &checksum::etag(self.mode, digests), Some(&checksums))
    }
}

/// A part number within S3's bounds.
///
/// # Errors
/// `InvalidArgument` for another.
pub(super) fn part_number(number: i32) -> S3Result<u32> {
    u32::try_from(number).ok().filter(|n| (1..=PARTS).contains(n)).ok_or_else(|| {
        s3(S3ErrorCode::InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive")
    })
}

/// Algorithm and type that an upload declares.
fn declared(
    algorithm: Option<&ChecksumAlgorithm>,
    kind: Option<&ChecksumType>,
) -> S3Result<Option<(String, store::ChecksumType)>> {
    let invalid = |text: String| s3(S3ErrorCode::InvalidRequest, text);
    let Some(algorithm) = algorithm else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(invalid("x-amz-checksum-type goes only with x-amz-checksum-algorithm".into())),
        };
    };
    let algorithm = Algorithm::from_name(algorithm.as_str()).ok_or_else(|| {
        invalid(format!("the checksum algorithm {:?} is not supported", algorithm.as_str()))
    })?;
    // What S3 assumes: composite, but for CRC-64/NVME, which has only the full object's.
    let kind = match kind.map(ChecksumType::as_str) {
        None if algorithm == Algorithm::Crc64Nvme => store::ChecksumType::FullObject,
        None => store::ChecksumType::Composite,
        Some(ChecksumType::FULL_OBJECT) if algorithm.is_crc() => store::ChecksumType::FullObject,
        Some(ChecksumType::COMPOSITE) if algorithm != Algorithm::Crc64Nvme => store::ChecksumType::Composite,
        Some(other) => {
            return Err(invalid(format!(
                "The {other} checksum type cannot be used with the {} checksum algorithm.",
                algorithm.name()
            )));
        }
    };
    Ok(Some((algorithm.name().to_owned(), kind)))
}

pub(crate) async fn create_multipart_upload(
    service: &ObjectService,
    mut req: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let checksum = declared(req.input.checksum_algorithm.as_ref(), req.input.checksum_type.as_ref())?;
    let mut attributes = headers::attributes(&req.headers, req.input.metadata.take())?;
    attributes.acl = service.new_object_acl(&req, req.input.acl.as_ref())?;
    let initiator = req.admission()?.caller().map(str::to_owned);
    let lock = LockHeaders::read(&req.headers)?;
    let (bucket, key) = (req.input.bucket, req.input.key);
    let output = CreateMultipartUploadOutput {
        bucket: Some(bucket.clone()),
        key: Some(key.clone()),
        checksum_algorithm: checksum.as_ref().map(|c| c.0.clone().into()),
        checksum_type: checksum.as_ref().map(|c| checksum::kind(c.1)),
        ..Default::default()
    };
    let mut request = CreateUpload { attributes, checksum, initiator };
    let store = service.store.clone();
    let upload_id = service
        .blocking
        .run(move || -> S3Result<String> {
            (request.attributes.retention, request.attributes.legal_hold) =
                with_default(&store, &bucket, lock)?;
            Ok(store.create_upload(&bucket, &key, &request)?)
        })
        .await??;
    Ok(S3Response::new(CreateMultipartUploadOutput { upload_id: Some(upload_id), ..output }))
}

pub(crate) async fn upload_part(
    service: &ObjectService,
    mut req: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let body = req.input.body.take();
    let number = part_number(req.input.part_number)?;
    let source = service.source(&req, body, req.input.content_length)?;
    let expected = service.expected(&req, &source)?;
    let context = req.context().cloned();
    let size_hint = Some(source.length());
    let (bucket, key, upload_id) = (req.input.bucket, req.input.key, req.input.upload_id);
    let (mode, chosen) = (service.etag, expected.chosen());
    let incoming = Incoming { source, expected, trailers: req.trailing_headers, context: context.clone() };
    let received = service
        .receive(
            move |store| {
                let pending = store.begin_part(&bucket, &key, &upload_id, number, size_hint)?;
                Ok(NewPart { pending, mode, chosen })
            },
            incoming,
        )
        .await?;
    if let Some(context) = context {
        context.outcome().object_size = Some(received.size);
    }
    let stored: Checksums = checksum::stored(received.expected.chosen(), &received.digests);
    let mut output =
        UploadPartOutput { e_tag: Some(headers::etag(&received.published.etag)), ..Default::default() };
    set_checksums!(output, Some(&stored));
    Ok(S3Response::with_headers(output, received.reply_headers()))
}

/// Checksums that a document or its headers state.
macro_rules! stated {
    ($from:expr) => {{
        let mut map = BTreeMap::new();
        for (algorithm, value) in [
            (Algorithm::Crc32, $from.checksum_crc32.take()),
            (Algorithm::Crc32c, $from.checksum_crc32c.take()),
            (Algorithm::Crc64Nvme, $from.checksum_crc64nvme.take()),
            (Algorithm::Sha1, $from.checksum_sha1.take()),
            (Algorithm::Sha256, $from.checksum_sha256.take()),
        ] {
            if let Some(value) = value {
                map.insert(algorithm.name().to_owned(), value);
            }
        }
        map
    }};
}

pub(crate) async fn complete_multipart_upload(
    service: &ObjectService,
    req: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let context = req.context().cloned();
    let mut input = req.input;
    let listed = input.multipart_upload.take().and_then(|m| m.parts).unwrap_or_default();
    if listed.is_empty() {
        return Err(s3(S3ErrorCode::MalformedXML, "You must specify at least one part"));
    }
    let mut parts = Vec::with_capacity(listed.len());
    for mut part in listed {
        let number = part_number(part.part_number.unwrap_or(0))?;
        let checksums = stated!(part);
        parts.push(CompletedPart { number, etag: part.e_tag.map(ETag::into_value), checksums });
    }
    let request = CompleteUpload {
        parts,
        checksums: stated!(input),
        conditions: write_conditions(input.if_match.take(), input.if_none_match.take()),
        expected_size: input
            .mpu_object_size
            .map(|n| {
                u64::try_from(n)
                    .map_err(|_| s3(S3ErrorCode::InvalidArgument, "x-amz-mp-object-size is negative"))
            })
            .transpose()?,
    };
    let (bucket, key, upload_id) = (input.bucket, input.key, input.upload_id);
    let (in_bucket, of_key) = (bucket.clone(), key.clone());
    let info = service
        .on_store(move |store| store.complete_upload(&in_bucket, &of_key, &upload_id, &request))
        .await?;
    if let Some(context) = context {
        let mut outcome = context.outcome();
        outcome.object_size = Some(info.size);
        outcome.version.clone_from(&info.version_id);
    }
    let checksums = info.attributes.checksums.as_ref();
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("/{bucket}/{key}")),
        bucket: Some(bucket),
        key: Some(key),
        e_tag: Some(headers::etag(&info.etag)),
        checksum_type: checksums.map(|c| checksum::kind(c.kind)),
        version_id: headers::new_version(&info),
        ..Default::default()
    };
    set_checksums!(output, checksums);
    // Amazon S3 tells the ETag in the body only; minio-rs reads it from a header that MinIO sends too.
    let quoted = http::HeaderValue::from_str(&format!("\"{}\"", info.etag));
    let headers = quoted.into_iter().map(|value| (http::header::ETAG, value)).collect();
    Ok(S3Response::with_headers(output, headers))
}

pub(crate) async fn abort_multipart_upload(
    service: &ObjectService,
    req: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let input = req.input;
    if input.if_match_initiated_time.is_some() {
        return Err(s3(S3ErrorCode::NotImplemented, "x-amz-if-match-initiated-time is not implemented"));
    }
    service.on_store(move |store| store.abort_upload(&input.bucket, &input.key, &input.upload_id)).await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

/// Owner of the object to be, and who started the upload; the owner when that was not noted.
fn claimants(bucket: &BucketFacts, claims: &UploadClaims) -> (Owner, Initiator) {
    let owner = owner_of(bucket, claims.acl.as_deref());
    let initiator = claims.initiator.clone().or_else(|| owner.id.clone());
    (owner, Initiator { display_name: initiator.clone(), id: initiator })
}

pub(crate) async fn list_parts(
    service: &ObjectService,
    req: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    let max = count(input.max_parts, "max-parts")?;
    let marker = input
        .part_number_marker
        .map(|n| {
            u32::try_from(n).map_err(|_| s3(S3ErrorCode::InvalidArgument, "part-number-marker is negative"))
        })
        .transpose()?
        .unwrap_or(0);
    let (bucket, key, upload_id) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let page =
        service.on_store(move |store| store.list_parts(&bucket, &key, &upload_id, marker, max)).await?;
    let (owner, initiator) = claimants(admission.bucket()?, &page.claims);
    let next = page.parts.last().and_then(|p| i32::try_from(p.number).ok());
    let parts = page
        .parts
        .into_iter()
        .map(|part| {
            let mut shown = Part {
                e_tag: Some(ETag::Strong(part.etag)),
                last_modified: Some(part.modified.into()),
                part_number: i32::try_from(part.number).ok(),
                size: i64::try_from(part.size).ok(),
                ..Default::default()
            };
            set_checksums!(shown, part.checksums.as_ref());
            shown
        })
        .collect();
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: i32::try_from(marker).ok(),
        next_part_number_marker: next.filter(|_| page.truncated),
        max_parts: i32::try_from(max).ok(),
        is_truncated: Some(page.truncated),
        parts: Some(parts),
        checksum_algorithm: page.checksum.as_ref().map(|c| c.0.clone().into()),
        checksum_type: page.checksum.as_ref().map(|c| checksum::kind(c.1)),
        initiator: Some(initiator),
        owner: Some(owner),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..Default::default()
    }))
}

pub(crate) async fn list_multipart_uploads(
    service: &ObjectService,
    req: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let admission = req.admission()?;
    let facts = admission.bucket()?;
    let input = req.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let max = count(input.max_uploads, "max-uploads")?;
    let key_marker = input.key_marker.clone().filter(|m| !m.is_empty());
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().filter(|d| !d.is_empty()),
        start_after: key_marker.clone(),
        // Without a key marker S3 takes no notice of it.
        upload_id_marker: input.upload_id_marker.clone().filter(|m| !m.is_empty() && key_marker.is_some()),
        max_keys: max,
        acls: false,
    };
    let bucket = input.bucket.clone();
    let page = service
        .on_store(move |store| {
            if request.max_keys == 0 {
                store.head_bucket(&bucket)?;
                return Ok(store::UploadPage::default());
            }
            store.list_uploads(&bucket, &request)
        })
        .await?;
    let uploads: Vec<MultipartUpload> = page
        .uploads
        .into_iter()
        .map(|upload| {
            let (owner, initiator) = claimants(facts, &upload.claims);
            MultipartUpload {
                checksum_algorithm: upload.checksum.as_ref().map(|c| c.0.clone().into()),
                checksum_type: upload.checksum.as_ref().map(|c| checksum::kind(c.1)),
                initiated: Some(upload.initiated.into()),
                initiator: Some(initiator),
                key: Some(encoding.text(upload.key)),
                owner: Some(owner),
                storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                upload_id: Some(upload.upload_id),
            }
        })
        .collect();
    let prefixes: Vec<CommonPrefix> = page
        .common_prefixes
        .into_iter()
        .map(|prefix| CommonPrefix { prefix: Some(encoding.text(prefix)) })
        .collect();
    let truncated = page.next.is_some();
    let (next_key, next_upload) = page.next.unzip();
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: Some(prefixes).filter(|p| !p.is_empty()),
        delimiter: input.delimiter.map(|d| encoding.text(d)),
        encoding_type: encoding.kind(),
        is_truncated: Some(truncated),
        key_marker: Some(encoding.text(input.key_marker.unwrap_or_default())),
        max_uploads: i32::try_from(max).ok(),
        next_key_marker: next_key.map(|k| encoding.text(k)),
        next_upload_id_marker: next_upload,
        prefix: Some(encoding.text(input.prefix.unwrap_or_default())),
        upload_id_marker: input.upload_id_marker,
        uploads: Some(uploads).filter(|u| !u.is_empty()),
        request_charged: None,
    }))
}
