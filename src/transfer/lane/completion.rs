//! What a poll brings: operations that are done, have failed, or were flushed by another's failure
//! and are worth another try.

use std::sync::atomic::Ordering;

use super::Lane;
use crate::rdma::WcStatus;
use crate::transfer::TransferError;
use crate::transfer::driven::Outcome;
use crate::transfer::request::Request;
use crate::transfer::transport::Direction;

impl Lane {
    /// Answers a request and strikes it off this lane's load.
    pub(super) fn finish(&mut self, request: Request, outcome: Result<(), TransferError>) {
        self.inbox.load.fetch_sub(1, Ordering::Relaxed);
        match outcome {
            Ok(()) => request.reply.done(Ok(request.chunk)),
            Err(error) => request.fail(error),
        }
    }

    /// Polls every channel with something in flight. True when anything ended.
    pub(super) fn poll_channels(&mut self) -> bool {
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
    pub(super) fn settle(&mut self) {
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
}
