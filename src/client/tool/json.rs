//! Results as JSON.
//!
//! One object: `tool`, `version`, `endpoint`, `bucket`, `key`, `verify`, `outcome` (`verified`,
//! `mismatch`), and `runs`, one for each size and mode. Times are in seconds, rates in decimal GB/s.

use serde::Serialize;
use std::time::Duration;

use super::args::Verify;
use super::bench::Outcome;
use super::plan::Plan;
use super::stats::{Latencies, gigabytes_per_second, per_second};
use super::worker::{Check, Sample};

#[derive(Serialize)]
struct Document<'a> {
    tool: &'static str,
    version: &'a str,
    endpoint: &'a str,
    bucket: &'a str,
    key: &'a str,
    verify: &'static str,
    outcome: &'static str,
    runs: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    mode: &'static str,
    size_bytes: u64,
    concurrency: usize,
    part_bytes: Option<u64>,
    elapsed_seconds: f64,
    iterations: u64,
    verified: u64,
    mismatches: u64,
    retries: u64,
    fell_back: u64,
    put: Option<Side>,
    get: Option<Side>,
    samples: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Side {
    operations: u64,
    bytes: u64,
    gigabytes_per_second: f64,
    operations_per_second: f64,
    latency_seconds: Spread,
}

#[derive(Serialize)]
struct Spread {
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[derive(Serialize)]
struct Row<'a> {
    put_seconds: Option<f64>,
    get_seconds: Option<f64>,
    checksum: &'a str,
}

fn side(latencies: &Latencies, bytes: u64, time: Duration) -> Option<Side> {
    if latencies.is_empty() {
        return None;
    }
    let (mean, min, max) = latencies.mean_min_max();
    let at = |percent| latencies.percentile(percent).as_secs_f64();
    Some(Side {
        operations: latencies.count(),
        bytes,
        gigabytes_per_second: gigabytes_per_second(bytes, time),
        operations_per_second: per_second(latencies.count(), time),
        latency_seconds: Spread {
            min: min.as_secs_f64(),
            mean: mean.as_secs_f64(),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: max.as_secs_f64(),
        },
    })
}

fn row(sample: &Sample) -> Row<'_> {
    Row {
        put_seconds: sample.put.map(|t| t.as_secs_f64()),
        get_seconds: sample.get.map(|t| t.as_secs_f64()),
        checksum: match sample.check {
            Check::Ok => "ok",
            Check::Skipped => "skipped",
            Check::Mismatch { .. } => "mismatch",
        },
    }
}

/// The document, with a line feed at its end.
///
/// # Errors
/// Those of the serializer.
pub fn document(plan: &Plan, outcomes: &[Outcome]) -> serde_json::Result<String> {
    let runs = outcomes.iter().map(|outcome| Run {
        mode: outcome.task.mode.label(),
        size_bytes: outcome.task.size,
        concurrency: outcome.workers,
        part_bytes: plan.part_size,
        elapsed_seconds: outcome.elapsed.as_secs_f64(),
        iterations: outcome.iterations,
        verified: outcome.verified,
        mismatches: outcome.mismatches,
        retries: outcome.retries,
        fell_back: outcome.fell_back,
        put: side(&outcome.put, outcome.put_bytes, outcome.put_time()),
        get: side(&outcome.get, outcome.get_bytes, outcome.get_time()),
        samples: outcome.samples.iter().map(row).collect(),
    });
    let mismatch = outcomes.iter().any(|o| o.mismatches > 0);
    let unverified = outcomes.iter().all(|o| o.verified == 0);
    let document = Document {
        tool: "cuobjtest",
        version: crate::client::version(),
        endpoint: &plan.endpoint,
        bucket: &plan.bucket,
        key: &plan.key,
        verify: match plan.verify {
            Verify::None => "none",
            Verify::Crc32 => "crc32",
            Verify::Crc64 => "crc64",
        },
        outcome: match (mismatch, unverified) {
            (true, _) => "mismatch",
            (_, true) => "complete",
            _ => "verified",
        },
        runs: runs.collect(),
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}
