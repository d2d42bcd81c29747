//! The fields of a form upload, as the headers that a PUT would have.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::Tagging;
use s3s::{S3ErrorCode, S3Result};

use super::error::s3;
use super::xml::from_xml;

/// Names in lower case and values of the fields before the file, in a request's extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormFields(pub(crate) Vec<(String, String)>);

/// Fields that are headers under their own names, beside those that start with `x-amz-`.
const HEADERS: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
];

/// Fields of the signature: they are no part of the object.
const SIGNATURE: [&str; 5] =
    ["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-security-token", "x-amz-signature"];

impl FormFields {
    /// The headers.
    ///
    /// # Errors
    /// `MalformedXML` for tags that are no document of tags, `InvalidArgument` for a value that no
    /// header can have.
    pub(crate) fn headers(&self) -> S3Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (field, text) in &self.0 {
            let (name, value) = match field.as_str() {
                "acl" => ("x-amz-acl", text.clone()),
                "tagging" => ("x-amz-tagging", encoded_tags(text)?),
                name if SIGNATURE.contains(&name) => continue,
                name if HEADERS.contains(&name) || name.starts_with("x-amz-") => (name, text.clone()),
                _ => continue,
            };
            let invalid = || s3(S3ErrorCode::InvalidArgument, format!("the field {field} is invalid"));
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
            headers.insert(HeaderName::try_from(name).map_err(|_| invalid())?, value);
        }
        Ok(headers)
    }
}

/// `k1=v1&k2=v2` of a document of tags.
fn encoded_tags(document: &str) -> S3Result<String> {
    let tagging: Tagging = from_xml(document.as_bytes())?;
    let encode =
        |text: Option<String>| utf8_percent_encode(&text.unwrap_or_default(), NON_ALPHANUMERIC).to_string();
    let pairs: Vec<String> =
        tagging.tag_set.into_iter().map(|t| format!("{}={}", encode(t.key), encode(t.value))).collect();
    Ok(pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_put_would_have_them() {
        let tags = "<Tagging><TagSet><Tag><Key>a b</Key><Value>&amp;</Value></Tag></TagSet></Tagging>";
        let fields = [("key", "k"), ("content-type", "text/plain"), ("x-amz-meta-a", "1"), ("tagging", tags)];
        let signature = [("policy", "p"), ("x-amz-date", "d"), ("acl", "private")];
        let fields = fields.iter().chain(&signature).map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let headers = FormFields(fields.collect()).headers().unwrap();
        assert_eq!(headers.len(), 4);
        assert_eq!(headers["content-type"], "text/plain");
        assert_eq!(headers["x-amz-tagging"], "a%20b=%26");
        assert_eq!(headers["x-amz-acl"], "private");
        let wrong = FormFields(vec![("tagging".into(), "a=b".into())]);
        assert_eq!(*wrong.headers().unwrap_err().code(), S3ErrorCode::MalformedXML);
    }
}
