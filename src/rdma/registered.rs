//! [`RegisteredMemory`]: host memory that a server's device may reach.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cuobj_sys as sys;

use super::server::ServerHandle;
use super::{CuServer, Error, HostMemory, Lease, Result, shim};

/// A [`HostMemory`] registered with one server. Operations work on [`Lease`]s of the memory.
///
/// The same memory may be registered with several servers, once with each.
pub struct RegisteredMemory {
    // Fields drop in this order: the registration ends before its memory is unmapped and before its
    // server is destroyed.
    buffer: Buffer,
    memory: Arc<HostMemory>,
}

impl RegisteredMemory {
    /// Registers all of `memory` with `server`.
    ///
    /// # Errors
    /// [`Error::Register`] when the library refuses; the text names the limit on locked memory
    /// where that may be the cause.
    pub fn new(server: &CuServer, memory: Arc<HostMemory>) -> Result<Arc<Self>> {
        let buffer = Buffer::register(server, memory.as_ptr(), memory.len())?;
        Ok(Arc::new(Self { buffer, memory }))
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Whether a lease is of this memory.
    pub fn covers(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(lease.memory(), &self.memory)
    }

    /// Whether it is registered with this server.
    pub fn is_with(&self, server: &CuServer) -> bool {
        self.buffer.is_with(server)
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

impl fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredMemory")
            .field("server", &self.buffer.server.address())
            .field("len", &self.memory.len())
            .finish()
    }
}

/// Owns one of the library's buffers, of whichever kind, and ends it as that kind asks.
pub(crate) struct Buffer {
    raw: NonNull<sys::vgw_cuobj_buffer>,
    kind: Kind,
    server: Arc<ServerHandle>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Registration,
    View,
}

// SAFETY: the buffer is an entry in its server's table, not tied to a thread; it is ended under the
// server's `admin` lock by its only owner.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`; shared use is reading the pointer for operations.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn register(server: &CuServer, start: *mut u8, len: usize) -> Result<Self> {
        let made = Self::make(server, Kind::Registration, "registerBuffer", |raw, out, text| {
            // SAFETY: the server is alive; the range is memory that the caller keeps mapped until
            // this buffer has dropped; `out` is writable for the call.
            unsafe { sys::vgw_cuobj_server_register(raw, start.cast(), len, out, text) }
        });
        made.map_err(|error| register_error(server, len, &error))
    }

    /// Registers the bytes of several leases as one buffer. The caller keeps the leases until the
    /// buffer has dropped.
    pub(crate) fn register_list(server: &CuServer, leases: &[Lease]) -> Result<Self> {
        let segments: Vec<_> = leases
            .iter()
            .map(|lease| sys::vgw_cuobj_segment { start: lease.as_ptr().cast(), size_bytes: lease.len() })
            .collect();
        let made = Self::make(server, Kind::Registration, "registerBuffer", |raw, out, text| {
            // SAFETY: the server is alive; the segments are memory that the leases keep mapped, and
            // the caller keeps the leases until this buffer has dropped; `out` is writable.
            unsafe { sys::vgw_cuobj_server_register_list(raw, segments.as_ptr(), segments.len(), out, text) }
        });
        made.map_err(|error| register_error(server, leases.iter().map(|lease| lease.len()).sum(), &error))
    }

    /// Makes a buffer of pieces of this one. The caller keeps this one until the view has dropped.
    pub(crate) fn view(&self, leases: &[Lease]) -> Result<Self> {
        let ranges: Vec<_> = leases
            .iter()
            .map(|lease| sys::vgw_cuobj_range {
                offset_bytes: lease.offset() as u64,
                size_bytes: lease.len(),
            })
            .collect();
        let server = CuServer { handle: Arc::clone(&self.server) };
        Self::make(&server, Kind::View, "getRDMABufferFromSgList", |raw, out, text| {
            // SAFETY: the server and this buffer are alive; the ranges are those of leases of the
            // registered memory, so they lie inside it; `out` is writable for the call.
            unsafe {
                sys::vgw_cuobj_server_get_view(raw, self.as_raw(), ranges.as_ptr(), ranges.len(), out, text)
            }
        })
    }

    fn make(
        server: &CuServer,
        kind: Kind,
        operation: &'static str,
        call: impl FnOnce(
            *mut sys::vgw_cuobj_server,
            *mut *mut sys::vgw_cuobj_buffer,
            sys::vgw_cuobj_text,
        ) -> sys::vgw_cuobj_status,
    ) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        {
            let _admin = server.handle.admin();
            shim::call(operation, |text| call(server.handle.as_raw(), &mut raw, text))?;
        }
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::Refused { operation, reason: "the library made no buffer".into() })?;
        Ok(Self { raw, kind, server: Arc::clone(&server.handle) })
    }

    /// The library's buffer, for operations while `self` is borrowed or owned by them.
    pub(crate) fn as_raw(&self) -> *mut sys::vgw_cuobj_buffer {
        self.raw.as_ptr()
    }

    pub(crate) fn is_with(&self, server: &CuServer) -> bool {
        Arc::ptr_eq(&self.server, &server.handle)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _admin = self.server.admin();
        let (server, raw) = (self.server.as_raw(), self.as_raw());
        let ended = match self.kind {
            Kind::Registration => shim::call("deRegisterBuffer", |text| {
                // SAFETY: the server is alive, the buffer is its, and nothing uses it any more:
                // operations in flight own what keeps it from dropping.
                unsafe { sys::vgw_cuobj_server_deregister(server, raw, text) }
            }),
            Kind::View => shim::call("putRDMABufferFromSgList", |text| {
                // SAFETY: as for a registration.
                unsafe { sys::vgw_cuobj_server_put_view(server, raw, text) }
            }),
        };
        if let Err(error) = ended {
            tracing::warn!(address = %self.server.address(), %error, "RDMA buffer did not end cleanly");
        }
    }
}

/// Names the server, and the limit on locked memory where the buffer is larger.
fn register_error(server: &CuServer, bytes: usize, error: &Error) -> Error {
    let mut reason = match error {
        Error::Refused { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    if let Some(limit) = memlock_limit()
        && limit < bytes as u64
    {
        reason.push_str(&format!(
            "; the limit on locked memory is {limit} bytes, raise it with ulimit -l or LimitMEMLOCK="
        ));
    }
    Error::Register { bytes, device: server.address().to_string(), reason }
}

/// `RLIMIT_MEMLOCK` in bytes, `None` when there is no limit.
fn memlock_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}
