//! Which decoders are safe in this process: those whose output is bounded by the letters of the tokens. A decoder that
//! replaces a letter by a page could exhaust memory.

use serde_json::Value;

/// Longest token of a vocabulary that is used without a budget; known ones reach some hundred bytes.
const MAX_TOKEN: usize = 4096;
/// Longest string that a step puts in.
const MAX_PUT: usize = 16;
/// Most steps of a sequence.
const MAX_STEPS: usize = 8;

/// Whether every step keeps or shortens a text, and no token expands to more text.
pub fn are_plain(tokenizer: &tokenizers::Tokenizer) -> bool {
    let short = || {
        let vocab = tokenizer.get_vocab(true);
        vocab.keys().all(|token| token.len() <= MAX_TOKEN)
    };
    let decoder = serde_json::to_value(tokenizer.get_decoder());
    decoder.is_ok_and(|decoder| is_plain(&decoder)) && short()
}

fn is_plain(decoder: &Value) -> bool {
    let short = |value: &Value| value.as_str().is_none_or(|text| text.len() <= MAX_PUT);
    match decoder["type"].as_str() {
        None => decoder.is_null(),
        Some("Sequence") => decoder["decoders"].as_array().is_some_and(|steps| {
            let replacing = steps.iter().filter(|step| step["type"] == "Replace");
            steps.len() <= MAX_STEPS && replacing.count() <= 1 && steps.iter().all(is_plain)
        }),
        Some("Replace") => {
            let pattern = decoder["pattern"]["String"].as_str();
            pattern.is_some_and(|pattern| !pattern.is_empty()) && short(&decoder["content"])
        }
        Some(
            "ByteLevel" | "WordPiece" | "Metaspace" | "Fuse" | "Strip" | "ByteFallback"
            | "BPEDecoder",
        ) => decoder
            .as_object()
            .is_some_and(|fields| fields.values().all(short)),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn known_decoders_are_plain_and_those_that_multiply_are_not() {
        let replace = |content: &str| json!({"type": "Replace", "pattern": {"String": "▁"}, "content": content});
        let llama = json!({"type": "Sequence", "decoders": [
            replace(" "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        assert!(is_plain(&Value::Null) && is_plain(&llama));
        assert!(is_plain(
            &json!({"type": "ByteLevel", "add_prefix_space": true})
        ));
        let page = "x".repeat(1000);
        for hostile in [
            replace(&page),
            json!({"type": "Sequence", "decoders": [replace("▁▁"), replace("▁▁")]}),
            json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "x"}),
            json!({"type": "WordPiece", "prefix": page, "cleanup": true}),
            json!({"type": "New"}),
        ] {
            assert!(!is_plain(&hostile), "{hostile}");
        }
    }
}
