//! A run's request beside its resolved spec: which values of the spec are the request's, and which values of the request the
//! start model replaced. A preset's sizes are those of a model from random weights.

use crate::spec::yaml::{key_lines, parse};
use serde_json::Value;
use std::collections::HashMap;

/// The spec, with a mark at each value that is the request's. Texts that cannot be read are left as they are.
pub fn marked(asked: &str, spec: &str) -> String {
    let (Ok(request), Ok(resolved)) = (parse(asked), parse(spec)) else {
        return spec.into();
    };
    let is_asked = |path: &str| {
        let said = at(&request, path);
        said.is_some_and(|said| at(&resolved, path).is_some_and(|taken| is_same(said, taken)))
    };
    annotated(spec, |path| is_asked(path).then(|| "asked for".to_string()))
}

/// The request, with a mark at each setting of model and tokenizer that the start model has otherwise.
pub fn read(asked: &str, spec: &str) -> String {
    let (Ok(request), Ok(resolved)) = (parse(asked), parse(spec)) else {
        return asked.into();
    };
    let starts = at(&resolved, "train.from").is_some_and(|from| !from.is_null());
    let is_the_models =
        |path: &str| path.starts_with("model.") || path.starts_with("data.tokenizer.");
    annotated(asked, |path| {
        let said = at(&request, path)?;
        let taken = at(&resolved, path);
        // `rope: {}` leaves its settings open, and null the value.
        let open = said.as_object().is_some_and(serde_json::Map::is_empty);
        let kept = taken.is_some_and(|taken| open || is_same(said, taken));
        let kept = kept || said.is_null();
        let replaced = starts && is_the_models(path) && !kept;
        replaced.then(|| match taken {
            Some(Value::Object(_) | Value::Array(_)) | None => {
                "not used: the start model has its own".to_string()
            }
            Some(value) => format!("not used: the start model has {value}"),
        })
    })
}

/// Whether two values mean the same: a request's `0` is `0.0` in a spec.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (a, b) => a == b,
    }
}

/// The value of a dotted path.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

/// A text of YAML with a comment at the lines of values for which there are words, by their paths.
fn annotated(text: &str, words: impl Fn(&str) -> Option<String>) -> String {
    let by_line: HashMap<usize, String> = key_lines(text)
        .into_iter()
        .map(|(path, line)| (line, path))
        .collect();
    let lines = text.lines().enumerate().map(|(at, line)| {
        let path = by_line.get(&(at + 1));
        let path = path.filter(|_| !line.trim_end().ends_with(':'));
        match path.and_then(|path| words(path)) {
            Some(words) => format!("{line}  # {words}\n"),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &str = "# Requested: sft-lora -s train.from=m.gguf\nmodel:\n  position:\n    rope: {}\n  n_layer: 4\n  seq_len: 64\n\
                         data:\n  tokenizer:\n    char: {}\noptimizer:\n  adamw:\n    lr: 0.0002\ntrain:\n  from: m.gguf\n";
    const SPEC: &str = "model:\n  n_layer: 30\n  seq_len: 64\n  position:\n    rope:\n      theta: 100000.0\n\
                        data:\n  tokenizer:\n    file:\n      path: m.gguf\noptimizer:\n  adamw:\n    lr: 0.0002\n    eps: 1e-8\n\
                        train:\n  from: m.gguf\n";

    /// The sizes of the model's file were marked as asked for, and those of the preset listed as if they were the run's.
    #[test]
    fn values_are_marked_by_what_they_are_and_not_by_their_names() {
        let spec = marked(ASKED, SPEC);
        let asked: Vec<&str> = spec.lines().filter(|l| l.contains("# asked for")).collect();
        assert_eq!(
            asked,
            [
                "  seq_len: 64  # asked for",
                "    lr: 0.0002  # asked for",
                "  from: m.gguf  # asked for"
            ]
        );
        let request = read(ASKED, SPEC);
        let replaced: Vec<&str> = request.lines().filter(|l| l.contains("not used")).collect();
        assert_eq!(
            replaced,
            [
                "  n_layer: 4  # not used: the start model has 30",
                "    char: {}  # not used: the start model has its own"
            ]
        );
        // Whole numbers of a request are fractions in a spec, and null says nothing.
        let asked =
            "model:\n  dropout: 0\n  vocab_size: null\ntrain:\n  from: m.gguf\n  clip_norm: 1\n";
        let spec =
            "model:\n  dropout: 0.0\n  vocab_size: 512\ntrain:\n  from: m.gguf\n  clip_norm: 1.0\n";
        assert!(!read(asked, spec).contains("not used"));
        let text = marked(asked, spec);
        for words in ["dropout: 0.0  # asked for", "clip_norm: 1.0  # asked for"] {
            assert!(text.contains(words), "{text}");
        }
        assert!(!text.contains("512  #"), "{text}");
        // From random weights the request is the run's.
        let scratch = SPEC.replace("from: m.gguf", "from: null");
        assert!(!read(ASKED, &scratch).contains("not used"));
        assert_eq!(marked("", SPEC), SPEC);
        assert_eq!(read(ASKED, "{"), ASKED);
    }
}
