//! The paths in a config, all of them.

use super::RunConfig;
use crate::base::paths::is_yaml;
use crate::data::tokenizer::TokenizerConfig;
use crate::methods::MethodConfig;
use crate::workers::EngineConfig;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

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
    if let MethodConfig::Distill(distill) = &mut config.method {
        distill.teacher.iter_mut().for_each(fix);
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
