//! Signature version 4 of test requests, with every liberty a bad client takes.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use http::{HeaderMap, HeaderName, HeaderValue};

/// All but RFC 3986's unreserved characters.
const ESCAPED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Who signs, and for which region.
#[derive(Clone, Debug)]
pub(crate) struct Signer {
    pub(crate) access: String,
    pub(crate) secret: String,
    pub(crate) region: String,
    /// Added to the time of signing, in seconds.
    pub(crate) skew: i64,
}

impl Signer {
    fn time(&self) -> SystemTime {
        let skew = Duration::from_secs(self.skew.unsigned_abs());
        if self.skew < 0 { SystemTime::now() - skew } else { SystemTime::now() + skew }
    }

    fn identity(&self) -> aws_smithy_runtime_api::client::identity::Identity {
        Credentials::new(&self.access, &self.secret, None, None, "tests").into()
    }

    fn settings() -> SigningSettings {
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings
    }

    /// Adds the signature to the headers; `payload` is what `x-amz-content-sha256` says. Returns the
    /// signature.
    pub(crate) fn sign(&self, method: &str, url: &str, headers: &mut HeaderMap, payload: &str) -> String {
        let identity = self.identity();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("s3")
            .time(self.time())
            .settings(Self::settings())
            .build()
            .unwrap()
            .into();
        let pairs: Vec<(String, String)> =
            headers.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap_or("").to_owned())).collect();
        let pairs = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let body = SignableBody::Precomputed(payload.to_owned());
        let request = SignableRequest::new(method, url, pairs, body).unwrap();
        let (instructions, signature) = sign(request, &parameters).unwrap().into_parts();
        for (name, value) in instructions.headers() {
            headers.insert(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        signature
    }

    /// A presigned URL that covers `headers`.
    pub(crate) fn presign(&self, method: &str, url: &str, headers: &HeaderMap, valid: Duration) -> String {
        let identity = self.identity();
        let mut settings = Self::settings();
        settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(valid);
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("s3")
            .time(self.time())
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let pairs = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap()));
        let request = SignableRequest::new(method, url, pairs, SignableBody::UnsignedPayload).unwrap();
        let (instructions, _) = sign(request, &parameters).unwrap().into_parts();
        let query: Vec<String> = instructions
            .params()
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encoding::utf8_percent_encode(value, ESCAPED)))
            .collect();
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}{}", query.join("&"))
    }

    /// Signs the chunks of a `STREAMING-AWS4-HMAC-SHA256-PAYLOAD` body, the last empty one included.
    pub(crate) fn chunked(&self, seed: &str, amz_date: &str, chunks: &[&[u8]]) -> Vec<u8> {
        use sha2::{Digest as _, Sha256};
        let time = self.time();
        let key = v4::generate_signing_key(&self.secret, time, &self.region, "s3");
        let day = &amz_date[..8];
        let empty = hex::encode(Sha256::digest([]));
        let mut previous = seed.to_owned();
        let mut body = Vec::new();
        for chunk in chunks.iter().copied().chain([&[][..]]) {
            let text = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{amz_date}\n{day}/{}/s3/aws4_request\n{previous}\n{empty}\n{}",
                self.region,
                hex::encode(Sha256::digest(chunk))
            );
            previous = v4::calculate_signature(&key, text.as_bytes());
            body.extend(format!("{:x};chunk-signature={previous}\r\n", chunk.len()).bytes());
            body.extend(chunk);
            body.extend(b"\r\n");
        }
        body
    }
}
