//! Sizes as people type and read them.

/// Reads a size: a whole number of bytes, or with a unit, `4MiB`, `256 MiB`, `1GiB`, `10kb`.
///
/// `KiB MiB GiB TiB` (and the short `K M G T`) are powers of 1024; `kB MB GB TB` powers of 1000;
/// case does not matter.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size; write for example 4MiB, 1GiB or 1000000"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{text:?}: unknown unit {:?}; use KiB, MiB, GiB or TiB", unit.trim())),
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is too large"))
}

/// Writes a size with the largest binary unit that divides it, `4MiB`; else in bytes.
pub fn format_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("4MiB" => Ok(4 << 20))]
    #[test_case("256 mib" => Ok(256 << 20))]
    #[test_case("1G" => Ok(1 << 30))]
    #[test_case("1000000" => Ok(1_000_000))]
    #[test_case("10kB" => Ok(10_000))]
    #[test_case("0" => Ok(0))]
    fn sizes(text: &str) -> Result<u64, String> {
        parse_size(text)
    }

    #[test_case("")]
    #[test_case("MiB")]
    #[test_case("-1")]
    #[test_case("1.5GiB")]
    #[test_case("4 parsecs")]
    #[test_case("99999999TiB")]
    fn refused(text: &str) {
        assert!(parse_size(text).is_err());
    }

    #[test]
    fn formats_read_back() {
        for bytes in [0, 1, 1023, 1024, 1536, 4 << 20, (1 << 30) + 1, 5 << 40] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }
}
