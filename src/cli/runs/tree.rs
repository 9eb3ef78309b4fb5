//! `llmtui runs --tree`: which run came from which, and what each changed of its parent.

use super::rows_of;
use crate::base::files::read_plain_text;
use crate::base::human::grouped;
use crate::base::json;
use crate::base::text::{cut_middle, one_line};
use crate::cli::run_ref::spec_of;
use crate::cli::spec_changes::{self, Change, of_specs, word};
use crate::run::RunDir;
use crate::run::index::{CHANGED_AT, RunStatus, RunSummary};
use crate::run::lineage::{Node, find_parent, tree};
use crate::run::log::scan_events;
use crate::wire::Event;
use serde_json::{Value, json};
use std::path::Path;

/// Settings that name files of the model that a run starts from.
const PLACES: [&str; 2] = ["train.from", "data.tokenizer.file.path"];
/// What differs from the spec that the parent had when it wrote the checkpoint; nothing where one of them cannot be read.
fn changes(run: &RunSummary, parent: &RunSummary) -> Vec<Change> {
    let open = |run: &RunSummary| RunDir::open(&run.path).ok();
    let step = run.parent.as_ref().map_or(0, |parent| parent.step);
    let was = open(parent).and_then(|parent| spec_then(&parent, step));
    let is = open(run).and_then(|run| Some(spec_of(&run).ok()?.to_value()));
    let (Some(was), Some(is)) = (was, is) else {
        return Vec::new();
    };
    let mut found = of_specs(&was, &is);
    let known =
        [open(parent), open(run)].map(|run| run.map(|run| Decided::of(&run)).unwrap_or_default());
    for (path, was, is) in &mut found {
        *was = known[0].value(path, was.take());
        *is = known[1].value(path, is.take());
    }
    found.retain(|(_, was, is)| word(was) != word(is));
    // That it starts from the parent, with its tokenizer, is said by its place in the tree.
    let there: Vec<&str> = PLACES
        .into_iter()
        .filter(|path| lies_in(at(&is, path), &parent.path))
        .collect();
    found.retain(|(path, ..)| {
        let tokenizer = path == "data.tokenizer" || path.starts_with("data.tokenizer.");
        let with_it = there.contains(&path.as_str()) || tokenizer && there.contains(&PLACES[1]);
        !with_it
    });
    found
}

/// What the program decided where the spec leaves it open, by a run's log.
#[derive(Debug, Default)]
struct Decided {
    precision: Option<String>,
    vocab_size: Option<u64>,
    threads: Option<u64>,
}

impl Decided {
    fn of(run: &RunDir) -> Decided {
        let mut known = Decided::default();
        let kinds = ["Started", "MachineDescribed"];
        // A log that cannot be read says nothing.
        let _ = scan_events(&run.events_path(), &kinds, |event| match event {
            Event::Started {
                precision,
                vocab_size,
                ..
            } => (known.precision, known.vocab_size) = (precision, Some(vocab_size)),
            Event::MachineDescribed { machine } => {
                known.threads = machine["cpu"]["allowed"].as_u64();
            }
            _ => {}
        });
        known
    }

    /// The value of a setting as it was trained with; `none` of what is off where nobody sets it.
    fn value(&self, path: &str, said: Option<Value>) -> Option<Value> {
        let is_open = match &said {
            None | Some(Value::Null) => true,
            Some(value) => value == "auto",
        };
        if !is_open {
            return said;
        }
        let decided = match path {
            "train.precision" => self.precision.clone().map(Value::from),
            "train.threads" => self.threads.map(Value::from),
            "model.vocab_size" => self.vocab_size.map(Value::from),
            _ => None,
        };
        let is_off = said.as_ref().is_none_or(Value::is_null);
        decided.or_else(|| if is_off { Some("none".into()) } else { said })
    }
}

/// A run's spec as it was when the run wrote the checkpoint of a step: an extension changes it later.
fn spec_then(run: &RunDir, step: u64) -> Option<Value> {
    let now = || Some(spec_of(run).ok()?.to_value());
    let asked = read_plain_text(run.asked_path()).unwrap_or_default();
    if !asked.lines().any(|line| line.starts_with(CHANGED_AT)) {
        return now();
    }
    let (mut current, mut then) = (None, None);
    let read = scan_events(&run.events_path(), &["Started", "Checkpointed"], |event| {
        match event {
            Event::Started { spec, .. } => {
                // What begins from nothing begins as the run did.
                if step == 0 && then.is_none() {
                    then = Some(spec.clone());
                }
                current = Some(spec);
            }
            Event::Checkpointed { step: at, .. } if at == step => then.clone_from(&current),
            _ => {}
        }
    });
    read.ok().and(then).or_else(now)
}

fn at<'a>(spec: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(spec, |value, key| value.get(key))
}

/// Whether a value is a path below a folder.
fn lies_in(value: Option<&Value>, folder: &Path) -> bool {
    let said = value.and_then(Value::as_str);
    let absolute = |path: &Path| std::path::absolute(path).ok();
    said.and_then(|said| absolute(Path::new(said)))
        .zip(absolute(folder))
        .is_some_and(|(said, folder)| said.starts_with(folder))
}

/// Characters of a value in a row; a longer list or mapping is named by what it is.
const SHORT: usize = 40;

/// A value in a few words: of a long mapping its kind and the first text in it, `jsonl data/pairs.jsonl`.
fn phrase(value: &Option<Value>) -> String {
    let whole = word(value);
    let long = whole.chars().count() > SHORT;
    let Some(value) = value.as_ref().filter(|_| long) else {
        return whole;
    };
    let kind = match value {
        Value::Object(map) => map.keys().next().map(|key| one_line(key)),
        Value::Array(list) if list.len() == 1 => Some("1 entry:".into()),
        Value::Array(list) => Some(format!("{} entries:", list.len())),
        _ => return cut_middle(&whole, SHORT, "…"),
    };
    let words = [kind, first_text(value).map(one_line)];
    let words: Vec<String> = words.into_iter().flatten().collect();
    cut_middle(&words.join(" "), SHORT, "…")
}

fn first_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Object(map) => map.values().find_map(first_text),
        Value::Array(list) => list.iter().find_map(first_text),
        _ => None,
    }
}

fn parent_in<'a>(run: &RunSummary, runs: &[&'a RunSummary]) -> Option<&'a RunSummary> {
    find_parent(run.parent.as_ref()?, runs.iter().copied())
}

/// ```text
/// shakespeare-k3qf  pretrain  2,000  val 1.8862
/// ├─ sft-p0aa  sft  400  val 0.9312
/// │    from step 2,000
/// │    optimizer.adamw.lr  0.001 → 5e-5
/// ```
pub fn text(runs: &[&RunSummary], utf8: bool, columns: Option<usize>) -> String {
    let mut out = String::new();
    let nodes = tree(runs);
    for (at, node) in nodes.iter().enumerate() {
        let run = runs[node.index];
        let mut words = rows_of(run).to_vec();
        let best = run.best_evaluation.as_ref().and_then(|best| best.brief());
        let best = best.filter(|best| !words.contains(best));
        words.extend(best.map(|best| format!("best {best}")));
        words.extend(run.verdict.clone());
        // A run that was refused never said its method.
        words.retain(|word| !word.is_empty());
        if !matches!(run.status, RunStatus::Finished) {
            words.push(run.status.word().into());
        }
        let words = words.join("  ");
        let mut lines = vec![format!(
            "{}{}  {words}",
            node.branch(!utf8),
            one_line(&run.id)
        )];
        if let Some(parent) = &run.parent {
            let lead = lead(node, nodes.get(at + 1), utf8);
            let here = parent_in(run, runs);
            let gone = if here.is_none() { " (not here)" } else { "" };
            let step = grouped(parent.step);
            lines.push(format!(
                "{lead}from {}, step {step}{gone}",
                one_line(here.map_or(&parent.run, |run| &run.id))
            ));
            let changes = here.map(|parent| changes(run, parent)).unwrap_or_default();
            let width = changes
                .iter()
                .map(|c| c.0.chars().count())
                .max()
                .unwrap_or(0);
            for (path, was, is) in &changes {
                let (was, is) = (phrase(was), phrase(is));
                let to = if utf8 { "→" } else { "->" };
                lines.push(format!("{lead}{path:<width$}  {was} {to} {is}"));
            }
        }
        for line in lines {
            let line: String = line.chars().take(columns.unwrap_or(usize::MAX)).collect();
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

/// What stands in front of the lines under a row: the bars of its generations, and of its own children.
fn lead(node: &Node, next: Option<&Node>, utf8: bool) -> String {
    let bar = if utf8 { "│  " } else { "|  " };
    let below = next.is_some_and(|next| next.follows.len() > node.follows.len());
    let mut lead: String = node
        .follows
        .iter()
        .map(|more| if *more { bar } else { "   " })
        .collect();
    lead.push_str(if below { bar } else { "   " });
    lead
}

/// One object per run, parents before their children: what a row of [`text`] says, and its depth.
pub fn objects(runs: &[&RunSummary]) -> Vec<Value> {
    let object = |node: &Node| {
        let run = runs[node.index];
        let changes = parent_in(run, runs).map(|parent| changes(run, parent));
        let changes = spec_changes::objects(&changes.unwrap_or_default());
        json!({
            "id": run.id, "name": run.name, "path": json::path(&run.path), "depth": node.follows.len(),
            "parent": run.parent, "method": run.method, "status": run.status.word(),
            "step": run.step, "max_steps": run.max_steps, "val_loss": run.val_loss,
            "pass_at_1": run.pass_at_1, "best_evaluation": run.best_evaluation,
            "verdict": run.verdict, "changes": changes,
        })
    };
    tree(runs).iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `train.precision  auto → bf16`, of a run that had trained in bf16.
    #[test]
    fn what_was_decided_stands_in_place_of_auto() {
        let known = Decided {
            precision: Some("bf16".into()),
            vocab_size: Some(65),
            threads: Some(2),
        };
        let value = |path: &str, said: Option<Value>| word(&known.value(path, said));
        assert_eq!(value("train.precision", Some(json!("auto"))), "bf16");
        assert_eq!(value("train.threads", Some(Value::Null)), "2");
        assert_eq!(value("train.threads", Some(json!(1))), "1");
        assert_eq!(value("eval.patience", None), "none");
        assert_eq!(
            value("data.packing", Some(json!("auto"))),
            "auto",
            "left to the method"
        );
    }

    #[test]
    fn a_long_value_is_told_in_a_phrase() {
        let source = json!({"preferences": {"path": "data/pairs.jsonl", "columns": {"prompt": "question", "chosen": "good"}}});
        let long = phrase(&Some(source));
        assert!(
            long.starts_with("preferences ") && long.chars().count() <= 40,
            "{long}"
        );
        assert_eq!(phrase(&Some(json!(0.001))), word(&Some(json!(0.001))));
    }

    /// It ended the program.
    #[test]
    fn a_runs_directory_with_another_name_than_utf8_is_listed() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let clock = crate::base::clock::SystemClock::new();
        RunDir::create(&dir.path().join("runs"), "a", "{}", "", &clock).unwrap();
        let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"sp \xff"));
        std::fs::rename(dir.path().join("runs"), &odd).unwrap();
        let (runs, _) = crate::run::index::list(&odd).unwrap();
        let objects = objects(&runs.iter().collect::<Vec<_>>());
        let path = objects[0]["path"].as_str().unwrap();
        assert!(path.contains("sp \u{fffd}/"), "{path}");
        let line = crate::cli::out::json_line(&runs[0]).unwrap();
        assert!(line.contains("sp \u{fffd}/"), "{line}");
        // No new one is begun there: what refers to it by its path would not find it.
        let refused = RunDir::create(&odd, "a", "{}", "", &clock).unwrap_err();
        let refused = crate::cli::exit::Failure::not_a_new_run(&refused);
        assert!(
            refused
                .what
                .ends_with("is not UTF-8, as paths in specs are")
        );
        assert!(refused.hint.contains("--runs-dir"), "{refused:?}");
        assert_eq!(crate::run::index::list(&odd).unwrap().0.len(), 1);
    }

    #[test]
    fn a_folder_is_not_one_whose_name_begins_alike() {
        let below = |at: &str| lies_in(Some(&json!(at)), Path::new("runs/sft"));
        assert!(below("runs/sft/checkpoints/step-000003") && !below("runs/sft-2/x"));
    }

    #[test]
    fn a_child_is_held_against_what_its_parent_was_before_an_extension() {
        use crate::base::clock::{SystemClock, UnixMillis};
        use crate::wire::{Envelope, encode};
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "p", "", "", &SystemClock::new()).unwrap();
        let started = |max_steps: u64| Event::Started {
            name: "p".into(),
            method: "pretrain".into(),
            spec: json!({"train": {"max_steps": max_steps}}),
            n_params: 1,
            vocab_size: 1,
            max_steps,
            batch_tokens: 1,
            epoch_tokens: 1,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        };
        let saved = |step| Event::Checkpointed {
            step,
            path: String::new(),
            bytes: 1,
            seconds: 0.0,
            best: false,
            val_loss: None,
            by: None,
        };
        let events = [started(30), saved(30), started(140), saved(140)];
        let lines = (1..).zip(events).map(|(seq, event)| {
            encode(&Envelope {
                v: 1,
                seq,
                t: UnixMillis(seq),
                event,
            })
        });
        std::fs::write(run.events_path(), lines.collect::<String>()).unwrap();
        std::fs::write(
            run.asked_path(),
            format!("# Requested\n{CHANGED_AT}30: -s max_steps=140\n"),
        )
        .unwrap();
        let then = |step| spec_then(&run, step).unwrap()["train"]["max_steps"].clone();
        assert_eq!([then(30), then(140), then(0)], [30, 140, 30]);
    }
}
