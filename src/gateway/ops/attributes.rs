//! GetObjectAttributes.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::list::count;
use crate::gateway::checksum::{self, set_checksums};
use crate::gateway::error::s3;
use crate::gateway::headers;
use crate::gateway::s3::ObjectService;
use crate::store::{Checksums, ObjectInfo};

const KNOWN: [&str; 5] = [
    ObjectAttributes::CHECKSUM,
    ObjectAttributes::ETAG,
    ObjectAttributes::OBJECT_PARTS,
    ObjectAttributes::OBJECT_SIZE,
    ObjectAttributes::STORAGE_CLASS,
];

pub(crate) async fn get_object_attributes(
    service: &ObjectService,
    req: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let input = req.input;
    // s3s gives a header's line as one value, and SDKs send a list in a line.
    let lines = input.object_attributes;
    let asked: Vec<&str> = lines.iter().flat_map(|line| line.as_str().split(',')).map(str::trim).collect();
    if asked.is_empty() || asked.iter().any(|name| !KNOWN.contains(name)) {
        return Err(s3(S3ErrorCode::InvalidArgument, "Invalid attribute name specified."));
    }
    let wants = |name: &str| asked.contains(&name);
    let max_parts = count(input.max_parts, "max-parts")?;
    let marker = input.part_number_marker.unwrap_or(0).max(0);
    let (bucket, key, version) = (input.bucket, input.key, input.version_id);
    let info = service.on_store(move |store| store.head_object(&bucket, &key, version.as_deref())).await?;
    let stored = info.attributes.checksums.as_ref().filter(|_| wants(ObjectAttributes::CHECKSUM));
    let checksum = stored.map(|stored| {
        let mut shown = Checksum { checksum_type: Some(checksum::kind(stored.kind)), ..Default::default() };
        set_checksums!(shown, Some(stored));
        shown
    });
    Ok(S3Response::new(GetObjectAttributesOutput {
        checksum,
        e_tag: wants(ObjectAttributes::ETAG).then(|| headers::etag(&info.etag)),
        last_modified: Some(info.modified.into()),
        object_parts: wants(ObjectAttributes::OBJECT_PARTS)
            .then(|| parts(&info, usize::try_from(marker).unwrap_or(0), max_parts))
            .flatten(),
        object_size: i64::try_from(info.size).ok().filter(|_| wants(ObjectAttributes::OBJECT_SIZE)),
        storage_class: wants(ObjectAttributes::STORAGE_CLASS)
            .then(|| StorageClass::from_static(StorageClass::STANDARD)),
        version_id: info.version_id,
        ..Default::default()
    }))
}

/// The parts of a multipart object after part `marker`.
fn parts(info: &ObjectInfo, marker: usize, most: usize) -> Option<GetObjectAttributesParts> {
    let ends = &info.attributes.part_ends;
    if ends.is_empty() {
        return None;
    }
    let size = |i: usize| ends[i] - if i == 0 { 0 } else { ends[i - 1] };
    let last = ends.len().min(marker.saturating_add(most));
    let shown: Vec<ObjectPart> = (marker.min(last)..last)
        .map(|i| {
            let mut part = ObjectPart {
                part_number: i32::try_from(i + 1).ok(),
                size: i64::try_from(size(i)).ok(),
                ..Default::default()
            };
            let checksum = info.attributes.checksums.as_ref().and_then(|whole| {
                let value = info.attributes.part_checksums.get(i)?.clone();
                Some(Checksums { values: [(whole.algorithm.clone(), value)].into(), ..whole.clone() })
            });
            set_checksums!(part, checksum.as_ref());
            part
        })
        .collect();
    Some(GetObjectAttributesParts {
        is_truncated: Some(last < ends.len()),
        max_parts: i32::try_from(most).ok(),
        next_part_number_marker: i32::try_from(last).ok().filter(|_| last < ends.len()),
        part_number_marker: i32::try_from(marker).ok(),
        parts: Some(shown),
        total_parts_count: i32::try_from(ends.len()).ok(),
    })
}
