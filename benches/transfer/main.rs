//! How fast the engine moves bytes, as ratios to what the same machine does in the same run.
//!
//! `cargo bench --bench transfer -- [--quick] [--fabric cuobject] [--size 256MiB] [--chunk 4MiB] [--depth 4] [--lanes N]
//! [--channels N] [--workers N] [--pool N] [--runs 5] [--dir DIR] [FILTER …]`
//!
//! The client is in this process: with `--fabric memory` its bytes are copied by threads of the
//! endpoint, as a NIC would do it; with `--fabric cuobject` by cuObject. Files are made in `--dir`, by default `/dev/shm`.

mod fabric;
mod measure;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use vgwrdma::transfer::EngineConfig;
use vgwrdma::units::parse_size;

/// What to measure.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Small sizes and few runs: shows that the bench works, not how fast the engine is.
    #[arg(long)]
    quick: bool,
    /// What carries the bytes.
    #[arg(long, value_enum, default_value = "memory")]
    fabric: fabric::Kind,
    /// Bytes of a large object.
    #[arg(long, value_parser = parse_size, default_value = "256MiB")]
    size: u64,
    /// Bytes of a chunk.
    #[arg(long, value_parser = parse_size)]
    chunk: Option<u64>,
    /// Chunks of one transfer.
    #[arg(long)]
    depth: Option<usize>,
    /// Lanes.
    #[arg(long)]
    lanes: Option<usize>,
    /// Channels of a lane.
    #[arg(long)]
    channels: Option<usize>,
    /// Worker threads.
    #[arg(long)]
    workers: Option<usize>,
    /// Chunks of the pool.
    #[arg(long, default_value_t = 64)]
    pool: usize,
    /// Runs of each row; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Where files are made.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
    /// Only rows whose name holds one of these.
    filters: Vec<String>,
}

impl Options {
    fn config(&self) -> EngineConfig {
        let default = EngineConfig::default();
        EngineConfig {
            chunk_size: self.chunk.map_or(default.chunk_size, |c| c as usize),
            depth: self.depth.unwrap_or(default.depth),
            lanes: self.lanes.unwrap_or(default.lanes),
            channels_per_lane: self.channels.unwrap_or(default.channels_per_lane),
            worker_threads: self.workers.unwrap_or(default.worker_threads),
            ..default
        }
    }

    fn wants(&self, row: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|f| row.contains(f.as_str()))
    }
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.quick {
        options.size = options.size.min(8 << 20);
        options.runs = 1;
        options.pool = options.pool.min(16);
    }
    let config = options.config();
    println!(
        "chunk {} KiB, depth {}, {} lanes of {} channels, {} workers, {} cores, object {} MiB",
        config.chunk_size >> 10,
        config.depth,
        config.lanes,
        config.channels_per_lane,
        config.worker_threads,
        std::thread::available_parallelism().map_or(1, usize::from),
        options.size >> 20,
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match rows::all(&options, config, &runtime) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
