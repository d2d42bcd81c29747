//! Self-describing objects: the bytes follow from the key and a number, which the metadata name, so that
//! bytes, ETag and metadata can be seen to belong together without anything else being known.

use md5::{Digest as _, Md5};

/// Metadata header that names the content.
pub(crate) const CONTENT: &str = "x-amz-meta-content";
/// Metadata header that names the operation that gave the object its metadata.
pub(crate) const OPERATION: &str = "x-amz-meta-operation";

/// Size of all parts but the last, in bytes: the smallest that S3 allows.
const PART: usize = 5 << 20;
/// Bytes that are made at random; the rest repeats them.
const BLOCK: usize = 4096;
/// Most bytes of any content.
pub(crate) const MOST: usize = 3 * PART;

/// What the bytes are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// The key for which it was made; a copy has it under another one.
    pub(crate) key: String,
    pub(crate) number: u64,
    /// 0 for an object that was put in one piece.
    pub(crate) parts: usize,
}

impl Content {
    /// As the metadata name it.
    pub(crate) fn name(&self) -> String {
        format!("{}#{}#{}", self.key, self.number, self.parts)
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut fields = name.split('#');
        let key = fields.next()?.to_owned();
        let (number, parts) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        fields.next().is_none().then_some(Self { key, number, parts })
    }

    /// The pieces in which it is uploaded.
    pub(crate) fn pieces(&self) -> Vec<Vec<u8>> {
        let mut random = Random::new(&self.name());
        let small = match random.below(8) {
            0 => 0,
            1..=4 => random.below(20_000),
            5 | 6 => random.below(300_000),
            _ => random.below(3 << 20),
        };
        let sizes = match self.parts {
            0 => vec![small],
            // The last part may be small, not empty.
            parts => [vec![PART; parts - 1], vec![1 + small % 300_000]].concat(),
        };
        sizes.into_iter().map(|size| random.bytes(size)).collect()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pieces().concat()
    }

    /// With its quotes.
    pub(crate) fn etag(&self) -> String {
        let md5 = |bytes: &[u8]| Md5::digest(bytes).to_vec();
        let pieces = self.pieces();
        match self.parts {
            0 => format!("\"{}\"", hex::encode(md5(&pieces[0]))),
            parts => {
                let digests: Vec<u8> = pieces.iter().flat_map(|piece| md5(piece)).collect();
                format!("\"{}-{parts}\"", hex::encode(md5(&digests)))
            }
        }
    }
}

/// A generator with a seed (SplitMix64, Steele and others, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: &str) -> Self {
        let digest = Md5::digest(seed.as_bytes());
        Self(u64::from_le_bytes(digest[..8].try_into().unwrap()))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound`, which is left out.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A block over and over, each with its number, so that no two places look the same; quick also
    /// where nothing is optimised.
    fn bytes(&mut self, size: usize) -> Vec<u8> {
        let block: Vec<u8> = (0..BLOCK / 8).flat_map(|_| self.next().to_le_bytes()).collect();
        let mut bytes = block.repeat(size.div_ceil(BLOCK));
        for (number, block) in (0_u64..).zip(bytes.chunks_mut(BLOCK)) {
            block[..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes.truncate(size);
        bytes
    }
}
