//! The rows of the table.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use vgwrdma::digest::{Algorithm, Digester};
use vgwrdma::rdma::Descriptor;
use vgwrdma::transfer::{BlockSink, BlockSource, Engine, EngineConfig, OrderedSink, RemoteWindow};

use crate::Options;
use crate::fabric::{self, Fabric};
use crate::measure::{latency_row, median, once, row};

/// Bytes that the base rows write and read at a time.
const PIECE: usize = 4 << 20;

struct Discard;

impl BlockSink for Discard {
    fn write_at(&self, _: u64, data: &[u8]) -> io::Result<()> {
        black_box(data);
        Ok(())
    }
}

struct Stored(File);

impl BlockSink for Stored {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

impl BlockSource for Stored {
    fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(data, offset)
    }
}

fn window(descriptor: &Arc<Descriptor>) -> RemoteWindow {
    RemoteWindow {
        descriptor: Arc::clone(descriptor),
        start: descriptor.address,
        length: u64::from(descriptor.size),
        endpoint_hint: None,
    }
}

/// What one thread of this machine does without the engine.
struct Base {
    copy: f64,
    write: f64,
    read: f64,
    md5: f64,
    crc: f64,
}

fn bases(options: &Options, bytes: &[u8]) -> io::Result<Base> {
    let (size, runs) = (bytes.len() as u64, options.runs);
    let mut target = vec![1u8; bytes.len()];
    let copy = median(runs, || {
        black_box(&mut target).copy_from_slice(black_box(bytes));
        io::Result::Ok(())
    })?;
    let copy = row("base: memcpy, one thread", size, copy, None);
    let write = median(runs, || write_new(options, bytes).map(drop))?;
    let write = row("base: pwrite to a new file, 4 MiB pieces", size, write, None);
    let file = write_new(options, bytes)?;
    let read = median(runs, || {
        let mut pieces = target.chunks_mut(PIECE).enumerate();
        pieces.try_for_each(|(i, piece)| file.read_exact_at(piece, (i * PIECE) as u64))
    })?;
    let read = row("base: pread of a cached file, 4 MiB pieces", size, read, None);
    let digest = |name: &str, md5, algorithm: Option<Algorithm>| {
        let took = median(runs, || {
            let mut digester = Digester::new(md5, algorithm);
            bytes.chunks(PIECE).for_each(|c| digester.update(c));
            black_box(digester.finish());
            io::Result::Ok(())
        })?;
        io::Result::Ok(row(name, size, took, None))
    };
    let md5 = digest("base: MD5, one thread", true, None)?;
    let crc = digest("base: CRC64NVME, one thread", false, Some(Algorithm::Crc64Nvme))?;
    Ok(Base { copy, write, read, md5, crc })
}

fn write_new(options: &Options, bytes: &[u8]) -> io::Result<File> {
    let file = tempfile::tempfile_in(&options.dir)?;
    let mut pieces = bytes.chunks(PIECE).enumerate();
    pieces.try_for_each(|(i, piece)| file.write_all_at(piece, (i * PIECE) as u64))?;
    Ok(file)
}

pub(crate) fn all(options: &Options, config: EngineConfig, runtime: &Runtime) -> Result<(), Box<dyn Error>> {
    let bytes: Vec<u8> = (0..options.size).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    let base = bases(options, &bytes)?;
    let fabric = fabric::open(options.fabric)?;
    let (endpoint, pool) = fabric.server(options.pool, config.chunk_size)?;
    let engine = Arc::new(Engine::start(config, vec![endpoint], pool)?);
    let rig = Rig { options, runtime, engine, fabric };
    rig.large(&bytes, &base)?;
    rig.small(&bytes)?;
    rig.many(&bytes)?;
    Ok(())
}

struct Rig<'a> {
    options: &'a Options,
    runtime: &'a Runtime,
    engine: Arc<Engine>,
    fabric: Box<dyn Fabric>,
}

impl Rig<'_> {
    /// One large object at a time.
    fn large(&self, bytes: &[u8], base: &Base) -> Result<(), Box<dyn Error>> {
        let source = self.fabric.offer(bytes)?;
        let size = bytes.len() as u64;
        let dir = &self.options.dir;
        let put =
            |name: &str, base, file: bool, digest: &dyn Fn() -> Digester| -> Result<(), Box<dyn Error>> {
                if !self.options.wants(name) {
                    return Ok(());
                }
                let took = median(self.options.runs, || {
                    if file {
                        self.put(&source, Arc::new(Stored(tempfile::tempfile_in(dir)?)), digest())
                    } else {
                        self.put(&source, Arc::new(Discard), digest())
                    }
                })?;
                row(name, size, took, Some(base));
                Ok(())
            };
        let none = || Digester::new(false, []);
        let crc = || Digester::new(false, [Algorithm::Crc64Nvme]);
        let md5 = || Digester::new(true, []);
        put("PUT, discarded", ("memcpy", base.copy), false, &none)?;
        put("PUT, discarded, CRC64NVME", ("CRC64NVME", base.crc), false, &crc)?;
        put("PUT, new file", ("pwrite", base.write), true, &none)?;
        put("PUT, new file, CRC64NVME", ("pwrite", base.write), true, &crc)?;
        put("PUT, new file, MD5", ("MD5", base.md5), true, &md5)?;

        let target = self.fabric.offer(&vec![0; bytes.len()])?;
        let file = tempfile::tempfile_in(dir)?;
        file.write_all_at(bytes, 0)?;
        let file = Arc::new(Stored(file));
        for (name, base) in
            [("GET, cached file", ("memcpy", base.copy)), ("GET, cached file ", ("pread", base.read))]
        {
            if self.options.wants(name) {
                let took = median(self.options.runs, || self.get(&target, &file))?;
                row(name, size, took, Some(base));
            }
        }
        if self.fabric.bytes(&target)? != bytes && self.options.filters.is_empty() {
            return Err("the bytes that a GET wrote differ".into());
        }
        Ok(())
    }

    fn put<S: BlockSink, D: OrderedSink>(
        &self,
        from: &Arc<Descriptor>,
        sink: Arc<S>,
        digest: D,
    ) -> Result<(), Box<dyn Error>> {
        self.runtime.block_on(self.engine.pull(window(from), sink, digest))?;
        Ok(())
    }

    fn get(&self, to: &Arc<Descriptor>, from: &Arc<Stored>) -> Result<(), Box<dyn Error>> {
        self.runtime.block_on(self.engine.push(window(to), Arc::clone(from), 0))?;
        Ok(())
    }

    /// Small objects, one after the other: what a hand-off costs.
    fn small(&self, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let count = if self.options.quick { 50 } else { 5000 };
        for (label, size) in [("4 KiB", 4 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)] {
            let source = self.fabric.offer(&bytes[..size])?;
            let file = tempfile::tempfile_in(&self.options.dir)?;
            file.write_all_at(&bytes[..size], 0)?;
            let file = Arc::new(Stored(file));
            for name in [
                format!("PUT {label}, discarded, one by one"),
                format!("GET {label}, cached file, one by one"),
            ] {
                if !self.options.wants(&name) {
                    continue;
                }
                let is_put = name.starts_with("PUT");
                let mut each = Vec::with_capacity(count);
                let (outcome, took) = once(|| -> Result<(), Box<dyn Error>> {
                    for _ in 0..count {
                        let since = Instant::now();
                        if is_put {
                            self.put(&source, Arc::new(Discard), ())?;
                        } else {
                            self.get(&source, &file)?;
                        }
                        each.push(since.elapsed());
                    }
                    Ok(())
                });
                outcome?;
                latency_row(&name, each, took);
            }
        }
        Ok(())
    }

    /// Many clients at a time.
    fn many(&self, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let (clients, each) = if self.options.quick { (8, 4) } else { (64, 100) };
        let size = (1 << 20).min(bytes.len());
        for (name, digest) in [
            ("PUT 1 MiB, new files, CRC64NVME, 64 clients", Algorithm::ALL[2]),
            ("PUT 1 MiB, new files, MD5, 64 clients", Algorithm::ALL[0]),
            ("GET 1 MiB, cached file, 64 clients", Algorithm::ALL[0]),
        ] {
            if !self.options.wants(name) {
                continue;
            }
            let (latencies, took) =
                once(|| self.runtime.block_on(self.clients(name, digest, clients, each, &bytes[..size])));
            latency_row(name, latencies?, took);
        }
        Ok(())
    }

    async fn clients(
        &self,
        name: &str,
        digest: Algorithm,
        clients: usize,
        each: usize,
        bytes: &[u8],
    ) -> Result<Vec<Duration>, Box<dyn Error>> {
        let (is_put, md5) = (name.starts_with("PUT"), name.contains("MD5"));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..clients {
            let engine = Arc::clone(&self.engine);
            let window = window(&self.fabric.offer(bytes)?);
            let dir = self.options.dir.clone();
            let file = tempfile::tempfile_in(&dir)?;
            file.write_all_at(bytes, 0)?;
            let file = Arc::new(Stored(file));
            tasks.spawn(async move {
                let mut latencies = Vec::with_capacity(each);
                for _ in 0..each {
                    let since = Instant::now();
                    if is_put {
                        let sink = Arc::new(Stored(tempfile::tempfile_in(&dir).map_err(|e| e.to_string())?));
                        let digester = Digester::new(md5, (!md5).then_some(digest));
                        engine.pull(window.clone(), sink, digester).await.map_err(|e| e.to_string())?;
                    } else {
                        engine.push(window.clone(), Arc::clone(&file), 0).await.map_err(|e| e.to_string())?;
                    }
                    latencies.push(since.elapsed());
                }
                Ok::<_, String>(latencies)
            });
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            all.extend(done??);
        }
        Ok(all)
    }
}
