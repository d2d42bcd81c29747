//! The control path of `cuObjGet` and `cuObjPut`: a closure behind the library's callbacks.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};

use cuobj_sys as sys;

use super::Op;
use crate::rdma::Result;

/// What the library asks the control path to carry to the server.
pub struct Request<'a> {
    /// What the server is to do.
    pub op: Op,
    /// The descriptor for the request's header. It opens memory: do not log it.
    pub descriptor: &'a str,
    /// Where the part begins in the object, in bytes.
    pub offset: u64,
    /// Size of the part in bytes.
    pub length: usize,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("op", &self.op)
            .field("offset", &self.offset)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// What a control path gives back: the bytes moved, or any error.
pub type ControlResult = Result<usize, Box<dyn std::error::Error + Send + Sync>>;

/// What a callback finds behind its context.
pub(super) struct Call<'a> {
    op: Op,
    control: Mutex<&'a mut (dyn FnMut(&Request<'_>) -> ControlResult + Send)>,
    failure: Mutex<Option<String>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(op: Op, control: &'a mut (dyn FnMut(&Request<'_>) -> ControlResult + Send)) -> Self {
        Self { op, control: Mutex::new(control), failure: Mutex::new(None) }
    }

    /// The text of the first error or panic of the control path.
    pub(super) fn into_failure(self) -> Option<String> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The library's way to the control path of the call that is running.
///
/// # Safety
/// `context` is null or points to the [`Call`] of a `vgw_cuobj_client_get` or `_put` that has not
/// returned; `request` is null or valid during the callback.
pub(super) unsafe extern "C" fn request_callback(
    context: *mut c_void,
    request: *const sys::vgw_cuobj_request,
) -> i64 {
    // SAFETY: the caller's promise; the shim passes the context of the call that caused the callback,
    // which `CuClient::run` keeps alive until it returns.
    let (Some(call), Some(request)) =
        (unsafe { context.cast::<Call<'_>>().as_ref() }, unsafe { request.as_ref() })
    else {
        return -i64::from(libc::EINVAL);
    };
    // A panic must not unwind into C++; it becomes the operation's error.
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| carry(call, request)));
    let failure = match outcome {
        Ok(Ok(moved)) => return i64::try_from(moved).unwrap_or(i64::MAX),
        Ok(Err(error)) => error.to_string(),
        Err(payload) => format!("the control path panicked: {}", panic_text(&*payload)),
    };
    let mut first = call.failure.lock().unwrap_or_else(PoisonError::into_inner);
    first.get_or_insert(failure);
    // No errno that the library would retry on another path.
    -i64::from(libc::ECANCELED)
}

fn carry(call: &Call<'_>, request: &sys::vgw_cuobj_request) -> ControlResult {
    // SAFETY: the shim gives a descriptor of this length that is valid during the callback, and
    // never null.
    let descriptor =
        unsafe { std::slice::from_raw_parts(request.descriptor.cast::<u8>(), request.descriptor_length) };
    let request = Request {
        op: call.op,
        descriptor: std::str::from_utf8(descriptor)?,
        offset: u64::try_from(request.offset_bytes)?,
        length: request.size_bytes,
    };
    let mut control = call.control.lock().unwrap_or_else(PoisonError::into_inner);
    control(&request)
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}
