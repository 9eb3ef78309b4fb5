//! The targets of `fuzz/` on stable: every parser on damaged seeds, the same ones in every run. `cargo test` takes some of each;
//! `LLMTUI_FUZZ_SECONDS=300 cargo long --test fuzz` drives each target so long. A failing input is written to a file.

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

/// As in the program: budgets of memory are the allocator's.
#[global_allocator]
static ALLOCATOR: llmtui::kernels::allocations::Counting = llmtui::kernels::allocations::Counting;

/// Far more than any input of 64 KiB is worth.
const MAX_RESIDENT: u64 = 1200 << 20;
/// Longest mutated input.
const MAX_INPUT: usize = 128 << 10;
/// Bytes and words that parsers treat in ways of their own.
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

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below.max(1)
    }
}

/// One of the seeds with a few damages, or bytes of nobody's.
fn mutated(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let pick = |dice: &mut Dice| {
        seeds
            .get(dice.roll(seeds.len()))
            .cloned()
            .unwrap_or_default()
    };
    let mut bytes = pick(dice);
    for _ in 0..=dice.roll(6) {
        let at = dice.roll(bytes.len() + 1);
        let end = (at + 1 + dice.roll(64)).min(bytes.len());
        match dice.roll(9) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
            2 if at < bytes.len() => bytes[at] = dice.roll(256) as u8,
            3 => drop(bytes.drain(at.min(end)..end)),
            4 => bytes.truncate(at),
            5 => {
                let word = WORDS[dice.roll(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            6 => {
                let again: Vec<u8> = bytes[at.min(end)..end].to_vec();
                for _ in 0..dice.roll(200) {
                    bytes.splice(at..at, again.iter().copied());
                }
            }
            7 => {
                let other = pick(dice);
                let from = dice.roll(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let word = WORDS[dice.roll(WORDS.len())];
                let to = (at + word.len()).min(bytes.len());
                bytes.splice(at..to, word.iter().copied());
            }
        }
        bytes.truncate(MAX_INPUT);
    }
    bytes
}

/// Memory that this process has now, and has had at most.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Runs a target on its seeds and then on damaged ones until `enough` says so. Returns how many, and the slowest.
fn drive(target: &Target, seed: u64, enough: impl Fn(usize) -> bool) -> (usize, Duration) {
    let seeds = seeds(Path::new(env!("CARGO_MANIFEST_DIR")), target);
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice(seed);
    let (mut n, mut slowest) = (0, Duration::ZERO);
    while !enough(n) {
        let input = match seeds.get(n) {
            Some(seed) => seed.clone(),
            None => mutated(&seeds, &mut dice),
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
fn every_parser_survives_its_damaged_seeds() {
    llmtui::base::child::this_program_is(PathBuf::from(env!("CARGO_BIN_EXE_llmtui")));
    for target in TARGETS {
        // A tokenizer costs a process each.
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
    let number = |name: &str| std::env::var(name).ok().and_then(|said| said.parse().ok());
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
