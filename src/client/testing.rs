//! A stand-in for registered memory, for tests and documentation of code that uses the client.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::token::Grant;
use super::{Memory, MemoryKind, Result, Token};
use crate::rdma::{Descriptor, Op};

/// Address that the invented tokens give to the memory's first byte.
pub const BASE: u64 = 0x7000_0000_0000;

/// Ordinary memory with invented tokens: no device, no library, no agent.
///
/// A scripted server in the same process can play the gateway's part through [`peer`](Self::peer).
/// A revocation changes the rkey, as a new registration does.
#[derive(Debug)]
pub struct VecMemory {
    bytes: Peer,
    /// Tokens that have not been finished.
    open: Arc<AtomicUsize>,
    revocations: Arc<AtomicUsize>,
    rkey: AtomicU32,
}

/// The far side of a [`VecMemory`]: what a gateway's RDMA operations would act on.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Mutex<Vec<u8>>>);

impl Peer {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays an RDMA WRITE of `data` at byte `offset` of the memory.
    pub fn write(&self, offset: usize, data: &[u8]) {
        self.lock()[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Plays an RDMA READ of a range of the memory.
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        self.lock()[range].to_vec()
    }
}

impl VecMemory {
    /// Zeroed memory of `len` bytes.
    pub fn new(len: usize) -> Self {
        Self {
            bytes: Peer(Arc::new(Mutex::new(vec![0; len]))),
            open: Arc::default(),
            revocations: Arc::default(),
            rkey: AtomicU32::new(1),
        }
    }

    /// Counts how often access has been revoked.
    pub fn revocations(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.revocations)
    }

    /// The far side.
    pub fn peer(&self) -> Peer {
        self.bytes.clone()
    }

    fn revoke_open(&self) {
        if self.open.swap(0, Ordering::Relaxed) > 0 {
            self.revocations.fetch_add(1, Ordering::Relaxed);
            self.rkey.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct InventedToken {
    text: String,
    descriptor: Descriptor,
    open: Arc<AtomicUsize>,
}

impl Grant for InventedToken {
    fn text(&self) -> &str {
        &self.text
    }

    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn finish(self: Box<Self>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Memory for VecMemory {
    fn len(&self) -> usize {
        self.bytes.lock().len()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn token(&self, offset: usize, length: usize, _: Op) -> Result<Token> {
        let descriptor = Descriptor {
            address: BASE + offset as u64,
            size: length as u32,
            rkey: self.rkey.load(Ordering::Relaxed),
            lid: 0,
            dct: 7,
            has_gid: true,
            gid: Descriptor::gid_of(std::net::Ipv4Addr::LOCALHOST.into()),
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Token::new(InventedToken {
            text: descriptor.to_string(),
            descriptor,
            open: Arc::clone(&self.open),
        }))
    }

    fn settle(&mut self) -> Result<()> {
        self.revoke_open();
        Ok(())
    }

    fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.revoke_open();
        self.bytes.write(offset, data);
        Ok(())
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.revoke_open();
        out.copy_from_slice(&self.bytes.lock()[offset..offset + out.len()]);
        Ok(())
    }

    fn fill(&mut self, value: u8) -> Result<()> {
        self.revoke_open();
        self.bytes.lock().fill(value);
        Ok(())
    }
}
