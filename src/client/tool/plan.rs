//! What the command line means, checked.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::args::{ConnectionArgs, MemoryArg, MemoryArgs, TestArgs, Verify};
use super::{Failure, args};
use crate::client::{
    Client, ClientBuilder, Credentials, Dialect, MAX_PARTS, MAX_TRANSFER, MemoryKind, Timeouts, Trust,
};
use crate::units::{format_size, parse_size};

/// Most bytes of one registration: cuObjClient's limit, 4 GiB − 64 KiB.
pub const MAX_REGISTRATION: u64 = (4 << 30) - (64 << 10);

/// What carries the bytes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// RDMA, with buffers in this memory.
    Rdma(MemoryKind),
    /// HTTP bodies.
    Standard,
}

impl Mode {
    /// The label in outputs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Rdma(MemoryKind::Gpu) => "real-cuda-cuobject-token",
            Self::Rdma(MemoryKind::Host) => "host-memory-cuobject-token",
            Self::Standard => "standard-s3",
        }
    }
}

/// Which requests an iteration makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// An upload, then a download of the same object.
    PutGet,
    /// Uploads.
    Put,
    /// Downloads.
    Get,
}

impl Operations {
    /// True when there are uploads.
    pub fn put(self) -> bool {
        self != Self::Get
    }

    /// True when there are downloads.
    pub fn get(self) -> bool {
        self != Self::Put
    }
}

/// When a worker is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many iterations.
    Iterations(u64),
    /// After this time.
    Elapsed(Duration),
}

/// A test, as it will be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The client, without what differs between runs.
    pub client: ClientBuilder,
    /// The endpoint, as typed.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The key of the first worker.
    pub key: String,
    /// Sizes to measure, in ascending order. Empty: the size of the object, of a GET-only run.
    pub sizes: Vec<u64>,
    /// True for a sweep.
    pub sweep: bool,
    /// Only standard S3.
    pub standard: bool,
    /// Requests of an iteration.
    pub operations: Operations,
    /// End of a worker.
    pub until: Until,
    /// Iterations before the measured ones.
    pub warmup: u64,
    /// Workers.
    pub concurrency: usize,
    /// Size of parts, for multipart uploads.
    pub part_size: Option<u64>,
    /// Part of the object to download, `start..end`.
    pub range: Option<Range<u64>>,
    /// How bytes are compared.
    pub verify: Verify,
    /// HTTP bodies where the gateway declines RDMA.
    pub fall_back: bool,
    /// Whether objects are deleted afterwards.
    pub cleanup: bool,
    /// Kind of memory, when it was named.
    pub memory: Option<MemoryKind>,
    /// Number of the CUDA device, when it was named.
    pub gpu: Option<u32>,
    /// Where JSON goes.
    pub json: Option<PathBuf>,
    /// Where the chart goes.
    pub plot: Option<PathBuf>,
    /// No rows.
    pub quiet: bool,
}

impl Plan {
    /// Checks the flags against each other.
    ///
    /// # Errors
    /// [`Failure::Usage`] naming the flag and the cure.
    pub fn new(args: &TestArgs) -> Result<Self, Failure> {
        let client = client(&args.connection)?;
        if args.bucket.is_empty() || args.bucket.contains('/') {
            return Err(Failure::Usage(format!("-bucket: {:?} is not a bucket name", args.bucket)));
        }
        if args.key.is_empty() {
            return Err(Failure::Usage("-key must not be empty".to_owned()));
        }
        let operations = match (args.put_only, args.get_only) {
            (true, _) => Operations::Put,
            (_, true) => Operations::Get,
            _ => Operations::PutGet,
        };
        let part_size =
            args.multipart.as_deref().map(|text| size("-multipart", text, MAX_TRANSFER)).transpose()?;
        let range = args.range.as_deref().map(parse_range).transpose()?;
        let sizes = sizes(args, part_size)?;
        if let (Some(part), Some(largest)) = (part_size, sizes.last())
            && largest.div_ceil(part) > u64::from(MAX_PARTS)
        {
            return Err(Failure::Usage(format!(
                "-multipart: {} in parts of {} are more than {MAX_PARTS} parts; use larger ones",
                format_size(*largest),
                format_size(part)
            )));
        }
        if let (Some(range), Some(largest)) = (&range, sizes.last())
            && range.end > *largest
        {
            return Err(Failure::Usage(format!(
                "-range: byte {} is past the end of an object of {largest} bytes",
                range.end - 1
            )));
        }
        let memory = memory(&args.memory)?;
        Ok(Self {
            client,
            endpoint: args.connection.endpoint.clone(),
            bucket: args.bucket.clone(),
            key: args.key.clone(),
            sizes,
            sweep: args.sweep.is_some(),
            standard: args.standard,
            operations,
            until: args.duration.map_or(Until::Iterations(args.iterations), |seconds| {
                Until::Elapsed(Duration::from_secs(seconds))
            }),
            warmup: args.warmup,
            concurrency: args.concurrency as usize,
            part_size,
            range,
            verify: args.verify,
            fall_back: args.connection.fall_back,
            cleanup: args.cleanup,
            memory,
            gpu: args.memory.gpu,
            json: args.json.clone(),
            plot: args.plot.clone(),
            quiet: args.quiet,
        })
    }

    /// True when JSON takes the place of the table.
    pub fn json_on_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// True when flags beyond the original's ask for more than its output.
    pub fn wants_percentiles(&self) -> bool {
        self.concurrency > 1 || self.warmup > 0 || matches!(self.until, Until::Elapsed(_))
    }

    /// Key of a worker's object.
    pub fn worker_key(&self, worker: usize) -> String {
        match (self.operations, worker) {
            (Operations::Get, _) | (_, 0) => self.key.clone(),
            _ => format!("{}-{worker}", self.key),
        }
    }
}

/// Which kind of memory was named.
pub(super) fn memory(args: &MemoryArgs) -> Result<Option<MemoryKind>, Failure> {
    match (args.memory, args.gpu) {
        (Some(MemoryArg::Host), Some(_)) => {
            Err(Failure::Usage("-gpu has no effect with -memory host; leave one of them out".to_owned()))
        }
        (Some(MemoryArg::Host), None) => Ok(Some(MemoryKind::Host)),
        (Some(MemoryArg::Gpu), _) | (None, Some(_)) => Ok(Some(MemoryKind::Gpu)),
        (None, None) => Ok(None),
    }
}

/// The client of a connection.
pub(super) fn client(args: &ConnectionArgs) -> Result<ClientBuilder, Failure> {
    if args.secret.is_empty() {
        let usage = args::usage();
        return Err(Failure::Usage(format!("-secret or AWS_SECRET_ACCESS_KEY is required\n\n{usage}")));
    }
    if args.insecure && args.ca_bundle.is_some() && !from_environment("AWS_CA_BUNDLE", args) {
        return Err(Failure::Usage(
            "-insecure and -ca-bundle contradict each other; leave one out".to_owned(),
        ));
    }
    let trust = match (&args.ca_bundle, args.insecure) {
        (_, true) => Trust::Anyone,
        (Some(path), false) => Trust::Bundle(path.clone()),
        (None, false) => Trust::System,
    };
    let session_token = args.session_token.clone().filter(|token| !token.is_empty());
    let credentials =
        Credentials::with_session_token(args.access.clone(), args.secret.clone(), session_token);
    let reply = Duration::from_secs(args.timeout);
    Ok(Client::builder(args.endpoint.clone())
        .credentials(credentials)
        .region(args.region.clone())
        .dialect(if args.legacy_headers { Dialect::Legacy } else { Dialect::Standard })
        .attempts(args.attempts)
        .timeouts(Timeouts { reply, ..Timeouts::default() })
        .trust(trust)
        .user_agent(concat!("cuobjtest/", env!("CARGO_PKG_VERSION"))))
}

/// True when the bundle was taken from the environment, where it may be set for other programs.
fn from_environment(name: &str, args: &ConnectionArgs) -> bool {
    std::env::var_os(name).is_some_and(|value| args.ca_bundle.as_deref() == Some(value.as_ref()))
}

fn sizes(args: &TestArgs, part_size: Option<u64>) -> Result<Vec<u64>, Failure> {
    if let Some(text) = &args.sweep {
        return sweep(text);
    }
    let most = if part_size.is_some() { MAX_REGISTRATION } else { MAX_TRANSFER };
    match (&args.size, args.get_only) {
        (Some(text), _) => Ok(vec![size("-size", text, most)?]),
        (None, true) => Ok(Vec::new()),
        (None, false) => Ok(vec![64 << 20]),
    }
}

pub(super) fn size(flag: &str, text: &str, most: u64) -> Result<u64, Failure> {
    let bytes = parse_size(text).map_err(|e| Failure::Usage(format!("{flag}: {e}")))?;
    if bytes == 0 || bytes > most {
        let hint =
            if flag == "-size" && most == MAX_TRANSFER { "; larger objects need -multipart" } else { "" };
        return Err(Failure::Usage(format!("{flag} must be between 1 B and {most} bytes{hint}")));
    }
    Ok(bytes)
}

/// Reads `4KiB..1GiB` and gives every size from the first to the last, four times the one before.
fn sweep(text: &str) -> Result<Vec<u64>, Failure> {
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| Failure::Usage(format!("-sweep: {text:?} is not of the form 4KiB..1GiB")))?;
    let (from, to) = (size("-sweep", from, MAX_TRANSFER)?, size("-sweep", to, MAX_TRANSFER)?);
    if from > to {
        return Err(Failure::Usage(format!("-sweep: {text:?} ends before it starts")));
    }
    let mut sizes: Vec<u64> =
        std::iter::successors(Some(from), |s| Some(s * 4)).take_while(|&s| s <= to).collect();
    if sizes.last() != Some(&to) {
        sizes.push(to);
    }
    Ok(sizes)
}

/// Reads `START-END`, both included.
fn parse_range(text: &str) -> Result<Range<u64>, Failure> {
    let wrong = |reason: String| Failure::Usage(format!("-range: {reason}"));
    let (first, last) =
        text.split_once('-').ok_or_else(|| wrong(format!("{text:?} is not of the form START-END")))?;
    let (first, last) = (parse_size(first).map_err(wrong)?, parse_size(last).map_err(wrong)?);
    if last < first {
        return Err(wrong(format!("{text:?} ends before it starts")));
    }
    if last - first >= MAX_TRANSFER {
        return Err(wrong(format!("more than {MAX_TRANSFER} bytes")));
    }
    Ok(first..last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use test_case::test_case;

    fn plan(line: &str) -> Result<Plan, Failure> {
        let words = format!("cuobjtest -secret s {line}");
        Plan::new(&args::parse(words.split_whitespace().map(OsString::from)).unwrap().test)
    }

    #[test_case("4KiB..64KiB" => vec![4096, 16384, 65536])]
    #[test_case("1KiB..10KiB" => vec![1024, 4096, 10240])]
    #[test_case("5..5" => vec![5])]
    fn sweeps(text: &str) -> Vec<u64> {
        plan(&format!("-sweep {text}")).unwrap().sizes
    }

    #[test_case("-size 0", "-size must be")]
    #[test_case("-size 1025MiB", "need -multipart")]
    #[test_case("-size many", "is not a size")]
    #[test_case("-sweep 4KiB", "4KiB..1GiB")]
    #[test_case("-sweep 4KiB..1KiB", "ends before")]
    #[test_case("-sweep 4KiB..2GiB", "must be between")]
    #[test_case("-size 1MiB -range 5-1", "ends before")]
    #[test_case("-size 1MiB -range 0-1048576", "past the end")]
    #[test_case("-size 1GiB -multipart 64KiB", "more than 10000 parts")]
    #[test_case("-memory host -gpu 1", "has no effect")]
    #[test_case("-bucket a/b", "bucket name")]
    #[test_case("-insecure -ca-bundle x.pem", "contradict")]
    fn refused(line: &str, text: &str) {
        let failure = plan(line).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)));
        assert!(failure.to_string().contains(text), "{failure}");
    }

    #[test]
    fn defaults_are_the_originals() {
        let plan = plan("").unwrap();
        assert_eq!(plan.sizes, [64 << 20]);
        assert_eq!(plan.until, Until::Iterations(3));
        assert_eq!((plan.bucket.as_str(), plan.key.as_str()), ("cuobjtest", "cuobjtest-object"));
        assert!(!plan.wants_percentiles());
    }

    #[test]
    fn a_range_counts_both_ends() {
        assert_eq!(plan("-size 1KiB -range 0-9").unwrap().range, Some(0..10));
    }

    #[test]
    fn get_only_workers_share_the_object() {
        let shared = plan("-get-only -concurrency 2").unwrap();
        assert_eq!(shared.worker_key(1), "cuobjtest-object");
        assert!(shared.sizes.is_empty());
        assert_eq!(plan("-concurrency 2").unwrap().worker_key(1), "cuobjtest-object-1");
    }

    #[test]
    fn multipart_lifts_the_limit_of_one_transfer() {
        assert_eq!(plan("-size 2GiB -multipart 64MiB").unwrap().sizes, [2 << 30]);
        assert!(plan("-size 4GiB -multipart 64MiB").is_err());
    }
}
