//! What the libraries say, as `tracing` events of the target `cuobj`.
//!
//! Levels are mapped one step down: the library's errors are also returned by the call that met
//! them and are logged there with more context, so here they are warnings; its information is
//! `debug`, its debugging `trace`. Whatever opens memory (descriptors, keys, addresses) is taken out.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::sync::{Mutex, Once, PoisonError};

use cuobj_sys as sys;
use tracing::Level;

use super::{Result, shim};

/// The `tracing` target of all lines.
pub const TARGET: &str = "cuobj";

/// Errors kept for the text of a failed start.
const KEPT_ERRORS: usize = 8;

/// Which library a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// cuObjServer.
    #[cfg(feature = "server")]
    Server,
    /// cuObjClient.
    #[cfg(feature = "client")]
    Client,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "server")]
            Self::Server => "server",
            #[cfg(feature = "client")]
            Self::Client => "client",
        }
    }

    fn recorder(self) -> &'static Recorder {
        #[cfg(feature = "server")]
        static SERVER: Recorder = Recorder::new();
        #[cfg(feature = "client")]
        static CLIENT: Recorder = Recorder::new();
        match self {
            #[cfg(feature = "server")]
            Self::Server => &SERVER,
            #[cfg(feature = "client")]
            Self::Client => &CLIENT,
        }
    }
}

/// The last errors of a library, numbered so that a start sees its own.
struct Recorder {
    installed: Once,
    errors: Mutex<(u64, VecDeque<String>)>,
}

impl Recorder {
    const fn new() -> Self {
        Self { installed: Once::new(), errors: Mutex::new((0, VecDeque::new())) }
    }

    fn record(&self, line: &str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.0 += 1;
        if errors.1.len() == KEPT_ERRORS {
            errors.1.pop_front();
        }
        errors.1.push_back(line.to_owned());
    }

    fn mark(&self) -> u64 {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn since(&self, mark: u64) -> Vec<String> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let new = usize::try_from(errors.0 - mark).unwrap_or(KEPT_ERRORS).min(errors.1.len());
        errors.1.iter().skip(errors.1.len() - new).cloned().collect()
    }
}

/// Sends a library's lines to `tracing`. The first call counts; servers and clients make it when
/// they open.
///
/// The library is asked for information always, and for debugging when a subscriber takes `trace`
/// events of the target [`TARGET`] at that moment.
pub fn install(side: Side) {
    side.recorder().installed.call_once(|| {
        let mut flags = sys::VGW_CUOBJ_TELEMETRY_ERROR | sys::VGW_CUOBJ_TELEMETRY_INFO;
        if tracing::enabled!(target: TARGET, Level::TRACE) {
            flags |= sys::VGW_CUOBJ_TELEMETRY_DEBUG;
        }
        if let Err(error) = start(side, flags) {
            tracing::warn!(target: TARGET, library = side.name(), %error, "no telemetry");
        }
    });
}

fn start(side: Side, flags: u32) -> Result<()> {
    match side {
        #[cfg(feature = "server")]
        Side::Server => shim::call("setupTelemetry", |text| {
            // SAFETY: the sink is a function of this program and takes no context, so both are
            // valid to the end of the process.
            unsafe { sys::vgw_cuobj_server_telemetry(Some(server_line), std::ptr::null_mut(), flags, text) }
        }),
        #[cfg(feature = "client")]
        Side::Client => shim::call("setupTelemetry", |text| {
            // SAFETY: as for the server.
            unsafe { sys::vgw_cuobj_client_telemetry(Some(client_line), std::ptr::null_mut(), flags, text) }
        }),
    }
}

/// Marks the present, for [`errors_since`].
pub(crate) fn mark(side: Side) -> u64 {
    side.recorder().mark()
}

/// The errors that the library has told of since the mark, joined, or `None`.
pub(crate) fn errors_since(side: Side, mark: u64) -> Option<String> {
    let lines = side.recorder().since(mark);
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(feature = "server")]
unsafe extern "C" fn server_line(_: *mut c_void, line: *const c_char, length: usize) {
    // SAFETY: the shim hands over `length` readable bytes for the time of the call (wrapper.h).
    unsafe { take_line(Side::Server, line, length) }
}

#[cfg(feature = "client")]
unsafe extern "C" fn client_line(_: *mut c_void, line: *const c_char, length: usize) {
    // SAFETY: as in `server_line`.
    unsafe { take_line(Side::Client, line, length) }
}

/// # Safety
/// `line` points to `length` bytes that stay readable during the call.
unsafe fn take_line(side: Side, line: *const c_char, length: usize) {
    if line.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(line.cast::<u8>(), length) };
    // A subscriber may panic; nothing may unwind into the library.
    let _ = std::panic::catch_unwind(|| emit(side, &String::from_utf8_lossy(bytes)));
}

fn emit(side: Side, line: &str) {
    let library = side.name();
    for message in messages(line) {
        let message = redact(message);
        let severity = severity(&message);
        // NVIDIA's library tells why a session does not open as information.
        if severity == Severity::Error || (severity == Severity::Info && speaks_of_failure(&message)) {
            side.recorder().record(
                message.strip_prefix(MARKS[0]).or(message.strip_prefix(MARKS[1])).unwrap_or(&message),
            );
        }
        match severity {
            Severity::Error => tracing::warn!(target: TARGET, library, "{message}"),
            Severity::Info => tracing::debug!(target: TARGET, library, "{message}"),
            Severity::Debug => tracing::trace!(target: TARGET, library, "{message}"),
        }
    }
}

/// How NVIDIA's libraries begin a message.
const MARKS: [&str; 3] = ["ERROR: ", "INFO: ", "DEBUG: "];

/// The messages of a line: NVIDIA's libraries forget to end some of theirs.
fn messages(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let later = |mark| rest.match_indices(mark).map(|(at, _)| at).find(|at| *at > 0);
        let next = MARKS.into_iter().filter_map(later).min();
        let (message, behind) = rest.split_at(next.unwrap_or(rest.len()));
        rest = behind;
        Some(message.trim())
    })
    .filter(|message| !message.is_empty())
}

#[derive(Debug, PartialEq, Eq)]
enum Severity {
    Error,
    Info,
    Debug,
}

/// The words of a text, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase)
}

/// The level word stands near the beginning of a message, in some case. Messages without one are
/// told of failures, if they speak of one.
fn severity(message: &str) -> Severity {
    let level = words(message.get(..64).unwrap_or(message)).find_map(|word| match word.as_str() {
        "error" | "err" | "fatal" => Some(Severity::Error),
        "info" => Some(Severity::Info),
        "debug" | "dbg" | "trace" => Some(Severity::Debug),
        _ => None,
    });
    level.unwrap_or(if speaks_of_failure(message) { Severity::Error } else { Severity::Debug })
}

fn speaks_of_failure(message: &str) -> bool {
    words(message)
        .any(|word| matches!(word.as_str(), "error" | "failed" | "failure" | "fail" | "invalid" | "cannot"))
}

/// Names that NVIDIA's library gives to what opens a client's memory, in lines like `rkey=0x5a5a`.
const SECRETS: [&str; 6] = ["rkey", "remote_buf", "rem_base_addr", "rem_buf_start", "rem_dctn", "dc_key"];

/// Takes out what opens memory: descriptors, and the values of [`SECRETS`].
fn redact(message: &str) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    let (mut at, mut copied) = (0, 0);
    while at < message.len() {
        let (is_descriptor, run) = hexadecimal_run(&message.as_bytes()[at..]);
        let hidden = if is_descriptor { Some(at..at + run) } else { value_of_secret(message, at) };
        at = match hidden {
            Some(range) => {
                let text = out.get_or_insert_default();
                text.push_str(&message[copied..range.start]);
                text.push_str("<hidden>");
                copied = range.end;
                range.end
            }
            None => at + run.max(1),
        };
    }
    match out {
        Some(mut text) => {
            text.push_str(&message[copied..]);
            Cow::Owned(text)
        }
        None => Cow::Borrowed(message),
    }
}

/// Whether a descriptor begins here (16 hexadecimal digits, a colon, and on), and for how many bytes
/// its kind of characters goes on.
fn hexadecimal_run(bytes: &[u8]) -> (bool, usize) {
    let run = bytes.iter().take_while(|b| b.is_ascii_hexdigit() || **b == b':').count();
    let digits = bytes[..run].iter().take_while(|b| b.is_ascii_hexdigit()).count();
    (digits == 16 && run > digits + 1, run)
}

/// The range of the value, if one of the secret names begins at `at`.
fn value_of_secret(message: &str, at: usize) -> Option<Range<usize>> {
    let rest = message.get(at..)?;
    let name = SECRETS.iter().find(|name| rest.starts_with(**name))?;
    let behind = rest[name.len()..].trim_start().strip_prefix('=')?.trim_start();
    let length = behind.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let from = message.len() - behind.len();
    (length > 0).then_some(from..from + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("cuObjServer (software): error: no device" => Severity::Error)]
    #[test_case("[ERROR] rdma_create_event_channel() failure: No such device" => Severity::Error)]
    #[test_case("rdma_create_event_channel() failure: No such device" => Severity::Error)]
    #[test_case("INFO: session opened after an error" => Severity::Info)]
    #[test_case("2026-01-01 DEBUG poll" => Severity::Debug)]
    #[test_case("informative but without a level" => Severity::Debug)]
    #[test_case("ééééééééééééééééééééééééééééééééé error" => Severity::Error; "no boundary at 64")]
    fn levels(line: &str) -> Severity {
        severity(line)
    }

    #[test_case("INFO: a (errno: 19)ERROR: b!!!" => vec!["INFO: a (errno: 19)", "ERROR: b!!!"])]
    #[test_case("ERROR: a" => vec!["ERROR: a"])]
    #[test_case("DEBUG: aDEBUG: bINFO: " => vec!["DEBUG: a", "DEBUG: b", "INFO:"])]
    #[test_case("éINFO: é" => vec!["é", "INFO: é"])]
    #[test_case("  " => Vec::<&str>::new())]
    fn forgotten_line_ends(line: &str) -> Vec<&str> {
        messages(line).collect()
    }

    #[test]
    fn values_that_open_memory_are_taken_out() {
        let line = "rem_base_addr=0x5609614a1a80, rem_buf_size=4096, rkey = 0x00005a5a, dc_key=, rkeys";
        assert_eq!(
            redact(line),
            "rem_base_addr=<hidden>, rem_buf_size=4096, rkey = <hidden>, dc_key=, rkeys"
        );
    }

    #[test]
    fn descriptors_are_taken_out() {
        let token = "0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10";
        assert_eq!(redact(&format!("bad token {token}, and {token}")), "bad token <hidden>, and <hidden>");
        for kept in ["fe80::1:2:3:4", "0x0102030405060708", "10:20:30", "é 0102030405060708 é", ""] {
            assert_eq!(redact(kept), kept);
        }
    }

    #[test]
    fn a_start_sees_the_errors_after_its_mark_only() {
        let recorder = Recorder::new();
        recorder.record("old");
        let mark = recorder.mark();
        assert!(recorder.since(mark).is_empty());
        for i in 0..KEPT_ERRORS + 2 {
            recorder.record(&i.to_string());
        }
        let lines = recorder.since(mark);
        assert_eq!(lines.len(), KEPT_ERRORS);
        assert_eq!(lines.last().unwrap(), &(KEPT_ERRORS + 1).to_string());
    }
}
