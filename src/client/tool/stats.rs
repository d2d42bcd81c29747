//! Latencies of a run, and what follows from them.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The latencies of one kind of request, in microseconds, with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum: Duration,
    min: Duration,
    max: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            // Bounds of the constructor: three digits are within 0 to 5, so it cannot fail.
            histogram: Histogram::new(3).expect("three significant digits are allowed"),
            sum: Duration::ZERO,
            min: Duration::MAX,
            max: Duration::ZERO,
        }
    }
}

impl Latencies {
    /// Adds a request.
    pub fn record(&mut self, latency: Duration) {
        // The histogram grows as needed; it would refuse only latencies of centuries.
        let _ = self.histogram.record(latency.as_micros().max(1) as u64);
        self.sum += latency;
        self.min = self.min.min(latency);
        self.max = self.max.max(latency);
    }

    /// Number of requests.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// True when there was no request.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Sum of all latencies.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Mean, shortest and longest. Zero when empty.
    pub fn mean_min_max(&self) -> (Duration, Duration, Duration) {
        if self.is_empty() {
            return Default::default();
        }
        (self.sum.div_f64(self.count() as f64), self.min, self.max)
    }

    /// The latency that `percent` of the requests do not exceed. Zero when empty.
    pub fn percentile(&self, percent: f64) -> Duration {
        if self.is_empty() {
            return Duration::ZERO;
        }
        Duration::from_micros(self.histogram.value_at_quantile(percent / 100.0)).clamp(self.min, self.max)
    }
}

/// Bytes per second as the decimal GB/s of the table; 0 for no time.
pub fn gigabytes_per_second(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 / time.as_secs_f64() / 1e9 }
}

/// Events per second; 0 for no time.
pub fn per_second(events: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { events as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_means() {
        let mut latencies = Latencies::default();
        for ms in 1..=100 {
            latencies.record(Duration::from_millis(ms));
        }
        assert_eq!(latencies.count(), 100);
        let (mean, min, max) = latencies.mean_min_max();
        assert_eq!(
            (mean, min, max),
            (Duration::from_micros(50_500), Duration::from_millis(1), Duration::from_millis(100))
        );
        let near = |percent: f64, ms: u64| {
            let found = latencies.percentile(percent).as_secs_f64();
            assert!((found / (ms as f64 / 1e3) - 1.0).abs() < 0.002, "{percent}: {found}");
        };
        near(50.0, 50);
        near(99.0, 99);
        near(100.0, 100);
    }

    #[test]
    fn nothing_gives_zeros() {
        let latencies = Latencies::default();
        assert_eq!(latencies.percentile(99.0), Duration::ZERO);
        assert_eq!(latencies.mean_min_max().0, Duration::ZERO);
        assert_eq!(gigabytes_per_second(1, Duration::ZERO), 0.0);
    }
}
