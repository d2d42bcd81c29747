//! Signature version 4, by the `aws-sigv4` crate, with an unsigned payload.
//!
//! The payload of an RDMA request is not in its body, so the signature covers the headers, the
//! token among them, and `x-amz-content-sha256: UNSIGNED-PAYLOAD` stands for the body.

use std::fmt;
use std::time::SystemTime;

use aws_credential_types::Credentials as AwsCredentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use http::{HeaderMap, HeaderValue, Method};

use super::{Error, Result};

/// Who signs. [`Debug`](fmt::Debug) shows the access key only.
#[derive(Clone)]
pub struct Credentials {
    access_key: String,
    aws: AwsCredentials,
}

impl Credentials {
    /// An access key and its secret key.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self::with_session_token(access_key, secret_key, None)
    }

    /// Temporary credentials, with the token that goes with them.
    pub fn with_session_token(
        access_key: impl Into<String>,
        secret_key: impl Into<String>,
        session_token: Option<String>,
    ) -> Self {
        let access_key = access_key.into();
        let aws = AwsCredentials::new(access_key.clone(), secret_key, session_token, None, "vgwrdma");
        Self { access_key, aws }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Adds the signature to `headers`, all of which it covers except `user-agent`.
///
/// `target` is path and query as they go out; `headers` must hold `host`.
pub(crate) fn sign_request(
    credentials: &Credentials,
    region: &str,
    now: SystemTime,
    method: &Method,
    url: &str,
    headers: &mut HeaderMap,
) -> Result<()> {
    let failed = |reason: String| Error::Sign { reason };
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    let identity = credentials.aws.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("s3")
        .time(now)
        .settings(settings)
        .build()
        .map_err(|e| failed(e.to_string()))?
        .into();
    let instructions = {
        let mut pairs = Vec::with_capacity(headers.len());
        for (name, value) in headers.iter() {
            let text = value.to_str().map_err(|_| failed(format!("header {name} is not printable text")))?;
            pairs.push((name.as_str(), text));
        }
        let signable =
            SignableRequest::new(method.as_str(), url, pairs.into_iter(), SignableBody::UnsignedPayload)
                .map_err(|e| failed(e.to_string()))?;
        sign(signable, &parameters).map_err(|e| failed(e.to_string()))?.into_parts().0
    };
    for (name, text) in instructions.headers() {
        let mut value = HeaderValue::from_str(text).map_err(|e| failed(e.to_string()))?;
        value.set_sensitive(name == "authorization" || name == "x-amz-security-token");
        let name =
            http::header::HeaderName::from_bytes(name.as_bytes()).map_err(|e| failed(e.to_string()))?;
        headers.insert(name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn signed(extra: &[(&'static str, &str)]) -> HeaderMap {
        let credentials = Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("gateway:7070"));
        for (name, value) in extra {
            headers.insert(*name, value.parse().unwrap());
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        sign_request(
            &credentials,
            "us-east-1",
            now,
            &Method::PUT,
            "http://gateway:7070/bucket/a%20b?partNumber=1",
            &mut headers,
        )
        .unwrap();
        headers
    }

    #[test]
    fn the_token_is_among_the_signed_headers() {
        let headers = signed(&[("x-amz-rdma-token", "abc"), ("content-length", "0")]);
        let authorization = headers["authorization"].to_str().unwrap();
        let names = authorization.split("SignedHeaders=").nth(1).unwrap().split(',').next().unwrap();
        assert_eq!(names, "content-length;host;x-amz-content-sha256;x-amz-date;x-amz-rdma-token");
        assert_eq!(headers["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
        assert_eq!(headers["x-amz-date"], "20231114T221320Z");
        assert!(headers["authorization"].is_sensitive());
    }

    /// The signature recomputed by the published algorithm from its canonical request.
    #[test]
    fn the_signature_is_that_of_the_canonical_request() {
        use sha2::{Digest as _, Sha256};
        fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
            let mut block = [0u8; 64];
            block[..key.len()].copy_from_slice(key);
            let pad = |byte: u8| block.map(|b| b ^ byte);
            let inner = Sha256::new().chain_update(pad(0x36)).chain_update(data).finalize();
            Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
        }
        let headers = signed(&[]);
        let canonical = "PUT\n/bucket/a%20b\npartNumber=1\nhost:gateway:7070\n\
             x-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:20231114T221320Z\n\n\
             host;x-amz-content-sha256;x-amz-date\nUNSIGNED-PAYLOAD";
        let scope = "20231114/us-east-1/s3/aws4_request";
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n20231114T221320Z\n{scope}\n{}",
            hex::encode(Sha256::digest(canonical.as_bytes()))
        );
        let mut key = hmac(b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", b"20231114");
        for part in ["us-east-1", "s3", "aws4_request"] {
            key = hmac(&key, part.as_bytes());
        }
        let expected = hex::encode(hmac(&key, to_sign.as_bytes()));
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(authorization.ends_with(&format!("Signature={expected}")), "{authorization}");
    }

    #[test]
    fn debug_hides_the_secret() {
        let shown = format!("{:?}", Credentials::new("AKID", "hush"));
        assert!(shown.contains("AKID") && !shown.contains("hush"), "{shown}");
    }
}
