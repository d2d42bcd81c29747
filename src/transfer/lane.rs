//! A lane: one thread that drives some channels of one endpoint.
//!
//! Requests come through an inbox. The lane submits them to its least busy channel, polls while
//! anything is in flight, and answers each request. Idle, it sleeps until a request comes; busy, it
//! polls in a short spin and then at intervals that fit the operations (see [`Pace`]).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::driven::{Driven, Outcome};
use super::pace::{MIN_INTERVAL, Pace};
use super::request::Request;
use super::router::{Port, Router};
use super::transport::{Channel, Completion, Direction};
use super::{EngineConfig, TransferError};
use crate::rdma::{self, Errno, WcStatus};

/// How often a condemned channel is looked at, and deadlines are checked by a lane that sleeps.
const CONDEMNED_INTERVAL: Duration = Duration::from_millis(20);
/// Refusals in a row after which a channel is replaced.
const MAX_REFUSALS: u32 = 3;
/// A device that takes this many tries for one operation does not take it.
const MAX_ATTEMPTS_REFUSED: u32 = 1;

/// The part of a lane that other threads see.
pub(super) struct LaneInbox {
    inner: Mutex<Inbox>,
    wake: Condvar,
    /// Requests queued or in flight, for the choice between lanes.
    load: AtomicUsize,
    queued: AtomicUsize,
    in_flight: AtomicUsize,
    /// Channels in service.
    channels: AtomicUsize,
    condemned: AtomicUsize,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    requests: VecDeque<Request>,
    sleeping: bool,
    closed: bool,
}

impl LaneInbox {
    pub(super) fn new(channels: usize) -> Self {
        Self {
            inner: Mutex::default(),
            wake: Condvar::new(),
            load: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            channels: AtomicUsize::new(channels),
            condemned: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Queues a request; gives it back when the lane has ended.
    pub(super) fn push(&self, request: Request) -> Result<(), Request> {
        let mut inbox = self.inner.lock().expect("inbox lock");
        if inbox.closed {
            return Err(request);
        }
        inbox.requests.push_back(request);
        self.load.fetch_add(1, Ordering::Relaxed);
        self.queued.fetch_add(1, Ordering::Relaxed);
        let wake = std::mem::take(&mut inbox.sleeping);
        drop(inbox);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Ends the lane once nothing is in flight.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _inbox = self.inner.lock().expect("inbox lock");
        self.wake.notify_one();
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn channels(&self) -> usize {
        self.channels.load(Ordering::Relaxed)
    }

    pub(super) fn condemned(&self) -> usize {
        self.condemned.load(Ordering::Relaxed)
    }
}

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

    // --- requests

    /// Submits what there is room for. True when anything was taken.
    fn take_requests(&mut self) -> bool {
        let mut taken = false;
        loop {
            if self.channels.is_empty() {
                return self.hand_over() || taken;
            }
            if !self.channels.iter().any(Driven::has_room) {
                return taken;
            }
            let Some(request) = self.next_request() else { return taken };
            taken = true;
            if request.reply.is_wanted() {
                self.submit(request);
            } else {
                self.finish(request, Err(TransferError::ShuttingDown));
            }
        }
    }

    fn next_request(&mut self) -> Option<Request> {
        if let Some(request) = self.again.pop_front() {
            return Some(request);
        }
        if self.inbox.queued() == 0 {
            return None;
        }
        let request = self.inbox.inner.lock().expect("inbox lock").requests.pop_front();
        if request.is_some() {
            self.inbox.queued.fetch_sub(1, Ordering::Relaxed);
        }
        request
    }

    fn submit(&mut self, request: Request) {
        let Some(at) = self.least_busy(request.avoid) else {
            self.again.push_front(request);
            return;
        };
        self.next_ticket += 1;
        match self.channels[at].submit(request, self.next_ticket, Instant::now()) {
            Ok(()) => {
                self.inbox.in_flight.fetch_add(1, Ordering::Relaxed);
            }
            Err(refused) => {
                let Some(refused) = refused else {
                    self.inbox.load.fetch_sub(1, Ordering::Relaxed);
                    return;
                };
                let (request, error) = *refused;
                self.refused(at, request, error);
            }
        }
    }

    /// The channel with the fewest operations in flight; the one to avoid only when no other has room.
    fn least_busy(&self, avoid: Option<u64>) -> Option<usize> {
        (0..self.channels.len())
            .filter(|&i| self.channels[i].has_room())
            .min_by_key(|&i| (Some(self.channels[i].number) == avoid, self.channels[i].in_flight()))
    }

    fn refused(&mut self, at: usize, mut request: Request, error: rdma::Error) {
        match refusal(&error) {
            Refusal::DeviceGone => {
                self.lose_channel(at, &error);
                // Not this request's fault; another lane or endpoint takes it.
                self.again.push_front(request);
            }
            Refusal::Request => self.finish(request, Err(TransferError::Refused(error))),
            Refusal::Unclear => {
                if self.channels[at].refusals >= MAX_REFUSALS && self.channels[at].in_flight() == 0 {
                    self.lose_channel(at, &error);
                }
                if request.attempts < MAX_ATTEMPTS_REFUSED {
                    request.attempts += 1;
                    request.reply.retried();
                    self.port.count_retry();
                    self.again.push_back(request);
                } else {
                    self.finish(request, Err(TransferError::Refused(error)));
                }
            }
        }
    }

    /// Gives all requests to other lanes, since this one has no channel. True when there were any.
    fn hand_over(&mut self) -> bool {
        let mut any = false;
        while let Some(mut request) = self.next_request() {
            any = true;
            self.inbox.load.fetch_sub(1, Ordering::Relaxed);
            request.moves += 1;
            request.avoid = None;
            self.router.dispatch(&self.port, request);
        }
        any
    }

    /// Answers a request and strikes it off this lane's load.
    fn finish(&mut self, request: Request, outcome: Result<(), TransferError>) {
        self.inbox.load.fetch_sub(1, Ordering::Relaxed);
        match outcome {
            Ok(()) => request.reply.done(Ok(request.chunk)),
            Err(error) => request.fail(error),
        }
    }

    // --- completions

    /// Polls every channel with something in flight. True when anything ended.
    fn poll_channels(&mut self) -> bool {
        let mut ended = false;
        let mut at = 0;
        while at < self.channels.len() {
            if self.channels[at].in_flight() == 0 {
                at += 1;
                continue;
            }
            let result = self.channels[at].poll(&mut self.completions, &mut self.outcomes, &mut self.pace);
            ended |= !self.outcomes.is_empty();
            self.settle();
            match result {
                Ok(()) => at += 1,
                Err(error) => {
                    ended = true;
                    self.lose_channel(at, &error);
                }
            }
        }
        ended
    }

    /// Acts on the outcomes of a poll.
    fn settle(&mut self) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.inbox.in_flight.fetch_sub(outcomes.len(), Ordering::Relaxed);
        for outcome in outcomes.drain(..) {
            let Outcome::Completed(mut request, status) = outcome else { continue };
            if status.is_success() {
                self.port.count_done(request.direction == Direction::Read, request.length);
                self.finish(request, Ok(()));
                continue;
            }
            self.port.count_failure(status);
            let flushed = status == WcStatus::WR_FLUSH_ERR;
            if flushed && request.attempts < self.config.flush_retries && request.reply.is_wanted() {
                request.attempts += 1;
                request.reply.retried();
                self.port.count_retry();
                self.again.push_back(request);
            } else {
                self.finish(request, Err(TransferError::of_status(status)));
            }
        }
        self.outcomes = outcomes;
    }

    // --- channels

    fn add_channel(&mut self, channel: Box<dyn Channel>) {
        self.channels.push(Driven::new(self.next_number, channel, self.config.channel_depth));
        self.next_number += 1;
    }

    /// Takes out a channel that is of no more use, or whose device is gone.
    fn lose_channel(&mut self, at: usize, error: &rdma::Error) {
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
    fn condemn_overdue(&mut self, now: Instant) {
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
    fn maintain(&mut self, now: Instant) {
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

    // --- waiting

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

/// What a refused submission says about the device and the request.
enum Refusal {
    DeviceGone,
    Request,
    Unclear,
}

fn refusal(error: &rdma::Error) -> Refusal {
    match error {
        rdma::Error::Call { errno: Errno(libc::ENODEV), .. }
        | rdma::Error::NotConnected { .. }
        | rdma::Error::NoChannel { .. } => Refusal::DeviceGone,
        rdma::Error::Call { errno: Errno(libc::EAFNOSUPPORT | libc::EINVAL), .. }
        | rdma::Error::Invalid { .. } => Refusal::Request,
        _ => Refusal::Unclear,
    }
}
