//! Between an object's stored attributes and S3's headers.

use std::collections::BTreeMap;

use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode_str;
use s3s::dto::{self, ETag, Timestamp, TimestampFormat};
use s3s::{S3ErrorCode, S3Result};

use super::error::{s3, s3_status};
use crate::store::{ObjectAttributes, ObjectInfo};

/// Most bytes of user metadata, names and values together.
const METADATA_LIMIT: usize = 2048;

/// What S3 answers for an object stored without a content type.
pub(crate) const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

/// Attributes of a new object from a request's headers.
///
/// # Errors
/// For headers that ask for what this gateway does not do: they are never ignored.
pub(crate) fn attributes(headers: &HeaderMap, metadata: Option<dto::Metadata>) -> S3Result<ObjectAttributes> {
    refuse_unsupported(headers)?;
    let text = |name: &str| {
        headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .filter(|value| !value.is_empty())
    };
    Ok(ObjectAttributes {
        // Other programs that serve the directory would guess one.
        content_type: text("content-type").or_else(|| Some(DEFAULT_CONTENT_TYPE.to_owned())),
        content_encoding: text("content-encoding").and_then(|value| without_framing(&value)),
        content_disposition: text("content-disposition"),
        content_language: text("content-language"),
        cache_control: text("cache-control"),
        expires: text("expires"),
        website_redirect: website_redirect(text("x-amz-website-redirect-location"))?,
        metadata: checked_metadata(metadata)?,
        tags: text("x-amz-tagging").map_or_else(|| Ok(BTreeMap::new()), |t| tags_from_header(&t))?,
        ..Default::default()
    })
}

/// `aws-chunked` describes the transfer, not the object.
fn without_framing(value: &str) -> Option<String> {
    let is_framing = |e: &str| e.trim().eq_ignore_ascii_case("aws-chunked");
    if !value.split(',').any(is_framing) {
        return Some(value.to_owned());
    }
    let kept: Vec<&str> =
        value.split(',').filter(|e| !is_framing(e)).map(str::trim).filter(|e| !e.is_empty()).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

fn website_redirect(value: Option<String>) -> S3Result<Option<String>> {
    match value {
        Some(v) if !(v.starts_with('/') || v.starts_with("http://") || v.starts_with("https://")) => {
            Err(s3_status(
                S3ErrorCode::Custom("InvalidRedirectLocation".into()),
                StatusCode::BAD_REQUEST,
                "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.",
            ))
        }
        value => Ok(value),
    }
}

fn checked_metadata(metadata: Option<dto::Metadata>) -> S3Result<BTreeMap<String, String>> {
    let metadata: BTreeMap<String, String> =
        metadata.unwrap_or_default().into_iter().map(|(k, v)| (k.to_ascii_lowercase(), v)).collect();
    let size: usize = metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
    if size > METADATA_LIMIT {
        return Err(s3(
            S3ErrorCode::MetadataTooLarge,
            format!("Your metadata headers hold {size} bytes and may hold {METADATA_LIMIT}"),
        ));
    }
    Ok(metadata)
}

/// Refuses what would otherwise be dropped in silence.
fn refuse_unsupported(headers: &HeaderMap) -> S3Result<()> {
    for name in headers.keys() {
        let name = name.as_str();
        let unsupported =
            name.starts_with("x-amz-server-side-encryption") || name == "x-amz-write-offset-bytes";
        if unsupported {
            return Err(s3(S3ErrorCode::NotImplemented, format!("{name} is not implemented")));
        }
    }
    if let Some(class) = headers.get("x-amz-storage-class")
        && class != "STANDARD"
    {
        return Err(s3(S3ErrorCode::InvalidStorageClass, "The only storage class here is STANDARD"));
    }
    Ok(())
}

/// Reads `x-amz-tagging`, `k1=v1&k2=v2` with percent-encoding.
///
/// # Errors
/// `InvalidArgument` and `InvalidTag` for what S3 refuses.
pub(crate) fn tags_from_header(value: &str) -> S3Result<BTreeMap<String, String>> {
    let decode = |text: &str| {
        percent_decode_str(&text.replace('+', " ")).decode_utf8().map(std::borrow::Cow::into_owned).map_err(
            |_| {
                s3(
                    S3ErrorCode::InvalidArgument,
                    "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded",
                )
            },
        )
    };
    let mut pairs = Vec::new();
    for pair in value.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        pairs.push((decode(key)?, decode(value)?));
    }
    checked_tags(pairs, 10)
}

/// Tags within S3's limits: so many, keys to 128 and values to 256 characters, no key twice.
///
/// # Errors
/// `InvalidTag`.
pub(crate) fn checked_tags(pairs: Vec<(String, String)>, most: usize) -> S3Result<BTreeMap<String, String>> {
    if pairs.len() > most {
        return Err(s3(
            S3ErrorCode::InvalidTag,
            format!("{} tags are more than the {most} that are allowed", pairs.len()),
        ));
    }
    let mut tags = BTreeMap::new();
    for (key, value) in pairs {
        if key.is_empty() || key.chars().count() > 128 {
            return Err(s3(S3ErrorCode::InvalidTag, "The TagKey you have provided is invalid"));
        }
        if value.chars().count() > 256 {
            return Err(s3(S3ErrorCode::InvalidTag, "The TagValue you have provided is invalid"));
        }
        if tags.insert(key, value).is_some() {
            return Err(s3(S3ErrorCode::InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    Ok(tags)
}

/// The version id that an upload is answered with: none where no new version came to be, which is
/// also so while versioning is suspended.
pub(crate) fn new_version(info: &ObjectInfo) -> Option<String> {
    info.version_id.clone().filter(|id| id != "null")
}

/// An ETag of the store as s3s wants it.
pub(crate) fn etag(value: &str) -> ETag {
    ETag::Strong(value.to_owned())
}

/// The stored `Expires`, when it is a date HTTP knows. Others go out as they came in.
pub(crate) fn expires(value: Option<&str>) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::HttpDate, value?).ok()
}

/// Sets the fields that the outputs of GET and HEAD have in common.
macro_rules! set_object_headers {
    ($output:expr, $info:expr, $extent:expr) => {{
        let info: &$crate::store::ObjectInfo = $info;
        let extent: &$crate::gateway::range::Extent = $extent;
        let attributes = &info.attributes;
        $output.accept_ranges = Some("bytes".to_owned());
        $output.cache_control = attributes.cache_control.clone();
        $output.content_disposition = attributes.content_disposition.clone();
        $output.content_encoding = attributes.content_encoding.clone();
        $output.content_language = attributes.content_language.clone();
        $output.content_length = i64::try_from(extent.length).ok();
        $output.content_range = extent.content_range();
        $output.content_type = Some(
            attributes
                .content_type
                .clone()
                .unwrap_or_else(|| $crate::gateway::headers::DEFAULT_CONTENT_TYPE.to_owned()),
        );
        $output.e_tag = Some($crate::gateway::headers::etag(&info.etag));
        $output.expires = $crate::gateway::headers::expires(attributes.expires.as_deref());
        $output.last_modified = Some(info.modified.into());
        $output.metadata = (!attributes.metadata.is_empty())
            .then(|| attributes.metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect());
        $output.version_id = info.version_id.clone();
        $output.website_redirect_location = attributes.website_redirect.clone();
    }};
}
pub(crate) use set_object_headers;

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(n, v)| (http::HeaderName::from_static(n), v.parse().unwrap())).collect()
    }

    #[test_case("aws-chunked" => None)]
    #[test_case("aws-chunked,gzip" => Some("gzip".into()))]
    #[test_case("gzip, AWS-Chunked" => Some("gzip".into()))]
    #[test_case("gzip" => Some("gzip".into()))]
    #[test_case("deflate, gzip" => Some("deflate, gzip".into()))]
    fn framing(value: &str) -> Option<String> {
        attributes(&headers(&[("content-encoding", value)]), None).unwrap().content_encoding
    }

    #[test_case("x-amz-server-side-encryption", "AES256" => "NotImplemented")]
    #[test_case("x-amz-storage-class", "GLACIER" => "InvalidStorageClass")]
    #[test_case("x-amz-website-redirect-location", "ftp://x" => "InvalidRedirectLocation")]
    #[test_case("x-amz-tagging", "a=1&a=2" => "InvalidTag")]
    fn never_ignored(name: &'static str, value: &str) -> String {
        attributes(&headers(&[(name, value)]), None).unwrap_err().code().as_str().to_owned()
    }

    #[test]
    fn tags_are_decoded() {
        let tags = tags_from_header("a=1&b+c=%C3%A4%26&d").unwrap();
        let want = [("a", "1"), ("b c", "ä&"), ("d", "")];
        assert!(tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(want));
        let many = (0..11).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join("&");
        assert!(tags_from_header(&many).is_err());
    }

    #[test]
    fn metadata_has_a_limit() {
        let map = |n: usize| Some([("k".to_owned(), "v".repeat(n))].into_iter().collect());
        assert!(attributes(&HeaderMap::new(), map(2047)).is_ok());
        assert!(attributes(&HeaderMap::new(), map(2048)).is_err());
    }
}
