//! Memory that the data of a run take.

use crate::spec::RunSpec;
use std::path::Path;

/// Bytes per token of a text that is encoded whole: its id and its characters; for a subword tokenizer also its piece, offsets and
/// masks, whose memory the allocator keeps.
const CHARACTER: f64 = 5.0;
const SUBWORD: f64 = 75.0;
/// Rows are encoded in portions of so much text, about four characters a token, and gathered in shards of so many tokens
/// (`data/store/build.rs`).
const PORTION: f64 = (4 << 20) as f64 / 4.0;
const SHARD: f64 = (4 << 20) as f64;
/// The largest vocabulary whose ids have two bytes.
const SHORT_IDS: usize = 1 << 16;

/// For so many tokens of both splits.
pub fn data_bytes(spec: &RunSpec, tokens: f64, vocab_size: usize) -> u64 {
    let each = match spec.data.tokenizer.entry().id {
        "char" => CHARACTER,
        _ => SUBWORD,
    };
    // The paths of a spec are absolute.
    if spec.data.is_corpus(Path::new("")) {
        return (each * tokens) as u64;
    }
    let id = if vocab_size > SHORT_IDS { 4.0 } else { 2.0 };
    // Shards have a bit for each token that says whether it counts.
    let mapped = (id + 0.125) * tokens;
    let built = each * tokens.min(PORTION) + (4.0 + id) * tokens.min(SHARD);
    (mapped + built) as u64
}

/// The same, where the tokens of the training split were counted.
pub fn both_splits(spec: &RunSpec, epoch_tokens: u64, vocab_size: usize) -> u64 {
    // Of rows that are counted the share is unknown, and small.
    let share = spec.data.val_share().unwrap_or(0.0);
    let all = epoch_tokens as f64 / (1.0 - share.clamp(0.0, 0.9));
    data_bytes(spec, all, vocab_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    fn bytes(preset: &str, set: &[&str], tokens: f64) -> u64 {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let spec = load(preset, &set, &SpecSources::default()).unwrap().spec;
        data_bytes(&spec, tokens, 49_152)
    }

    /// 75 B a token are those of a text that is encoded at once: 100M tokens of rows were 7.5 GB, and lie in mapped files of 2 B each.
    #[test]
    fn rows_lie_in_shards_and_a_text_in_memory() {
        let bpe = "data.tokenizer=bpe";
        let text = bytes("quickstart", &[bpe], 1e8);
        assert_eq!(text, 7_500_000_000);
        let rows = bytes("sft-demo", &[bpe], 1e8);
        assert!((212_000_000..400_000_000).contains(&rows), "{rows}");
        // A handful of rows is one portion.
        assert!(bytes("sft-demo", &[bpe], 1e4) < 900_000);
        assert_eq!(bytes("quickstart", &[], 1e6), 5_000_000);
    }
}
