//! Which digests a request needs, and whether the body matches what the client states.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use s3s::dto;
use s3s::{S3ErrorCode, S3Result, TrailingHeaders};
use sha2::{Digest as _, Sha256};

use super::error::s3;
use crate::digest::{Algorithm, Digester, Digests};
use crate::store::{ChecksumType, Checksums, EtagMode};

/// Checksum headers of S3 that this gateway cannot compute.
const UNKNOWN: [&str; 5] = [
    "x-amz-checksum-sha512",
    "x-amz-checksum-md5",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash64",
    "x-amz-checksum-xxhash128",
];

/// Digests that a client states about a body, and what is to be computed for them.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// MD5 from `Content-MD5`.
    md5: Option<[u8; 16]>,
    /// Values from `x-amz-checksum-*` headers, raw.
    values: Vec<(Algorithm, Vec<u8>)>,
    /// Algorithms named without a value, or with the value in a trailer.
    announced: Vec<Algorithm>,
    /// Algorithms whose value must come in a trailer.
    trailing: Vec<Algorithm>,
    /// SHA-256 of the payload, when it is a digest that nothing else verifies.
    payload_sha256: Option<[u8; 32]>,
}

/// Headers named `x-amz-checksum-*` that carry a value.
fn header_name(algorithm: Algorithm) -> String {
    format!("x-amz-checksum-{}", algorithm.name().to_ascii_lowercase())
}

fn decode(name: &str, value: &str, width: usize) -> S3Result<Vec<u8>> {
    // No body has a checksum of another length.
    STANDARD
        .decode(value)
        .ok()
        .filter(|raw| raw.len() == width)
        .ok_or_else(|| s3(S3ErrorCode::BadDigest, format!("Value for {name} header is invalid.")))
}

impl Expected {
    /// Reads them from a request's headers.
    ///
    /// # Errors
    /// `InvalidDigest` and `InvalidRequest` for malformed values, `NotImplemented` for algorithms
    /// this gateway does not have.
    pub(crate) fn from_headers(headers: &HeaderMap) -> S3Result<Self> {
        let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap_or(""));
        let mut expected = Self::default();
        if let Some(value) = text("content-md5") {
            let raw = STANDARD.decode(value).ok().and_then(|raw| <[u8; 16]>::try_from(raw).ok());
            expected.md5 = Some(raw.ok_or_else(|| {
                s3(S3ErrorCode::InvalidDigest, "The Content-MD5 you specified is not valid.")
            })?);
        }
        if let Some(name) = UNKNOWN.iter().find(|name| headers.contains_key(**name)) {
            return Err(s3(S3ErrorCode::NotImplemented, format!("{name} is not implemented")));
        }
        for algorithm in Algorithm::ALL {
            let name = header_name(algorithm);
            if let Some(value) = text(&name) {
                expected.values.push((algorithm, decode(&name, value, algorithm.width())?));
            }
        }
        if expected.values.len() > 1 {
            return Err(s3(
                S3ErrorCode::InvalidRequest,
                "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
            ));
        }
        // SDKs name the algorithm by the first header, NVIDIA's and NIXL's clients by the second.
        for name in ["x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"] {
            if let Some(value) = text(name) {
                let algorithm = Algorithm::from_name(value).ok_or_else(|| {
                    s3(
                        S3ErrorCode::InvalidRequest,
                        format!("{name}: the algorithm {value:?} is not supported"),
                    )
                })?;
                expected.announced.push(algorithm);
            }
        }
        for value in headers.get_all("x-amz-trailer") {
            for name in value.to_str().unwrap_or("").split(',').map(str::trim) {
                let Some(suffix) =
                    name.to_ascii_lowercase().strip_prefix("x-amz-checksum-").map(str::to_owned)
                else {
                    continue;
                };
                let algorithm = Algorithm::from_name(&suffix).ok_or_else(|| {
                    s3(
                        S3ErrorCode::InvalidRequest,
                        "The value specified in the x-amz-trailer header is not supported",
                    )
                })?;
                expected.trailing.push(algorithm);
            }
        }
        Ok(expected)
    }

    /// Adds what a body-less RDMA request says of its data; the digests of an empty body say nothing.
    ///
    /// With `Content-Length: 0` SDKs hash the empty body by themselves. Anything else can only mean
    /// the bytes that move by RDMA, and is compared with them.
    pub(crate) fn for_rdma(mut self, headers: &HeaderMap) -> Self {
        if self.md5 == Some(md5_of_nothing()) {
            self.md5 = None;
        }
        let payload = headers.get("x-amz-content-sha256").and_then(|v| v.to_str().ok());
        if let Some(hash) =
            payload.and_then(|v| hex::decode(v).ok()).and_then(|v| <[u8; 32]>::try_from(v).ok())
        {
            let nothing: [u8; 32] = Sha256::digest([]).into();
            self.payload_sha256 = (hash != nothing).then_some(hash);
        }
        // A body that is not there has no trailers.
        self.trailing.clear();
        self
    }

    /// The algorithm the client chose, in whichever way.
    pub(crate) fn chosen(&self) -> Option<Algorithm> {
        let stated = self.values.first().map(|v| v.0);
        stated.or_else(|| self.trailing.first().copied()).or_else(|| self.announced.first().copied())
    }

    /// Computes everything that is to be stored or compared: CRC-64/NVME always, MD5 when the ETag
    /// is made of it or the client states one.
    pub(crate) fn digester(&self, etag: EtagMode) -> Digester {
        let md5 = etag == EtagMode::Md5 || self.md5.is_some();
        let mut algorithms = vec![Algorithm::Crc64Nvme];
        algorithms.extend(self.values.iter().map(|v| v.0));
        algorithms.extend(&self.trailing);
        algorithms.extend(&self.announced);
        algorithms.extend(self.payload_sha256.map(|_| Algorithm::Sha256));
        Digester::new(md5, algorithms)
    }

    /// Compares what the client stated with what was found.
    ///
    /// # Errors
    /// `BadDigest`, `XAmzContentSHA256Mismatch`, or `InvalidRequest` for a promised trailer that did
    /// not come.
    pub(crate) fn verify(&self, found: &Digests, trailers: Option<&TrailingHeaders>) -> S3Result<()> {
        if let Some(md5) = self.md5
            && found.md5 != Some(md5)
        {
            return Err(s3(
                S3ErrorCode::BadDigest,
                "The Content-MD5 you specified did not match what we received.",
            ));
        }
        if let Some(hash) = self.payload_sha256
            && found.get(Algorithm::Sha256) != Some(&hash)
        {
            return Err(super::error::s3_status(
                S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()),
                http::StatusCode::BAD_REQUEST,
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
            ));
        }
        for (algorithm, value) in &self.values {
            matches(*algorithm, value, found)?;
        }
        for algorithm in &self.trailing {
            let name = header_name(*algorithm);
            let value = trailers
                .and_then(|t| t.read(|map| map.get(&name).and_then(|v| v.to_str().ok()).map(str::to_owned)))
                .flatten()
                .ok_or_else(|| s3(S3ErrorCode::InvalidRequest, format!("the trailer {name} is missing")))?;
            matches(*algorithm, &decode(&name, &value, algorithm.width())?, found)?;
        }
        Ok(())
    }
}

/// What is stored with an object or part: the client's algorithm, and CRC-64/NVME always.
pub(crate) fn stored(chosen: Option<Algorithm>, found: &Digests) -> Checksums {
    let mut values = std::collections::BTreeMap::new();
    let chosen = chosen.unwrap_or(Algorithm::Crc64Nvme);
    for algorithm in [chosen, Algorithm::Crc64Nvme] {
        if let Some(value) = found.base64(algorithm) {
            values.insert(algorithm.name().to_owned(), value);
        }
    }
    Checksums { algorithm: chosen.name().to_owned(), kind: ChecksumType::FullObject, values }
}

fn matches(algorithm: Algorithm, stated: &[u8], found: &Digests) -> S3Result<()> {
    if found.get(algorithm) == Some(stated) {
        return Ok(());
    }
    let name = algorithm.name();
    Err(s3(
        S3ErrorCode::BadDigest,
        format!("The {name} you specified did not match the calculated checksum."),
    ))
}

fn md5_of_nothing() -> [u8; 16] {
    md5::Md5::digest([]).into()
}

/// The ETag of an object or part uploaded in one piece.
pub(crate) fn etag(mode: EtagMode, found: &Digests) -> String {
    let checksum = || found.base64(Algorithm::Crc64Nvme).map(|value| format!("CRC64NVME-{value}"));
    match mode {
        EtagMode::Md5 => found.md5_hex().or_else(checksum),
        EtagMode::Checksum => checksum().or_else(|| found.md5_hex()),
    }
    .unwrap_or_default()
}

/// Checksum values by algorithm, as s3s's types want them.
pub(crate) fn value(checksums: Option<&Checksums>, algorithm: Algorithm) -> Option<String> {
    checksums?.values.get(algorithm.name()).cloned()
}

/// Value for `x-amz-checksum-type`.
pub(crate) fn kind(kind: ChecksumType) -> dto::ChecksumType {
    dto::ChecksumType::from_static(match kind {
        ChecksumType::FullObject => dto::ChecksumType::FULL_OBJECT,
        ChecksumType::Composite => dto::ChecksumType::COMPOSITE,
    })
}

/// Sets the five checksum fields of one of s3s's outputs, and the type when it has one.
macro_rules! set_checksums {
    ($output:expr, $checksums:expr) => {{
        use $crate::digest::Algorithm as A;
        use $crate::gateway::checksum::value;
        let checksums: Option<&$crate::store::Checksums> = $checksums;
        $output.checksum_crc32 = value(checksums, A::Crc32);
        $output.checksum_crc32c = value(checksums, A::Crc32c);
        $output.checksum_crc64nvme = value(checksums, A::Crc64Nvme);
        $output.checksum_sha1 = value(checksums, A::Sha1);
        $output.checksum_sha256 = value(checksums, A::Sha256);
    }};
}
pub(crate) use set_checksums;

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(n, v)| (http::HeaderName::from_static(n), v.parse().unwrap())).collect()
    }

    fn run(list: &[(&'static str, &str)], rdma: bool, data: &[u8]) -> Result<(), String> {
        let headers = headers(list);
        let name = |e: s3s::S3Error| e.code().as_str().to_owned();
        let mut expected = Expected::from_headers(&headers).map_err(name)?;
        if rdma {
            expected = expected.for_rdma(&headers);
        }
        let mut digester = expected.digester(EtagMode::Md5);
        digester.update(data);
        expected.verify(&digester.finish(), None).map_err(name)
    }

    #[test_case(&[], false => Ok(()))]
    #[test_case(&[("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")], false => Ok(()))]
    #[test_case(&[("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==")], false => Err("BadDigest".into()))]
    #[test_case(&[("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==")], true => Ok(()); "MD5 of nothing beside RDMA")]
    #[test_case(&[("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")], true => Ok(()); "real MD5 beside RDMA")]
    #[test_case(&[("content-md5", "rL0Y20zC+Fzt72VPzMSk2A==")], true => Err("BadDigest".into()))]
    #[test_case(&[("content-md5", "short")], false => Err("InvalidDigest".into()))]
    #[test_case(&[("x-amz-checksum-crc32", "y/Q5Jg==")], false => Ok(()))]
    #[test_case(&[("x-amz-checksum-crc32", "y/Q5Jw==")], false => Err("BadDigest".into()))]
    #[test_case(&[("x-amz-checksum-crc32", "y/Q5")], false => Err("BadDigest".into()))]
    #[test_case(&[("x-amz-checksum-crc64nvme", "rosUhgp5mIg=")], true => Ok(()))]
    #[test_case(&[("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=")], false
        => Err("InvalidRequest".into()); "two algorithms")]
    #[test_case(&[("x-amz-checksum-xxhash3", "AAAA")], false => Err("NotImplemented".into()))]
    #[test_case(&[("x-amz-sdk-checksum-algorithm", "MD4")], false => Err("InvalidRequest".into()))]
    #[test_case(&[("x-amz-trailer", "x-amz-checksum-crc32")], false => Err("InvalidRequest".into()); "trailer missing")]
    #[test_case(&[("x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")], true
        => Ok(()); "hash of nothing beside RDMA")]
    #[test_case(&[("x-amz-content-sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225")], true
        => Ok(()); "real hash beside RDMA")]
    #[test_case(&[("x-amz-content-sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb226")], true
        => Err("XAmzContentSHA256Mismatch".into()))]
    #[test_case(&[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")], true => Ok(()))]
    fn nine_digits(list: &[(&'static str, &str)], rdma: bool) -> Result<(), String> {
        run(list, rdma, b"123456789")
    }

    #[test]
    fn crc64nvme_is_always_stored_beside_the_clients_choice() {
        let expected = Expected::from_headers(&headers(&[("x-amz-checksum-crc32", "y/Q5Jg==")])).unwrap();
        let mut digester = expected.digester(EtagMode::Checksum);
        digester.update(b"123456789");
        let found = digester.finish();
        assert!(found.md5.is_none());
        let stored = stored(expected.chosen(), &found);
        assert_eq!(stored.algorithm, "CRC32");
        assert_eq!(stored.values.keys().collect::<Vec<_>>(), ["CRC32", "CRC64NVME"]);
        assert_eq!(etag(EtagMode::Checksum, &found), "CRC64NVME-rosUhgp5mIg=");
    }
}
