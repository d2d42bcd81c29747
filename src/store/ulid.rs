//! Version ids: 48 bits of milliseconds and 80 random bits as 26 characters that sort by time.
//!
//! Form: the ULID specification (ulid/spec on GitHub), Crockford's base 32.

use std::fmt;
use std::time::UNIX_EPOCH;

use super::fs::random_bytes;

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A version id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ulid(u128);

impl Ulid {
    /// A new id of this moment.
    pub(crate) fn now() -> Self {
        let millis = UNIX_EPOCH.elapsed().map_or(0, |d| d.as_millis());
        Self::at(u64::try_from(millis).unwrap_or(0), u128::from_be_bytes(random_bytes()))
    }

    /// The id of a moment, with the low 80 bits of `random`.
    pub(crate) fn at(millis: u64, random: u128) -> Self {
        Self((u128::from(millis) & 0xffff_ffff_ffff) << 80 | random & ((1 << 80) - 1))
    }

    /// The next id, larger by as little as possible.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Its moment, in milliseconds since 1970.
    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0 >> 80).unwrap_or(0)
    }

    /// Reads an id; only the exact form that is written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != 26 || text.as_bytes()[0] > b'7' {
            return None;
        }
        let mut value = 0_u128;
        for byte in text.bytes() {
            let digit = ALPHABET.iter().position(|&a| a == byte)?;
            value = value << 5 | digit as u128;
        }
        Some(Self(value))
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in (0..26).rev() {
            let digit = usize::try_from(self.0 >> (5 * place) & 31).unwrap_or(0);
            write!(f, "{}", ALPHABET[digit] as char)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn form() {
        let id = Ulid::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
        assert_eq!(id.millis(), 1_469_922_850_259);
        assert_eq!(id.to_string(), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    }

    #[test]
    fn order() {
        let (early, late) = (Ulid::at(1, u128::MAX), Ulid::at(2, 0));
        assert!(early < late && early.to_string() < late.to_string());
        assert!(early.next() > early && early.next().to_string() > early.to_string());
        assert!(Ulid::now().millis() > 1_700_000_000_000);
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "null",
            "01arz3ndektsv4rrffq69g5fav",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "../../../../../../../../../x",
        ] {
            assert_eq!(Ulid::parse(text), None, "{text}");
        }
    }
}
