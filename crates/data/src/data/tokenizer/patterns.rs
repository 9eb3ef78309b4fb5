//! How text is split into words before byte-level BPE, by the names of the rules in GGUF files and tokenizer classes; and how
//! it is split before Unigram.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Rules of which the cuts of a regular expression are known: a word ends between a letter or digit and a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    Gpt2,
    /// Digits one by one, then GPT-2's rule for what is between them: SmolLM, StarCoder.
    Digits,
    Llama3,
    Qwen2,
    /// One of the others below.
    Other,
}

/// The rule that a regular expression of a tokenizer.json is.
pub fn rule_of_regex(regex: &str) -> Option<Rule> {
    Some(match regex {
        ONE_DIGIT => Rule::Digits,
        LLAMA3 => Rule::Llama3,
        QWEN2 => Rule::Qwen2,
        QWEN35 | TEKKEN | GPT4O => Rule::Other,
        _ => return None,
    })
}

/// A rule of cutting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Regular expressions applied one after the other to what the one before left; none: GPT-2's own rule.
    splits: &'static [&'static str],
    /// GPT-2's rule comes last.
    gpt2: bool,
    /// Text is normalized to NFC first.
    pub nfc: bool,
    /// A word that is in the vocabulary is one token, whatever the merges say.
    pub ignore_merges: bool,
}

/// OpenAI's cl100k with three digits at most: Llama 3.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with single digits: Qwen 2 and 3.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's Tekken.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// OpenAI's o200k: Llama 4, gpt-oss.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const ONE_DIGIT: &str = r"\p{N}";
/// Line ends stand by themselves: Unigram vocabularies made here.
pub const LINES: &str = r"\n+";

pub const GPT2_RULE: Pattern = Pattern {
    splits: &[],
    gpt2: true,
    nfc: false,
    ignore_merges: false,
};
pub const LLAMA3_RULE: Pattern = Pattern {
    splits: &[LLAMA3],
    gpt2: false,
    nfc: false,
    ignore_merges: true,
};
pub const QWEN2_RULE: Pattern = Pattern {
    splits: &[QWEN2],
    gpt2: false,
    nfc: true,
    ignore_merges: false,
};
/// Digits one by one, then GPT-2's rule: SmolLM, StarCoder, Command R.
const DIGITS_GPT2_RULE: Pattern = Pattern {
    splits: &[ONE_DIGIT],
    ..GPT2_RULE
};

const QWEN35_RULE: Pattern = Pattern {
    splits: &[QWEN35],
    ..QWEN2_RULE
};
const TEKKEN_RULE: Pattern = Pattern {
    splits: &[TEKKEN],
    ..LLAMA3_RULE
};
const GPT4O_RULE: Pattern = Pattern {
    splits: &[GPT4O],
    ignore_merges: false,
    ..LLAMA3_RULE
};

/// The rules by their names in `tokenizer.ggml.pre` (llama.cpp, src/llama-vocab.cpp), of which the first is written.
const BY_GGUF_NAME: [(&[&str], Pattern); 9] = [
    (
        &[
            "gpt-2",
            "phi-2",
            "olmo",
            "mpt",
            "jais",
            "exaone4",
            "modern-bert",
        ],
        GPT2_RULE,
    ),
    (
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
        ],
        DIGITS_GPT2_RULE,
    ),
    (
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "pixtral",
            "lfm2",
        ],
        LLAMA3_RULE,
    ),
    (
        &["dbrx", "smaug-bpe"],
        Pattern {
            ignore_merges: false,
            ..LLAMA3_RULE
        },
    ),
    // llama.cpp composes no characters: of rules that differ in that alone, the first one's name is written.
    (&["qwen2", "deepseek-r1-qwen", "megrez"], QWEN2_RULE),
    (&["qwen35"], QWEN35_RULE),
    (
        &["stablelm2", "hunyuan"],
        Pattern {
            nfc: false,
            ..QWEN2_RULE
        },
    ),
    (&["tekken"], TEKKEN_RULE),
    (&["gpt-4o", "llama4", "minimax-m2"], GPT4O_RULE),
];

/// llama.cpp's name of the rule that cuts by `splits` one after the other, and by GPT-2's own rule at last; none where it
/// has none.
pub fn gguf_name(splits: &[String], gpt2: bool, ignore_merges: bool) -> Option<&'static str> {
    let is_it = |rule: &Pattern| {
        rule.splits == splits && rule.gpt2 == gpt2 && rule.ignore_merges == ignore_merges
    };
    let (names, _) = BY_GGUF_NAME.iter().find(|(_, rule)| is_it(rule))?;
    names.first().copied()
}

/// Whether llama.cpp puts the begin mark in front of texts of byte-level BPE that are cut so, in files that do not say.
pub fn gguf_adds_bos(pre: &str) -> bool {
    matches!(
        pre,
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" | "lfm2" | "tekken"
    )
}

impl Pattern {
    /// The rule of `tokenizer.ggml.pre`; `None` for one that is not known here.
    pub fn of_gguf(pre: &str) -> Option<Pattern> {
        let mut rules = BY_GGUF_NAME.iter();
        rules
            .find(|(names, _)| names.contains(&pre))
            .map(|(_, rule)| *rule)
    }

    /// The rule of a `tokenizer_class` that brings vocab.json and merges.txt; `None` for one that is not known here.
    pub fn of_class(class: &str) -> Option<Pattern> {
        Some(match class.trim_end_matches("Fast") {
            "" | "GPT2Tokenizer" | "RobertaTokenizer" | "BartTokenizer" | "CodeGenTokenizer" => {
                GPT2_RULE
            }
            "Qwen2Tokenizer" => QWEN2_RULE,
            _ => return None,
        })
    }

    /// The part of a tokenizer.json.
    pub fn pre_tokenizer(&self) -> Value {
        let byte_level = json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": self.gpt2,
        });
        if self.splits.is_empty() {
            return byte_level;
        }
        let mut steps: Vec<Value> = self
            .splits
            .iter()
            .map(|split| {
                json!({"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": false})
            })
            .collect();
        steps.push(byte_level);
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

/// Whose rule of cutting text into words a new byte-level vocabulary follows.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Words with the space before them, runs of digits, runs of signs.
    #[default]
    Gpt2,
    /// Llama 3: digits in threes, a sign may open a word, line ends by themselves.
    Llama3,
    /// Qwen 2: as Llama 3 with single digits, and text in Unicode's composed form (NFC).
    Qwen2,
}

impl Split {
    pub fn pattern(self) -> Pattern {
        match self {
            Split::Gpt2 => GPT2_RULE,
            Split::Llama3 => LLAMA3_RULE,
            Split::Qwen2 => QWEN2_RULE,
        }
    }
}

/// Whether a tokenizer.json changes and cuts a text as transformers' Qwen2Tokenizer, which takes nothing but tokens, merges and
/// post-processor from it.
pub fn is_qwen2(json: &Value) -> bool {
    let is_nfc = json["normalizer"]["type"] == "NFC";
    let steps = json["pre_tokenizer"]["pretokenizers"].as_array();
    let cuts = steps.is_some_and(|steps| match &steps[..] {
        [split, bytes] => {
            split["type"] == "Split"
                && split["pattern"]["Regex"] == QWEN2
                && bytes["type"] == "ByteLevel"
                && bytes["use_regex"] == false
                && bytes["add_prefix_space"] != true
        }
        _ => false,
    });
    let model = &json["model"];
    is_nfc && cuts && model["type"] == "BPE" && model["ignore_merges"] != true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_a_gguf_file_is_written_under_a_name_of_it() {
        for (names, rule) in BY_GGUF_NAME {
            let splits: Vec<String> = rule.splits.iter().map(ToString::to_string).collect();
            let written = gguf_name(&splits, rule.gpt2, rule.ignore_merges).unwrap();
            let read = Pattern::of_gguf(written).unwrap();
            let composed = Pattern {
                nfc: rule.nfc,
                ..read
            };
            assert_eq!(composed, rule, "{names:?} as {written}");
            assert!(
                names
                    .iter()
                    .all(|name| Pattern::of_gguf(name) == Some(rule))
            );
        }
        let name = |rule: Pattern| {
            let splits: Vec<String> = rule.splits.iter().map(ToString::to_string).collect();
            gguf_name(&splits, rule.gpt2, rule.ignore_merges)
        };
        assert_eq!(name(TEKKEN_RULE), Some("tekken"));
        assert_eq!(name(GPT4O_RULE), Some("gpt-4o"));
        assert_eq!(gguf_name(&["x".into()], false, false), None);
    }

    #[test]
    fn qwen2s_own_rule_is_told_from_others() {
        let json = |rule: Pattern| {
            let normalizer = if rule.nfc {
                json!({"type": "NFC"})
            } else {
                Value::Null
            };
            json!({"normalizer": normalizer, "pre_tokenizer": rule.pre_tokenizer(),
                "model": {"type": "BPE", "ignore_merges": rule.ignore_merges}})
        };
        assert!(is_qwen2(&json(QWEN2_RULE)));
        for other in [GPT2_RULE, LLAMA3_RULE, DIGITS_GPT2_RULE, QWEN35_RULE] {
            assert!(!is_qwen2(&json(other)));
        }
    }
}
