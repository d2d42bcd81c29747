//! The rules by which a reply confirms, declines or breaks an RDMA request.
//!
//! A transfer counts only when the reply header equals the HTTP status and the byte count equals
//! what was asked for: a server that ignores the token answers 200 as well, and has then stored
//! an empty object or left the client's memory as it was.

use std::fmt;

use http::{HeaderMap, StatusCode};

use super::headers::{RDMA_BYTES_TRANSFERRED, RDMA_REPLY};

/// Which rule a reply broke.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breach {
    /// The reply header is absent from a success.
    NotConfirmed {
        /// True for uploads, where an empty object may now be stored.
        upload: bool,
    },
    /// The reply header is not a decimal number.
    ReplySyntax(String),
    /// The reply header differs from the HTTP status.
    ReplyMismatch {
        /// Value of the reply header.
        reply: u16,
        /// The HTTP status.
        status: u16,
    },
    /// The byte count is absent.
    NoByteCount,
    /// The byte count is not a decimal number.
    ByteCountSyntax(String),
    /// Another number of bytes moved than was asked for.
    ByteCount {
        /// What the gateway says.
        transferred: u64,
        /// What was asked for.
        expected: u64,
    },
    /// More bytes moved than the window holds.
    Overrun {
        /// What the gateway says.
        transferred: u64,
        /// Size of the window.
        window: u64,
    },
    /// A ranged GET was not answered with that range.
    Range {
        /// `Content-Range`, or a note that there was none.
        answered: String,
        /// The range asked for.
        asked: String,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfirmed { upload: true } => write!(
                f,
                "the gateway did not confirm the RDMA transfer (no {RDMA_REPLY} header): it ignored the token, and may have stored an empty object"
            ),
            Self::NotConfirmed { upload: false } => write!(
                f,
                "the gateway did not confirm the RDMA transfer (no {RDMA_REPLY} header): it ignored the token"
            ),
            Self::ReplySyntax(value) => write!(f, "{RDMA_REPLY} is {value:?}, not a number"),
            Self::ReplyMismatch { reply, status } => {
                write!(f, "{RDMA_REPLY} is {reply} but the HTTP status is {status}")
            }
            Self::NoByteCount => write!(f, "the reply has no {RDMA_BYTES_TRANSFERRED} header"),
            Self::ByteCountSyntax(value) => {
                write!(f, "{RDMA_BYTES_TRANSFERRED} is {value:?}, not a number")
            }
            Self::ByteCount { transferred, expected } => {
                write!(f, "{transferred} bytes were transferred by RDMA, expected {expected}")
            }
            Self::Overrun { transferred, window } => {
                write!(f, "{transferred} bytes are said to be in a window of {window}")
            }
            Self::Range { answered, asked } => {
                write!(f, "the range {asked} was answered with {answered}")
            }
        }
    }
}

/// What a reply without an S3 error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bytes moved by RDMA.
    Done {
        /// How many.
        bytes: u64,
    },
    /// The gateway does not use RDMA here; a GET's body holds the object instead.
    Declined,
}

/// Judges a reply by its status and headers.
///
/// `upload` tells a PUT from a GET. HTTP 501 and a reply of 501 both decline. Statuses of 300 and
/// above other than 501 are the caller's: they carry an S3 error.
///
/// # Errors
/// The rule that was broken.
pub fn judge(status: StatusCode, headers: &HeaderMap, upload: bool) -> Result<Verdict, Breach> {
    let text =
        |name: &str| headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).trim().to_owned());
    let reply = match text(RDMA_REPLY) {
        Some(value) => match decimal(&value).and_then(|n| u16::try_from(n).ok()) {
            Some(number) => Some(number),
            None => return Err(Breach::ReplySyntax(value)),
        },
        None => None,
    };
    if status == StatusCode::NOT_IMPLEMENTED || reply == Some(501) {
        return Ok(Verdict::Declined);
    }
    let Some(reply) = reply else {
        return Err(Breach::NotConfirmed { upload });
    };
    let bytes = match text(RDMA_BYTES_TRANSFERRED) {
        Some(value) => match decimal(&value) {
            Some(bytes) => Some(bytes),
            None => return Err(Breach::ByteCountSyntax(value)),
        },
        None => None,
    };
    // Some servers answer an empty object with 204 beside HTTP 200.
    let empty = reply == 204 && bytes.unwrap_or(0) == 0;
    if reply != status.as_u16() && !empty {
        return Err(Breach::ReplyMismatch { reply, status: status.as_u16() });
    }
    match bytes {
        Some(bytes) => Ok(Verdict::Done { bytes }),
        None => Err(Breach::NoByteCount),
    }
}

/// Reads a plain decimal number: digits only, no sign, no space.
fn decimal(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// `Content-Range: bytes first-last/total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// First byte.
    pub first: u64,
    /// Last byte, included.
    pub last: u64,
    /// Size of the whole object, when the server tells it.
    pub total: Option<u64>,
}

impl ContentRange {
    /// Reads the header's value; `None` when it is not of that form.
    pub fn parse(value: &str) -> Option<Self> {
        let (range, total) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last) = (decimal(first)?, decimal(last)?);
        let total = if total == "*" { None } else { Some(decimal(total)?) };
        (last >= first && total.is_none_or(|total| last < total)).then_some(Self { first, last, total })
    }

    /// Bytes in the range.
    pub fn length(&self) -> u64 {
        self.last - self.first + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn headers(reply: Option<&str>, bytes: Option<&str>) -> HeaderMap {
        let mut map = HeaderMap::new();
        if let Some(reply) = reply {
            map.insert(RDMA_REPLY, reply.parse().unwrap());
        }
        if let Some(bytes) = bytes {
            map.insert(RDMA_BYTES_TRANSFERRED, bytes.parse().unwrap());
        }
        map
    }

    #[test_case(200, Some("200"), Some("8") => Ok(Verdict::Done { bytes: 8 }))]
    #[test_case(206, Some("206"), Some("8") => Ok(Verdict::Done { bytes: 8 }))]
    #[test_case(200, Some("204"), Some("0") => Ok(Verdict::Done { bytes: 0 }))]
    #[test_case(200, Some("501"), None => Ok(Verdict::Declined))]
    #[test_case(501, None, None => Ok(Verdict::Declined))]
    #[test_case(501, Some("501"), None => Ok(Verdict::Declined))]
    #[test_case(200, None, Some("8") => Err(Breach::NotConfirmed { upload: true }))]
    #[test_case(206, Some("200"), Some("8") => Err(Breach::ReplyMismatch { reply: 200, status: 206 }))]
    #[test_case(200, Some("204"), Some("8") => Err(Breach::ReplyMismatch { reply: 204, status: 200 }))]
    #[test_case(200, Some("ok"), Some("8") => Err(Breach::ReplySyntax("ok".into())))]
    #[test_case(200, Some("+200"), Some("8") => Err(Breach::ReplySyntax("+200".into())))]
    #[test_case(200, Some("200"), None => Err(Breach::NoByteCount))]
    #[test_case(200, Some("200"), Some("0x8") => Err(Breach::ByteCountSyntax("0x8".into())))]
    fn verdicts(status: u16, reply: Option<&str>, bytes: Option<&str>) -> Result<Verdict, Breach> {
        judge(StatusCode::from_u16(status).unwrap(), &headers(reply, bytes), true)
    }

    #[test_case("bytes 0-9/100" => Some((0, 9, Some(100))))]
    #[test_case("bytes 5-5/*" => Some((5, 5, None)))]
    #[test_case("bytes 9-0/100" => None)]
    #[test_case("bytes 0-100/100" => None)]
    #[test_case("bytes */100" => None)]
    #[test_case("items 0-9/100" => None)]
    fn content_ranges(value: &str) -> Option<(u64, u64, Option<u64>)> {
        ContentRange::parse(value).map(|r| (r.first, r.last, r.total))
    }
}
