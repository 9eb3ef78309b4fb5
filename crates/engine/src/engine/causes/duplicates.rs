//! Whether the training text repeats the same passages, for example a shard that was added twice.

use super::{Cause, Subject};
use crate::base::finding::Finding;
use crate::base::human::{grouped, percent};
use crate::base::text::one_line;
use crate::engine::EngineError;
use std::collections::HashMap;

pub const CAUSE: Cause = Cause {
    id: "duplicates",
    title: "duplicates",
    run,
};

/// Tokens that are read.
const SAMPLE: usize = 8 << 20;
/// Tokens of a passage, and one passage in so many is looked at: which one, its own content decides, so that copies are
/// recognized wherever they begin.
const PASSAGE: usize = 32;
const ONE_IN: u64 = 16;
/// Share of passages that occurred before. Natural text repeats itself a little.
const WARN: f64 = 0.05;
const FAIL: f64 = 0.2;
/// Characters that are shown of the most frequent one.
const SHOWN: usize = 60;

#[derive(Debug, Clone, Default, PartialEq)]
struct Repeats {
    passages: u64,
    /// Those that stood somewhere before.
    again: u64,
    /// Where the most frequent one begins, and how often it occurs.
    most: (usize, u64),
}

fn run(subject: &Subject<'_>) -> Result<Finding, EngineError> {
    let tokens = subject.data.train_sample(SAMPLE);
    let tokens = &tokens[..tokens.len().min(SAMPLE)];
    let found = repeats(tokens);
    let (at, times) = found.most;
    let passage = tokens.get(at..at + PASSAGE).unwrap_or_default();
    let text = subject.data.tokenizer.decode(passage);
    let shown: String = one_line(&text).chars().take(SHOWN).collect();
    Ok(judge(
        &found,
        tokens.len(),
        &format!("the most frequent occurs {times} times: {shown:?}"),
    ))
}

fn judge(found: &Repeats, tokens: usize, example: &str) -> Finding {
    if found.passages < 100 {
        let words = format!(
            "{} tokens are too few for a verdict",
            grouped(tokens as u64)
        );
        return Finding::unknown(words, "");
    }
    let share = found.again as f64 / found.passages as f64;
    let mut evidence = format!(
        "{} of {} passages of {PASSAGE} tokens occur more than once in the first {} tokens of training text",
        percent(share, 1),
        grouped(found.passages),
        grouped(tokens as u64)
    );
    if share >= WARN {
        evidence = format!("{evidence}; {example}");
    }
    let cause = "documents or shards are duplicated, or passages recur in different rows (templates, one answer to many questions): the model memorizes them";
    let fix = "llmtui data clean FILE --drop duplicates, if `llmtui data inspect FILE` finds any; a shard that is listed twice; more varied rows";
    match share {
        s if s >= FAIL => Finding::fail(evidence, cause, fix),
        s if s >= WARN => Finding::warn(evidence, cause, fix),
        _ => Finding::pass(evidence),
    }
}

/// Counts passages by a rolling hash (Rabin–Karp); those whose hash is a multiple of [`ONE_IN`] count.
fn repeats(tokens: &[u32]) -> Repeats {
    const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
    let leading = (0..PASSAGE).fold(1u64, |p, _| p.wrapping_mul(BASE));
    let mut seen: HashMap<u64, (usize, u64)> = HashMap::new();
    let mut found = Repeats::default();
    let mut hash = 0u64;
    for (end, token) in tokens.iter().enumerate() {
        hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(*token) + 1);
        if end >= PASSAGE {
            let gone = u64::from(tokens[end - PASSAGE]) + 1;
            hash = hash.wrapping_sub(gone.wrapping_mul(leading));
        }
        // The low bits of such a hash depend on few tokens; the high ones on all.
        let chosen = (hash ^ (hash >> 32)).wrapping_mul(BASE) >> 32;
        if end + 1 < PASSAGE || !chosen.is_multiple_of(ONE_IN) {
            continue;
        }
        let at = end + 1 - PASSAGE;
        let (first, times) = seen.entry(hash).or_insert((at, 0));
        *times += 1;
        found.passages += 1;
        found.again += u64::from(*times > 1);
        if *times > found.most.1 {
            found.most = (*first, *times);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;
    use crate::base::rng::{Rng, Stream};

    fn text(lane: u32, len: usize) -> Vec<u32> {
        let mut rng = Rng::new(1, Stream::Test, 0, lane);
        (0..len).map(|_| rng.below(500) as u32).collect()
    }

    fn status(tokens: &[u32]) -> Status {
        judge(&repeats(tokens), tokens.len(), "").status
    }

    #[test]
    fn a_shard_that_is_there_twice_is_found_wherever_it_begins() {
        let fresh = text(0, 40_000);
        let found = repeats(&fresh);
        assert_eq!((found.again, status(&fresh)), (0, Status::Pass));
        // One passage in sixteen, about.
        assert!(
            (1_500..3_500).contains(&found.passages),
            "{}",
            found.passages
        );
        let shard = text(1, 20_000);
        let twice = [&fresh[..], &shard, &[7, 7, 7], &shard].concat();
        assert_eq!(status(&twice), Status::Fail);
        let share = repeats(&twice).again as f64 / repeats(&twice).passages as f64;
        assert!((share - 0.25).abs() < 0.03, "{share}");
        assert_eq!(status(&fresh[..200]), Status::Unknown);
    }
}
