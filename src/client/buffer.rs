//! Registered memory as the client uses it: host or GPU, with tokens for parts of it.

use std::fmt;
use std::ops::Range;

use super::{Error, Result, Token};
use crate::rdma::Op;

/// Where the bytes of a buffer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Memory of the process.
    Host,
    /// Memory of a CUDA device.
    Gpu,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "host",
            Self::Gpu => "gpu",
        })
    }
}

/// Memory that a gateway can be given access to.
///
/// [`Buffer`] is the type to use; this trait is what stands behind it, so that host memory, GPU
/// memory and test doubles take part in the same operations. Offsets and lengths are in bytes and
/// have been checked by [`Buffer`]. Every method but [`token`](Self::token) takes the access of
/// unfinished tokens away before it touches the bytes.
pub trait Memory: Send + Sync + fmt::Debug {
    /// Size in bytes.
    fn len(&self) -> usize;

    /// True for a size of 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the bytes are.
    fn kind(&self) -> MemoryKind;

    /// Mints a token for `length` bytes from `offset`, registering the memory first if need be.
    ///
    /// # Errors
    /// When registration or the token is refused.
    fn token(&self, offset: usize, length: usize, op: Op) -> Result<Token>;

    /// Takes the access of tokens away that have not been finished.
    ///
    /// # Errors
    /// When the library does not confirm it. The memory must then be regarded as still open.
    fn settle(&mut self) -> Result<()>;

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// When access cannot be taken away, or the copy to the device fails.
    fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()>;

    /// Copies from `offset` to all of `out`.
    ///
    /// # Errors
    /// When access cannot be taken away, or the copy from the device fails.
    fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// When access cannot be taken away, or the device refuses.
    fn fill(&mut self, value: u8) -> Result<()>;

    /// The bytes, where the processor can reach them in place.
    ///
    /// # Errors
    /// When access cannot be taken away.
    fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        Ok(None)
    }
}

/// A registered buffer: registered once, used by any number of requests.
///
/// While the outcome of a request is unknown (it timed out, its connection broke, or its future was
/// dropped), the gateway may still read or write the memory. Such requests lose their access, by the
/// end of the registration, before the bytes are seen or changed again. The next request registers
/// the memory anew.
///
/// ```
/// use vgwrdma::client::{Buffer, Error, testing::VecMemory};
///
/// let mut buffer = Buffer::new(VecMemory::new(4096));
/// buffer.copy_in(0, b"hello")?;
/// let mut out = [0; 5];
/// buffer.copy_out(0, &mut out)?;
/// assert_eq!(&out, b"hello");
/// assert!(buffer.copy_in(4095, b"xx").is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Buffer {
    memory: Box<dyn Memory>,
}

impl Buffer {
    /// Wraps memory of any kind.
    pub fn new(memory: impl Memory + 'static) -> Self {
        Self { memory: Box::new(memory) }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// True for a size of 0.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Where the bytes are.
    pub fn kind(&self) -> MemoryKind {
        self.memory.kind()
    }

    /// Copies `data` into the buffer at `offset`.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the buffer; otherwise the device's or the library's error.
    pub fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.check(offset, data.len())?;
        self.memory.copy_in(offset, data)
    }

    /// Copies bytes from `offset` to all of `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the buffer; otherwise the device's or the library's error.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len())?;
        self.memory.copy_out(offset, out)
    }

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// The device's or the library's error.
    pub fn fill(&mut self, value: u8) -> Result<()> {
        self.memory.fill(value)
    }

    /// The bytes, or `None` for device memory.
    ///
    /// # Errors
    /// When access that an unanswered request still has could not be taken away.
    pub fn as_slice(&mut self) -> Result<Option<&[u8]>> {
        Ok(self.as_mut_slice()?.map(|bytes| &*bytes))
    }

    /// The bytes for writing, or `None` for device memory.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        self.memory.as_mut_slice()
    }

    /// Takes the access of unanswered requests away.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.memory.settle()
    }

    /// Mints a token for a request that is about to be sent.
    pub(crate) fn token(&self, offset: usize, length: usize, op: Op) -> Result<Token> {
        self.check(offset, length)?;
        self.memory.token(offset, length, op)
    }

    pub(crate) fn check(&self, offset: usize, length: usize) -> Result<()> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.len()) {
            return Err(Error::Invalid {
                what: format!("{length} bytes at offset {offset} do not fit in a buffer of {}", self.len()),
            });
        }
        Ok(())
    }

    /// Cuts `range` into pieces of at most `size` bytes.
    pub(crate) fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
        let end = range.end;
        range.step_by(size).map(move |start| start..(start + size).min(end))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::testing::VecMemory;
    use super::*;

    #[test]
    fn an_answered_request_keeps_the_registration() {
        let memory = VecMemory::new(64);
        let revoked = memory.revocations();
        let buffer = Buffer::new(memory);
        buffer.token(0, 64, Op::Put).unwrap().finish();
        buffer.copy_out(0, &mut [0]).unwrap();
        assert_eq!(revoked.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bytes_are_seen_only_after_an_unanswered_request_lost_its_access() {
        let memory = VecMemory::new(64);
        let revoked = memory.revocations();
        let mut buffer = Buffer::new(memory);
        drop(buffer.token(0, 64, Op::Get).unwrap());
        assert_eq!(revoked.load(Ordering::Relaxed), 0);
        buffer.copy_in(0, b"x").unwrap();
        assert_eq!(revoked.load(Ordering::Relaxed), 1);
        buffer.copy_out(0, &mut [0]).unwrap();
        assert_eq!(revoked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn bounds_do_not_wrap() {
        let buffer = Buffer::new(VecMemory::new(64));
        assert!(buffer.token(1, usize::MAX, Op::Get).is_err());
        assert!(buffer.copy_out(60, &mut [0; 5]).is_err());
        assert!(buffer.copy_out(59, &mut [0; 5]).is_ok());
    }

    #[test]
    fn pieces_cover_the_range() {
        let pieces: Vec<_> = Buffer::pieces(10..35, 10).collect();
        assert_eq!(pieces, [10..20, 20..30, 30..35]);
        assert_eq!(Buffer::pieces(3..3, 10).count(), 0);
    }
}
