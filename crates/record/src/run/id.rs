//! Names of run directories: `2026-11-21-1422-shakespeare-k3qf` sorts by time, is descriptive and practically unique.

use crate::base::clock::UnixMillis;
use std::hash::{BuildHasher, Hasher};

/// Unambiguous letters and digits (no i, l, o, 0, 1): 31 of them.
const ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
/// Characters of the random suffix: 31^4 is about 900,000 names per minute.
const SUFFIX: usize = 4;
/// Longest part taken from the run's name, so that the socket path stays below 108 bytes.
const MAX_NAME: usize = 32;

/// A new directory name for a run called `name` that starts at `now`.
pub fn new_id(name: &str, now: UnixMillis) -> String {
    format!("{}-{}-{}", minute(now), slug(name), suffix(random()))
}

/// A run's id without the date in front: `2026-11-21-1422-shakespeare-k3qf` → `shakespeare-k3qf`.
pub fn short_run(id: &str) -> &str {
    let dated = id.len() > 16
        && id.bytes().take(16).enumerate().all(|(i, b)| match i {
            4 | 7 | 10 | 15 => b == b'-',
            _ => b.is_ascii_digit(),
        });
    if dated { &id[16..] } else { id }
}

/// Local time to the minute; UTC if the machine has no time zone.
fn minute(now: UnixMillis) -> String {
    let millis = i64::try_from(now.0).unwrap_or(i64::MAX);
    let timestamp = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    timestamp
        .to_zoned(jiff::tz::TimeZone::system())
        .strftime("%Y-%m-%d-%H%M")
        .to_string()
}

/// Lower-case letters, digits and single dashes; never empty.
fn slug(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().flat_map(char::to_lowercase) {
        if out.len() >= MAX_NAME {
            break;
        }
        if c.is_ascii_alphanumeric() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    let trimmed = out.trim_end_matches('-');
    if trimmed.is_empty() {
        "run".into()
    } else {
        trimmed.into()
    }
}

fn suffix(mut bits: u64) -> String {
    let base = ALPHABET.len() as u64;
    let mut out = String::with_capacity(SUFFIX);
    for _ in 0..SUFFIX {
        out.push(char::from(ALPHABET[(bits % base) as usize]));
        bits /= base;
    }
    out
}

/// 64 bits from the operating system. Names must differ between processes with the same seed, so the run's own
/// reproducible generator is the wrong source.
pub fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_time_name_and_suffix() {
        let id = new_id("Tiny Shakespeare!", UnixMillis(1_763_734_920_000));
        let parts: Vec<&str> = id.splitn(5, '-').collect();
        assert_eq!(parts.len(), 5, "{id}");
        assert_eq!(parts[0], "2025");
        assert_eq!(parts[3].len(), 4);
        assert!(parts[4].starts_with("tiny-shakespeare-"), "{id}");
        assert_eq!(parts[4].len(), "tiny-shakespeare-".len() + SUFFIX);
    }

    #[test]
    fn slugs_are_safe_file_names() {
        assert_eq!(slug("../../etc/passwd"), "etc-passwd");
        assert_eq!(slug("  "), "run");
        assert_eq!(slug("ÄÖ x"), "x");
        assert_eq!(slug("a--b__c"), "a-b-c");
        assert!(slug(&"long".repeat(50)).len() <= MAX_NAME);
    }

    #[test]
    fn suffixes_differ() {
        let ids: std::collections::HashSet<String> = (0..100)
            .map(|_| new_id("x", UnixMillis(1_763_734_920_000)))
            .collect();
        assert!(ids.len() >= 99, "{}", ids.len());
    }

    #[test]
    fn run_names_lose_only_dates() {
        assert_eq!(
            short_run("2026-11-21-1422-shakespeare-k3qf"),
            "shakespeare-k3qf"
        );
        assert_eq!(short_run("2026-11-21-1422-"), "2026-11-21-1422-");
        assert_eq!(short_run("my-run"), "my-run");
        assert_eq!(short_run("äöüäöüäöüäöüäöü-x"), "äöüäöüäöüäöüäöü-x");
    }
}
