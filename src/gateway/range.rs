//! Which bytes of an object a GET or HEAD is about.

use http::{HeaderMap, HeaderValue, header};
use s3s::dto::Range;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::error::{s3, with_headers};

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte.
    pub(crate) start: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// Size of the whole object.
    pub(crate) total: u64,
    /// Whether the answer is 206 with `Content-Range`.
    pub(crate) partial: bool,
}

impl Extent {
    /// The value of `Content-Range`, for partial answers.
    pub(crate) fn content_range(&self) -> Option<String> {
        let last = (self.start + self.length).checked_sub(1)?;
        self.partial.then(|| format!("bytes {}-{last}/{}", self.start, self.total))
    }

    /// Whether it is the whole object, asked for as a range or not.
    pub(crate) fn is_whole(&self) -> bool {
        self.length == self.total
    }
}

/// Works out the bytes: all, a `Range`, or a part of a multipart object.
///
/// # Errors
/// `InvalidRange` (416) with `Content-Range: bytes */size`, `InvalidPart`-class errors for parts.
pub(crate) fn resolve(
    total: u64,
    range: Option<Range>,
    part: Option<i32>,
    part_ends: &[u64],
) -> S3Result<Extent> {
    match (range, part) {
        (Some(_), Some(_)) => Err(s3(
            S3ErrorCode::InvalidRequest,
            "Cannot specify both Range header and partNumber query parameter",
        )),
        (None, None) => Ok(Extent { start: 0, length: total, total, partial: false }),
        (None, Some(part)) => part_extent(total, part, part_ends),
        (Some(range), None) => {
            let bytes = match range {
                Range::Int { .. } => range.check(total),
                Range::Suffix { .. } if total == 0 => return Err(unsatisfiable(total)),
                Range::Suffix { .. } => range.check(total),
            };
            let bytes = bytes.map_err(|_| unsatisfiable(total))?;
            Ok(Extent { start: bytes.start, length: bytes.end - bytes.start, total, partial: true })
        }
    }
}

/// The bytes of a part; an object uploaded in one piece is its own part 1.
fn part_extent(total: u64, part: i32, part_ends: &[u64]) -> S3Result<Extent> {
    let out_of_range = || s3(S3ErrorCode::InvalidPart, "The requested partnumber is not satisfiable");
    let index = usize::try_from(part).ok().and_then(|n| n.checked_sub(1)).ok_or_else(|| {
        s3(S3ErrorCode::InvalidArgument, "Part number must be an integer between 1 and 10000")
    })?;
    if part_ends.is_empty() {
        return if index == 0 {
            Ok(Extent { start: 0, length: total, total, partial: total > 0 })
        } else {
            Err(out_of_range())
        };
    }
    let end = *part_ends.get(index).ok_or_else(out_of_range)?;
    let start = if index == 0 { 0 } else { part_ends[index - 1] };
    let length = end.checked_sub(start).ok_or_else(out_of_range)?;
    if end > total {
        return Err(out_of_range());
    }
    Ok(Extent { start, length, total, partial: length > 0 })
}

fn unsatisfiable(total: u64) -> S3Error {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::try_from(format!("bytes */{total}")) {
        headers.insert(header::CONTENT_RANGE, value);
    }
    with_headers(s3(S3ErrorCode::InvalidRange, "The requested range is not satisfiable"), headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn range(text: &str) -> Option<Range> {
        Some(Range::parse(text).unwrap())
    }

    #[test_case(None, 10 => Ok((0, 10, None)))]
    #[test_case(range("bytes=0-0"), 10 => Ok((0, 1, Some("bytes 0-0/10".into()))))]
    #[test_case(range("bytes=3-"), 10 => Ok((3, 7, Some("bytes 3-9/10".into()))))]
    #[test_case(range("bytes=3-99"), 10 => Ok((3, 7, Some("bytes 3-9/10".into()))))]
    #[test_case(range("bytes=-4"), 10 => Ok((6, 4, Some("bytes 6-9/10".into()))))]
    #[test_case(range("bytes=-40"), 10 => Ok((0, 10, Some("bytes 0-9/10".into()))))]
    #[test_case(range("bytes=10-"), 10 => Err(416))]
    #[test_case(range("bytes=-0"), 10 => Err(416))]
    #[test_case(range("bytes=-1"), 0 => Err(416))]
    #[test_case(range("bytes=0-"), 0 => Err(416))]
    fn ranges(range: Option<Range>, total: u64) -> Result<(u64, u64, Option<String>), u16> {
        match resolve(total, range, None, &[]) {
            Ok(extent) => Ok((extent.start, extent.length, extent.content_range())),
            Err(error) => Err(error.status_code().unwrap().as_u16()),
        }
    }

    #[test_case(1, &[5, 9, 10] => Some((0, 5)))]
    #[test_case(2, &[5, 9, 10] => Some((5, 4)))]
    #[test_case(3, &[5, 9, 10] => Some((9, 1)))]
    #[test_case(4, &[5, 9, 10] => None)]
    #[test_case(0, &[5, 9, 10] => None)]
    #[test_case(-1, &[] => None)]
    #[test_case(1, &[] => Some((0, 10)))]
    #[test_case(2, &[] => None)]
    #[test_case(1, &[11] => None; "a part past the file's end")]
    fn parts(part: i32, ends: &[u64]) -> Option<(u64, u64)> {
        resolve(10, None, Some(part), ends).ok().map(|e| (e.start, e.length))
    }
}
