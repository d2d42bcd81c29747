//! What an operation works on: a lease, or several gathered into one.

use std::fmt;
use std::sync::Arc;

use super::registered::Buffer;
use super::{CuServer, Error, Lease, RegisteredMemory, Result};
use cuobj_sys as sys;

/// Most pieces of one buffer ("cuObjServer API Specification", registerBuffer).
pub const MAX_PIECES: usize = 10;

/// The local memory of an operation, with the registration that lets the device reach it.
#[derive(Debug)]
pub enum Local {
    /// One lease of a registered memory.
    Lease {
        /// The registration; it covers the lease.
        memory: Arc<RegisteredMemory>,
        /// The bytes.
        lease: Lease,
    },
    /// Several leases as one.
    Gather(Gather),
}

impl Local {
    /// A lease of a registered memory.
    ///
    /// # Errors
    /// Gives the lease back when it is of another memory.
    pub fn lease(memory: &Arc<RegisteredMemory>, lease: Lease) -> Result<Self, Lease> {
        if memory.covers(&lease) { Ok(Self::Lease { memory: Arc::clone(memory), lease }) } else { Err(lease) }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Lease { lease, .. } => lease.len(),
            Self::Gather(gather) => gather.len(),
        }
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the leases out; a registration made for them ends.
    pub fn into_leases(self) -> Vec<Lease> {
        match self {
            Self::Lease { lease, .. } => vec![lease],
            Self::Gather(gather) => gather.into_leases(),
        }
    }

    /// Whether the registration is with this server, and covers the bytes: the fields of a
    /// [`Local::Lease`] may have been put together by hand.
    pub(crate) fn is_with(&self, server: &CuServer) -> bool {
        match self {
            Self::Lease { memory, lease } => memory.is_with(server) && memory.covers(lease),
            Self::Gather(gather) => gather.buffer.is_with(server),
        }
    }

    /// The library's buffer, and where in it the bytes begin.
    pub(crate) fn as_raw(&self) -> (*mut sys::vgw_cuobj_buffer, u64) {
        match self {
            Self::Lease { memory, lease } => (memory.buffer().as_raw(), lease.offset() as u64),
            Self::Gather(gather) => (gather.buffer.as_raw(), 0),
        }
    }
}

/// 1 to 10 leases that one operation fills, or sends, one after the other.
pub struct Gather {
    // Fields drop in this order: the buffer ends before its memory and the registration under it.
    buffer: Buffer,
    leases: Vec<Lease>,
    /// The registration that a view is part of.
    base: Option<Arc<RegisteredMemory>>,
}

impl Gather {
    /// A view of leases of one registered memory; nothing is registered anew.
    ///
    /// # Errors
    /// Gives the leases back when there are none or more than [`MAX_PIECES`], when one is of
    /// another memory, or when the library refuses.
    pub fn view(base: &Arc<RegisteredMemory>, leases: Vec<Lease>) -> Result<Self, (Error, Vec<Lease>)> {
        if let Err(error) = check_count("getRDMABufferFromSgList", &leases) {
            return Err((error, leases));
        }
        if !leases.iter().all(|lease| base.covers(lease)) {
            let error = Error::Invalid {
                operation: "getRDMABufferFromSgList",
                what: "a lease is of another memory than the registered one".into(),
            };
            return Err((error, leases));
        }
        match base.buffer().view(&leases) {
            Ok(buffer) => Ok(Self { buffer, leases, base: Some(Arc::clone(base)) }),
            Err(error) => Err((error, leases)),
        }
    }

    /// Registers leases of any memories with `server` as one buffer.
    ///
    /// # Errors
    /// Gives the leases back when there are none or more than [`MAX_PIECES`], or when the library
    /// refuses.
    pub fn register(server: &CuServer, leases: Vec<Lease>) -> Result<Self, (Error, Vec<Lease>)> {
        if let Err(error) = check_count("registerBuffer", &leases) {
            return Err((error, leases));
        }
        match Buffer::register_list(server, &leases) {
            Ok(buffer) => Ok(Self { buffer, leases, base: None }),
            Err(error) => Err((error, leases)),
        }
    }

    /// Size of all leases together, in bytes.
    pub fn len(&self) -> usize {
        self.leases.iter().map(|lease| lease.len()).sum()
    }

    /// Never true: a gathering without leases is refused.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The leases, in order.
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// The leases, in order, to fill before an operation. Their order and number stay.
    pub fn leases_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.leases.iter_mut().map(|lease| &mut **lease)
    }

    /// Takes the leases out; the buffer over them ends.
    pub fn into_leases(self) -> Vec<Lease> {
        let Self { buffer, leases, base } = self;
        drop(buffer);
        drop(base);
        leases
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather")
            .field("leases", &self.leases)
            .field("is_view", &self.base.is_some())
            .finish_non_exhaustive()
    }
}

fn check_count(operation: &'static str, leases: &[Lease]) -> Result<()> {
    if (1..=MAX_PIECES).contains(&leases.len()) {
        return Ok(());
    }
    let what = format!("{} pieces; a buffer has 1 to {MAX_PIECES}", leases.len());
    Err(Error::Invalid { operation, what })
}
