//! Whether what a config names is there and of the right type, and whether the processor supports what is requested.

use super::super::RunConfig;
use super::super::issue::{Issue, Origins};
use super::super::presets::{SpecSources, neighbours};
use super::IssueCollector;
use crate::base::near::{did_you_mean, within};
use crate::base::paths::not_found_hint;
use crate::base::text::one_line;
use crate::data::source::{is_data_file, is_description, saved_as_arrow};
use crate::data::tokenizer::TokenizerConfig;
use crate::models::{ModelSource, RewardModel, SourceError, TO_COME};
use std::path::{Path, PathBuf};

/// All rules that need disk access.
pub fn files(
    config: &RunConfig,
    sources: &SpecSources,
    origins: &Origins,
    issues: &mut Vec<Issue>,
) {
    let base = &*sources.project_dir;
    let mut judge = IssueCollector { origins, issues };
    // An empty path would be the working directory.
    let said = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
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
    if let Some(path) = config.method.distills().and_then(|m| m.teacher.as_ref()) {
        teacher(&mut judge, path, base);
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

/// The model whose distributions are learned: whatever can be chatted with.
fn teacher(judge: &mut IssueCollector, path: &Path, base: &Path) {
    let (key, full) = ("method.distill.teacher", base.join(path));
    if !full.exists() {
        return model_folder(judge, key, path, &full);
    }
    if full == Path::new(TO_COME) || no_run(judge, key, path, &full) {
        return;
    }
    match ModelSource::open(&full) {
        Err(error) => {
            let (what, fix) = (one_line(&error.to_string()), error.hint().to_string());
            judge.want(false, &[key], what, fix);
        }
        Ok(source) => judge.want(
            !source.config().is_reward_model(),
            &[key],
            format!(
                "{} is a reward model: it has no distribution over tokens",
                path.display()
            ),
            "name a model that writes",
        ),
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
