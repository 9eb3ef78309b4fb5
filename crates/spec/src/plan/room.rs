//! The memory check before a start: does this machine have the minimum that a spec needs? Computed from the spec alone, so
//! that it works for any model size; the memory of data is not included.

use super::changes::{Change, ladder};
use super::solve::{Sized, what_fits};
use super::target::{DataSize, of_spec};
use super::{Request, plan};
use crate::base::human::{self, short};
use crate::hardware::Memory;
use crate::spec::RunSpec;
use std::fmt;

/// A vocabulary that the data decide has at least this many tokens.
const LEAST_VOCABULARY: usize = 64;

/// Why a run would run out of memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortage {
    pub name: String,
    pub n_params: u64,
    pub needs: u64,
    pub there: u64,
    /// What bounds it: `available on this machine`.
    pub bound: &'static str,
    /// Whether training fits, and what preflight trains beside it does not.
    pub is_preflight: bool,
    /// The cheapest changes, in order.
    pub changes: Vec<Change>,
    /// Whether the changes suffice.
    pub suffice: bool,
    /// The largest model of these proportions that fits.
    pub model: Option<Sized>,
}

/// The tokens of a spec's vocabulary, or the fewest that one of its data can have.
pub fn least_vocabulary(spec: &RunSpec) -> usize {
    let said = spec.model.vocab_size.or(spec.data.tokenizer.vocab_size());
    said.unwrap_or(LEAST_VOCABULARY)
}

/// Address space of a thread beside the heap that all share: its stack and what is mapped around it, rounded up from 4.7 MiB
/// measured with 1 and 8 threads.
const STACK: u64 = 8 << 20;
/// Threads beside those that compute: the engine's own, the log's, those that watch.
const OTHER_THREADS: u64 = 4;

/// Bytes that a run on so many threads can get, and what bounds them. Of a limited address space their stacks take a part, though
/// hardly any memory. `None`: a thread for each core.
pub fn there(memory: &Memory, threads: Option<usize>) -> (u64, &'static str) {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or_else(cores) as u64 + OTHER_THREADS;
    let address_left = memory.address_left;
    Memory {
        address_left: address_left.map(|left| left.saturating_sub(threads * STACK)),
        ..memory.clone()
    }
    .left()
}

/// Holds what a spec needs at least against the memory there is.
///
/// # Errors
/// It is too little.
pub fn check(spec: &RunSpec, memory: &Memory) -> Result<(), Box<Shortage>> {
    let (there, bound) = there(memory, spec.train.threads);
    let data = DataSize {
        vocab_size: least_vocabulary(spec),
        ..DataSize::default()
    };
    let mut request = of_spec(spec, data);
    request.device.memory = Some(there);
    let planned = plan(&request);
    let needs = planned.p50_bytes();
    if needs <= there {
        return Ok(());
    }
    let ladder = ladder(&request);
    let largest = |request: &Request| what_fits(request)?.model;
    Err(Box::new(Shortage {
        name: spec.name.clone(),
        n_params: planned.params.total(),
        needs,
        there,
        bound,
        is_preflight: planned.memory.steady() <= there,
        model: (!ladder.fits).then(|| largest(&ladder.request)).flatten(),
        changes: ladder.changes,
        suffice: ladder.fits,
    }))
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} parameters) needs at least {} of memory, and {} are {}",
            self.name,
            short(self.n_params as f64),
            human::bytes(self.needs),
            human::bytes(self.there),
            self.bound
        )?;
        if self.is_preflight {
            write!(
                f,
                "; training fits, the copy that preflight trains does not"
            )?;
        }
        for change in &self.changes {
            let (saves, needs) = (
                human::bytes(change.saves_bytes),
                human::bytes(change.needs_bytes),
            );
            write!(
                f,
                "\n  {}: saves {saves}, then {needs}; {}",
                change.what, change.cost
            )?;
            if !change.flag.is_empty() {
                write!(f, "\n      {}", change.flag)?;
            }
        }
        match (&self.model, self.suffice) {
            (_, true) => Ok(()),
            (Some(model), false) => write!(
                f,
                "\n  no change is enough; a model of these proportions with {} parameters fits ({})",
                short(model.params as f64),
                model.name
            ),
            (None, false) => write!(
                f,
                "\n  no change is enough, and no smaller model of these proportions fits"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    fn memory(available: u64) -> Memory {
        Memory {
            total: available,
            available,
            ..Memory::default()
        }
    }

    fn spec(name: &str, words: &[&str]) -> RunSpec {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        load(name, &words, &SpecSources::default()).unwrap().spec
    }

    #[test]
    fn what_fits_passes_and_what_does_not_is_told_with_numbers() {
        let small = spec("quickstart", &[]);
        assert_eq!(check(&small, &memory(8_000_000_000)), Ok(()));
        let huge = spec("quickstart", &["d_model=8192", "n_layer=40", "n_head=64"]);
        let shortage = check(&huge, &memory(24_000_000_000)).unwrap_err();
        assert!(!shortage.suffice && shortage.needs > 400_000_000_000);
        let text = shortage.to_string();
        assert!(
            text.contains("22.4 GiB are available on this machine"),
            "{text}"
        );
        assert!(
            text.contains("no change is enough; a model of these proportions"),
            "{text}"
        );
    }

    /// 151M parameters: 2.4 GB of states, which preflight has twice.
    #[test]
    fn where_only_preflight_does_not_fit_it_is_said() {
        let words = [
            "d_model=1024",
            "n_head=16",
            "n_layer=12",
            "micro_batch_size=1",
        ];
        let memory = memory(3_200_000_000);
        let shortage = check(&spec("quickstart", &words), &memory).unwrap_err();
        assert!(shortage.is_preflight && shortage.suffice, "{shortage}");
        let text = shortage.to_string();
        assert!(
            text.contains("training fits") && !text.contains("no change"),
            "{text}"
        );
        let off = "-s preflight.enabled=false";
        assert!(text.contains(off), "{text}");
        let without = [&words[..], &["preflight.enabled=false"]].concat();
        assert_eq!(check(&spec("quickstart", &without), &memory), Ok(()));
    }

    /// Stacks take address space and no memory: both are not one number.
    #[test]
    fn stacks_of_threads_count_where_the_address_space_is_limited() {
        let limited = Memory {
            address_left: Some(1 << 30),
            ..memory(8 << 30)
        };
        let (left, bound) = there(&limited, Some(4));
        assert_eq!(left, (1 << 30) - 8 * STACK);
        assert!(bound.contains("ulimit -v"), "{bound}");
        assert_eq!(there(&memory(8 << 30), Some(4)).0, 8 << 30);
    }

    #[test]
    fn the_changes_named_are_enough_when_they_are_made() {
        let words = ["seq_len=512", "micro_batch_size=64", "precision=f32"];
        let shortage = check(&spec("quickstart", &words), &memory(1_000_000_000)).unwrap_err();
        assert!(shortage.suffice, "{shortage}");
        let flags = shortage
            .changes
            .iter()
            .flat_map(|change| change.flag.split("-s "));
        let made: Vec<&str> = flags
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        assert!(!made.is_empty());
        let all: Vec<&str> = words.iter().copied().chain(made).collect();
        assert_eq!(
            check(&spec("quickstart", &all), &memory(1_000_000_000)),
            Ok(())
        );
    }
}
