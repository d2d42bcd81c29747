//! Channels in and out of service: lost ones are opened anew, those with an overdue operation are put
//! aside with its memory until it does complete.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Lane;
use crate::rdma::{self, WcStatus};
use crate::transfer::TransferError;
use crate::transfer::driven::Driven;
use crate::transfer::transport::Channel;

/// How often a condemned channel is looked at.
pub(super) const CONDEMNED_INTERVAL: Duration = Duration::from_millis(20);

impl Lane {
    pub(super) fn add_channel(&mut self, channel: Box<dyn Channel>) {
        self.channels.push(Driven::new(self.next_number, channel, self.config.channel_depth));
        self.next_number += 1;
    }

    /// Takes out a channel that is of no more use, or whose device is gone.
    pub(super) fn lose_channel(&mut self, at: usize, error: &rdma::Error) {
        let mut driven = self.channels.swap_remove(at);
        // Where a refusal said that the device is gone, poll completes what it can.
        let mut dead = false;
        while driven.in_flight() > 0 && !dead {
            let before = driven.in_flight();
            dead = driven.poll(&mut self.completions, &mut self.outcomes, &mut self.pace).is_err();
            self.settle();
            if driven.in_flight() == before {
                break;
            }
        }
        let left = driven.in_flight();
        tracing::warn!(endpoint = self.port.name(), %error, uncompleted = left, "RDMA channel lost");
        let is_live = left > 0 && !dead;
        if is_live {
            self.inbox.condemned.fetch_add(1, Ordering::Relaxed);
        } else {
            self.inbox.in_flight.fetch_sub(left, Ordering::Relaxed);
        }
        self.count_channels();
        let reported = driven.give_up(|| TransferError::Fabric { status: WcStatus::FATAL_ERR });
        self.inbox.load.fetch_sub(reported, Ordering::Relaxed);
        if is_live {
            self.condemned.push(driven);
        }
        // Else it drops here; by its contract it withholds what its device may still reach.
        self.reopen_at.get_or_insert(Instant::now() + self.reopen_pause);
    }

    /// Takes out the channels whose oldest operation is overdue.
    pub(super) fn condemn_overdue(&mut self, now: Instant) {
        let limit = self.config.completion_timeout;
        let overdue =
            |c: &Driven| c.oldest().is_some_and(|since| now.saturating_duration_since(since) >= limit);
        while let Some(at) = self.channels.iter().position(overdue) {
            let mut driven = self.channels.swap_remove(at);
            tracing::warn!(
                endpoint = self.port.name(),
                operations = driven.in_flight(),
                ?limit,
                "RDMA operations without completion; their channel and memory are put aside"
            );
            self.port.count_timeouts(driven.in_flight());
            // The books are right before anybody hears of it.
            self.inbox.condemned.fetch_add(1, Ordering::Relaxed);
            self.count_channels();
            let reported = driven.give_up(|| TransferError::Timeout { waited: limit });
            self.inbox.load.fetch_sub(reported, Ordering::Relaxed);
            self.condemned.push(driven);
            self.reopen_at.get_or_insert(now);
        }
    }

    /// Looks after channels that are out of service: polls the condemned, opens the missing.
    pub(super) fn maintain(&mut self, now: Instant) {
        if !self.condemned.is_empty() && now >= self.condemned_poll_at {
            self.condemned_poll_at = now + CONDEMNED_INTERVAL;
            self.poll_condemned();
        }
        let Some(at) = self.reopen_at else { return };
        if now < at || self.inbox.stopping.load(Ordering::Acquire) {
            return;
        }
        self.reopen_at = None;
        while self.channels.len() < self.config.channels_per_lane {
            match self.port.endpoint().open_channel() {
                Ok(channel) => {
                    self.add_channel(channel);
                    self.reopen_pause = self.config.endpoint_retry;
                }
                Err(error) => {
                    tracing::debug!(endpoint = self.port.name(), %error, "cannot open an RDMA channel yet");
                    self.reopen_at = Some(now + self.reopen_pause);
                    self.reopen_pause = (self.reopen_pause * 2).min(self.config.endpoint_retry * 64);
                    break;
                }
            }
        }
        self.count_channels();
    }

    fn poll_condemned(&mut self) {
        let mut kept = Vec::new();
        for mut driven in std::mem::take(&mut self.condemned) {
            let result = driven.poll(&mut self.completions, &mut self.outcomes, &mut self.pace);
            self.settle();
            match result {
                Ok(()) if driven.in_flight() > 0 => kept.push(driven),
                Ok(()) if self.channels.len() < self.config.channels_per_lane => {
                    self.inbox.condemned.fetch_sub(1, Ordering::Relaxed);
                    self.channels.push(driven);
                }
                result => {
                    self.inbox.condemned.fetch_sub(1, Ordering::Relaxed);
                    self.inbox.in_flight.fetch_sub(driven.in_flight(), Ordering::Relaxed);
                    if let Err(error) = result {
                        tracing::warn!(endpoint = self.port.name(), %error, "condemned RDMA channel lost");
                    }
                }
            }
        }
        self.condemned = kept;
        self.count_channels();
    }

    fn count_channels(&self) {
        self.inbox.channels.store(self.channels.len(), Ordering::Relaxed);
        self.port.channels_changed();
    }
}
