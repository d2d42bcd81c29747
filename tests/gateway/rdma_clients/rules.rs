//! How clients read an answer.

use vgwrdma::digest::{Algorithm, Digester};

use crate::fixture::Answer;

/// What a client makes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// So many bytes moved by RDMA.
    Done(usize),
    /// No RDMA: the body has to go, or is, over HTTP.
    Declined,
    /// An error for the caller.
    Failed,
}

use Verdict::{Declined, Done, Failed};

/// Reads the answer to a request about so many bytes.
pub(crate) type Rule = fn(&Answer, usize) -> Verdict;

fn reply(answer: &Answer) -> &str {
    answer.header("x-amz-rdma-reply")
}

/// Digits and nothing else.
fn bytes(answer: &Answer) -> Option<usize> {
    let text = answer.header("x-amz-rdma-bytes-transferred");
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn has_etag(answer: &Answer) -> bool {
    !answer.header("etag").is_empty()
}

/// 200 with an ETag is success, whatever the reply says (minio-cpp, minio-rs, elbencho's plugin).
pub(crate) fn put_minio(answer: &Answer, asked: usize) -> Verdict {
    match (answer.status.as_u16(), reply(answer)) {
        (200, _) if has_etag(answer) => Done(asked),
        (_, "200" | "204") => Done(asked),
        (_, "501" | "") => Declined,
        _ => Failed,
    }
}

/// 200 with an ETag and a reply of exactly 200 (NIXL).
pub(crate) fn put_strict(answer: &Answer, asked: usize) -> Verdict {
    match (answer.status.as_u16(), reply(answer)) {
        (200, "200") if has_etag(answer) => Done(asked),
        (_, "501" | "") => Declined,
        _ => Failed,
    }
}

/// 200 with an ETag, and a reply that does not speak against it.
pub(crate) fn put_multi_storage(answer: &Answer, asked: usize) -> Verdict {
    match (answer.status.as_u16(), reply(answer)) {
        (200, "" | "200" | "204") if has_etag(answer) => Done(asked),
        (_, "501") => Declined,
        _ => Failed,
    }
}

/// What HTTP says (Dell's clients).
pub(crate) fn put_by_status(answer: &Answer, asked: usize) -> Verdict {
    match answer.status.as_u16() {
        200 => Done(asked),
        501 => Declined,
        _ => Failed,
    }
}

pub(crate) fn put_cloudian(answer: &Answer, asked: usize) -> Verdict {
    match reply(answer) {
        "200" => Done(asked),
        "501" => Declined,
        _ => Failed,
    }
}

/// 501 and no reply both mean to send the body (aws-c-s3).
pub(crate) fn put_aws(answer: &Answer, asked: usize) -> Verdict {
    match reply(answer) {
        "200" | "204" => Done(asked),
        "501" | "" => Declined,
        _ => Failed,
    }
}

/// The reply alone counts; bytes are believed, all of them when not told (minio-cpp, aws-c-s3).
pub(crate) fn get_by_reply(answer: &Answer, asked: usize) -> Verdict {
    match reply(answer) {
        "200" | "206" => Done(bytes(answer).unwrap_or(asked)),
        "501" | "" => Declined,
        _ => Failed,
    }
}

/// As [`get_by_reply`], and a missing reply is a failure (minio-rs, elbencho's plugin).
pub(crate) fn get_by_reply_or_fail(answer: &Answer, asked: usize) -> Verdict {
    if reply(answer).is_empty() { Failed } else { get_by_reply(answer, asked) }
}

/// HTTP status and reply have to be the same, bytes in digits and no more than asked for (NIXL,
/// multi-storage-client).
pub(crate) fn get_strict(answer: &Answer, asked: usize) -> Verdict {
    match (answer.status.as_u16(), reply(answer)) {
        (200, "200") | (206, "206") => match bytes(answer) {
            Some(moved) if moved <= asked => Done(moved),
            Some(_) => Failed,
            None => Done(0),
        },
        (_, "501" | "") => Declined,
        _ => Failed,
    }
}

pub(crate) fn get_by_status(answer: &Answer, asked: usize) -> Verdict {
    match (answer.status.as_u16(), reply(answer)) {
        (_, "501") => Declined,
        (200 | 206, _) => Done(asked),
        _ => Failed,
    }
}

/// The size of the object comes from Content-Range; the bytes must fit what was asked for.
pub(crate) fn get_cloudian(answer: &Answer, asked: usize) -> Verdict {
    match reply(answer) {
        "200" | "204" | "206" if !answer.header("content-range").is_empty() => {
            bytes(answer).filter(|moved| *moved <= asked).map_or(Failed, Done)
        }
        "501" => Declined,
        _ => Failed,
    }
}

/// Any reply of the 200s, and the bytes have to be told.
pub(crate) fn noobaa(answer: &Answer, _: usize) -> Verdict {
    match reply(answer) {
        "501" => Declined,
        reply if reply.len() == 3 && reply.starts_with('2') => bytes(answer).map_or(Failed, Done),
        _ => Failed,
    }
}

fn versity(answer: &Answer, asked: usize, replies: &[&str]) -> Verdict {
    match reply(answer) {
        "501" => Declined,
        reply if replies.contains(&reply) && bytes(answer) == Some(asked) => Done(asked),
        _ => Failed,
    }
}

pub(crate) fn versity_put(answer: &Answer, asked: usize) -> Verdict {
    versity(answer, asked, &["200", "204"])
}

pub(crate) fn versity_get(answer: &Answer, asked: usize) -> Verdict {
    versity(answer, asked, &["200", "204", "206"])
}

/// CRC-32C in base64.
pub(crate) fn crc32c(data: &[u8]) -> String {
    let mut digester = Digester::new(false, [Algorithm::Crc32c]);
    digester.update(data);
    digester.finish().base64(Algorithm::Crc32c).unwrap()
}
