//! The plain S3 requests that a transfer needs around it.

use http::{HeaderName, HeaderValue, Method};

use super::request::Call;
use super::{Client, Error, PutOptions, Result};
use crate::digest::Algorithm;

/// What HEAD tells of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Size in bytes.
    pub size: u64,
    /// `ETag`, as sent, with its quotes.
    pub etag: Option<String>,
    /// Checksums of the whole object, base64.
    pub checksums: Vec<(Algorithm, String)>,
}

impl Client {
    /// Makes the bucket unless it is there. True when it was made.
    ///
    /// # Errors
    /// The S3 error of HeadBucket (other than 404) or CreateBucket.
    pub async fn ensure_bucket(&self, bucket: &str) -> Result<bool> {
        match self.plain(|| Call::new(Method::HEAD, bucket, None)).await {
            Ok(()) => return Ok(false),
            Err(Error::S3 { status, .. }) if status == http::StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
        match self.plain(|| Call::new(Method::PUT, bucket, None)).await {
            Ok(()) => Ok(true),
            // Someone else made it between the two requests.
            Err(error) if error.s3_code() == Some("BucketAlreadyOwnedByYou") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Size, ETag and stored checksums of an object.
    ///
    /// # Errors
    /// The S3 error; 404 when there is no such object.
    pub async fn head_object(&self, bucket: &str, key: &str) -> Result<ObjectInfo> {
        let call = || Call::new(Method::HEAD, bucket, Some(key)).header("x-amz-checksum-mode", "ENABLED");
        let reply = self.execute_until_done(call).await?;
        let info = ObjectInfo {
            size: reply.content_length().unwrap_or(0),
            etag: reply.header("etag").map(str::to_owned),
            checksums: stored_checksums(reply.headers()),
        };
        reply.drain().await?;
        Ok(info)
    }

    /// Deletes an object; that it was not there is no error.
    ///
    /// # Errors
    /// The S3 error.
    pub async fn delete_object(&self, bucket: &str, key: &str) -> Result<()> {
        self.plain(|| Call::new(Method::DELETE, bucket, Some(key))).await
    }

    /// Sends a request without a body whose answer holds nothing of interest.
    async fn plain<'a>(&self, call: impl Fn() -> Call<'a>) -> Result<()> {
        self.execute_until_done(|| Ok(call())).await?.drain().await
    }
}

/// The checksums of the whole object in a reply; those of parts combined (`…-N`) are left out.
pub(crate) fn stored_checksums(headers: &http::HeaderMap) -> Vec<(Algorithm, String)> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(|v| v.trim().to_owned());
    if text("x-amz-checksum-type").is_some_and(|kind| kind.eq_ignore_ascii_case("COMPOSITE")) {
        return Vec::new();
    }
    Algorithm::ALL
        .into_iter()
        .filter_map(|algorithm| {
            let value = text(&checksum_header(algorithm))?;
            (!value.contains('-')).then_some((algorithm, value))
        })
        .collect()
}

/// `x-amz-checksum-crc64nvme` and its relatives.
pub(crate) fn checksum_header(algorithm: Algorithm) -> String {
    format!("x-amz-checksum-{}", algorithm.name().to_ascii_lowercase())
}

/// The call with the checksum that the options name.
pub(crate) fn with_checksum<'a>(call: Call<'a>, options: &PutOptions) -> Result<Call<'a>> {
    let Some((algorithm, value)) = &options.checksum else { return Ok(call) };
    let name = HeaderName::try_from(checksum_header(*algorithm))
        .map_err(|e| Error::Invalid { what: e.to_string() })?;
    let value = HeaderValue::from_str(value)
        .map_err(|_| Error::Invalid { what: "the checksum is not base64".to_owned() })?;
    Ok(call.headers([(name, value)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    #[test]
    fn checksums_of_parts_are_not_those_of_the_object() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=".parse().unwrap());
        headers.insert("x-amz-checksum-crc32", "AAAAAA==-3".parse().unwrap());
        assert_eq!(stored_checksums(&headers), [(Algorithm::Crc64Nvme, "AAAAAAAAAAA=".to_owned())]);
        headers.insert("x-amz-checksum-type", "COMPOSITE".parse().unwrap());
        assert!(stored_checksums(&headers).is_empty());
    }
}
