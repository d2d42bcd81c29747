//! The last touch on answers.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use s3s::Body;

/// Makes an answer of s3s what HTTP and S3 want it to be, and notes the error code in it.
pub(super) fn touched(
    answer: Response<Body>,
    head: bool,
    operation: Option<&str>,
    id: &str,
    code: &mut Option<String>,
) -> Response<Body> {
    let (mut parts, mut body) = answer.into_parts();
    if parts.status == StatusCode::NOT_MODIFIED {
        // RFC 9110 section 15.4.5: no content.
        for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE] {
            parts.headers.remove(name);
        }
        return Response::from_parts(parts, Body::empty());
    }
    if head && parts.status == StatusCode::OK && parts.headers.contains_key(header::CONTENT_RANGE) {
        parts.status = StatusCode::PARTIAL_CONTENT;
    }
    if operation == Some("GetObjectAttributes")
        && parts.status == StatusCode::OK
        && let Some(document) = body.bytes()
        && let Some(bare) = with_bare_etag(&document)
    {
        body = Body::from(bare);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    if operation == Some("PostObject")
        && parts.status == StatusCode::SEE_OTHER
        && let Some(location) = parts.headers.get_mut(header::LOCATION)
        && let Some(quoted) = with_quoted_etag(location)
    {
        *location = quoted;
    }
    if parts.status == StatusCode::BAD_REQUEST
        && let Some(document) = body.bytes()
        && let Some(denied) = with_policy_denial(&document)
    {
        body = Body::from(denied);
        parts.status = StatusCode::FORBIDDEN;
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    if parts.status.as_u16() >= 400
        && let Some(document) = body.bytes()
        && let Some(extended) = with_request_id(&document, id, code)
    {
        body = Body::from(extended);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, body)
}

/// Takes the quotes off the ETag: GetObjectAttributes has it without, unlike all other answers.
fn with_bare_etag(document: &Bytes) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(document).ok()?;
    let (before, rest) = text.split_once("<ETag>")?;
    let (etag, after) = rest.split_once("</ETag>")?;
    let bare = etag.replace("&quot;", "").replace('"', "");
    Some(format!("{before}<ETag>{bare}</ETag>{after}").into_bytes())
}

/// The ETag in the address that a form leads to has its quotes.
fn with_quoted_etag(location: &HeaderValue) -> Option<HeaderValue> {
    let (before, etag) = location.to_str().ok()?.rsplit_once("etag=")?;
    HeaderValue::try_from(format!("{before}etag=%22{etag}%22")).ok()
}

/// A form that its policy does not allow is denied; s3s says that the policy is invalid.
fn with_policy_denial(document: &Bytes) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(document).ok()?;
    let (told, denied) =
        ("<Code>InvalidPolicyDocument</Code><Message>", "<Code>AccessDenied</Code><Message>");
    let is_denial = |reason: &&str| text.contains(&format!("{told}{reason}"));
    ["Policy condition", "Bucket in form"]
        .iter()
        .any(is_denial)
        .then(|| text.replacen(told, denied, 1).into_bytes())
}

/// Adds the request's id to an error document, and a text where s3s has none.
fn with_request_id(document: &Bytes, id: &str, code: &mut Option<String>) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(document).ok()?;
    let start = text.find("<Code>")? + "<Code>".len();
    let name = text[start..].split('<').next()?;
    *code = Some(name.to_owned());
    if text.contains("<RequestId>") {
        return None;
    }
    let end = text.rfind("</Error>")?;
    // Clients that guessed another region sign again for this one.
    let region = match name {
        "AuthorizationHeaderMalformed" => expected_region(text).map(|r| format!("<Region>{r}</Region>")),
        _ => None,
    }
    .unwrap_or_default();
    let message = if text.contains("<Message>") {
        String::new()
    } else {
        format!("<Message>{}</Message>", usual_message(name))
    };
    Some(format!("{}{message}{region}<RequestId>{id}</RequestId>{}", &text[..end], &text[end..]).into_bytes())
}

/// The region that the message of a refused scope names.
fn expected_region(text: &str) -> Option<&str> {
    let named = text.split_once("expecting ")?.1.split_once("</Message>")?.0;
    Some(named.trim_start_matches("&apos;").trim_end_matches("&apos;").trim_matches('\''))
}

/// What is to be said of errors that s3s raises without a text.
fn usual_message(code: &str) -> &'static str {
    match code {
        "InvalidBucketName" => {
            "The specified bucket is not valid: names have 3 to 63 lower-case letters, digits, dots and hyphens."
        }
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        }
        "KeyTooLongError" => "Your key is too long.",
        "InvalidURI" => "Couldn't parse the specified URI.",
        "MalformedXML" => {
            "The XML you provided was not well-formed or did not validate against our published schema."
        }
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "IncompleteBody" => "The body does not have the number of bytes that the headers state.",
        "AccessDenied" => "Access Denied",
        "NotImplemented" => "A header or operation that you asked for is not implemented.",
        "MaxMessageLengthExceeded" => "Your request was too big.",
        "InternalError" => "We encountered an internal error. Please try again.",
        _ => "The request cannot be served.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of(status: u16, body: &str) -> Response<Body> {
        let mut answer = Response::new(Body::from(body.to_owned()));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer
    }

    #[test]
    fn errors_get_the_request_id() {
        let mut code = None;
        let document = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>";
        let answer = touched(answer_of(404, document), false, None, "ABC", &mut code);
        let text = String::from_utf8(answer.into_body().bytes().unwrap().to_vec()).unwrap();
        assert!(text.ends_with("</Message><RequestId>ABC</RequestId></Error>"), "{text}");
        assert_eq!(code.as_deref(), Some("NoSuchKey"));
        let document = "<Error><Code>X</Code><Message>m</Message></Error>";
        let answer = touched(answer_of(400, document), false, None, "ABC", &mut code);
        let text = String::from_utf8(answer.into_body().bytes().unwrap().to_vec()).unwrap();
        assert_eq!(text, "<Error><Code>X</Code><Message>m</Message><RequestId>ABC</RequestId></Error>");
    }

    #[test]
    fn a_304_has_no_body_and_a_ranged_head_is_206() {
        let mut code = None;
        let not_modified = touched(answer_of(304, "<Error>"), false, None, "", &mut code);
        assert!(not_modified.into_body().bytes().unwrap().is_empty());
        let mut ranged = answer_of(200, "");
        ranged.headers_mut().insert(header::CONTENT_RANGE, HeaderValue::from_static("bytes 0-0/1"));
        assert_eq!(touched(ranged, true, None, "", &mut code).status(), StatusCode::PARTIAL_CONTENT);
    }

    #[test]
    fn attributes_have_a_bare_etag() {
        let mut code = None;
        let document = "<R><ETag>&quot;ab-2&quot;</ETag><ObjectSize>1</ObjectSize></R>";
        let answer = touched(answer_of(200, document), false, Some("GetObjectAttributes"), "", &mut code);
        let text = String::from_utf8(answer.into_body().bytes().unwrap().to_vec()).unwrap();
        assert_eq!(text, "<R><ETag>ab-2</ETag><ObjectSize>1</ObjectSize></R>");
    }
}
