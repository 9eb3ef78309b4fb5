//! Amounts as typed and displayed: `24GB`, `80 GiB`, `20B` tokens.

use crate::base::human::{self, bytes_sold};

/// Bytes of `24GB`, `512 MiB`, `1.5g`; a bare number is GB.
///
/// # Errors
/// No number above 0, or an unknown unit; names it.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit.to_lowercase().as_str() {
        "" | "g" | "gb" => 1e9,
        "gib" | "gi" => 1_073_741_824.0,
        "m" | "mb" => 1e6,
        "mib" | "mi" => 1_048_576.0,
        "t" | "tb" => 1e12,
        "tib" | "ti" => 1_099_511_627_776.0,
        "b" | "bytes" => 1.0,
        _ => {
            return Err(format!(
                "`{unit}` is not a memory unit; use GB, GiB, MB, MiB or TB"
            ));
        }
    };
    positive(number * scale)
}

/// `20B`, `1.5e9`, `300M`, `2T`, `655360000`.
///
/// # Errors
/// No number above 0, or an unknown suffix; names it.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit.to_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "b" | "g" => 1e9,
        "t" => 1e12,
        _ => return Err(format!("`{unit}` is not a suffix; use k, M, B or T")),
    };
    positive(number * scale)
}

fn positive(x: f64) -> Result<u64, String> {
    match x {
        x if (1.0..1e19).contains(&x) => Ok(x.round() as u64),
        _ => Err("must be at least 1".into()),
    }
}

/// The number and its suffix.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let exponent = |i: usize, c: char| {
        let digits = text[i + 1..].trim_start_matches(['+', '-']);
        matches!(c, 'e' | 'E') && digits.starts_with(|d: char| d.is_ascii_digit())
    };
    let mut end = text.len();
    let mut after_exponent = false;
    for (i, c) in text.char_indices() {
        let sign = after_exponent && matches!(c, '+' | '-');
        after_exponent = exponent(i, c);
        if !(c.is_ascii_digit() || matches!(c, '.' | '_' | ',') || sign || after_exponent) {
            end = i;
            break;
        }
    }
    let number: String = text[..end]
        .chars()
        .filter(|c| !matches!(c, '_' | ','))
        .collect();
    match number.parse::<f64>() {
        Ok(x) => Ok((x, text[end..].trim())),
        Err(_) => Err(format!("`{text}` is not a number")),
    }
}

/// What a device has, as it is sold and as the parts of a plan are counted: `80 GB (74.5 GiB)`; the memory that a driver reports and that of a
/// machine in powers of two alone, as everywhere else on screens: `23.6 GiB`.
pub fn capacity(bytes: u64) -> String {
    match bytes.is_multiple_of(1_000_000_000) {
        true => format!("{} ({})", bytes_sold(bytes), human::bytes(bytes)),
        false => human::bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_typed() {
        assert_eq!(parse_bytes("24GB"), Ok(24_000_000_000));
        assert_eq!(parse_bytes("24"), Ok(24_000_000_000));
        assert_eq!(parse_bytes("80 GiB"), Ok(80 << 30));
        assert_eq!(parse_bytes("512mib"), Ok(512 << 20));
        assert_eq!(parse_count("20B"), Ok(20_000_000_000));
        assert_eq!(parse_count("1.5e9"), Ok(1_500_000_000));
        assert_eq!(parse_count("655,360,000"), Ok(655_360_000));
        assert_eq!(parse_count("2e-1T"), Ok(200_000_000_000));
    }

    #[test]
    fn nonsense_is_named() {
        assert!(parse_bytes("24 parsecs").unwrap_err().contains("parsecs"));
        assert!(parse_bytes("GB").unwrap_err().contains("not a number"));
        assert!(
            parse_count("0").is_err() && parse_count("-3").is_err() && parse_count("").is_err()
        );
    }

    #[test]
    fn what_is_sold_is_told_in_both_units() {
        assert_eq!(capacity(80_000_000_000), "80 GB (74.5 GiB)");
        assert_eq!(capacity(25_345_678_848), "23.6 GiB");
    }
}
