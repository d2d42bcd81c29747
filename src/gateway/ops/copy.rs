//! CopyObject and UploadPartCopy.

use std::ops::Range;

use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::lock::{LockHeaders, with_default};
use super::multipart::part_number;
use crate::digest::{Algorithm, Digester, Digests};
use crate::gateway::access::SourceAdmission;
use crate::gateway::checksum::{self, set_checksums};
use crate::gateway::conditions::{ReadConditions, write_conditions};
use crate::gateway::error::{io_error, s3};
use crate::gateway::headers;
use crate::gateway::s3::{Extras, ObjectService};
use crate::store::{CopyRequest, ObjectReader, PartInfo};

/// Bytes read at a time for a digest.
const STEP: usize = 1 << 20;

/// What a copy reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) version: Option<String>,
}

impl Source {
    /// Of `x-amz-copy-source`.
    ///
    /// # Errors
    /// `NotImplemented` for ARNs.
    pub(crate) fn of(source: &CopySource) -> S3Result<Self> {
        match source {
            CopySource::Bucket { bucket, key, version_id } => Ok(Self {
                bucket: bucket.to_string(),
                key: key.to_string(),
                version: version_id.as_ref().map(ToString::to_string),
            }),
            CopySource::AccessPoint { .. } | CopySource::Outpost { .. } => {
                Err(s3(S3ErrorCode::NotImplemented, "x-amz-copy-source takes a bucket and a key, not an ARN"))
            }
        }
    }
}

/// Reads a `+` in `x-amz-copy-source` as a space, as S3 does and clients rely on (s5cmd writes it so,
/// rclone escapes a real one for that reason); s3s does not.
pub(crate) fn read_spaces(headers: &HeaderMap, source: &mut CopySource) {
    let value = headers.get("x-amz-copy-source").and_then(|v| v.to_str().ok());
    if let Some(value) = value.filter(|v| v.contains('+'))
        && let Ok(with_spaces) = CopySource::parse(&value.replace('+', "%20"))
    {
        *source = with_spaces;
    }
}

/// Conditions on the source; what is not modified is a failed precondition for a copy.
fn check_source(conditions: &ReadConditions, source: &ObjectReader) -> S3Result<()> {
    conditions.check(source.info()).map_err(|_| {
        s3(
            S3ErrorCode::PreconditionFailed,
            "At least one of the pre-conditions you specified did not hold: x-amz-copy-source-if-*",
        )
    })
}

fn digest(source: &ObjectReader, range: Range<u64>, mut digester: Digester) -> S3Result<Digests> {
    let mut buffer = vec![0; STEP];
    let mut at = range.start;
    while at < range.end {
        let step = usize::try_from(range.end - at).map_or(STEP, |rest| rest.min(STEP));
        source
            .read_at(at, &mut buffer[..step])
            .map_err(|error| io_error("cannot read an object's data", &error))?;
        digester.update(&buffer[..step]);
        at += step as u64;
    }
    Ok(digester.finish())
}

fn algorithm(name: Option<&ChecksumAlgorithm>) -> S3Result<Option<Algorithm>> {
    name.map(|name| {
        Algorithm::from_name(name.as_str()).ok_or_else(|| {
            s3(
                S3ErrorCode::InvalidRequest,
                format!("the checksum algorithm {:?} is not supported", name.as_str()),
            )
        })
    })
    .transpose()
}

pub(crate) async fn copy_object(
    service: &ObjectService,
    mut req: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let context = req.context().cloned();
    let metadata = req.input.metadata.take();
    let fresh = headers::attributes(&req.headers, metadata)?;
    let lock = LockHeaders::read(&req.headers)?;
    let acl = service.new_object_acl(&req, req.input.acl.as_ref())?;
    let reads = SourceAdmission::of(&req.extensions)?;
    let input = req.input;
    let source = Source::of(&input.copy_source)?;
    let conditions = ReadConditions {
        if_match: input.copy_source_if_match,
        if_none_match: input.copy_source_if_none_match,
        if_modified_since: input.copy_source_if_modified_since,
        if_unmodified_since: input.copy_source_if_unmodified_since,
    };
    let replaces = |directive: Option<&str>| match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(s3(S3ErrorCode::InvalidArgument, format!("Unknown directive {other:?}"))),
    };
    let replace_metadata = replaces(input.metadata_directive.as_ref().map(MetadataDirective::as_str))?;
    let replace_tags = replaces(input.tagging_directive.as_ref().map(TaggingDirective::as_str))?;
    let wanted = algorithm(input.checksum_algorithm.as_ref())?;
    let changes_otherwise =
        input.storage_class.is_some() || input.website_redirect_location.is_some() || lock.any();
    let target_conditions = write_conditions(
        header_condition(&req.headers, "if-match")?,
        header_condition(&req.headers, "if-none-match")?,
    );
    let (bucket, key) = (input.bucket, input.key);
    let store = service.store.clone();
    let (info, source_version) = service
        .blocking
        .run(move || -> S3Result<_> {
            let reader = store.open_object(&source.bucket, &source.key, source.version.as_deref())?;
            reads.confirm(reader.info())?;
            check_source(&conditions, &reader)?;
            let stored = reader.info().attributes.checksums.as_ref();
            let digests = match wanted {
                Some(algorithm) if checksum::value(stored, algorithm).is_none() => {
                    let digester = Digester::new(false, [Algorithm::Crc64Nvme, algorithm]);
                    let found = digest(&reader, 0..reader.info().size, digester)?;
                    Some((reader.info().etag.clone(), Some(checksum::stored(Some(algorithm), &found))))
                }
                _ => None,
            };
            let (retention, legal_hold) = with_default(&store, &bucket, lock)?;
            let request = CopyRequest {
                conditions: target_conditions,
                replace_tags: replace_tags.then(|| fresh.tags.clone()),
                replace_metadata: replace_metadata.then_some(fresh),
                digests,
                retention,
                legal_hold,
                acl,
                changes_otherwise,
            };
            let info = store.copy_object(&reader, &bucket, &key, &request)?;
            Ok((info, reader.info().version_id.clone()))
        })
        .await??;
    if let Some(context) = context {
        let mut outcome = context.outcome();
        outcome.object_size = Some(info.size);
        outcome.version.clone_from(&info.version_id);
    }
    let checksums = info.attributes.checksums.as_ref();
    let mut result = CopyObjectResult {
        e_tag: Some(headers::etag(&info.etag)),
        last_modified: Some(info.modified.into()),
        checksum_type: checksums.map(|c| checksum::kind(c.kind)),
        ..Default::default()
    };
    set_checksums!(result, checksums);
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        copy_source_version_id: source_version,
        version_id: info.version_id,
        ..Default::default()
    }))
}

/// Conditions on the target of a copy, which s3s's input has no fields for.
fn header_condition(headers: &http::HeaderMap, name: &str) -> S3Result<Option<ETagCondition>> {
    headers
        .get(name)
        .map(|value| {
            ETagCondition::parse_http_header(value.as_bytes())
                .map_err(|_| s3(S3ErrorCode::InvalidArgument, format!("{name} is malformed")))
        })
        .transpose()
}

/// Reads `x-amz-copy-source-range`, which must lie in the source and have both ends.
fn source_range(text: Option<&str>, size: u64) -> S3Result<Range<u64>> {
    let Some(text) = text else { return Ok(0..size) };
    let bounds = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (first, last) = bounds
        .and_then(|(first, last)| Some((number(first)?, number(last)?)))
        .filter(|(first, last)| first <= last)
        .ok_or_else(|| {
            s3(
                S3ErrorCode::InvalidArgument,
                "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last \
                 are the zero-based offsets of the first and last bytes to copy",
            )
        })?;
    if last >= size {
        return Err(s3(
            S3ErrorCode::InvalidRange,
            format!("Range specified is not valid for source object of size: {size}"),
        ));
    }
    Ok(first..last + 1)
}

pub(crate) async fn upload_part_copy(
    service: &ObjectService,
    req: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let context = req.context().cloned();
    let reads = SourceAdmission::of(&req.extensions)?;
    let input = req.input;
    let source = Source::of(&input.copy_source)?;
    let number = part_number(input.part_number)?;
    let conditions = ReadConditions {
        if_match: input.copy_source_if_match,
        if_none_match: input.copy_source_if_none_match,
        if_modified_since: input.copy_source_if_modified_since,
        if_unmodified_since: input.copy_source_if_unmodified_since,
    };
    let (bucket, key, upload_id) = (input.bucket, input.key, input.upload_id);
    let (range, mode, store) = (input.copy_source_range, service.etag, service.store.clone());
    let (part, source_version): (PartInfo, Option<String>) = service
        .blocking
        .run(move || -> S3Result<_> {
            let reader = store.open_object(&source.bucket, &source.key, source.version.as_deref())?;
            reads.confirm(reader.info())?;
            check_source(&conditions, &reader)?;
            let range = source_range(range.as_deref(), reader.info().size)?;
            let size = range.end - range.start;
            // The upload may ask for an algorithm of its own; its parts carry it then.
            let declared = store.list_parts(&bucket, &key, &upload_id, 0, 1)?.checksum;
            let chosen = declared.and_then(|(name, _)| Algorithm::from_name(&name));
            let pending = store.begin_part(&bucket, &key, &upload_id, number, Some(size))?;
            pending
                .copy_from(&reader, range.clone(), 0)
                .map_err(|error| io_error("cannot copy an object's data", &error))?;
            let md5 = mode == crate::store::EtagMode::Md5;
            let digester = Digester::new(md5, [Algorithm::Crc64Nvme].into_iter().chain(chosen));
            let found = digest(&reader, range, digester)?;
            let checksums = checksum::stored(chosen, &found);
            let part = pending.publish(size, &checksum::etag(mode, &found), Some(&checksums))?;
            Ok((part, reader.info().version_id.clone()))
        })
        .await??;
    if let Some(context) = context {
        context.outcome().object_size = Some(part.size);
    }
    let mut result = CopyPartResult {
        e_tag: Some(headers::etag(&part.etag)),
        last_modified: Some(part.modified.into()),
        ..Default::default()
    };
    set_checksums!(result, part.checksums.as_ref());
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        copy_source_version_id: source_version,
        ..Default::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(None => Ok(0..10))]
    #[test_case(Some("bytes=0-9") => Ok(0..10))]
    #[test_case(Some("bytes=3-3") => Ok(3..4))]
    #[test_case(Some("bytes=3-") => Err("InvalidArgument".into()))]
    #[test_case(Some("bytes=-3") => Err("InvalidArgument".into()))]
    #[test_case(Some("bytes=5-3") => Err("InvalidArgument".into()))]
    #[test_case(Some("0-3") => Err("InvalidArgument".into()))]
    #[test_case(Some("bytes=+1-3") => Err("InvalidArgument".into()))]
    #[test_case(Some("bytes=3-10") => Err("InvalidRange".into()))]
    fn ranges(text: Option<&str>) -> Result<Range<u64>, String> {
        source_range(text, 10).map_err(|e| e.code().as_str().to_owned())
    }
}
