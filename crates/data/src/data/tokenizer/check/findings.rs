//! The checks of a tokenizer, each with its evidence.

use super::samples::{AWKWARD, SAMPLES, Sample};
use crate::base::finding::{Finding, Status};
use crate::base::human;
use crate::data::chat::marks_in;
use crate::data::tokenizer::Tokenizer;

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

/// A text after a round trip, if it differs from the original.
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
    format!("{:?} decodes to {:?}", part(text), part(back))
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
        id: "round_trip".into(),
        title: "Text round-trips unchanged".into(),
        status: match lost.is_empty() {
            true => Status::Pass,
            false if folded => Status::Warn,
            false => Status::Fail,
        },
        evidence: match lost.is_empty() {
            true => format!("all {total} samples"),
            false => format!(
                "{} of {total} samples change ({}): {first}",
                lost.len(),
                lost.join(", ")
            ),
        }
        .into(),
        fix: match lost.is_empty() {
            true => "",
            false => "a byte-level vocabulary (bpe) is lossless",
        }
        .into(),
        ..Finding::default()
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
        id: "newlines".into(),
        title: "Line ends and tabs are kept".into(),
        status: match wrong {
            None => Status::Pass,
            Some(_) => Status::Fail,
        },
        fix: match wrong {
            None => "",
            Some(_) => "a model cannot learn code, lists or chats with it: use another kind",
        }
        .into(),
        evidence: wrong
            .unwrap_or_else(|| "single, double, in front, CR LF, tabs".to_string())
            .into(),
        ..Finding::default()
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
        id: "unknown".into(),
        title: "Everything can be encoded".into(),
        status: match names.is_empty() {
            true => Status::Pass,
            false => Status::Fail,
        },
        evidence: match names.is_empty() {
            true => "no unknown token in any sample".to_string(),
            false => format!("unknown characters in: {}", names.join(", ")),
        }
        .into(),
        fix: match names.is_empty() {
            true => "",
            false => {
                "fine for text in the training alphabet only; bpe and unigram fall back to bytes"
            }
        }
        .into(),
        ..Finding::default()
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
        id: "specials_whole".into(),
        title: "Special tokens stay whole".into(),
        status: match cut.is_empty() {
            true => Status::Pass,
            false => Status::Fail,
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
        }
        .into(),
        fix: match cut.is_empty() {
            true => "",
            false => "the file is inconsistent: download it again from its source",
        }
        .into(),
        ..Finding::default()
    }
}

fn named(tokenizer: &Tokenizer, id: u32) -> String {
    format!("{:?} ({id})", tokenizer.token(id).unwrap_or_default())
}

fn begin(tokenizer: &Tokenizer) -> Finding {
    let (front, _) = tokenizer.frame();
    let adds = !front.is_empty();
    let (status, evidence) = match (tokenizer.bos(), adds) {
        (None, false) => (
            Status::Pass,
            "no BOS token: texts start as they are".to_string(),
        ),
        (Some(bos), true) => (
            Status::Pass,
            format!("{} before each text", named(tokenizer, bos)),
        ),
        (Some(bos), false) => (
            Status::Pass,
            format!(
                "{} exists but is not added automatically",
                named(tokenizer, bos)
            ),
        ),
        (None, true) => {
            let names: Vec<String> = front.iter().map(|id| named(tokenizer, *id)).collect();
            (
                Status::Warn,
                format!(
                    "{} before each text, but no bos_token is set",
                    names.join(" ")
                ),
            )
        }
    };
    Finding {
        id: "begin".into(),
        title: "BOS token".into(),
        status,
        evidence: evidence.into(),
        fix: match status {
            Status::Pass => "",
            _ => "name it in tokenizer_config.json: \"bos_token\"",
        }
        .into(),
        ..Finding::default()
    }
}

fn end(tokenizer: &Tokenizer) -> Finding {
    let (_, behind) = tokenizer.frame();
    let behind = match behind.is_empty() {
        true => "the data's renderer puts it behind documents",
        false => "behind each text",
    };
    let evidence = tokenizer
        .eos()
        .map(|eos| format!("{}; {behind}", named(tokenizer, eos)));
    Finding {
        id: "end".into(),
        title: "EOS token".into(),
        status: match evidence {
            Some(_) => Status::Pass,
            None => Status::Warn,
        },
        fix: match evidence {
            Some(_) => "",
            None => "without one a model never stops; train a vocabulary with <|endoftext|>",
        }
        .into(),
        evidence: evidence
            .unwrap_or_else(|| "none: documents have no boundary".to_string())
            .into(),
        ..Finding::default()
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
        id: "template_marks".into(),
        title: "Chat template markers are single tokens".into(),
        status: match cut.is_empty() {
            true => Status::Pass,
            false => Status::Fail,
        },
        evidence: match (template, cut.first()) {
            (None, _) => "no chat template next to it".to_string(),
            (_, None) => format!("{} marks", marks.len()),
            (_, Some(first)) => format!("{first:?} is split into pieces"),
        }
        .into(),
        fix: match cut.is_empty() {
            true => "",
            false => "add them as special tokens (chat_markers, special_tokens) before training",
        }
        .into(),
        ..Finding::default()
    }
}

fn vocabulary(tokenizer: &Tokenizer) -> Finding {
    let n = tokenizer.vocab_size();
    let holes = (0..n as u32)
        .filter(|id| tokenizer.token(*id).is_none())
        .count();
    Finding {
        id: "vocabulary".into(),
        title: "Every id is a token".into(),
        status: match holes {
            0 => Status::Pass,
            _ => Status::Warn,
        },
        evidence: match holes {
            0 => format!("{} tokens", human::grouped(n as u64)),
            _ => format!(
                "{} of {} ids have no token",
                human::grouped(holes as u64),
                human::grouped(n as u64)
            ),
        }
        .into(),
        fix: match holes {
            0 => "",
            _ => "harmless; the model has some untrained rows",
        }
        .into(),
        ..Finding::default()
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
            "\"defg\\nxyz\" decodes to \"defg xyz\""
        );
    }
}
