//! Calls into the C ABI: the buffer for error text, and statuses as errors.

use std::ffi::{CStr, c_char};

use cuobj_sys as sys;

use super::{Error, Result};

/// Longest error text that is kept, with its NUL.
const TEXT_BYTES: usize = 512;

/// Calls a function of the C ABI and turns its status into a result.
///
/// `call` gets the buffer for the error text, to pass on as the function's last argument.
pub(crate) fn call(
    operation: &'static str,
    call: impl FnOnce(sys::vgw_cuobj_text) -> sys::vgw_cuobj_status,
) -> Result<()> {
    let mut text = [0 as c_char; TEXT_BYTES];
    let status = call(sys::vgw_cuobj_text { data: text.as_mut_ptr(), capacity_bytes: TEXT_BYTES });
    if status == sys::VGW_CUOBJ_OK {
        return Ok(());
    }
    // SAFETY: the buffer was zeroed, and the shim writes at most its capacity with a NUL at the end
    // (convention 9 of wrapper.h), so there is a NUL inside it.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
    Err(match status {
        sys::VGW_CUOBJ_REFUSED => Error::Refused { operation, reason: text },
        sys::VGW_CUOBJ_EXCEPTION => Error::Exception { operation, what: text },
        sys::VGW_CUOBJ_UNSUPPORTED => Error::Unsupported { operation, what: text },
        _ => Error::Invalid { operation, what: text },
    })
}
