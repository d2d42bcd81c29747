//! [`ClientMemory`]: host memory registered with the client; [`RawRegistration`]: memory of others.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cuobj_sys as sys;

use super::registration::{Registration, outside};
use super::token::{OwnedToken, Token};
use super::{CuClient, Op};
use crate::rdma::{Error, HostMemory, Lease, Result};

/// Memory of the host that a [`ClientMemory`] takes over.
#[derive(Debug)]
pub struct Store(Kind);

#[derive(Debug)]
enum Kind {
    Lease(Lease),
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for Store {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Bytes(bytes))
    }
}

impl From<Lease> for Store {
    fn from(lease: Lease) -> Self {
        Self(Kind::Lease(lease))
    }
}

impl From<HostMemory> for Store {
    fn from(memory: HostMemory) -> Self {
        Self(Kind::Lease(memory.into_whole()))
    }
}

impl Store {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kind::Lease(lease) => lease,
            Kind::Bytes(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Lease(lease) => lease,
            Kind::Bytes(bytes) => bytes,
        }
    }
}

/// Host memory registered with the client.
///
/// A server reaches it only while a token is out, and its bytes are seen only while none is: a
/// [`Token`] borrows the memory, and an [`OwnedToken`] that was dropped without
/// [`finish`](OwnedToken::finish), whose server may still be at work, loses its access before the
/// bytes are shown. That ends the registration; the next token makes a new one, with another key.
///
/// ```compile_fail,E0499
/// # use vgwrdma::rdma::{ClientMemory, Op};
/// fn peek(memory: &mut ClientMemory) -> Option<u8> {
///     let token = memory.token(Op::Get, 0, 1).ok()?;
///     let byte = memory.as_slice().ok()?[0]; // while the server may write
///     token.finish();
///     Some(byte)
/// }
/// ```
pub struct ClientMemory {
    // Fields drop in this order: the registration ends before its memory is freed.
    registration: Arc<Registration>,
    /// Always there but in `drop`, which leaks it when the registration does not end.
    store: Option<Store>,
}

impl ClientMemory {
    pub(super) fn new(client: &CuClient, mut store: Store) -> Result<Self> {
        let bytes = store.bytes_mut();
        let length = bytes.len();
        let start = NonNull::from(bytes).cast::<c_void>();
        let registration = Registration::new(client.clone(), start, length)?;
        Ok(Self { registration, store: Some(store) })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.registration.length()
    }

    /// Never true: an empty registration is refused.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Most bytes that the library carries in one callback for this memory.
    ///
    /// # Errors
    /// [`Error::Refused`] when the memory is not registered at the moment.
    pub fn max_callback_bytes(&self) -> Result<usize> {
        let operation = "cuMemObjGetMaxRequestCallbackSize";
        let mut result = -1;
        let start = self.registration.start().as_ptr();
        self.registration.client().call(operation, |raw, text| {
            // SAFETY: the client lives as long as the process and only compares the address;
            // `result` is writable for the call.
            unsafe { sys::vgw_cuobj_client_max_callback_bytes(raw, start, &mut result, text) }
        })?;
        usize::try_from(result)
            .map_err(|_| Error::Refused { operation, reason: "the memory is not registered".into() })
    }

    /// Mints a token for `length` bytes from `offset`. Until it ends, the memory is borrowed, so that
    /// no reference into it exists while the server works.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range outside the memory or of no bytes; [`Error::Register`] when a
    /// registration that had been ended cannot be made anew; [`Error::Refused`] by the library.
    pub fn token(&mut self, op: Op, offset: usize, length: usize) -> Result<Token<'_>> {
        Ok(Token::new(self.owned_token(op, offset, length)?, self))
    }

    /// As [`token`](Self::token) without the borrow, for several tokens at a time. The bytes cannot
    /// be seen while it is out: [`as_slice`](Self::as_slice) and the copies end its access.
    ///
    /// # Errors
    /// As [`token`](Self::token).
    pub fn owned_token(&self, op: Op, offset: usize, length: usize) -> Result<OwnedToken> {
        Registration::mint(&self.registration, op, offset, length)
    }

    /// Ends the access of every token that is out. The next token registers the memory anew.
    ///
    /// # Errors
    /// When the library does not confirm it; the memory is then still open.
    pub fn revoke(&self) -> Result<()> {
        self.registration.lock().revoke(&self.registration)
    }

    /// The bytes. Access that tokens may still have is ended first.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn as_slice(&mut self) -> Result<&[u8]> {
        Ok(self.as_mut_slice()?)
    }

    /// The bytes for writing. Access that tokens may still have is ended first.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8]> {
        // `&mut self`: no token is minted while the slice lives.
        self.registration.lock().settle(&self.registration)?;
        Ok(self.store.as_mut().map_or(&mut [], Store::bytes_mut))
    }

    /// Copies from `offset` to all of `out`. Access that tokens may still have is ended first, and
    /// none is given during the copy.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the memory, or when access cannot be ended.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let mut state = self.registration.lock();
        state.settle(&self.registration)?;
        let bytes = self.store.as_ref().map_or(&[][..], Store::bytes);
        let end = offset.checked_add(out.len());
        match end.and_then(|end| bytes.get(offset..end)) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(outside("copy_out", offset, out.len(), self.len())),
        }
        Ok(())
    }

    /// Copies `data` to `offset`. Access that tokens may still have is ended first.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the memory, or when access cannot be ended.
    pub fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        let length = self.len();
        let bytes = self.as_mut_slice()?;
        let end = offset.checked_add(data.len());
        match end.and_then(|end| bytes.get_mut(offset..end)) {
            Some(bytes) => bytes.copy_from_slice(data),
            None => return Err(outside("copy_in", offset, data.len(), length)),
        }
        Ok(())
    }

    /// Registers the memory, when it is not, and ends access that tokens may still have.
    pub(super) fn prepare(&mut self) -> Result<()> {
        let mut state = self.registration.lock();
        state.settle(&self.registration)?;
        state.register(&self.registration)
    }

    pub(super) fn start(&self) -> NonNull<c_void> {
        self.registration.start()
    }
}

impl Drop for ClientMemory {
    fn drop(&mut self) {
        self.registration.close(self.store.take());
    }
}

impl fmt::Debug for ClientMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A registration of memory that is not this crate's; see [`CuClient::register_raw`].
pub struct RawRegistration {
    registration: Arc<Registration>,
    /// Always there but in `drop`.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl RawRegistration {
    /// # Safety
    /// As [`CuClient::register_raw`].
    pub(super) unsafe fn new(
        client: CuClient,
        start: NonNull<c_void>,
        length: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        Ok(Self { registration: Registration::new(client, start, length)?, owner: Some(owner) })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.registration.length()
    }

    /// Never true: an empty registration is refused.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Mints a token for `length` bytes from `offset`, registering the memory anew when its
    /// registration has been ended.
    ///
    /// # Errors
    /// As [`ClientMemory::token`].
    pub fn token(&self, op: Op, offset: usize, length: usize) -> Result<OwnedToken> {
        Registration::mint(&self.registration, op, offset, length)
    }

    /// Whether a token has been minted that neither [`finish`](OwnedToken::finish) nor
    /// [`revoke`](Self::revoke) has ended.
    pub fn is_open(&self) -> bool {
        self.registration.is_open()
    }

    /// Ends the access of every token that is out.
    ///
    /// # Errors
    /// When the library does not confirm it; the memory is then still open.
    pub fn revoke(&self) -> Result<()> {
        self.registration.lock().revoke(&self.registration)
    }
}

impl Drop for RawRegistration {
    fn drop(&mut self) {
        self.registration.close(self.owner.take());
    }
}

impl fmt::Debug for RawRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRegistration").field("len", &self.len()).finish_non_exhaustive()
    }
}
