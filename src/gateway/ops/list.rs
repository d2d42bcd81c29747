//! ListObjects, both versions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::gateway::access::BucketFacts;
use crate::gateway::checksum;
use crate::gateway::error::s3;
use crate::gateway::s3::{Extras, ObjectService};
use crate::store::{ListPage, ListRequest};

/// Most entries on a page.
const PAGE: usize = 1000;

/// What `encoding-type=url` leaves as it is.
const URL: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'*');

/// How texts of a listing go out: as they are, or percent-encoded.
#[derive(Clone, Copy)]
pub(super) struct Encoding {
    url: bool,
}

impl Encoding {
    /// Reads `encoding-type`.
    ///
    /// # Errors
    /// `InvalidArgument` for another than `url`.
    pub(super) fn new(kind: Option<&EncodingType>) -> S3Result<Self> {
        match kind.map(EncodingType::as_str) {
            None => Ok(Self { url: false }),
            Some("url") => Ok(Self { url: true }),
            Some(_) => Err(s3(S3ErrorCode::InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    pub(super) fn text(self, text: String) -> String {
        if self.url { utf8_percent_encode(&text, URL).to_string() } else { text }
    }

    /// The prefix that a ListObjects names, as sent: SDKs decode it in answers of ListObjectsV2 only.
    /// What XML cannot carry is encoded all the same.
    pub(super) fn echoed(self, text: String) -> String {
        let unspeakable = |c: char| c < ' ' && !matches!(c, '\t' | '\n' | '\r');
        if text.contains(unspeakable) { self.text(text) } else { text }
    }

    pub(super) fn kind(self) -> Option<EncodingType> {
        self.url.then(|| EncodingType::from_static(EncodingType::URL))
    }
}

/// Reads a count of entries: at most 1000, none means 1000.
///
/// # Errors
/// `InvalidArgument` when it is negative.
pub(super) fn count(value: Option<i32>, name: &str) -> S3Result<usize> {
    let count = usize::try_from(value.unwrap_or(PAGE as i32)).map_err(|_| {
        s3(
            S3ErrorCode::InvalidArgument,
            format!("Argument {name} must be an integer between 0 and 2147483647"),
        )
    })?;
    Ok(count.min(PAGE))
}

async fn page(service: &ObjectService, bucket: String, request: ListRequest) -> S3Result<ListPage> {
    service
        .on_store(move |store| {
            if request.max_keys == 0 {
                store.head_bucket(&bucket)?;
                return Ok(ListPage::default());
            }
            store.list_objects(&bucket, &request)
        })
        .await
}

struct Shown {
    contents: Option<Vec<Object>>,
    common_prefixes: Option<Vec<CommonPrefix>>,
}

/// Owner of a listed object, as far as its ACL can be read.
pub(super) fn owner_of(bucket: &BucketFacts, acl: Option<&[u8]>) -> Owner {
    let owner = bucket.object_acl(acl).map_or_else(|_| bucket.owner().to_owned(), |acl| acl.owner);
    Owner { display_name: Some(owner.clone()), id: Some(owner) }
}

/// `owners`: the bucket, when owners are to be told.
fn shown(page: ListPage, encoding: Encoding, owners: Option<&BucketFacts>) -> Shown {
    let contents: Vec<Object> = page
        .objects
        .into_iter()
        .map(|object| Object {
            checksum_algorithm: object.checksum_algorithm.map(|a| vec![ChecksumAlgorithm::from(a)]),
            checksum_type: object.checksum_type.map(checksum::kind),
            e_tag: Some(ETag::Strong(object.etag)),
            key: Some(encoding.text(object.key)),
            last_modified: Some(object.modified.into()),
            owner: owners.map(|bucket| owner_of(bucket, object.acl.as_deref())),
            size: i64::try_from(object.size).ok(),
            storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
            ..Default::default()
        })
        .collect();
    let prefixes: Vec<CommonPrefix> = page
        .common_prefixes
        .into_iter()
        .map(|prefix| CommonPrefix { prefix: Some(encoding.text(prefix)) })
        .collect();
    Shown {
        contents: Some(contents).filter(|c| !c.is_empty()),
        common_prefixes: Some(prefixes).filter(|p| !p.is_empty()),
    }
}

pub(crate) async fn list_objects(
    service: &ObjectService,
    req: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let admission = req.admission()?;
    let bucket = admission.bucket()?;
    let input = req.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let max_keys = count(input.max_keys, "max-keys")?;
    let delimiter = input.delimiter.clone().filter(|d| !d.is_empty());
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: delimiter.clone(),
        start_after: input.marker.clone().filter(|m| !m.is_empty()),
        max_keys,
        acls: bucket.ownership.has_acls(),
        ..Default::default()
    };
    let mut page = page(service, input.bucket.clone(), request).await?;
    let next = page.next.take();
    let entries = shown(page, encoding, Some(bucket));
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.echoed(input.prefix.unwrap_or_default())),
        marker: Some(encoding.text(input.marker.unwrap_or_default())),
        max_keys: i32::try_from(max_keys).ok(),
        is_truncated: Some(next.is_some()),
        contents: entries.contents,
        common_prefixes: entries.common_prefixes,
        // As S3 has it: without a delimiter the last key serves as the next marker.
        next_marker: next.filter(|_| delimiter.is_some()).map(|n| encoding.text(n)),
        delimiter: delimiter.map(|d| encoding.text(d)),
        encoding_type: encoding.kind(),
        ..Default::default()
    }))
}

fn token_of(next: &str) -> String {
    URL_SAFE_NO_PAD.encode(next)
}

fn next_of(token: &str) -> S3Result<String> {
    URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| s3(S3ErrorCode::InvalidArgument, "The continuation token provided is incorrect"))
}

pub(crate) async fn list_objects_v2(
    service: &ObjectService,
    req: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let admission = req.admission()?;
    let input = req.input;
    let encoding = Encoding::new(input.encoding_type.as_ref())?;
    let max_keys = count(input.max_keys, "max-keys")?;
    let owners = (input.fetch_owner == Some(true)).then(|| admission.bucket()).transpose()?;
    let start_after = match &input.continuation_token {
        Some(token) => Some(next_of(token)?),
        None => input.start_after.clone(),
    };
    let delimiter = input.delimiter.clone().filter(|d| !d.is_empty());
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: delimiter.clone(),
        start_after: start_after.filter(|s| !s.is_empty()),
        max_keys,
        acls: owners.is_some_and(|bucket| bucket.ownership.has_acls()),
        ..Default::default()
    };
    let mut page = page(service, input.bucket.clone(), request).await?;
    let next = page.next.take();
    let key_count = page.objects.len() + page.common_prefixes.len();
    let entries = shown(page, encoding, owners);
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(encoding.text(input.prefix.unwrap_or_default())),
        max_keys: i32::try_from(max_keys).ok(),
        key_count: i32::try_from(key_count).ok(),
        continuation_token: input.continuation_token,
        is_truncated: Some(next.is_some()),
        next_continuation_token: next.as_deref().map(token_of),
        contents: entries.contents,
        common_prefixes: entries.common_prefixes,
        delimiter: delimiter.map(|d| encoding.text(d)),
        encoding_type: encoding.kind(),
        start_after: input.start_after.map(|s| encoding.text(s)),
        ..Default::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_encoding_is_that_of_s3() {
        let encoding = Encoding { url: true };
        assert_eq!(encoding.text("asdf+b/quux ab/ü*~".into()), "asdf%2Bb/quux%20ab/%C3%BC*~");
        assert!(Encoding::new(Some(&EncodingType::from("hex".to_owned()))).is_err());
    }

    #[test]
    fn tokens_read_back() {
        assert_eq!(next_of(&token_of("a/b ü")).unwrap(), "a/b ü");
        assert!(next_of("***").is_err());
    }

    #[test]
    fn counts() {
        assert_eq!(count(None, "max-keys").unwrap(), 1000);
        assert_eq!(count(Some(5000), "max-keys").unwrap(), 1000);
        assert_eq!(count(Some(0), "max-keys").unwrap(), 0);
        assert!(count(Some(-1), "max-keys").is_err());
    }
}
