//! The gateway measured end to end, each figure as a ratio to a base taken in the same run.
//!
//! `cargo bench --bench gateway` starts the real gateway on the software SDK over a tmpfs directory
//! and drives it through the client library. `-- --quick` uses small sizes and few rounds, to see
//! that it runs; `-- rdma`, `-- http`, `-- many`, `-- rest` take a part of the rows. A figure and its
//! bases are taken in turn, and the median of the rounds' ratios counts, so that a machine whose
//! speed drifts does not favour one of them.
//!
//! nginx is compared with where it is installed, s3s-fs where `S3S_FS` names its program (`cargo
//! install s3s-fs --features binary`), and another build of the gateway where `BASELINE` names it.

mod http;
mod measure;
mod rdma;
mod server;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use measure::Report;
use vgwrdma::client::RdmaSession;

/// How large and how often.
#[derive(Clone, Copy)]
struct Scale {
    object: usize,
    rounds: usize,
    http_object: usize,
    http_rounds: usize,
    clients: usize,
    small_rounds: usize,
}

const FULL: Scale = Scale {
    object: 256 << 20,
    rounds: 11,
    http_object: 64 << 20,
    http_rounds: 15,
    clients: 64,
    small_rounds: 16,
};
const QUICK: Scale =
    Scale { object: 8 << 20, rounds: 2, http_object: 8 << 20, http_rounds: 2, clients: 8, small_rounds: 4 };

#[tokio::main]
async fn run() -> Result<bool> {
    // `cargo test --benches` passes no arguments, `cargo bench` passes `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let says = |word: &str| arguments.iter().any(|a| a == word);
    let scale = if says("--bench") && !says("--quick") { FULL } else { QUICK };
    let parts = ["rdma", "http", "many", "rest"];
    let takes = |part: &str| says(part) || !parts.iter().any(|p| says(p));
    let session = RdmaSession::open()?;
    let mut report = Report::default();
    println!("load averages at the start: {}", measure::load());
    if takes("rdma") {
        rdma::large(scale, &session, &mut report).await?;
    }
    if takes("http") {
        http::large(scale, &session, &mut report).await?;
        http::small(scale, &session, &mut report).await?;
    }
    if takes("many") {
        rdma::many(scale, &session, &mut report).await?;
    }
    if takes("rest") {
        rdma::rest(&mut report).await?;
    }
    println!("\nload averages at the end: {}", measure::load());
    std::io::stdout().flush()?;
    Ok(report.missed)
}

fn main() -> ExitCode {
    match run() {
        Ok(missed) => {
            if missed {
                println!("\nsome targets were missed");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
