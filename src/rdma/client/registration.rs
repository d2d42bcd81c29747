//! A registration with the client, which comes and goes under memory that stays.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuobj_sys as sys;

use super::token::OwnedToken;
use super::{CuClient, MAX_REGISTRATION_BYTES, Op};
use crate::rdma::{Error, Result, quarantine};

/// A range of memory and its registration, which comes and goes.
pub(super) struct Registration {
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
pub(super) struct State {
    registered: bool,
    /// The memory is gone; no token is minted any more.
    closed: bool,
    /// Counts the registrations, so that a token of an ended one changes nothing.
    generation: u64,
    /// Tokens of this registration that have not been finished.
    open: usize,
}

impl Registration {
    pub(super) fn new(client: CuClient, start: NonNull<c_void>, length: usize) -> Result<Arc<Self>> {
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

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mint(this: &Arc<Self>, op: Op, offset: usize, length: usize) -> Result<OwnedToken> {
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
        let token = OwnedToken::adopt(raw, Arc::clone(this), state.generation)?;
        state.open += 1;
        Ok(token)
    }

    /// A token of this generation is known to be no longer in use.
    pub(super) fn finished(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation {
            state.open -= 1;
        }
    }

    pub(super) fn client(&self) -> &CuClient {
        &self.client
    }

    pub(super) fn start(&self) -> NonNull<c_void> {
        self.start
    }

    /// Size in bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Whether a token may still be in use.
    pub(super) fn is_open(&self) -> bool {
        self.lock().open > 0
    }

    /// Ends the registration and frees `owner`, or leaks it when the registration does not end.
    pub(super) fn close<T>(&self, owner: Option<T>) {
        let mut state = self.lock();
        state.closed = true;
        if let Err(error) = state.revoke(self) {
            tracing::error!(bytes = self.length, %error, "registered memory is leaked: it did not deregister");
            quarantine::withhold(owner, self.length);
        }
    }
}

impl State {
    pub(super) fn register(&mut self, registration: &Registration) -> Result<()> {
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
    pub(super) fn settle(&mut self, registration: &Registration) -> Result<()> {
        if self.open == 0 { Ok(()) } else { self.revoke(registration) }
    }

    pub(super) fn revoke(&mut self, registration: &Registration) -> Result<()> {
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

pub(super) fn outside(operation: &'static str, offset: usize, length: usize, size: usize) -> Error {
    let what = format!("{length} bytes at offset {offset} of {size} bytes of memory");
    Error::Invalid { operation, what }
}
