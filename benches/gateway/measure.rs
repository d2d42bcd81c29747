//! Medians, ratios and rows.

use std::time::Instant;

use anyhow::{Result, anyhow};
use vgwrdma::client::Buffer;

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn percentile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

pub(crate) fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// How many times faster `this` is than `base`: the median over rounds, in which both were taken one
/// after the other.
pub(crate) fn speed(this: &[f64], base: &[f64]) -> f64 {
    let ratios: Vec<f64> = this.iter().zip(base).map(|(this, base)| base / this).collect();
    median(&ratios)
}

/// GB/s of the median round.
pub(crate) fn rate(bytes: usize, seconds: &[f64]) -> f64 {
    bytes as f64 / median(seconds) / 1e9
}

/// What a row is to reach.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Only to be seen.
    None,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) missed: bool,
}

impl Report {
    /// One row: a ratio, what it is a ratio of, and the target.
    pub(crate) fn row(&mut self, what: &str, ratio: f64, target: Target) {
        let (met, target) = match target {
            Target::AtLeast(t) => (ratio >= t, format!(">= {t}")),
            Target::AtMost(t) => (ratio <= t, format!("<= {t}")),
            Target::None => (true, String::new()),
        };
        self.missed |= !met;
        let verdict = match (met, target.is_empty()) {
            (_, true) => "",
            (true, _) => "met",
            (false, _) => "MISSED",
        };
        println!("{what:<66} {ratio:>7.2}  {target:<8} {verdict}");
    }
}

/// Fills a buffer with random blocks.
pub(crate) fn randomize(buffer: &mut Buffer) -> Result<()> {
    let mut block = vec![0u8; 1 << 20];
    getrandom::fill(&mut block).map_err(|e| anyhow!("{e}"))?;
    for at in (0..buffer.len()).step_by(block.len()) {
        let n = block.len().min(buffer.len() - at);
        buffer.copy_in(at, &block[..n])?;
    }
    Ok(())
}

/// The load averages of the machine.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
