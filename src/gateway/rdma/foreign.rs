//! Tokens and control requests of RDMA transports that this gateway does not speak.
//!
//! Their clients fall back to bodies over HTTP when they are told so in their own terms: elbencho's
//! RC shim (`rc:…` tokens, `/.s3rdma-rc/…`) and AMD's hipObject (tokens of 88 hexadecimal digits,
//! `/.hipobj-rc/…`, `x-amz-rdma-protocol-status`).

use http::{HeaderName, HeaderValue, Method};
use s3s::S3Error;

use super::reply;
use crate::gateway::error::with_headers;

/// Where hipObject's clients look for whether to speak something else.
const STATUS: HeaderName = HeaderName::from_static("x-amz-rdma-protocol-status");

/// Paths of control requests; no bucket can have such a name.
const CONTROL: [&str; 2] = ["/.s3rdma-rc/", "/.hipobj-rc/"];

/// Whether a token is of another transport: known not to be a descriptor, not merely malformed.
pub(crate) fn is_foreign(token: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let mut fields = token.split(':');
    let base = fields.next().unwrap_or_default();
    if base == "rc" {
        return true;
    }
    // hipObject's first version appends address and size.
    let tail: Vec<&str> = fields.collect();
    base.len() == 88
        && digits(base)
        && matches!(tail.len(), 0 | 2)
        && tail.iter().all(|field| (1..=16).contains(&field.len()) && digits(field))
}

/// The answer to what a client of another transport wants to be stored or set up.
pub(crate) fn declined(why: &str) -> S3Error {
    let unsupported = [(STATUS, HeaderValue::from_static("unsupported"))];
    with_headers(reply::put_declined(why), unsupported.into_iter().collect())
}

/// The answer to a control request, when it is one.
pub(crate) fn control(method: &Method, path: &str) -> Option<S3Error> {
    let is_control = *method == Method::POST && CONTROL.iter().any(|prefix| path.starts_with(prefix));
    is_control.then(|| declined("this gateway does not speak that RDMA transport"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    const HIP: &str = "00040302010000000000000000\
                       0000ffff0a0000010807060518171615141312112827262524232221033231";

    #[test_case("rc:00112233445566778899aabbccddeeff:1000:100:1" => true)]
    #[test_case(HIP => true)]
    #[test_case(&format!("{HIP}:7f00:1000") => true)]
    #[test_case(&format!("{HIP}:7f00") => false; "half a suffix")]
    #[test_case(&format!("{HIP}:7f00:x") => false)]
    #[test_case("0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10" => false)]
    #[test_case("rc" => true)]
    #[test_case("" => false)]
    fn foreign(token: &str) -> bool {
        is_foreign(token)
    }

    #[test_case(Method::POST, "/.s3rdma-rc/connect" => true)]
    #[test_case(Method::POST, "/.hipobj-rc/prepare" => true)]
    #[test_case(Method::GET, "/.hipobj-rc/prepare" => false)]
    #[test_case(Method::POST, "/bucket/.hipobj-rc/prepare" => false)]
    fn control_requests(method: Method, path: &str) -> bool {
        control(&method, path).is_some()
    }
}
