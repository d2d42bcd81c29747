//! Threads for blocking work, shared fairly between transfers.
//!
//! Every transfer has its own queue of jobs; the workers take one job from each queue in turn, so
//! a transfer with a long digest delays the others by one job at most, not by all of its own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// The jobs of one transfer.
#[derive(Default)]
pub(super) struct JobQueue {
    /// The jobs, and whether the queue stands in the run queue.
    jobs: Mutex<(VecDeque<Job>, bool)>,
}

struct Run {
    queues: VecDeque<Arc<JobQueue>>,
    idle: usize,
    stopping: bool,
}

struct Shared {
    run: Mutex<Run>,
    ready: Condvar,
    queued: AtomicUsize,
}

/// A fixed set of worker threads. Stops and joins them when dropped; jobs not begun are dropped.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The way to give jobs to [`Workers`], without owning the threads.
#[derive(Clone)]
pub(super) struct JobSender(Arc<Shared>);

impl Workers {
    pub(super) fn start(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            run: Mutex::new(Run { queues: VecDeque::new(), idle: 0, stopping: false }),
            ready: Condvar::new(),
            queued: AtomicUsize::new(0),
        });
        let mut workers = Self { shared, threads: Vec::with_capacity(threads) };
        for i in 0..threads {
            let shared = Arc::clone(&workers.shared);
            let thread =
                std::thread::Builder::new().name(format!("rdma-work-{i}")).spawn(move || shared.work())?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    pub(super) fn sender(&self) -> JobSender {
        JobSender(Arc::clone(&self.shared))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.run.lock().expect("worker lock").stopping = true;
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A worker that drops the last handle of its engine cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        // Dropped outside the lock: what a job holds may come back here.
        let left = std::mem::take(&mut self.shared.run.lock().expect("worker lock").queues);
        for queue in left {
            let jobs = std::mem::take(&mut queue.jobs.lock().expect("job lock").0);
            self.shared.queued.fetch_sub(jobs.len(), Ordering::Relaxed);
        }
    }
}

impl JobSender {
    /// Adds a job to the end of a transfer's queue. After the stop it is dropped.
    pub(super) fn submit(&self, queue: &Arc<JobQueue>, job: impl FnOnce() + Send + 'static) {
        let job: Job = Box::new(job);
        let mut run = self.0.run.lock().expect("worker lock");
        if run.stopping {
            drop(run);
            return;
        }
        let mut jobs = queue.jobs.lock().expect("job lock");
        jobs.0.push_back(job);
        if !std::mem::replace(&mut jobs.1, true) {
            run.queues.push_back(Arc::clone(queue));
        }
        drop(jobs);
        self.0.queued.fetch_add(1, Ordering::Relaxed);
        let wake = run.idle > 0;
        drop(run);
        if wake {
            self.0.ready.notify_one();
        }
    }

    /// Jobs that no worker has taken yet.
    pub(super) fn queued(&self) -> usize {
        self.0.queued.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            // Jobs account for themselves when they unwind; the worker goes on.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a job of the RDMA engine panicked");
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut run = self.run.lock().expect("worker lock");
        loop {
            if run.stopping {
                return None;
            }
            let Some(queue) = run.queues.pop_front() else {
                run.idle += 1;
                run = self.ready.wait(run).expect("worker lock");
                run.idle -= 1;
                continue;
            };
            let mut jobs = queue.jobs.lock().expect("job lock");
            let job = jobs.0.pop_front();
            if jobs.0.is_empty() {
                jobs.1 = false;
            } else {
                run.queues.push_back(Arc::clone(&queue));
            }
            if let Some(job) = job {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                return Some(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn queues_take_turns() {
        let workers = Workers::start(1).unwrap();
        let sender = workers.sender();
        let (go, wait) = mpsc::channel::<()>();
        let (log, seen) = mpsc::channel();
        let queues: Vec<_> = (0..3).map(|_| Arc::new(JobQueue::default())).collect();
        sender.submit(&queues[0], move || wait.recv().unwrap());
        while sender.queued() > 0 {
            std::thread::yield_now();
        }
        for (q, count) in [(0, 4), (1, 1), (2, 2)] {
            for _ in 0..count {
                let log = log.clone();
                sender.submit(&queues[q], move || log.send(q).unwrap());
            }
        }
        go.send(()).unwrap();
        assert_eq!(seen.iter().take(7).collect::<Vec<_>>(), [0, 1, 2, 0, 2, 0, 0]);
    }

    #[test]
    fn a_panic_ends_the_job_and_not_the_worker() {
        let workers = Workers::start(1).unwrap();
        let (log, seen) = mpsc::channel();
        let queue = Arc::new(JobQueue::default());
        workers.sender().submit(&queue, || panic!("expected in this test"));
        workers.sender().submit(&queue, move || log.send(1).unwrap());
        assert_eq!(seen.recv(), Ok(1));
    }

    #[test]
    fn jobs_not_begun_are_dropped_at_the_stop() {
        let held = Arc::new(());
        let workers = Workers::start(1).unwrap();
        let sender = workers.sender();
        let (go, wait) = mpsc::channel::<()>();
        let queue = Arc::new(JobQueue::default());
        sender.submit(&queue, move || {
            let _ = wait.recv();
        });
        while sender.queued() > 0 {
            std::thread::yield_now();
        }
        let in_job = Arc::clone(&held);
        sender.submit(&queue, move || drop(in_job));
        let stop = std::thread::spawn(move || drop(workers));
        while !sender.0.run.lock().unwrap().stopping {
            std::thread::yield_now();
        }
        drop(go);
        stop.join().unwrap();
        let in_job = Arc::clone(&held);
        sender.submit(&queue, move || drop(in_job));
        assert_eq!((Arc::strong_count(&held), sender.queued()), (1, 0));
    }
}
