//! Memory registered with the client, and the tokens that let a server reach it.

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuobj_sys as sys;

use super::client::{MAX_REGISTRATION_BYTES, Op};
use super::{CuClient, Descriptor, Error, HostMemory, Lease, Result, quarantine};

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
    pub(crate) fn new(client: &CuClient, mut store: Store) -> Result<Self> {
        let bytes = store.bytes_mut();
        let length = bytes.len();
        let start = NonNull::from(bytes).cast::<c_void>();
        let registration = Registration::new(client.clone(), start, length)?;
        Ok(Self { registration, store: Some(store) })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.registration.length
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
        let start = self.registration.start.as_ptr();
        self.registration.client.call(operation, |raw, text| {
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
        Ok(Token { token: self.owned_token(op, offset, length)?, _memory: self })
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
    pub(crate) fn prepare(&mut self) -> Result<()> {
        let mut state = self.registration.lock();
        state.settle(&self.registration)?;
        state.register(&self.registration)
    }

    pub(crate) fn start(&self) -> NonNull<c_void> {
        self.registration.start
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
    pub(crate) unsafe fn new(
        client: CuClient,
        start: NonNull<c_void>,
        length: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        Ok(Self { registration: Registration::new(client, start, length)?, owner: Some(owner) })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.registration.length
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
        self.registration.lock().open > 0
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

/// A token that borrows its memory. See [`OwnedToken`] for its text and its end.
#[derive(Debug)]
pub struct Token<'a> {
    token: OwnedToken,
    /// Keeps the bytes out of sight.
    _memory: &'a mut ClientMemory,
}

impl Token<'_> {
    /// The 81 characters for the request's header. They open memory: do not log them.
    pub fn as_str(&self) -> &str {
        self.token.as_str()
    }

    /// What the text says.
    pub fn descriptor(&self) -> &Descriptor {
        self.token.descriptor()
    }

    /// Says that the server is done with the memory, or was never told of it.
    pub fn finish(self) {
        self.token.finish();
    }
}

/// A minted token. It keeps no memory alive: the end of its memory ends its access.
pub struct OwnedToken {
    text: String,
    descriptor: Descriptor,
    /// The library's own string, given back in `drop`.
    raw: NonNull<c_char>,
    registration: Arc<Registration>,
    generation: u64,
    /// 0 once the server is known to be done, else an errno.
    reason: i32,
}

// SAFETY: the string is on the library's heap and is touched by `drop` only, which gives it back
// under the client's `admin` lock; the library does not tie tokens to threads.
unsafe impl Send for OwnedToken {}
// SAFETY: shared use reads `text` and `descriptor` only.
unsafe impl Sync for OwnedToken {}

impl OwnedToken {
    /// The 81 characters for the request's header. They open memory: do not log them.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the text says.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Says that the server is done with the memory, or was never told of it.
    ///
    /// A token that is dropped without this counts as in use until its memory is looked at, which
    /// ends the registration.
    pub fn finish(mut self) {
        self.reason = 0;
        let mut state = self.registration.lock();
        if state.generation == self.generation {
            state.open -= 1;
        }
        drop(state);
    }
}

impl Drop for OwnedToken {
    fn drop(&mut self) {
        let (token, reason) = (self.raw.as_ptr(), self.reason);
        let returned = self.registration.client.call("cuMemObjPutRDMAToken", |raw, text| {
            // SAFETY: the token is one that this client minted and has not been given back.
            unsafe { sys::vgw_cuobj_client_put_token(raw, token, reason, text) }
        });
        if let Err(error) = returned {
            tracing::debug!(%error, "a token was not taken back");
        }
    }
}

impl fmt::Debug for OwnedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedToken").field(&self.descriptor).finish()
    }
}

/// A range of memory and its registration, which comes and goes.
struct Registration {
    client: CuClient,
    start: NonNull<c_void>,
    length: usize,
    state: Mutex<State>,
}

// SAFETY: the address is handed to the library and never dereferenced here; the state is locked.
unsafe impl Send for Registration {}
// SAFETY: as for `Send`.
unsafe impl Sync for Registration {}

#[derive(Debug, Default)]
struct State {
    registered: bool,
    /// The memory is gone; no token is minted any more.
    closed: bool,
    /// Counts the registrations, so that a token of an ended one changes nothing.
    generation: u64,
    /// Tokens of this registration that have not been finished.
    open: usize,
}

impl Registration {
    fn new(client: CuClient, start: NonNull<c_void>, length: usize) -> Result<Arc<Self>> {
        if length == 0 || length > MAX_REGISTRATION_BYTES {
            return Err(Error::Register {
                bytes: length,
                device: "the cuObject client".into(),
                reason: format!("a registration takes 1 to {MAX_REGISTRATION_BYTES} bytes"),
            });
        }
        let registration = Self { client, start, length, state: Mutex::default() };
        registration.lock().register(&registration)?;
        Ok(Arc::new(registration))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mint(this: &Arc<Self>, op: Op, offset: usize, length: usize) -> Result<OwnedToken> {
        let operation = "cuMemObjGetRDMAToken";
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > this.length) {
            return Err(outside(operation, offset, length, this.length));
        }
        let mut state = this.lock();
        if state.closed {
            return Err(Error::Invalid { operation, what: "the memory has been given up".into() });
        }
        state.register(this)?;
        let mut raw: *mut c_char = std::ptr::null_mut();
        this.client.call(operation, |client, text| {
            // SAFETY: the memory is registered from `start` on, and the range lies inside it; `raw`
            // is writable for the call.
            unsafe {
                sys::vgw_cuobj_client_get_token(
                    client,
                    this.start.as_ptr(),
                    length,
                    offset,
                    op.raw(),
                    &mut raw,
                    text,
                )
            }
        })?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::Refused { operation, reason: "the library minted nothing".into() })?;
        // SAFETY: the library's token ends in NUL and lives until it is given back.
        let text = unsafe { CStr::from_ptr(raw.as_ptr()) }.to_string_lossy().into_owned();
        // From here on `drop` gives the token back, also where it does not parse.
        let mut token = OwnedToken {
            text,
            descriptor: Descriptor::default(),
            raw,
            registration: Arc::clone(this),
            generation: state.generation,
            reason: libc::ECANCELED,
        };
        token.descriptor = Descriptor::parse(&token.text).map_err(|error| Error::Refused {
            operation,
            reason: format!("the library minted what is no descriptor: {error}"),
        })?;
        state.open += 1;
        Ok(token)
    }

    /// Ends the registration and frees `owner`, or leaks it when the registration does not end.
    fn close<T>(&self, owner: Option<T>) {
        let mut state = self.lock();
        state.closed = true;
        if let Err(error) = state.revoke(self) {
            tracing::error!(bytes = self.length, %error, "registered memory is leaked: it did not deregister");
            quarantine::withhold(owner, self.length);
        }
    }
}

impl State {
    fn register(&mut self, registration: &Registration) -> Result<()> {
        if self.registered {
            return Ok(());
        }
        let (start, length) = (registration.start.as_ptr(), registration.length);
        registration
            .client
            .call("cuMemObjGetDescriptor", |raw, text| {
                // SAFETY: the range is memory that stays allocated until this registration has
                // ended: the owner's drop ends it first, or leaks the memory.
                unsafe { sys::vgw_cuobj_client_get_descriptor(raw, start, length, text) }
            })
            .map_err(|error| Error::Register {
                bytes: length,
                device: "the cuObject client".into(),
                reason: format!("{error}; is there an RDMA device with an address of rdma_dev_addr_list?"),
            })?;
        self.registered = true;
        Ok(())
    }

    /// Ends the registration if a token of it may still be in use.
    fn settle(&mut self, registration: &Registration) -> Result<()> {
        if self.open == 0 { Ok(()) } else { self.revoke(registration) }
    }

    fn revoke(&mut self, registration: &Registration) -> Result<()> {
        if !self.registered {
            return Ok(());
        }
        let start = registration.start.as_ptr();
        registration.client.call("cuMemObjPutDescriptor", |raw, text| {
            // SAFETY: the memory is registered from `start` on.
            unsafe { sys::vgw_cuobj_client_put_descriptor(raw, start, text) }
        })?;
        self.registered = false;
        self.generation += 1;
        self.open = 0;
        Ok(())
    }
}

fn outside(operation: &'static str, offset: usize, length: usize, size: usize) -> Error {
    let what = format!("{length} bytes at offset {offset} of {size} bytes of memory");
    Error::Invalid { operation, what }
}
