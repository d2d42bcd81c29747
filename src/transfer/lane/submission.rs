//! From the inbox onto a channel, and what to do when the channel refuses.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Lane;
use crate::rdma::{self, Errno};
use crate::transfer::TransferError;
use crate::transfer::driven::Driven;
use crate::transfer::request::Request;

/// Refusals in a row after which a channel is replaced.
const MAX_REFUSALS: u32 = 3;
/// A device that takes this many tries for one operation does not take it.
const MAX_ATTEMPTS_REFUSED: u32 = 1;

impl Lane {
    /// Submits what there is room for. True when anything was taken.
    pub(super) fn take_requests(&mut self) -> bool {
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
