//! The cuObject descriptor ("token"): 81 characters that name a window of remote memory.
//!
//! Seven fixed-width hexadecimal fields between colons, as cuObjClient mints them:
//! address (16), size (8), rkey (8), LID (4), DCT number (6), GID flag (1), GID (32).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of a descriptor in characters.
pub const DESCRIPTOR_LEN: usize = 81;

const FIELDS: [(&str, usize); 7] =
    [("address", 16), ("size", 8), ("rkey", 8), ("LID", 4), ("DCT number", 6), ("GID flag", 1), ("GID", 32)];

/// A parsed descriptor. [`Display`](fmt::Display) gives the wire form back, in lower case.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// First byte of the window in the client's address space.
    pub address: u64,
    /// Size of the window in bytes.
    pub size: u32,
    /// Remote key of the memory region.
    pub rkey: u32,
    /// Local identifier of the client's port (InfiniBand; 0 on Ethernet).
    pub lid: u16,
    /// Number of the client's DC target, 24 bits.
    pub dct: u32,
    /// Whether the GID is to be used.
    pub has_gid: bool,
    /// The client's GID, raw bytes in network order.
    pub gid: [u8; 16],
}

/// Why a token was refused. Texts never repeat the token itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// The whole has another length than 81 characters.
    #[error("a descriptor has {DESCRIPTOR_LEN} characters, this one has {0}")]
    Length(usize),
    /// A field has the wrong width, or a character that is not hexadecimal.
    #[error("field {index} ({name}) must be {width} hexadecimal digits")]
    Field {
        /// Number of the field, from 1.
        index: usize,
        /// Name of the field.
        name: &'static str,
        /// Its width in characters.
        width: usize,
    },
    /// The GID flag is neither 0 nor 1.
    #[error("field 6 (GID flag) must be 0 or 1")]
    GidFlag,
    /// base address + size passes the end of the address space.
    #[error("the window passes the end of the address space")]
    Overflow,
    /// A trailing override is not exactly two hexadecimal fields.
    #[error("the suffix must be two hexadecimal fields, address and size")]
    Suffix,
    /// A range asked for lies outside the window.
    #[error("{start:#x}+{length} lies outside the client's window {base:#x}+{size}")]
    OutOfWindow {
        /// Start of the range asked for.
        start: u64,
        /// Length of the range asked for.
        length: u64,
        /// Start of the window.
        base: u64,
        /// Size of the window.
        size: u64,
    },
}

/// Reads exactly `digits` as a hexadecimal number; no sign, space or prefix is taken.
fn hex_field(digits: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for &digit in digits {
        value = (value << 4) | u64::from((digit as char).to_digit(16)?);
    }
    Some(value)
}

impl Descriptor {
    /// Reads the 81-character form. Upper- and lower-case digits are accepted.
    ///
    /// # Errors
    /// Names the field that is wrong; see [`DescriptorError`].
    pub fn parse(text: &str) -> std::result::Result<Self, DescriptorError> {
        let bytes = text.as_bytes();
        if bytes.len() != DESCRIPTOR_LEN {
            return Err(DescriptorError::Length(bytes.len()));
        }
        let mut values = [0u64; 6];
        let mut gid = [0u8; 16];
        let mut at = 0;
        for (i, (name, width)) in FIELDS.into_iter().enumerate() {
            let wrong = DescriptorError::Field { index: i + 1, name, width };
            let field = &bytes[at..at + width];
            if i + 1 < FIELDS.len() && bytes[at + width] != b':' {
                return Err(wrong);
            }
            if i < 6 {
                values[i] = hex_field(field).ok_or(wrong)?;
            } else {
                for (byte, pair) in gid.iter_mut().zip(field.chunks(2)) {
                    *byte = hex_field(pair).ok_or_else(|| wrong.clone())? as u8;
                }
            }
            at += width + 1;
        }
        let [address, size, rkey, lid, dct, flag] = values;
        if flag > 1 {
            return Err(DescriptorError::GidFlag);
        }
        address.checked_add(size).ok_or(DescriptorError::Overflow)?;
        Ok(Self {
            address,
            size: size as u32,
            rkey: rkey as u32,
            lid: lid as u16,
            dct: dct as u32,
            has_gid: flag == 1,
            gid,
        })
    }

    /// Reads a descriptor with the optional suffix `:<address>:<size>` of older clients.
    ///
    /// The suffix narrows the window and must lie inside it; the descriptor itself is unchanged.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and for a suffix that is malformed or leaves the window.
    pub fn parse_with_suffix(text: &str) -> std::result::Result<(Self, Window), DescriptorError> {
        if text.len() <= DESCRIPTOR_LEN || !text.is_char_boundary(DESCRIPTOR_LEN) {
            let descriptor = Self::parse(text)?;
            return Ok((descriptor, descriptor.window()));
        }
        let (head, tail) = text.split_at(DESCRIPTOR_LEN);
        let descriptor = Self::parse(head)?;
        let mut fields = tail.strip_prefix(':').ok_or(DescriptorError::Length(text.len()))?.split(':');
        let mut number = || {
            let field = fields.next().ok_or(DescriptorError::Suffix)?.as_bytes();
            if field.is_empty() || field.len() > 16 {
                return Err(DescriptorError::Suffix);
            }
            hex_field(field).ok_or(DescriptorError::Suffix)
        };
        let (start, size) = (number()?, number()?);
        if fields.next().is_some() {
            return Err(DescriptorError::Suffix);
        }
        let window = descriptor.window().narrow(start, size)?;
        Ok((descriptor, window))
    }

    /// The window of remote memory that the descriptor opens.
    pub fn window(&self) -> Window {
        Window { base: self.address, size: u64::from(self.size) }
    }

    /// The client's address, when the GID carries one (RoCE v2): IPv4 for `::ffff:a.b.c.d`.
    pub fn peer(&self) -> Option<IpAddr> {
        if !self.has_gid || self.gid == [0; 16] {
            return None;
        }
        let v6 = Ipv6Addr::from(self.gid);
        Some(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4))
    }

    /// The GID of an address as RoCE v2 writes it.
    pub fn gid_of(address: IpAddr) -> [u8; 16] {
        match address {
            IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4).octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:016x}:{:08x}:{:08x}:{:04x}:{:06x}:{}:",
            self.address,
            self.size,
            self.rkey,
            self.lid,
            self.dct & 0x00ff_ffff,
            u8::from(self.has_gid)
        )?;
        self.gid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Shows what identifies the peer and the size, never the rkey or the address: those open memory.
impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("peer", &self.peer())
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// A range of remote memory. All arithmetic is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// First byte.
    pub base: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Window {
    /// The part of the window that starts at address `start` and holds `length` bytes.
    ///
    /// # Errors
    /// [`DescriptorError::OutOfWindow`] when any byte of it lies outside.
    pub fn narrow(&self, start: u64, length: u64) -> std::result::Result<Window, DescriptorError> {
        let inside = start >= self.base
            && u128::from(start) + u128::from(length) <= u128::from(self.base) + u128::from(self.size);
        if !inside {
            return Err(DescriptorError::OutOfWindow { start, length, base: self.base, size: self.size });
        }
        Ok(Window { base: start, size: length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    const EXAMPLE: &str = "0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10";

    fn example() -> Descriptor {
        Descriptor {
            address: 0x0102_0304_0506_0708,
            size: 0x0102_0304,
            rkey: 0x0102_0304,
            lid: 0x0102,
            dct: 0x01_0203,
            has_gid: true,
            gid: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        }
    }

    /// The example with the bytes from `at` on replaced.
    fn with(at: usize, text: &str) -> String {
        format!("{}{text}{}", &EXAMPLE[..at], &EXAMPLE[at + text.len()..])
    }

    #[test]
    fn the_example_is_read_and_written() {
        assert_eq!(EXAMPLE.len(), DESCRIPTOR_LEN);
        assert_eq!(Descriptor::parse(EXAMPLE), Ok(example()));
        assert_eq!(example().to_string(), EXAMPLE);
        assert_eq!(Descriptor::parse(&EXAMPLE.to_uppercase()), Ok(example()));
    }

    #[test_case(0, "0102030405060708 " => "address"; "separator missing")]
    #[test_case(0, "g" => "address"; "no digit")]
    #[test_case(0, "+" => "address"; "a sign")]
    #[test_case(0, " " => "address"; "a space")]
    #[test_case(0, "0x" => "address"; "a prefix")]
    #[test_case(0, "-1" => "address"; "a minus")]
    #[test_case(16, "0" => "address"; "first colon")]
    #[test_case(17, "0102:304" => "size"; "colon too early")]
    #[test_case(25, ";" => "size"; "other separator")]
    #[test_case(26, "0102030z" => "rkey"; "rkey digit")]
    #[test_case(35, "_102" => "LID"; "underscore")]
    #[test_case(40, "01020\n" => "DCT number"; "line end")]
    #[test_case(48, "," => "GID flag"; "colon behind the flag")]
    #[test_case(49, "zz" => "GID"; "first of the GID")]
    #[test_case(80, "\0" => "GID"; "last of the GID")]
    fn a_wrong_field_is_named(at: usize, text: &str) -> &'static str {
        match Descriptor::parse(&with(at, text)) {
            Err(DescriptorError::Field { name, index, width }) => {
                assert_eq!(FIELDS[index - 1], (name, width));
                name
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_lengths_and_ends_of_the_address_space() {
        for flag in ["2", "f", "9"] {
            assert_eq!(Descriptor::parse(&with(47, flag)), Err(DescriptorError::GidFlag));
        }
        assert!(!Descriptor::parse(&with(47, "0")).unwrap().has_gid);
        for text in ["", "0", &EXAMPLE[..80], &format!("{EXAMPLE}0"), &EXAMPLE[1..]] {
            assert_eq!(Descriptor::parse(text), Err(DescriptorError::Length(text.len())));
        }
        assert_eq!(Descriptor::parse(&with(0, "ffffffffffffffff")), Err(DescriptorError::Overflow));
        // The last byte of the window may be the last of the address space but one.
        let end = with(0, &format!("{:016x}", u64::MAX - 0x0102_0304));
        assert!(Descriptor::parse(&end).is_ok());
        let end = with(0, &format!("{:016x}", u64::MAX - 0x0102_0303));
        assert_eq!(Descriptor::parse(&end), Err(DescriptorError::Overflow));
    }

    #[test]
    fn letters_of_several_bytes_are_no_digits_and_no_panic() {
        // 81 bytes, with characters across the fields' borders.
        for at in 0..DESCRIPTOR_LEN - 1 {
            assert!(Descriptor::parse(&with(at, "é")).is_err());
        }
        let across = format!("{}é{}", &EXAMPLE[..80], ":1:1");
        assert!(Descriptor::parse_with_suffix(&across).is_err());
    }

    #[test]
    fn error_texts_do_not_repeat_the_token() {
        for text in [with(26, "0102030z"), with(47, "7"), with(0, "ffffffffffffffff"), format!("{EXAMPLE}:x")]
        {
            let shown = Descriptor::parse_with_suffix(&text).unwrap_err().to_string();
            assert!(!shown.contains("01020"), "{shown}");
        }
    }

    const BASE: u64 = 0x0102_0304_0506_0708;

    #[test_case("" => Ok(Window { base: BASE, size: 0x0102_0304 }); "none")]
    #[test_case(":0102030405060708:01020304" => Ok(Window { base: BASE, size: 0x0102_0304 }); "the same")]
    #[test_case(":0102030405060709:10" => Ok(Window { base: BASE + 1, size: 16 }); "narrower")]
    #[test_case(":102030405060708:A" => Ok(Window { base: BASE, size: 10 }); "any width and case")]
    #[test_case(":0102030405060708:0" => Ok(Window { base: BASE, size: 0 }); "nothing")]
    #[test_case(":0102030405060708" => Err(DescriptorError::Suffix); "one field")]
    #[test_case(":0102030405060708:" => Err(DescriptorError::Suffix); "empty size")]
    #[test_case(":" => Err(DescriptorError::Suffix); "empty")]
    #[test_case("::" => Err(DescriptorError::Suffix); "two empty")]
    #[test_case(":0102030405060708:1:1" => Err(DescriptorError::Suffix); "three fields")]
    #[test_case(":0102030405060708:1:" => Err(DescriptorError::Suffix); "a colon at the end")]
    #[test_case(":00102030405060708:1" => Err(DescriptorError::Suffix); "17 digits")]
    #[test_case(":0x2:1" => Err(DescriptorError::Suffix); "a prefix")]
    #[test_case("0:1:1" => Err(DescriptorError::Length(86)); "no colon")]
    fn suffixes(suffix: &str) -> std::result::Result<Window, DescriptorError> {
        let (descriptor, window) = Descriptor::parse_with_suffix(&format!("{EXAMPLE}{suffix}"))?;
        assert_eq!(descriptor, example(), "the descriptor itself is unchanged");
        Ok(window)
    }

    #[test_case(BASE - 1, 1; "below")]
    #[test_case(BASE + 0x0102_0304, 1; "behind")]
    #[test_case(BASE, 0x0102_0305; "too long")]
    #[test_case(BASE + 1, u64::MAX; "wrapping")]
    #[test_case(u64::MAX, 1; "the end of the address space")]
    fn a_suffix_outside_the_window_is_refused(start: u64, length: u64) {
        let text = format!("{EXAMPLE}:{start:x}:{length:x}");
        let refused = Descriptor::parse_with_suffix(&text).unwrap_err();
        assert_eq!(refused, DescriptorError::OutOfWindow { start, length, base: BASE, size: 0x0102_0304 });
    }

    #[test]
    fn peers_are_read_from_gids() {
        let peer = |gid: [u8; 16], has_gid| Descriptor { gid, has_gid, ..example() }.peer();
        for address in ["10.0.0.1", "fe80::1", "2001:db8::7"] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(peer(Descriptor::gid_of(address), true), Some(address));
            assert_eq!(peer(Descriptor::gid_of(address), false), None);
        }
        assert_eq!(peer([0; 16], true), None);
    }

    #[test]
    fn debug_shows_nothing_that_opens_memory() {
        let descriptor = Descriptor { gid: Descriptor::gid_of("10.0.0.1".parse().unwrap()), ..example() };
        let shown = format!("{descriptor:?}");
        assert!(shown.contains("10.0.0.1"), "{shown}");
        for secret in ["72623859790382856", "0102030405060708", "66051", "rkey", "dct"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    fn any_descriptor() -> impl Strategy<Value = Descriptor> {
        (
            any::<u64>(),
            any::<u32>(),
            any::<u32>(),
            any::<u16>(),
            0u32..1 << 24,
            any::<bool>(),
            any::<[u8; 16]>(),
        )
            .prop_map(|(address, size, rkey, lid, dct, has_gid, gid)| Descriptor {
                address: address.min(u64::MAX - u64::from(size)),
                size,
                rkey,
                lid,
                dct,
                has_gid,
                gid,
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(descriptor in any_descriptor()) {
            let text = descriptor.to_string();
            prop_assert_eq!(text.len(), DESCRIPTOR_LEN);
            prop_assert_eq!(Descriptor::parse(&text), Ok(descriptor));
            prop_assert_eq!(Descriptor::parse(&text.to_uppercase()), Ok(descriptor));
            prop_assert_eq!(Descriptor::parse_with_suffix(&text), Ok((descriptor, descriptor.window())));
        }

        /// Whatever is accepted is written back as it came, but for the case of its letters.
        #[test]
        fn a_changed_character_is_refused_or_changes_the_value(
            descriptor in any_descriptor(),
            at in 0..DESCRIPTOR_LEN,
            byte in 0u8..128,
        ) {
            let mut bytes = descriptor.to_string().into_bytes();
            bytes[at] = byte;
            let text = String::from_utf8(bytes).unwrap();
            if let Ok(read) = Descriptor::parse(&text) {
                prop_assert_eq!(read.to_string(), text.to_lowercase());
            }
        }

        #[test]
        fn no_text_is_a_panic(text in "\\PC{0,120}") {
            let _ = Descriptor::parse(&text);
            let _ = Descriptor::parse_with_suffix(&text);
        }

        #[test]
        fn no_suffix_is_a_panic(descriptor in any_descriptor(), suffix in "[:0-9a-fA-Fxé]{0,40}") {
            if let Ok((read, window)) = Descriptor::parse_with_suffix(&format!("{descriptor}{suffix}")) {
                prop_assert_eq!(read, descriptor);
                prop_assert!(window.base >= descriptor.address);
                prop_assert!(window.base + window.size <= descriptor.address + u64::from(descriptor.size));
            }
        }

        /// Against arithmetic that cannot overflow.
        #[test]
        fn a_range_is_inside_exactly_when_all_its_bytes_are(
            base in any::<u64>(),
            size in any::<u64>(),
            start in any::<u64>(),
            length in any::<u64>(),
        ) {
            let window = Window { base, size };
            let inside = u128::from(start) >= u128::from(base)
                && u128::from(start) + u128::from(length) <= u128::from(base) + u128::from(size);
            prop_assert_eq!(window.narrow(start, length).is_ok(), inside);
            // And from inside, which random numbers seldom are.
            let (start, length) = (base.saturating_add(start % size.max(1)), length % size.max(1));
            let inside = u128::from(start) + u128::from(length) <= u128::from(base) + u128::from(size);
            prop_assert_eq!(window.narrow(start, length).is_ok(), inside);
        }
    }
}
