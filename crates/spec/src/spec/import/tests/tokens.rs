//! Tokens that a file adds to its model.

use super::*;

#[test]
fn tables_that_grow_go_over_and_tokens_to_be_added_are_named() {
    let lf = "model_name_or_path: m\ncutoff_len: 64\nresize_vocab: true\nadd_special_tokens: <|im_start|>,<|im_end|>\n";
    let lf = import("x", lf, None).unwrap();
    assert_eq!(lf.draft.value("train.resize_vocab"), true);
    assert_eq!(fate(&lf, "resize_vocab").fate, Fate::Mapped);
    let added = fate(&lf, "add_special_tokens");
    assert_eq!(added.fate, Fate::NoEqual);
    assert!(
        added.words.contains("train.resize_vocab"),
        "{}",
        added.words
    );
    let ax = "base_model: m\nsequence_len: 64\nresize_token_embeddings_to_32x: true\ntokens: [<|im_start|>]\n\
        mean_resizing_embeddings: true\nshrink_embeddings: true\n";
    let ax = import("x", ax, None).unwrap();
    assert_eq!(ax.draft.value("train.resize_vocab"), true);
    let sized = fate(&ax, "resize_token_embeddings_to_32x");
    assert_eq!(sized.fate, Fate::Differs);
    assert!(sized.words.contains("model.vocab_size"), "{}", sized.words);
    assert_eq!(fate(&ax, "tokens").fate, Fate::NoEqual);
    assert_eq!(fate(&ax, "mean_resizing_embeddings").fate, Fate::Needless);
    assert_eq!(fate(&ax, "shrink_embeddings").fate, Fate::NoEqual);
}
