//! The command from its arguments to its exit code.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use super::args::{self, Cli, Command};
use super::bench::{self, Interrupt, Outcome};
use super::memory::Memory;
use super::plan::{Mode, Operations, Plan, Until};
use super::progress::Progress;
use super::worker::{Task, Worker};
use super::{Exit, Failure, json, launch, plot, report};
use crate::client::Buffer;
use crate::client::environment::RdmaEnvironment;
use crate::rdma::Provider;

/// Runs `cuobjtest` with the process' arguments, the program's name first.
///
/// Results go to standard output, everything else to standard error.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match args::parse(arguments.clone()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, with the code 0.
            let _ = error.print();
            return if error.exit_code() == 0 { Exit::Verified } else { Exit::Usage };
        }
    };
    start_log();
    let done = match cli {
        Cli { command: Some(Command::Devices(devices)), .. } => {
            super::devices::run(&devices, &mut Stdout::default())
        }
        Cli { command: Some(Command::Cp(copy)), .. } => {
            prepare_library(&arguments, copy.standard, &copy.connection.endpoint)
                .and_then(|()| super::copy::run(&copy))
        }
        Cli { command: None, test } => Plan::new(&test).and_then(|plan| {
            prepare_library(&arguments, plan.standard, &plan.endpoint)?;
            execute(&plan)
        }),
    };
    match done {
        Ok(exit) => exit,
        Err(failure) => {
            eprintln!("cuobjtest: {failure}");
            failure.exit()
        }
    }
}

/// Log lines of the library go to standard error, warnings and up unless `VGWRDMA_LOG` says more.
fn start_log() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("VGWRDMA_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).try_init();
}

/// Brings the RDMA settings of the environment into force, or says that they have none.
fn prepare_library(arguments: &[OsString], standard: bool, endpoint: &str) -> Result<(), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let environment = RdmaEnvironment::from_process().map_err(|e| usage(&e))?;
    if standard {
        let set = environment.set();
        if !set.is_empty() {
            eprintln!("cuobjtest: {} no effect with -std-s3", have(&set));
        }
        return Ok(());
    }
    let provider = Provider::current().map_err(|e| usage(&e))?;
    launch::configure(arguments, endpoint, &environment, provider.maker)
}

fn have(names: &[&str]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "has" } else { "have" })
}

/// Standard output, where a reader that has gone is no failure.
#[derive(Debug, Default)]
struct Stdout {
    gone: bool,
}

impl Write for Stdout {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.gone {
            return Ok(data.len());
        }
        match io::stdout().write(data) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(data.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match io::stdout().flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

fn stdout_failure(source: io::Error) -> Failure {
    Failure::Output { place: "standard output".to_owned(), source }
}

/// Runs a test.
fn execute(plan: &Plan) -> Result<Exit, Failure> {
    let mut stdout = Stdout::default();
    let mut nowhere = io::sink();
    let out: &mut dyn Write = if plan.json_on_stdout() { &mut nowhere } else { &mut stdout };
    let interrupt = Interrupt::watch_signals()?;
    // Mistakes in the flags show before anything is started.
    plan.client.clone().build()?;
    let memory = Memory::open(plan.standard, plan.memory, plan.gpu)?;
    let modes = modes(plan, &memory);

    let mut plan = plan.clone();
    let scout = worker(&plan, 0, Buffer::unregistered(4096)?)?;
    if plan.operations.put() {
        let made = scout
            .ensure_bucket(&plan.bucket)
            .map_err(|e| Failure::transfer(format!("bucket {:?}", plan.bucket), e))?;
        if made {
            writeln!(out, "cuobjtest: created bucket {:?}", plan.bucket).map_err(stdout_failure)?;
        }
    }
    if plan.sizes.is_empty() {
        plan.sizes.push(object_size(&plan, &scout)?);
    }
    drop(scout);

    let mut workers = Vec::with_capacity(plan.concurrency);
    for number in 0..plan.concurrency {
        let buffer = memory.buffer(buffer_length(&plan))?;
        workers.push(worker(&plan, number, buffer)?);
    }
    let outcomes = if plan.sweep {
        sweep(&plan, &modes, &mut workers, &interrupt, out)?
    } else {
        single(&plan, modes[0], &mut workers, &interrupt, out)?
    };
    if plan.cleanup {
        clean_up(&plan, &outcomes, &workers);
    }
    write_files(&plan, &outcomes)?;
    let mismatches: u64 = outcomes.iter().map(|o| o.mismatches).sum();
    if mismatches > 0 {
        return Err(Failure::Mismatch {
            mismatches,
            iterations: outcomes.iter().map(|o| o.iterations).sum(),
        });
    }
    report::ending(out, &plan, &outcomes).and_then(|()| out.flush()).map_err(stdout_failure)?;
    Ok(Exit::Verified)
}

fn modes(plan: &Plan, memory: &Memory) -> Vec<Mode> {
    match (plan.standard, plan.sweep) {
        (true, _) => vec![Mode::Standard],
        (false, true) => vec![memory.mode(), Mode::Standard],
        (false, false) => vec![memory.mode()],
    }
}

fn worker(plan: &Plan, number: usize, buffer: Buffer) -> Result<Worker, Failure> {
    Ok(Worker::new(plan, number, buffer)?)
}

/// A GET-only run without a size takes the object's own.
fn object_size(plan: &Plan, scout: &Worker) -> Result<u64, Failure> {
    let size = scout.object_size(plan)?;
    if size == 0 {
        return Err(Failure::Usage(format!(
            "the object {}/{} is empty; nothing to measure",
            plan.bucket, plan.key
        )));
    }
    if size > super::plan::MAX_REGISTRATION {
        return Err(Failure::Usage(format!(
            "the object {}/{} has {size} bytes; name a part of it with -range",
            plan.bucket, plan.key
        )));
    }
    Ok(size)
}

fn buffer_length(plan: &Plan) -> usize {
    let largest = plan.sizes.last().copied().unwrap_or(1);
    match (&plan.range, plan.operations) {
        (Some(range), Operations::Get) => (range.end - range.start) as usize,
        _ => largest as usize,
    }
}

fn single(
    plan: &Plan,
    mode: Mode,
    workers: &mut [Worker],
    interrupt: &Interrupt,
    out: &mut dyn Write,
) -> Result<Vec<Outcome>, Failure> {
    let size = plan.sizes.first().copied().unwrap_or(1);
    let task = Task { mode, size, key_suffix: String::new() };
    let counted = matches!(plan.until, Until::Iterations(_));
    let rows = counted && !plan.quiet;
    report::header(out, plan, mode, size, rows).map_err(stdout_failure)?;
    let progress = Progress::new(plan, mode.label());
    let started = Instant::now();
    let mut failed = None;
    let outcome = bench::run(plan, &task, workers, interrupt, counted, |number, sample| {
        progress.step(started.elapsed());
        if rows && failed.is_none() {
            failed = progress
                .suspend(|| report::row(out, plan, size, number, sample).and_then(|()| out.flush()))
                .err();
        }
    })?;
    drop(progress);
    failed.map_or(Ok(()), Err).map_err(stdout_failure)?;
    report::summary(out, plan, &outcome).map_err(stdout_failure)?;
    Ok(vec![outcome])
}

fn sweep(
    plan: &Plan,
    modes: &[Mode],
    workers: &mut [Worker],
    interrupt: &Interrupt,
    out: &mut dyn Write,
) -> Result<Vec<Outcome>, Failure> {
    report::sweep_header(out, plan, modes).map_err(stdout_failure)?;
    let mut outcomes = Vec::new();
    for &size in &plan.sizes {
        for &mode in modes {
            let task = Task { mode, size, key_suffix: format!("-{size}") };
            let progress = Progress::new(plan, &format!("{} {}", report::size_text(size), mode.label()));
            let started = Instant::now();
            let outcome =
                bench::run(plan, &task, workers, interrupt, false, |_, _| progress.step(started.elapsed()))?;
            drop(progress);
            report::sweep_row(out, &outcome).and_then(|()| out.flush()).map_err(stdout_failure)?;
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

/// Deletes what was uploaded; an object that stays is told, and is no failure of the test.
fn clean_up(plan: &Plan, outcomes: &[Outcome], workers: &[Worker]) {
    let mut done: Vec<String> = Vec::new();
    for outcome in outcomes {
        for worker in workers {
            let key = worker.key(&outcome.task);
            if done.contains(&key) {
                continue;
            }
            if let Err(error) = worker.delete(plan, &outcome.task) {
                eprintln!("cuobjtest: cannot delete {}/{key}: {error}", plan.bucket);
            }
            done.push(key);
        }
    }
}

fn write_files(plan: &Plan, outcomes: &[Outcome]) -> Result<(), Failure> {
    if let Some(path) = &plan.json {
        let text = json::document(plan, outcomes)
            .map_err(|e| Failure::Output { place: path.display().to_string(), source: e.into() })?;
        if plan.json_on_stdout() {
            let mut stdout = Stdout::default();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(stdout_failure)?;
        } else {
            write_file(path, &text)?;
        }
    }
    if let Some(path) = &plan.plot {
        let subtitle = match plan.concurrency {
            1 => format!("{} · 1 worker", plan.endpoint),
            more => format!("{} · {more} workers", plan.endpoint),
        };
        write_file(path, &plot::draw(outcomes, &subtitle))?;
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|source| Failure::Output { place: path.display().to_string(), source })
}
