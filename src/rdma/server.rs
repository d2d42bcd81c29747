//! [`CuServer`]: an RDMA address of this host.

use std::fmt;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuobj_sys as sys;

use super::telemetry::{self, Side};
use super::{Channel, Error, Provider, Result, Tunables, shim};

/// A cuObjServer with its RDMA session. Clones share it; it ends with the last of its clones,
/// channels and memory.
///
/// Vendor's documentation: "cuObjServer API Specification".
#[derive(Clone)]
pub struct CuServer {
    pub(crate) handle: Arc<ServerHandle>,
}

/// Owns the C++ object.
pub(crate) struct ServerHandle {
    raw: NonNull<sys::vgw_cuobj_server>,
    /// Held for everything but operations on channels: the documentation speaks of threads for
    /// channels only.
    admin: Mutex<()>,
    address: IpAddr,
    tunables: Tunables,
}

// SAFETY: the object is not tied to the thread that made it: the documentation has one server used
// by one thread per channel, and the software SDK locks. `admin` serializes what is not said to be
// safe, and it is destroyed by the last owner only.
unsafe impl Send for ServerHandle {}
// SAFETY: as for `Send`; calls on different channels may run at once ("cuObjServer API
// Specification", allocateChannelId), others hold `admin`.
unsafe impl Sync for ServerHandle {}

impl CuServer {
    /// Opens an RDMA session on an address of this host. `port` is for connection management, by
    /// default 19100 in the gateway; 0 is refused.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a tunable out of bounds; [`Error::NotConnected`] with what the
    /// library said when the address has no usable device.
    pub fn open(address: IpAddr, port: u16, tunables: &Tunables) -> Result<Self> {
        telemetry::install(Side::Server);
        let raw_tunables = tunables.to_raw()?;
        if port == 0 {
            return Err(Error::Invalid { operation: "cuObjServer", what: "port 0 is no port".into() });
        }
        let literal = address.to_string();
        let mark = telemetry::mark(Side::Server);
        let mut raw = std::ptr::null_mut();
        shim::call("cuObjServer", |text| {
            // SAFETY: the literal and the tunables are readable and `raw` is writable for the call,
            // and the text buffer is `shim::call`'s.
            unsafe {
                sys::vgw_cuobj_server_create(
                    literal.as_ptr().cast(),
                    literal.len(),
                    port,
                    &raw_tunables,
                    &mut raw,
                    text,
                )
            }
        })?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::Refused {
            operation: "cuObjServer",
            reason: "the library made no object".into(),
        })?;
        let handle = ServerHandle { raw, admin: Mutex::new(()), address, tunables: tunables.clone() };
        if !handle.is_connected()? {
            return Err(Error::NotConnected {
                address: literal,
                library: Provider::describe(),
                reason: telemetry::errors_since(Side::Server, mark).unwrap_or_else(|| {
                    "the library gives no reason; is it an address of an RDMA device?".into()
                }),
            });
        }
        Ok(Self { handle: Arc::new(handle) })
    }

    /// The address it was opened on.
    pub fn address(&self) -> IpAddr {
        self.handle.address
    }

    /// The tunables it was opened with.
    pub fn tunables(&self) -> &Tunables {
        &self.handle.tunables
    }

    /// The tunables in effect as the library tells them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with libraries that do not tell (2.x).
    pub fn effective_tunables(&self) -> Result<Tunables> {
        let mut raw = sys::vgw_cuobj_tunables::default();
        let _admin = self.handle.admin();
        shim::call("getConfigTunableParam", |text| {
            // SAFETY: the handle is alive, `raw` is writable for the call, and the text buffer is
            // `shim::call`'s.
            unsafe { sys::vgw_cuobj_server_tunables(self.handle.as_raw(), &mut raw, text) }
        })?;
        Ok(Tunables::from_raw(&raw))
    }

    /// Whether the RDMA session is open.
    ///
    /// # Errors
    /// Only when the library throws.
    pub fn is_connected(&self) -> Result<bool> {
        self.handle.is_connected()
    }

    /// Takes a channel.
    ///
    /// # Errors
    /// [`Error::NoChannel`] when all [`num_dcis`](Tunables::num_dcis) are in use.
    pub fn channel(&self) -> Result<Channel> {
        Channel::open(self.clone())
    }

    /// How long a channel that is dropped with operations in flight waits for them: longer than the
    /// transport needs to give up on a peer.
    pub(crate) fn drain_limit(&self) -> Duration {
        const LEAST: Duration = Duration::from_secs(5);
        const MOST: Duration = Duration::from_secs(30);
        self.handle.tunables.retry_time().map_or(MOST, |time| (time * 2).clamp(LEAST, MOST))
    }
}

impl ServerHandle {
    /// The C++ object, for calls while `self` is borrowed.
    pub(crate) fn as_raw(&self) -> *mut sys::vgw_cuobj_server {
        self.raw.as_ptr()
    }

    /// Held during calls that are not operations on a channel.
    pub(crate) fn admin(&self) -> MutexGuard<'_, ()> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address, for error texts.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    fn is_connected(&self) -> Result<bool> {
        let mut connected = false;
        let _admin = self.admin();
        shim::call("isConnected", |text| {
            // SAFETY: the object is alive, `connected` is writable for the call, and the text
            // buffer is `shim::call`'s.
            unsafe { sys::vgw_cuobj_server_connected(self.as_raw(), &mut connected, text) }
        })?;
        Ok(connected)
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        let ended = shim::call("~cuObjServer", |text| {
            // SAFETY: this is the only owner, and every channel and registration, which hold an
            // `Arc` of it, has ended; the pointer is not used again.
            unsafe { sys::vgw_cuobj_server_destroy(self.as_raw(), text) }
        });
        if let Err(error) = ended {
            tracing::warn!(address = %self.address, %error, "RDMA server did not end cleanly");
        }
    }
}

impl fmt::Debug for CuServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuServer").field("address", &self.handle.address).finish_non_exhaustive()
    }
}

// NVIDIA's library has no device on the loopback address.
#[cfg(all(test, cuobj_provider = "soft"))]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::rdma::{HostMemory, HugePages, RegisteredMemory};

    fn open(tunables: &Tunables) -> CuServer {
        CuServer::open(IpAddr::V4(Ipv4Addr::LOCALHOST), 19100, tunables).unwrap()
    }

    #[test]
    fn the_server_ends_with_the_last_of_its_children() {
        let server = open(&Tunables::default());
        let handle = Arc::downgrade(&server.handle);
        let channel = server.channel().unwrap();
        let memory = Arc::new(HostMemory::allocate(4096, HugePages::Off).unwrap());
        let memory = RegisteredMemory::new(&server, memory).unwrap();
        drop(server);
        assert!(handle.upgrade().is_some());
        drop(channel);
        assert!(handle.upgrade().is_some());
        drop(memory);
        assert!(handle.upgrade().is_none());
    }

    #[test]
    fn waiting_for_a_dropped_channel_is_bounded_by_the_retries_of_the_transport() {
        for (timeout, seconds) in [(16, 5), (0, 30), (31, 30)] {
            let server = open(&Tunables { timeout, ..Tunables::default() });
            assert_eq!(server.drain_limit(), Duration::from_secs(seconds));
        }
    }
}
