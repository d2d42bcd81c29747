//! The gateway measured end to end, each figure as a ratio to a base taken in the same run.
//!
//! `cargo bench --bench gateway` starts the real gateway on the software SDK over a tmpfs directory
//! and drives it through the client library. `-- --quick` uses small sizes and few rounds, to see
//! that it runs. Rounds of a figure and its bases are taken in turn, and medians compared, so that a
//! machine whose speed drifts does not favour one of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use md5::{Digest as _, Md5};
use vgwrdma::client::{Buffer, Client, Credentials, GetOptions, PutOptions, RdmaSession};
use vgwrdma::units::format_size;

const ACCESS: &str = "bench";
const SECRET: &str = "bench-secret";
const BUCKET: &str = "bench";

/// How large and how often.
#[derive(Clone, Copy)]
struct Scale {
    object: usize,
    rounds: usize,
    clients: usize,
    small_rounds: usize,
}

const FULL: Scale = Scale { object: 256 << 20, rounds: 7, clients: 64, small_rounds: 16 };
const QUICK: Scale = Scale { object: 8 << 20, rounds: 2, clients: 8, small_rounds: 4 };
const SMALL_OBJECT: usize = 1 << 20;

/// A gateway process over a directory of its own, ended on drop.
struct Gateway {
    child: Child,
    endpoint: String,
    root: PathBuf,
}

impl Gateway {
    fn start(extra: &[&str]) -> Result<Self> {
        let base =
            if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let root = base.join(format!("vgwrdma-bench-{}", std::process::id()));
        std::fs::create_dir_all(&root)?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_vgwrdma"))
            .args(["--port", "127.0.0.1:0", "--rdma-ip", "127.0.0.1", "posix"])
            .args(extra)
            .arg(&root)
            .env("ROOT_ACCESS_KEY_ID", ACCESS)
            .env("ROOT_SECRET_ACCESS_KEY", SECRET)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on ")?.1.split_whitespace().next()?.to_owned()))
            .ok_or_else(|| anyhow!("the gateway did not start"))?;
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.trim_start_matches("http://").to_owned();
        Ok(Self { child, endpoint: format!("http://{address}"), root })
    }

    fn client(&self) -> Result<Client> {
        Ok(Client::builder(&self.endpoint).credentials(Credentials::new(ACCESS, SECRET)).build()?)
    }

    /// CPU seconds used so far (`utime` + `stime` of proc(5), in ticks of 1/100 s).
    fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(ticks as f64 / 100.0)
    }

    /// A line of `/proc/PID/status`, in bytes.
    fn status_bytes(&self, name: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|l| l.starts_with(name)).context("no such line")?;
        Ok(line.split_whitespace().nth(1).context("no value")?.parse::<u64>()? * 1024)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn percentile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

struct Report {
    failed: bool,
}

impl Report {
    /// One row: a ratio, what it is a ratio of, and the target.
    fn row(&mut self, what: &str, ratio: f64, at_least: Option<f64>, at_most: Option<f64>) {
        let (met, target) = match (at_least, at_most) {
            (Some(t), _) => (ratio >= t, format!(">= {t}")),
            (_, Some(t)) => (ratio <= t, format!("<= {t}")),
            _ => (true, String::new()),
        };
        self.failed |= !met;
        println!("{what:<66} {ratio:>7.2}  {target:<8} {}", if met { "met" } else { "MISSED" });
    }
}

fn pattern(buffer: &mut Buffer) -> Result<()> {
    let mut block = vec![0u8; 1 << 20];
    getrandom::fill(&mut block).map_err(|e| anyhow!("{e}"))?;
    for at in (0..buffer.len()).step_by(block.len()) {
        let n = block.len().min(buffer.len() - at);
        buffer.copy_in(at, &block[..n])?;
    }
    Ok(())
}

/// Rows 1 to 4: one client, one large object.
async fn large(scale: Scale, session: &RdmaSession, report: &mut Report) -> Result<()> {
    let size = scale.object;
    let bytes = size as f64;
    println!("\n{} objects, {} rounds, medians", format_size(size as u64), scale.rounds);
    for etag in ["checksum", "md5"] {
        let gateway = Gateway::start(&["--etag", etag])?;
        let client = gateway.client()?;
        client.ensure_bucket(BUCKET).await?;
        let mut buffer = session.host_buffer(size)?;
        pattern(&mut buffer)?;
        let source = buffer.as_slice()?.context("host memory")?.to_vec();
        let mut copy = vec![1u8; size];
        let want = GetOptions::exactly(size as u64);
        let [mut put, mut put_http, mut get, mut get_http, mut memcpy, mut pwrite, mut md5] =
            [const { Vec::new() }; 7];
        let [mut cpu_rdma, mut cpu_http] = [0.0; 2];
        for _ in 0..scale.rounds {
            let cpu = gateway.cpu_seconds()?;
            let start = Instant::now();
            client.put(BUCKET, "rdma", &buffer, 0..size).await?;
            put.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            client.get(BUCKET, "rdma", &mut buffer, &want).await?;
            get.push(start.elapsed().as_secs_f64());
            cpu_rdma += gateway.cpu_seconds()? - cpu;

            let cpu = gateway.cpu_seconds()?;
            let start = Instant::now();
            client.put_http(BUCKET, "http", &buffer, 0..size, &PutOptions::default()).await?;
            put_http.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            client.get_http(BUCKET, "http", &mut buffer, &want).await?;
            get_http.push(start.elapsed().as_secs_f64());
            cpu_http += gateway.cpu_seconds()? - cpu;

            memcpy.push(seconds(|| {
                copy.copy_from_slice(&source);
                std::hint::black_box(&copy);
                Ok(())
            })?);
            let path = gateway.root.join("plain-pwrite");
            pwrite.push(seconds(|| {
                let file = std::fs::File::create(&path)?;
                file.write_all_at(&source, 0)?;
                Ok(())
            })?);
            std::fs::remove_file(&path)?;
            md5.push(seconds(|| {
                std::hint::black_box(Md5::digest(&source));
                Ok(())
            })?);
        }
        ensure!(buffer.as_slice()? == Some(&source[..]), "the bytes that came back are not those sent");
        let rate = |values: &[f64]| bytes / median(values.to_vec()) / 1e9;
        println!(
            "GB/s with --etag {etag}: RDMA PUT {:.2} GET {:.2}, HTTP PUT {:.2} GET {:.2}, memcpy {:.2}, pwrite {:.2}, MD5 {:.2}",
            rate(&put),
            rate(&get),
            rate(&put_http),
            rate(&get_http),
            rate(&memcpy),
            rate(&pwrite),
            rate(&md5)
        );
        if etag == "checksum" {
            report.row("RDMA GET / single-thread memcpy", rate(&get) / rate(&memcpy), Some(0.30), None);
            report.row("RDMA GET / standard GET", rate(&get) / rate(&get_http), Some(2.0), None);
            report.row(
                "RDMA PUT (checksum ETag) / plain pwrite",
                rate(&put) / rate(&pwrite),
                Some(0.6),
                None,
            );
            report.row(
                "RDMA PUT (checksum ETag) / standard PUT",
                rate(&put) / rate(&put_http),
                Some(2.0),
                None,
            );
            report.row("gateway CPU per byte, RDMA / standard", cpu_rdma / cpu_http, None, Some(0.5));
        } else {
            report.row("RDMA PUT (MD5 ETag) / single-thread MD5", rate(&put) / rate(&md5), Some(0.9), None);
        }
    }
    Ok(())
}

/// Each of `clients` puts and gets its own small object `rounds` times: seconds per operation and
/// operations per second.
async fn crowd(
    gateway: &Gateway,
    session: &RdmaSession,
    clients: usize,
    rounds: usize,
) -> Result<(Vec<f64>, f64)> {
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    for i in 0..clients {
        let client = gateway.client()?;
        let mut buffer = session.host_buffer(SMALL_OBJECT)?;
        pattern(&mut buffer)?;
        tasks.spawn(async move {
            let key = format!("small-{i}");
            let mut took = Vec::with_capacity(rounds * 2);
            for _ in 0..rounds {
                let start = Instant::now();
                client.put(BUCKET, &key, &buffer, 0..SMALL_OBJECT).await?;
                took.push(start.elapsed().as_secs_f64());
                let start = Instant::now();
                client.get(BUCKET, &key, &mut buffer, &GetOptions::exactly(SMALL_OBJECT as u64)).await?;
                took.push(start.elapsed().as_secs_f64());
            }
            anyhow::Ok(took)
        });
    }
    let mut all = Vec::new();
    while let Some(took) = tasks.join_next().await {
        all.extend(took??);
    }
    let rate = all.len() as f64 / start.elapsed().as_secs_f64();
    all.sort_by(f64::total_cmp);
    Ok((all, rate))
}

/// Row 5: many clients with small objects.
async fn many(scale: Scale, session: &RdmaSession, report: &mut Report) -> Result<()> {
    let gateway = Gateway::start(&[])?;
    gateway.client()?.ensure_bucket(BUCKET).await?;
    println!("\n{} objects, PUT and GET in turn, all clients at once", format_size(SMALL_OBJECT as u64));
    let mut rates = Vec::new();
    let mut clients = 1;
    while clients <= scale.clients {
        let (took, rate) = crowd(&gateway, session, clients, scale.small_rounds).await?;
        let (p50, p99) = (percentile(&took, 0.5), percentile(&took, 0.99));
        println!(
            "{clients:>4} clients: {rate:>8.0} operations/s, p50 {:.2} ms, p99 {:.2} ms",
            p50 * 1e3,
            p99 * 1e3
        );
        rates.push(rate);
        if clients == scale.clients {
            report.row("p99 / p50, most clients", p99 / p50, None, Some(8.0));
        }
        clients *= 2;
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    report.row("throughput of most clients / best", rates[rates.len() - 1] / best, Some(0.8), None);
    Ok(())
}

/// The last row: memory at rest.
async fn rest(report: &mut Report) -> Result<()> {
    let gateway = Gateway::start(&[])?;
    gateway.client()?.ensure_bucket(BUCKET).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let resident = gateway.status_bytes("VmRSS")?;
    let pool: u64 = 4 << 30;
    println!("\ngateway at rest: {} KiB resident, default pool of {}", resident / 1024, format_size(pool));
    report.row(
        "resident beyond the pool / 64 MiB",
        resident.saturating_sub(pool) as f64 / (64 << 20) as f64,
        None,
        Some(1.0),
    );
    Ok(())
}

#[tokio::main]
async fn run() -> Result<bool> {
    // `cargo test --benches` passes no arguments, `cargo bench` passes `--bench`.
    let bench = std::env::args().any(|a| a == "--bench");
    let scale = if bench && !std::env::args().any(|a| a == "--quick") { FULL } else { QUICK };
    let session = RdmaSession::open()?;
    let mut report = Report { failed: false };
    large(scale, &session, &mut report).await?;
    many(scale, &session, &mut report).await?;
    rest(&mut report).await?;
    std::io::stdout().flush()?;
    Ok(report.failed)
}

fn main() -> ExitCode {
    match run() {
        Ok(missed) => {
            if missed {
                println!("\nsome targets were missed");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
