//! The command line of `cuobjtest`.
//!
//! Long flags take one dash or two: scripts for the tool that this one takes the place of write
//! `-endpoint`, in the manner of Go's `flag` package. [`with_two_dashes`] rewrites them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

const CONNECTION: &str = "Connection";
const WORK: &str = "Work";
const MEMORY: &str = "Memory";
const OUTPUT: &str = "Output";

/// Measures and verifies S3 transfers over RDMA, beside standard S3.
///
/// Random data is uploaded from registered memory, the memory is overwritten, the object is
/// downloaded into it, and checksums are compared.
#[derive(Debug, Parser)]
#[command(name = "cuobjtest", version = crate::client::version(), args_conflicts_with_subcommands = true)]
#[command(after_long_help = "\
Exit codes: 0 verified, 1 data or protocol failure, 2 usage, 3 asked-for hardware absent, 130 interrupted.

Environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_CA_BUNDLE as the flags. \
VGWRDMA_RDMA_DEV, VGWRDMA_RDMA_PORT, VGWRDMA_GID_INDEX and VGWRDMA_DC_KEY choose the RDMA device, its port, \
its GID and the DC key of the client.")]
pub struct Cli {
    /// Another task than a test.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The test.
    #[command(flatten)]
    pub test: TestArgs,
}

/// Tasks beside the test.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copies one file to or from the gateway by RDMA; one side is s3://bucket/key.
    Cp(CopyArgs),
    /// Lists RDMA devices, marks the one that would be used, and says what is missing.
    Devices(DevicesArgs),
}

/// Flags of all tasks that speak to the gateway.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// URL of the gateway.
    #[arg(long, value_name = "URL", default_value = "http://localhost:7070", help_heading = CONNECTION)]
    pub endpoint: String,
    /// S3 access key.
    #[arg(long, value_name = "KEY", env = "AWS_ACCESS_KEY_ID", default_value = "admin", help_heading = CONNECTION)]
    pub access: String,
    /// S3 secret key. Prefer the environment: flags show in histories and process lists.
    #[arg(long, value_name = "KEY", env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true, default_value = "",
          hide_default_value = true, help_heading = CONNECTION)]
    pub secret: String,
    /// Token of temporary credentials.
    #[arg(long, value_name = "TOKEN", env = "AWS_SESSION_TOKEN", hide_env_values = true, help_heading = CONNECTION)]
    pub session_token: Option<String>,
    /// S3 region.
    #[arg(long, value_name = "REGION", default_value = "us-east-1", help_heading = CONNECTION)]
    pub region: String,
    /// Trusts only the certificate authorities in this PEM file.
    #[arg(long, value_name = "FILE", env = "AWS_CA_BUNDLE", help_heading = CONNECTION)]
    pub ca_bundle: Option<PathBuf>,
    /// Accepts any TLS certificate.
    #[arg(long, help_heading = CONNECTION)]
    pub insecure: bool,
    /// Longest wait for a reply.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..),
          help_heading = CONNECTION)]
    pub timeout: u64,
    /// Attempts for each request, each with a fresh token.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10),
          help_heading = CONNECTION)]
    pub attempts: u32,
    /// Sends the token in the three X-CuObj headers instead of x-amz-rdma-token.
    #[arg(long, help_heading = CONNECTION)]
    pub legacy_headers: bool,
    /// Sends the body over HTTP when the gateway declines RDMA, instead of failing.
    #[arg(long, help_heading = CONNECTION)]
    pub fall_back: bool,
}

/// Flags that choose memory.
#[derive(Debug, Clone, Args)]
pub struct MemoryArgs {
    /// Memory of the buffers. Default: gpu where a CUDA device is present and the client library can use it.
    #[arg(long, value_enum, help_heading = MEMORY)]
    pub memory: Option<MemoryArg>,
    /// Number of the CUDA device.
    #[arg(long, value_name = "N", help_heading = MEMORY)]
    pub gpu: Option<u32>,
}

/// Flags of the test.
#[derive(Debug, Clone, Args)]
pub struct TestArgs {
    /// Where the gateway is, and who asks.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Bucket; made when absent.
    #[arg(long, value_name = "NAME", default_value = "cuobjtest", help_heading = CONNECTION)]
    pub bucket: String,
    /// Object key. With --concurrency, workers after the first append `-1`, `-2` and so on.
    #[arg(long, value_name = "KEY", default_value = "cuobjtest-object", help_heading = CONNECTION)]
    pub key: String,

    /// Bytes of each transfer: 4MiB, 1GiB, 1000000. Default 64MiB; with --get-only the object's size.
    #[arg(long, value_name = "SIZE", help_heading = WORK)]
    pub size: Option<String>,
    /// Iterations of each worker.
    #[arg(short = 'n', long = "n", visible_alias = "iterations", value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..), help_heading = WORK)]
    pub iterations: u64,
    /// Uploads only.
    #[arg(long, conflicts_with = "get_only", help_heading = WORK)]
    pub put_only: bool,
    /// Downloads only; the object must be there. Verified against its stored checksum, if it has one.
    #[arg(long, help_heading = WORK)]
    pub get_only: bool,
    /// Standard S3, with bodies over HTTP.
    #[arg(long = "std-s3", help_heading = WORK)]
    pub standard: bool,
    /// Workers, each with its own thread, connection and buffer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024),
          help_heading = WORK)]
    pub concurrency: u32,
    /// Runs for this long instead of a number of iterations.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..),
          conflicts_with = "iterations", help_heading = WORK)]
    pub duration: Option<u64>,
    /// Iterations of each worker before the measured ones.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = WORK)]
    pub warmup: u64,
    /// Measures sizes from the first to the second, four times larger each, RDMA beside standard S3
    /// (with --std-s3, standard S3 only).
    #[arg(long, value_name = "FROM..TO", conflicts_with_all = ["size", "range", "multipart", "get_only", "duration"],
          help_heading = WORK)]
    pub sweep: Option<String>,
    /// Uploads in parts of this size; the object may then be larger than 1 GiB.
    #[arg(long, value_name = "SIZE", conflicts_with = "get_only", help_heading = WORK)]
    pub multipart: Option<String>,
    /// Downloads only these bytes of the object, first and last included, as in an HTTP range.
    #[arg(long, value_name = "START-END", conflicts_with = "put_only", help_heading = WORK)]
    pub range: Option<String>,
    /// How downloaded bytes are compared with uploaded ones. crc64 also has the gateway check the
    /// upload, with --multipart each part and the whole.
    #[arg(long, value_enum, default_value_t = Verify::Crc32, help_heading = WORK)]
    pub verify: Verify,
    /// Deletes the objects afterwards.
    #[arg(long, conflicts_with = "get_only", help_heading = WORK)]
    pub cleanup: bool,

    /// What buffers are made of.
    #[command(flatten)]
    pub memory: MemoryArgs,

    /// Writes results as JSON to a file, or in place of the table to standard output (`-`).
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// Draws throughput and latency by size into an SVG file.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub plot: Option<PathBuf>,
    /// Leaves out the row of each iteration.
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// Flags of `cuobjtest cp`.
#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    /// What is copied: a file, or s3://bucket/key.
    #[arg(value_name = "SRC")]
    pub source: String,
    /// Where it goes: s3://bucket/key (the bucket must be there), or a file, which is replaced.
    #[arg(value_name = "DST")]
    pub destination: String,
    /// Where the gateway is, and who asks.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// What buffers are made of.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Standard S3, with bodies over HTTP.
    #[arg(long = "std-s3", help_heading = WORK)]
    pub standard: bool,
    /// Uploads in parts of this size. Files of more than 1 GiB go in parts of 256MiB without it.
    #[arg(long, value_name = "SIZE", help_heading = WORK)]
    pub multipart: Option<String>,
}

/// Flags of `cuobjtest devices`.
#[derive(Debug, Clone, Args)]
pub struct DevicesArgs {
    /// Writes JSON.
    #[arg(long)]
    pub json: bool,
    /// URL of the gateway, to choose the device that reaches it.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Directory that holds `sys` and `proc`.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub root: PathBuf,
}

/// How bytes are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// Not at all.
    None,
    /// CRC-32.
    Crc32,
    /// CRC-64/NVME, also sent with uploads.
    Crc64,
}

/// Kind of memory, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemoryArg {
    /// Memory of a CUDA device.
    Gpu,
    /// Memory of the host.
    Host,
}

/// Parses the process' arguments.
///
/// # Errors
/// Clap's error; also for `--help` and `--version`, which it prints and ends with code 0.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(with_two_dashes(arguments))
}

/// The usage line, for errors that clap does not see.
pub(crate) fn usage() -> String {
    Cli::command().render_usage().to_string()
}

/// Gives a second dash to every long flag that has one, and reads `-flag=true` and `-flag=false`
/// of switches as Go does.
pub fn with_two_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let command = Cli::command();
    let of = |command: &clap::Command| -> Vec<(String, bool)> {
        let flags = command.get_arguments().flat_map(|arg| {
            let switch = matches!(arg.get_action(), ArgAction::SetTrue);
            let names = arg.get_long_and_visible_aliases().unwrap_or_default();
            names.into_iter().map(|name| (name.to_owned(), switch)).collect::<Vec<_>>()
        });
        flags.chain([("help".to_owned(), true), ("version".to_owned(), true)]).collect()
    };
    let mut flags = of(&command);
    flags.extend(command.get_subcommands().flat_map(of));

    let mut rewritten = Vec::new();
    let mut literal = false;
    for (position, argument) in arguments.into_iter().enumerate() {
        let text = argument.to_str().unwrap_or_default();
        literal |= text == "--";
        let body = text.strip_prefix("--").or_else(|| text.strip_prefix('-'));
        let (Some(body), false, true) = (body, literal, position > 0) else {
            rewritten.push(argument);
            continue;
        };
        let (name, value) = body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
        match flags.iter().find(|(flag, _)| flag == name && (name.len() > 1 || text.starts_with("--"))) {
            Some((_, true)) if matches!(value, Some("true" | "1" | "t" | "T" | "TRUE" | "True")) => {
                rewritten.push(format!("--{name}").into());
            }
            Some((_, true)) if matches!(value, Some("false" | "0" | "f" | "F" | "FALSE" | "False")) => {}
            Some(_) => rewritten.push(format!("--{body}").into()),
            // So that clap names the unknown flag and not the short one that it begins with.
            None if name.len() > 1 && !short_with_value(body) => rewritten.push(format!("--{body}").into()),
            None => rewritten.push(argument),
        }
    }
    rewritten
}

/// True for `n5` and `n=5`, where the value is glued to the short flag.
fn short_with_value(body: &str) -> bool {
    body.strip_prefix('n').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test_case("-endpoint http://g:1 -put-only", "--endpoint http://g:1 --put-only"; "one dash")]
    #[test_case("--endpoint=http://g:1 -size=4MiB", "--endpoint=http://g:1 --size=4MiB"; "with equals")]
    #[test_case("-n 5 -n=5", "-n 5 -n=5"; "short stays short")]
    #[test_case("--n 5", "--n 5"; "n with two dashes")]
    #[test_case("-std-s3=true -put-only=false", "--std-s3"; "switches with values")]
    #[test_case("-std-s3=maybe", "--std-s3=maybe"; "bad value is left to clap")]
    #[test_case("-nonsense -n5", "--nonsense -n5"; "unknown")]
    #[test_case("-help", "--help"; "help")]
    #[test_case("devices -json", "devices --json"; "subcommand")]
    #[test_case("-- -size", "-- -size"; "after two dashes")]
    fn dashes(typed: &str, rewritten: &str) {
        let words = |text: &str| -> Vec<OsString> {
            std::iter::once("cuobjtest").chain(text.split(' ')).map(OsString::from).collect()
        };
        assert_eq!(with_two_dashes(words(typed)), words(rewritten));
    }

    #[test]
    fn the_flags_of_the_original_are_taken() {
        let line = "cuobjtest -endpoint http://g:1 -bucket b -key k -size 4MiB -n 2 -access a -secret s -region r \
                    -get-only -std-s3";
        let cli = parse(line.split_whitespace().map(OsString::from)).unwrap();
        assert_eq!(cli.test.iterations, 2);
        assert!(cli.test.get_only && cli.test.standard);
        assert_eq!(cli.test.size.as_deref(), Some("4MiB"));
    }
}
