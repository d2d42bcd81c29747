//! One run: several workers doing the same task at the same time.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::plan::{Plan, Until};
use super::stats::Latencies;
use super::worker::{Check, Sample, Task, Worker};
use super::{Exit, Failure};

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was done.
    pub task: Task,
    /// Workers.
    pub workers: usize,
    /// From the start of the first worker to the end of the last.
    pub elapsed: Duration,
    /// Latencies of uploads.
    pub put: Latencies,
    /// Latencies of downloads.
    pub get: Latencies,
    /// Bytes uploaded.
    pub put_bytes: u64,
    /// Bytes downloaded.
    pub get_bytes: u64,
    /// Iterations whose bytes were compared and are the same.
    pub verified: u64,
    /// Iterations whose bytes differ.
    pub mismatches: u64,
    /// Iterations in all.
    pub iterations: u64,
    /// Attempts beyond the first of each request.
    pub retries: u64,
    /// Requests of an RDMA run whose bodies went over HTTP.
    pub fell_back: u64,
    /// The iterations in the order of their ends, when they are kept.
    pub samples: Vec<Sample>,
}

impl Outcome {
    fn new(task: Task, workers: usize) -> Self {
        Self {
            task,
            workers,
            elapsed: Duration::ZERO,
            put: Latencies::default(),
            get: Latencies::default(),
            put_bytes: 0,
            get_bytes: 0,
            verified: 0,
            mismatches: 0,
            iterations: 0,
            retries: 0,
            fell_back: 0,
            samples: Vec::new(),
        }
    }

    fn add(&mut self, sample: &Sample) {
        self.iterations += 1;
        self.retries += u64::from(sample.retries);
        self.fell_back += u64::from(sample.fell_back);
        if let Some(latency) = sample.put {
            self.put.record(latency);
            self.put_bytes += self.task.size;
        }
        if let Some(latency) = sample.get {
            self.get.record(latency);
            self.get_bytes += sample.got;
        }
        match sample.check {
            Check::Ok => self.verified += 1,
            Check::Mismatch { .. } => self.mismatches += 1,
            Check::Skipped => {}
        }
    }

    /// Time spent in uploads by one worker on average: what throughput is taken over. The time of
    /// filling and comparing buffers is not in it.
    pub fn put_time(&self) -> Duration {
        self.put.sum() / self.workers.max(1) as u32
    }

    /// Time spent in downloads by one worker on average.
    pub fn get_time(&self) -> Duration {
        self.get.sum() / self.workers.max(1) as u32
    }
}

/// Lets an interrupt end a run.
#[derive(Clone, Debug)]
pub struct Interrupt {
    sender: watch::Sender<bool>,
}

impl Interrupt {
    /// Ends the run at the first interrupt (SIGINT, SIGTERM) and the process at the second.
    ///
    /// # Errors
    /// [`Failure::Usage`] when the signals cannot be watched.
    pub fn watch_signals() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = Self::never();
        let sender = interrupt.sender.clone();
        let (ready, started) = mpsc::channel();
        thread::spawn(move || {
            let watching = || -> std::io::Result<_> {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let _inside = runtime.enter();
                let signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
                drop(_inside);
                Ok((runtime, signals))
            };
            let (runtime, (mut interrupts, mut terminations)) = match watching() {
                Ok(watching) => {
                    let _ = ready.send(Ok(()));
                    watching
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            runtime.block_on(async {
                for already in [false, true] {
                    tokio::select! {
                        _ = interrupts.recv() => {}
                        _ = terminations.recv() => {}
                    }
                    if already {
                        std::process::exit(i32::from(Exit::Interrupted.code()));
                    }
                    sender.send_replace(true);
                }
            });
        });
        match started.recv() {
            Ok(Ok(())) => Ok(interrupt),
            Ok(Err(error)) => Err(Failure::Usage(format!("cannot watch for interrupts: {error}"))),
            Err(_) => Err(Failure::Usage("cannot watch for interrupts".to_owned())),
        }
    }

    /// Never ends a run.
    pub fn never() -> Self {
        Self { sender: watch::Sender::new(false) }
    }

    /// True once an interrupt came.
    pub fn came(&self) -> bool {
        *self.sender.borrow()
    }
}

/// Runs `task` on all workers. `tell` sees each iteration with its number, from 1, as it ends.
///
/// # Errors
/// The first failure of any worker; the others are stopped. [`Failure::Interrupted`].
pub fn run(
    plan: &Plan,
    task: &Task,
    workers: &mut [Worker],
    interrupt: &Interrupt,
    keep_samples: bool,
    mut tell: impl FnMut(u64, &Sample),
) -> Result<Outcome, Failure> {
    if plan.warmup > 0 {
        phase(plan, task, workers, interrupt, Until::Iterations(plan.warmup), |_| {})?;
    }
    let mut outcome = Outcome::new(task.clone(), workers.len());
    let started = Instant::now();
    phase(plan, task, workers, interrupt, plan.until, |sample| {
        outcome.add(&sample);
        tell(outcome.iterations, &sample);
        if keep_samples {
            outcome.samples.push(sample);
        }
    })?;
    outcome.elapsed = started.elapsed();
    Ok(outcome)
}

fn phase(
    plan: &Plan,
    task: &Task,
    workers: &mut [Worker],
    interrupt: &Interrupt,
    until: Until,
    mut each: impl FnMut(Sample),
) -> Result<(), Failure> {
    let (stop, _) = watch::channel(false);
    let (samples, ended) = mpsc::channel();
    let deadline = match until {
        Until::Elapsed(time) => Some(Instant::now() + time),
        Until::Iterations(_) => None,
    };
    thread::scope(|scope| {
        for worker in workers.iter_mut() {
            let samples = samples.clone();
            let mut stopped = stop.subscribe();
            scope.spawn(move || {
                for number in 1.. {
                    let done = match (until, deadline) {
                        (Until::Iterations(most), _) => number > most,
                        (_, deadline) => deadline.is_some_and(|deadline| Instant::now() >= deadline),
                    };
                    if done || *stopped.borrow() {
                        return;
                    }
                    let message = match worker.iterate(plan, task, &mut stopped) {
                        Ok(Some(sample)) => Ok(sample),
                        Ok(None) => return,
                        Err(failure) => Err(failure.within(&format!("iter {number}"))),
                    };
                    let failed = message.is_err();
                    if samples.send(message).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(samples);
        let mut failure = None;
        loop {
            match ended.recv_timeout(Duration::from_millis(50)) {
                Ok(Ok(sample)) => each(sample),
                Ok(Err(error)) => {
                    failure.get_or_insert(error);
                    stop.send_replace(true);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if interrupt.came() {
                stop.send_replace(true);
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None if interrupt.came() => Err(Failure::Interrupted),
            None => Ok(()),
        }
    })
}
