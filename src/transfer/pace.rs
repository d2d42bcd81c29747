//! When to poll next: an estimate of how long operations take, learnt from those that ended.
//!
//! Polling costs processor time and sleeping too long costs throughput. So a lane sleeps through
//! most of the time that an operation of this size has lately taken, and from then on by a fraction
//! of the time that has passed: a completion is seen late by that fraction at most, whatever the
//! speed of the device.

use std::time::Duration;

/// Shortest sleep between polls.
pub(super) const MIN_INTERVAL: Duration = Duration::from_micros(10);
/// Operations below this say more about latency than about speed, in bytes.
const LEARN_FROM: usize = 64 << 10;

/// The speed of operations, as one lane sees them complete.
#[derive(Debug, Default)]
pub(super) struct Pace {
    nanos_per_kib: f64,
}

impl Pace {
    /// An operation of `length` bytes has taken `time`, not counting the wait behind others.
    pub(super) fn learn(&mut self, length: usize, time: Duration) {
        if length < LEARN_FROM {
            return;
        }
        let seen = time.as_nanos() as f64 / (length as f64 / 1024.0);
        // What was seen includes the sleep, so that an estimate that is too long confirms itself
        // in part; it is believed more readily downwards.
        let weight = if seen < self.nanos_per_kib { 0.5 } else { 0.125 };
        self.nanos_per_kib += weight * (seen - self.nanos_per_kib);
    }

    /// How long to sleep before an operation of `length` bytes, under way for `age`, is looked at.
    pub(super) fn interval(&self, length: usize, age: Duration, longest: Duration) -> Duration {
        let expected = Duration::from_nanos((self.nanos_per_kib * length as f64 / 1024.0) as u64);
        let most_of_it = expected * 3 / 4;
        let wait = if age < most_of_it { most_of_it - age } else { age / 8 };
        wait.clamp(MIN_INTERVAL.min(longest), longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const LONGEST: Duration = Duration::from_millis(5);

    #[test]
    fn sleeps_through_most_of_what_is_expected_and_then_looks_often() {
        let mut pace = Pace::default();
        assert_eq!(pace.interval(4 * MIB, Duration::ZERO, LONGEST), MIN_INTERVAL);
        for _ in 0..100 {
            pace.learn(4 * MIB, Duration::from_micros(400));
        }
        let first = pace.interval(4 * MIB, Duration::ZERO, LONGEST);
        assert!((290..=300).contains(&first.as_micros()), "{first:?}");
        assert_eq!(pace.interval(4 * MIB, Duration::from_micros(400), LONGEST).as_micros(), 50);
        assert_eq!(pace.interval(4096, Duration::ZERO, LONGEST), MIN_INTERVAL);
        assert_eq!(pace.interval(4 * MIB, Duration::from_secs(1), LONGEST), LONGEST);
        assert_eq!(pace.interval(400 * MIB, Duration::ZERO, LONGEST), LONGEST);
    }

    /// Completions seen as late as the sleeps make them still lead to the true time.
    #[test]
    fn an_estimate_that_is_too_long_comes_down() {
        let mut pace = Pace::default();
        pace.learn(MIB, Duration::from_millis(80));
        let truth = Duration::from_micros(100);
        for _ in 0..60 {
            let mut age = Duration::ZERO;
            while age < truth {
                age += pace.interval(MIB, age, Duration::from_secs(1));
            }
            pace.learn(MIB, age);
        }
        let first = pace.interval(MIB, Duration::ZERO, Duration::from_secs(1));
        assert!(first < truth, "{first:?}");
    }

    #[test]
    fn small_operations_teach_nothing() {
        let mut pace = Pace::default();
        pace.learn(4096, Duration::from_secs(1));
        assert_eq!(pace.interval(MIB, Duration::ZERO, LONGEST), MIN_INTERVAL);
    }
}
