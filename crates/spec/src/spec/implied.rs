//! What a layer implies for values of the layers below it: setting other data replaces a preset's, setting steps replaces
//! epochs, and changing the peak learning rate keeps the ratio of the final one. Of two values of one layer that say the same
//! in different ways it says which one counts. And what all layers together imply for a value that none of them sets.

use super::RunConfig;
use super::issue::Origin;
use super::length::warmup_steps;
use super::merge::Merged;
use crate::data::Order;
use crate::optim::OptimizerConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Each says where training text comes from.
const DATA: [&str; 4] = ["data.path", "data.sources", "data.synthetic", "data.corpus"];
/// Each says how long a run is.
const LENGTH: [&str; 2] = ["train.max_steps", "train.epochs"];
/// Each says what is held out.
const HELD_OUT: [&str; 2] = ["data.val_fraction", "data.val_rows"];
/// In place of the schedule's own steps.
const WARMUP: &str = "train.warmup_ratio";
/// One weight for each of the sources: nothing of it holds for others.
const CURRICULUM: &str = "data.curriculum";
const EPOCHS: &str = "train.epochs";
const ORDER: &str = "data.order";

/// Applies the implications of a layer that set `said` (dotted paths, choices too) on top of `before`.
pub(super) fn apply(merged: &mut Merged, before: &Value, said: &BTreeSet<String>) {
    let others = DATA.into_iter().chain([CURRICULUM]).collect::<Vec<_>>();
    replace(merged, said, &DATA, &others);
    replace(merged, said, &LENGTH, &LENGTH);
    replace(merged, said, &HELD_OUT, &HELD_OUT);
    // A ratio replaces steps by itself: it is turned into them.
    if let Some(steps) = member_path(&merged.value, "schedule", "warmup_steps") {
        replace(merged, said, &[&steps], &[WARMUP]);
        prefer_steps(merged, said, &steps);
    }
    scale_floor(merged, before, said);
    drop_about(merged, before, said);
}

/// What a preset says of itself is untrue of a run with another method: GRPO's words announced a run with PPO.
fn drop_about(merged: &mut Merged, before: &Value, said: &BTreeSet<String>) {
    let kind = |value: &Value| match value.get("method")? {
        Value::String(word) => Some(word.clone()),
        method => method.as_object()?.keys().next().cloned(),
    };
    let (Some(old), Some(new)) = (kind(before), kind(&merged.value)) else {
        return;
    };
    if old == new || said.contains("about") {
        return;
    }
    if let Some(map) = merged.value.as_object_mut() {
        map.shift_remove("about");
    }
    merged.origins.forget("about");
}

/// What a value at `path` replaces in the layers below it, besides the value there; `*` stands for any member.
pub(super) fn replaced_by(path: &str) -> Vec<&'static str> {
    const STEPS: &str = "schedule.*.warmup_steps";
    let names = |key: &str| path == key || path.starts_with(&format!("{key}."));
    let one_of = |keys: &[&str]| keys.iter().any(|key| names(key));
    let others = |keys: &[&'static str]| -> Vec<&'static str> {
        keys.iter().copied().filter(|key| !names(key)).collect()
    };
    let is_steps = path.starts_with("schedule.") && path.ends_with(".warmup_steps");
    match () {
        () if one_of(&DATA) => [others(&DATA), vec![CURRICULUM]].concat(),
        () if one_of(&LENGTH) => others(&LENGTH),
        () if one_of(&HELD_OUT) => others(&HELD_OUT),
        () if path == WARMUP => vec![STEPS],
        () if is_steps => vec![WARMUP],
        () => Vec::new(),
    }
}

/// Applies what all layers together imply, once the last one is applied. Epochs are passes over the data: windows of a text are
/// then read once each, where independent draws would leave out e^-1 of the tokens of a pass. The spec of a run names its order
/// and keeps it.
pub(super) fn settle(merged: &mut Merged) {
    let in_epochs = at(&merged.value, EPOCHS).is_some_and(|epochs| !epochs.is_null());
    if !in_epochs || at(&merged.value, ORDER).is_some() {
        return;
    }
    if !merged.value["data"].is_object() {
        merged.value["data"] = Value::Object(Map::new());
    }
    merged.value["data"]["order"] = json!(Order::Shuffled);
    merged.origins.set(ORDER, Origin::Derived);
}

/// Where the layer gives one of `keys`, those of `others` that it does not name are gone.
fn replace(merged: &mut Merged, said: &BTreeSet<String>, keys: &[&str], others: &[&str]) {
    let names = |key: &str| {
        let below = format!("{key}.");
        said.iter().any(|p| p == key || p.starts_with(&below))
    };
    let given = |merged: &Merged, key: &str| {
        names(key) && at(&merged.value, key).is_some_and(|v| !v.is_null())
    };
    if !keys.iter().any(|key| given(merged, key)) {
        return;
    }
    for key in others {
        if !names(key) {
            remove(merged, key);
        }
    }
}

/// Of a file's warm-up in steps and its share of the run the steps count. On one command line neither is the later one, which
/// is refused (`validate/length`).
fn prefer_steps(merged: &mut Merged, said: &BTreeSet<String>, path: &str) {
    let typed = matches!(merged.origins.get(WARMUP), Origin::Set(_));
    if typed || !said.contains(WARMUP) || !said.contains(path) {
        return;
    }
    let ratio = at(&merged.value, WARMUP).and_then(Value::as_f64);
    let steps = at(&merged.value, path).and_then(Value::as_u64);
    let (Some(ratio), Some(steps)) = (ratio, steps) else {
        return;
    };
    let [length, _] = LENGTH;
    let whole = said
        .contains(length)
        .then(|| at(&merged.value, length)?.as_u64());
    // A run's own spec says both: what the share came to.
    if whole
        .flatten()
        .is_some_and(|all| warmup_steps(ratio, all) == steps)
    {
        return;
    }
    remove(merged, WARMUP);
    let why = format!("warmup_steps {steps} of the same file counts, not the share {ratio}");
    merged.origins.set(WARMUP, Origin::Implied(why));
}

fn remove(merged: &mut Merged, path: &str) {
    if let Some((section, key)) = path.rsplit_once('.')
        && let Some(map) = merged.value.get_mut(section).and_then(Value::as_object_mut)
    {
        map.shift_remove(key);
    }
    merged.origins.forget(path);
}

/// A floor from a layer below moves with the peak, also where another optimizer brings the peak: `-s lr=1e-5` on a preset of
/// 1e-3 and 1e-4 means a floor of 1e-6, and `-s optimizer=lion`, whose default is 1e-4, one of 1e-5.
fn scale_floor(merged: &mut Merged, before: &Value, said: &BTreeSet<String>) {
    let Some(floor_path) = member_path(&merged.value, "schedule", "min_lr") else {
        return;
    };
    if said.contains(&floor_path) {
        return;
    }
    let floor = at(before, &floor_path).and_then(Value::as_f64);
    let (Some(old), Some(new), Some(floor)) = (peak(before), peak(&merged.value), floor) else {
        return;
    };
    // A peak of 0 is an error of its own, and has no shares.
    if old == new || old <= 0.0 || new <= 0.0 || floor <= 0.0 {
        return;
    }
    let scaled = round(floor * new / old);
    let pointer = format!("/{}", floor_path.replace('.', "/"));
    if let Some(place) = merged.value.pointer_mut(&pointer) {
        *place = Value::from(scaled);
        let why = format!("scaled with lr, from {floor} at {old}");
        merged.origins.set(&floor_path, Origin::Implied(why));
    }
}

/// The peak learning rate, that of the optimizer's defaults where no layer says it.
fn peak(value: &Value) -> Option<f64> {
    match value.get("optimizer") {
        Some(optimizer) => OptimizerConfig::deserialize(optimizer).ok(),
        None => Some(RunConfig::default().optimizer),
    }
    .map(|optimizer| optimizer.lr())
}

/// Six digits: 1e-4 · 1e-5 / 1e-3 is 1e-6, not 1.0000000000000002e-6.
fn round(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}

/// The path of a setting of the selected member of a registry that was set.
fn member_path(value: &Value, registry: &str, key: &str) -> Option<String> {
    let member = value.get(registry)?.as_object()?.keys().next()?;
    Some(format!("{registry}.{member}.{key}"))
}

fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    value.pointer(&format!("/{}", path.replace('.', "/")))
}

#[cfg(test)]
mod tests {
    use crate::data::Order;
    use crate::optim::schedule::ScheduleConfig;
    use crate::spec::{
        Draft, Origin, PresetGroup, RunSpec, SpecSources, load, load_text, load_text_with, presets,
    };

    fn floor(overrides: &[&str]) -> (f64, Origin) {
        let words: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        let loaded = load("quickstart", &words, &SpecSources::default()).unwrap();
        let ScheduleConfig::Cosine(cosine) = &loaded.spec.schedule else {
            panic!("quickstart anneals by cosine");
        };
        let origin = loaded.origins.get("schedule.cosine.min_lr");
        (cosine.min_lr.unwrap(), origin)
    }

    /// The demo's own rows were trained on, without a word.
    #[test]
    fn a_corpus_replaces_the_data_of_a_preset() {
        let sources = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let loaded = load("cpt-demo", &words, &SpecSources::default()).unwrap();
            loaded.spec.data.all_sources().len()
        };
        assert_eq!(sources(&[]), 1);
        assert_eq!(sources(&["data.corpus=tinyshakespeare"]), 0);
    }

    #[test]
    fn another_method_takes_the_words_of_the_preset_away() {
        let about = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let loaded = load("grpo-gsm8k", &words, &SpecSources::default()).unwrap();
            loaded.spec.about.clone()
        };
        assert!(about(&[]).starts_with("GRPO"));
        assert!(about(&["method.grpo.clip_high=0.3"]).starts_with("GRPO"));
        assert_eq!(about(&["method=ppo"]), "");
        assert_eq!(about(&["method=ppo", "about=mine"]), "mine");
    }

    #[test]
    fn the_floor_of_a_preset_follows_the_peak_of_the_command_line() {
        let (min_lr, origin) = floor(&["lr=1e-5"]);
        assert_eq!(min_lr, 1e-6);
        assert_eq!(origin.to_string(), "scaled with lr, from 0.0001 at 0.001");
        assert_eq!(floor(&["lr=2e-3"]).0, 2e-4);
        assert_eq!(floor(&["lr=1e-5", "min_lr=0"]).0, 0.0);
        let words = ["lr=1e-5".into(), "min_lr=1e-4".into()];
        assert!(load("quickstart", &words, &SpecSources::default()).is_err());
    }

    #[test]
    fn the_floor_of_a_preset_follows_the_rate_of_another_optimizer() {
        let (min_lr, origin) = floor(&["optimizer=lion"]);
        assert_eq!(min_lr, 1e-5);
        assert_eq!(origin.to_string(), "scaled with lr, from 0.0001 at 0.001");
        assert_eq!(floor(&["optimizer=lion", "lr=3e-4"]).0, 3e-5);
        assert_eq!(floor(&["optimizer.lion.lr=2e-4"]).0, 2e-5);
        assert_eq!(floor(&["optimizer=lion", "min_lr=2e-6"]).0, 2e-6);
        // The same rate by another rule.
        assert_eq!(floor(&["optimizer=soap", "lr=1e-3"]).0, 1e-4);
        // Every preset takes every optimizer that its method has, with a rate that falls.
        for preset in presets(&SpecSources::default()) {
            for optimizer in ["lion", "adafactor", "adamw8bit"] {
                let mut words = vec![format!("optimizer={optimizer}")];
                if preset.name == "distill" {
                    let to_come = crate::models::TO_COME;
                    words.push(format!("method.distill.teacher={to_come}"));
                }
                let loaded = load(&preset.name, &words, &SpecSources::default());
                let spec = loaded
                    .unwrap_or_else(|e| panic!("{}: {e}", preset.name))
                    .spec;
                let (lr, min_lr) = (spec.optimizer.lr(), spec.schedule.min_lr());
                assert!(min_lr.is_none_or(|floor| floor < lr), "{}", preset.name);
            }
        }
    }

    #[test]
    fn a_share_and_a_count_of_held_out_rows_replace_each_other() {
        let held = |text: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let text = format!("extends: dpo-demo\ndata: {{{text}}}\n");
            let loaded = load_text_with("a.yaml", &text, &words, &SpecSources::default());
            let data = loaded.unwrap().spec.data.clone();
            (data.val_share(), data.val_rows)
        };
        assert_eq!(held("val_rows: 30", &[]), (None, Some(30)));
        assert_eq!(
            held("val_rows: 30", &["val_fraction=0.2"]),
            (Some(0.2), None)
        );
        assert_eq!(held("val_fraction: 0.2", &["val_rows=9"]), (None, Some(9)));
    }

    #[test]
    fn what_a_file_says_of_both_is_kept() {
        let text = "extends: quickstart\noptimizer: {adamw: {lr: 1.0e-4}}\nschedule: {cosine: {min_lr: 5.0e-5}}\n";
        let loaded = load_text("mine.yaml", text, &SpecSources::default()).unwrap();
        assert!(loaded.notes().is_empty());
        let text = "extends: quickstart\noptimizer: {adamw: {lr: 1.0e-4}}\n";
        let loaded = load_text("mine.yaml", text, &SpecSources::default()).unwrap();
        assert_eq!(
            loaded.notes(),
            ["min_lr 0.00001: scaled with lr, from 0.0001 at 0.001"]
        );
    }

    #[test]
    fn other_data_replace_those_of_a_preset_with_their_curriculum() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("my.txt");
        std::fs::write(&file, "some text").unwrap();
        let word = format!("data.path={}", file.display());
        let loaded = load("size-7b", &[word], &SpecSources::default()).unwrap();
        assert!(loaded.spec.data.sources.is_empty());
        let list = format!("data.sources=[{}]", file.display());
        let loaded = load("dpo-demo", &[list], &SpecSources::default()).unwrap();
        let place = loaded.spec.data.sources[0].to_string();
        assert_eq!(
            (loaded.spec.data.sources.len(), place),
            (1, file.display().to_string())
        );
        // Said together, both are the user's: a contradiction.
        let words = ["data.path=a".into(), "data.sources=[b]".into()];
        assert!(load("quickstart", &words, &SpecSources::default()).is_err());
    }

    #[test]
    fn templates_count_in_epochs_unless_the_user_says_steps() {
        let sources = SpecSources::default();
        let templates = presets(&sources)
            .into_iter()
            .filter(|preset| preset.group == PresetGroup::Template);
        let mut seen = 0;
        for preset in templates {
            let load = |words: &[&str]| {
                let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
                if preset.name == "distill" {
                    let to_come = crate::models::TO_COME;
                    words.push(format!("method.distill.teacher={to_come}"));
                }
                load(&preset.name, &words, &sources).unwrap().spec
            };
            let spec = load(&[]);
            // Answers of its own: steps.
            if spec.method.on_policy().is_some() {
                continue;
            }
            seen += 1;
            let epochs = spec.train.epochs.unwrap();
            assert!((1.0..=3.0).contains(&epochs), "{}", preset.name);
            // A run of 15 steps is evaluated and saved several times, and warms up.
            let short = spec.to_step(15);
            assert_eq!(short.schedule.warmup_steps(), 2, "{}", preset.name);
            // A reward model has nothing to sample.
            let told = short.cadence_text().replace(", sampled every 3 steps", "");
            let rhythm = "evaluated every 2 steps, saved every 3 steps";
            assert!(told.starts_with(rhythm), "{}: {told}", preset.name);
            let steps = load(&["train.max_steps=500"]);
            assert_eq!((steps.train.epochs, steps.train.max_steps), (None, 500));
            assert_eq!(steps.schedule.warmup_steps(), 50);
            let plain = load(&["epochs=2", "warmup_steps=7", "eval.every=4"]);
            assert_eq!(plain.train.epochs, Some(2.0));
            let plain = plain.to_step(15);
            assert_eq!(plain.schedule.warmup_steps(), 7);
            assert_eq!(plain.eval.every.steps(15), 4);
        }
        assert_eq!(seen, 10);
    }

    #[test]
    fn epochs_read_each_window_once_unless_an_order_is_set() {
        let sources = SpecSources::default();
        let order = |target: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let loaded = load(target, &words, &sources).unwrap();
            assert!(
                !loaded.asked.contains("order: shuffled"),
                "{}",
                loaded.asked
            );
            loaded
        };
        let of = |target: &str, words: &[&str]| order(target, words).spec.data.order;
        assert_eq!(of("cpt", &[]), Order::Shuffled);
        assert_eq!(of("quickstart", &["epochs=2"]), Order::Shuffled);
        assert_eq!(of("quickstart", &[]), Order::Random);
        assert_eq!(of("cpt", &["max_steps=500"]), Order::Random);
        assert_eq!(of("cpt", &["data.order=random"]), Order::Random);
        let derived = order("cpt", &[]);
        assert_eq!(derived.origins.get("data.order"), Origin::Derived);
        // A run's spec names its order, also one that began with draws.
        let drawn = derived
            .spec
            .to_yaml()
            .replace("order: shuffled", "order: random");
        let again = RunSpec::from_yaml(&drawn).unwrap();
        assert_eq!(
            (again.data.order, again.train.epochs),
            (Order::Random, Some(1.0))
        );
        // The editor shows what a run of its file would have, and does not write it.
        let mut draft = Draft::open("quickstart", &sources).unwrap();
        assert_eq!(draft.value("data.order"), "random");
        draft.set("train.epochs", "2", "").unwrap();
        assert_eq!(draft.value("data.order"), "shuffled");
        assert_eq!(draft.spec().unwrap().data.order, Order::Shuffled);
        assert!(!draft.to_yaml(&[]).contains("order"));
        draft.reset("train.epochs");
        assert_eq!(draft.value("data.order"), "random");
    }

    #[test]
    fn a_template_without_a_model_of_the_users_says_what_it_trains() {
        let told = |target: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let loaded = load(target, &words, &SpecSources::default()).unwrap();
            loaded.notes().join("\n")
        };
        let text = tempfile::NamedTempFile::new().unwrap();
        let path = format!("data.path={}", text.path().display());
        assert!(told("sft", &[]).contains("synthetic rows; -s train.from=MODEL -s data.path=FILE"));
        assert!(told("sft", &[&path]).ends_with("small model; -s train.from=MODEL trains yours"));
        assert_eq!(told("dpo-demo", &[]), "");
    }

    #[test]
    fn steps_of_the_command_line_replace_epochs_of_a_file_and_the_other_way_round() {
        let length = |text: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let text = format!("extends: quickstart\ntrain: {{{text}}}\n");
            let sources = SpecSources::default();
            let spec = load_text_with("a.yaml", &text, &words, &sources)
                .unwrap()
                .spec;
            (spec.train.epochs, spec.train.max_steps)
        };
        assert_eq!(length("epochs: 3", &["max_steps=500"]), (None, 500));
        assert_eq!(length("max_steps: 7", &["epochs=2"]).0, Some(2.0));
        assert_eq!(length("epochs: 3", &[]).0, Some(3.0));
        // A run's own spec says what its epochs come to.
        assert_eq!(length("epochs: 3, max_steps: 41", &[]), (Some(3.0), 41));
        // Both on the command line contradict each other.
        let words = ["epochs=2".into(), "max_steps=40".into()];
        let errors = load("quickstart", &words, &SpecSources::default()).unwrap_err();
        assert!(
            errors.to_string().contains("set only one of them"),
            "{errors}"
        );
        let warmup = |text: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let text = format!("extends: quickstart\ntrain: {{{text}}}\n");
            let loaded = load_text_with("a.yaml", &text, &words, &SpecSources::default());
            loaded.unwrap().spec.schedule.warmup_steps()
        };
        assert_eq!(warmup("warmup_ratio: 0.1, max_steps: 50", &[]), 5);
        assert_eq!(warmup("warmup_ratio: 0.1", &["max_steps=70"]), 7);
        assert_eq!(warmup("warmup_ratio: 0.1", &["warmup_steps=3"]), 3);
        assert_eq!(warmup("max_steps: 50", &["warmup_ratio=0.2"]), 10);
    }

    /// The share won without a word, in whatever form the steps were given.
    #[test]
    fn steps_of_warm_up_are_not_dropped_for_a_share_beside_them() {
        let sources = SpecSources::default();
        let load = |text: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let text = format!("extends: quickstart\n{text}\n");
            load_text_with("a.yaml", &text, &words, &sources)
        };
        let both =
            "train: {warmup_ratio: 0.1, max_steps: 200}\nschedule: {cosine: {warmup_steps: 7}}";
        let loaded = load(both, &[]).unwrap();
        let spec = &loaded.spec;
        assert_eq!(
            (spec.train.warmup_ratio, spec.schedule.warmup_steps()),
            (None, 7)
        );
        let note = "warmup_ratio none: warmup_steps 7 of the same file counts, not the share 0.1";
        assert_eq!(loaded.notes(), [note]);
        let longer = load(both, &["max_steps=300"]).unwrap();
        assert_eq!(longer.spec.schedule.warmup_steps(), 7);
        // A run's own spec says what its share came to, which holds for another length too.
        let run = load("train: {warmup_ratio: 0.1, max_steps: 200}", &[])
            .unwrap()
            .spec
            .to_yaml();
        let again = load_text_with("spec.yaml", &run, &["max_steps=300".into()], &sources).unwrap();
        assert_eq!(
            (again.spec.schedule.warmup_steps(), again.notes()),
            (30, Vec::new())
        );
        for words in [
            ["warmup_ratio=0.1", "warmup_steps=7"],
            ["schedule.cosine.warmup_steps=7", "train.warmup_ratio=0.1"],
        ] {
            let errors = load("", &words).unwrap_err().to_string();
            assert!(errors.contains("both set the warm-up"), "{errors}");
        }
        let null = load("", &["warmup_ratio=null", "warmup_steps=7"]).unwrap();
        assert_eq!(null.spec.schedule.warmup_steps(), 7);
    }
}
