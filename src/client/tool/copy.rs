//! `cuobjtest cp`: one file to the gateway or from it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::signal::unix::{SignalKind, signal};

use super::args::CopyArgs;
use super::memory::Memory;
use super::parts::Upload;
use super::plan::{Mode, client, memory, size};
use super::report::size_text;
use super::stats::gigabytes_per_second;
use super::{Exit, Failure};
use crate::client::{
    Buffer, Client, Error, GetOptions, MAX_PARTS, MAX_TRANSFER, ObjectInfo, PutOptions, Result,
};
use crate::digest::{Algorithm, Digester};

/// Parts of files that are too large for one request, and pieces of downloads.
const PART: u64 = 256 << 20;
/// Bytes that pass between the file and the buffer at a time.
const STAGING: usize = 4 << 20;

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Object { bucket: String, key: String },
    File(PathBuf),
}

impl Place {
    fn parse(text: &str) -> Result<Self, Failure> {
        let Some(rest) = text.strip_prefix("s3://") else { return Ok(Self::File(text.into())) };
        match rest.split_once('/') {
            Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
                Ok(Self::Object { bucket: bucket.to_owned(), key: key.to_owned() })
            }
            _ => Err(Failure::Usage(format!("{text:?} is not of the form s3://bucket/key"))),
        }
    }
}

/// Copies, and tells how fast on standard error.
pub(crate) fn run(args: &CopyArgs) -> Result<Exit, Failure> {
    let sides = (Place::parse(&args.source)?, Place::parse(&args.destination)?);
    let part = args.multipart.as_deref().map(|text| size("-multipart", text, MAX_TRANSFER)).transpose()?;
    let client = client(&args.connection)?.build()?;
    let memory = Memory::open(args.standard, memory(&args.memory)?, args.memory.gpu)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::Usage(format!("cannot start: {e}")))?;
    let copy = Copy { client, memory, fall_back: args.connection.fall_back };
    let started = Instant::now();
    let work = async {
        match sides {
            (Place::File(file), Place::Object { bucket, key }) => {
                copy.upload(&file, &bucket, &key, part).await
            }
            (Place::Object { bucket, key }, Place::File(file)) if part.is_none() => {
                copy.download(&bucket, &key, &file).await
            }
            (Place::Object { .. }, Place::File(_)) => {
                Err(Failure::Usage("-multipart has no effect on downloads; leave it out".to_owned()))
            }
            _ => Err(Failure::Usage(
                "one of the two sides must be s3://bucket/key, the other a file".to_owned(),
            )),
        }
    };
    let bytes = runtime.block_on(async {
        let unwatched = |e| Failure::Usage(format!("cannot watch for interrupts: {e}"));
        let mut interrupts = signal(SignalKind::interrupt()).map_err(unwatched)?;
        let mut terminations = signal(SignalKind::terminate()).map_err(unwatched)?;
        tokio::select! {
            done = work => done,
            _ = interrupts.recv() => Err(Failure::Interrupted),
            _ = terminations.recv() => Err(Failure::Interrupted),
        }
    })?;
    let took = started.elapsed();
    eprintln!(
        "cuobjtest: {} in {:.3} s, {:.3} GB/s, mode={}",
        size_text(bytes),
        took.as_secs_f64(),
        gigabytes_per_second(bytes, took),
        copy.memory.mode().label()
    );
    Ok(Exit::Verified)
}

struct Copy {
    client: Client,
    memory: Memory,
    fall_back: bool,
}

impl Copy {
    fn is_rdma(&self) -> bool {
        self.memory.mode() != Mode::Standard
    }

    async fn upload(&self, path: &Path, bucket: &str, key: &str, part: Option<u64>) -> Result<u64, Failure> {
        let unreadable = |e: std::io::Error| Failure::Usage(format!("{}: {e}", path.display()));
        let mut file = File::open(path).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(Failure::Usage(format!("{} is not a regular file", path.display())));
        }
        let length = file.seek(std::io::SeekFrom::End(0)).and_then(|end| file.rewind().map(|()| end));
        let length = length.map_err(unreadable)?;
        let part = part.or((length > MAX_TRANSFER).then_some(PART));
        let failed = |e| Failure::transfer(format!("{bucket}/{key}"), e);
        let mut buffer = self.memory.buffer(length.min(part.unwrap_or(MAX_TRANSFER)).max(1) as usize)?;
        let Some(part) = part.filter(|&part| part < length) else {
            let mut sum = digester();
            fill(&mut file, &mut buffer, length as usize, &mut [&mut sum])
                .map_err(|e| e.told(path, failed))?;
            let checksum = base64(sum).map(|sum| (Algorithm::Crc64Nvme, sum));
            let options = PutOptions { fall_back: self.fall_back, checksum };
            let range = 0..length as usize;
            let put = if self.is_rdma() {
                self.client.put_with(bucket, key, &buffer, range, &options).await
            } else {
                self.client.put_http(bucket, key, &buffer, range, &options).await
            };
            put.map_err(failed)?;
            return Ok(length);
        };
        if length.div_ceil(part) > u64::from(MAX_PARTS) {
            return Err(Failure::Usage(format!("-multipart: more than {MAX_PARTS} parts; use larger ones")));
        }
        let upload = Upload {
            client: &self.client,
            bucket,
            key,
            mode: self.memory.mode(),
            fall_back: self.fall_back,
            checksum: Some(Algorithm::Crc64Nvme),
        };
        let sent = upload.run(async |parts| {
            let mut completed = Vec::new();
            let mut whole = digester();
            for range in pieces(length, part) {
                let size = (range.end - range.start) as usize;
                let mut own = digester();
                let mut sums = [&mut own, &mut whole];
                fill(&mut file, &mut buffer, size, &mut sums).map_err(|e| e.told(path, Failure::from))?;
                let sum = base64(own);
                let number = completed.len() as u32 + 1;
                let (part, _) = parts.send(number, &buffer, 0..size, sum).await?;
                completed.push(part);
            }
            Ok((completed, base64(whole)))
        });
        sent.await.map_err(|e: Failure| e.within(&format!("{bucket}/{key}"))).map(|()| length)
    }

    /// Downloads into a file beside the destination, which takes its place once it is verified.
    async fn download(&self, bucket: &str, key: &str, path: &Path) -> Result<u64, Failure> {
        let failed = |e| Failure::transfer(format!("{bucket}/{key}"), e);
        let info = self.client.head_object(bucket, key).await.map_err(failed)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        if name.is_empty() || path.is_dir() {
            return Err(Failure::Usage(format!("{} is a directory; name a file", path.display())));
        }
        name.push(format!(".{}.part", std::process::id()));
        let beside = path.with_file_name(name);
        let partial = Partial(&beside);
        let done = async {
            let output = |source| Failure::Output { place: beside.display().to_string(), source };
            let mut file = File::create(&beside).map_err(output)?;
            self.fetch(bucket, key, &info, &mut file, output).await?;
            std::fs::rename(&beside, path)
                .map_err(|source| Failure::Output { place: path.display().to_string(), source })
        }
        .await;
        drop(partial);
        done.map(|()| info.size)
    }

    async fn fetch(
        &self,
        bucket: &str,
        key: &str,
        info: &ObjectInfo,
        file: &mut File,
        output: impl Fn(std::io::Error) -> Failure,
    ) -> Result<(), Failure> {
        let failed = |e| Failure::transfer(format!("{bucket}/{key}"), e);
        let stored = info.checksums.first();
        let mut digester = Digester::new(false, stored.map(|(algorithm, _)| *algorithm));
        let mut buffer = self.memory.buffer(info.size.clamp(1, PART) as usize)?;
        let mut staging = vec![0; STAGING.min(buffer.len())];
        for range in pieces(info.size, PART) {
            let bytes = range.end - range.start;
            let mut options = GetOptions::exactly(bytes);
            options.fall_back = self.fall_back;
            options.if_match.clone_from(&info.etag);
            options.range = (bytes < info.size).then_some(range);
            if self.is_rdma() {
                self.client.get(bucket, key, &mut buffer, &options).await
            } else {
                self.client.get_http(bucket, key, &mut buffer, &options).await
            }
            .map_err(failed)?;
            for piece in Buffer::pieces(0..bytes as usize, STAGING) {
                let room = &mut staging[..piece.len()];
                buffer.copy_out(piece.start, room).map_err(failed)?;
                digester.update(room);
                file.write_all(room).map_err(&output)?;
            }
        }
        if let Some((algorithm, expected)) = stored
            && digester.finish().base64(*algorithm).as_ref() != Some(expected)
        {
            return Err(Failure::Mismatch { mismatches: 1, iterations: 1 });
        }
        Ok(())
    }
}

/// A file that is not complete. Removed on drop, also when the copy is interrupted; there is none any
/// more once it has taken its place.
struct Partial<'a>(&'a Path);

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

fn pieces(length: u64, size: u64) -> impl Iterator<Item = Range<u64>> {
    (0..length.div_ceil(size)).map(move |i| i * size..((i + 1) * size).min(length))
}

/// Why a buffer could not be filled.
enum FillError {
    File(std::io::Error),
    Buffer(Error),
}

impl FillError {
    fn told(self, path: &Path, buffer: impl Fn(Error) -> Failure) -> Failure {
        match self {
            Self::File(error) => Failure::Usage(format!("{}: {error}", path.display())),
            Self::Buffer(error) => buffer(error),
        }
    }
}

fn digester() -> Digester {
    Digester::new(false, [Algorithm::Crc64Nvme])
}

fn base64(digester: Digester) -> Option<String> {
    digester.finish().base64(Algorithm::Crc64Nvme)
}

/// Reads the file's next `length` bytes into the buffer, and past the digesters.
fn fill(
    file: &mut File,
    buffer: &mut Buffer,
    length: usize,
    digesters: &mut [&mut Digester],
) -> Result<(), FillError> {
    let mut staging = vec![0; STAGING.min(length)];
    for piece in Buffer::pieces(0..length, STAGING) {
        let room = &mut staging[..piece.len()];
        file.read_exact(room).map_err(FillError::File)?;
        digesters.iter_mut().for_each(|digester| digester.update(room));
        buffer.copy_in(piece.start, room).map_err(FillError::Buffer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let object = |bucket: &str, key: &str| Place::Object { bucket: bucket.into(), key: key.into() };
        assert_eq!(Place::parse("s3://b/k/x").unwrap(), object("b", "k/x"));
        assert_eq!(Place::parse("dir/file").unwrap(), Place::File("dir/file".into()));
        for wrong in ["s3://", "s3://b", "s3://b/", "s3:///k"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pieces_cover_the_length() {
        assert_eq!(pieces(5, 2).collect::<Vec<_>>(), [0..2, 2..4, 4..5]);
        assert_eq!(pieces(0, 2).count(), 0);
    }
}
