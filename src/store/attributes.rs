//! Object attributes as versitygw's posix backend keeps them: names and forms of the values.
//!
//! Read from versitygw's `backend/posix` and `backend/meta` (August 2026).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::time::SystemTime;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::fs::from_unix;
use super::types::{ChecksumType, Checksums, ObjectAttributes};

/// Attribute names, without the prefix `user.`.
pub(crate) mod name {
    pub(crate) const ETAG: &str = "etag";
    pub(crate) const CONTENT_TYPE: &str = "content-type";
    pub(crate) const CONTENT_ENCODING: &str = "content-encoding";
    pub(crate) const CONTENT_DISPOSITION: &str = "content-disposition";
    pub(crate) const CONTENT_LANGUAGE: &str = "content-language";
    pub(crate) const CACHE_CONTROL: &str = "cache-control";
    pub(crate) const EXPIRES: &str = "expires";
    pub(crate) const WEBSITE_REDIRECT: &str = "website-redirect-location";
    pub(crate) const METADATA: &str = "metadata";
    pub(crate) const OLD_METADATA: &str = "X-Amz-Meta.";
    pub(crate) const TAGS: &str = "X-Amz-Tagging";
    pub(crate) const CHECKSUMS: &str = "checksums";
    pub(crate) const VERSION_ID: &str = "version-id";
    pub(crate) const DELETE_MARKER: &str = "delete-marker";
    pub(crate) const RETENTION: &str = "object-retention";
    pub(crate) const LEGAL_HOLD: &str = "object-legal-hold";
    pub(crate) const MULTIPART: &str = "mp-metadata";
    pub(crate) const ACL: &str = "acl";
    pub(crate) const VERSIONING: &str = "versioning";
    pub(crate) const BUCKET_LOCK: &str = "bucket-lock";
    pub(crate) const UPLOAD_KEY: &str = "objname";
    pub(crate) const PART_CRC64NVME: &str = "part-crc64nvme";
    /// Ours: checksums of a part that its upload did not declare; versitygw would ask for them at completion
    /// if they were among `checksums`.
    pub(crate) const UNDECLARED_CHECKSUMS: &str = "vgwrdma.checksums";
    /// Ours: the file's identity when its ETag was stored.
    pub(crate) const STAMP: &str = "vgwrdma.stamp";
    /// Ours: the checksums of a multipart object's parts.
    pub(crate) const PART_CHECKSUMS: &str = "vgwrdma.part-checksums";
    /// Ours: the account that started an upload.
    pub(crate) const INITIATOR: &str = "vgwrdma.initiator";
    /// Ours: where the attributes are that do not fit beside the inode.
    pub(crate) const OVERFLOW: &str = "vgwrdma.overflow";
}

/// Attribute values by name.
pub(crate) type Raw = BTreeMap<String, Vec<u8>>;

/// All attributes that belong to the object itself; a directory that is an object no more loses them.
pub(crate) const OBJECT_NAMES: [&str; 19] = [
    name::ETAG,
    name::CONTENT_TYPE,
    name::CONTENT_ENCODING,
    name::CONTENT_DISPOSITION,
    name::CONTENT_LANGUAGE,
    name::CACHE_CONTROL,
    name::EXPIRES,
    name::WEBSITE_REDIRECT,
    name::METADATA,
    name::TAGS,
    name::CHECKSUMS,
    name::VERSION_ID,
    name::DELETE_MARKER,
    name::RETENTION,
    name::LEGAL_HOLD,
    name::MULTIPART,
    name::ACL,
    name::STAMP,
    name::PART_CHECKSUMS,
];

/// The attributes as they are stored. `upload_id` goes with the parts' ends.
pub(crate) fn encode(attributes: &ObjectAttributes, upload_id: Option<&str>) -> Raw {
    let mut raw = Raw::new();
    let mut put = |name: &str, value: Vec<u8>| raw.insert(name.to_owned(), value);
    if let Some(etag) = &attributes.etag {
        put(name::ETAG, format!("\"{etag}\"").into_bytes());
    }
    for (name, value) in text_attributes(attributes) {
        if let Some(value) = value.as_deref().filter(|v| !v.is_empty()) {
            put(name, value.as_bytes().to_vec());
        }
    }
    if !attributes.metadata.is_empty() {
        put(name::METADATA, to_json(&attributes.metadata));
    }
    if !attributes.tags.is_empty() {
        put(name::TAGS, to_json(&attributes.tags));
    }
    if let Some(checksums) = &attributes.checksums {
        put(name::CHECKSUMS, encode_checksums(checksums));
    }
    if !attributes.part_ends.is_empty() {
        put(name::MULTIPART, encode_parts(upload_id.unwrap_or_default(), &attributes.part_ends));
    }
    if !attributes.part_checksums.is_empty() {
        put(name::PART_CHECKSUMS, compressed(to_json(&attributes.part_checksums)));
    }
    if let Some(retention) = &attributes.retention {
        put(name::RETENTION, retention.clone());
    }
    if let Some(hold) = attributes.legal_hold {
        put(name::LEGAL_HOLD, vec![u8::from(hold)]);
    }
    if let Some(acl) = &attributes.acl {
        put(name::ACL, acl.clone());
    }
    raw
}

/// Reads stored attributes; what cannot be understood is left out.
pub(crate) fn decode(raw: &Raw) -> ObjectAttributes {
    let text = |name: &str| {
        let value = raw.get(name)?;
        let text = String::from_utf8_lossy(value).into_owned();
        (!text.is_empty()).then_some(text)
    };
    let map = |name: &str| raw.get(name).and_then(|v| serde_json::from_slice(v).ok()).unwrap_or_default();
    let mut metadata: BTreeMap<String, String> = map(name::METADATA);
    if !raw.contains_key(name::METADATA) {
        for (key, value) in raw {
            if let Some(key) = key.strip_prefix(name::OLD_METADATA) {
                metadata.insert(key.to_lowercase(), String::from_utf8_lossy(value).into_owned());
            }
        }
    }
    ObjectAttributes {
        etag: raw.get(name::ETAG).and_then(|v| decode_etag(v)),
        content_type: text(name::CONTENT_TYPE),
        content_encoding: text(name::CONTENT_ENCODING),
        content_disposition: text(name::CONTENT_DISPOSITION),
        content_language: text(name::CONTENT_LANGUAGE),
        cache_control: text(name::CACHE_CONTROL),
        expires: text(name::EXPIRES),
        website_redirect: text(name::WEBSITE_REDIRECT),
        metadata,
        tags: map(name::TAGS),
        checksums: raw
            .get(name::CHECKSUMS)
            .and_then(|v| decode_checksums(v))
            .filter(|c| !c.values.is_empty()),
        part_ends: raw
            .get(name::MULTIPART)
            .and_then(|v| decode_parts(v))
            .map(|m| m.parts)
            .unwrap_or_default(),
        part_checksums: raw
            .get(name::PART_CHECKSUMS)
            .and_then(|v| serde_json::from_slice(&decompressed(v)).ok())
            .unwrap_or_default(),
        retention: raw.get(name::RETENTION).cloned(),
        legal_hold: raw.get(name::LEGAL_HOLD).map(|v| v.first() == Some(&1)),
        acl: raw.get(name::ACL).cloned(),
    }
}

/// The text of the ETag attribute without its quotes.
pub(crate) fn decode_etag(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?.trim_matches('"');
    (!text.is_empty()).then(|| text.to_owned())
}

fn text_attributes(attributes: &ObjectAttributes) -> [(&'static str, &Option<String>); 7] {
    [
        (name::CONTENT_TYPE, &attributes.content_type),
        (name::CONTENT_ENCODING, &attributes.content_encoding),
        (name::CONTENT_DISPOSITION, &attributes.content_disposition),
        (name::CONTENT_LANGUAGE, &attributes.content_language),
        (name::CACHE_CONTROL, &attributes.cache_control),
        (name::EXPIRES, &attributes.expires),
        (name::WEBSITE_REDIRECT, &attributes.website_redirect),
    ]
}

/// JSON of a value that always has one.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Names of the checksum values in their JSON form.
const CHECKSUM_NAMES: [&str; 10] =
    ["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME", "SHA512", "MD5", "XXHASH64", "XXHASH3", "XXHASH128"];

const FULL_OBJECT: &str = "FULL_OBJECT";
const COMPOSITE: &str = "COMPOSITE";

pub(crate) fn encode_checksums(checksums: &Checksums) -> Vec<u8> {
    let mut object = serde_json::Map::new();
    object.insert("Algorithm".into(), checksums.algorithm.clone().into());
    let kind = match checksums.kind {
        ChecksumType::FullObject => FULL_OBJECT,
        ChecksumType::Composite => COMPOSITE,
    };
    object.insert("Type".into(), kind.into());
    for name in CHECKSUM_NAMES {
        object.insert(name.into(), checksums.values.get(name).cloned().into());
    }
    to_json(&object)
}

pub(crate) fn decode_checksums(value: &[u8]) -> Option<Checksums> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(value).ok()?;
    let text = |name: &str| object.get(name).and_then(|v| v.as_str()).filter(|v| !v.is_empty());
    let algorithm = text("Algorithm")?.to_uppercase();
    let kind =
        if text("Type") == Some(COMPOSITE) { ChecksumType::Composite } else { ChecksumType::FullObject };
    let values = CHECKSUM_NAMES.iter().filter_map(|n| Some(((*n).to_owned(), text(n)?.to_owned()))).collect();
    Some(Checksums { algorithm, kind, values })
}

/// What is kept of a multipart upload: its id and the cumulative ends of its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Multipart {
    #[serde(rename = "uploadId")]
    pub(crate) upload_id: String,
    pub(crate) parts: Vec<u64>,
}

fn encode_parts(upload_id: &str, part_ends: &[u64]) -> Vec<u8> {
    compressed(to_json(&Multipart { upload_id: upload_id.to_owned(), parts: part_ends.to_vec() }))
}

fn compressed(json: Vec<u8>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail; plain JSON is a form that readers accept as well.
    match encoder.write_all(&json).and_then(|()| encoder.finish()) {
        Ok(compressed) => compressed,
        Err(_) => json,
    }
}

/// What [`compressed`] was given, or a value that is not compressed as it is.
fn decompressed(value: &[u8]) -> Vec<u8> {
    /// 10,000 numbers of 20 digits, or base64 values of 44, and some.
    const LIMIT: u64 = 1 << 20;
    let mut json = Vec::new();
    if GzDecoder::new(value).take(LIMIT).read_to_end(&mut json).is_err() {
        json = value.to_vec();
    }
    json
}

pub(crate) fn decode_parts(value: &[u8]) -> Option<Multipart> {
    serde_json::from_slice(&decompressed(value)).ok()
}

/// The identity of a file's content as far as an inode tells: written beside the ETag, so that a
/// file which was edited in place is not served with the digest of what it held before.
pub(crate) fn stamp(stat: &Stat) -> Vec<u8> {
    format!("{} {} {}.{:09}", stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec).into_bytes()
}

/// Whether digests stored with `value` still hold for a file. A copy made by a tool that keeps
/// attributes has another inode number and is believed when its size is the same.
pub(crate) fn stamp_holds(value: &[u8], stat: &Stat) -> bool {
    let now = stamp(stat);
    if value == now {
        return true;
    }
    let same = |n| field(value, n).is_some() && field(value, n) == field(&now, n);
    same(1) && !same(0)
}

/// Whether `value` is of another file whose inode number a copy with its attributes happened to get: the
/// copy was `born` after the modification that the stamp knows, as no file edited in place was.
pub(crate) fn stamp_was_copied(value: &[u8], stat: &Stat, born: SystemTime) -> bool {
    let modified = field(value, 2).and_then(|time| std::str::from_utf8(time).ok()?.split_once('.'));
    let Some((seconds, nanos)) = modified else { return false };
    let (Ok(seconds), Ok(nanos)) = (seconds.parse(), nanos.parse()) else { return false };
    field(value, 1) == field(&stamp(stat), 1) && born > from_unix(seconds, nanos)
}

/// A field of a stamp.
fn field(stamp: &[u8], n: usize) -> Option<&[u8]> {
    stamp.split(|&b| b == b' ').nth(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ObjectAttributes {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        ObjectAttributes {
            etag: Some("d41d8cd98f00b204e9800998ecf8427e-3".into()),
            content_type: Some("text/plain".into()),
            content_encoding: Some("gzip".into()),
            content_disposition: Some("attachment".into()),
            content_language: Some("de".into()),
            cache_control: Some("no-cache".into()),
            expires: Some("Thu, 01 Dec 1994 16:00:00 GMT".into()),
            website_redirect: Some("/other".into()),
            metadata: map(&[("colour", "grün"), ("a", "<1>")]),
            tags: map(&[("k", "v")]),
            checksums: Some(Checksums {
                algorithm: "CRC32C".into(),
                kind: ChecksumType::Composite,
                values: map(&[("CRC32C", "AAAAAA==-3")]),
            }),
            part_ends: vec![5, 10, 12],
            part_checksums: ["AAAAAA==", "AAAAAQ==", "AAAAAg=="].map(str::to_owned).to_vec(),
            retention: Some(br#"{"Mode":"GOVERNANCE"}"#.to_vec()),
            legal_hold: Some(true),
            acl: Some(b"{}".to_vec()),
        }
    }

    #[test]
    fn reads_back() {
        assert_eq!(decode(&encode(&sample(), Some("id"))), sample());
        let empty = ObjectAttributes::default();
        assert!(encode(&empty, None).is_empty());
        assert_eq!(decode(&Raw::new()), empty);
    }

    #[test]
    fn forms() {
        let raw = encode(&sample(), Some("id"));
        assert_eq!(raw["etag"], b"\"d41d8cd98f00b204e9800998ecf8427e-3\"");
        assert_eq!(raw["object-legal-hold"], [1]);
        assert_eq!(&raw["mp-metadata"][..2], [0x1f, 0x8b], "gzip");
        let checksums: serde_json::Value = serde_json::from_slice(&raw["checksums"]).unwrap();
        assert_eq!(checksums["Algorithm"], "CRC32C");
        assert_eq!(checksums["Type"], "COMPOSITE");
        assert!(checksums["SHA1"].is_null());
        assert_eq!(decode_parts(&raw["mp-metadata"]).unwrap().upload_id, "id");
    }

    #[test]
    fn older_forms() {
        let mut raw = Raw::new();
        raw.insert("X-Amz-Meta.Colour".into(), b"red".to_vec());
        raw.insert("mp-metadata".into(), br#"{"uploadId":"x","parts":[7]}"#.to_vec());
        let attributes = decode(&raw);
        assert_eq!(attributes.metadata["colour"], "red");
        assert_eq!(attributes.part_ends, [7]);
        raw.insert("metadata".into(), br#"{"b":"2"}"#.to_vec());
        assert_eq!(decode(&raw).metadata.len(), 1, "the new form replaces the old one");
    }

    #[test]
    fn unreadable_values_are_left_out() {
        let mut raw = Raw::new();
        for name in ["metadata", "checksums", "mp-metadata", "X-Amz-Tagging"] {
            raw.insert(name.into(), b"\xff{".to_vec());
        }
        assert_eq!(decode(&raw), ObjectAttributes::default());
    }
}
