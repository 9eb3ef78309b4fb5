//! Tokens that a file adds to its model.

use super::*;

#[test]
fn tables_that_grow_go_over_and_tokens_to_be_added_are_named() {
    let lf = "model_name_or_path: m\ncutoff_len: 64\nresize_vocab: true\nadd_special_tokens: <|im_start|>,<|im_end|>\n";
    let lf = import("x", lf, None).unwrap();
    assert_eq!(lf.draft.value("train.resize_vocab"), true);
    assert_eq!(outcome(&lf, "resize_vocab").outcome, KeyOutcome::Mapped);
    let added = outcome(&lf, "add_special_tokens");
    assert_eq!(added.outcome, KeyOutcome::NoEqual);
    assert!(
        added.words.contains("train.resize_vocab"),
        "{}",
        added.words
    );
    let ax = "base_model: m\nsequence_len: 64\nresize_token_embeddings_to_32x: true\ntokens: [<|im_start|>]\n\
        mean_resizing_embeddings: true\nshrink_embeddings: true\n";
    let ax = import("x", ax, None).unwrap();
    assert_eq!(ax.draft.value("train.resize_vocab"), true);
    let sized = outcome(&ax, "resize_token_embeddings_to_32x");
    assert_eq!(sized.outcome, KeyOutcome::Differs);
    assert!(sized.words.contains("model.vocab_size"), "{}", sized.words);
    assert_eq!(outcome(&ax, "tokens").outcome, KeyOutcome::NoEqual);
    assert_eq!(
        outcome(&ax, "mean_resizing_embeddings").outcome,
        KeyOutcome::Needless
    );
    assert_eq!(
        outcome(&ax, "shrink_embeddings").outcome,
        KeyOutcome::NoEqual
    );
}
