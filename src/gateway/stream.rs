//! An open object as an HTTP body: read ahead on blocking threads, in order, exactly as long as said.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use s3s::StdError;
use s3s::stream::{ByteStream, RemainingLength};
use tokio::task::JoinHandle;

use crate::transfer::BlockSource;

/// Bytes read at a time.
pub(crate) const READ: usize = 256 << 10;

/// Reads of one response that may be done or under way before they are sent.
const AHEAD: usize = 3;

/// Spare buffers kept; more are given back to the allocator.
const SPARE: usize = 128;

static BUFFERS: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer of [`READ`] bytes that goes back to the spare ones when the response has sent it.
///
/// Fresh memory would have to be zeroed, and often mapped, for each read.
struct Buffer {
    bytes: Option<Box<[u8]>>,
    length: usize,
}

impl Buffer {
    fn take(length: usize) -> Self {
        let spare = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self {
            bytes: Some(spare.unwrap_or_else(|| vec![0; READ].into_boxed_slice())),
            length: length.min(READ),
        }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        self.bytes.as_mut().map_or(&mut [], |bytes| &mut bytes[..length])
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| &bytes[..self.length])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut spare = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = self.bytes.take()
            && spare.len() < SPARE
        {
            spare.push(bytes);
        }
    }
}

/// Reads one buffer; what is handed out holds exactly `length` bytes, at most [`READ`].
pub(crate) fn read_buffer(source: &dyn BlockSource, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = Buffer::take(length);
    source.read_at(offset, buffer.as_mut())?;
    Ok(Bytes::from_owner(buffer))
}

/// A range of a source as a stream of buffers.
pub(crate) struct ReadAhead {
    source: Arc<dyn BlockSource>,
    /// First byte not yet asked for.
    next: u64,
    /// First byte after the range.
    end: u64,
    /// Bytes not yet yielded.
    remaining: u64,
    reads: VecDeque<JoinHandle<io::Result<Bytes>>>,
    /// The first buffer, when the caller has read it already.
    first: Option<Bytes>,
    failed: bool,
}

impl ReadAhead {
    /// Streams `length` bytes from `start`; `first` is their beginning when it has been read.
    pub(crate) fn new(source: Arc<dyn BlockSource>, start: u64, length: u64, first: Option<Bytes>) -> Self {
        let read = first.as_ref().map_or(0, |f| f.len() as u64);
        Self {
            source,
            next: start + read,
            end: start + length,
            remaining: length,
            reads: VecDeque::new(),
            first: first.filter(|f| !f.is_empty()),
            failed: false,
        }
    }

    fn start_reads(&mut self) {
        while self.reads.len() < AHEAD && self.next < self.end {
            let length = usize::try_from(self.end - self.next).map_or(READ, |rest| rest.min(READ));
            let (source, offset) = (Arc::clone(&self.source), self.next);
            self.next += length as u64;
            self.reads.push_back(tokio::task::spawn_blocking(move || read_buffer(&*source, offset, length)));
        }
    }
}

impl Stream for ReadAhead {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.failed {
            return Poll::Ready(None);
        }
        self.start_reads();
        let read = if let Some(first) = self.first.take() {
            Ok(Ok(first))
        } else {
            let Some(oldest) = self.reads.front_mut() else { return Poll::Ready(None) };
            let result = ready!(Pin::new(oldest).poll(cx));
            self.reads.pop_front();
            result
        };
        self.start_reads();
        let result: Result<Bytes, StdError> = match read {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(Box::new(error)),
            Err(error) => Err(Box::new(error)),
        };
        match &result {
            Ok(bytes) => self.remaining -= bytes.len() as u64,
            Err(error) => {
                // The status is out already: all that is left is to break the connection, so that the
                // client sees a short body.
                tracing::error!(%error, "cannot read an object's data");
                self.failed = true;
            }
        }
        Poll::Ready(Some(result))
    }
}

impl ByteStream for ReadAhead {
    fn remaining_length(&self) -> RemainingLength {
        usize::try_from(self.remaining)
            .map_or_else(|_| RemainingLength::unknown(), RemainingLength::new_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use test_case::test_case;

    struct Memory(Vec<u8>);

    impl BlockSource for Memory {
        fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
            let from = self.0.get(offset as usize..offset as usize + data.len());
            data.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    fn source(length: usize) -> (Arc<Memory>, Vec<u8>) {
        let data: Vec<u8> = (0..length).map(|i| (i * 7 % 253) as u8).collect();
        (Arc::new(Memory(data.clone())), data)
    }

    #[test_case(0, 0)]
    #[test_case(0, 1)]
    #[test_case(5, READ)]
    #[test_case(1, READ + 1)]
    #[test_case(0, 10 * READ)]
    #[test_case(READ, 7 * READ + 13)]
    fn streams_exactly_the_range(start: usize, length: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (source, data) = source(12 * READ);
            for read_first in [false, true] {
                let first =
                    read_first.then(|| read_buffer(&*source, start as u64, length.min(READ)).unwrap());
                let stream = ReadAhead::new(Arc::clone(&source) as _, start as u64, length as u64, first);
                assert_eq!(stream.remaining_length().exact(), Some(length));
                let parts: Vec<Bytes> = stream.map(Result::unwrap).collect().await;
                assert!(parts.concat() == data[start..start + length]);
            }
        });
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error_not_an_end() {
        let (source, _) = source(READ);
        let mut stream = ReadAhead::new(source, 0, 2 * READ as u64, None);
        assert!(stream.next().await.unwrap().is_ok());
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
    }
}
