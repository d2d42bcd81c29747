//! Bodies of requests: none, some bytes, or bytes that are copied out of a buffer as they leave.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::{Buffer, Error, Result};

/// Bytes copied out of a buffer at a time.
const PIECE: usize = 256 << 10;
/// Pieces on their way to the socket at most.
const PIECES_AHEAD: usize = 4;

/// The body of a request.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// Nothing, with `Content-Length: 0`.
    Empty,
    /// These bytes.
    Bytes(Option<Bytes>),
    /// What a [`Feeder`] sends.
    Fed { pieces: mpsc::Receiver<Bytes>, left: u64 },
}

impl RequestBody {
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Bytes(Some(bytes.into()))
    }

    /// Exact length in bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Empty | Self::Bytes(None) => 0,
            Self::Bytes(Some(bytes)) => bytes.len() as u64,
            Self::Fed { left, .. } => *left,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        let next = match self.get_mut() {
            Self::Empty => None,
            Self::Bytes(bytes) => bytes.take(),
            Self::Fed { pieces, left } => match pieces.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(piece) => piece.inspect(|piece| *left -= (piece.len() as u64).min(*left)),
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.length() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length())
    }
}

/// Copies a part of a buffer into a body. The copy is what a body costs beside RDMA: hyper wants
/// bytes that outlive the request, and the buffer is the caller's again once the request returns.
pub(crate) struct Feeder<'a> {
    buffer: &'a Buffer,
    range: std::ops::Range<usize>,
    sender: mpsc::Sender<Bytes>,
}

impl<'a> Feeder<'a> {
    pub(crate) fn new(buffer: &'a Buffer, range: std::ops::Range<usize>) -> (Self, RequestBody) {
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        let left = range.len() as u64;
        (Self { buffer, range, sender }, RequestBody::Fed { pieces, left })
    }

    /// Feeds the body to its end, or until the connection no longer takes it.
    ///
    /// # Errors
    /// Those of reading the buffer.
    pub(crate) async fn run(self) -> Result<()> {
        // Pieces whose bytes the socket has taken are used again: a fresh allocation of this size
        // would be a new mapping, with a page fault for each of its pages.
        let mut used: std::collections::VecDeque<Bytes> = std::collections::VecDeque::new();
        for piece in Buffer::pieces(self.range, PIECE) {
            let mut room = match used.pop_front().map(Bytes::try_into_mut) {
                Some(Ok(room)) => room,
                _ => BytesMut::zeroed(PIECE),
            };
            room.resize(piece.len(), 0);
            self.buffer.copy_out(piece.start, &mut room)?;
            let full = room.freeze();
            if self.sender.send(full.clone()).await.is_err() {
                return Ok(());
            }
            used.push_back(full);
            if used.len() > PIECES_AHEAD + 2 {
                used.pop_front();
            }
        }
        Ok(())
    }
}

/// Writes a response body into a buffer, piece by piece.
pub(crate) struct Filler<'a> {
    buffer: &'a mut Buffer,
    at: usize,
    end: usize,
}

impl<'a> Filler<'a> {
    /// Fills `buffer` from `offset`, at most `length` bytes.
    pub(crate) fn new(buffer: &'a mut Buffer, offset: usize, length: usize) -> Result<Self> {
        buffer.check(offset, length)?;
        Ok(Self { buffer, at: offset, end: offset + length })
    }

    pub(crate) fn take(&mut self, data: &[u8], operation: &str) -> Result<()> {
        if data.len() > self.end - self.at {
            return Err(Error::BodyLength {
                operation: operation.to_owned(),
                actual: (self.at + data.len()) as u64,
                expected: self.end as u64,
            });
        }
        self.buffer.copy_in(self.at, data)?;
        self.at += data.len();
        Ok(())
    }
}
