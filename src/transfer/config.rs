//! Settings of the engine.

use std::time::Duration;

/// Smallest and largest chunk, in bytes. The largest is what cuObject moves in one operation.
pub const CHUNK_SIZE_RANGE: std::ops::RangeInclusive<usize> = 4096..=1 << 30;

/// Page size that chunks are aligned to, in bytes.
pub const PAGE_SIZE: usize = 4096;

/// Settings of an [`Engine`](super::Engine).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Bytes moved by one operation, and the size every lease must have. A multiple of 4096.
    pub chunk_size: usize,
    /// Threads that drive channels, for each endpoint.
    pub lanes: usize,
    /// Channels that each lane owns.
    pub channels_per_lane: usize,
    /// Operations in flight on one channel; never more than the transport's own depth.
    pub channel_depth: usize,
    /// Chunks that one transfer may hold at a time.
    pub depth: usize,
    /// Transfers admitted at a time, running or waiting for their first chunk; beyond, `Busy`.
    pub max_transfers: usize,
    /// How long a transfer waits for its first chunk before it is refused as `Busy`.
    pub chunk_wait: Duration,
    /// How long an operation may stay without completion. Then its channel is taken out, and its
    /// memory is quarantined until the completion does come.
    pub completion_timeout: Duration,
    /// How often an operation that was flushed by another one's failure is tried again.
    pub flush_retries: u32,
    /// Threads for the blocking work of sinks, sources and digests.
    pub worker_threads: usize,
    /// How long a lane polls without a pause before it starts to sleep between polls.
    pub spin: Duration,
    /// Longest sleep of a lane between polls while operations are in flight.
    pub max_poll_interval: Duration,
    /// First pause before a failed endpoint is tried again; doubles up to 64 times this.
    pub endpoint_retry: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            chunk_size: 4 << 20,
            lanes: (cores / 4).clamp(1, 4),
            channels_per_lane: 8,
            channel_depth: 16,
            depth: 4,
            max_transfers: 4096,
            chunk_wait: Duration::from_secs(5),
            completion_timeout: Duration::from_secs(30),
            flush_retries: 3,
            worker_threads: (2 * cores).clamp(4, 64),
            spin: Duration::from_micros(if cores > 2 { 10 } else { 0 }),
            max_poll_interval: Duration::from_micros(500),
            endpoint_retry: Duration::from_millis(250),
        }
    }
}

/// A setting outside its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}, but must be {bounds}")]
pub struct ConfigError {
    /// Name of the field of [`EngineConfig`].
    pub setting: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it may be.
    pub bounds: &'static str,
}

impl EngineConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that is out of bounds, and the bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |setting, value: &dyn std::fmt::Debug, bounds| {
            Err(ConfigError { setting, value: format!("{value:?}"), bounds })
        };
        if !CHUNK_SIZE_RANGE.contains(&self.chunk_size) || !self.chunk_size.is_multiple_of(PAGE_SIZE) {
            return wrong("chunk_size", &self.chunk_size, "a multiple of 4096 from 4KiB to 1GiB");
        }
        for (setting, value) in [
            ("lanes", self.lanes),
            ("channels_per_lane", self.channels_per_lane),
            ("worker_threads", self.worker_threads),
        ] {
            if !(1..=1024).contains(&value) {
                return wrong(setting, &value, "from 1 to 1024");
            }
        }
        for (setting, value) in [
            ("channel_depth", self.channel_depth),
            ("depth", self.depth),
            ("max_transfers", self.max_transfers),
        ] {
            if value == 0 {
                return wrong(setting, &value, "at least 1");
            }
        }
        for (setting, value) in [
            ("completion_timeout", self.completion_timeout),
            ("max_poll_interval", self.max_poll_interval),
            ("endpoint_retry", self.endpoint_retry),
        ] {
            if value.is_zero() {
                return wrong(setting, &value, "longer than 0");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn defaults_are_valid() {
        EngineConfig::default().validate().unwrap();
    }

    #[test_case("chunk_size", |c| c.chunk_size = 0)]
    #[test_case("chunk_size", |c| c.chunk_size = 4097)]
    #[test_case("chunk_size", |c| c.chunk_size = (1 << 30) + 4096)]
    #[test_case("lanes", |c| c.lanes = 0)]
    #[test_case("channels_per_lane", |c| c.channels_per_lane = 0)]
    #[test_case("worker_threads", |c| c.worker_threads = 5000)]
    #[test_case("channel_depth", |c| c.channel_depth = 0)]
    #[test_case("depth", |c| c.depth = 0)]
    #[test_case("max_transfers", |c| c.max_transfers = 0)]
    #[test_case("completion_timeout", |c| c.completion_timeout = Duration::ZERO)]
    #[test_case("max_poll_interval", |c| c.max_poll_interval = Duration::ZERO)]
    #[test_case("endpoint_retry", |c| c.endpoint_retry = Duration::ZERO)]
    fn refused(setting: &str, spoil: fn(&mut EngineConfig)) {
        let mut config = EngineConfig::default();
        spoil(&mut config);
        let error = config.validate().unwrap_err();
        assert_eq!(error.setting, setting);
        assert!(error.to_string().starts_with(setting), "{error}");
    }
}
