//! `llmtui train --branch RUN[@STEP] -s …`: a new run that goes on from a checkpoint of another one, with other settings. It
//! has a log of its own and names its parent; weights, moments and counters are the checkpoint's. `RUN@0` begins where its
//! parent began, with nothing of what it learned.

use super::args::SpecArgs;
use super::exit::Failure;
use super::run_ref::{
    check_kept_reference, checkpoint_of, named, sources_of, spec_of, whole_number,
};
use super::spec_changes::{self, Change, of_specs};
use super::{Context, model_ref};
use crate::base::human::{counted, grouped};
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use crate::data::DataEnv;
use crate::engine::checkpoint::fingerprint::Match;
use crate::engine::checkpoint::{self, Fingerprint, Manifest};
use crate::engine::{Progress, REFERENCE_CURVE, reference};
use crate::plan::start::new_run;
use crate::run::compare::{Setting, settings};
use crate::run::{BRANCH_OF, CheckpointEntry, Parent, RunDir};
use crate::spec::{self, Loaded, Origin, RunSpec};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What the weights of a checkpoint, and with them its moments, are shaped by: another value is another model, not a branch.
const SHAPES: [&str; 7] = [
    "model",
    "adapter",
    "data.tokenizer",
    "method",
    "train.from",
    "train.dequantize",
    "train.freeze",
];
/// What shapes the moments alone: another optimizer, not one of its settings.
const MOMENTS: [&str; 2] = ["optimizer", "optimizer.soap.max_dim"];
/// Of these, what no weights of a checkpoint fit when it is another.
const WEIGHTS: [&str; 3] = ["model", "data.tokenizer", "train.from"];
/// The method with a critic.
const PPO: &str = crate::methods::ppo::ENTRY.id;
/// What stands among these and shapes nothing.
const SHAPELESS: &str = ".dropout";

/// A branch that can be made.
#[derive(Debug)]
pub struct Branch {
    parent: RunDir,
    /// `None` from the start.
    from: Option<CheckpointEntry>,
    pub loaded: Loaded,
    /// Every value that is not the parent's: path, its value, the new one.
    changes: Vec<(String, String, String)>,
    /// Those of them that do not only follow from another one, as `runs --tree` lists them.
    told: Vec<Change>,
    /// Settings that `-s` names and that changed while the parent ran, by hand or by its controller, with the value that its
    /// checkpoint keeps: the branch takes its own.
    moved: Vec<(&'static str, f64)>,
    /// Rows of the parent's micro-batches.
    rows: usize,
}

/// What a branch goes on from, and what it changes.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The parent's folder.
    run: String,
    /// 0 from the start.
    step: u64,
    /// `{path, was, is}` each.
    changes: Vec<Value>,
    /// Values that the parent was adjusted to while it ran, in whose place the branch takes its own.
    adjusted: BTreeMap<String, f64>,
}

impl Branch {
    /// Looks up `RUN`, `RUN@STEP` (0: from the start) or a run's newest checkpoint, and lays `-s` over the parent's spec. With
    /// `fresh_optimizer` its moments are not taken over, so they need not fit.
    ///
    /// # Errors
    /// No such run or checkpoint, a damaged one, values that cannot be or that no checkpoint of the parent fits.
    pub fn plan(
        word: &str,
        args: &SpecArgs,
        fresh_optimizer: bool,
        cx: &Context,
    ) -> anyhow::Result<Branch> {
        if args.target().is_some() {
            let hint = format!("llmtui train --branch {word} -s KEY=VALUE");
            return Err(Failure::user_error("a branch takes its parent's spec", hint).into());
        }
        let (run, step) = match word.rsplit_once('@') {
            Some((run, step)) => (run, Some(whole_number(step)?)),
            None => (word, None),
        };
        let parent = named(run, cx)?;
        let from = match step {
            // A run begins at the checkpoint that it was branched from, else at 0.
            Some(0) => match parent.branched_from().map_or(0, |from| from.step) {
                0 => None,
                step => Some(checkpoint_of(&parent, Some(step))?),
            },
            step => Some(checkpoint_of(&parent, step)?),
        };
        let broken =
            |e: checkpoint::Fault| Failure::user_error(e.to_string(), checkpoint::Fault::HINT);
        if let Some(from) = &from {
            Manifest::verify(&from.path).map_err(broken)?;
        }
        let of_parent = spec_of(&parent)?;
        let (was, rows) = (of_parent.to_value(), of_parent.train.micro_batch_size);
        let target = parent.spec_path().display().to_string();
        model_ref::pull_for_spec(&target, &args.set, cx)?;
        let sources = sources_of(&parent, &of_parent, cx);
        let mut loaded = spec::load(&target, &args.set, &sources)?;
        check_kept_reference(&parent, &loaded.spec)?;
        super::eval::known(&loaded.spec.eval.tasks, cx)?;
        let at = from.as_ref().map_or(0, |from| from.step);
        let place = format!("{}@{at}", one_line(&parent.folder()));
        let sets: String = args
            .set
            .iter()
            .map(|s| format!(" -s {}", one_line(s)))
            .collect();
        let body = loaded.asked.split_once('\n').map_or("", |(_, body)| body);
        loaded.asked = format!("{BRANCH_OF}{place}{sets}\n{body}");
        let is = loaded.spec.to_value();
        let (changes, told) = (differences(&was, &is), of_specs(&was, &is));
        let moved = match &from {
            Some(from) => moved(&read_state(from)?.progress, &of_parent, &loaded),
            None => Vec::new(),
        };
        let branch = Branch {
            parent,
            from,
            loaded,
            changes,
            told,
            moved,
            rows,
        };
        branch.check(fresh_optimizer)?;
        branch.check_batch(&of_parent)?;
        Ok(branch)
    }

    pub fn parent(&self) -> &RunDir {
        &self.parent
    }

    fn check(&self, fresh_optimizer: bool) -> anyhow::Result<()> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        // A critic's weights and moments are read together.
        let without_moments = fresh_optimizer && self.loaded.spec.method.entry().id != PPO;
        if let Some((path, was, is)) = self.shaped(without_moments) {
            let what =
                format!("a branch cannot change {path}: its checkpoint fixes {was}, not {is}");
            return Err(Failure::user_error(what, self.anew(&path, &is, from)).into());
        }
        let train = &self.loaded.spec.train;
        let max_steps = train.max_steps;
        // What epochs come to is known once the data are read.
        if train.epochs.is_none() && max_steps <= from.step {
            let what = format!(
                "step {} is the last one (max_steps {}): nothing is left to train",
                grouped(from.step),
                grouped(max_steps)
            );
            let hint = format!("-s max_steps={}", from.step + max_steps.max(100));
            return Err(Failure::user_error(what, hint).into());
        }
        Ok(())
    }

    /// The first change of what shapes weights or moments: path, the parent's value, the new one. A choice goes before the settings
    /// that come with it, of which the parent has none.
    fn shaped(&self, without_moments: bool) -> Option<(String, String, String)> {
        let shapes = |path: &str| {
            let under = |shape: &&str| path == *shape || path.starts_with(&format!("{shape}."));
            let of_weights = SHAPES.iter().any(under) && !path.ends_with(SHAPELESS);
            of_weights || !without_moments && MOMENTS.contains(&path)
        };
        let words = |(path, was, is): &Change| {
            (
                path.clone(),
                spec_changes::word(was),
                spec_changes::word(is),
            )
        };
        let told = self.told.iter().find(|(path, ..)| shapes(path));
        told.map(words).or_else(|| {
            let mut all = self.changes.iter();
            all.find(|(path, ..)| shapes(path)).cloned()
        })
    }

    /// How to train with such a change: in a new run from the checkpoint's weights, or from the start where no weights fit it.
    fn anew(&self, path: &str, is: &str, from: &CheckpointEntry) -> String {
        let spec = shell_quote(&shown(&self.parent.spec_path()));
        let set = format!("-s {}", shell_quote(&format!("{path}={is}")));
        let under = |shape: &&str| path == *shape || path.starts_with(&format!("{shape}."));
        if !WEIGHTS.iter().any(under) {
            let from = shell_quote(&shown(&from.path));
            let fresh = match MOMENTS.contains(&path) && self.loaded.spec.method.entry().id != PPO {
                true => "--fresh-optimizer drops its moments; or ",
                false => "",
            };
            return format!(
                "{fresh}start a new run from its weights: llmtui train {spec} {set} -s train.from={from}"
            );
        }
        // A branch of a branch begins with a checkpoint, too.
        match self.parent.branched_from().map_or(0, |from| from.step) {
            0 => format!(
                "train it from the start: llmtui train --branch {}@0 {set}",
                shell_quote(&one_line(&self.parent.folder()))
            ),
            _ => format!("train it from the start: llmtui train {spec} {set}"),
        }
    }

    /// A branch goes on at its checkpoint's place in the data, which is counted in micro-batches. With another number of rows in a
    /// step, passes over the data and the prompts of rollouts would be counted from a beginning that never was.
    fn check_batch(&self, was: &RunSpec) -> anyhow::Result<()> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        let rows = |spec: &RunSpec| spec.train.micro_batch_size * spec.train.grad_accum_steps;
        let now = &self.loaded.spec;
        let other = rows(was) != rows(now) || was.train.batch_ramp != now.train.batch_ramp;
        let counts = match (now.train.epochs, now.method.on_policy()) {
            (Some(_), _) => "train.epochs counts passes",
            (None, Some(_)) => "rollouts count their prompts",
            (None, None) => return Ok(()),
        };
        if !other {
            return Ok(());
        }
        let what = format!(
            "a branch with {} in a step instead of {}: {counts} over steps of one size",
            counted(rows(now) as u64, "row"),
            grouped(rows(was) as u64)
        );
        let hint = format!(
            "keep micro_batch_size · grad_accum_steps at {}, or start a new run from its weights: llmtui train {} -s train.from={}",
            rows(was),
            shell_quote(&shown(&self.parent.spec_path())),
            shell_quote(&shown(&from.path))
        );
        Err(Failure::user_error(what, hint).into())
    }

    /// Refuses other data than those of the checkpoint, as the engine would behind a run that is made already. They are read
    /// only where a setting of theirs was changed: a file that moved is the same text.
    ///
    /// # Errors
    /// Other data; data that cannot be read.
    pub fn check_data(&self, cx: &Context) -> anyhow::Result<()> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        let data_changes = self
            .changes
            .iter()
            .any(|(path, ..)| path.starts_with("data."));
        if !data_changes {
            return Ok(());
        }
        let spec = &self.loaded.spec;
        let surroundings = DataEnv::from_env(&cx.env);
        let data = spec
            .open_data(&surroundings)
            .map_err(|e| Failure::data(&e))?;
        let saved = read_state(from)?;
        match saved.fingerprint.compare(&Fingerprint::of(spec, &data)) {
            Match::Different(why) => Err(self.other_data(from, &why).into()),
            Match::Exact | Match::Inexact(_) => Ok(()),
        }
    }

    fn other_data(&self, from: &CheckpointEntry, why: &str) -> Failure {
        let sets: String = self
            .changes
            .iter()
            .filter(|(path, ..)| path.starts_with("data."))
            .map(|(path, _, is)| format!(" -s {path}={is}"))
            .collect();
        Failure::user_error(
            format!("a branch continues in the data of its checkpoint: {why}"),
            format!(
                "start a new run from its weights: llmtui train {} -s train.from={}{sets}; or use --force, which keeps the optimizer state and the step count",
                shown(&self.parent.spec_path()),
                shown(&from.path)
            ),
        )
    }

    /// `branches off shakespeare-k3qf at step 500`, then a line for each change.
    pub fn lines(&self) -> Vec<String> {
        let parent = self.parent.folder();
        let mut lines = vec![match &self.from {
            Some(from) => format!("branch of {parent} at step {}", grouped(from.step)),
            None => format!("{parent} again, from the start"),
        }];
        for (key, value) in &self.moved {
            let value = spec::shown(&(*value).into());
            lines.push(format!(
                "  {key} was set to {value} while {parent} ran; the branch takes the value given for it"
            ));
        }
        if self.told.is_empty() && self.moved.is_empty() {
            lines.push("  no setting differs: it repeats its parent from there".into());
        }
        let widths = self.told.iter().map(|(path, ..)| path.len());
        let width = widths.max().unwrap_or(0);
        let row = |(path, was, is): &Change| {
            let (was, is) = (spec_changes::word(was), spec_changes::word(is));
            format!("  {path:<width$}  {was} → {is}")
        };
        lines.extend(self.told.iter().map(row));
        lines
    }

    /// The same for scripts.
    pub fn summary(&self) -> Summary {
        let taken = |(key, value): &(&'static str, f64)| (key.to_string(), *value);
        Summary {
            run: self.parent.folder(),
            step: self.from.as_ref().map_or(0, |from| from.step),
            changes: spec_changes::objects(&self.told),
            adjusted: self.moved.iter().map(taken).collect(),
        }
    }

    /// Makes the run, with the checkpoint in it.
    ///
    /// # Errors
    /// The disk; nothing of the run is left then: without its checkpoint it would be another training.
    pub fn make(&self, cx: &Context) -> anyhow::Result<RunDir> {
        let parent = Parent {
            run: self.parent.id().into(),
            step: self.from.as_ref().map_or(0, |from| from.step),
        };
        let run = new_run(&cx.runs_dir, &self.loaded, Some(parent), &cx.clock)
            .map_err(|e| Failure::not_a_new_run(&e))?;
        match self.fill(&run) {
            Ok(()) => Ok(run),
            Err(error) => {
                let _ = run.remove();
                Err(error.into())
            }
        }
    }

    /// Gives a new run what it takes over from its parent. The checkpoint gets its name last, when it is as the branch needs it: a
    /// killed command leaves none, and the engine refuses such a branch.
    fn fill(&self, run: &RunDir) -> Result<(), Failure> {
        let disk = |e: String| Failure::machine(e, "choose another location with --runs-dir DIR");
        // It measures its loss against the curve that its parent measured against.
        self.hand_down(REFERENCE_CURVE, run);
        let Some(from) = &self.from else {
            return Ok(());
        };
        let folder = run.checkpoints_path();
        let name = from.path.file_name().unwrap_or_default().to_string_lossy();
        let (made, to) = (folder.join(format!(".tmp-{name}")), folder.join(&*name));
        let at = |e: std::io::Error| disk(format!("{}: {e}", shown(&to)));
        copy(&from.path, &made).map_err(at)?;
        // Where it fits, the branch need not compute it again.
        self.hand_down(reference::FILE, run);
        let rows = (self.rows, self.loaded.spec.train.micro_batch_size);
        if rows.0 != rows.1 {
            checkpoint::recount(&made, rows).map_err(|e| disk(e.to_string()))?;
        }
        if !self.moved.is_empty() {
            let keys: Vec<&str> = self.moved.iter().map(|(key, _)| *key).collect();
            checkpoint::forget_adjustments(&made, &keys).map_err(|e| disk(e.to_string()))?;
        }
        std::fs::rename(&made, &to).map_err(at)?;
        crate::base::files::sync_dir(&folder).map_err(at)
    }

    /// Copies a file of the parent's folder, if it is there.
    fn hand_down(&self, file: &str, run: &RunDir) {
        let of_parent = self.parent.path().join(file);
        if of_parent.exists() {
            let _ = std::fs::copy(of_parent, run.path().join(file));
        }
    }
}

fn read_state(from: &CheckpointEntry) -> Result<checkpoint::SavedState, Failure> {
    checkpoint::read_state(&from.path)
        .map_err(|e| Failure::user_error(e.to_string(), checkpoint::Fault::HINT))
}

/// What was changed while a run trained lives on in its checkpoints, unless the branch says otherwise, by whatever name. The
/// learning rate of another optimizer says nothing of the new one's.
fn moved(progress: &Progress, was: &RunSpec, loaded: &Loaded) -> Vec<(&'static str, f64)> {
    let kept = &progress.adjustments;
    let spec = &loaded.spec;
    let (rule, method) = (spec.optimizer.entry().id, spec.method.entry().id);
    let said = |path: &str| matches!(loaded.origins.get(path), Origin::Set(_));
    let is_other = was.optimizer.entry().id != rule;
    let all = [
        (
            "lr",
            kept.lr,
            is_other || said(&format!("optimizer.{rule}.lr")),
        ),
        ("clip_norm", kept.clip_norm, said("train.clip_norm")),
        (
            "beta",
            progress.kl_coef,
            said(&format!("method.{method}.beta")),
        ),
    ];
    let taken = all
        .into_iter()
        .filter_map(|(key, value, said)| Some((key, value.filter(|_| said)?)));
    taken.collect()
}

/// Every value that is another one, by its dotted path.
fn differences(was: &Value, is: &Value) -> Vec<(String, String, String)> {
    let shown = |value: &Option<Value>| one_line(&spec::shown(value.as_ref().unwrap_or_default()));
    let row = |setting: Setting| {
        let values = &setting.values;
        (setting.path, shown(&values[0]), shown(&values[1]))
    };
    settings(&[was, is]).into_iter().map(row).collect()
}

/// A checkpoint's files under another run's name. They are never written to again, so links serve as well as copies.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else if std::fs::hard_link(entry.path(), &place).is_err() {
            std::fs::copy(entry.path(), &place)?;
        }
    }
    crate::base::files::sync_dir(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use serde_json::json;

    /// What was made of it stayed, and trained from step 0 as a branch of step 500.
    #[test]
    fn a_branch_whose_checkpoint_cannot_be_copied_leaves_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context {
            env: crate::base::paths::Env::default(),
            clock: SystemClock::new(),
            runs_dir: dir.path().join("runs"),
            ascii: false,
            theme: None,
            hardware: None,
            stdin_is_terminal: false,
            stdout_is_terminal: false,
        };
        let parent = RunDir::create(dir.path(), "a", "{}", "", &cx.clock).unwrap();
        let path = parent.checkpoints_path().join("step-000500");
        let branch = Branch {
            parent,
            from: Some(CheckpointEntry { step: 500, path }),
            loaded: spec::load("quickstart", &[], &Default::default()).unwrap(),
            changes: Vec::new(),
            told: Vec::new(),
            moved: Vec::new(),
            rows: 1,
        };
        branch.make(&cx).unwrap_err();
        assert_eq!(std::fs::read_dir(&cx.runs_dir).unwrap().count(), 0);
    }

    /// The coefficient that the parent's controller had moved stayed.
    #[test]
    fn a_branch_that_names_the_kl_coefficient_begins_with_it() {
        let mut progress = Progress {
            kl_coef: Some(0.07),
            ..Progress::default()
        };
        progress.adjustments.lr = Some(1e-3);
        progress.adjustments.clip_norm = Some(5.0);
        let load = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            spec::load("ppo-demo", &words, &spec::SpecSources::default()).unwrap()
        };
        let was = load(&[]).spec;
        let of = |word: &str| moved(&progress, &was, &load(&[word]));
        assert_eq!(of("method.ppo.beta=0.05"), [("beta", 0.07)]);
        assert_eq!(of("optimizer.adamw.lr=1e-4"), [("lr", 1e-3)]);
        assert!(of("optimizer.adamw.beta2=0.95").is_empty());
        // One setting by its other names, and as a part of a map.
        for word in [
            "lr=1e-4",
            "learning_rate=1e-4",
            "learning-rate=1e-4",
            "optimizer={adamw: {lr: 1e-4}}",
            "optimizer.adamw={lr: 1e-4}",
        ] {
            assert_eq!(of(word), [("lr", 1e-3)], "{word}");
        }
        for word in ["clip-norm=1", "max_grad_norm=1", "train.grad_clip=1"] {
            assert_eq!(of(word), [("clip_norm", 5.0)], "{word}");
        }
        assert_eq!(of("optimizer=lion"), [("lr", 1e-3)]);
    }

    /// It passed the dry run, and a run that no checkpoint fits stayed behind.
    #[test]
    fn another_choice_than_the_checkpoints_is_refused_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let sources = spec::SpecSources::default();
        let load = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            spec::load("quickstart", &words, &sources).unwrap()
        };
        let refused = |before: &[&str], words: &[&str]| {
            let clock = SystemClock::new();
            let parent = RunDir::create(dir.path(), "q", "{}", "", &clock).unwrap();
            let path = parent.checkpoints_path().join("step-000020");
            let loaded = load(&[before, words].concat());
            let (was, is) = (load(before).spec.to_value(), loaded.spec.to_value());
            let branch = Branch {
                parent,
                from: Some(CheckpointEntry { step: 20, path }),
                loaded,
                changes: differences(&was, &is),
                told: of_specs(&was, &is),
                moved: Vec::new(),
                rows: 1,
            };
            assert!(branch.check(true).is_err() != words[0].starts_with("optimizer"));
            let error = branch.check(false).unwrap_err();
            let failure = error.downcast::<Failure>().unwrap();
            format!("{}; {}", failure.what, failure.hint)
        };
        for (words, what, hint) in [
            (
                "optimizer=lion",
                "change optimizer: its checkpoint fixes adamw, not lion",
                "-s optimizer=lion -s train.from=",
            ),
            (
                "method=sft",
                "change method: its checkpoint fixes pretrain, not sft",
                "-s method=sft -s train.from=",
            ),
            (
                "adapter=lora",
                "change adapter: its checkpoint fixes none, not lora",
                "-s adapter=lora -s train.from=",
            ),
            ("n_layer=3", "change model.n_layer", "@0 -s model.n_layer=3"),
            (
                "tokenizer=bpe",
                "change data.tokenizer: its checkpoint fixes char, not bpe",
                "@0 -s data.tokenizer=bpe",
            ),
        ] {
            let said = refused(&[], &[words]);
            assert!(said.contains(what) && said.contains(hint), "{said}");
        }
        let said = refused(&["optimizer=soap"], &["optimizer.soap.max_dim=16"]);
        assert!(said.contains("change optimizer.soap.max_dim"), "{said}");
    }

    /// Settings of the parent's optimizer were listed as `0.001 → auto`, and scripts were not told of the branch at all.
    #[test]
    fn a_branch_lists_what_was_chosen_for_people_and_for_scripts() {
        let dir = tempfile::tempdir().unwrap();
        let clock = crate::base::clock::SystemClock::new();
        let sources = spec::SpecSources::default();
        let load = |words: &[String]| spec::load("quickstart", words, &sources).unwrap();
        let loaded = load(&["optimizer=lion".into()]);
        let (was, is) = (load(&[]).spec.to_value(), loaded.spec.to_value());
        let branch = Branch {
            parent: RunDir::create(dir.path(), "quickstart", "{}", "", &clock).unwrap(),
            from: None,
            loaded,
            changes: differences(&was, &is),
            told: of_specs(&was, &is),
            moved: vec![("lr", 0.5)],
            rows: 1,
        };
        let lines = branch.lines().join("\n");
        assert!(lines.contains("optimizer  adamw → lion"), "{lines}");
        // In the workbench nobody types `-s`.
        let moved = format!(
            "lr was set to 0.5 while {} ran; the branch takes the value given for it",
            branch.parent.folder()
        );
        assert!(lines.contains(&moved), "{lines}");
        assert!(!lines.contains("auto"), "{lines}");
        let json = serde_json::to_value(branch.summary()).unwrap();
        let change = json!({"path": "optimizer", "was": "adamw", "is": "lion"});
        assert_eq!((&json["step"], &json["changes"][0]), (&json!(0), &change));
        assert_eq!(json["adjusted"], json!({"lr": 0.5}));
        assert_eq!(json["run"], branch.parent.folder());
    }

    #[test]
    fn what_differs_is_told_by_its_path() {
        let was = json!({"train": {"max_steps": 10, "threads": null}, "optimizer": {"adamw": {"lr": 0.001}}});
        let is =
            json!({"train": {"max_steps": 10, "threads": 2}, "optimizer": {"adamw": {"lr": 0.01}}});
        let row =
            |path: &str, was: &str, is: &str| (path.to_string(), was.to_string(), is.to_string());
        let expected = [
            row("train.threads", "auto", "2"),
            row("optimizer.adamw.lr", "0.001", "0.01"),
        ];
        assert_eq!(differences(&was, &is), expected);
        assert!(differences(&is, &is).is_empty());
        let lion = json!({"optimizer": {"lion": {"lr": 0.01}}});
        let told = differences(&json!({"optimizer": {"adamw": {"lr": 0.01}}}), &lion);
        assert!(told.iter().all(|(path, ..)| path.starts_with("optimizer.")));
        assert_eq!(told.len(), 2);
    }
}
