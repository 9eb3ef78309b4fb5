//! The targets of `fuzz/` on stable: every parser on mutated seeds, the same in every run. `cargo test` takes some of each;
//! `LLMTUI_FUZZ_SECONDS=300 cargo long --test fuzz` runs each target this long. A failing input is written to a file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may fail loudly, and a long one tells where it is"
)]

#[path = "../fuzz/targets.rs"]
mod targets;

use llmtui::base::clock::{Clock, SystemClock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use targets::{TARGETS, Target, seeds};

/// As in the program: memory budgets need this allocator.
#[global_allocator]
static ALLOCATOR: llmtui::kernels::allocations::Counting = llmtui::kernels::allocations::Counting;

/// Far more than any input of 64 KiB should need.
const MAX_RESIDENT: u64 = 1200 << 20;
/// Longest mutated input.
const MAX_INPUT: usize = 128 << 10;
/// Bytes and words with a special meaning for parsers.
const WORDS: [&[u8]; 20] = [
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x00\x00\x00\x00\x00\x00\x00\x80",
    b"18446744073709551615",
    b"-9223372036854775808",
    b"1e999",
    b"NaN",
    b"null",
    b"\"",
    b"{",
    b"}",
    b"[[[[[[[[",
    b"]",
    b"\n",
    b": ",
    b"- ",
    b"\\u0000",
    b"\x1b]52;c;cHduZWQ=\x07",
    b"\xc0\x80",
    b"{% for i in range(100000) %}{{ m ~ m }}{% endfor %}",
    b"../../../../etc/passwd",
];

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }
}

/// One of the seeds with a few mutations, or random bytes.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random| {
        seeds
            .get(random.below(seeds.len()))
            .cloned()
            .unwrap_or_default()
    };
    let mut bytes = pick(random);
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(64)).min(bytes.len());
        match random.below(9) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            3 => drop(bytes.drain(at.min(end)..end)),
            4 => bytes.truncate(at),
            5 => {
                let word = WORDS[random.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            6 => {
                let again: Vec<u8> = bytes[at.min(end)..end].to_vec();
                for _ in 0..random.below(200) {
                    bytes.splice(at..at, again.iter().copied());
                }
            }
            7 => {
                let other = pick(random);
                let from = random.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let word = WORDS[random.below(WORDS.len())];
                let to = (at + word.len()).min(bytes.len());
                bytes.splice(at..to, word.iter().copied());
            }
        }
        bytes.truncate(MAX_INPUT);
    }
    bytes
}

/// Current and peak memory of this process.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Runs a target on its seeds and then on mutated ones until `enough` returns true. Returns how many, and the slowest.
fn drive(target: &Target, seed: u64, enough: impl Fn(usize) -> bool) -> (usize, Duration) {
    let seeds = seeds(Path::new(env!("CARGO_MANIFEST_DIR")), target);
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(seed);
    let (mut n, mut slowest) = (0, Duration::ZERO);
    while !enough(n) {
        let input = match seeds.get(n) {
            Some(seed) => seed.clone(),
            None => mutated(&seeds, &mut random),
        };
        let clock = SystemClock::new();
        let ending = catch_unwind(AssertUnwindSafe(|| (target.run)(&input, folder.path())));
        slowest = slowest.max(clock.elapsed());
        let peak = memory();
        if ending.is_err() || peak > MAX_RESIDENT {
            let kept: PathBuf = std::env::temp_dir().join(format!("fuzz-{}-{n}", target.name));
            std::fs::write(&kept, &input).unwrap();
            panic!(
                "{}: input {n} panics or takes too much ({} MiB): {}",
                target.name,
                peak >> 20,
                kept.display()
            );
        }
        n += 1;
    }
    (n, slowest)
}

#[test]
fn every_parser_survives_mutated_seeds() {
    llmtui::base::child::this_program_is(PathBuf::from(env!("CARGO_BIN_EXE_llmtui")));
    for target in TARGETS {
        // Each tokenizer costs a process.
        let n = if target.name == "tokenizer_json" {
            12
        } else {
            150
        };
        drive(target, 1, |done| done >= n);
    }
}

#[test]
fn every_target_has_its_file_for_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let file = format!("fuzz_targets/{}.rs", target.name);
        let text = std::fs::read_to_string(folder.join(&file)).unwrap();
        assert!(text.contains(&format!("targets::run({:?}, data)", target.name)));
        assert!(manifest.contains(&format!("path = \"{file}\"")), "{file}");
    }
    let files = std::fs::read_dir(folder.join("fuzz_targets")).unwrap();
    assert_eq!(files.count(), TARGETS.len());
}

#[test]
#[ignore = "LLMTUI_FUZZ_SECONDS for each target"]
fn long() {
    llmtui::base::child::this_program_is(PathBuf::from(env!("CARGO_BIN_EXE_llmtui")));
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|printed| printed.parse().ok())
    };
    let seconds = number("LLMTUI_FUZZ_SECONDS").unwrap_or(60);
    let seed = number("LLMTUI_FUZZ_SEED").unwrap_or(2);
    let only = std::env::var("LLMTUI_FUZZ_TARGET").ok();
    for target in TARGETS {
        if only.as_ref().is_some_and(|only| only != target.name) {
            continue;
        }
        let clock = SystemClock::new();
        let end = Duration::from_secs(seconds);
        let (n, slowest) = drive(target, seed, |_| clock.elapsed() > end);
        println!(
            "{:16} {n:8} inputs, slowest {slowest:.2?}, peak {} MiB",
            target.name,
            memory() >> 20
        );
    }
}
