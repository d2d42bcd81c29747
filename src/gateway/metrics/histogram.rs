//! A histogram of durations with fixed bounds.

use std::fmt::Write as _;
use std::time::Duration;

/// Upper bounds in microseconds: 100 µs to 100 s, three a decade.
const BOUNDS_US: [u64; 19] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];

/// Counts of durations up to each bound, and above the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    counts: [u64; BOUNDS_US.len() + 1],
    sum_us: u128,
}

impl Histogram {
    pub(super) fn record(&mut self, duration: Duration) {
        let us = duration.as_micros();
        let slot = BOUNDS_US.partition_point(|bound| u128::from(*bound) < us);
        self.counts[slot] += 1;
        self.sum_us += us;
    }

    /// Appends the samples; `labels` without braces.
    pub(super) fn render(&self, out: &mut String, name: &str, labels: &str) {
        let mut total = 0;
        // Writing to a String cannot fail.
        for (bound, count) in BOUNDS_US.iter().zip(&self.counts) {
            total += count;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {total}", seconds(u128::from(*bound)));
        }
        total += self.counts[BOUNDS_US.len()];
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {total}");
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", seconds(self.sum_us));
        let _ = writeln!(out, "{name}_count{{{labels}}} {total}");
    }
}

fn seconds(us: u128) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_inclusive() {
        let mut histogram = Histogram::default();
        for us in [50, 100, 101, 200_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let mut out = String::new();
        histogram.render(&mut out, "t", "a=\"b\"");
        assert!(out.contains("t_bucket{a=\"b\",le=\"0.0001\"} 2\n"));
        assert!(out.contains("t_bucket{a=\"b\",le=\"0.0002\"} 3\n"));
        assert!(out.contains("t_bucket{a=\"b\",le=\"100\"} 3\n"));
        assert!(out.contains("t_bucket{a=\"b\",le=\"+Inf\"} 4\n"));
        assert!(out.contains("t_count{a=\"b\"} 4\n"));
        assert!(out.contains("t_sum{a=\"b\"} 200.000251\n"));
    }
}
