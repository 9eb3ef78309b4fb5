//! Whether one tokenizer extends another, with tokens appended to its own: then ids of the first mean the same in both.

use super::Tokenizer;
use super::library::library;
use serde_json::Value;

impl Tokenizer {
    /// Whether this is `base` with more tokens: every token of `base` has its id here, and text is cut by the same rules.
    pub fn extends(&self, base: &Tokenizer) -> bool {
        self.vocab_size() > base.vocab_size() && self.covers(base)
    }

    /// The same with as many tokens or more: a model with the tokens of `base` reads what this one writes of them.
    pub fn covers(&self, base: &Tokenizer) -> bool {
        if self.to_json() == base.to_json() {
            return true;
        }
        let same_rules = match (rules(self.to_json()), rules(base.to_json())) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => false,
        };
        let mut ids = 0..u32::try_from(base.vocab_size()).unwrap_or(0);
        let same_token = |id: u32| {
            let theirs = base.token(id);
            theirs.is_none() || theirs == self.token(id)
        };
        let own = self.added_tokens();
        let added = |id: u32| own.iter().any(|token| token.id == id);
        self.vocab_size() >= base.vocab_size()
            && same_rules
            && ids.all(same_token)
            && base.added_tokens().iter().all(|token| added(token.id))
    }
}

/// How a `tokenizer.json` cuts text, without the list of its tokens: as the library writes it today, for older files spell
/// merges otherwise and leave settings out.
fn rules(json: &str) -> Option<[Value; 3]> {
    let written = library(json).ok()?.to_string(false).ok()?;
    let mut json: Value = serde_json::from_str(&written).ok()?;
    let mut model = json["model"].take();
    if let Some(map) = model.as_object_mut() {
        // The scores of a unigram vocabulary are rules, too; ids of the other kinds are compared one by one.
        map.retain(|key, value| key != "vocab" || !value.is_object());
    }
    Some([
        json["normalizer"].take(),
        json["pre_tokenizer"].take(),
        model,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(vocab: &[&str], added: &[&str]) -> Value {
        let ids = vocab.iter().enumerate();
        let vocab: serde_json::Map<String, Value> =
            ids.map(|(id, word)| ((*word).into(), id.into())).collect();
        let added: Vec<Value> = added
            .iter()
            .enumerate()
            .map(|(n, word)| {
                json!({"id": vocab.len() + n, "content": word, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true})
            })
            .collect();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "a"},
        })
    }

    fn tokenizer(json: &Value) -> Tokenizer {
        Tokenizer::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn tokens_behind_the_others_extend_and_anything_else_does_not() {
        let base = tokenizer(&words(&["a", "b", "c"], &["<s>"]));
        let more = tokenizer(&words(&["a", "b", "c"], &["<s>", "<|im_start|>"]));
        assert!(more.extends(&base));
        // As many tokens are no more, and fewer are less.
        assert!(!base.extends(&base) && !base.extends(&more));
        assert!(base.covers(&base) && more.covers(&base) && !base.covers(&more));
        // Of as many, a word more may be looked for as a whole.
        let mut whole = words(&["a", "b", "c"], &["<s>"]);
        let word = json!({"id": 2, "content": "c", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true});
        whole["added_tokens"].as_array_mut().unwrap().push(word);
        let whole = tokenizer(&whole);
        assert!(whole.covers(&base) && !base.covers(&whole));
        // Another order, another word at an id, another rule, an added token that is one no longer.
        let other = |vocab: &[&str], added: &[&str]| tokenizer(&words(vocab, added));
        assert!(!other(&["b", "a", "c"], &["<s>", "x"]).extends(&base));
        assert!(!other(&["a", "b", "c"], &["x", "<s>"]).extends(&base));
        assert!(!other(&["a", "b", "c", "<s>"], &["x"]).extends(&base));
        let mut ruled = words(&["a", "b", "c"], &["<s>", "x"]);
        ruled["normalizer"] = json!({"type": "Lowercase"});
        assert!(!tokenizer(&ruled).extends(&base));
    }

    #[test]
    fn merges_are_the_same_however_they_are_written() {
        let bpe = |merges: Value, added: &[&str]| {
            let mut json = words(&["a", "b", "ab"], added);
            json["model"] =
                json!({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": merges});
            tokenizer(&json)
        };
        let base = bpe(json!(["a b"]), &[]);
        assert!(bpe(json!([["a", "b"]]), &["<x>"]).extends(&base));
        assert!(!bpe(json!([]), &["<x>"]).extends(&base));
    }
}
