//! Clocks, medians and the table.

use std::time::{Duration, Instant};

/// Time on the wall and on all processors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `work` once to warm up and then `runs` times; gives the run of median wall time.
pub(crate) fn median<E>(runs: usize, mut work: impl FnMut() -> Result<(), E>) -> Result<Took, E> {
    work()?;
    let mut took = Vec::with_capacity(runs);
    for _ in 0..runs.max(1) {
        let (outcome, each) = once(&mut work);
        outcome?;
        took.push(each);
    }
    took.sort_by_key(|t| t.wall);
    Ok(took[took.len() / 2])
}

/// Bytes per second in GB/s.
pub(crate) fn rate(bytes: u64, took: Took) -> f64 {
    bytes as f64 / took.wall.as_secs_f64() / 1e9
}

/// Prints a row of throughput, with its ratio to a base.
pub(crate) fn row(name: &str, bytes: u64, took: Took, base: Option<(&str, f64)>) -> f64 {
    let rate = rate(bytes, took);
    let cpu = took.cpu.as_secs_f64() / (bytes as f64 / (1u64 << 30) as f64);
    let ratio = base.map_or(String::new(), |(of, base)| format!("{:>6.2} × {of}", rate / base));
    println!("{name:<44} {rate:>7.2} GB/s {cpu:>7.3} CPU s/GiB {ratio}");
    rate
}

/// Prints a row of latencies.
pub(crate) fn latency_row(name: &str, mut each: Vec<Duration>, took: Took) {
    each.sort();
    let at = |q: f64| each[((each.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6;
    println!(
        "{name:<44} {:>8.0} op/s   p50 {:>7.0} µs  p99 {:>7.0} µs  {:>6.1} CPU µs/op",
        each.len() as f64 / took.wall.as_secs_f64(),
        at(0.5),
        at(0.99),
        took.cpu.as_secs_f64() * 1e6 / each.len() as f64,
    );
}

/// CPU and wall time of one piece of work.
pub(crate) fn once<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let (cpu, since) = (cpu_time(), Instant::now());
    let value = work();
    (value, Took { wall: since.elapsed(), cpu: cpu_time() - cpu })
}
