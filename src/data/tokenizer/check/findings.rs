//! The single questions put to a tokenizer, each with its evidence.

use super::samples::{AWKWARD, SAMPLES, Sample};
use crate::base::human;
use crate::data::tokenizer::Tokenizer;
use serde::Serialize;

/// How an answer is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Good,
    /// Right for some uses.
    Doubtful,
    /// A model trained with it cannot learn something that it should.
    Bad,
}

/// One question with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub id: &'static str,
    pub title: &'static str,
    pub verdict: Verdict,
    pub evidence: String,
    /// What to do about it; empty where nothing is to be done.
    pub hint: &'static str,
}

/// All questions.
pub fn all(tokenizer: &Tokenizer) -> Vec<Finding> {
    vec![
        round_trip(tokenizer),
        newlines(tokenizer),
        unknown(tokenizer),
        specials_whole(tokenizer),
        begin(tokenizer),
        end(tokenizer),
        template_marks(tokenizer),
        vocabulary(tokenizer),
    ]
}

/// What a text is after encoding and decoding, where that is not the text.
fn changed(tokenizer: &Tokenizer, text: &str) -> Option<String> {
    let ids = tokenizer.encode(text).ok()?;
    let back = tokenizer.decode(&ids);
    (back != text).then_some(back)
}

/// A text and what became of it, from a little before the first difference on.
fn difference(text: &str, back: &str) -> String {
    let same = text
        .chars()
        .zip(back.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let part =
        |text: &str| -> String { text.chars().skip(same.saturating_sub(4)).take(12).collect() };
    format!("{:?} comes back as {:?}", part(text), part(back))
}

fn round_trip(tokenizer: &Tokenizer) -> Finding {
    let (mut lost, mut first, mut folded) = (Vec::new(), String::new(), true);
    for sample in SAMPLES.iter().chain(AWKWARD) {
        if let Some(back) = changed(tokenizer, sample.text) {
            // Unicode's composed form is another spelling of the same text.
            folded &= sample.name == "marks on letters";
            if first.is_empty() {
                first = difference(sample.text, &back);
            }
            lost.push(sample.name);
        }
    }
    let total = SAMPLES.len() + AWKWARD.len();
    Finding {
        id: "round_trip",
        title: "Text comes back as it was",
        verdict: match lost.is_empty() {
            true => Verdict::Good,
            false if folded => Verdict::Doubtful,
            false => Verdict::Bad,
        },
        evidence: match lost.is_empty() {
            true => format!("all {total} samples"),
            false => format!(
                "{} of {total} samples change ({}): {first}",
                lost.len(),
                lost.join(", ")
            ),
        },
        hint: match lost.is_empty() {
            true => "",
            false => "a byte-level vocabulary (bpe) loses nothing",
        },
    }
}

fn newlines(tokenizer: &Tokenizer) -> Finding {
    let texts = ["a\nb", "a\n\nb", "a\n\n\n\nb\n", "\na", "a\r\nb", "a\tb"];
    let count = |text: &str| {
        text.chars()
            .filter(|c| matches!(c, '\n' | '\r' | '\t'))
            .count()
    };
    let wrong = texts.iter().find_map(|text| {
        let back = changed(tokenizer, text)?;
        (count(&back) != count(text)).then(|| difference(text, &back))
    });
    Finding {
        id: "newlines",
        title: "Line ends and tabs are kept",
        verdict: match wrong {
            None => Verdict::Good,
            Some(_) => Verdict::Bad,
        },
        hint: match wrong {
            None => "",
            Some(_) => "a model cannot learn code, lists or chats with it: take another kind",
        },
        evidence: wrong.unwrap_or_else(|| "single, double, in front, CR LF, tabs".into()),
    }
}

fn unknown(tokenizer: &Tokenizer) -> Finding {
    let strangers = |sample: &&Sample| match (tokenizer.encode(sample.text), tokenizer.unk()) {
        (Ok(ids), Some(unk)) => ids.contains(&unk),
        (Ok(_), None) => false,
        (Err(_), _) => true,
    };
    let names: Vec<&str> = SAMPLES
        .iter()
        .chain(AWKWARD)
        .filter(strangers)
        .map(|sample| sample.name)
        .collect();
    Finding {
        id: "unknown",
        title: "Everything can be written",
        verdict: match names.is_empty() {
            true => Verdict::Good,
            false => Verdict::Bad,
        },
        evidence: match names.is_empty() {
            true => "no unknown token in any sample".into(),
            false => format!("unknown characters in: {}", names.join(", ")),
        },
        hint: match names.is_empty() {
            true => "",
            false => {
                "fine for text of the training's alphabet alone; bpe and unigram fall back to bytes"
            }
        },
    }
}

fn specials_whole(tokenizer: &Tokenizer) -> Finding {
    let added = tokenizer.added_tokens();
    let cut: Vec<&str> = added
        .iter()
        .filter(|token| {
            let alone = tokenizer.encode(&token.content).ok();
            let inside = tokenizer.encode(&format!("a{}b", token.content)).ok();
            alone.as_deref() != Some(&[token.id])
                || !inside.is_some_and(|ids| ids.contains(&token.id))
        })
        .map(|token| token.content.as_str())
        .collect();
    let special = added.iter().filter(|token| token.special).count();
    Finding {
        id: "specials_whole",
        title: "Special tokens stay whole",
        verdict: match cut.is_empty() {
            true => Verdict::Good,
            false => Verdict::Bad,
        },
        evidence: match cut.first() {
            None => format!(
                "{special} special and {} other added tokens",
                added.len() - special
            ),
            Some(first) => format!(
                "{} of {} are cut, such as {first:?}",
                cut.len(),
                added.len()
            ),
        },
        hint: match cut.is_empty() {
            true => "",
            false => "the file contradicts itself: get it again from its source",
        },
    }
}

fn named(tokenizer: &Tokenizer, id: u32) -> String {
    format!("{:?} ({id})", tokenizer.token(id).unwrap_or_default())
}

fn begin(tokenizer: &Tokenizer) -> Finding {
    let (front, _) = tokenizer.frame();
    let said = tokenizer.marks().add_bos;
    let adds = !front.is_empty() || said == Some(true);
    let (verdict, evidence) = match (tokenizer.bos(), adds) {
        (None, false) => (
            Verdict::Good,
            "no begin mark: texts begin as they are".to_string(),
        ),
        (Some(bos), true) => (
            Verdict::Good,
            format!("{} in front of each text", named(tokenizer, bos)),
        ),
        (Some(bos), false) => (
            Verdict::Good,
            format!(
                "{} exists; nothing puts it in front by itself",
                named(tokenizer, bos)
            ),
        ),
        (None, true) => {
            let names: Vec<String> = front.iter().map(|id| named(tokenizer, *id)).collect();
            (
                Verdict::Doubtful,
                format!(
                    "{} in front of each text, and no bos_token is named",
                    names.join(" ")
                ),
            )
        }
    };
    Finding {
        id: "begin",
        title: "Begin mark (BOS)",
        verdict,
        evidence,
        hint: match verdict {
            Verdict::Good => "",
            _ => "name it in tokenizer_config.json: \"bos_token\"",
        },
    }
}

fn end(tokenizer: &Tokenizer) -> Finding {
    let (_, behind) = tokenizer.frame();
    let behind = match behind.is_empty() && tokenizer.marks().add_eos != Some(true) {
        true => "the data's renderer puts it behind documents",
        false => "behind each text",
    };
    let evidence = tokenizer
        .eos()
        .map(|eos| format!("{}; {behind}", named(tokenizer, eos)));
    Finding {
        id: "end",
        title: "End mark (EOS)",
        verdict: match evidence {
            Some(_) => Verdict::Good,
            None => Verdict::Doubtful,
        },
        hint: match evidence {
            Some(_) => "",
            None => {
                "without one a model writes until it is cut off; train a vocabulary with <|endoftext|>"
            }
        },
        evidence: evidence.unwrap_or_else(|| "none: documents cannot be told apart".into()),
    }
}

/// Marks such as `<|im_start|>` that a chat template writes and that the vocabulary would cut.
fn template_marks(tokenizer: &Tokenizer) -> Finding {
    let template = tokenizer.marks().chat_template.as_deref();
    let marks = template.map(marks_in).unwrap_or_default();
    let cut: Vec<&String> = marks
        .iter()
        .filter(|mark| tokenizer.encode(mark).is_ok_and(|ids| ids.len() > 1))
        .collect();
    Finding {
        id: "template_marks",
        title: "The chat template's marks are tokens",
        verdict: match cut.is_empty() {
            true => Verdict::Good,
            false => Verdict::Bad,
        },
        evidence: match (template, cut.first()) {
            (None, _) => "no chat template beside it".into(),
            (_, None) => format!("{} marks", marks.len()),
            (_, Some(first)) => format!("{first:?} is cut into pieces"),
        },
        hint: match cut.is_empty() {
            true => "",
            false => "add them as special tokens (chat_markers, special_tokens) before training",
        },
    }
}

/// `<|…|>` in a text, each once.
fn marks_in(text: &str) -> Vec<String> {
    let mut marks: Vec<String> = Vec::new();
    for (at, _) in text.match_indices("<|") {
        let Some(end) = text[at..].find("|>") else {
            continue;
        };
        let mark = &text[at..at + end + 2];
        let plain = mark.len() <= 40 && !mark.contains([' ', '\'', '"', '{', '\n']);
        if plain && !marks.iter().any(|known| known == mark) {
            marks.push(mark.to_string());
        }
    }
    marks
}

fn vocabulary(tokenizer: &Tokenizer) -> Finding {
    let n = tokenizer.vocab_size();
    let holes = (0..n as u32)
        .filter(|id| tokenizer.token(*id).is_none())
        .count();
    Finding {
        id: "vocabulary",
        title: "Every id is a token",
        verdict: match holes {
            0 => Verdict::Good,
            _ => Verdict::Doubtful,
        },
        evidence: match holes {
            0 => format!("{} tokens", human::grouped(n as u64)),
            _ => format!(
                "{} of {} ids bear no token",
                human::grouped(holes as u64),
                human::grouped(n as u64)
            ),
        },
        hint: match holes {
            0 => "",
            _ => "harmless; the model has rows that nothing trains",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_template_are_found_once() {
        let template = "{% if x %}<|im_start|>{{ role }}<|im_end|><|im_start|>{% endif %} a <| b |> {{ '<|' + x + '|>' }}";
        assert_eq!(marks_in(template), ["<|im_start|>", "<|im_end|>"]);
    }

    #[test]
    fn a_difference_is_shown_from_its_place_on() {
        assert_eq!(
            difference("abcdefg\nxyz", "abcdefg xyz"),
            "\"defg\\nxyz\" comes back as \"defg xyz\""
        );
    }
}
