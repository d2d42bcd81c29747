//! The text that people and scripts read, in the shape of the original tool.

use std::io::{self, Write};
use std::time::Duration;

use super::bench::Outcome;
use super::plan::{Mode, Operations, Plan, Until};
use super::stats::{Latencies, gigabytes_per_second, per_second};
use super::worker::{Check, Sample};

/// Writes the head of a run, with titles where rows will follow.
///
/// # Errors
/// Those of the writer, here and below.
pub fn header(out: &mut dyn Write, plan: &Plan, mode: Mode, size: u64, rows: bool) -> io::Result<()> {
    writeln!(
        out,
        "\ncuobjtest    endpoint={:<28}  size={}  iterations={}",
        plan.endpoint,
        size_text(size),
        iterations_text(plan)
    )?;
    write!(out, "            mode={}", mode.label())?;
    if plan.concurrency > 1 {
        write!(out, "  concurrency={}", plan.concurrency)?;
    }
    if let Some(part) = plan.part_size {
        write!(out, "  part={}", size_text(part))?;
    }
    if let Some(range) = &plan.range {
        write!(out, "  range={}-{}", range.start, range.end - 1)?;
    }
    writeln!(out, "\n")?;
    if !rows {
        return Ok(());
    }
    match plan.operations {
        Operations::Put => writeln!(out, "{:<4}  {:<14} {:<10}", "#", "PUT latency", "PUT GB/s")?,
        Operations::Get => writeln!(out, "{:<4}  {:<14} {:<10}", "#", "GET latency", "GET GB/s")?,
        Operations::PutGet => writeln!(
            out,
            "{:<4}  {:<14} {:<10}   {:<14} {:<10}   checksum",
            "#", "PUT latency", "PUT GB/s", "GET latency", "GET GB/s"
        )?,
    }
    rule(out)
}

fn rule(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", "-".repeat(70))
}

fn iterations_text(plan: &Plan) -> String {
    match plan.until {
        Until::Iterations(n) => n.to_string(),
        Until::Elapsed(time) => format!("{}s", time.as_secs()),
    }
}

/// Writes the row of an iteration.
///
/// # Errors
/// Those of the writer.
pub fn row(out: &mut dyn Write, plan: &Plan, size: u64, number: u64, sample: &Sample) -> io::Result<()> {
    let put = sample.put.unwrap_or_default();
    let get = sample.get.unwrap_or_default();
    let (put_rate, get_rate) = (rate_text(size, put), rate_text(sample.got, get));
    match plan.operations {
        Operations::Put => writeln!(out, "{number:<4}  {:<14} {put_rate:<10}", duration_text(put)),
        Operations::Get => writeln!(out, "{number:<4}  {:<14} {get_rate:<10}", duration_text(get)),
        Operations::PutGet => writeln!(
            out,
            "{number:<4}  {:<14} {put_rate:<10}   {:<14} {get_rate:<10}   {}",
            duration_text(put),
            duration_text(get),
            check_text(&sample.check)
        ),
    }
}

fn check_text(check: &Check) -> String {
    match check {
        Check::Ok => "OK".to_owned(),
        Check::Skipped => "-".to_owned(),
        Check::Mismatch { put, get } => format!("MISMATCH put={put} get={get}"),
    }
}

/// Writes the sums of a run.
///
/// # Errors
/// Those of the writer.
pub fn summary(out: &mut dyn Write, plan: &Plan, outcome: &Outcome) -> io::Result<()> {
    rule(out)?;
    write!(out, "OVERALL elapsed={}", duration_text(outcome.elapsed))?;
    let sides = [
        ("PUT", &outcome.put, outcome.put_bytes, outcome.put_time()),
        ("GET", &outcome.get, outcome.get_bytes, outcome.get_time()),
    ];
    for (name, latencies, bytes, time) in sides {
        if !latencies.is_empty() {
            let count = latencies.count();
            write!(
                out,
                "  {name} agg={:.3} GB/s ({count} ops, {:.2} ops/s)",
                gigabytes_per_second(bytes, time),
                per_second(count, time)
            )?;
        }
    }
    if !outcome.put.is_empty() && !outcome.get.is_empty() {
        let bytes = outcome.put_bytes + outcome.get_bytes;
        write!(out, "  COMBINED={:.3} GB/s", gigabytes_per_second(bytes, outcome.elapsed))?;
    }
    writeln!(out)?;
    for (name, latencies, bytes, _) in sides {
        if latencies.count() > 1 {
            averages(out, name, latencies, bytes / latencies.count())?;
        }
    }
    if plan.wants_percentiles() {
        for (name, latencies, ..) in sides {
            if !latencies.is_empty() {
                percentiles(out, name, latencies)?;
            }
        }
    }
    if outcome.retries > 0 {
        writeln!(out, "{} attempts beyond the first", outcome.retries)?;
    }
    if outcome.fell_back > 0 {
        writeln!(out, "{} requests went over HTTP: the gateway declined RDMA", outcome.fell_back)?;
    }
    Ok(())
}

fn averages(out: &mut dyn Write, name: &str, latencies: &Latencies, bytes: u64) -> io::Result<()> {
    let (mean, min, max) = latencies.mean_min_max();
    writeln!(
        out,
        "{name}  avg={:<10}  min={:<10}  max={:<10}  avg {}",
        duration_text(mean),
        duration_text(min),
        duration_text(max),
        rate_text(bytes, mean)
    )
}

fn percentiles(out: &mut dyn Write, name: &str, latencies: &Latencies) -> io::Result<()> {
    write!(out, "{name} ")?;
    for (label, percent) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)] {
        write!(out, " {label}={:<10} ", duration_text(latencies.percentile(percent)))?;
    }
    writeln!(out)
}

/// Writes how the run ended, when it ended well.
///
/// # Errors
/// Those of the writer.
pub fn ending(out: &mut dyn Write, plan: &Plan, outcomes: &[Outcome]) -> io::Result<()> {
    let verified: u64 = outcomes.iter().map(|o| o.verified).sum();
    let iterations: u64 = outcomes.iter().map(|o| o.iterations).sum();
    match plan.operations {
        Operations::Get if verified > 0 => {
            writeln!(
                out,
                "\nThe object's stored checksum was verified in {verified} of {iterations} downloads."
            )?;
            writeln!(out, "\nGET-only run complete.")
        }
        Operations::Get => writeln!(out, "\nGET-only run complete."),
        Operations::Put => writeln!(out, "\nPUT-only run complete."),
        Operations::PutGet if verified == iterations => writeln!(out, "\nAll checksums OK."),
        Operations::PutGet => writeln!(out, "\nRun complete; checksums were not compared."),
    }
}

/// Writes the head of a sweep's table.
///
/// # Errors
/// Those of the writer.
pub fn sweep_header(out: &mut dyn Write, plan: &Plan, modes: &[Mode]) -> io::Result<()> {
    let labels: Vec<_> = modes.iter().map(|mode| mode.label()).collect();
    writeln!(
        out,
        "\ncuobjtest    endpoint={:<28}  sizes={}..{}  iterations={}",
        plan.endpoint,
        size_text(plan.sizes.first().copied().unwrap_or_default()),
        size_text(plan.sizes.last().copied().unwrap_or_default()),
        iterations_text(plan)
    )?;
    writeln!(out, "            mode={}  concurrency={}\n", labels.join(","), plan.concurrency)?;
    writeln!(
        out,
        "{:<12}  {:<27} {:>10} {:>11} {:>11}   {:>10} {:>11} {:>11}",
        "size", "mode", "PUT GB/s", "PUT p50", "PUT p99", "GET GB/s", "GET p50", "GET p99"
    )?;
    writeln!(out, "{}", "-".repeat(113))
}

/// Writes a line of a sweep's table.
///
/// # Errors
/// Those of the writer.
pub fn sweep_row(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let cells = |latencies: &Latencies, bytes, time| {
        if latencies.is_empty() {
            return ["-".to_owned(), "-".to_owned(), "-".to_owned()];
        }
        [
            format!("{:.3}", gigabytes_per_second(bytes, time)),
            duration_text(latencies.percentile(50.0)),
            duration_text(latencies.percentile(99.0)),
        ]
    };
    let [put, put50, put99] = cells(&outcome.put, outcome.put_bytes, outcome.put_time());
    let [get, get50, get99] = cells(&outcome.get, outcome.get_bytes, outcome.get_time());
    writeln!(
        out,
        "{:<12}  {:<27} {put:>10} {put50:>11} {put99:>11}   {get:>10} {get50:>11} {get99:>11}",
        size_text(outcome.task.size),
        outcome.task.mode.label(),
    )
}

/// `12.34 ms`, or `1.23 s` from one second on.
pub fn duration_text(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms >= 1000.0 { format!("{:.2} s", ms / 1e3) } else { format!("{ms:.2} ms") }
}

fn rate_text(bytes: u64, time: Duration) -> String {
    if time.is_zero() { "-".to_owned() } else { format!("{:.3} GB/s", gigabytes_per_second(bytes, time)) }
}

/// `4 MiB`: with the largest binary unit up to GiB that divides it.
pub fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use super::super::worker::Task;
    use super::*;
    use crate::client::MemoryKind;
    use std::ffi::OsString;

    fn plan(line: &str) -> Plan {
        let words = format!("cuobjtest -secret s {line}");
        Plan::new(&args::parse(words.split_whitespace().map(OsString::from)).unwrap().test).unwrap()
    }

    fn printed(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn sample(check: Check) -> Sample {
        Sample {
            put: Some(Duration::from_micros(12_340)),
            get: Some(Duration::from_millis(2_000)),
            got: 64 << 20,
            check,
            retries: 0,
            fell_back: 0,
        }
    }

    /// The shapes that scripts for the original tool parse.
    #[test]
    fn header_rows_and_mismatch() {
        let plan = plan("");
        let head = printed(|out| header(out, &plan, Mode::Rdma(MemoryKind::Host), 64 << 20, true));
        assert_eq!(
            head,
            format!(
                "\ncuobjtest    endpoint=http://localhost:7070         size=64 MiB  iterations=3\n            \
                 mode=host-memory-cuobject-token\n\n\
                 #     PUT latency    PUT GB/s     GET latency    GET GB/s     checksum\n{}\n",
                "-".repeat(70)
            )
        );
        let line = printed(|out| row(out, &plan, 64 << 20, 1, &sample(Check::Ok)));
        assert_eq!(line, "1     12.34 ms       5.438 GB/s   2.00 s         0.034 GB/s   OK\n");
        let check = Check::Mismatch { put: "0badcafe".into(), get: "00000000".into() };
        let line = printed(|out| row(out, &plan, 64 << 20, 2, &sample(check)));
        assert!(line.ends_with("MISMATCH put=0badcafe get=00000000\n"), "{line}");
    }

    #[test]
    fn one_sided_tables() {
        let put_only = plan("-put-only");
        let head = printed(|out| header(out, &put_only, Mode::Standard, 1000, true));
        assert!(head.contains("size=1000 B  iterations=3\n            mode=standard-s3\n"), "{head}");
        assert!(head.contains("\n#     PUT latency    PUT GB/s  \n---"), "{head}");
        let line = printed(|out| row(out, &put_only, 64 << 20, 3, &sample(Check::Skipped)));
        assert_eq!(line, "3     12.34 ms       5.438 GB/s\n");
    }

    fn outcome() -> Outcome {
        let mut put = Latencies::default();
        let mut get = Latencies::default();
        for _ in 0..2 {
            put.record(Duration::from_millis(100));
            get.record(Duration::from_millis(50));
        }
        Outcome {
            task: Task { mode: Mode::Standard, size: 100_000_000, key_suffix: String::new() },
            workers: 1,
            elapsed: Duration::from_millis(400),
            put,
            get,
            put_bytes: 200_000_000,
            get_bytes: 200_000_000,
            verified: 2,
            mismatches: 0,
            iterations: 2,
            retries: 0,
            fell_back: 0,
            samples: Vec::new(),
        }
    }

    #[test]
    fn sums() {
        let plan = plan("-n 2");
        let text = printed(|out| {
            summary(out, &plan, &outcome())?;
            ending(out, &plan, &[outcome()])
        });
        assert_eq!(
            text,
            format!(
                "{}\nOVERALL elapsed=400.00 ms  PUT agg=1.000 GB/s (2 ops, 10.00 ops/s)  \
                 GET agg=2.000 GB/s (2 ops, 20.00 ops/s)  COMBINED=1.000 GB/s\n\
                 PUT  avg=100.00 ms   min=100.00 ms   max=100.00 ms   avg 1.000 GB/s\n\
                 GET  avg=50.00 ms    min=50.00 ms    max=50.00 ms    avg 2.000 GB/s\n\
                 \nAll checksums OK.\n",
                "-".repeat(70)
            )
        );
    }

    #[test]
    fn percentiles_come_with_flags_beyond_the_originals() {
        let text = printed(|out| summary(out, &plan("-concurrency 2"), &outcome()));
        assert!(text.contains("\nPUT  p50=100.00 ms "), "{text}");
    }

    #[test]
    fn sweep_lines_align() {
        let plan = plan("-sweep 4KiB..16KiB");
        let head = printed(|out| sweep_header(out, &plan, &[Mode::Rdma(MemoryKind::Host), Mode::Standard]));
        let line = printed(|out| sweep_row(out, &outcome()));
        let titles = head.lines().nth(4).unwrap();
        assert_eq!(titles.len(), line.trim_end_matches('\n').len());
        assert_eq!(titles.find("GET GB/s").unwrap() + 8, line.find("2.000").unwrap() + 5);
    }
}
