//! Digests of object bodies: MD5 for ETags, and the checksums that S3 knows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use md5::{Digest as _, Md5};
use sha1::Sha1;
use sha2::Sha256;

/// A checksum algorithm of S3 (`x-amz-checksum-*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// CRC-32 (ISO HDLC).
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The name as S3 writes it in `x-amz-checksum-algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// Reads the name, whatever its case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name().eq_ignore_ascii_case(name))
    }

    /// True for the cyclic redundancy checks, whose values of parts combine to that of the whole.
    pub fn is_crc(self) -> bool {
        matches!(self, Self::Crc32 | Self::Crc32c | Self::Crc64Nvme)
    }

    /// Size of the raw value in bytes.
    pub fn width(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

enum State {
    Crc(crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
}

/// Computes an MD5 and any set of checksums in one pass.
pub struct Digester {
    md5: Option<Md5>,
    sums: Vec<(Algorithm, State)>,
    length: u64,
}

impl std::fmt::Debug for Digester {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digester")
            .field("md5", &self.md5.is_some())
            .field("sums", &self.sums.iter().map(|s| s.0).collect::<Vec<_>>())
            .field("length", &self.length)
            .finish()
    }
}

/// What a [`Digester`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// MD5, when asked for.
    pub md5: Option<[u8; 16]>,
    /// Checksums, raw, in the order asked for.
    pub sums: Vec<(Algorithm, Vec<u8>)>,
    /// Bytes seen.
    pub length: u64,
}

impl Digester {
    /// Starts with MD5 or without, and the checksums named (doubles are computed once).
    pub fn new(md5: bool, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let mut sums: Vec<(Algorithm, State)> = Vec::new();
        for algorithm in algorithms {
            if sums.iter().any(|s| s.0 == algorithm) {
                continue;
            }
            let state = match algorithm {
                Algorithm::Crc32 => State::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc)),
                Algorithm::Crc32c => State::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi)),
                Algorithm::Crc64Nvme => State::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)),
                Algorithm::Sha1 => State::Sha1(Sha1::new()),
                Algorithm::Sha256 => State::Sha256(Sha256::new()),
            };
            sums.push((algorithm, state));
        }
        Self { md5: md5.then(Md5::new), sums, length: 0 }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.length += data.len() as u64;
        if let Some(md5) = &mut self.md5 {
            md5.update(data);
        }
        for (_, state) in &mut self.sums {
            match state {
                State::Crc(d) => d.update(data),
                State::Sha1(d) => d.update(data),
                State::Sha256(d) => d.update(data),
            }
        }
    }

    /// Ends the pass.
    pub fn finish(self) -> Digests {
        let sums = self
            .sums
            .into_iter()
            .map(|(algorithm, state)| {
                let value = match state {
                    State::Crc(d) => {
                        let value = d.finalize().to_be_bytes();
                        value[value.len() - algorithm.width()..].to_vec()
                    }
                    State::Sha1(d) => d.finalize().to_vec(),
                    State::Sha256(d) => d.finalize().to_vec(),
                };
                (algorithm, value)
            })
            .collect();
        Digests { md5: self.md5.map(|d| d.finalize().into()), sums, length: self.length }
    }
}

impl Digests {
    /// The raw value of a checksum, when it was asked for.
    pub fn get(&self, algorithm: Algorithm) -> Option<&[u8]> {
        self.sums.iter().find(|s| s.0 == algorithm).map(|s| &*s.1)
    }

    /// The checksum as S3 headers carry it (base64).
    pub fn base64(&self, algorithm: Algorithm) -> Option<String> {
        self.get(algorithm).map(|value| STANDARD.encode(value))
    }

    /// The MD5 in lower-case hexadecimal, when it was asked for.
    pub fn md5_hex(&self) -> Option<String> {
        self.md5.map(hex::encode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the string "123456789" (catalogue of parametrised CRC algorithms, RFC 1321,
    /// RFC 3174, FIPS 180-4).
    #[test]
    fn check_values() {
        let mut digester = Digester::new(true, Algorithm::ALL);
        digester.update(b"1234");
        digester.update(b"56789");
        let digests = digester.finish();
        assert_eq!(digests.length, 9);
        assert_eq!(digests.md5_hex().unwrap(), "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(digests.get(Algorithm::Crc32).unwrap(), 0xcbf4_3926_u32.to_be_bytes());
        assert_eq!(digests.get(Algorithm::Crc32c).unwrap(), 0xe306_9283_u32.to_be_bytes());
        assert_eq!(digests.get(Algorithm::Crc64Nvme).unwrap(), 0xae8b_1486_0a79_9888_u64.to_be_bytes());
        assert_eq!(
            hex::encode(digests.get(Algorithm::Sha1).unwrap()),
            "f7c3bc1d808e04732adf679965ccc34ca7ae3441"
        );
        assert_eq!(
            hex::encode(digests.get(Algorithm::Sha256).unwrap()),
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
        );
    }

    #[test]
    fn names_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(&algorithm.name().to_lowercase()), Some(algorithm));
        }
        assert_eq!(Algorithm::from_name("MD4"), None);
    }
}
