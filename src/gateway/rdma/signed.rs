//! Which headers a request's signature covers.
//!
//! A token decides whose memory is read or written, so it must be covered; otherwise whoever sits
//! between client and gateway could put one in. The order in which the places of a signature are
//! looked at is that of s3s, so that what is judged here is what was verified.

use http::{HeaderMap, Uri, header};
use percent_encoding::percent_decode_str;

/// The set of signed headers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    /// Signature version 4: the names listed.
    Names(Vec<String>),
    /// Signature version 2 covers every `x-amz-*` header and few others.
    AllAmz,
    /// No signature was found.
    Nothing,
}

fn query_value(query: &str, name: &str) -> Option<String> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(key, _)| decode(key) == name)
        .map(|(_, value)| decode(value))
}

fn names(list: &str) -> Signed {
    Signed::Names(list.split(';').map(|n| n.trim().to_ascii_lowercase()).filter(|n| !n.is_empty()).collect())
}

impl Signed {
    /// Of an authenticated request.
    pub(crate) fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let query = uri.query().unwrap_or("");
        let authorization =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        if query_value(query, "Signature").is_some() || authorization.starts_with("AWS ") {
            return Self::AllAmz;
        }
        if query_value(query, "X-Amz-Signature").is_some() {
            return query_value(query, "X-Amz-SignedHeaders").map_or(Self::Nothing, |list| names(&list));
        }
        authorization
            .split([',', ' '])
            .find_map(|part| part.strip_prefix("SignedHeaders="))
            .map_or(Self::Nothing, names)
    }

    /// Whether the signature covers a header, given in lower case.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match self {
            Self::Names(names) => names.iter().any(|n| n == name),
            Self::AllAmz => name.starts_with("x-amz-"),
            Self::Nothing => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    const V4: &str = "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host;x-amz-date;x-amz-rdma-token, Signature=00";

    fn covers(uri: &str, authorization: Option<&str>, name: &str) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        Signed::of(&uri.parse().unwrap(), &headers).covers(name)
    }

    #[test_case("/b/k", Some(V4), "x-amz-rdma-token" => true)]
    #[test_case("/b/k", Some(V4), "x-cuobj-rdma-descr" => false)]
    #[test_case("/b/k", Some(&V4.replace(", ", ",")), "x-amz-rdma-token" => true; "no spaces")]
    #[test_case("/b/k?X-Amz-SignedHeaders=host%3Bx-amz-rdma-token&X-Amz-Signature=0", None, "x-amz-rdma-token" => true)]
    #[test_case("/b/k?X-Amz-SignedHeaders=host&X-Amz-Signature=0", None, "x-amz-rdma-token" => false)]
    #[test_case("/b/k?X-Amz-SignedHeaders=host&X-Amz-Signature=0", Some(V4), "x-amz-rdma-token" => false;
        "a presigned URL is not helped by a header that nobody verifies")]
    #[test_case("/b/k", Some("AWS AK:sig"), "x-amz-rdma-token" => true; "version 2")]
    #[test_case("/b/k", Some("AWS AK:sig"), "x-cuobj-rdma-descr" => false; "version 2, other header")]
    #[test_case("/b/k?AWSAccessKeyId=AK&Expires=1&Signature=x", Some(V4), "x-cuobj-rdma-descr" => false)]
    #[test_case("/b/k", None, "x-amz-rdma-token" => false; "anonymous")]
    fn coverage(uri: &str, authorization: Option<&str>, name: &str) -> bool {
        covers(uri, authorization, name)
    }
}
