//! Rows about RDMA: one client with a large object, many with small ones, memory at rest.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use md5::{Digest as _, Md5};
use vgwrdma::client::{Buffer, Client, GetOptions, PutOptions, RdmaSession};
use vgwrdma::units::format_size;

use crate::Scale;
use crate::measure::{Report, Target, median, percentile, randomize, rate, seconds, speed};
use crate::server::{BUCKET, Server};

const SMALL_OBJECT: usize = 1 << 20;

/// A gateway under measurement, and what its rounds took.
struct Subject {
    server: Server,
    client: Client,
    put: Vec<f64>,
    get: Vec<f64>,
    put_http: Vec<f64>,
    get_http: Vec<f64>,
    cpu_rdma: f64,
    /// Of that, what the software SDK's copies took in place of a NIC.
    cpu_copies: f64,
    cpu_http: f64,
}

impl Subject {
    async fn start(program: Option<&Path>, etag: &str) -> Result<Self> {
        let server = Server::gateway(program, &["--etag", etag])?;
        let client = server.client()?;
        client.ensure_bucket(BUCKET).await?;
        let [put, get, put_http, get_http] = [const { Vec::new() }; 4];
        Ok(Self {
            server,
            client,
            put,
            get,
            put_http,
            get_http,
            cpu_rdma: 0.0,
            cpu_copies: 0.0,
            cpu_http: 0.0,
        })
    }

    /// One PUT and GET by each carrier. The buffer ends up with what it held.
    async fn round(&mut self, buffer: &mut Buffer) -> Result<()> {
        let size = buffer.len();
        let want = GetOptions::exactly(size as u64);
        let (cpu, copies) = (self.server.cpu_seconds()?, self.server.copy_seconds()?);
        let start = Instant::now();
        self.client.put(BUCKET, "rdma", buffer, 0..size).await?;
        self.put.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        self.client.get(BUCKET, "rdma", buffer, &want).await?;
        self.get.push(start.elapsed().as_secs_f64());
        self.cpu_rdma += self.server.cpu_seconds()? - cpu;
        self.cpu_copies += self.server.copy_seconds()? - copies;

        let cpu = self.server.cpu_seconds()?;
        let start = Instant::now();
        self.client.put_http(BUCKET, "http", buffer, 0..size, &PutOptions::default()).await?;
        self.put_http.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        self.client.get_http(BUCKET, "http", buffer, &want).await?;
        self.get_http.push(start.elapsed().as_secs_f64());
        self.cpu_http += self.server.cpu_seconds()? - cpu;
        Ok(())
    }
}

/// Rows 1 to 4: one client, one large object. With `BASELINE`, the path of another build of the
/// gateway, both are measured in turn and compared.
pub(crate) async fn large(scale: Scale, session: &RdmaSession, report: &mut Report) -> Result<()> {
    let size = scale.object;
    println!("\n{} objects, {} rounds, medians", format_size(size as u64), scale.rounds);
    let baseline = std::env::var_os("BASELINE");
    for etag in ["checksum", "md5"] {
        let mut this = Subject::start(None, etag).await?;
        let mut other = match &baseline {
            Some(program) => Some(Subject::start(Some(Path::new(program)), etag).await?),
            None => None,
        };
        let mut buffer = session.host_buffer(size)?;
        randomize(&mut buffer)?;
        let source = buffer.as_slice()?.context("host memory")?.to_vec();
        let mut copy = vec![1u8; size];
        let [mut memcpy, mut pwrite, mut md5] = [const { Vec::new() }; 3];
        for _ in 0..scale.rounds {
            this.round(&mut buffer).await?;
            if let Some(other) = &mut other {
                other.round(&mut buffer).await?;
            }
            memcpy.push(seconds(|| {
                copy.copy_from_slice(&source);
                std::hint::black_box(&copy);
                Ok(())
            })?);
            let path = this.server.root.0.join("plain-pwrite");
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
        println!(
            "GB/s with --etag {etag}: RDMA PUT {:.2} GET {:.2}, HTTP PUT {:.2} GET {:.2}, memcpy {:.2}, pwrite {:.2}, MD5 {:.2}",
            rate(size, &this.put),
            rate(size, &this.get),
            rate(size, &this.put_http),
            rate(size, &this.get_http),
            rate(size, &memcpy),
            rate(size, &pwrite),
            rate(size, &md5)
        );
        if etag == "checksum" {
            report.row("RDMA GET / single-thread memcpy", speed(&this.get, &memcpy), Target::AtLeast(0.3));
            report.row("RDMA GET / standard GET", speed(&this.get, &this.get_http), Target::AtLeast(2.0));
            let put = &this.put;
            report.row("RDMA PUT (checksum ETag) / plain pwrite", speed(put, &pwrite), Target::AtLeast(0.6));
            let ratio = speed(put, &this.put_http);
            report.row("RDMA PUT (checksum ETag) / standard PUT", ratio, Target::AtLeast(2.0));
            let ratio = this.cpu_rdma / this.cpu_http;
            report.row("gateway CPU per byte, RDMA / standard", ratio, Target::AtMost(0.5));
            let ratio = (this.cpu_rdma - this.cpu_copies) / this.cpu_http;
            report.row("... without the copies that a NIC would make", ratio, Target::None);
            let gib = (2 * size * scale.rounds) as f64 / f64::from(1 << 30);
            println!(
                "CPU seconds per GiB: RDMA {:.3}, of which copies in place of a NIC {:.3}; standard {:.3}",
                this.cpu_rdma / gib,
                this.cpu_copies / gib,
                this.cpu_http / gib
            );
        } else {
            let ratio = speed(&this.put, &md5);
            report.row("RDMA PUT (MD5 ETag) / single-thread MD5", ratio, Target::AtLeast(0.9));
        }
        if let Some(other) = other {
            compare(&this, &other, etag, report);
        }
    }
    Ok(())
}

fn compare(this: &Subject, other: &Subject, etag: &str, report: &mut Report) {
    for (what, this, other) in [
        ("RDMA PUT", &this.put, &other.put),
        ("RDMA GET", &this.get, &other.get),
        ("standard PUT", &this.put_http, &other.put_http),
        ("standard GET", &this.get_http, &other.get_http),
    ] {
        report.row(&format!("{what} ({etag} ETag), this build / baseline"), speed(this, other), Target::None);
    }
    let ratio = this.cpu_rdma / other.cpu_rdma;
    report.row(&format!("gateway CPU, RDMA ({etag} ETag), this build / baseline"), ratio, Target::None);
    let ratio = this.cpu_http / other.cpu_http;
    report.row(&format!("gateway CPU, standard ({etag} ETag), this build / baseline"), ratio, Target::None);
}

/// Each of `clients` puts and gets its own small object `rounds` times: seconds per operation and
/// operations per second.
async fn crowd(
    gateway: &Server,
    session: &RdmaSession,
    clients: usize,
    rounds: usize,
) -> Result<(Vec<f64>, f64)> {
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    for i in 0..clients {
        let client = gateway.client()?;
        let mut buffer = session.host_buffer(SMALL_OBJECT)?;
        randomize(&mut buffer)?;
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
pub(crate) async fn many(scale: Scale, session: &RdmaSession, report: &mut Report) -> Result<()> {
    let gateway = Server::gateway(None, &[])?;
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
            report.row("p99 / p50, most clients", p99 / p50, Target::AtMost(8.0));
        }
        clients *= 2;
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    report.row("throughput of most clients / best", rates[rates.len() - 1] / best, Target::AtLeast(0.8));
    Ok(())
}

/// The last row: memory at rest.
pub(crate) async fn rest(report: &mut Report) -> Result<()> {
    let gateway = Server::gateway(None, &[])?;
    gateway.client()?.ensure_bucket(BUCKET).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let resident = gateway.status_bytes("VmRSS")?;
    let pool: u64 = 4 << 30;
    println!("\ngateway at rest: {} KiB resident, default pool of {}", resident / 1024, format_size(pool));
    let beyond = resident.saturating_sub(pool) as f64 / (64 << 20) as f64;
    report.row("resident beyond the pool / 64 MiB", beyond, Target::AtMost(1.0));
    Ok(())
}

/// Seconds of one MD5 pass over the bytes, the median of three.
pub(crate) fn md5_seconds(bytes: &[u8]) -> Result<f64> {
    let times = (0..3).map(|_| {
        seconds(|| {
            std::hint::black_box(Md5::digest(bytes));
            Ok(())
        })
    });
    Ok(median(&times.collect::<Result<Vec<_>>>()?))
}
