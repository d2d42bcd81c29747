//! CRC-64/NVME of blocks that are read or written out of order.
//!
//! Sums of blocks are taken by whichever threads move them, and combined at the end.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;

use crate::transfer::{BlockSink, BlockSource};

/// Offset → (checksum, length). A block that comes again overwrites itself.
#[derive(Debug, Default)]
struct Blocks(Mutex<BTreeMap<u64, (u64, u64)>>);

impl Blocks {
    fn note(&self, offset: u64, data: &[u8]) {
        let sum = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, data);
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.insert(offset, (sum, data.len() as u64));
    }

    /// The checksum of `start..start + length`, when the blocks cover exactly that.
    fn checksum(&self, start: u64, length: u64) -> Option<u64> {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = start;
        let mut sum = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &[]);
        for (offset, (block, size)) in blocks.iter() {
            if *offset != at {
                return None;
            }
            sum = crc_fast::checksum_combine(CrcAlgorithm::Crc64Nvme, sum, *block, *size);
            at += size;
        }
        (at == start + length).then_some(sum)
    }
}

/// A source that notes the checksum of each block read from it.
#[derive(Debug)]
pub(crate) struct SummedSource<S> {
    inner: S,
    blocks: Blocks,
}

impl<S> SummedSource<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, blocks: Blocks::default() }
    }

    /// The checksum of `start..start + length` in base64, when the blocks cover exactly that.
    pub(crate) fn checksum(&self, start: u64, length: u64) -> Option<String> {
        self.blocks.checksum(start, length).map(|sum| STANDARD.encode(sum.to_be_bytes()))
    }
}

impl<S: BlockSource> BlockSource for SummedSource<S> {
    fn read_at(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let length = data.len();
        self.read_block(offset, length, data)
    }

    fn read_block(&self, offset: u64, length: usize, chunk: &mut [u8]) -> io::Result<()> {
        self.inner.read_block(offset, length, chunk)?;
        self.blocks.note(offset, &chunk[..length]);
        Ok(())
    }
}

/// A sink that notes the checksum of each block written to it.
#[derive(Debug)]
pub(crate) struct SummedSink<S> {
    inner: S,
    blocks: Blocks,
}

impl<S> SummedSink<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, blocks: Blocks::default() }
    }

    /// The sink, and the raw checksum of `length` bytes from 0, when the blocks cover exactly those.
    pub(crate) fn finish(self, length: u64) -> (S, Option<[u8; 8]>) {
        let sum = self.blocks.checksum(0, length);
        (self.inner, sum.map(u64::to_be_bytes))
    }
}

impl<S: BlockSink> BlockSink for SummedSink<S> {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.blocks.note(offset, data);
        self.inner.write_at(offset, data)
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

    struct Nowhere;
    impl BlockSink for Nowhere {
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn blocks_written_in_any_order_sum_up() {
        let mut whole = vec![0; 2500];
        Pattern.read_at(0, &mut whole).unwrap();
        let sink = SummedSink::new(Nowhere);
        for span in [2000..2500, 0..1000, 1000..2000] {
            sink.write_at(span.start as u64, &whole[span]).unwrap();
        }
        let mut digester = Digester::new(false, [Algorithm::Crc64Nvme]);
        digester.update(&whole);
        let found = sink.finish(2500).1;
        assert_eq!(found.as_ref().map(|s| &s[..]), digester.finish().get(Algorithm::Crc64Nvme));
        let sink = SummedSink::new(Nowhere);
        sink.write_at(0, &whole[..1000]).unwrap();
        assert_eq!(sink.finish(2500).1, None, "a part is missing");
    }
}
