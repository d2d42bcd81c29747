//! What s3s leaves out of form uploads (POST to a bucket): `${filename}` in the key, and the form of a
//! policy's expiration. Only the fields before the file are looked at; the file follows untouched.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-post-example.html>

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use s3s::{S3ErrorCode, S3Result};
use time::PrimitiveDateTime;
use time::format_description::well_known::Iso8601;

use crate::gateway::error::{body_error, s3, s3_status};
use crate::gateway::fields::FormFields;

/// Most bytes of the fields before the file; s3s refuses longer ones.
pub(crate) const FIELDS: usize = 2 << 20;

/// The boundary of a form.
pub(super) fn boundary(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (kind, parameters) = value.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|p| p.trim().strip_prefix("boundary="))?;
    Some(boundary.trim_matches('"').to_owned())
}

/// A body of which some bytes have been taken and changed.
#[derive(Debug)]
pub(super) struct Resumed<B> {
    first: Option<Bytes>,
    rest: B,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Resumed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

/// Reads the fields of a form, which it returns, and puts the file's name where the key asks for it.
///
/// # Errors
/// `InvalidArgument` for a policy without a signature, `InvalidPolicyDocument` for an expiration that is no ISO 8601 date; what breaks the body off.
pub(super) async fn prepare_form<B>(mut body: B, boundary: &str) -> S3Result<(FormFields, Resumed<B>)>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut head = Vec::new();
    // Looked through each time it has doubled, so that small pieces cost little.
    let mut look_at = 8 << 10;
    let form = loop {
        let frame = body.frame().await.transpose().map_err(|error| body_error(&error))?;
        let ended = frame.is_none();
        if let Some(data) = frame.and_then(|f| f.into_data().ok()) {
            head.extend_from_slice(&data);
        }
        if ended || head.len() >= look_at {
            let form = Form::read(&head, boundary);
            if form.filename.is_some() || ended || head.len() >= FIELDS {
                break form;
            }
            look_at = head.len() * 2;
        }
    };
    if let Some(policy) = form.policy {
        if !form.is_signed {
            return Err(s3(
                S3ErrorCode::InvalidArgument,
                "Bucket POST must contain a field named 'signature'. If it is specified, please check the order of the fields.",
            ));
        }
        check_expiration(&head[policy])?;
    }
    if let (Some(key), Some(filename)) = (form.key, &form.filename) {
        let value = String::from_utf8_lossy(&head[key.clone()]).replace("${filename}", filename);
        head.splice(key, value.into_bytes());
    }
    Ok((FormFields(form.fields), Resumed { first: Some(head.into()), rest: body }))
}

/// Where things are in the first bytes of a form.
#[derive(Debug, Default, PartialEq, Eq)]
struct Form {
    key: Option<Range<usize>>,
    policy: Option<Range<usize>>,
    is_signed: bool,
    /// Name of the file, once its part has begun.
    filename: Option<String>,
    fields: Vec<(String, String)>,
}

fn find(data: &[u8], what: &[u8], from: usize) -> Option<usize> {
    data.get(from..)?.windows(what.len()).position(|w| w == what).map(|at| from + at)
}

impl Form {
    fn read(data: &[u8], boundary: &str) -> Self {
        let mut form = Self::default();
        let opening = format!("--{boundary}\r\n");
        let closing = format!("\r\n--{boundary}");
        let mut at = find(data, opening.as_bytes(), 0).map(|start| start + opening.len());
        while let Some(start) = at {
            let Some(end) = find(data, b"\r\n\r\n", start) else { break };
            let lines = String::from_utf8_lossy(&data[start..end]).into_owned();
            let value = end + 4;
            let name = quoted(&lines, "name").unwrap_or_default().to_ascii_lowercase();
            if name == "file" {
                let filename = quoted(&lines, "filename").unwrap_or_default();
                // Some browsers send the whole path.
                form.filename = Some(filename.rsplit(['/', '\\']).next().unwrap_or_default().to_owned());
                break;
            }
            let Some(end) = find(data, closing.as_bytes(), value) else { break };
            let text = String::from_utf8_lossy(&data[value..end]).into_owned();
            form.fields.push((name.clone(), text));
            match name.as_str() {
                "key" => form.key = Some(value..end),
                "signature" | "x-amz-signature" => form.is_signed = true,
                "policy" => form.policy = Some(value..end),
                _ => {}
            }
            at = Some(end + closing.len() + 2);
        }
        form
    }
}

/// A parameter of `Content-Disposition`.
fn quoted<'a>(lines: &'a str, name: &str) -> Option<&'a str> {
    let line = lines.lines().find(|l| l.to_ascii_lowercase().starts_with("content-disposition:"))?;
    let value = line.split(';').find_map(|p| p.trim().strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"'))
}

fn check_expiration(policy: &[u8]) -> S3Result<()> {
    // What is no policy at all is refused with its signature.
    let Ok(document) = STANDARD.decode(policy.trim_ascii()) else { return Ok(()) };
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(&document) else { return Ok(()) };
    let Some(expiration) = document.get("expiration").and_then(|e| e.as_str()) else { return Ok(()) };
    let date = expiration.strip_suffix('Z').filter(|date| date.contains('T'));
    if date.is_some_and(|date| PrimitiveDateTime::parse(date, &Iso8601::DEFAULT).is_ok()) {
        return Ok(());
    }
    Err(s3_status(
        S3ErrorCode::InvalidPolicyDocument,
        http::StatusCode::BAD_REQUEST,
        format!("Invalid Policy: Invalid 'expiration' value: '{expiration}'"),
    ))
}

/// Reads a body whose length was not stated.
///
/// # Errors
/// `MissingContentLength` for one of more than `limit` bytes; what breaks the body off.
pub(super) async fn gathered<B>(body: &mut B, limit: usize) -> S3Result<Bytes>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| body_error(&error))?.into_data() else { continue };
        if whole.len() + data.len() > limit {
            return Err(s3(
                S3ErrorCode::MissingContentLength,
                "You must provide the Content-Length HTTP header for a body of this size.",
            ));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use test_case::test_case;

    fn part(name: &str, value: &str) -> String {
        format!("--X\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n")
    }

    async fn prepared(text: String) -> Result<String, String> {
        let body = prepare_form(Full::new(Bytes::from(text)), "X").await;
        let (_, body) = body.map_err(|e| e.code().as_str().to_owned())?;
        let bytes = body.collect().await.unwrap().to_bytes();
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_files_name_goes_into_the_key() {
        let file = part("name=\"file\"; filename=\"C:\\dir\\a b.txt\"", "${filename}") + "--X--\r\n";
        let form = |key: &str| part("name=\"Key\"", key) + &part("name=\"acl\"", "private") + &file;
        let expected = form("in/a b.txt");
        assert_eq!(prepared(form("in/${filename}")).await.unwrap(), expected);
        assert_eq!(prepared(form("plain")).await.unwrap(), form("plain"));
        assert_eq!(prepared("no form".to_owned()).await.unwrap(), "no form");
    }

    #[test_case("2030-01-01T00:00:00Z" => None)]
    #[test_case("2030-01-01T00:00:00.000Z" => None)]
    #[test_case("2030-01-01 00:00:00+00:00" => Some("InvalidPolicyDocument".into()))]
    #[test_case("soon" => Some("InvalidPolicyDocument".into()))]
    fn expirations(date: &str) -> Option<String> {
        let policy = STANDARD.encode(format!("{{\"expiration\":\"{date}\",\"conditions\":[]}}"));
        check_expiration(policy.as_bytes()).err().map(|e| e.code().as_str().to_owned())
    }

    #[test_case("multipart/form-data; boundary=abc" => Some("abc".into()))]
    #[test_case("multipart/form-data; charset=x; boundary=\"a b\"" => Some("a b".into()))]
    #[test_case("application/xml" => None)]
    fn boundaries(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
        boundary(&headers)
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_has_a_limit() {
        let mut body = Full::new(Bytes::from_static(b"12345"));
        assert_eq!(gathered(&mut body, 5).await.unwrap(), "12345");
        let mut body = Full::new(Bytes::from_static(b"123456"));
        let error = gathered(&mut body, 5).await.unwrap_err();
        assert_eq!(*error.code(), S3ErrorCode::MissingContentLength);
    }
}
