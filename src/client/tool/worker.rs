//! The transfers of one worker: a thread with its own connection and its own registered buffer.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::watch;

use super::Failure;
use super::args::Verify;
use super::parts::Upload;
use super::plan::{Mode, Operations, Plan};
use super::random::Random;
use crate::client::{Buffer, Carrier, Client, Error, GetOptions, Got, MAX_TRANSFER, Put, PutOptions, Result};
use crate::digest::{Algorithm, Digester, Digests};

/// Bytes that pass between a device buffer and the host at a time.
const STAGING: usize = 4 << 20;
/// Parts of one upload in flight.
const PARTS_AHEAD: usize = 4;

/// What came of comparing bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// They were not compared, or there is nothing to compare with.
    Skipped,
    /// They are the same.
    Ok,
    /// They differ; the checksums in hexadecimal or base64.
    Mismatch {
        /// Of the bytes uploaded, or stored.
        put: String,
        /// Of the bytes downloaded.
        get: String,
    },
}

/// One iteration of a worker.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Latency of the upload.
    pub put: Option<Duration>,
    /// Latency of the download.
    pub get: Option<Duration>,
    /// Bytes that the download brought.
    pub got: u64,
    /// Comparison.
    pub check: Check,
    /// Attempts beyond the first of each request.
    pub retries: u32,
    /// Requests that the gateway declined to serve by RDMA and whose bodies went over HTTP instead.
    pub fell_back: u32,
}

impl Sample {
    /// Notes how a request went.
    fn note(&mut self, mode: Mode, carrier: Carrier, attempts: u32) {
        self.retries += attempts - 1;
        self.fell_back += u32::from(mode != Mode::Standard && carrier == Carrier::Http);
    }
}

/// A worker. It moves to its thread together with its runtime.
#[derive(Debug)]
pub struct Worker {
    runtime: tokio::runtime::Runtime,
    client: Client,
    buffer: Buffer,
    random: Random,
    key: String,
    staging: Vec<u8>,
}

/// What all iterations of a run have in common.
#[derive(Clone, Debug)]
pub struct Task {
    /// What carries the bytes.
    pub mode: Mode,
    /// Size of the object.
    pub size: u64,
    /// What is added to the worker's key.
    pub key_suffix: String,
}

impl Worker {
    /// A worker of `plan` with its number and its buffer.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub fn new(plan: &Plan, number: usize, buffer: Buffer) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
            Error::Invalid { what: format!("cannot start the runtime of worker {number}: {e}") }
        })?;
        let client = plan.client.clone().build()?;
        let random = Random::from_system();
        Ok(Self { runtime, client, buffer, random, key: plan.worker_key(number), staging: Vec::new() })
    }

    /// Key of the worker's object in a run.
    pub fn key(&self, task: &Task) -> String {
        format!("{}{}", self.key, task.key_suffix)
    }

    /// Makes one iteration. `None` when `stop` turned true first.
    ///
    /// # Errors
    /// Those of the requests.
    pub fn iterate(
        &mut self,
        plan: &Plan,
        task: &Task,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<Sample>, Failure> {
        let mut sample =
            Sample { put: None, get: None, got: 0, check: Check::Skipped, retries: 0, fell_back: 0 };
        let mut sent = None;
        if plan.operations.put() {
            let digests = self.prepare(plan, task).map_err(|e| Failure::transfer("fill PUT buffer", e))?;
            let started = Instant::now();
            match self.put(plan, task, &digests, stop).map_err(|e| Failure::transfer("PUT", e))? {
                Some(puts) => puts.iter().for_each(|put| sample.note(task.mode, put.carrier, put.attempts)),
                None => return Ok(None),
            }
            sample.put = Some(started.elapsed());
            sent = Some(digests);
        }
        if plan.operations.get() {
            if let Some(first) = sent.as_ref().and_then(|sent| sent.first) {
                // Nothing that the upload left behind may pass for a download.
                self.buffer.fill(!first).map_err(|e| Failure::transfer("overwrite the buffer", e))?;
            }
            let started = Instant::now();
            let got = match self.get(plan, task, stop).map_err(|e| Failure::transfer("GET", e))? {
                Some(got) => got,
                None => return Ok(None),
            };
            sample.get = Some(started.elapsed());
            sample.got = got.bytes;
            sample.note(task.mode, got.carrier, got.attempts);
            sample.check =
                self.check(plan, sent.as_ref(), &got).map_err(|e| Failure::transfer("checksum", e))?;
        }
        Ok(Some(sample))
    }

    /// Fills the buffer with new random bytes and takes their checksums.
    fn prepare(&mut self, plan: &Plan, task: &Task) -> Result<Sent> {
        let digester = || Digester::new(false, algorithm(plan.verify));
        let mut whole = digester();
        let mut range = plan.range.as_ref().map(|_| digester());
        let mut parts = Vec::new();
        let mut first = None;
        let size = task.size as usize;
        for part in Buffer::pieces(0..size, plan.part_size.map_or(size, |part| part as usize)) {
            let mut own = plan.part_size.map(|_| digester());
            for piece in Buffer::pieces(part, STAGING) {
                self.staging.resize(STAGING, 0);
                let room = &mut self.staging[..piece.len()];
                self.random.fill(room);
                first = first.or(room.first().copied());
                whole.update(room);
                if let Some(own) = &mut own {
                    own.update(room);
                }
                if let (Some(digester), Some(range)) = (&mut range, &plan.range) {
                    let start = (range.start as usize).clamp(piece.start, piece.end);
                    let end = (range.end as usize).clamp(piece.start, piece.end);
                    digester.update(&room[start - piece.start..end - piece.start]);
                }
                self.buffer.copy_in(piece.start, room)?;
            }
            parts.extend(own.map(Digester::finish));
        }
        let whole = whole.finish();
        Ok(Sent { range: range.map_or_else(|| whole.clone(), Digester::finish), whole, parts, first })
    }

    fn put(
        &mut self,
        plan: &Plan,
        task: &Task,
        sent: &Sent,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<Vec<Put>>> {
        let key = self.key(task);
        let length = task.size as usize;
        let checksum = (plan.verify == Verify::Crc64).then_some(Algorithm::Crc64Nvme);
        let (client, buffer, bucket) = (&self.client, &self.buffer, &plan.bucket);
        let upload = async {
            if let Some(part_size) = plan.part_size {
                let fall_back = plan.fall_back;
                let upload = Upload { client, bucket, key: &key, mode: task.mode, fall_back, checksum };
                return upload_parts(upload, buffer, length, part_size as usize, sent).await;
            }
            let options = PutOptions {
                fall_back: plan.fall_back,
                checksum: checksum.and_then(|a| Some((a, sent.whole.base64(a)?))),
            };
            let put = match task.mode {
                Mode::Rdma(_) => client.put_with(bucket, &key, buffer, 0..length, &options).await?,
                Mode::Standard => client.put_http(bucket, &key, buffer, 0..length, &options).await?,
            };
            Ok(vec![put])
        };
        self.runtime.block_on(unless_stopped(stop, upload)).transpose()
    }

    fn get(&mut self, plan: &Plan, task: &Task, stop: &mut watch::Receiver<bool>) -> Result<Option<Got>> {
        let key = self.key(task);
        let mut options = GetOptions { fall_back: plan.fall_back, ..GetOptions::default() };
        options.checksums = plan.operations == Operations::Get && plan.range.is_none();
        let (client, buffer) = (&self.client, &mut self.buffer);
        let download = async {
            let pieces: Vec<Range<u64>> = match &plan.range {
                Some(range) => vec![range.clone()],
                None if task.size > MAX_TRANSFER => ranges(task.size, MAX_TRANSFER).collect(),
                None => {
                    options.expect = Some(task.size);
                    return get(client, plan, &key, task.mode, buffer, &options).await;
                }
            };
            let mut all: Option<Got> = None;
            for range in pieces {
                options.offset = all.as_ref().map_or(0, |got| got.bytes as usize);
                options.expect = Some(range.end - range.start);
                options.range = Some(range);
                let mut got = get(client, plan, &key, task.mode, buffer, &options).await?;
                if let Some(before) = &all {
                    got.bytes += before.bytes;
                    got.attempts += before.attempts - 1;
                }
                all = Some(got);
            }
            all.ok_or_else(|| Error::Invalid { what: "an object of 0 bytes has no ranges".to_owned() })
        };
        self.runtime.block_on(unless_stopped(stop, download)).transpose()
    }

    /// Compares what came with what was sent, or with the checksum that is stored.
    fn check(&mut self, plan: &Plan, sent: Option<&Sent>, got: &Got) -> Result<Check> {
        let Some(own) = algorithm(plan.verify) else { return Ok(Check::Skipped) };
        let expected = match sent {
            Some(sent) => sent.range.base64(own).map(|value| (own, value)),
            None => best_stored(&got.checksums),
        };
        let Some((algorithm, expected)) = expected else { return Ok(Check::Skipped) };
        let mut digester = Digester::new(false, [algorithm]);
        for piece in Buffer::pieces(0..got.bytes as usize, STAGING) {
            self.staging.resize(STAGING, 0);
            let room = &mut self.staging[..piece.len()];
            self.buffer.copy_out(piece.start, room)?;
            digester.update(room);
        }
        let digests = digester.finish();
        let found = digests.base64(algorithm).unwrap_or_default();
        if found == expected {
            return Ok(Check::Ok);
        }
        let hex = |digests: &Digests| hex::encode(digests.get(algorithm).unwrap_or_default());
        Ok(match sent {
            Some(sent) => Check::Mismatch { put: hex(&sent.range), get: hex(&digests) },
            None => Check::Mismatch { put: expected, get: found },
        })
    }

    /// Size of the worker's object.
    ///
    /// # Errors
    /// The S3 error.
    pub fn object_size(&self, plan: &Plan) -> Result<u64> {
        self.runtime.block_on(self.client.head_object(&plan.bucket, &self.key)).map(|info| info.size)
    }

    /// Makes the bucket unless it is there. True when it was made.
    ///
    /// # Errors
    /// The S3 error.
    pub fn ensure_bucket(&self, bucket: &str) -> Result<bool> {
        self.runtime.block_on(self.client.ensure_bucket(bucket))
    }

    /// Deletes the worker's object of a run.
    ///
    /// # Errors
    /// The S3 error.
    pub fn delete(&self, plan: &Plan, task: &Task) -> Result<()> {
        self.runtime.block_on(self.client.delete_object(&plan.bucket, &self.key(task)))
    }
}

/// Checksums of uploaded bytes.
struct Sent {
    whole: Digests,
    /// Of each part of a multipart upload.
    parts: Vec<Digests>,
    /// Of the part that will be downloaded.
    range: Digests,
    /// The first byte.
    first: Option<u8>,
}

fn algorithm(verify: Verify) -> Option<Algorithm> {
    match verify {
        Verify::None => None,
        Verify::Crc32 => Some(Algorithm::Crc32),
        Verify::Crc64 => Some(Algorithm::Crc64Nvme),
    }
}

/// The stored checksum to verify by: CRC-64/NVME, which gateways compute by default, else any.
fn best_stored(stored: &[(Algorithm, String)]) -> Option<(Algorithm, String)> {
    stored.iter().find(|(a, _)| *a == Algorithm::Crc64Nvme).or(stored.first()).cloned()
}

fn ranges(size: u64, piece: u64) -> impl Iterator<Item = Range<u64>> {
    (0..size.div_ceil(piece)).map(move |i| i * piece..((i + 1) * piece).min(size))
}

async fn get(
    client: &Client,
    plan: &Plan,
    key: &str,
    mode: Mode,
    buffer: &mut Buffer,
    options: &GetOptions,
) -> Result<Got> {
    match mode {
        Mode::Rdma(_) => client.get(&plan.bucket, key, buffer, options).await,
        Mode::Standard => client.get_http(&plan.bucket, key, buffer, options).await,
    }
}

/// Uploads the buffer in parts, some at a time, and gives how the requests went.
async fn upload_parts(
    upload: Upload<'_>,
    buffer: &Buffer,
    length: usize,
    part_size: usize,
    sent: &Sent,
) -> Result<Vec<Put>> {
    let sum = |digests: &Digests| upload.checksum.and_then(|algorithm| digests.base64(algorithm));
    let mut puts = Vec::new();
    upload
        .run(async |parts| {
            let sends = Buffer::pieces(0..length, part_size)
                .zip(&sent.parts)
                .zip(1..)
                .map(|((range, digests), number)| parts.send(number, buffer, range, sum(digests)));
            let done: Vec<_> = stream::iter(sends).buffered(PARTS_AHEAD).try_collect().await?;
            let (completed, requests) = done.into_iter().unzip();
            puts = requests;
            Ok((completed, sum(&sent.whole)))
        })
        .await
        .map(|()| puts)
}

/// Runs `work` unless `stop` is or turns true.
async fn unless_stopped<T>(stop: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop) => None,
        done = work => Some(done),
    }
}
