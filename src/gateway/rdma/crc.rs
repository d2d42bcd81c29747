//! CRC-64/NVME of blocks that are read out of order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;

use crate::transfer::BlockSource;

/// A source that notes the checksum of each block read from it.
#[derive(Debug)]
pub(crate) struct SummedSource<S> {
    inner: S,
    /// Offset → (checksum, length). A block read again overwrites itself.
    blocks: Mutex<BTreeMap<u64, (u64, u64)>>,
}

impl<S> SummedSource<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, blocks: Mutex::default() }
    }

    /// The checksum of `start..start + length` in base64, when the blocks cover exactly that.
    pub(crate) fn checksum(&self, start: u64, length: u64) -> Option<String> {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = start;
        let mut sum = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &[]);
        for (offset, (block, size)) in blocks.iter() {
            if *offset != at {
                return None;
            }
            sum = crc_fast::checksum_combine(CrcAlgorithm::Crc64Nvme, sum, *block, *size);
            at += size;
        }
        (at == start + length).then(|| STANDARD.encode(sum.to_be_bytes()))
    }
}

impl<S: BlockSource> BlockSource for SummedSource<S> {
    fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let length = data.len();
        self.read_block(offset, length, data)
    }

    fn read_block(&self, offset: u64, length: usize, chunk: &mut [u8]) -> io::Result<()> {
        self.inner.read_block(offset, length, chunk)?;
        let sum = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &chunk[..length]);
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.insert(offset, (sum, length as u64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Algorithm, Digester};

    struct Pattern;
    impl BlockSource for Pattern {
        fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
            data.iter_mut().zip(offset..).for_each(|(byte, i)| *byte = (i * 13 % 255) as u8);
            Ok(())
        }
    }

    #[test]
    fn blocks_in_any_order_sum_up() {
        let source = SummedSource::new(Pattern);
        let mut buffer = vec![0; 1000];
        for start in [2100, 100, 1100] {
            source.read_at(start, &mut buffer).unwrap();
        }
        source.read_at(1100, &mut buffer).unwrap();
        source.read_at(3100, &mut buffer[..7]).unwrap();
        let mut whole = vec![0; 3007];
        Pattern.read_at(100, &mut whole).unwrap();
        let mut digester = Digester::new(false, [Algorithm::Crc64Nvme]);
        digester.update(&whole);
        assert_eq!(source.checksum(100, 3007), digester.finish().base64(Algorithm::Crc64Nvme));
        assert_eq!(source.checksum(100, 3008), None);
        assert_eq!(source.checksum(99, 3008), None);
        assert!(SummedSource::new(Pattern).checksum(5, 0).is_some());
    }
}
