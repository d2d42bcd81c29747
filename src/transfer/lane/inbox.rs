//! The inbox of a lane: the part that other threads see.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use crate::transfer::request::Request;

/// The part of a lane that other threads see.
pub(in crate::transfer) struct LaneInbox {
    pub(super) inner: Mutex<Inbox>,
    pub(super) wake: Condvar,
    /// Requests queued or in flight, for the choice between lanes.
    pub(super) load: AtomicUsize,
    pub(super) queued: AtomicUsize,
    pub(super) in_flight: AtomicUsize,
    /// Channels in service.
    pub(super) channels: AtomicUsize,
    pub(super) condemned: AtomicUsize,
    pub(super) stopping: AtomicBool,
}

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) requests: VecDeque<Request>,
    pub(super) sleeping: bool,
    pub(super) closed: bool,
}

impl LaneInbox {
    pub(in crate::transfer) fn new(channels: usize) -> Self {
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
    pub(in crate::transfer) fn push(&self, request: Request) -> Result<(), Request> {
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
    pub(in crate::transfer) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _inbox = self.inner.lock().expect("inbox lock");
        self.wake.notify_one();
    }

    pub(in crate::transfer) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(in crate::transfer) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(in crate::transfer) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(in crate::transfer) fn channels(&self) -> usize {
        self.channels.load(Ordering::Relaxed)
    }

    pub(in crate::transfer) fn condemned(&self) -> usize {
        self.condemned.load(Ordering::Relaxed)
    }
}
