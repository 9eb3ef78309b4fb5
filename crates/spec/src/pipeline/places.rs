//! Where the stages of a pipeline and their keys are written, for its faults: a file and a line, or a word of `-s`.

use crate::spec::yaml;
use std::collections::HashMap;

/// The text of a pipeline by stage and key.
#[derive(Debug, Clone, Default)]
pub struct Places {
    label: String,
    /// Lines of the keys outside of stages.
    top: HashMap<String, usize>,
    stages: Vec<Lines>,
    /// `-s` as typed.
    words: Vec<String>,
}

/// Lines of a stage, from 1.
#[derive(Debug, Clone)]
struct Lines {
    first: usize,
    keys: HashMap<String, usize>,
}

impl Places {
    /// `label` names the text in errors.
    pub fn of(label: &str, text: &str) -> Places {
        let lines: Vec<&str> = text.lines().collect();
        let top = yaml::key_lines(text);
        let found = top.get("stages").map(|begin| items(&lines, *begin));
        let (firsts, end) = found.unwrap_or_default();
        let ends = firsts.iter().skip(1).copied().chain([end]);
        let stages = firsts.iter().zip(ends).map(|(first, end)| {
            let body = lines[*first..end].join("\n").replacen('-', " ", 1);
            let keys = yaml::key_lines(&body).into_iter();
            Lines {
                first: first + 1,
                keys: keys.map(|(key, line)| (key, first + line)).collect(),
            }
        });
        Places {
            label: label.into(),
            stages: stages.collect(),
            top,
            words: Vec::new(),
        }
    }

    /// With the values that `-s` changed.
    #[must_use]
    pub fn with_words(self, words: &[String]) -> Places {
        Places {
            words: words.to_vec(),
            ..self
        }
    }

    /// A key outside of stages: `mine.yaml:3`.
    pub fn top(&self, key: &str) -> String {
        self.at_line(self.top.get(key).copied())
    }

    /// A key of stage `at` (from 0), such as `set.lr`, or the nearest one around it; `-s` where it says that value.
    pub fn of_stage(&self, at: usize, name: &str, key: &str) -> String {
        match self.word(name, key) {
            Some(word) => format!("-s {word}"),
            None => self.at_line(self.line(at, key)),
        }
    }

    /// The file of the pipeline, as errors name it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The word of `-s` that says a key of a stage.
    pub fn word(&self, name: &str, key: &str) -> Option<&str> {
        let (_, own) = key.split_once('.')?;
        let says = |word: &&String| {
            let path = word.split_once('=').map_or("", |(path, _)| path);
            let path = path
                .split_once('.')
                .filter(|(stage, _)| stage.trim() == name);
            path.is_some_and(|(_, path)| path.trim() == own)
        };
        self.words.iter().rfind(says).map(String::as_str)
    }

    /// The line of a key of stage `at`, or of the nearest key around it.
    pub fn line(&self, at: usize, key: &str) -> Option<usize> {
        let Some(stage) = self.stages.get(at) else {
            return self.top.get("stages").copied();
        };
        let mut key = key;
        loop {
            match (stage.keys.get(key), key.rfind(['.', '['])) {
                (Some(line), _) => return Some(*line),
                (None, Some(end)) => key = &key[..end],
                (None, None) => return Some(stage.first),
            }
        }
    }

    fn at_line(&self, line: Option<usize>) -> String {
        match line {
            Some(line) => format!("{}:{line}", self.label),
            None => self.label.clone(),
        }
    }
}

/// The lines, from 0, at which the items of a list in block style begin, which begins behind `begin` lines, and the line after it.
fn items(lines: &[&str], begin: usize) -> (Vec<usize>, usize) {
    let (mut found, mut indent) = (Vec::new(), None);
    for (at, line) in lines.iter().enumerate().skip(begin) {
        let body = line.trim_start_matches(' ');
        if body.is_empty() || body.starts_with('#') {
            continue;
        }
        let depth = line.len() - body.len();
        let is_item = body == "-" || body.starts_with("- ");
        match (is_item, *indent.get_or_insert(depth)) {
            (true, of_list) if depth == of_list => found.push(at),
            (_, of_list) if depth <= of_list => return (found, at),
            _ => {}
        }
    }
    (found, lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_their_keys_are_found_in_every_layout() {
        let text = "name: mine\nstages:\n  # First.\n  - {name: base, train: smoke}\n  - name: more\n    \
                    train:\n      extends: sft\n      model:\n        d_model: 130\n    set: {lr: 1}\nabout: x\n";
        let places = Places::of("mine.yaml", text).with_words(&["base.lr=3".into()]);
        for (at, name, key, place) in [
            (0, "base", "train.model", "mine.yaml:4"),
            (0, "base", "set.lr", "-s base.lr=3"),
            (1, "more", "name", "mine.yaml:5"),
            (1, "more", "train.model.d_model", "mine.yaml:9"),
            (1, "more", "train.model.n_head", "mine.yaml:8"),
            (1, "more", "set.lr", "mine.yaml:10"),
        ] {
            assert_eq!(places.of_stage(at, name, key), place, "{key}");
        }
        assert_eq!(places.top("about"), "mine.yaml:11");
        // At the indent of its key, and on one line.
        let places = Places::of(
            "a.yaml",
            "stages:\n- name: x\n  train: y\n- name: z\nname: b\n",
        );
        assert_eq!(places.of_stage(0, "x", "train"), "a.yaml:3");
        assert_eq!(places.of_stage(1, "z", "train"), "a.yaml:4");
        assert_eq!(places.of_stage(1, "z", "name"), "a.yaml:4");
        let places = Places::of(
            "a.yaml",
            "stages:\n  - {name: \"a b\", train: x}\nname: b\n",
        );
        assert_eq!(
            places.of_stage(0, "a b", "name"),
            "a.yaml:2",
            "not the pipeline's own"
        );
        let places = Places::of("a.yaml", "\nstages: [{name: x}, {name: y}]");
        assert_eq!(places.of_stage(1, "y", "train"), "a.yaml:2");
    }
}
