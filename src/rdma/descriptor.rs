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
