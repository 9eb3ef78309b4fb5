//! `llmtui train --dry-run`: what would be trained, down to the parameter count. Nothing is left behind.

use super::branch::Summary;
use super::exit::{Exit, Failure};
use super::progress::trained_words;
use super::target::{Target, print_notes};
use super::{Context, out};
use crate::base::finding::{Finding, Status};
use crate::base::human::{counted, epochs, grouped, short};
use crate::base::text::one_line;
use crate::data::{DataEnv, Dataset};
use crate::engine::checkpoint::{Fault, Manifest};
use crate::engine::preflight::{overlap, too_large};
use crate::engine::{TrainState, check_reference, extra_sets, vocabulary_growth};
use crate::plan::idle_gpu::idle_gpu_here;
use crate::plan::start::known_ranks;
use crate::rewards::WeightedReward;
use crate::spec::{Origin, RolloutLength, RunSpec};
use crate::workers::{EnvironmentError, environment};
use serde::Serialize;

/// A run that was not started.
#[derive(Serialize)]
struct Outline {
    name: String,
    about: String,
    n_params: u64,
    /// Those that train: all of them, or adapters.
    trainable_params: u64,
    vocab_size: u64,
    /// Of the training and the validation part, and of the sets of `eval.extra`.
    train_tokens: u64,
    val_tokens: u64,
    extra_tokens: Vec<(String, u64)>,
    steps: u64,
    /// Of methods that learn from what is written already; those that learn from answers of their own have `rollouts`.
    step_tokens: Option<u64>,
    run_tokens: Option<u64>,
    /// Tokens of a step and the padding beside them.
    step_places: Option<u64>,
    epochs: Option<f64>,
    rollouts: Option<RolloutLength>,
    /// Prompts of the training split, and passes over them.
    prompts: Option<u64>,
    prompt_passes: Option<f64>,
    threads: usize,
    /// Where ranks of PyTorch would compute; `None` for this program's own engine.
    ranks: Option<String>,
    advice: Vec<Finding>,
    /// What a changed value changed besides itself.
    changes: Vec<String>,
    /// What was noticed while the data were read.
    notes: Vec<String>,
    /// The run and the step that would be gone on from.
    resumes: Option<(String, u64)>,
    /// Where the run would be a branch: of which run and step, with which changes.
    branch: Option<Summary>,
    /// With every default filled in.
    #[serde(serialize_with = "as_value")]
    spec: RunSpec,
    #[serde(skip)]
    place: String,
    /// What the tokens of the splits are.
    #[serde(skip)]
    tokens_word: &'static str,
}

/// `number, 0.2 × length`: the rewards and their weights, where the model answers prompts.
fn reward_words(rewards: &[WeightedReward]) -> Option<String> {
    let one = |reward: &WeightedReward| match reward.weight == 1.0 {
        true => one_line(&reward.name),
        false => format!("{} × {}", reward.weight, one_line(&reward.name)),
    };
    let words: Vec<String> = rewards.iter().map(one).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn as_value<S: serde::Serializer>(spec: &RunSpec, to: S) -> Result<S::Ok, S::Error> {
    spec.to_value().serialize(to)
}

/// `spec`: that of the target, on the threads that would compute it.
pub fn run(target: &Target, spec: RunSpec, json: bool, cx: &Context) -> anyhow::Result<Exit> {
    if !json {
        before(target)?;
    }
    let surroundings = DataEnv::from_env(&cx.env);
    let data = spec
        .open_data(&surroundings)
        .map_err(|e| Failure::data(&e))?;
    let extra_tokens = extra_sets(&spec, &data, &surroundings)
        .map_err(|e| Failure::user_error(e.to_string(), "correct it, or leave eval.extra out"))?;
    let pass = data.micro_steps_per_epoch(spec.train.micro_batch_size);
    let spec = spec.on_data(pass);
    if let Some(from) = &spec.train.from {
        Manifest::verify_if_any(from).map_err(|fault| {
            let what = format!("train.from: the checkpoint is damaged: {fault}");
            Failure::user_error(what, Fault::HINT)
        })?;
    }
    let keeper = match target {
        Target::New(_) => None,
        Target::Branch(branch) => Some(branch.parent()),
        Target::Resumed(run, _) => Some(run),
    };
    check_reference(&spec, keeper).map_err(|(what, fix)| Failure::user_error(what, fix))?;
    let blank = TrainState::blank(&spec, &data)?;
    let params = blank.models.policy.params();
    let sizes = (params.len() as u64, params.n_trainable() as u64);
    let outline = outline(spec, &data, sizes, extra_tokens, target, cx);
    if json {
        outln!("{}", out::json(&outline)?)?;
        return Ok(Exit::Done);
    }
    for line in outline.lines() {
        outln!("{}", cx.words(line))?;
    }
    outln!("dry run: nothing started")?;
    Ok(Exit::Done)
}

/// What differs from the preset, the parent or the run as it is.
fn before(target: &Target) -> anyhow::Result<()> {
    let lines = match target {
        Target::New(loaded) => {
            print_notes(loaded);
            Vec::new()
        }
        Target::Branch(branch) => {
            print_notes(&branch.loaded);
            branch.lines()
        }
        Target::Resumed(run, extension) => extension.iter().flat_map(|e| e.lines(run)).collect(),
    };
    for line in lines {
        outln!("{line}")?;
    }
    Ok(())
}

fn outline(
    spec: RunSpec,
    data: &Dataset,
    (n_params, trainable_params): (u64, u64),
    extra_tokens: Vec<(String, u64)>,
    target: &Target,
    cx: &Context,
) -> Outline {
    let env = &cx.env;
    let micro_steps = spec.train.micro_steps(spec.train.max_steps);
    let micro_batch = spec.train.micro_batch_size;
    let (run_tokens, places) = data.read(spec.seed, micro_steps, micro_batch);
    // Of a step behind a batch-size ramp.
    let each = run_tokens / micro_steps.max(1) as f64;
    let accum = spec.train.grad_accum_steps as f64;
    let step_tokens = (each * accum).round();
    let step_places = (places / micro_steps.max(1) as f64 * accum).round();
    let micro_steps = micro_steps as f64;
    let loaded = match target {
        Target::New(loaded) => Some(&**loaded),
        Target::Branch(branch) => Some(&branch.loaded),
        Target::Resumed(..) => None,
    };
    let changes = loaded.iter().flat_map(|loaded| loaded.notes());
    // A size that the spec names itself is no change that is reported.
    let is_told = loaded
        .is_some_and(|loaded| matches!(loaded.origins.get("model.vocab_size"), Origin::Implied(_)));
    let growth = vocabulary_growth(&spec, &data.tokenizer).filter(|_| !is_told);
    // Other machines have a PyTorch of their own, and a job may run elsewhere: no reason to refuse the spec.
    let here = spec.engine.torch().filter(|torch| torch.nodes.is_empty());
    let lacking = here.and_then(|torch| environment::python(torch, env).err());
    let lacking = lacking.map(|error| {
        format!(
            "{error}: here the run would fail at once; {}",
            EnvironmentError::HINT
        )
    });
    let unchecked = too_large(spec.engine.torch().is_some(), n_params as usize);
    let unchecked = unchecked
        .filter(|_| spec.preflight.enabled)
        .map(|why| format!("preflight: checks that compute are {why}"));
    let rollouts = spec.rollout_length();
    let prompts = rollouts.map(|_| data.micro_steps_per_epoch(1).round() as u64);
    let learned = |n: u64| rollouts.is_none().then_some(n);
    let epochs = micro_steps / data.micro_steps_per_epoch(spec.train.micro_batch_size);
    let resumes = match target {
        Target::Resumed(run, _) => {
            let newest = run.checkpoints().last().map_or(0, |c| c.step);
            Some((run.folder(), newest))
        }
        Target::New(_) | Target::Branch(_) => None,
    };
    let branch = match target {
        Target::Branch(branch) => Some(branch.summary()),
        Target::New(_) | Target::Resumed(..) => None,
    };
    Outline {
        name: spec.name.clone(),
        about: spec.about.clone(),
        n_params,
        trainable_params,
        vocab_size: data.tokenizer.vocab_size() as u64,
        train_tokens: data.train_tokens(),
        val_tokens: data.val_tokens(),
        extra_tokens,
        steps: spec.train.max_steps,
        step_tokens: learned(step_tokens as u64),
        run_tokens: learned(run_tokens.round() as u64),
        step_places: learned(step_places as u64),
        epochs: rollouts.is_none().then_some(epochs),
        prompts,
        prompt_passes: rollouts.zip(prompts).map(|(length, n)| length.passes(n)),
        rollouts,
        threads: crate::engine::threads(&spec),
        ranks: spec.engine.torch().map(|torch| torch.placed()),
        advice: spec
            .review_on(data, known_ranks(&spec, env))
            .into_iter()
            .chain(repeated(&spec, data))
            .chain(idle_gpu_here(&spec, cx.hardware.as_deref(), env))
            .collect(),
        changes: changes.map(|note| note.to_string()).collect(),
        notes: (data.notes.iter().cloned())
            .chain(growth)
            .chain(lacking)
            .chain(unchecked)
            .collect(),
        resumes,
        branch,
        place: data.place.clone(),
        tokens_word: data.tokens_word(),
        spec,
    }
}

/// What the first check of a run would find in its data: they are read already.
fn repeated(spec: &RunSpec, data: &Dataset) -> Option<Finding> {
    let found = overlap(&spec.data, data);
    let place = match found.status {
        Status::Fail => "preflight fails",
        Status::Warn => "preflight warns",
        _ => return None,
    };
    Some(
        found
            .named("overlap", "validation text in the training text")
            .at(place),
    )
}

impl Outline {
    /// Tokens and epochs of a text, or prompts and the model's own answers to them.
    fn length(&self) -> String {
        if let Some((length, prompts)) = self.rollouts.zip(self.prompts) {
            return format!("{}; {}", length.words(), length.passes_words(prompts));
        }
        let tokens = self.step_tokens.unwrap_or_default();
        let places = self.step_places.unwrap_or_default();
        // Rows of answers are as long as the longest of their batch, rows of documents hardly ever full.
        let (about, padding) = match places > tokens {
            true => ("about ", format!(" ({} with padding)", grouped(places))),
            false => ("", String::new()),
        };
        // A step before the ramp's end takes fewer micro-steps.
        let train = &self.spec.train;
        let ramp = train.batch_ramp.first().map_or(String::new(), |first| {
            let share = first.grad_accum_steps as f64 / train.grad_accum_steps.max(1) as f64;
            let least = grouped((tokens as f64 * share).round() as u64);
            format!("{least} (batch ramp) to ")
        });
        format!(
            "{} of {about}{ramp}{} tokens{padding}, {} in all, {} epochs",
            counted(self.steps, "step"),
            grouped(tokens),
            short(self.run_tokens.unwrap_or_default() as f64),
            epochs(self.epochs.unwrap_or_default()),
        )
    }

    fn lines(&self) -> Vec<String> {
        let model = &self.spec.model;
        let mut lines = vec![
            match self.about.is_empty() {
                true => self.name.clone(),
                false => format!("{}: {}", self.name, self.about),
            },
            format!(
                "model   {} parameters{}, {} of {}, {} tokens of context, vocabulary {}",
                short(self.n_params as f64),
                trained_words(self.trainable_params, self.n_params),
                counted(model.n_layer as u64, "layer"),
                model.d_model,
                model.seq_len,
                grouped(self.vocab_size),
            ),
            format!(
                "data    {}: {} training and {} validation {}",
                self.place,
                grouped(self.train_tokens),
                grouped(self.val_tokens),
                self.tokens_word,
            ),
            format!(
                "train   {}, on {}",
                self.length(),
                counted(self.threads as u64, "thread")
            ),
            format!("cadence {}", self.spec.cadence_text()),
        ];
        let rewards = reward_words(&self.spec.rewards);
        lines.extend(rewards.map(|words| format!("rewards {words}")));
        lines.extend(
            self.ranks
                .iter()
                .map(|ranks| format!("engine  PyTorch: {ranks}")),
        );
        let advice = self.advice.iter();
        lines.extend(advice.map(|a| format!("advice  {}: {}; {}", a.place, a.evidence, a.fix)));
        lines.extend(self.extra_tokens.iter().map(|(name, tokens)| {
            let tokens = grouped(*tokens);
            format!(
                "extra   {}: {tokens} validation {}",
                one_line(name),
                self.tokens_word
            )
        }));
        lines.extend(
            self.notes
                .iter()
                .map(|note| format!("note    {}", one_line(note))),
        );
        let resumes = self.resumes.iter();
        lines.extend(resumes.map(|(run, step)| format!("would resume {run} from step {step}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    #[test]
    fn rewards_are_listed_with_their_weights() {
        let words = |preset: &str| {
            let loaded = load(preset, &[], &SpecSources::default()).unwrap();
            reward_words(&loaded.spec.rewards)
        };
        assert_eq!(words("grpo-gsm8k").as_deref(), Some("number, 0.2 × length"));
        assert_eq!(words("quickstart"), None);
    }
}
