//! The program: start, signals, stop, exit code.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::cli::{Exit, Invocation, Verbosity};
use super::config::Config;
use super::{Gateway, startup};
use crate::units::format_size;

/// Exit codes of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// Stopped as asked.
    Success = 0,
    /// Could not start, or not all requests ended in time.
    Failure = 1,
    /// A mistake in the arguments.
    Usage = 2,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

/// Version of the program and of the library in it.
fn version() -> String {
    format!("vgwrdma {} ({})", env!("CARGO_PKG_VERSION"), startup::provider())
}

/// Runs the gateway with these arguments until it is told to stop.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let invocation = match Invocation::read(arguments, version) {
        Ok(invocation) => invocation,
        Err(Exit::Text(text)) => {
            // A reader that has gone needs no text.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return Code::Success.into();
        }
        Err(Exit::Usage(line)) => {
            eprintln!("vgwrdma: {line}");
            return Code::Usage.into();
        }
    };
    start_logging(invocation.verbosity);
    for warning in &invocation.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(invocation.config.concurrency.max(4))
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start the runtime: {error}")),
    };
    let code = runtime.block_on(serve(invocation.config));
    // Blocking calls that are stuck in the file system must not keep the program from ending.
    runtime.shutdown_background();
    code
}

fn failed(line: &str) -> ExitCode {
    eprintln!("vgwrdma: {line}");
    Code::Failure.into()
}

/// Logs go to standard error. `VGW_LOG` overrides the options, in the syntax of `EnvFilter`.
fn start_logging(verbosity: Verbosity) {
    let default = match verbosity {
        Verbosity::Quiet => "error",
        Verbosity::Normal => "info",
        Verbosity::Debug => "info,vgwrdma=debug",
    };
    let filter = EnvFilter::try_from_env("VGW_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // s3s logs whole requests with their headers: tokens and signatures have no place in a log.
    let filter = match "s3s=off".parse() {
        Ok(off) => filter.add_directive(off),
        Err(_) => filter,
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(ansi)
        .with_writer(std::io::stderr)
        .try_init();
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal; true when it is one to stop.
    async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            _ = self.hangup.recv() => false,
        }
    }

    /// Waits for a signal to stop.
    async fn stop(&mut self) {
        while !self.next().await {}
    }
}

async fn serve(config: Config) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return failed(&format!("cannot handle signals: {error}")),
    };
    let engine = match &config.rdma {
        None => None,
        Some(rdma) => {
            let rdma = rdma.clone();
            match tokio::task::spawn_blocking(move || startup::start_engine(&rdma)).await {
                Ok(Ok(engine)) => Some(Arc::new(engine)),
                Ok(Err(error)) => return failed(&error.to_string()),
                Err(error) => return failed(&format!("cannot start RDMA: {error}")),
            }
        }
    };
    let gateway = match Gateway::start(config, engine).await {
        Ok(gateway) => gateway,
        Err(error) => return failed(&error.to_string()),
    };
    announce(&gateway);
    while !signals.next().await {
        gateway.reload();
    }
    tracing::info!("stopping; a second signal ends at once");
    tokio::select! {
        complete = gateway.shutdown() => {
            if complete {
                tracing::info!("stopped");
                Code::Success.into()
            } else {
                failed("stopped before all requests had ended")
            }
        }
        () = signals.stop() => failed("stopped at once"),
    }
}

/// Says on standard output what runs where, one fact a line, for people and scripts.
fn announce(gateway: &Gateway) {
    let config = gateway.config();
    let mut out = std::io::stdout().lock();
    let mut lines = vec![format!("{} serving {}", version(), config.root.display())];
    match &config.rdma {
        Some(rdma) => {
            let addresses: Vec<String> = rdma.addresses.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "rdma on {} port {}, pool {} in chunks of {}, by {}",
                addresses.join(","),
                rdma.port,
                format_size(rdma.pool_bytes()),
                format_size(rdma.engine.chunk_size as u64),
                startup::provider()
            ));
        }
        None => lines.push("rdma off (no --rdma-ip): plain S3 only".to_owned()),
    }
    if let Some(address) = gateway.metrics_address() {
        lines.push(format!("metrics on {address}"));
    }
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    for address in gateway.addresses() {
        lines.push(format!("listening on {address} ({scheme})"));
    }
    for line in lines {
        // A reader that has gone does not stop the gateway.
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
}
