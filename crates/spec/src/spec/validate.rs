//! Rules between values, each with a fix. Ranges of single values are in the types.

mod answers;
mod best_by;
mod epsilon;
mod frozen;
mod length;
mod moving_reference;

use super::draft::shown;
use super::issue::{Issue, Origins};
use super::presets::{SpecSources, neighbours};
use super::{RunConfig, embed_corpora};
use crate::base::near::{did_you_mean, nearest, within};
use crate::base::paths::{is_yaml, not_found_hint};
use crate::base::ssh;
use crate::base::text::one_line;
use crate::data::Unit;
use crate::data::source::{is_data_file, is_description, saved_as_arrow};
use crate::data::tokenizer::TokenizerConfig;
use crate::hf;
use crate::methods::{MethodConfig, ReferenceChoice};
use crate::models::{ModelSource, RewardModel, SourceError, TO_COME};
use crate::nn::HeadKind;
use crate::optim::OptimizerConfig;
use crate::workers::{EngineConfig, torch};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

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
    let here = "use engine: candle";
    let word = config.method.entry().id;
    judge.want(
        config
            .method
            .on_policy()
            .is_none_or(|m| m.critic().is_none()),
        &["engine", "method"],
        format!("engine: torch does not support the critic of {word} yet"),
        "use grpo or rloo, which need none, or engine: candle",
    );
    judge.want(
        config.model.moe.is_none(),
        &["engine", "model.moe"],
        "engine: torch does not support mixture of experts yet",
        here,
    );
    judge.want(
        config.model.mixer.is_none(),
        &["engine", "model.mixer"],
        "engine: torch does not support mixers in place of attention yet",
        here,
    );
    judge.want(
        !config.model.attention_gate,
        &["engine", "model.attention_gate"],
        "engine: torch does not support a gate on attention's output yet",
        here,
    );
    judge.want(
        config.train.ema_decay.is_none()
            && config.train.z_loss == 0.0
            && config.method.embedding_noise() == 0.0,
        &["engine"],
        "engine: torch does not support train.ema_decay, train.z_loss and neftune_alpha",
        "remove them, or use engine: candle",
    );
    judge.want(
        config.optimizer.on_torch(),
        &["engine", "optimizer"],
        format!(
            "engine: torch supports adamw and adamw8bit only, not {}",
            config.optimizer.entry().id
        ),
        "optimizer: adamw, or engine: candle",
    );
    judge.want(
        !config.optimizer.has_blocks() || torch.shard == torch::Shard::Ddp,
        &["engine.torch.shard", "optimizer"],
        "fsdp2 shards across the quantization blocks of 8-bit moments",
        "engine.torch.shard=ddp, or optimizer: adamw, whose moments can be sharded",
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
    judge.want(
        config.adapter.is_some() || needs.reference != Some(ReferenceChoice::AdapterOff),
        &[&path, "adapter"],
        "the reference is the model without its adapter, but there is no adapter",
        "add adapter.lora.rank=8, or use frozen or precomputed",
    );
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
    if needs.unit == Unit::Judged {
        judge.want(
            needs.reference != Some(ReferenceChoice::Precomputed),
            &[&path],
            "the KL baseline needs reference scores of mismatched answers, which change with every batch",
            "use frozen, or adapter_off with an adapter",
        );
        judge.want(
            config.train.micro_batch_size > 1,
            &["train.micro_batch_size"],
            "the KL baseline needs other answers in the micro-batch, and there are none",
            "set train.micro_batch_size to 2 or more",
        );
    }
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
    judge.want(
        s.top_p > 0.0,
        &["sample.sampling.top_p"],
        "top_p 0 keeps no token",
        "1 keeps all; 0.9 is typical",
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

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

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
            !path.as_deref().is_some_and(is_empty),
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

/// Machine-dependent checks: the referenced files exist and have the right type, and the processor supports what is
/// requested.
pub(super) fn files(
    config: &RunConfig,
    sources: &SpecSources,
    origins: &Origins,
    issues: &mut Vec<Issue>,
) {
    let base = &*sources.project_dir;
    let mut judge = IssueCollector { origins, issues };
    let said = |path: &Option<PathBuf>| path.clone().filter(|path| !is_empty(path));
    if let Some(path) = &said(&config.data.path) {
        data_files(&mut judge, "data.path", path, base);
    }
    if let Some(path) = &said(&config.data.val_path) {
        data_files(&mut judge, "data.val_path", path, base);
    }
    if let TokenizerConfig::File(file) = &config.data.tokenizer
        && !file.path.as_os_str().is_empty()
    {
        let full = base.join(&file.path);
        let here = full.is_file() || full.is_dir();
        let key = "data.tokenizer.file.path";
        match here {
            true => exists(&mut judge, key, &file.path, &full, here),
            false => model_folder(&mut judge, key, &file.path, &full),
        }
    }
    for path in config.rewards.iter().filter_map(|r| r.reward.model()) {
        let full = base.join(path);
        exists(&mut judge, "rewards", path, &full, full.is_dir());
        if looked_into(&full) && !no_run(&mut judge, "rewards", path, &full) {
            scores(&mut judge, "rewards", RewardModel::check(&full).map(drop));
        }
    }
    for reward in &config.rewards {
        if let Some((what, fix)) = reward.reward.missing() {
            judge.want(false, &["rewards"], format!("{}: {what}", reward.name), fix);
        }
    }
    let critic = config.method.on_policy().and_then(|m| m.critic());
    if let Some(path) = critic.and_then(|m| m.critic_from.as_ref()) {
        let full = base.join(path);
        let key = "method.ppo.critic_from";
        exists(&mut judge, key, path, &full, full.is_dir());
        if looked_into(&full) && !no_run(&mut judge, key, path, &full) {
            scores(&mut judge, key, ModelSource::open_whole(&full).map(drop));
        }
    }
    let is_kept = |path: &&PathBuf| sources.kept_reference.as_ref() == Some(*path);
    if let Some(path) = (config.health.reference_run.as_ref()).filter(|path| !is_kept(path)) {
        let full = base.join(path);
        exists(
            &mut judge,
            "health.reference_run",
            path,
            &full,
            full.is_dir(),
        );
    }
    if let Some(path) = &config.train.from {
        let full = base.join(path);
        // What is there has been looked at with the base model.
        if !full.exists() {
            model_folder(&mut judge, "train.from", path, &full);
        }
    }
}

/// A run holds several checkpoints: which one is meant has to be said. Whether it is one.
fn no_run(judge: &mut IssueCollector, key: &'static str, said: &Path, full: &Path) -> bool {
    let found = crate::models::of_a_run(said, full);
    let is_run = found.is_some();
    if let Some((what, fix)) = found {
        judge.want(false, &[key], format!("{} {what}", said.display()), fix);
    }
    is_run
}

/// Whether a folder is there, of which it can be known now what it holds.
fn looked_into(full: &Path) -> bool {
    full.is_dir() && full != Path::new(TO_COME)
}

/// A folder that is to hold a model with a score: what it lacks is known before the first answer.
fn scores(judge: &mut IssueCollector, key: &'static str, found: Result<(), SourceError>) {
    if let Err(error) = found {
        let (what, fix) = (one_line(&error.to_string()), error.hint().to_string());
        judge.want(false, &[key], what, fix);
    }
}

/// A folder, or a hub id that is not in the cache yet.
fn model_folder(judge: &mut IssueCollector, key: &str, said: &Path, full: &Path) {
    let word = said.to_string_lossy();
    match crate::hub::model_id(&word) {
        Some(_) if !full.exists() => judge.want(
            false,
            &[key],
            format!("{word} is neither a local path nor in the hub cache"),
            format!("llmtui model pull {word}"),
        ),
        _ if !full.exists() => {
            let hint = near_miss(said, full).unwrap_or_else(|| {
                "a model is a folder, a .gguf file, a hub id (org/name) or, with -s on the command line, a run (llmtui runs)".into()
            });
            judge.want(false, &[key], format!("{word} does not exist"), hint);
        }
        _ => exists(judge, key, said, full, full.is_dir()),
    }
}

/// A file, a folder with data in it, or a glob, which is resolved when reading.
fn data_files(judge: &mut IssueCollector, key: &'static str, path: &Path, base: &Path) {
    let full = base.join(path);
    let pattern = path.to_string_lossy().contains(['*', '?', '[']);
    let here = full.is_file() || full.is_dir();
    exists(judge, key, path, &full, here || pattern);
    if full.is_dir() {
        let names = neighbours(&full.join("x")).unwrap_or_default();
        let is_data = |name: &String| {
            let name = Path::new(name);
            is_data_file(name) && !is_description(name)
        };
        let hint = saved_as_arrow(&full).unwrap_or_else(|| {
            "use a file, or a folder of .txt, .jsonl, .json, .csv, .tsv or .parquet files; FOLDER/** includes subfolders".into()
        });
        judge.want(
            names.iter().any(is_data),
            &[key],
            format!("no data file in {}", path.display()),
            hint,
        );
    }
}

fn exists(judge: &mut IssueCollector, key: &str, said: &Path, full: &Path, good: bool) {
    let what = if full.is_dir() {
        format!("{} is a folder", said.display())
    } else if full.is_file() {
        format!("{} is a file", said.display())
    } else if full.exists() {
        format!("{} is a device, a pipe or a socket", said.display())
    } else {
        format!("{} does not exist", said.display())
    };
    let hint = || {
        if full.exists() && !full.is_dir() && !full.is_file() {
            return "name a regular file".into();
        }
        let near = near_miss(said, full);
        near.unwrap_or_else(|| not_found_hint(said, full))
    };
    let hint = if good { String::new() } else { hint() };
    judge.want(good, &[key], what, hint);
}

/// What was probably meant by a path that leads nowhere.
fn near_miss(said: &Path, full: &Path) -> Option<String> {
    let name = full.file_name().unwrap_or_default().to_string_lossy();
    let Some(files) = neighbours(full) else {
        return Some(not_found_hint(said, full));
    };
    // Any folder holds some name of a few letters that is two slips away.
    let slips = (name.chars().count() / 3).clamp(1, 3);
    let files = files.iter().map(String::as_str);
    let near = within(slips, &name, files).filter(|near| *near != name)?;
    Some(did_you_mean(said.with_file_name(near).display()))
}

/// Makes paths absolute, so that a run can be resumed from any working directory.
pub(super) fn absolute(config: RunConfig, base: &Path) -> RunConfig {
    paths(config, &|path| {
        let full = base.join(path);
        std::path::absolute(&full).unwrap_or(full)
    })
}

/// Replaces every path of a config: the one list of its paths.
pub(super) fn paths(mut config: RunConfig, whole: &dyn Fn(&Path) -> PathBuf) -> RunConfig {
    let fix = |path: &mut PathBuf| *path = whole(path);
    config.data.path.iter_mut().for_each(fix);
    config.data.val_path.iter_mut().for_each(fix);
    config.data.fix_paths(whole);
    for set in &mut config.eval.extra {
        set.source.make_absolute(whole);
    }
    for weighted in &mut config.rewards {
        weighted.reward.fix_paths(whole);
    }
    config.train.from.iter_mut().for_each(fix);
    config.health.reference_run.iter_mut().for_each(fix);
    // A task's name is no path.
    for task in config.eval.tasks.iter_mut().filter(|task| is_yaml(task)) {
        *task = whole(Path::new(task)).display().to_string();
    }
    if let MethodConfig::Ppo(ppo) = &mut config.method {
        ppo.critic_from.iter_mut().for_each(fix);
    }
    if let EngineConfig::Torch(torch) = &mut config.engine {
        torch.python.iter_mut().for_each(fix);
    }
    if let TokenizerConfig::File(file) = &mut config.data.tokenizer {
        fix(&mut file.path);
    }
    config
}

/// The paths of a config, by the same list.
pub(super) fn paths_of(config: &RunConfig) -> Vec<PathBuf> {
    let found = RefCell::new(Vec::new());
    paths(config.clone(), &|path| {
        found.borrow_mut().push(path.to_path_buf());
        path.to_path_buf()
    });
    found.into_inner()
}
