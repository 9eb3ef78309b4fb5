//! A GPU of this machine that a run on the processor leaves unused, though PyTorch's ranks could train the same spec on it.

use super::engines::{Gpus, choose};
use super::start::least_data;
use super::target::of_spec;
use crate::base::finding::Finding;
use crate::base::paths::Env;
use crate::hardware::GpuSummary;
use crate::spec::{RunSpec, torch_is_installed};
use std::path::Path;

/// [`idle_gpu`] on this machine, or on the recorded one.
pub fn idle_gpu_here(spec: &RunSpec, recording: Option<&Path>, env: &Env) -> Option<Finding> {
    // Looking for GPUs loads their driver.
    if !is_on_processor(spec) {
        return None;
    }
    let machine = crate::hardware::summary(recording, env).ok()?;
    idle_gpu(spec, &machine.gpus, torch_is_installed(env))
}

/// What to say of a spec that trains on the processor beside such GPUs; nothing of one that PyTorch cannot train, or that does not
/// fit on them.
pub fn idle_gpu(spec: &RunSpec, gpus: &[GpuSummary], torch_installed: bool) -> Option<Finding> {
    let seen = Gpus::of(gpus).filter(|_| is_on_processor(spec))?;
    let choice = choose(&of_spec(spec, least_data(spec)), Some(&seen))?;
    if choice.engine != "torch" || !choice.fits {
        return None;
    }
    let (n, name) = (gpus.len(), &seen.name);
    let which = match n {
        1 => format!("the GPU here ({name})"),
        n => format!("the {n} GPUs here ({name})"),
    };
    let evidence = format!("llmtui's own engine trains on the CPU and leaves {which} idle");
    let settings = match choice.settings.is_empty() {
        true => "-s engine=torch".to_string(),
        false => choice.settings,
    };
    let fix = match torch_installed {
        true => format!("{settings} trains on it"),
        false => format!("llmtui engine install torch gets PyTorch, then {settings} trains on it"),
    };
    Some(
        Finding {
            source: "docs/torch.md".into(),
            ..Finding::warn(evidence, "", fix)
        }
        .named("idle_gpu", "GPU in use")
        .at("engine"),
    )
}

/// `engine: auto` is decided at the start, and ranks have their GPUs.
fn is_on_processor(spec: &RunSpec) -> bool {
    spec.engine.torch().is_none() && !spec.engine.is_open()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    fn spec(words: &[&str]) -> RunSpec {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let loaded = load("quickstart", &words, &SpecSources::default());
        loaded.unwrap().spec
    }

    #[test]
    fn a_gpu_that_could_train_the_spec_is_named_with_what_uses_it() {
        let gpu = |name: &str| GpuSummary {
            name: name.into(),
            memory_bytes: 80 << 30,
        };
        let one = [gpu("NVIDIA H100 80GB HBM3")];
        let found = idle_gpu(&spec(&[]), &one, true).unwrap();
        let evidence = found.evidence.to_string();
        assert!(evidence.contains("NVIDIA H100"), "{evidence}");
        assert_eq!(found.changes(), ["engine=torch"]);
        let found = idle_gpu(&spec(&[]), &one, false).unwrap();
        assert!(
            found.fix.contains("llmtui engine install torch"),
            "{found:?}"
        );
        let two = [gpu("A100"), gpu("A100")];
        let found = idle_gpu(&spec(&[]), &two, true).unwrap();
        assert!(found.evidence.to_string().contains("2 GPUs"), "{found:?}");
        let nothing: [(&[&str], &[GpuSummary]); 4] = [
            (&[], &[]),
            (&["engine=torch"], &one),
            (&["engine=auto"], &one),
            // Ranks have no such optimizer.
            (&["optimizer=sophia"], &one),
        ];
        for (words, gpus) in nothing {
            assert_eq!(idle_gpu(&spec(words), gpus, true), None, "{words:?}");
        }
    }
}
