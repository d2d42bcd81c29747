//! Registered memory as the client uses it: host or GPU, with tokens for parts of it.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Direction, Error, Result, Token};

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
/// have been checked by [`Buffer`].
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
    fn token(&self, offset: usize, length: usize, direction: Direction) -> Result<Token>;

    /// Ends every access that tokens have given; new tokens need a new registration.
    ///
    /// # Errors
    /// When the library does not confirm it. The memory must then be regarded as still open.
    fn revoke(&self) -> Result<()>;

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// When the copy to the device fails.
    fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()>;

    /// Copies from `offset` to all of `out`.
    ///
    /// # Errors
    /// When the copy from the device fails.
    fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// When the device refuses.
    fn fill(&mut self, value: u8) -> Result<()>;

    /// The bytes, where the processor can read them in place.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    /// The bytes, where the processor can write them in place.
    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        None
    }
}

/// A registered buffer: registered once, used by any number of requests.
///
/// While the outcome of a request is unknown (it timed out, its connection broke, or its future was
/// dropped), the gateway may still read or write the memory. The buffer keeps count of such
/// requests, and takes their access away, by ending the registration, before it lets its bytes be
/// seen or changed again. The next request registers it anew.
///
/// ```
/// use vgwrdma::client::{Buffer, Error, testing::VecMemory};
///
/// let mut buffer = Buffer::new(Box::new(VecMemory::new(4096)));
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
    /// Requests that have been sent and not been answered for certain.
    open: AtomicUsize,
    /// Held while access is taken away, so that a second reader waits for it.
    settling: Mutex<()>,
}

impl Buffer {
    /// Wraps memory of any kind.
    pub fn new(memory: Box<dyn Memory>) -> Self {
        Self { memory, open: AtomicUsize::new(0), settling: Mutex::new(()) }
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
    /// [`Error::Invalid`] outside the buffer; otherwise the device's error.
    pub fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.check(offset, data.len())?;
        self.settle()?;
        self.memory.copy_in(offset, data)
    }

    /// Copies bytes from `offset` to all of `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the buffer; otherwise the device's error.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len())?;
        self.settle()?;
        self.memory.copy_out(offset, out)
    }

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// The device's error.
    pub fn fill(&mut self, value: u8) -> Result<()> {
        self.settle()?;
        self.memory.fill(value)
    }

    /// The bytes, or `None` for device memory.
    ///
    /// # Errors
    /// When access that an unanswered request still has could not be taken away.
    pub fn as_slice(&self) -> Result<Option<&[u8]>> {
        self.settle()?;
        Ok(self.memory.as_slice())
    }

    /// The bytes for writing, or `None` for device memory.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        self.settle()?;
        Ok(self.memory.as_mut_slice())
    }

    /// Takes the access of unanswered requests away.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let _one = self.settling.lock().unwrap_or_else(|e| e.into_inner());
        let open = self.open.load(Ordering::Acquire);
        if open > 0 {
            self.memory.revoke()?;
            self.open.fetch_sub(open, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Mints a token for a request that is about to be sent.
    pub(crate) fn open_window(
        &self,
        offset: usize,
        length: usize,
        direction: Direction,
    ) -> Result<Window<'_>> {
        self.check(offset, length)?;
        let token = self.memory.token(offset, length, direction)?;
        self.open.fetch_add(1, Ordering::AcqRel);
        Ok(Window { buffer: self, token })
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

/// A token in use. Dropping it without [`close`](Self::close) leaves the request counted as unanswered.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    buffer: &'a Buffer,
    token: Token,
}

impl Window<'_> {
    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    /// Says that the gateway is done with the memory, or was never told of it.
    pub(crate) fn close(self) {
        self.buffer.open.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::VecMemory;
    use super::*;

    #[test]
    fn an_answered_request_keeps_the_registration() {
        let memory = VecMemory::new(64);
        let revoked = memory.revocations();
        let buffer = Buffer::new(Box::new(memory));
        buffer.open_window(0, 64, Direction::Put).unwrap().close();
        buffer.as_slice().unwrap();
        assert_eq!(revoked.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bytes_are_seen_only_after_an_unanswered_request_lost_its_access() {
        let memory = VecMemory::new(64);
        let revoked = memory.revocations();
        let mut buffer = Buffer::new(Box::new(memory));
        drop(buffer.open_window(0, 64, Direction::Get).unwrap());
        assert_eq!(revoked.load(Ordering::Relaxed), 0);
        buffer.copy_in(0, b"x").unwrap();
        assert_eq!(revoked.load(Ordering::Relaxed), 1);
        buffer.as_slice().unwrap();
        assert_eq!(revoked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn bounds_do_not_wrap() {
        let buffer = Buffer::new(Box::new(VecMemory::new(64)));
        assert!(buffer.open_window(1, usize::MAX, Direction::Get).is_err());
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
