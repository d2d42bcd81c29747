//! Tokens: the text that lets a server reach a window of this process's memory, and its end.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cuobj_sys as sys;

use super::ClientMemory;
use super::registration::Registration;
use crate::rdma::{Descriptor, Error, Result};

/// A token that borrows its memory. See [`OwnedToken`] for its text and its end.
#[derive(Debug)]
pub struct Token<'a> {
    token: OwnedToken,
    /// Keeps the bytes out of sight.
    _memory: &'a mut ClientMemory,
}

impl<'a> Token<'a> {
    pub(super) fn new(token: OwnedToken, memory: &'a mut ClientMemory) -> Self {
        Self { token, _memory: memory }
    }

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
    /// Takes over a string that the library has minted for a registration; it is given back also
    /// where it is no descriptor.
    pub(super) fn adopt(
        raw: NonNull<c_char>,
        registration: Arc<Registration>,
        generation: u64,
    ) -> Result<Self> {
        // SAFETY: the library's token ends in NUL and lives until it is given back (wrapper.h).
        let text = unsafe { CStr::from_ptr(raw.as_ptr()) }.to_string_lossy().into_owned();
        let parsed = Descriptor::parse(&text);
        let descriptor = parsed.clone().unwrap_or_default();
        let token = Self { text, descriptor, raw, registration, generation, reason: libc::ECANCELED };
        match parsed {
            Ok(_) => Ok(token),
            Err(error) => Err(Error::Refused {
                operation: "cuMemObjGetRDMAToken",
                reason: format!("the library minted what is no descriptor: {error}"),
            }),
        }
    }

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
        self.registration.finished(self.generation);
    }
}

impl Drop for OwnedToken {
    fn drop(&mut self) {
        let (token, reason) = (self.raw.as_ptr(), self.reason);
        let returned = self.registration.client().call("cuMemObjPutRDMAToken", |raw, text| {
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
