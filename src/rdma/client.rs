//! [`CuClient`]: the process's cuObject client, which registers memory and mints descriptors.

mod control;
mod memory;
mod registration;
mod token;

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cuobj_sys as sys;

use super::error::Errno;
use super::telemetry::{self, Side};
use super::{Error, Provider, Result, shim};
use control::{Call, request_callback};
pub use control::{ControlResult, Request};
pub use memory::{ClientMemory, RawRegistration, Store};
pub use token::{OwnedToken, Token};

/// Largest registration: 4 GiB less 64 KiB ("cuObjClient API Specification", cuMemObjGetDescriptor).
pub const MAX_REGISTRATION_BYTES: usize = (4 << 30) - (64 << 10);

/// How long [`CuClient::open`] waits for the library.
const DEFAULT_START_LIMIT: Duration = Duration::from_secs(10);

/// What a descriptor is for, named as the S3 request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The server writes the memory.
    Get,
    /// The server reads the memory.
    Put,
}

impl Op {
    pub(crate) fn raw(self) -> i32 {
        match self {
            Self::Get => sys::VGW_CUOBJ_OP_GET,
            Self::Put => sys::VGW_CUOBJ_OP_PUT,
        }
    }
}

/// Where a pointer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryType {
    /// Host memory.
    System,
    /// CUDA managed memory, which cannot be registered.
    CudaManaged,
    /// Memory of a CUDA device.
    CudaDevice,
    /// The library cannot say, or says what this version does not know.
    Unknown,
    /// No memory.
    Invalid,
}

/// The cuObject client of this process. Clones share it.
///
/// There is one a process, because registrations and devices of the library belong to the process;
/// it is never destroyed. Vendor's documentation: "cuObjClient API Specification".
#[derive(Clone)]
pub struct CuClient {
    handle: Arc<ClientHandle>,
}

/// The C++ object. Never destroyed: see [`CuClient`].
struct ClientHandle {
    raw: NonNull<sys::vgw_cuobj_client>,
    /// Held during registration and minting. The documentation does not say that these may run at
    /// once; minio-rs, which uses the same library, saw its heap damaged by concurrent use.
    admin: Mutex<()>,
}

// SAFETY: the documentation lets several threads use one client (callbacks may come on others);
// what it is silent about runs under `admin`.
unsafe impl Send for ClientHandle {}
// SAFETY: as for `Send`.
unsafe impl Sync for ClientHandle {}

/// The process's client, once there is one, or why there will be none.
enum Process {
    Untried,
    Ready(Arc<ClientHandle>),
    /// The constructor has not returned in time, and may still run.
    Hung,
}

static PROCESS: Mutex<Process> = Mutex::new(Process::Untried);

impl CuClient {
    /// The process's client; the first call makes it.
    ///
    /// The constructor runs on a thread of its own, because NVIDIA's 1.2.0 never returns from it
    /// where `/proc/modules` cannot be opened.
    ///
    /// A client that opens is no proof of a device: NVIDIA's library says so with the first
    /// registration only.
    ///
    /// # Errors
    /// [`Error::ClientUnavailable`] when the library throws, or gives no answer within 10 seconds.
    pub fn open() -> Result<Self> {
        Self::open_within(DEFAULT_START_LIMIT)
    }

    /// As [`open`](Self::open), with another time limit.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_within(limit: Duration) -> Result<Self> {
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        match &*process {
            Process::Ready(handle) => return Ok(Self { handle: Arc::clone(handle) }),
            Process::Hung => return Err(unavailable("it has not answered an earlier start".into())),
            Process::Untried => {}
        }
        telemetry::install(Side::Client);
        let mark = telemetry::mark(Side::Client);
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new()
            .name("cuobj-client-start".into())
            .spawn(move || {
                // The receiver has gone when this took too long; the client stays unused then.
                let _ = sender.send(create());
            })
            .map_err(|source| Error::Thread { operation: "cuObjClient", source })?;
        let said =
            || telemetry::errors_since(Side::Client, mark).map_or(String::new(), |text| format!(": {text}"));
        match receiver.recv_timeout(limit) {
            Ok(Ok(handle)) => {
                let handle = Arc::new(handle);
                *process = Process::Ready(Arc::clone(&handle));
                Ok(Self { handle })
            }
            Ok(Err(error)) => Err(unavailable(format!("{error}{}", said()))),
            Err(RecvTimeoutError::Timeout) => {
                *process = Process::Hung;
                Err(unavailable(format!(
                    "no answer within {limit:?} (libcuobjclient 1.2.0 waits for ever where /proc/modules \
                     cannot be opened){}",
                    said()
                )))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(unavailable("its thread ended without an answer".into()))
            }
        }
    }

    /// What the library says of itself. NVIDIA's 1.2.0 says true without any device.
    ///
    /// # Errors
    /// Only when the library throws.
    pub fn is_connected(&self) -> Result<bool> {
        let mut connected = false;
        self.call("isConnected", |raw, text| {
            // SAFETY: the client lives as long as the process; `connected` is writable.
            unsafe { sys::vgw_cuobj_client_connected(raw, &mut connected, text) }
        })?;
        Ok(connected)
    }

    /// Registers memory of the host and takes it over.
    ///
    /// # Errors
    /// [`Error::Register`] when there is no device or the memory cannot be registered; the memory
    /// is freed.
    pub fn register(&self, memory: impl Into<Store>) -> Result<ClientMemory> {
        ClientMemory::new(self, memory.into())
    }

    /// Registers memory that is not this crate's: a CUDA device's.
    ///
    /// `owner` is kept until the registration has ended, and leaked where the library does not
    /// confirm that it has.
    ///
    /// # Safety
    /// - `start` points to `length` bytes of host or CUDA device memory that stay allocated, and are
    ///   not moved, as long as `owner` lives.
    /// - While a token that was minted for the memory may be in use by a server, nothing else
    ///   writes the memory, and with [`Op::Get`] nothing reads it and no reference into it exists.
    ///   [`RawRegistration::revoke`] ends all such use.
    ///
    /// # Errors
    /// [`Error::Register`] when there is no device or the memory cannot be registered.
    pub unsafe fn register_raw(
        &self,
        start: NonNull<c_void>,
        length: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<RawRegistration> {
        // SAFETY: the caller's promise is the function's.
        unsafe { RawRegistration::new(self.clone(), start, length, owner) }
    }

    /// What kind of memory an address of this process belongs to.
    ///
    /// # Errors
    /// Only when the library throws.
    pub fn memory_type(address: usize) -> Result<MemoryType> {
        let mut raw = 0;
        let start = std::ptr::without_provenance(address);
        shim::call("getMemoryType", |text| {
            // SAFETY: the library asks the CUDA driver what the address is and does not read there;
            // `raw` is writable for the call.
            unsafe { sys::vgw_cuobj_client_memory_type(start, &mut raw, text) }
        })?;
        Ok(match raw {
            sys::VGW_CUOBJ_MEMORY_SYSTEM => MemoryType::System,
            sys::VGW_CUOBJ_MEMORY_CUDA_MANAGED => MemoryType::CudaManaged,
            sys::VGW_CUOBJ_MEMORY_CUDA_DEVICE => MemoryType::CudaDevice,
            sys::VGW_CUOBJ_MEMORY_INVALID => MemoryType::Invalid,
            _ => MemoryType::Unknown,
        })
    }

    /// Reads `length` bytes of an object into the start of `memory` (`cuObjGet`).
    ///
    /// The library calls `control` with the descriptor, perhaps on another thread and perhaps once
    /// for each part of a large request, never twice at a time. It sends the request to the server
    /// and returns the bytes moved.
    ///
    /// # Errors
    /// [`Error::Callback`] with the text of the error or the panic of `control`; [`Error::Call`]
    /// when the library fails. The server may then still be at work: the memory's registration has
    /// been ended, and the next token makes a new one.
    pub fn get<F>(&self, memory: &mut ClientMemory, length: usize, control: F) -> Result<usize>
    where
        F: FnMut(&Request<'_>) -> ControlResult + Send,
    {
        self.run(Op::Get, memory, length, control)
    }

    /// Writes `length` bytes from the start of `memory` as an object (`cuObjPut`).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn put<F>(&self, memory: &mut ClientMemory, length: usize, control: F) -> Result<usize>
    where
        F: FnMut(&Request<'_>) -> ControlResult + Send,
    {
        self.run(Op::Put, memory, length, control)
    }

    fn run<F>(&self, op: Op, memory: &mut ClientMemory, length: usize, mut control: F) -> Result<usize>
    where
        F: FnMut(&Request<'_>) -> ControlResult + Send,
    {
        let operation = match op {
            Op::Get => "cuObjGet",
            Op::Put => "cuObjPut",
        };
        if length == 0 || length > memory.len() {
            let what = format!("{length} bytes; this memory takes 1 to {}", memory.len());
            return Err(Error::Invalid { operation, what });
        }
        memory.prepare()?;
        let call = Call::new(op, &mut control);
        let context = (&raw const call).cast_mut().cast::<c_void>();
        let start = memory.start().as_ptr();
        let mut result = 0;
        let called = shim::call(operation, |text| {
            let raw = self.handle.raw.as_ptr();
            match op {
                // SAFETY: the client lives as long as the process; the memory is registered and
                // `&mut ClientMemory` keeps every reference into it away; `call` outlives the call,
                // within which alone the library runs the callback.
                Op::Get => unsafe {
                    sys::vgw_cuobj_client_get(raw, context, start, length, 0, 0, &mut result, text)
                },
                // SAFETY: as for a GET.
                Op::Put => unsafe {
                    sys::vgw_cuobj_client_put(raw, context, start, length, 0, 0, &mut result, text)
                },
            }
        });
        let moved = match (called, call.into_failure()) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(message)) => Err(Error::Callback { operation, message }),
            (Ok(()), None) => usize::try_from(result).map_err(|_| Error::Call {
                operation,
                errno: Errno::of(result),
                code: result,
                detail: String::new(),
            }),
        };
        if moved.is_err() {
            // The server may have been told of the memory and not be done with it.
            memory.revoke()?;
        }
        moved
    }

    /// Calls a function of the client that needs `admin`.
    pub(crate) fn call(
        &self,
        operation: &'static str,
        call: impl FnOnce(*mut sys::vgw_cuobj_client, sys::vgw_cuobj_text) -> sys::vgw_cuobj_status,
    ) -> Result<()> {
        let _admin = self.handle.admin.lock().unwrap_or_else(PoisonError::into_inner);
        shim::call(operation, |text| call(self.handle.raw.as_ptr(), text))
    }
}

impl fmt::Debug for CuClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuClient").finish_non_exhaustive()
    }
}

fn unavailable(reason: String) -> Error {
    Error::ClientUnavailable { library: Provider::describe(), reason }
}

/// Runs the constructor.
fn create() -> Result<ClientHandle> {
    let mut raw = std::ptr::null_mut();
    shim::call("cuObjClient", |text| {
        // SAFETY: the callback is a function of this program and takes as context what `run` gives
        // with each request; `raw` is writable for the call.
        unsafe {
            sys::vgw_cuobj_client_create(Some(request_callback), Some(request_callback), &mut raw, text)
        }
    })?;
    let raw = NonNull::new(raw)
        .ok_or(Error::Refused { operation: "cuObjClient", reason: "the library made no object".into() })?;
    Ok(ClientHandle { raw, admin: Mutex::new(()) })
}
