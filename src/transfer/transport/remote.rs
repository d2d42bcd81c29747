//! The memory of an imaginary client, for the in-memory transport.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use super::{Direction, Operation};
use crate::rdma::{Descriptor, WcStatus};

/// Part of a region behind one lock, in bytes.
const BLOCK: usize = 1 << 20;

/// Memory regions behind keys, as a client registers them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RemoteMemory {
    regions: Arc<RwLock<HashMap<u32, Arc<Region>>>>,
    count: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Region {
    base: u64,
    size: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<RwLock<Box<[u8]>>>),
    /// The block repeated; what is written is only compared with it.
    Repeated {
        block: Box<[u8]>,
        written: AtomicU64,
        wrong: AtomicU64,
    },
}

/// What was written to a region of [`RemoteMemory::repeated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes, all operations together.
    pub bytes: u64,
    /// Parts of operations that differed from the pattern.
    pub wrong: u64,
}

impl RemoteMemory {
    /// No memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn insert(&self, size: u64, content: Content) -> Descriptor {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // Bases far apart and of no alignment; keys that look random and do not repeat.
        let base = 0x7000_0000_0000 + number * 0x2_0000_0000 + 0x123;
        let rkey = (number as u32).wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
        let region = Arc::new(Region { base, size, content });
        self.regions.write().expect("region lock").insert(rkey, region);
        Descriptor {
            address: base,
            size: u32::try_from(size).expect("a window of less than 4 GiB"),
            rkey,
            lid: 0,
            dct: 0x1234,
            has_gid: true,
            gid: Descriptor::gid_of(IpAddr::from([127, 0, 0, 1])),
        }
    }

    /// Registers some bytes.
    ///
    /// # Panics
    /// When there are 4 GiB or more.
    pub fn register(&self, bytes: &[u8]) -> Descriptor {
        let blocks = bytes.chunks(BLOCK).map(|block| RwLock::new(block.into())).collect();
        self.insert(bytes.len() as u64, Content::Bytes(blocks))
    }

    /// Registers `size` bytes that repeat `block`, without holding them.
    ///
    /// # Panics
    /// When `block` is empty or `size` is 4 GiB or more.
    pub fn repeated(&self, block: &[u8], size: u64) -> Descriptor {
        assert!(!block.is_empty(), "an empty block cannot be repeated");
        let (written, wrong) = Default::default();
        self.insert(size, Content::Repeated { block: block.into(), written, wrong })
    }

    /// Ends a registration: operations on it fail from now on.
    pub fn deregister(&self, descriptor: &Descriptor) {
        self.regions.write().expect("region lock").remove(&descriptor.rkey);
    }

    fn region(&self, descriptor: &Descriptor) -> Option<Arc<Region>> {
        self.regions.read().expect("region lock").get(&descriptor.rkey).map(Arc::clone)
    }

    /// The bytes of a region made by [`register`](Self::register); none for any other.
    pub fn bytes(&self, descriptor: &Descriptor) -> Vec<u8> {
        let Some(region) = self.region(descriptor) else { return Vec::new() };
        match &region.content {
            Content::Bytes(blocks) => {
                blocks.iter().flat_map(|block| block.read().expect("block lock").to_vec()).collect()
            }
            Content::Repeated { .. } => Vec::new(),
        }
    }

    /// What was written to a region made by [`repeated`](Self::repeated).
    pub fn written(&self, descriptor: &Descriptor) -> Option<Written> {
        match &self.region(descriptor)?.content {
            Content::Bytes(_) => None,
            Content::Repeated { written, wrong, .. } => {
                Some(Written { bytes: written.load(Ordering::Relaxed), wrong: wrong.load(Ordering::Relaxed) })
            }
        }
    }

    /// Carries an operation out, with the checks a responder makes.
    pub(super) fn execute(&self, operation: &mut Operation) -> WcStatus {
        let Some(region) = self.region(&operation.descriptor) else { return WcStatus::REM_ACCESS_ERR };
        let end = u128::from(operation.remote_start) + operation.length as u128;
        if operation.remote_start < region.base || end > u128::from(region.base) + u128::from(region.size) {
            return WcStatus::REM_ACCESS_ERR;
        }
        let start = operation.remote_start - region.base;
        let Some(local) = operation.lease.get_mut(..operation.length) else {
            return WcStatus::LOC_LEN_ERR;
        };
        region.content.transfer(operation.direction, start as usize, local);
        WcStatus::SUCCESS
    }
}

impl Content {
    fn transfer(&self, direction: Direction, start: usize, local: &mut [u8]) {
        let block_size = match self {
            Self::Bytes(_) => BLOCK,
            Self::Repeated { block, .. } => block.len(),
        };
        let mut at = start;
        let mut rest = local;
        while !rest.is_empty() {
            let offset = at % block_size;
            let length = (block_size - offset).min(rest.len());
            let (part, behind) = rest.split_at_mut(length);
            let range = offset..offset + length;
            match (self, direction) {
                (Self::Bytes(blocks), Direction::Read) => {
                    part.copy_from_slice(&blocks[at / BLOCK].read().expect("block lock")[range]);
                }
                (Self::Bytes(blocks), Direction::Write) => {
                    blocks[at / BLOCK].write().expect("block lock")[range].copy_from_slice(part);
                }
                (Self::Repeated { block, .. }, Direction::Read) => part.copy_from_slice(&block[range]),
                (Self::Repeated { block, written, wrong }, Direction::Write) => {
                    written.fetch_add(length as u64, Ordering::Relaxed);
                    wrong.fetch_add(u64::from(*part != block[range]), Ordering::Relaxed);
                }
            }
            at += length;
            rest = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cross_the_blocks_and_bounds_hold() {
        let memory = RemoteMemory::new();
        let bytes: Vec<u8> = (0..BLOCK + 1000).map(|i| (i % 251) as u8).collect();
        let descriptor = memory.register(&bytes);
        let region = memory.region(&descriptor).unwrap();
        let mut local = vec![0; 2000];
        region.content.transfer(Direction::Read, BLOCK - 1000, &mut local);
        assert_eq!(local, bytes[BLOCK - 1000..]);
        region.content.transfer(Direction::Write, BLOCK - 1000, &mut [7; 2000]);
        assert_eq!(memory.bytes(&descriptor)[BLOCK - 1000..], [7; 2000]);
    }

    #[test]
    fn a_pattern_is_compared_with_what_is_written() {
        let memory = RemoteMemory::new();
        let descriptor = memory.repeated(b"abc", 1 << 31);
        let region = memory.region(&descriptor).unwrap();
        let mut local = [0; 7];
        region.content.transfer(Direction::Read, 4, &mut local);
        assert_eq!(&local, b"bcabcab");
        region.content.transfer(Direction::Write, 4, &mut local);
        assert_eq!(memory.written(&descriptor), Some(Written { bytes: 7, wrong: 0 }));
        region.content.transfer(Direction::Write, 5, &mut local);
        assert!(memory.written(&descriptor).unwrap().wrong > 0);
    }
}
