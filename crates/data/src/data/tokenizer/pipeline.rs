//! The preprocessing of a tokenizer.json (normalizer, pre-tokenizer), as far as it matters for splitting texts into pieces
//! that can be encoded in parallel with the ids of the whole, and for the fast path.

use super::patterns::{LINES, Rule, rule_of_regex};
use serde::Deserialize;
use serde_json::Value;

/// Where a text may be cut so that the ids of the parts, put together, are those of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nowhere that is known.
    Nowhere,
    /// Before a newline that follows a letter or digit of ASCII: a word ends there whatever comes next.
    AfterWord,
    /// Before any newline that follows something else. All parts but the first are encoded without the space that is put in
    /// front of a text.
    BeforeLine,
}

/// The parts of a tokenizer.json in front of the model.
#[derive(Debug, Clone, Deserialize)]
pub struct Pipeline {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    model: Model,
}

/// The rest of the model is the library's matter.
#[derive(Debug, Clone, Default, Deserialize)]
struct Model {
    #[serde(default)]
    unk_id: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
struct Added {
    content: String,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

impl Pipeline {
    /// Of the text of a tokenizer.json.
    pub fn of(json: &str) -> Option<Pipeline> {
        serde_json::from_str(json).ok()
    }

    /// The unknown token of a Unigram model.
    pub fn unk_id(&self) -> Option<u32> {
        self.model.unk_id
    }

    /// The contents of added tokens.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        self.added_tokens.iter().map(|token| token.content.as_str())
    }

    /// Where texts may be cut. `lines_end_words`: no token of the vocabulary holds a newline after anything else, and a
    /// newline is never unknown.
    pub fn cut(&self, lines_end_words: bool) -> Cut {
        let across_lines = self.added_tokens.iter().any(|token| {
            let ends_in_word = token.content.ends_with(|c: char| c.is_ascii_alphanumeric());
            token.content.contains('\n') || (token.rstrip && ends_in_word)
        });
        if across_lines {
            return Cut::Nowhere;
        }
        if self.composes_only() && self.splits_after_words() {
            return Cut::AfterWord;
        }
        let strips = self.added_tokens.iter().any(|t| t.lstrip || t.rstrip);
        if lines_end_words && !strips && self.only_moves_spaces() {
            return Cut::BeforeLine;
        }
        Cut::Nowhere
    }

    /// No normalizer, or one that looks at no more than a letter and its marks.
    fn composes_only(&self) -> bool {
        steps(&self.normalizer, "normalizers").iter().all(|step| {
            matches!(
                step["type"].as_str(),
                Some(
                    "NFC"
                        | "NFD"
                        | "NFKC"
                        | "NFKD"
                        | "Lowercase"
                        | "BertNormalizer"
                        | "StripAccents"
                )
            )
        })
    }

    /// Some step cuts between a letter or digit and a newline, and none before it puts something in front of a text.
    fn splits_after_words(&self) -> bool {
        let steps = steps(&self.pre_tokenizer, "pretokenizers");
        let prefix = steps.iter().any(|step| {
            step["add_prefix_space"] == true
                || (step["type"] == "Metaspace" && step["prepend_scheme"] != "never")
        });
        !prefix
            && steps.iter().any(|step| match step["type"].as_str() {
                Some("ByteLevel") => step["use_regex"] != false,
                Some("Split") => {
                    step["behavior"] == "Isolated"
                        && step["invert"] == false
                        && step["pattern"]["Regex"].as_str().is_some_and(|regex| {
                            let rule = rule_of_regex(regex).filter(|rule| *rule != Rule::Digits);
                            regex == LINES || rule.is_some()
                        })
                }
                Some("BertPreTokenizer" | "Whitespace" | "WhitespaceSplit") => true,
                _ => false,
            })
    }

    /// As SentencePiece with all spaces kept: a space in front, spaces made visible; words cut at spaces or not at all.
    fn only_moves_spaces(&self) -> bool {
        let normal = steps(&self.normalizer, "normalizers").iter().all(|step| {
            step["type"] == "Prepend"
                || (step["type"] == "Replace"
                    && step["pattern"]["String"] == " "
                    && step["content"] == "▁")
        });
        let words = steps(&self.pre_tokenizer, "pretokenizers")
            .iter()
            .all(|step| step["type"] == "Metaspace" && step["prepend_scheme"] != "always");
        normal && words
    }

    /// The rule by which ASCII text is cut into words of byte-level BPE, where the fast path knows it.
    pub fn fast_rule(&self) -> Option<Rule> {
        if !self.composes_only() {
            return None;
        }
        let lowers = ["Lowercase", "BertNormalizer"];
        if steps(&self.normalizer, "normalizers")
            .iter()
            .any(|step| lowers.contains(&step["type"].as_str().unwrap_or_default()))
        {
            return None;
        }
        let steps = steps(&self.pre_tokenizer, "pretokenizers");
        let (last, splits) = steps.split_last()?;
        if last["type"] != "ByteLevel" || last["add_prefix_space"] == true {
            return None;
        }
        let own_rule = last["use_regex"] != false;
        match splits {
            [] if own_rule => Some(Rule::Gpt2),
            [one] if own_rule => is_digits(one).then_some(Rule::Digits),
            [one] if !own_rule && one["behavior"] == "Isolated" && one["invert"] == false => {
                rule_of_regex(one["pattern"]["Regex"].as_str()?)
                    .filter(|rule| matches!(rule, Rule::Llama3 | Rule::Qwen2))
            }
            _ => None,
        }
    }
}

/// A step that makes each digit a word.
fn is_digits(step: &Value) -> bool {
    let split = step["behavior"] == "Isolated"
        && step["invert"] == false
        && step["pattern"]["Regex"].as_str().and_then(rule_of_regex) == Some(Rule::Digits);
    split || (step["type"] == "Digits" && step["individual_digits"] == true)
}

/// The steps of a sequence, or the one step that stands alone.
fn steps<'a>(part: &'a Value, list: &str) -> Vec<&'a Value> {
    match part {
        Value::Null => Vec::new(),
        part if part["type"] == "Sequence" => match part[list].as_array() {
            Some(parts) => parts.iter().flat_map(|part| steps(part, list)).collect(),
            None => Vec::new(),
        },
        part => vec![part],
    }
}
