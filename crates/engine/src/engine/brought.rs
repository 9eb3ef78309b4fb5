//! What the folder of an adapter brings besides its factors: the tokenizer that it was trained with, whose files name its chat
//! template and the tokens that end a turn.

use crate::base::child::Child;
use crate::base::files::read_small_text;
use crate::data::tokenizer::{self, Marks, Tokenizer};
use crate::hf;
use std::path::Path;

/// The tokenizer beside an adapter whose model has the tokenizer `base`, where it is of the same kind: one with the same tokens,
/// with more of them or with fewer, and none beyond `vocab_size`.
pub(super) fn tokenizer_of(
    adapter: &Path,
    base: &Tokenizer,
    vocab_size: usize,
    child: &Child,
) -> Option<Tokenizer> {
    if !tokenizer::has_tokenizer(adapter) {
        return None;
    }
    if is_the_same(adapter, base) {
        let marks = Marks::of_folder(adapter).ok()?;
        return base.clone().with_marks(marks).ok();
    }
    let theirs = tokenizer::load(adapter, child).ok()?;
    let is_related = theirs.covers(base) || base.covers(&theirs);
    (is_related && theirs.vocab_size() <= vocab_size).then_some(theirs)
}

/// Whether the tokenizer.json is that of the base, as in checkpoints: then it is not built a second time.
fn is_the_same(adapter: &Path, base: &Tokenizer) -> bool {
    let ours = base.to_json().trim();
    // One line end more at most.
    let limit = base.to_json().len() as u64 + 2;
    read_small_text(&adapter.join(hf::TOKENIZER), limit).is_ok_and(|text| text.trim() == ours)
}
