//! The access log, a line per request in the format of Amazon S3's server access logs.
//!
//! Fields and order: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html>. Two
//! fields follow the standard ones: the carrier of the object (`http` or `rdma`) and the number of
//! object bytes it moved. Lines are written by a thread of their own; SIGHUP reopens the file.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;

const TIME: &[FormatItem<'_>] =
    format_description!(version = 2, r"\[[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000\]");

/// Lines that may wait for the disk; what comes while so many wait is dropped and counted.
const QUEUE: usize = 8192;

/// What a line says.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) bucket: Option<String>,
    pub(crate) time: SystemTime,
    pub(crate) remote: Option<IpAddr>,
    pub(crate) requester: Option<String>,
    pub(crate) request_id: String,
    pub(crate) method: http::Method,
    pub(crate) operation: Option<&'static str>,
    pub(crate) key: Option<String>,
    pub(crate) uri: http::Uri,
    pub(crate) status: u16,
    pub(crate) error: Option<String>,
    pub(crate) bytes_sent: u64,
    pub(crate) object_size: Option<u64>,
    pub(crate) total: Duration,
    pub(crate) turn_around: Duration,
    pub(crate) referer: Option<String>,
    pub(crate) user_agent: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) signature_version: Option<&'static str>,
    pub(crate) auth_type: Option<&'static str>,
    pub(crate) host: Option<String>,
    pub(crate) tls: Option<&'static str>,
    pub(crate) carrier: &'static str,
    pub(crate) moved: u64,
}

/// A line in the making. Empty and missing values become `-`; characters that would break the line
/// are percent-encoded.
struct Line(String);

impl Line {
    fn raw(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(text);
    }

    fn plain(&mut self, value: Option<impl AsRef<str>>) {
        match value.as_ref().map(AsRef::as_ref).filter(|v| !v.is_empty()) {
            Some(value) => self.raw(&escaped(value, false)),
            None => self.raw("-"),
        }
    }

    fn quoted(&mut self, value: Option<&str>) {
        let text = value.filter(|v| !v.is_empty()).map_or_else(|| "-".into(), |v| escaped(v, true));
        self.raw(&format!("\"{text}\""));
    }
}

fn escaped(value: &str, spaces: bool) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if c.is_ascii_control() || c == '"' || (c == ' ' && !spaces) {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{:02X}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// The URI without the secrets of presigned requests.
fn shown_uri(uri: &http::Uri) -> String {
    let Some(query) = uri.query() else { return uri.path().to_owned() };
    let kept: Vec<String> = query
        .split('&')
        .map(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            let secret = ["x-amz-signature", "x-amz-security-token", "signature"];
            if secret.contains(&name.to_ascii_lowercase().as_str()) {
                format!("{name}=-")
            } else {
                pair.to_owned()
            }
        })
        .collect();
    format!("{}?{}", uri.path(), kept.join("&"))
}

/// The operation as S3's logs name it, `REST.PUT.OBJECT`.
fn operation_name(method: &http::Method, operation: Option<&str>) -> String {
    let resource = match operation {
        None => "UNKNOWN",
        Some("ListBuckets") => "SERVICE",
        Some("PutObject" | "GetObject" | "HeadObject" | "DeleteObject" | "CopyObject" | "PostObject") => {
            "OBJECT"
        }
        Some("UploadPart" | "UploadPartCopy") => "PART",
        Some("CreateMultipartUpload" | "ListMultipartUploads") => "UPLOADS",
        Some("CompleteMultipartUpload" | "AbortMultipartUpload" | "ListParts") => "UPLOAD",
        Some("DeleteObjects") => "MULTI_OBJECT_DELETE",
        Some("CreateBucket" | "DeleteBucket" | "HeadBucket" | "ListObjects" | "ListObjectsV2") => "BUCKET",
        Some("ListObjectVersions") => "BUCKETVERSIONS",
        Some("GetBucketLocation") => "LOCATION",
        Some("GetObjectAttributes") => "OBJECT_ATTRIBUTES",
        Some("GetObjectTagging" | "PutObjectTagging" | "DeleteObjectTagging") => "OBJECT_TAGGING",
        Some("GetObjectAcl" | "PutObjectAcl" | "GetBucketAcl" | "PutBucketAcl") => "ACL",
        Some(other) => return format!("REST.{method}.{}", other.to_ascii_uppercase()),
    };
    format!("REST.{method}.{resource}")
}

impl Entry {
    /// The line, without its end.
    pub(crate) fn line(&self) -> String {
        let number = |value: u64| Some(value.to_string());
        let mut line = Line(String::with_capacity(400));
        line.plain(None::<&str>); // the bucket's owner: not looked up for a log line
        line.plain(self.bucket.as_deref());
        line.raw(&OffsetDateTime::from(self.time).format(TIME).unwrap_or_else(|_| "-".into()));
        line.plain(self.remote.map(|ip| ip.to_string()));
        line.plain(self.requester.as_deref());
        line.plain(Some(&self.request_id));
        line.plain(Some(operation_name(&self.method, self.operation)));
        line.plain(self.key.as_deref());
        line.quoted(Some(&format!("{} {} HTTP/1.1", self.method, shown_uri(&self.uri))));
        line.plain(number(self.status.into()));
        line.plain(self.error.as_deref());
        line.plain(number(self.bytes_sent).filter(|_| self.bytes_sent > 0));
        line.plain(self.object_size.and_then(number));
        line.plain(number(self.total.as_millis() as u64));
        line.plain(number(self.turn_around.as_millis() as u64));
        line.quoted(self.referer.as_deref());
        line.quoted(self.user_agent.as_deref());
        line.plain(self.version.as_deref());
        line.plain(None::<&str>); // host id
        line.plain(self.signature_version);
        line.plain(None::<&str>); // cipher suite
        line.plain(self.auth_type);
        line.plain(self.host.as_deref());
        line.plain(self.tls);
        line.plain(None::<&str>); // access point
        line.plain(None::<&str>); // whether an ACL was needed
        line.plain(Some(self.carrier));
        line.plain(number(self.moved));
        line.0
    }
}

enum Message {
    Line(String),
    Reopen,
    Flush(SyncSender<()>),
}

/// Where lines go. Cheap to clone; never blocks the caller.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    queue: SyncSender<Message>,
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl AccessLog {
    /// Opens `path` for appending and starts the writing thread.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread not started.
    pub(crate) fn start(path: PathBuf) -> std::io::Result<Self> {
        let file = open(&path)?;
        let (queue, lines) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(&path, file, &lines))?;
        Ok(Self { queue })
    }

    /// Queues a line.
    pub(crate) fn write(&self, entry: &Entry) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Line(entry.line())) {
            tracing::warn!("the access log's disk is too slow, a line was dropped");
        }
    }

    /// Opens the file anew, for log rotation.
    pub(crate) fn reopen(&self) {
        let _ = self.queue.send(Message::Reopen);
    }

    /// Waits until everything queued is written; for the end of the program and for tests.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(Duration::from_secs(2));
        }
    }
}

/// Writes until every sender is gone. A failed write is reported once and tried again with the next
/// line: a full disk that gets room again must not end the log.
fn write_lines(path: &Path, mut file: File, lines: &Receiver<Message>) {
    let mut failing = false;
    while let Ok(message) = lines.recv() {
        match message {
            Message::Line(mut line) => {
                line.push('\n');
                match file.write_all(line.as_bytes()) {
                    Ok(()) => failing = false,
                    Err(error) if !failing => {
                        failing = true;
                        tracing::error!(%error, path = %path.display(), "cannot write the access log");
                    }
                    Err(_) => {}
                }
            }
            Message::Reopen => match open(path) {
                Ok(new) => file = new,
                Err(error) => tracing::error!(%error, path = %path.display(), "cannot reopen the access log"),
            },
            Message::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            bucket: Some("bucket".into()),
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(1_549_411_200),
            remote: Some("192.0.2.3".parse().unwrap()),
            requester: Some("root".into()),
            request_id: "3E57427F3EXAMPLE".into(),
            method: http::Method::GET,
            operation: Some("GetObject"),
            key: Some("a key \"x\"".into()),
            uri: "/bucket/a%20key?X-Amz-Signature=abcdef&partNumber=1".parse().unwrap(),
            status: 200,
            error: None,
            bytes_sent: 0,
            object_size: Some(113),
            total: Duration::from_millis(7),
            turn_around: Duration::from_millis(5),
            referer: None,
            user_agent: Some("curl/8.5 (x)".into()),
            version: None,
            signature_version: Some("SigV4"),
            auth_type: Some("QueryString"),
            host: Some("localhost:7070".into()),
            tls: None,
            carrier: "rdma",
            moved: 113,
        }
    }

    #[test]
    fn a_line_has_the_fields_of_s3() {
        assert_eq!(
            entry().line(),
            "- bucket [06/Feb/2019:00:00:00 +0000] 192.0.2.3 root 3E57427F3EXAMPLE REST.GET.OBJECT \
             a%20key%20%22x%22 \"GET /bucket/a%20key?X-Amz-Signature=-&partNumber=1 HTTP/1.1\" 200 - - 113 7 5 \
             \"-\" \"curl/8.5 (x)\" - - SigV4 - QueryString localhost:7070 - - - rdma 113"
        );
    }

    #[test]
    fn lines_reach_the_file_and_a_new_one_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let log = AccessLog::start(path.clone()).unwrap();
        log.write(&entry());
        log.flush();
        std::fs::rename(&path, directory.path().join("old.log")).unwrap();
        log.reopen();
        log.write(&entry());
        log.write(&entry());
        log.flush();
        let lines =
            |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap().lines().count();
        assert_eq!((lines("old.log"), lines("access.log")), (1, 2));
    }
}
