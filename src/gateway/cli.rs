//! The command line: what was typed ([`Arguments`]), and what it means ([`Invocation`]).
//!
//! Names and environment variables are those of versitygw, as far as the same thing is meant.

mod posix;
mod rdma;
mod serve;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use super::config::Config;
pub use posix::PosixArguments;
pub use rdma::RdmaArguments;
pub use serve::ServeArguments;

const SERVING: &str = "Serving";
const ACCOUNTS: &str = "Accounts";
const RDMA: &str = "RDMA";
const RDMA_LIBRARY: &str = "RDMA tunables of cuObjServer";
const LOGS: &str = "Logs and metrics";

/// S3 gateway over a directory, with object bodies by RDMA (NVIDIA cuObject).
///
/// Serves the directory ROOT: its sub-directories are buckets, the files below them objects. With
/// --rdma-ip, clients that send an RDMA token move objects straight between their memory, also that
/// of a GPU, and the gateway. Options may stand before or after the word posix.
#[derive(Debug, Parser)]
#[command(name = "vgwrdma", disable_version_flag = true, max_term_width = 110)]
pub struct Arguments {
    /// Options of the gateway.
    #[command(flatten)]
    pub global: GlobalArguments,
    /// What is served.
    #[command(subcommand)]
    pub backend: Backend,
}

/// Options that are the same for whatever is served.
#[derive(Debug, Args)]
pub struct GlobalArguments {
    /// Listeners, accounts, limits, logs.
    #[command(flatten)]
    pub serve: ServeArguments,
    /// RDMA.
    #[command(flatten)]
    pub rdma: RdmaArguments,
    /// Print the version and the cuObject library in use
    #[arg(long, short = 'v', action = clap::ArgAction::SetTrue)]
    pub version: bool,
}

/// What is served.
#[derive(Debug, Subcommand)]
pub enum Backend {
    /// Serve a directory
    Posix(PosixArguments),
}

/// Why there is nothing to start.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// Help or version: a text for standard output, and success.
    Text(String),
    /// A mistake in the arguments: a line for standard error.
    Usage(String),
}

/// What to do.
#[derive(Debug)]
pub struct Invocation {
    /// The gateway.
    pub config: Config,
    /// Log filter.
    pub verbosity: Verbosity,
    /// Lines to tell the operator at the start.
    pub warnings: Vec<String>,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors only.
    Quiet,
    /// Starts, stops, warnings and errors.
    Normal,
    /// Every request too.
    Debug,
}

impl Invocation {
    /// Reads arguments, the first of which is the program's name, and the environment.
    ///
    /// # Errors
    /// See [`Exit`].
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        version: impl FnOnce() -> String,
    ) -> Result<Self, Exit> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        // The version needs no sub-command.
        let asks = |a: &OsString| a == "--version" || a == "-v";
        if arguments.iter().skip(1).take_while(|a| *a != "--").any(asks) {
            return Err(Exit::Text(format!("{}\n", version())));
        }
        let parsed = Arguments::try_parse_from(arguments).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Text(error.render().to_string()),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                Exit::Usage(
                    "nothing to serve; usage: vgwrdma [OPTIONS] posix [OPTIONS] ROOT (see --help)".into(),
                )
            }
            _ => Exit::Usage(one_line(&error.render().to_string())),
        })?;
        parsed.check().map_err(Exit::Usage)
    }
}

/// The message of a clap error without usage and hints to help.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let message: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    message.join(" ")
}

impl Arguments {
    /// Makes sense of what was typed.
    ///
    /// # Errors
    /// A line that names the option and the cure.
    pub fn check(self) -> Result<Invocation, String> {
        let Backend::Posix(posix) = self.backend;
        let mut warnings = Vec::new();
        let (access, secret) = self.global.serve.credentials()?;
        let mut config = Config::new(posix.root.clone(), access, secret);
        let verbosity = self.global.serve.apply(&mut config)?;
        posix.apply(&mut config)?;
        self.global.rdma.apply(&mut config, &mut warnings)?;
        Ok(Invocation { config, verbosity, warnings })
    }
}

/// Reads a number, in decimal or, after `0x`, hexadecimal.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not a number; write it in decimal, or as 0x1a2b"))
}

/// Reads permission bits in octal, `0755` or `755`.
fn mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| format!("{text:?} are not permission bits; write for example 0755"))
}

/// Reads seconds, also fractions: `5`, `0.5`.
fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("{text:?} is not a number of seconds");
    let number: f64 = text.trim_end_matches('s').parse().map_err(|_| wrong())?;
    std::time::Duration::try_from_secs_f64(number).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, EtagMode};
    use test_case::test_case;

    fn read(line: &str) -> Result<Invocation, Exit> {
        let words = std::iter::once("vgwrdma").chain(line.split_whitespace()).map(OsString::from);
        Invocation::read(words, || "version".into())
    }

    fn usage(line: &str) -> String {
        match read(line) {
            Err(Exit::Usage(text)) => {
                assert!(!text.contains('\n'), "{text}");
                text
            }
            other => panic!("{other:?}"),
        }
    }

    const KEYS: &str = "--access a --secret b";

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_before_and_after_the_word_posix() {
        for line in [
            "--access a --secret b --port 127.0.0.1:0 --region eu posix /srv",
            "posix --access a --secret b --port 127.0.0.1:0 --region eu /srv",
            "posix /srv --access a --secret b -p 127.0.0.1:0 --region eu",
        ] {
            let config = read(line).unwrap().config;
            assert_eq!(config.region, "eu");
            assert_eq!(config.listen.len(), 1);
            assert_eq!(config.listen[0].to_string(), "127.0.0.1:0");
            assert_eq!(config.root.to_str(), Some("/srv"));
            assert!(config.rdma.is_none());
        }
    }

    #[test]
    fn rdma_options() {
        let line = format!(
            "{KEYS} --rdma-ip 127.0.0.1 --rdma-ip 127.0.0.2 --pool-buf-size 16MiB --pool-buf-count 2 \
             --rdma-chunk-size 1MiB --rdma-dc-key 0x1234 --rdma-retry-count 5 --rdma-allow 10.0.0.0/8 \
             --rdma-token-header x-rdma-info posix --etag checksum --durability data /srv"
        );
        let invocation = read(&line).unwrap();
        let config = invocation.config;
        let rdma = config.rdma.unwrap();
        assert_eq!(rdma.addresses.len(), 2);
        assert_eq!((rdma.port, rdma.pool_bytes(), rdma.engine.chunk_size), (19100, 32 << 20, 1 << 20));
        assert_eq!((rdma.tunables.dc_key, rdma.tunables.retry_count), (0x1234, 5));
        assert_eq!((config.etag, config.store.durability), (EtagMode::Checksum, Durability::Data));
        assert_eq!((config.tokens.allow.len(), config.tokens.extra_headers.len()), (1, 1));
        assert!(invocation.warnings.is_empty());
    }

    #[test]
    fn the_default_dc_key_is_warned_about() {
        let line =
            format!("{KEYS} --rdma-ip 127.0.0.1 --pool-buf-size 1MiB --rdma-chunk-size 1MiB posix /srv");
        let warnings = read(&line).unwrap().warnings;
        assert!(warnings.iter().any(|w| w.contains("--rdma-dc-key")), "{warnings:?}");
    }

    #[test_case("--nonsense posix /srv", "--nonsense"; "unknown option")]
    #[test_case("posix", "ROOT"; "no root")]
    #[test_case("", "posix"; "nothing")]
    #[test_case("--access a posix /srv", "--secret"; "no secret")]
    #[test_case("--secret a posix /srv", "--access"; "no access")]
    #[test_case("--access a --secret b --port 99999 posix /srv", "99999"; "bad port")]
    #[test_case("--access a --secret b --cert x posix /srv", "--key"; "certificate without key")]
    #[test_case("--access a --secret b --rdma-ip nonsense posix /srv", "--rdma-ip"; "bad address")]
    #[test_case("--access a --secret b --rdma-ip 1.2.3.4 --pool-buf-size 1parsec posix /srv", "unknown unit"; "bad unit")]
    #[test_case("--access a --secret b --rdma-ip 1.2.3.4 --pool-buf-size 0 posix /srv", "--pool-buf-size"; "empty pool")]
    #[test_case("--access a --secret b --rdma-ip 1.2.3.4 --rdma-retry-count 8 posix /srv", "--rdma-retry-count"; "retries")]
    #[test_case("--access a --secret b --rdma-ip 1.2.3.4 --pool-buf-size 1TiB --pool-buf-count 900 posix /srv", "does not fit"; "pool too large")]
    #[test_case("--access a --secret b --rdma-ip 1.2.3.4 --rdma-chunk-size 5000 posix /srv", "--rdma-chunk-size"; "odd chunk")]
    #[test_case("--access a --secret b --rdma-ip 1.2.3.4 --pool-buf-size 64KiB --pool-buf-count 1 posix /srv", "--rdma-chunk-size"; "chunk larger than the pool")]
    #[test_case("--access a --secret b --rdma-allow 10.0.0.0/99 posix /srv", "--rdma-allow"; "bad network")]
    #[test_case("--access a --secret b --virtual-domain a..b posix /srv", "--virtual-domain"; "bad domain")]
    #[test_case("--access a --secret b --health nothing posix /srv", "--health"; "bad path")]
    #[test_case("--access a --secret b posix --dir-perms 9 /srv", "--dir-perms"; "bad mode")]
    #[test_case("--access a --secret b posix --durability some /srv", "--durability"; "bad durability")]
    #[test_case("--access a --secret b --max-requests 0 posix /srv", "--max-requests"; "no requests")]
    fn mistakes_are_one_line(line: &str, names: &str) {
        let text = usage(line);
        assert!(text.contains(names), "{text}");
    }

    #[test]
    fn help_and_version() {
        let Err(Exit::Text(help)) = read("--help") else { panic!("no help") };
        for word in ["--rdma-ip", "VGW_PORT", "--durability", "[default: :7070]"] {
            let Err(Exit::Text(posix)) = read("posix --help") else { panic!("no help") };
            assert!(help.contains(word) || posix.contains(word), "{word} in {help}");
        }
        assert_eq!(read("-v").unwrap_err(), Exit::Text("version\n".into()));
        assert_eq!(read("posix --version").unwrap_err(), Exit::Text("version\n".into()));
    }

    #[test]
    fn small_parsers() {
        assert_eq!(number("0xffeeddcc"), Ok(0xffee_ddcc));
        assert_eq!(number("12"), Ok(12));
        assert!(number("0xg").is_err());
        assert_eq!(mode("0755"), Ok(0o755));
        assert!(mode("77777").is_err());
        assert_eq!(seconds("0.5"), Ok(std::time::Duration::from_millis(500)));
        assert!(seconds("-1").is_err());
    }
}
