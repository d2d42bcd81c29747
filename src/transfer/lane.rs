//! A lane: one thread that drives some channels of one endpoint.
//!
//! Requests come through an inbox. The lane submits them to its least busy channel, polls while
//! anything is in flight, and answers each request. Idle, it sleeps until a request comes; busy, it
//! polls in a short spin and then at intervals that fit the operations (see [`Pace`]).

mod channels;
mod completion;
mod inbox;
mod submission;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::driven::{Driven, Outcome};
use super::pace::{MIN_INTERVAL, Pace};
use super::request::Request;
use super::router::{Port, Router};
use super::transport::{Channel, Completion};
use super::{EngineConfig, TransferError};
use channels::CONDEMNED_INTERVAL;
pub(super) use inbox::LaneInbox;

/// The thread's own state.
pub(super) struct Lane {
    inbox: Arc<LaneInbox>,
    port: Arc<Port>,
    router: Arc<Router>,
    config: EngineConfig,
    channels: Vec<Driven>,
    /// Channels with an operation that timed out, kept until it does complete.
    condemned: Vec<Driven>,
    /// Requests to submit before those of the inbox.
    again: VecDeque<Request>,
    completions: Vec<Completion>,
    outcomes: Vec<Outcome>,
    pace: Pace,
    next_number: u64,
    next_ticket: u64,
    reopen_at: Option<Instant>,
    reopen_pause: Duration,
    condemned_poll_at: Instant,
}

impl Lane {
    pub(super) fn new(
        inbox: Arc<LaneInbox>,
        port: Arc<Port>,
        router: Arc<Router>,
        config: EngineConfig,
        channels: Vec<Box<dyn Channel>>,
    ) -> Self {
        let now = Instant::now();
        let mut lane = Self {
            inbox,
            port,
            router,
            reopen_at: None,
            reopen_pause: config.endpoint_retry,
            config,
            channels: Vec::new(),
            condemned: Vec::new(),
            again: VecDeque::new(),
            completions: Vec::new(),
            outcomes: Vec::new(),
            pace: Pace::default(),
            next_number: 0,
            next_ticket: 0,
            condemned_poll_at: now,
        };
        for channel in channels {
            lane.add_channel(channel);
        }
        if lane.channels.len() < lane.config.channels_per_lane {
            lane.reopen_at = Some(now + lane.reopen_pause);
        }
        lane
    }

    /// Runs until the stop, and answers everything that is left, even after a panic.
    pub(super) fn run(mut self) {
        // The default slack of 50 µs would make every short sleep several times as long.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
        let inbox = Arc::clone(&self.inbox);
        if catch_unwind(AssertUnwindSafe(|| self.drive())).is_err() {
            tracing::error!(endpoint = self.port.name(), "a lane of the RDMA engine panicked");
        }
        inbox.channels.store(0, Ordering::Relaxed);
        let left = {
            let mut inner = inbox.inner.lock().expect("inbox lock");
            inner.closed = true;
            std::mem::take(&mut inner.requests)
        };
        inbox.queued.fetch_sub(left.len(), Ordering::Relaxed);
        for request in left.into_iter().chain(self.again.drain(..)) {
            inbox.load.fetch_sub(1, Ordering::Relaxed);
            request.fail(TransferError::ShuttingDown);
        }
        for mut driven in self.channels.drain(..).chain(self.condemned.drain(..)) {
            if driven.in_flight() > 0 {
                inbox.load.fetch_sub(driven.give_up(|| TransferError::ShuttingDown), Ordering::Relaxed);
            }
        }
    }

    fn drive(&mut self) {
        let mut moved_at = Instant::now();
        let mut stop_by = None;
        loop {
            let taken = self.take_requests();
            let ended = self.poll_channels();
            let now = Instant::now();
            if taken || ended {
                moved_at = now;
            }
            self.condemn_overdue(now);
            self.maintain(now);
            if self.inbox.stopping.load(Ordering::Acquire) {
                let stop_by = *stop_by.get_or_insert(now + self.config.completion_timeout);
                let busy = self.inbox.load() > 0 || self.condemned.iter().any(|c| c.in_flight() > 0);
                if !busy || now >= stop_by {
                    return;
                }
            }
            if !taken && !ended {
                self.pause(now, moved_at);
            }
        }
    }

    /// Waits for a request, for the next poll, or for the next maintenance.
    fn pause(&mut self, now: Instant, moved_at: Instant) {
        let longest = self.config.max_poll_interval;
        let next_poll = self.channels.iter().filter_map(|c| c.interval(now, &self.pace, longest)).min();
        if next_poll.is_some() && now.saturating_duration_since(moved_at) < self.config.spin {
            std::hint::spin_loop();
            return;
        }
        let mut limit =
            next_poll.or(self.reopen_at.map(|at| at.saturating_duration_since(now).max(MIN_INTERVAL)));
        if !self.condemned.is_empty() {
            limit = Some(limit.unwrap_or(CONDEMNED_INTERVAL).min(CONDEMNED_INTERVAL));
        }
        let room = self.channels.is_empty() || self.channels.iter().any(Driven::has_room);
        let mut inner = self.inbox.inner.lock().expect("inbox lock");
        if room && !inner.requests.is_empty()
            || self.inbox.stopping.load(Ordering::Acquire) && limit.is_none()
        {
            return;
        }
        inner.sleeping = room;
        inner = match limit {
            None => self.inbox.wake.wait(inner).expect("inbox lock"),
            Some(limit) => self.inbox.wake.wait_timeout(inner, limit).expect("inbox lock").0,
        };
        inner.sleeping = false;
    }
}
