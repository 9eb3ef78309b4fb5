//! Fixes as rules write them: text in which the settings to change are marked, by their usual names in the field. For runs of
//! this program they become its own settings, for runs of other programs the names in their trainers. A rule writes:
//!
//! - `<learning_rate=1e-3>`, a change: `-s lr=1e-3` here, `learning_rate=1e-3` elsewhere
//! - `<beta:0.04>`, a value to consider: `method.grpo.beta=0.04` here, of a run of GRPO; `beta=0.04` elsewhere
//! - `<temperature>`, a setting: `rollout.temperature` here, `temperature` elsewhere
//! - `«run `llmtui preflight`|check the mask»`, what only this program can do, and the alternative elsewhere; either may be empty
//! - `‹, <epsilon_high:0.28>›`, text that is omitted if the run's method has no such setting: another method's would
//!   turn it into a run of that method

/// A setting with its names.
#[derive(Debug, PartialEq)]
struct Setting {
    /// In Transformers, TRL and PyTorch.
    theirs: &'static str,
    /// In this program's specs.
    ours: Ours,
}

#[derive(Debug, PartialEq)]
enum Ours {
    Key(&'static str),
    /// A key per method, under `method`.
    OfMethod(&'static [(&'static str, &'static str)]),
}

use Ours::{Key, OfMethod};

const fn of(theirs: &'static str, ours: Ours) -> Setting {
    Setting { theirs, ours }
}

const SETTINGS: &[Setting] = &[
    of("learning_rate", Key("lr")),
    of("max_grad_norm", Key("clip_norm")),
    of("weight_decay", Key("weight_decay")),
    of("dropout", Key("model.dropout")),
    of("qk_norm", Key("model.qk_norm")),
    of("initializer_range", Key("model.init_std")),
    of("attention_scale", Key("model.attention_scale")),
    of("logit_scale", Key("model.logit_scale")),
    of("embedding_scale", Key("model.embedding_scale")),
    of("residual_scale", Key("model.residual_scale")),
    of("gradient_accumulation_steps", Key("train.grad_accum_steps")),
    of("loss_type", OfMethod(&[("grpo", "aggregation")])),
    of(
        "beta",
        OfMethod(&[
            ("grpo", "beta"),
            ("rloo", "beta"),
            ("ppo", "beta"),
            ("dpo", "beta"),
            ("kto", "beta"),
        ]),
    ),
    of("epsilon_high", OfMethod(&[("grpo", "clip_high")])),
    of("rpo_alpha", OfMethod(&[("dpo", "nll_weight")])),
    of("temperature", Key("rollout.temperature")),
    of("max_completion_length", Key("rollout.max_new_tokens")),
    of("mask_truncated_completions", Key("rollout.mask_truncated")),
    of("num_generations", Key("rollout.group_size")),
    of("num_iterations", Key("rollout.epochs")),
];

/// A setting by its names, for reading a fix that is rendered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name {
    /// In Transformers, TRL and PyTorch.
    pub theirs: &'static str,
    ours: &'static Ours,
}

/// The names of all settings that fixes change.
pub(super) fn names() -> impl Iterator<Item = Name> {
    SETTINGS.iter().map(|setting| Name {
        theirs: setting.theirs,
        ours: &setting.ours,
    })
}

impl Name {
    /// Whether a word of a fix is this setting: by either name, or written in full, as `optimizer.adamw.lr` is `lr`.
    pub fn is(&self, word: &str) -> bool {
        let last = |key: &str| word == key || word.rsplit('.').next() == key.rsplit('.').next();
        let ours = match self.ours {
            Key(key) => last(key),
            OfMethod(keys) => keys.iter().any(|(method, key)| {
                let rest = word
                    .strip_prefix("method.")
                    .and_then(|rest| rest.strip_prefix(method));
                rest.and_then(|rest| rest.strip_prefix('.')) == Some(*key)
            }),
        };
        word == self.theirs || ours
    }

    /// Its value in a spec.
    pub fn value(&self, spec: &serde_json::Value) -> Option<f64> {
        let at = |path: String| spec.pointer(&path)?.as_f64();
        match self.ours {
            Key(key) if key.contains('.') => at(format!("/{}", key.replace('.', "/"))),
            Key("clip_norm") => at("/train/clip_norm".into()),
            Key(key) => spec["optimizer"].as_object()?.values().next()?[*key].as_f64(),
            OfMethod(keys) => keys
                .iter()
                .find_map(|(method, key)| at(format!("/method/{method}/{key}"))),
        }
    }

    /// Its key where it can be changed while a run trains.
    pub fn live(&self) -> Option<&'static str> {
        match self.ours {
            Key(key) => Some(*key),
            OfMethod(_) => None,
        }
    }
}

/// The program for whose runs a fix is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader<'a> {
    /// This program, with the run's method.
    Ours(&'a str),
    /// Another program.
    Foreign,
}

/// The settings that fixes may name for a run of a method, as written in a spec.
pub fn settings(method: &str) -> Vec<String> {
    SETTINGS
        .iter()
        .filter_map(|setting| setting.key(method))
        .collect()
}

impl Setting {
    /// Its key in a spec of a method; `None` if the method has no such setting.
    fn key(&self, method: &str) -> Option<String> {
        match self.ours {
            Key(key) => Some(key.into()),
            OfMethod(keys) => {
                let (method, key) = keys.iter().find(|(name, _)| *name == method)?;
                Some(format!("method.{method}.{key}"))
            }
        }
    }
}

/// A piece of a fix.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    Text(&'a str),
    Setting {
        setting: &'static Setting,
        /// The value, and whether to set exactly this value.
        value: Option<(&'a str, bool)>,
    },
    Either {
        ours: &'a str,
        theirs: &'a str,
    },
    /// Only if the method has every setting in it.
    IfKnown(Vec<Part<'a>>),
}

/// Renders a fix for a reader.
pub(super) fn render(fix: &str, reader: Reader<'_>) -> String {
    words(&parts(fix), reader)
}

fn words(parts: &[Part<'_>], reader: Reader<'_>) -> String {
    parts.iter().map(|part| part.words(reader)).collect()
}

impl Part<'_> {
    fn words(&self, reader: Reader<'_>) -> String {
        let foreign = reader == Reader::Foreign;
        match self {
            Part::Text(text) => (*text).into(),
            Part::Either { ours, theirs } => (if foreign { theirs } else { ours }).to_string(),
            Part::IfKnown(parts) => match parts.iter().all(|part| part.is_known(reader)) {
                true => words(parts, reader),
                false => String::new(),
            },
            Part::Setting { setting, value } => {
                let key = match reader {
                    Reader::Ours(method) => setting.key(method),
                    Reader::Foreign => None,
                };
                match (value, key) {
                    (None, key) => key.unwrap_or_else(|| setting.theirs.into()),
                    (Some((value, true)), Some(key)) => format!("-s {key}={value}"),
                    (Some((value, _)), Some(key)) => format!("{key}={value}"),
                    (Some((value, _)), None) => format!("{}={value}", setting.theirs),
                }
            }
        }
    }

    fn is_known(&self, reader: Reader<'_>) -> bool {
        match (self, reader) {
            (Part::Setting { setting, .. }, Reader::Ours(method)) => setting.key(method).is_some(),
            _ => true,
        }
    }
}

/// Unmarked text is kept: findings of checks, which rules pass on, may contain anything.
fn parts(fix: &str) -> Vec<Part<'_>> {
    let (mut found, mut rest, mut from) = (Vec::new(), fix, 0);
    while let Some(at) = rest[from..].find(['<', '«', '‹']).map(|at| from + at) {
        let Some((part, len)) = marked(&rest[at..]) else {
            from = at + rest[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        found.push(Part::Text(&rest[..at]));
        found.push(part);
        (rest, from) = (&rest[at + len..], 0);
    }
    found.push(Part::Text(rest));
    found
}

/// The marked part that a text begins with, and its length in bytes.
fn marked(text: &str) -> Option<(Part<'_>, usize)> {
    if let Some(inner) = text.strip_prefix('«') {
        let (inner, _) = inner.split_once('»')?;
        let (ours, theirs) = inner.split_once('|')?;
        return Some((
            Part::Either { ours, theirs },
            inner.len() + '«'.len_utf8() + '»'.len_utf8(),
        ));
    }
    if let Some(inner) = text.strip_prefix('‹') {
        let (inner, _) = inner.split_once('›')?;
        let len = inner.len() + '‹'.len_utf8() + '›'.len_utf8();
        return Some((Part::IfKnown(parts(inner)), len));
    }
    let (inner, _) = text.strip_prefix('<')?.split_once('>')?;
    let (name, value) = match inner.split_once(['=', ':']) {
        Some((name, value)) => (name, Some((value, inner[name.len()..].starts_with('=')))),
        None => (inner, None),
    };
    let setting = SETTINGS.iter().find(|setting| setting.theirs == name)?;
    Some((Part::Setting { setting, value }, inner.len() + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const OURS_IS: Reader<'_> = Reader::Ours("grpo");
    /// What only this program has: flags, keys, verbs, panes and paths of settings.
    const OURS: [&str; 14] = [
        "-s ",
        "(t ",
        "llmtui",
        " pane",
        "--map",
        "rollout.",
        "method.",
        "train.",
        "model.",
        "data.",
        "engine.",
        "rescue.",
        "{repetition",
        "{length: {",
    ];
    /// Rules that never apply to logs of other programs: they read events, layers or settings that only this one has.
    const OWN: [&str; 8] = [
        "engine",
        "events",
        "preflight",
        "rescued",
        "forgetting",
        "task_drop",
        "idle_gpu",
        "mod",
    ];

    #[test]
    fn fixes_for_other_programs_mention_nothing_of_this_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis/rules");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            if OWN.contains(&stem.as_str()) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Without comments, sources, and evidence from the spec, which foreign logs lack. Expected values are included.
            let not_said = ["//", "source:", "format!(\"model.dropout"];
            let said = text.lines().map(str::trim);
            for line in said.filter(|line| line.contains('"')) {
                if not_said.iter().any(|word| line.starts_with(word)) {
                    continue;
                }
                let (ours, theirs) = (render(line, OURS_IS), render(line, Reader::Foreign));
                seen += usize::from(ours != theirs);
                // A path continues after the dot; a sentence ends.
                let names = |word: &&&str| {
                    let behind = theirs.split(**word).nth(1);
                    let goes_on = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
                    behind.is_some_and(|text| !word.ends_with('.') || goes_on(text))
                };
                let left = OURS.iter().find(names);
                assert_eq!(left, None, "{stem}: {theirs}");
                for mark in ['<', '«', '»', '‹', '›'] {
                    let code = mark == '<'
                        && (line.contains("< ") || line.contains("<'") || line.contains("<="));
                    assert!(code || !ours.contains(mark), "{stem}: {ours}");
                }
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn changes_use_the_names_of_the_training_program() {
        let fix = "lower the learning rate: <learning_rate=1e-4> <max_grad_norm=1>« (t tunes it while it runs)|»; a higher <temperature>, <beta:0.04>";
        assert_eq!(
            render(fix, Reader::Ours("grpo")),
            "lower the learning rate: -s lr=1e-4 -s clip_norm=1 (t tunes it while it runs); a higher rollout.temperature, method.grpo.beta=0.04"
        );
        assert_eq!(
            render(fix, Reader::Foreign),
            "lower the learning rate: learning_rate=1e-4 max_grad_norm=1; a higher temperature, beta=0.04"
        );
    }

    /// `method.grpo.beta` set on a run of RLOO would turn it into a run of GRPO.
    #[test]
    fn settings_are_those_of_the_run_s_method_and_others_are_omitted() {
        let fix = "smaller steps‹, <epsilon_high:0.28>›, <beta:0.1> or <temperature>";
        for (method, said) in [
            (
                "grpo",
                "smaller steps, method.grpo.clip_high=0.28, method.grpo.beta=0.1 or rollout.temperature",
            ),
            (
                "rloo",
                "smaller steps, method.rloo.beta=0.1 or rollout.temperature",
            ),
            (
                "ppo",
                "smaller steps, method.ppo.beta=0.1 or rollout.temperature",
            ),
        ] {
            assert_eq!(render(fix, Reader::Ours(method)), said);
        }
        let theirs = "smaller steps, epsilon_high=0.28, beta=0.1 or temperature";
        assert_eq!(render(fix, Reader::Foreign), theirs);
    }

    #[test]
    fn text_without_marks_is_kept() {
        for text in [
            "",
            "a < b > c",
            "<unknown=1>",
            "« no bar »",
            "‹ open",
            "<",
            "«",
            "x <é> y",
        ] {
            assert_eq!(render(text, Reader::Foreign), text);
        }
    }
}
