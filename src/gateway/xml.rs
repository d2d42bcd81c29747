//! S3's XML documents as the bucket attributes keep them.

use s3s::xml::{Deserialize, Deserializer, Serialize, Serializer};
use s3s::{S3ErrorCode, S3Result};

use super::error::{internal, s3};

/// The document of a value.
///
/// # Errors
/// `InternalError`, which does not happen when writing to memory.
pub(crate) fn to_xml<T: Serialize>(value: &T) -> S3Result<Vec<u8>> {
    let mut document = Vec::new();
    value
        .serialize(&mut Serializer::new(&mut document))
        .map_err(|error| internal("cannot write a document", &error))?;
    Ok(document)
}

/// Reads a document.
///
/// # Errors
/// `MalformedXML`.
pub(crate) fn from_xml<'a, T: Deserialize<'a>>(document: &'a [u8]) -> S3Result<T> {
    let mut reader = Deserializer::new(document);
    let value = T::deserialize(&mut reader)
        .map_err(|error| s3(S3ErrorCode::MalformedXML, format!("the document cannot be read: {error}")))?;
    Ok(value)
}
