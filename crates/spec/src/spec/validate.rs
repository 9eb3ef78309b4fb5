//! Rules between values, each with a fix. Ranges of single values are in the types.

mod answers;
mod best_by;
mod distill;
mod epsilon;
mod frozen;
mod length;
mod moving_reference;
mod on_disk;

pub(super) use on_disk::files;

use super::draft::shown;
use super::issue::{Issue, Origins};
use super::{RunConfig, embed_corpora};
use crate::base::near::{did_you_mean, nearest};
use crate::base::ssh;
use crate::base::text::one_line;
use crate::data::tokenizer::TokenizerConfig;
use crate::hf;
use crate::methods::ReferenceFault;
use crate::nn::HeadKind;
use crate::optim::OptimizerConfig;
use crate::workers::torch;

/// Collects issues of one config.
struct IssueCollector<'a> {
    origins: &'a Origins,
    issues: &'a mut Vec<Issue>,
}

impl IssueCollector<'_> {
    /// Adds an issue unless `good`, or one of the values is already invalid: then the rule cannot be judged. The origin is
    /// that of the value that is most the user's own: whoever changes the width of a preset is not to look for its heads.
    fn want(
        &mut self,
        good: bool,
        paths: &[&str],
        what: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let known_wrong = |i: &Issue| {
            let list = i.path.split('[').next().unwrap_or_default();
            paths.contains(&i.path.as_str()) || paths.contains(&list)
        };
        if good || self.issues.iter().any(known_wrong) {
            return;
        }
        let closeness = |path: &&&str| self.origins.get(path).closeness();
        let said = paths.iter().rev().max_by_key(closeness);
        let path = said.copied().unwrap_or_default();
        self.issues.push(Issue {
            origin: self.origins.get(path),
            path: path.to_string(),
            what: what.into(),
            hint: hint.into(),
        });
    }
}

/// All rules that need no disk access.
pub(super) fn rules(config: &RunConfig, origins: &Origins, issues: &mut Vec<Issue>) {
    let mut judge = IssueCollector { origins, issues };
    name(config, &mut judge);
    model(config, &mut judge);
    frozen::adapter(config, &mut judge);
    frozen::freeze(config, &mut judge);
    reference(config, &mut judge);
    moving_reference::moving_reference(config, &mut judge);
    distill::distill(config, &mut judge);
    answers::rollouts(config, &mut judge);
    length::length(config, &mut judge);
    engine(config, &mut judge);
    sizes(config, &mut judge);
    learning_rate(config, &mut judge);
    epsilon::epsilon(config, &mut judge);
    sampling(config, &mut judge);
    data(config, &mut judge);
    extra_sets(config, &mut judge);
    reference_run(config, &mut judge);
    best_by::best_by(config, &mut judge);
}

/// The names of further validation sets, which are parts of metric ids.
fn extra_sets(config: &RunConfig, judge: &mut IssueCollector) {
    let sets = &config.eval.extra;
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    for (at, set) in sets.iter().enumerate() {
        let again = sets[..at].iter().any(|other| other.name == set.name);
        let good = !again && !set.name.is_empty() && set.name.chars().all(plain);
        judge.want(
            good,
            &["eval.extra"],
            format!("`{}` is not a valid set name, or is already used", set.name),
            "letters, digits, `-`, `_` and `.`: {name: general, source: FILE}",
        );
    }
}

/// The run that the loss curve is compared with.
fn reference_run(config: &RunConfig, judge: &mut IssueCollector) {
    let (key, health) = ("health.reference_run", &config.health);
    judge.want(
        health.reference_run.is_none() || config.method.on_policy().is_none(),
        &[key],
        "the loss of a policy has no course that runs share",
        format!("remove {key}"),
    );
    judge.want(
        health.reference_run.is_none() || health.enabled,
        &[key, "health.enabled"],
        "the collapse residual is a health metric, and those are off",
        format!("health.enabled=true, or remove {key}"),
    );
}

fn name(config: &RunConfig, judge: &mut IssueCollector) {
    let name = &config.name;
    let good = (1..=64).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    judge.want(
        good,
        &["name"],
        "a run's name is used in a folder name",
        "use 1 to 64 letters, digits, `-`, `_` or `.`, starting with a letter or digit",
    );
}

/// The model's own rules.
fn model(config: &RunConfig, judge: &mut IssueCollector) {
    for fault in config.model.faults() {
        let paths: Vec<String> = fault.keys.iter().map(|k| format!("model.{k}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        judge.want(false, &paths, fault.what, fault.hint);
    }
    if let Some(said) = &config.model.family {
        let is_family = hf::family_of(&config.model).is_some_and(|f| f.model_type() == said);
        let known: Vec<&str> = hf::FAMILIES.iter().map(|f| f.model_type()).collect();
        judge.want(
            is_family,
            &["model.family"],
            format!("{} does not compute this model", one_line(said)),
            format!("leave it out; the families are {}", known.join(", ")),
        );
    }
}

/// What ranks of PyTorch cannot do.
fn engine(config: &RunConfig, judge: &mut IssueCollector) {
    let Some(torch) = config.engine.torch() else {
        return;
    };
    machines(torch, judge);
    judge.want(
        config.optimizer.on_torch(),
        &["engine", "optimizer"],
        format!(
            "engine: torch supports adamw, adamw8bit, lion and muon only, not {}",
            config.optimizer.entry().id
        ),
        "optimizer: adamw, or engine: candle",
    );
}

/// The machines that have ranks, and what these share.
fn machines(torch: &torch::Config, judge: &mut IssueCollector) {
    judge.want(
        !torch.offload || torch.shard == torch::Shard::Fsdp2,
        &["engine.torch.offload", "engine.torch.shard"],
        "ddp keeps the whole model on every GPU: there is nothing to offload",
        "engine.torch.shard=fsdp2",
    );
    let path = "engine.torch.nodes";
    for (at, name) in torch.nodes.iter().enumerate() {
        let fault = ssh::is_destination(name).err();
        judge.want(
            fault.is_none(),
            &[path],
            fault.unwrap_or_default(),
            "write each as after `ssh`: gpu1, me@gpu2, localhost",
        );
        judge.want(
            !torch.nodes[..at].contains(name),
            &[path],
            format!("{name} is listed twice"),
            "list each machine once; engine.torch.ranks is the number of processes over all of them",
        );
    }
    let (count, ranks) = (torch.nodes.len().max(1), torch.ranks.unwrap_or(0));
    judge.want(
        ranks % count == 0,
        &["engine.torch.ranks", path],
        format!("{ranks} ranks cannot be split evenly over {count} machines"),
        format!("engine.torch.ranks={}", count * ranks.div_ceil(count)),
    );
}

/// What the method says of its reference model and of its micro-batches.
fn reference(config: &RunConfig, judge: &mut IssueCollector) {
    let needs = config.method.needs();
    let path = format!("method.{}.reference", config.method.entry().id);
    let found = ReferenceFault::find(
        (needs.unit, needs.reference),
        config.adapter.is_some(),
        config.train.micro_batch_size as u64,
    );
    for fault in found {
        let (places, fix) = match fault {
            ReferenceFault::NoAdapter => (
                vec![path.as_str(), "adapter"],
                "add adapter.lora.rank=8, or use frozen or precomputed",
            ),
            ReferenceFault::FixedBaseline => (
                vec![path.as_str()],
                "use frozen, or adapter_off with an adapter",
            ),
            ReferenceFault::NoBaseline => (
                vec!["train.micro_batch_size"],
                "set train.micro_batch_size to 2 or more",
            ),
        };
        judge.want(false, &places, fault.what(), fix);
    }
    judge.want(
        config.model.head == HeadKind::Vocabulary || needs.head == HeadKind::Score,
        &["model.head", "train.from"],
        format!(
            "a reward model cannot generate, which the method {} needs",
            config.method.entry().id
        ),
        "method=reward continues its training; for any other method start from a language model",
    );
    judge.want(
        !config.model.value_head || needs.value_head,
        &["model.value_head"],
        format!("the method {} has no critic", config.method.entry().id),
        "remove it; method.ppo.critic=shared has one",
    );
}

fn sizes(config: &RunConfig, judge: &mut IssueCollector) {
    /// More tokens per step than this is a typo, and the multiplication could overflow.
    const MAX_BATCH_TOKENS: u128 = 1 << 32;
    let t = &config.train;
    let tokens =
        t.micro_batch_size as u128 * t.grad_accum_steps as u128 * config.model.seq_len as u128;
    judge.want(
        tokens <= MAX_BATCH_TOKENS,
        &[
            "train.micro_batch_size",
            "train.grad_accum_steps",
            "model.seq_len",
        ],
        format!("{tokens} tokens in one step"),
        "one step is micro_batch_size × grad_accum_steps × seq_len; large runs use about a million",
    );
    if let (Some(vocab), Some(wanted)) =
        (config.model.vocab_size, config.data.tokenizer.vocab_size())
    {
        judge.want(
            vocab >= wanted,
            &["model.vocab_size", "data.tokenizer"],
            format!("the model's vocabulary of {vocab} is smaller than the tokenizer's {wanted}"),
            "remove model.vocab_size: it defaults to the tokenizer's",
        );
    }
}

fn learning_rate(config: &RunConfig, judge: &mut IssueCollector) {
    let lr = config.optimizer.lr();
    let word = config.optimizer.entry().id;
    judge.want(
        lr > 0.0,
        &[&format!("optimizer.{word}.lr")],
        "at a learning rate of 0 nothing is learned",
        "3e-4 is a safe start; small models use 1e-3",
    );
    let (likelihood, ema) = (config.method.is_likelihood(), config.train.ema_decay);
    let method = config.method.entry().id;
    judge.want(
        !config.optimizer.needs_curvature() || likelihood,
        &["optimizer", "method"],
        format!("{word} estimates curvature from labels sampled from the model; {method} has none"),
        "use it with pretrain or sft; adamw works with every method",
    );
    judge.want(
        config.train.z_loss == 0.0 || likelihood,
        &["train.z_loss", "method"],
        format!("z-loss requires a cross-entropy loss, which {method} does not have"),
        "remove it, or use pretrain or sft",
    );
    judge.want(
        ema.is_none() || !matches!(config.optimizer, OptimizerConfig::ScheduleFree(_)),
        &["train.ema_decay", "optimizer"],
        "schedule_free already averages the weights",
        "remove train.ema_decay",
    );
    let schedule = config.schedule.entry().id;
    let path = |key: &str| format!("schedule.{schedule}.{key}");
    if let Some(min_lr) = config.schedule.min_lr() {
        judge.want(
            min_lr <= lr,
            &[&path("min_lr"), &format!("optimizer.{word}.lr")],
            format!(
                "min_lr {} is above the peak lr {}",
                shown(&min_lr.into()),
                shown(&lr.into())
            ),
            format!(
                "use min_lr {}, a tenth of the peak, or remove it",
                shown(&(lr / 10.0).into())
            ),
        );
    }
}

fn sampling(config: &RunConfig, judge: &mut IssueCollector) {
    let s = &config.sample.sampling;
    // An infinite f32 would be written as null, and the run could not be read again.
    judge.want(
        (0.0..=100.0).contains(&s.temperature),
        &["sample.sampling.temperature"],
        "the temperature must be from 0 to 100",
        "0 takes the most likely token; 0.7 to 1 is typical",
    );
    judge.want(
        s.top_p > 0.0 && s.top_p <= 1.0,
        &["sample.sampling.top_p"],
        "top_p must be above 0 and at most 1: it is a probability",
        "1 keeps all; 0.9 is typical",
    );
    judge.want(
        (0.0..=1.0).contains(&s.min_p),
        &["sample.sampling.min_p"],
        "min_p must be from 0 to 1: it is a share of the most likely token's probability",
        "0 keeps all; 0.05 is typical",
    );
    judge.want(
        (0.01..=100.0).contains(&s.repetition_penalty),
        &["sample.sampling.repetition_penalty"],
        "the penalty is a divisor and must be from 0.01 to 100",
        "1 turns it off; 1.1 is typical",
    );
    judge.want(
        s.stop.iter().all(|s| !s.is_empty()),
        &["sample.sampling.stop"],
        "an empty stop string stops immediately",
        "remove it",
    );
}

/// An empty path would be the working directory.
pub(super) const EMPTY: &str = "it is empty (an unset shell variable?)";

fn data(config: &RunConfig, judge: &mut IssueCollector) {
    judge.want(
        config.data.val_fraction > 0.0,
        &["data.val_fraction"],
        "without held-out text, learning cannot be distinguished from memorizing",
        "0.01 leaves 99 % to train on, data.val_rows: 1 all rows but one; with data.val_path nothing is held out of the training data",
    );
    let paths = [
        ("data.path", &config.data.path),
        ("data.val_path", &config.data.val_path),
    ];
    for (key, path) in paths {
        judge.want(
            !path
                .as_ref()
                .is_some_and(|path| path.as_os_str().is_empty()),
            &[key],
            EMPTY,
            "name a file or a folder, or remove it",
        );
    }
    for (key, what, hint) in config.data.faults() {
        judge.want(false, &[key], what, hint);
    }
    let corpora = embed_corpora();
    let corpus = &config.data.corpus;
    let hint = nearest(corpus, corpora.iter().map(String::as_str)).map_or_else(
        || {
            format!(
                "use one of {}; for your own text set data.path",
                corpora.join(", ")
            )
        },
        did_you_mean,
    );
    judge.want(
        !config.data.all_sources().is_empty() || corpora.contains(corpus),
        &["data.corpus"],
        format!("unknown corpus `{corpus}`"),
        hint,
    );
    if let TokenizerConfig::File(file) = &config.data.tokenizer {
        judge.want(
            !file.path.as_os_str().is_empty(),
            &["data.tokenizer.file.path", "data.tokenizer"],
            "which file?",
            "data.tokenizer.file.path=tokenizer.json",
        );
    }
}
