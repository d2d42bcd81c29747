//! From an HTTP body into a pending object: bytes gathered into buffers, written at their offsets
//! on blocking threads while the digest takes them in order.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use s3s::dto::StreamingBlob;
use s3s::{S3ErrorCode, S3Result};
use tokio::task::JoinHandle;

use super::blocking::{Blocking, joined};
use super::error::{body_error, io_error, s3};
use crate::digest::{Digester, Digests};
use crate::transfer::BlockSink;

/// Size of a buffer in bytes.
pub(crate) const BUFFER: usize = 1 << 20;

/// Buffers of one request that may be on their way to the file.
const WRITES: usize = 3;

/// A body that may be read up to its end by one buffer.
pub(crate) enum Start {
    /// It was all there was.
    Whole(Bytes),
    /// There is more; the buffer is the beginning.
    More(Bytes, Rest),
}

/// The rest of a body.
pub(crate) struct Rest {
    body: StreamingBlob,
    /// A frame that did not fit in the buffer before.
    left: Bytes,
    /// What the headers say the whole is long.
    length: u64,
}

fn wrong_length(expected: u64, got: u64) -> s3s::S3Error {
    s3(
        S3ErrorCode::IncompleteBody,
        format!(
            "the headers state {expected} bytes and the body has {}{got}",
            if got > expected { "at least " } else { "" }
        ),
    )
}

/// Reads the first buffer of a body that the headers say is `length` bytes long.
///
/// # Errors
/// `IncompleteBody` and what [`body_error`] knows.
pub(crate) async fn start(body: StreamingBlob, length: u64) -> S3Result<Start> {
    let mut rest = Rest { body, left: Bytes::new(), length };
    let (first, ended) = rest.fill(BUFFER.min(usize::try_from(length).unwrap_or(BUFFER))).await?;
    let got = first.len() as u64;
    if !ended && got < length {
        return Ok(Start::More(first, rest));
    }
    if ended {
        return if got == length { Ok(Start::Whole(first)) } else { Err(wrong_length(length, got)) };
    }
    rest.expect_end(got).await?;
    Ok(Start::Whole(first))
}

impl Rest {
    /// Gathers up to `size` bytes; tells whether the body ended.
    async fn fill(&mut self, size: usize) -> S3Result<(Bytes, bool)> {
        if self.left.len() >= size {
            return Ok((self.left.split_to(size), false));
        }
        // One frame that is the whole buffer is passed on as it is.
        let mut buffer = BytesMut::new();
        let mut only = std::mem::take(&mut self.left);
        loop {
            if buffer.len() + only.len() >= size {
                break;
            }
            match self.body.next().await {
                None => {
                    let all = if buffer.is_empty() {
                        only
                    } else {
                        buffer.extend_from_slice(&only);
                        buffer.freeze()
                    };
                    return Ok((all, true));
                }
                Some(Err(error)) => return Err(body_error(&*error)),
                Some(Ok(frame)) if frame.is_empty() => {}
                Some(Ok(frame)) => {
                    if !only.is_empty() {
                        if buffer.capacity() == 0 {
                            buffer.reserve(size);
                        }
                        buffer.extend_from_slice(&only);
                    }
                    only = frame;
                }
            }
        }
        let fits = size - buffer.len();
        let tail = only.split_to(fits);
        self.left = only;
        if buffer.is_empty() {
            return Ok((tail, false));
        }
        buffer.extend_from_slice(&tail);
        Ok((buffer.freeze(), false))
    }

    /// Makes sure that the body ends here; the end is also where signatures, hashes and trailers of
    /// the body are verified.
    async fn expect_end(&mut self, got: u64) -> S3Result<()> {
        let (more, _) = self.fill(1).await?;
        if more.is_empty() { Ok(()) } else { Err(wrong_length(self.length, got + 1)) }
    }

    /// Writes `first` and all that follows, and digests it.
    ///
    /// When this returns, with whatever result, no write is in progress any more; when it is dropped,
    /// writes that have begun go on and keep `sink` alive until they end.
    ///
    /// # Errors
    /// `IncompleteBody` and the like for the body, the file system's for a failed write.
    pub(crate) async fn write(
        mut self,
        first: Bytes,
        sink: Arc<dyn BlockSink>,
        mut digester: Digester,
        blocking: &Blocking,
    ) -> S3Result<Digests> {
        let mut writes: VecDeque<JoinHandle<std::io::Result<()>>> = VecDeque::new();
        let mut digest: Option<JoinHandle<Digester>> = None;
        let mut buffer = first;
        let mut offset = 0;
        let result = loop {
            if writes.len() >= WRITES
                && let Some(oldest) = writes.pop_front()
                && let Err(error) = written(oldest).await
            {
                break Err(error);
            }
            if let Some(previous) = digest.take() {
                match joined(previous).await {
                    Ok(back) => digester = back,
                    Err(error) => return drain(writes, Err(error)).await,
                }
            }
            let length = buffer.len() as u64;
            let (data, at, target) = (buffer.clone(), offset, Arc::clone(&sink));
            writes.push_back(blocking.spawn(move || target.write_at(at, &data)).await);
            let data = buffer;
            let mut moved = digester;
            digest = Some(
                blocking
                    .spawn(move || {
                        moved.update(&data);
                        moved
                    })
                    .await,
            );
            // Taken back from the task above before it is used again.
            digester = Digester::new(false, []);
            offset += length;
            if offset == self.length {
                break self.expect_end(offset).await;
            }
            let size = BUFFER.min(usize::try_from(self.length - offset).unwrap_or(BUFFER));
            buffer = match self.fill(size).await {
                Ok((data, true)) if offset + (data.len() as u64) < self.length => {
                    break Err(wrong_length(self.length, offset + data.len() as u64));
                }
                Ok((data, _)) => data,
                Err(error) => break Err(error),
            };
        };
        let digests = match digest {
            Some(last) => joined(last).await,
            None => Ok(digester),
        };
        drain(writes, result.and(digests)).await.map(Digester::finish)
    }
}

async fn written(write: JoinHandle<std::io::Result<()>>) -> S3Result<()> {
    joined(write).await?.map_err(|error| io_error("cannot write an object's data", &error))
}

/// Waits for all writes; the first failure counts.
async fn drain<T>(writes: VecDeque<JoinHandle<std::io::Result<()>>>, result: S3Result<T>) -> S3Result<T> {
    let mut failure = None;
    for write in writes {
        if let Err(error) = written(write).await {
            failure.get_or_insert(error);
        }
    }
    match failure {
        Some(error) => result.and(Err(error)),
        None => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Algorithm;
    use futures_util::stream;
    use std::io;
    use std::sync::Mutex;
    use test_case::test_case;

    #[derive(Default)]
    struct Memory(Mutex<Vec<u8>>);

    impl BlockSink for Memory {
        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let mut bytes = self.0.lock().unwrap();
            let end = offset as usize + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset as usize..end].copy_from_slice(data);
            Ok(())
        }
    }

    struct Full;
    impl BlockSink for Full {
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
    }

    fn body(data: &[u8], frame: usize) -> StreamingBlob {
        let frames: Vec<_> =
            data.chunks(frame).map(|f| Ok::<_, io::Error>(Bytes::copy_from_slice(f))).collect();
        StreamingBlob::wrap(stream::iter(frames))
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 31 % 251) as u8).collect()
    }

    async fn run(data: &[u8], frame: usize, stated: u64) -> Result<(Vec<u8>, Digests), String> {
        let name = |e: s3s::S3Error| e.code().as_str().to_owned();
        let sink = Arc::new(Memory::default());
        let mut digester = Digester::new(true, [Algorithm::Crc64Nvme]);
        let digests = match start(body(data, frame), stated).await.map_err(name)? {
            Start::Whole(bytes) => {
                sink.write_at(0, &bytes).unwrap();
                digester.update(&bytes);
                digester.finish()
            }
            Start::More(first, rest) => {
                let target = Arc::clone(&sink) as Arc<dyn BlockSink>;
                rest.write(first, target, digester, &Blocking::new(4)).await.map_err(name)?
            }
        };
        let bytes = std::mem::take(&mut *sink.0.lock().unwrap());
        Ok((bytes, digests))
    }

    #[test_case(0, 10)]
    #[test_case(1, 1)]
    #[test_case(BUFFER - 1, 7001)]
    #[test_case(BUFFER, BUFFER)]
    #[test_case(BUFFER + 1, 65536)]
    #[test_case(5 * BUFFER + 333, 100_000)]
    #[test_case(3 * BUFFER, 2 * BUFFER + 5; "frames larger than a buffer")]
    fn all_bytes_arrive(length: usize, frame: usize) {
        let data = pattern(length);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (bytes, digests) = runtime.block_on(run(&data, frame, length as u64)).unwrap();
        assert!(bytes == data);
        let mut whole = Digester::new(true, [Algorithm::Crc64Nvme]);
        whole.update(&data);
        assert_eq!(digests, whole.finish());
    }

    #[test_case(10, 11)]
    #[test_case(10, 9)]
    #[test_case(0, 1)]
    #[test_case(1, 0)]
    #[test_case(BUFFER, BUFFER + 1)]
    #[test_case(BUFFER + 1, BUFFER)]
    #[test_case(3 * BUFFER, 3 * BUFFER + 1)]
    #[test_case(3 * BUFFER + 1, 3 * BUFFER)]
    fn another_length_is_refused(length: usize, stated: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let result = runtime.block_on(run(&pattern(length), 50_000, stated as u64));
        assert_eq!(result.unwrap_err(), "IncompleteBody");
    }

    #[tokio::test]
    async fn a_full_disk_ends_the_request() {
        let data = pattern(6 * BUFFER);
        let Start::More(first, rest) = start(body(&data, 65536), data.len() as u64).await.unwrap() else {
            panic!("more than a buffer");
        };
        let error =
            rest.write(first, Arc::new(Full), Digester::new(true, []), &Blocking::new(4)).await.unwrap_err();
        assert_eq!(error.code().as_str(), "InsufficientStorage");
    }
}
