//! Tries out a foreign `tokenizer.json` in a limited child process before this process loads the same bytes: the library
//! panics on crafted files.

use super::library;
use crate::base::child::{Child, Limits, LineSink, Parser, Request};
use crate::data::DataError;
use serde::{Deserialize, Serialize};

/// Reads a tokenizer.json and uses it once in every way that this program does.
pub const PARSER: Parser = Parser {
    id: "tokenizer",
    parse: validate_in_child,
};

/// The largest known file of the kind has 33 MB (Gemma 3's 262,145 tokens); the library takes some thirty times as much
/// memory while it reads.
const LIMITS: Limits = Limits {
    memory: 4 << 30,
    cpu_seconds: 60,
    silence: std::time::Duration::from_secs(90),
    line_bytes: 1 << 16,
    total_bytes: 1 << 16,
};
const MAX_BYTES: u64 = 256 << 20;

/// Texts that reach every part of a pipeline: words, marks, spaces, line ends, unassigned and combining characters, and
/// a run that no vocabulary holds whole.
const TRIALS: [&str; 5] = [
    "",
    // What `Tokenizer::frame` asks.
    "a",
    "Hello world, it's 1234567 o'clock!  \n\n\tü ﬁ ½ 日本語 𝄞 e\u{301}\u{200d}\u{fffd}\0",
    "   \r\n ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// The child's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Findings {
    vocab_size: usize,
}

/// Refuses a tokenizer.json that the library does not read or crashes on. `place` is for the message.
///
/// # Errors
/// The fault, or what is needed to find it.
pub fn validate(json: &str, place: &str, child: &Child) -> Result<(), DataError> {
    let fault = |what: String| DataError::Tokenizer {
        place: place.to_string(),
        what,
    };
    if json.len() as u64 > MAX_BYTES {
        return Err(DataError::TooLarge {
            place: place.to_string(),
            bytes: json.len() as u64,
            limit: MAX_BYTES,
        });
    }
    let request = Request::bytes(json.as_bytes().to_vec());
    let lines = child
        .collect(&PARSER, request, &LIMITS)
        .map_err(|e| fault(e.to_string()))?;
    let found: Option<Findings> = lines.first().and_then(|l| serde_json::from_str(l).ok());
    match found {
        Some(_) => Ok(()),
        None => Err(fault("its reader found nothing".into())),
    }
}

fn validate_in_child(request: &Request, emit: &mut LineSink) -> Result<(), String> {
    let json = std::str::from_utf8(&request.bytes)
        .map_err(|e| format!("not UTF-8 at byte {}", e.valid_up_to()))?;
    let tokenizer = library::library(json)?;
    let vocab_size = library::vocab_size(&tokenizer)?;
    for text in TRIALS {
        for add_special in [false, true] {
            // A text with unknown tokens is not a fault of the file.
            let Ok(encoding) = tokenizer.encode(text, add_special) else {
                continue;
            };
            let ids = encoding.get_ids();
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocab_size) {
                return Err(format!(
                    "it gives the id {id}, but its vocabulary ends at {}",
                    vocab_size - 1
                ));
            }
            let _ = tokenizer.decode(ids, false);
        }
    }
    let findings = serde_json::to_string(&Findings { vocab_size }).map_err(|e| e.to_string())?;
    emit(&findings)
}

#[cfg(test)]
mod tests {
    use super::super::{TokenizerKind, bpe};
    use super::*;

    fn validated(json: &str) -> Result<(), String> {
        validate(json, "t.json", &Child::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_sound_file_passes() {
        let made = bpe::Config {
            vocab_size: 300,
            ..Default::default()
        }
        .build("ab ab ab", "")
        .unwrap();
        assert_eq!(validated(made.to_json()), Ok(()));
    }

    #[test]
    fn a_vocabulary_with_a_hole_of_billions_is_refused() {
        let json = r#"{"version":"1.0","added_tokens":[],"model":{"type":"WordLevel","vocab":{"a":0,"b":4294967295},"unk_token":"a"}}"#;
        let error = validated(json).unwrap_err();
        assert!(
            error.starts_with("t.json: ") && error.contains("4,294,967,295"),
            "{error}"
        );
    }

    #[test]
    fn ids_outside_the_vocabulary_are_refused() {
        let json = r#"{"version":"1.0","added_tokens":[],
            "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
              "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
              "special_tokens":{"x":{"id":"x","ids":[9],"tokens":["x"]}}},
            "model":{"type":"WordLevel","vocab":{"a":0,"b":1},"unk_token":"a"}}"#;
        let error = validated(json).unwrap_err();
        assert!(error.contains("id 9"), "{error}");
    }
}
