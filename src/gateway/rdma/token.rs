//! The headers that name a client's memory.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use s3s::{S3ErrorCode, S3Result};

use super::Target;
use super::foreign::is_foreign;
use crate::gateway::error::s3;
use crate::rdma::Descriptor;

/// The header of NVIDIA's specification.
pub(crate) const TOKEN: &str = "x-amz-rdma-token";
/// The headers of older tools; all three belong together.
pub(crate) const LEGACY: [&str; 3] =
    ["x-cuobj-rdma-descr", "x-cuobj-content-length", "x-cuobj-remote-buf-start"];

/// Which of a request's headers say that its body goes by RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Headers that carry a token, in the order they are looked for.
    tokens: Vec<HeaderName>,
    /// Whether any of the legacy headers is there.
    legacy: bool,
}

/// Names of headers, fixed at start.
#[derive(Clone, Debug)]
pub(crate) struct TokenHeaders {
    names: Vec<HeaderName>,
}

impl TokenHeaders {
    /// The standard header and further ones.
    pub(crate) fn new(extra: &[HeaderName]) -> Self {
        let mut names = vec![HeaderName::from_static(TOKEN)];
        names.extend(extra.iter().filter(|name| name.as_str() != TOKEN).cloned());
        Self { names }
    }

    /// What a token header would be called among an object's metadata, where it must not be kept.
    pub(crate) fn as_metadata(&self) -> Vec<String> {
        self.names.iter().filter_map(|n| n.as_str().strip_prefix("x-amz-meta-").map(str::to_owned)).collect()
    }

    /// Looks for tokens without reading them.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<Found> {
        let tokens: Vec<_> = self.names.iter().filter(|n| headers.contains_key(*n)).cloned().collect();
        let legacy = LEGACY.iter().any(|name| headers.contains_key(*name));
        (legacy || !tokens.is_empty()).then_some(Found { tokens, legacy })
    }
}

fn invalid(name: &str, what: impl std::fmt::Display) -> s3s::S3Error {
    s3(S3ErrorCode::InvalidArgument, format!("{name}: {what}"))
}

/// The one value of a header. Its text is never repeated in an error: it opens memory.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> S3Result<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| {
        invalid(
            name,
            format_args!("is missing; {}, {} and {} belong together", LEGACY[0], LEGACY[1], LEGACY[2]),
        )
    })?;
    if values.next().is_some() {
        return Err(invalid(name, "is there more than once"));
    }
    value.to_str().map_err(|_| invalid(name, "has characters outside ASCII"))
}

/// A decimal number and nothing else.
fn decimal(headers: &HeaderMap, name: &str) -> S3Result<u64> {
    let text = only(headers, name)?;
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| invalid(name, "must be a decimal number of at most 64 bits"))
}

impl Found {
    /// The headers that must be signed.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let legacy = if self.legacy { &LEGACY[..] } else { &[] };
        self.tokens.iter().map(HeaderName::as_str).chain(legacy.iter().copied())
    }

    /// Whether every token is of a transport that this gateway does not speak.
    pub(crate) fn is_foreign(&self, headers: &HeaderMap) -> bool {
        !self.legacy
            && self
                .tokens
                .iter()
                .all(|name| headers.get(name).and_then(|v| v.to_str().ok()).is_some_and(is_foreign))
    }

    /// Reads the token and the window.
    ///
    /// # Errors
    /// `InvalidArgument` naming the header and the field.
    pub(crate) fn read(&self, headers: &HeaderMap) -> S3Result<Target> {
        let mut target: Option<(Target, &str)> = None;
        for name in &self.tokens {
            let name = name.as_str();
            let (descriptor, window) =
                Descriptor::parse_with_suffix(only(headers, name)?).map_err(|e| invalid(name, e))?;
            let this = Target { descriptor: Arc::new(descriptor), window };
            if let Some((other, first)) = &target
                && (other.descriptor != this.descriptor || other.window != this.window)
            {
                return Err(invalid(name, format_args!("names other memory than {first}")));
            }
            target.get_or_insert((this, name));
        }
        let target = target.map(|t| t.0);
        if self.legacy {
            return read_legacy(headers, target);
        }
        target.ok_or_else(|| invalid(TOKEN, "is missing"))
    }
}

/// The three legacy headers; a token beside them must agree.
fn read_legacy(headers: &HeaderMap, beside: Option<Target>) -> S3Result<Target> {
    let [name, length_name, start_name] = LEGACY;
    let descriptor = Descriptor::parse(only(headers, name)?).map_err(|e| invalid(name, e))?;
    let length = decimal(headers, length_name)?;
    if length == 0 {
        return Err(invalid(length_name, "must be more than 0"));
    }
    let start = decimal(headers, start_name)?;
    let outer = match beside {
        Some(target) if *target.descriptor != descriptor => {
            return Err(invalid(name, format_args!("names other memory than the token beside it")));
        }
        Some(target) => target.window,
        None => descriptor.window(),
    };
    let window = outer.narrow(start, length).map_err(|e| invalid(start_name, e))?;
    Ok(Target { descriptor: Arc::new(descriptor), window })
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    const GOOD: &str = "0000000000001000:00000100:01020304:0000:010203:1:00000000000000000000ffff7f000001";

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn read(list: &[(&'static str, &str)]) -> Result<(u64, u64), String> {
        let headers = headers(list);
        let names = TokenHeaders::new(&[HeaderName::from_static("x-rdma-info")]);
        let found = names.find(&headers).expect("a token header");
        match found.read(&headers) {
            Ok(target) => Ok((target.window.base, target.window.size)),
            Err(error) => {
                assert_eq!(*error.code(), S3ErrorCode::InvalidArgument);
                Err(error.message().unwrap().to_owned())
            }
        }
    }

    #[test]
    fn standard_and_extra_names() {
        assert_eq!(read(&[(TOKEN, GOOD)]), Ok((0x1000, 0x100)));
        assert_eq!(read(&[("x-rdma-info", GOOD)]), Ok((0x1000, 0x100)));
        assert_eq!(read(&[(TOKEN, &GOOD.to_uppercase())]), Ok((0x1000, 0x100)));
        let suffixed = format!("{GOOD}:1010:20");
        assert_eq!(read(&[(TOKEN, &suffixed)]), Ok((0x1010, 0x20)));
    }

    #[test]
    fn legacy_alone_and_beside_a_token() {
        let triple = |start: &'static str, length: &'static str| {
            vec![(LEGACY[0], GOOD), (LEGACY[1], length), (LEGACY[2], start)]
        };
        assert_eq!(read(&triple("4112", "16")), Ok((0x1010, 16)));
        let mut both = triple("4112", "16");
        both.push((TOKEN, GOOD));
        assert_eq!(read(&both), Ok((0x1010, 16)));
        let other = GOOD.replace("01020304", "01020305");
        both.pop();
        both.push((TOKEN, &other));
        assert!(read(&both).unwrap_err().contains("other memory"));
        assert!(read(&triple("4095", "16")).unwrap_err().contains(LEGACY[2]));
        assert!(read(&triple("4112", "0")).unwrap_err().contains(LEGACY[1]));
        assert!(read(&triple("4112", "+16")).unwrap_err().contains(LEGACY[1]));
        assert!(read(&triple("18446744073709551615", "16")).unwrap_err().contains(LEGACY[2]));
        assert!(read(&triple("99999999999999999999", "16")).unwrap_err().contains(LEGACY[2]));
        assert!(read(&triple("4112", "16")[..2]).unwrap_err().contains(LEGACY[2]));
    }

    #[test_case(&GOOD[1..], "80"; "too short")]
    #[test_case(&GOOD.replace("010203:1", "01020g:1"), "field 5 (DCT number)"; "not hexadecimal")]
    #[test_case(&GOOD.replace(":1:", ":2:"), "field 6"; "flag")]
    #[test_case("MDAwMDAwMDAwMDAwMTAwMDowMDAwMDEwMDowMTAyMDMwNA==", "81 characters"; "base64")]
    fn malformed(token: &str, names: &str) {
        let text = read(&[(TOKEN, token)]).unwrap_err();
        assert!(text.starts_with("x-amz-rdma-token: ") && text.contains(names), "{text}");
        assert!(!text.contains("01020304"), "the rkey leaks: {text}");
    }

    #[test]
    fn twice_or_contradicting() {
        assert!(read(&[(TOKEN, GOOD), (TOKEN, GOOD)]).unwrap_err().contains("more than once"));
        let other = GOOD.replace("00000100", "00000200");
        assert!(read(&[(TOKEN, GOOD), ("x-rdma-info", &other)]).unwrap_err().contains("other memory"));
    }

    #[test_case(&[(TOKEN, "rc:1:2:3:4")] => true)]
    #[test_case(&[(TOKEN, GOOD)] => false)]
    #[test_case(&[(TOKEN, "rc:1:2:3:4"), (LEGACY[0], GOOD)] => false)]
    fn foreign(list: &[(&'static str, &str)]) -> bool {
        let headers = headers(list);
        TokenHeaders::new(&[]).find(&headers).unwrap().is_foreign(&headers)
    }

    #[test]
    fn nothing_found() {
        assert_eq!(TokenHeaders::new(&[]).find(&headers(&[("x-rdma-info", GOOD)])), None);
    }
}
