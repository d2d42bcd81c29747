//! A channel with the operations that a lane has given to it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::TransferError;
use super::pace::Pace;
use super::request::{Pending, Request};
use super::transport::{Channel, Completion, Rejected};
use crate::rdma;

/// A channel, what is in flight on it, and since when.
pub(super) struct Driven {
    /// Number of the channel in its lane; never used twice.
    pub(super) number: u64,
    channel: Box<dyn Channel>,
    depth: usize,
    pending: VecDeque<(Instant, Pending)>,
    /// When an operation last ended here.
    ended_at: Instant,
    /// Submissions refused since one was accepted.
    pub(super) refusals: u32,
}

/// What became of an operation.
pub(super) enum Outcome {
    /// It has completed; its request is whole again.
    Completed(Request, rdma::WcStatus),
    /// It had been given up before, and is over now.
    Late,
}

impl Driven {
    pub(super) fn new(number: u64, channel: Box<dyn Channel>, most: usize) -> Self {
        let depth = channel.depth().clamp(1, most);
        Self {
            number,
            channel,
            depth,
            pending: VecDeque::with_capacity(depth),
            ended_at: Instant::now(),
            refusals: 0,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < self.depth
    }

    /// When the oldest operation in flight was submitted.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.pending.front().map(|p| p.0)
    }

    /// When the operation at the head began, as far as can be told: operations of a channel are
    /// carried out one after the other.
    fn began(&self) -> Option<Instant> {
        self.oldest().map(|submitted| submitted.max(self.ended_at))
    }

    /// How long the lane may sleep before it polls this channel.
    pub(super) fn interval(&self, now: Instant, pace: &Pace, longest: Duration) -> Option<Duration> {
        let age = now.saturating_duration_since(self.began()?);
        let length = self.pending.front()?.1.length;
        Some(pace.interval(length, age, longest))
    }

    /// Submits; a refused request comes back with the reason.
    pub(super) fn submit(
        &mut self,
        request: Request,
        ticket: u64,
        now: Instant,
    ) -> Result<(), Option<Box<(Request, rdma::Error)>>> {
        let (operation, pending) = request.submit_as(ticket);
        match self.channel.submit(operation) {
            Ok(()) => {
                self.refusals = 0;
                self.pending.push_back((now, pending));
                Ok(())
            }
            Err(rejected) => {
                let Rejected { error, operation } = *rejected;
                self.refusals += 1;
                // The reply of a pending just made is there, so `resume` gives a request.
                Err(pending
                    .resume(operation.lease, Some(self.number))
                    .ok()
                    .map(|request| Box::new((request, error))))
            }
        }
    }

    /// Polls once and appends what ended. An error means that the channel is of no more use.
    pub(super) fn poll(
        &mut self,
        scratch: &mut Vec<Completion>,
        outcomes: &mut Vec<Outcome>,
        pace: &mut Pace,
    ) -> rdma::Result<()> {
        let result = self.channel.poll(scratch);
        if let ([first], Some(began)) = (&scratch[..], self.began())
            && first.status.is_success()
            && let Some((_, pending)) = self.pending.front()
        {
            pace.learn(pending.length, began.elapsed());
        }
        if !scratch.is_empty() {
            self.ended_at = Instant::now();
        }
        for completion in scratch.drain(..) {
            let Some(at) = self.pending.iter().position(|p| p.1.ticket == completion.ticket) else {
                tracing::error!(
                    ticket = completion.ticket,
                    "completion of an operation that is not in flight; its memory is withheld"
                );
                continue;
            };
            let Some((_, pending)) = self.pending.remove(at) else { continue };
            outcomes.push(match pending.resume(completion.lease, Some(self.number)) {
                Ok(request) => Outcome::Completed(request, completion.status),
                Err(chunk) => {
                    drop(chunk);
                    Outcome::Late
                }
            });
        }
        result
    }

    /// Reports every operation in flight as failed; their memory is quarantined. Gives the number
    /// of those that had not been reported before.
    pub(super) fn give_up(&mut self, error: impl Fn() -> TransferError) -> usize {
        self.pending.iter_mut().filter_map(|(_, p)| p.give_up(error()).then_some(())).count()
    }
}
