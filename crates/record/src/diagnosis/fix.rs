//! What helps, as rules write it: text in which the settings to change are marked, named by the field's terms. Runs of this
//! program read its own settings, runs of other programs the names that their trainers use. A rule writes:
//!
//! - `<learning_rate=1e-3>`, a change: `-s lr=1e-3` here, `learning_rate=1e-3` elsewhere
//! - `<beta:0.04>`, a value to consider: `method.grpo.beta=0.04` here, `beta=0.04` elsewhere
//! - `<temperature>`, a setting: `rollout.temperature` here, `temperature` elsewhere
//! - `«run `llmtui preflight`|check the mask»`, what only this program can do, and what to do elsewhere; either may be empty

/// A setting: its name in Transformers, TRL and PyTorch, and the one in this program's specs.
const SETTINGS: &[(&str, &str)] = &[
    ("learning_rate", "lr"),
    ("max_grad_norm", "clip_norm"),
    ("weight_decay", "weight_decay"),
    ("dropout", "model.dropout"),
    ("qk_norm", "model.qk_norm"),
    ("gradient_accumulation_steps", "train.grad_accum_steps"),
    ("loss_type", "method.grpo.aggregation"),
    ("beta", "method.grpo.beta"),
    ("epsilon_high", "method.grpo.clip_high"),
    ("rpo_alpha", "method.dpo.nll_weight"),
    ("temperature", "rollout.temperature"),
    ("max_completion_length", "rollout.max_new_tokens"),
    ("mask_truncated_completions", "rollout.mask_truncated"),
    ("num_generations", "rollout.group_size"),
    ("num_iterations", "rollout.epochs"),
];

/// A piece of a fix.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    Text(&'a str),
    Setting {
        setting: &'static (&'static str, &'static str),
        /// What to set it to, and whether that is advised as it stands.
        value: Option<(&'a str, bool)>,
    },
    Either {
        ours: &'a str,
        theirs: &'a str,
    },
}

/// The fix as it is read: `foreign` where the run is another program's.
pub(super) fn render(fix: &str, foreign: bool) -> String {
    parts(fix).iter().map(|part| part.words(foreign)).collect()
}

impl Part<'_> {
    fn words(&self, foreign: bool) -> String {
        match self {
            Part::Text(text) => (*text).into(),
            Part::Either { ours, theirs } => (if foreign { theirs } else { ours }).to_string(),
            Part::Setting { setting, value } => {
                let name = if foreign { setting.0 } else { setting.1 };
                match value {
                    None => name.into(),
                    Some((value, true)) if !foreign => format!("-s {name}={value}"),
                    Some((value, _)) => format!("{name}={value}"),
                }
            }
        }
    }
}

/// Whatever is not marked is text: findings of checks, which rules pass on, may hold any.
fn parts(fix: &str) -> Vec<Part<'_>> {
    let (mut found, mut rest, mut from) = (Vec::new(), fix, 0);
    while let Some(at) = rest[from..].find(['<', '«']).map(|at| from + at) {
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

/// The mark that a text begins with, and its length in bytes.
fn marked(text: &str) -> Option<(Part<'_>, usize)> {
    if let Some(inner) = text.strip_prefix('«') {
        let (inner, _) = inner.split_once('»')?;
        let (ours, theirs) = inner.split_once('|')?;
        return Some((
            Part::Either { ours, theirs },
            inner.len() + '«'.len_utf8() + '»'.len_utf8(),
        ));
    }
    let (inner, _) = text.strip_prefix('<')?.split_once('>')?;
    let (name, value) = match inner.split_once(['=', ':']) {
        Some((name, value)) => (name, Some((value, inner[name.len()..].starts_with('=')))),
        None => (inner, None),
    };
    let setting = SETTINGS.iter().find(|setting| setting.0 == name)?;
    Some((Part::Setting { setting, value }, inner.len() + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
    /// Rules that no log of another program can reach: they read events, layers or settings that only this one has.
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
    fn runs_of_other_programs_read_nothing_of_this_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis/rules");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            if OWN.contains(&stem.as_str()) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Neither comments, nor sources, nor evidence of the spec, which a log has not. What is expected is said, too.
            let not_said = ["//", "source:", "format!(\"model.dropout"];
            let said = text.lines().map(str::trim);
            for line in said.filter(|line| line.contains('"')) {
                if not_said.iter().any(|word| line.starts_with(word)) {
                    continue;
                }
                let (ours, theirs) = (render(line, false), render(line, true));
                seen += usize::from(ours != theirs);
                // A path goes on; the end of a sentence does not.
                let names = |word: &&&str| {
                    let behind = theirs.split(**word).nth(1);
                    let goes_on = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
                    behind.is_some_and(|text| !word.ends_with('.') || goes_on(text))
                };
                let left = OURS.iter().find(names);
                assert_eq!(left, None, "{stem}: {theirs}");
                for mark in ['<', '«', '»'] {
                    let code = mark == '<'
                        && (line.contains("< ") || line.contains("<'") || line.contains("<="));
                    assert!(code || !ours.contains(mark), "{stem}: {ours}");
                }
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn changes_have_the_names_of_the_program_that_trains() {
        let fix = "lower the learning rate: <learning_rate=1e-4> <max_grad_norm=1>« (t tunes it while it runs)|»; a higher <temperature>, <beta:0.04>";
        assert_eq!(
            render(fix, false),
            "lower the learning rate: -s lr=1e-4 -s clip_norm=1 (t tunes it while it runs); a higher rollout.temperature, method.grpo.beta=0.04"
        );
        assert_eq!(
            render(fix, true),
            "lower the learning rate: learning_rate=1e-4 max_grad_norm=1; a higher temperature, beta=0.04"
        );
    }

    #[test]
    fn text_without_marks_is_kept() {
        for text in [
            "",
            "a < b > c",
            "<unknown=1>",
            "« no bar »",
            "<",
            "«",
            "x <é> y",
        ] {
            assert_eq!(render(text, true), text);
        }
    }
}
