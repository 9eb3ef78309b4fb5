//! `llmtui card`: the model card of a run, for the hub.

use super::exit::{Exit, Failure};
use super::{Context, export, model_ref, run_ref};
use crate::base::files::write_atomic;
use crate::base::human;
use crate::base::near::did_you_mean;
use crate::base::text::{one_line, shown};
use crate::data::source::Origin;
use crate::engine::checkpoint::{SavedState, read_state};
use crate::engine::export::{
    About, AdapterSource, CardResult, PEFT, Source, adapter_card, card, check_gguf, gguf_card,
};
use crate::models::Parts;
use crate::run::{RunDir, RunState};
use crate::spec::RunSpec;
use crate::tasks::{self, Kept};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Write a run's model card: README.md with hub metadata, training procedure, data, evaluation, environment
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui card shakespeare --license mit
  llmtui card runs/… --license apache-2.0 --to out/model/README.md
  llmtui card my-lora-run --format peft --base-model org/name     # of the adapter alone; else of base and adapter merged
  llmtui card shakespeare --format gguf --to out/gguf/README.md --force

It describes the weights of the run's best checkpoint. Results come from llmtui eval. The card has placeholders for what only you know (intended use, limitations, the data's license).")]
pub struct Args {
    /// A run: directory, id or part of an id
    #[arg(value_name = "RUN")]
    pub run: String,
    /// What the card describes: `hf` a folder with the whole model, adapters merged; `gguf` the same as a GGUF file; `peft` only
    /// the adapter of a LoRA, DoRA or QLoRA run
    #[arg(long, value_name = "FORMAT", default_value = "hf", value_parser = ["hf", "gguf", "peft"])]
    pub format: String,
    /// Hub id of the base model; default: what the run started from
    #[arg(long, value_name = "ORG/NAME", value_parser = model_ref::base_model)]
    pub base_model: Option<String>,
    /// License, as a hub identifier: apache-2.0, mit, cc-by-4.0, other …
    #[arg(long, value_name = "ID", value_parser = license)]
    pub license: Option<String>,
    /// Language of the texts, as an ISO 639 code (en, de; code for programs); may be repeated
    #[arg(long = "language", value_name = "CODE", value_parser = language)]
    pub languages: Vec<String>,
    /// Output file; an existing one is not overwritten: what you filled in would be lost
    #[arg(long, value_name = "FILE", default_value = "README.md")]
    pub to: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// Folder of evaluations (see llmtui eval --out)
    #[arg(long, value_name = "DIR", default_value = "evals")]
    pub evals: PathBuf,
}

pub(super) fn license(text: &str) -> Result<String, String> {
    let own = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    match !text.is_empty() && text.chars().all(own) {
        true => match crate::release::license_is_listed(text) {
            Ok(()) => Ok(text.into()),
            Err(near) => {
                let near = near.map_or_else(
                    || " (apache-2.0, mit, cc-by-4.0 …).".into(),
                    |near| format!(": {}", did_you_mean(near)),
                );
                Err(format!(
                    "the hub lists no such license{near} use `other` for one that is not listed"
                ))
            }
        },
        false => Err(
            "hub identifiers are lowercase letters, digits, `-` and `.`: apache-2.0, mit, other"
                .into(),
        ),
    }
}

pub(super) fn language(text: &str) -> Result<String, String> {
    let is_code = (2..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase());
    match is_code || matches!(text, "code" | "multilingual") {
        true => Ok(text.into()),
        false => Err("an ISO 639 code has two or three lowercase letters: en, de, swa".into()),
    }
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let run = run_ref::named(&args.run, cx)?;
    if args.to.exists() && !args.force {
        let what = format!("{} already exists", shown(&args.to));
        return Err(Failure::user_error(one_line(&what), "another --to, or --force").into());
    }
    let folder = model_ref::find(&args.run, Parts::Everything, cx)?;
    let about = about(&run, &folder, &args.evals, cx)?;
    let about = About {
        license: args.license.clone(),
        languages: args.languages.clone(),
        base_model: args.base_model.clone().or(about.base_model),
        ..about
    };
    let text = match args.format == PEFT.0 {
        true => {
            let source = AdapterSource::open(&folder, about.base_model.as_deref());
            adapter_card(&source.map_err(|e| export::failed(&e))?, "f32", &about)
        }
        false => {
            let source = Source::open(&folder).map_err(|e| export::failed(&e))?;
            if source.from.adapter().is_some() {
                errln!(
                    "the card describes base and adapter merged; --format peft describes the adapter only"
                );
            }
            match args.format == "gguf" {
                true => {
                    check_gguf(&source).map_err(|e| export::failed(&e))?;
                    gguf_card(&source, None, "as the file's name says", &about)
                }
                false => card(&source, "f32", &about),
            }
        }
    };
    write_atomic(&args.to, text.as_bytes()).map_err(|e| Failure::not_written(&args.to, &e))?;
    outln!("{}", shown(&args.to))?;
    if args.license.is_none() {
        outln!("it names no license: --license apache-2.0, mit, other …")?;
    }
    Ok(Exit::Done)
}

/// What a run knows of the model in one of its checkpoints.
pub(super) fn about(
    run: &RunDir,
    checkpoint: &Path,
    evals: &Path,
    cx: &Context,
) -> anyhow::Result<About> {
    let spec = run_ref::spec_of(run)?;
    let state = run_ref::fold(run)?;
    let saved = read_state(checkpoint).ok();
    let checkpoint = checkpoint.file_name().unwrap_or_default().to_string_lossy();
    let names: Vec<String> = run
        .names()
        .iter()
        .map(|name| format!("{name} {checkpoint}"))
        .collect();
    let kept = tasks::kept(evals, &names, &cx.env)
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
    Ok(About {
        base_model: spec.train.from.as_deref().and_then(base_id),
        datasets: datasets(&spec),
        results: kept.iter().flat_map(results).collect(),
        procedure: procedure(&spec, &state, saved.as_ref()),
        environment: environment(&state),
        ..About::default()
    })
}

/// The base's id on the hub, by its folder in the cache or by its word; a model of this machine has none.
fn base_id(from: &Path) -> Option<String> {
    let cached = crate::hub::id_of_cached(from);
    cached.or_else(|| {
        let word = from.to_str().filter(|_| !from.exists())?;
        crate::models::repo(word).map(|repo| repo.id)
    })
}

fn datasets(spec: &RunSpec) -> Vec<String> {
    let data = &spec.data;
    let mut names: Vec<String> = data
        .sources
        .iter()
        .map(|source| match &source.origin {
            Origin::Hub(id) => id.clone(),
            Origin::Path(name) | Origin::Named(name) => last_part(Path::new(name)),
            Origin::Synthetic(_) => source.to_string(),
        })
        .collect();
    names.extend(data.path.as_deref().map(last_part));
    names.extend(
        data.synthetic
            .as_ref()
            .map(|made| format!("made up: {}", made.entry().id)),
    );
    if names.is_empty() {
        names.push(data.corpus.clone());
    }
    names
}

/// A file, folder or glob without its place, which readers cannot use and which tells of its owner's machine.
fn last_part(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn results(kept: &Kept) -> Vec<CardResult> {
    let summary = &kept.summary;
    let of_all = summary
        .readings
        .iter()
        .filter(|reading| reading.group.is_none());
    let result = |reading: &tasks::Reading| CardResult {
        task: summary.task.clone(),
        metric: reading.metric.clone(),
        value: reading.value,
        stderr: reading.stderr,
        items: summary.items,
        shots: summary.shots,
        limited: kept.limited,
        origin: kept.origin,
    };
    of_all.map(result).collect()
}

/// How long the weights of a checkpoint were trained, and what they reached: it may be of an earlier step than the run's last.
fn extent(state: &RunState, saved: Option<&SavedState>) -> Vec<(String, String)> {
    let here = saved.map(|saved| (saved.progress.step, saved.progress.tokens));
    let (step, tokens) = here.unwrap_or((state.step, state.tokens));
    let steps = match step < state.step {
        true => format!(
            "{} of the run's {}",
            human::grouped(step),
            human::grouped(state.step)
        ),
        false => human::grouped(step),
    };
    let mut facts = vec![
        ("steps".to_string(), steps),
        ("tokens".to_string(), human::grouped(tokens)),
    ];
    let mut measured = state.evaluations.iter().rev();
    if let Some(at) = measured.find(|at| at.step == step && at.val_loss().is_finite()) {
        facts.push(("validation loss".into(), human::loss(at.val_loss())));
    }
    if state.seconds > 0.0 {
        let name = match step < state.step {
            true => "time of the whole run",
            false => "time",
        };
        facts.push((name.into(), human::seconds(state.seconds)));
    }
    facts
}

fn procedure(
    spec: &RunSpec,
    state: &RunState,
    saved: Option<&SavedState>,
) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> =
        vec![("method".into(), spec.method.entry().title.into())];
    let mut add = |name: &str, value: String| facts.push((name.into(), value));
    if let Some(from) = &spec.train.from {
        let name = base_id(from).unwrap_or_else(|| crate::models::name_of(from));
        add("started from", name);
    }
    for (name, value) in of_method(spec).into_iter().chain(of_adapter(spec)) {
        add(&name, value);
    }
    for (name, value) in extent(state, saved) {
        add(&name, value);
    }
    add(
        "sequences of a step × length",
        format!(
            "{} × {}",
            spec.train.micro_batch_size * spec.train.grad_accum_steps,
            spec.model.seq_len
        ),
    );
    add("optimizer", spec.optimizer.entry().title.into());
    if let Some(lr) = state.settings.get("lr") {
        add("peak learning rate", lr.to_string());
    }
    add("schedule", spec.schedule.entry().title.into());
    if let Some(precision) = state.head.as_ref().and_then(|head| head.precision.clone()) {
        add("precision of matmuls", precision);
    }
    facts
}

/// Settings of the method, and of the answers that it learns from: its coefficients, clipping, group size, both phases' rates.
fn of_method(spec: &RunSpec) -> Vec<(String, String)> {
    let value = spec.to_value();
    let chosen = value["method"][spec.method.entry().id].as_object();
    // Noise of 0 is none.
    let is_used = |(key, value): &(&String, &Value)| {
        key.as_str() != "neftune_alpha" || value.as_f64() != Some(0.0)
    };
    let settings = chosen.into_iter().flatten();
    let mut facts: Vec<(String, String)> = settings
        .filter(is_used)
        .filter_map(|(key, value)| Some((key.clone(), one_line(&word(value)?))))
        .collect();
    let Some(length) = spec.rollout_length() else {
        return facts;
    };
    let mut add = |name: &str, value: String| facts.push((name.into(), value));
    let rollout = &spec.rollout;
    add("rollouts", length.words());
    add("group size", length.group_size.to_string());
    add(
        "temperature of the answers",
        rollout.temperature.to_string(),
    );
    let lr = spec.optimizer.lr();
    if length.cold_start_steps > 0 {
        add("peak learning rate of the cold start", lr.to_string());
    }
    let scaled = human::reading(lr * rollout.lr_scale, "");
    add("peak learning rate of reinforcement learning", scaled);
    facts
}

/// A setting's value; nothing where it is empty.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Array(list) if !list.is_empty() => Some(crate::spec::shown(value)),
        _ => None,
    }
}

/// What of the adapters a reader needs to train them again; nothing where the weights themselves train.
fn of_adapter(spec: &RunSpec) -> Vec<(String, String)> {
    const SETTINGS: [(&str, &str); 9] = [
        ("rank", "LoRA r"),
        ("alpha", "LoRA alpha"),
        ("dropout", "LoRA dropout"),
        ("targets", "LoRA targets"),
        ("custom", "LoRA target layers"),
        ("patterns", "LoRA target modules"),
        ("rslora", "rsLoRA"),
        ("dora", "DoRA"),
        ("modules_to_save", "modules trained in full"),
    ];
    let value = spec.to_value();
    let lora = &value["adapter"]["lora"];
    let settings = SETTINGS
        .iter()
        .filter(|(key, _)| lora[*key] != Value::Bool(false));
    settings
        .filter_map(|(key, name)| Some(((*name).to_string(), one_line(&word(&lora[*key])?))))
        .collect()
}

fn environment(state: &RunState) -> Vec<(String, String)> {
    let mut facts = vec![("program".to_string(), format!("llmtui {}", state.engine))];
    // Of the machine what is a plain word or number; its name stays at home.
    if let Some(Value::Object(machine)) = &state.machine {
        for (key, value) in machine {
            match value {
                Value::String(text) if !text.is_empty() && !key.contains("host") => {
                    facts.push((key.clone(), text.clone()));
                }
                Value::Number(number) => facts.push((key.clone(), number.to_string())),
                _ => {}
            }
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_tells_the_settings_of_its_method() {
        let of = |preset: &str| {
            let sources = crate::spec::SpecSources {
                project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
                ..crate::spec::SpecSources::default()
            };
            of_method(&crate::spec::load(preset, &[], &sources).unwrap().spec)
        };
        let grpo = of("grpo-arithmetic");
        let said = |facts: &[(String, String)], name: &str| {
            let found = facts.iter().find(|fact| fact.0 == name);
            found
                .unwrap_or_else(|| panic!("{name}: {facts:?}"))
                .1
                .clone()
        };
        assert_eq!(said(&grpo, "clip_low"), "0.2");
        assert_eq!(said(&grpo, "group size"), "8");
        assert!(said(&grpo, "beta").starts_with('0'));
        assert!(said(&grpo, "rollouts").starts_with("350 supervised steps"));
        assert_eq!(said(&grpo, "peak learning rate of the cold start"), "0.002");
        let rl = said(&grpo, "peak learning rate of reinforcement learning");
        assert!(
            rl.parse::<f64>().is_ok_and(|lr| (lr - 3e-4).abs() < 1e-9),
            "{rl}"
        );
        assert_eq!(said(&of("dpo-demo"), "loss"), "sigmoid");
        assert!(!of("dpo-demo").iter().any(|fact| fact.0 == "group size"));
        assert!(!of("quickstart").iter().any(|fact| fact.0 == "rollouts"));
    }

    /// A card of a LoRA run named no rank, alpha, targets or dropout, but noise of 0.
    #[test]
    fn a_card_tells_what_adapters_were_trained() {
        let spec = |preset: &str| {
            let sources = crate::spec::SpecSources {
                project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
                ..crate::spec::SpecSources::default()
            };
            crate::spec::load(preset, &[], &sources).unwrap().spec
        };
        let lora = spec("sft-lora-demo");
        let facts = of_adapter(&lora);
        let names: Vec<&str> = facts.iter().map(|fact| fact.0.as_str()).collect();
        assert_eq!(
            names,
            ["LoRA r", "LoRA alpha", "LoRA dropout", "LoRA targets"]
        );
        assert_eq!((facts[0].1.as_str(), facts[3].1.as_str()), ("16", "all"));
        assert!(
            !of_method(&lora)
                .iter()
                .any(|fact| fact.0 == "neftune_alpha")
        );
        assert!(of_adapter(&spec("quickstart")).is_empty());
    }

    /// Its place says who the user is, and is of no use to a reader.
    #[test]
    fn files_of_the_training_data_are_named_without_their_place() {
        let of = |text: &str| {
            let sources = crate::spec::SpecSources {
                project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
                ..crate::spec::SpecSources::default()
            };
            let settings = [text.to_string()];
            datasets(&crate::spec::load("sft", &settings, &sources).unwrap().spec)
        };
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().display();
        for name in ["chats.jsonl", "more.jsonl"] {
            let row = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
            std::fs::write(dir.path().join(name), row).unwrap();
        }
        assert_eq!(
            of(&format!("data.path={place}/chats.jsonl")),
            ["chats.jsonl"]
        );
        let several = format!(
            "data.sources=[{place}/chats.jsonl, {{path: {place}/*.jsonl}}, {{hub: org/set}}]"
        );
        assert_eq!(of(&several), ["chats.jsonl", "*.jsonl", "org/set"]);
    }

    /// The best checkpoint of a run that went on, and one that nothing was measured of.
    #[test]
    fn a_card_tells_how_long_its_own_weights_were_trained() {
        use crate::wire::{Envelope, Event};
        use serde_json::json;
        let mut events = vec![
            json!({"type": "Started", "name": "r", "method": "pretrain", "spec": {}, "n_params": 1, "vocab_size": 1,
            "max_steps": 40, "batch_tokens": 10, "epoch_tokens": 1}),
        ];
        for step in 1..=40 {
            events.push(json!({"type": "Stepped", "step": step, "tokens": 1000 * step, "values": {"train/loss": 1.0}}));
            if step == 25 || step == 40 {
                let loss = if step == 25 { 3.25 } else { 3.5 };
                events.push(json!({"type": "Evaluated", "step": step, "tokens": 1, "values": {"val/loss": loss}, "n_windows": 1,
                    "whole": false, "seconds": 0.1}));
            }
        }
        let envelope = |(seq, event): (u64, serde_json::Value)| -> Envelope {
            let event: Event = serde_json::from_value(event).unwrap();
            serde_json::from_value(json!({"v": 1, "seq": seq, "t": seq, "event": event})).unwrap()
        };
        let events: Vec<Envelope> = (1..).zip(events).map(envelope).collect();
        let state = RunState::from_events(&events);
        let saved = |step: u64| -> SavedState {
            let text = json!({"progress": {"step": step, "tokens": 1000 * step}, "fingerprint": {"data": "", "tokenizer": "", "threads": 1, "program": "", "arch": ""}});
            serde_json::from_value(text).unwrap()
        };
        let words = |step: u64| -> Vec<String> {
            let facts = extent(&state, Some(&saved(step)));
            let facts = facts.iter().filter(|fact| !fact.0.starts_with("time"));
            facts
                .map(|(name, value)| format!("{name}: {value}"))
                .collect()
        };
        assert_eq!(
            words(25),
            [
                "steps: 25 of the run's 40",
                "tokens: 25,000",
                "validation loss: 3.2500"
            ]
        );
        assert_eq!(words(30), ["steps: 30 of the run's 40", "tokens: 30,000"]);
        assert_eq!(
            words(40),
            ["steps: 40", "tokens: 40,000", "validation loss: 3.5000"]
        );
    }

    #[test]
    fn a_license_that_the_hub_does_not_list_is_refused_with_the_nearest() {
        assert!(license("mit").is_ok() && license("other").is_ok() && license("cc-by-4.0").is_ok());
        let error = license("mitt").unwrap_err();
        assert!(error.contains("did you mean mit?"), "{error}");
        assert!(
            license("quite-something-else")
                .unwrap_err()
                .contains("apache-2.0")
        );
        assert!(license("MIT license").is_err());
    }
}
