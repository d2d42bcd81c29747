//! The operations in flight on a channel, by the handle the library gives back.

use std::time::Instant;

use super::DEPTH;
use crate::rdma::Local;

/// An operation in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) ticket: u64,
    pub(super) local: Local,
    submitted: Instant,
    handle: usize,
}

/// At most [`DEPTH`] operations.
///
/// A handle is never 0, which the library takes for a synchronous call, and is not used twice in
/// 2^60 operations, so that a late completion is not taken for another's.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: [Option<InFlight>; DEPTH],
    used: usize,
    sequence: usize,
}

const _: () = assert!(DEPTH.is_power_of_two(), "handles keep the slot in their low bits");

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The handle of the next operation. There must be a free slot.
    pub(super) fn next_handle(&mut self) -> usize {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(0);
        // From 1: the first handle of slot 0 is not 0.
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence.wrapping_mul(DEPTH) | slot
    }

    /// Keeps an operation under a handle of [`next_handle`](Self::next_handle).
    pub(super) fn insert(&mut self, handle: usize, ticket: u64, local: Local, submitted: Instant) {
        let previous = self.slots[handle % DEPTH].replace(InFlight { ticket, local, submitted, handle });
        debug_assert!(previous.is_none(), "two operations in a slot");
        self.used += 1;
    }

    /// Takes out the operation of a handle, `None` for a handle that is not in flight.
    pub(super) fn remove(&mut self, handle: usize) -> Option<InFlight> {
        let slot = &mut self.slots[handle % DEPTH];
        if slot.as_ref()?.handle != handle {
            return None;
        }
        self.used -= 1;
        slot.take()
    }

    /// Takes all operations out, in order of submission.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = InFlight> + use<> {
        self.used = 0;
        let mut all: Vec<_> = self.slots.iter_mut().filter_map(Option::take).collect();
        all.sort_by_key(|in_flight| in_flight.handle);
        all.into_iter()
    }

    /// When the oldest operation was submitted.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.slots.iter().flatten().map(|in_flight| in_flight.submitted).min()
    }
}
