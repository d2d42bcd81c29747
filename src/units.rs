//! Sizes as people type and read them.

/// Reads a size: a number of bytes, or one with a unit, `4MiB`, `256 MiB`, `1.5GiB`, `10kb`.
///
/// `KiB MiB GiB TiB` (and the short `K M G T`) are powers of 1024; `kB MB GB TB` powers of 1000;
/// case does not matter. What is left of a byte after a decimal fraction is dropped.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ if number.is_empty() => return Err(no_size(text)),
        _ => return Err(format!("{text:?}: unknown unit {unit:?}; use KiB, MiB, GiB or TiB")),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // Nine decimal places tell every byte of a unit up to GiB; more must at least be digits.
    if whole.is_empty() || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(no_size(text));
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let part: u128 = fraction.parse().map_err(|_| no_size(text))?;
    let whole: u64 = whole.parse().map_err(|_| no_size(text))?;
    let bytes = u128::from(whole) * u128::from(factor)
        + part * u128::from(factor) / 10_u128.pow(fraction.len() as u32);
    u64::try_from(bytes).map_err(|_| format!("{text:?} is too large"))
}

fn no_size(text: &str) -> String {
    format!("{text:?} is not a size; write for example 4MiB, 1.5GiB or 1000000")
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
    #[test_case("1.5GiB" => Ok(3 << 29))]
    #[test_case("0.1k" => Ok(102); "a part of a byte is dropped")]
    #[test_case("0.000976562500000000KiB" => Ok(0))]
    #[test_case("16777215.99TiB" => Ok(18446744062714435338))]
    fn sizes(text: &str) -> Result<u64, String> {
        parse_size(text)
    }

    #[test_case("")]
    #[test_case("MiB")]
    #[test_case("-1")]
    #[test_case(".5GiB")]
    #[test_case("1.GiB")]
    #[test_case("1.2.3")]
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
