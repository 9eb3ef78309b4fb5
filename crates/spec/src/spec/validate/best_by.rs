//! `eval.best_by` must name a reading that evaluations of the run have, as far as the spec determines them: otherwise no best
//! checkpoint is chosen and no early stop happens.

use super::IssueCollector;
use crate::base::near::{did_you_mean, nearest};
use crate::base::paths::is_yaml;
use crate::base::text::one_line;
use crate::methods;
use crate::rewards::verifier;
use crate::spec::RunConfig;
use crate::wire::id;

const PATH: &str = "eval.best_by";

pub(super) fn best_by(config: &RunConfig, judge: &mut IssueCollector) {
    let Some(said) = &config.eval.best_by else {
        return;
    };
    // Which rewards there are is not known then.
    if judge.issues.iter().any(|i| i.path.starts_with("rewards[")) {
        return;
    }
    // The name that a task's file has for it is known once it is read.
    let of_a_file = said.starts_with(id::EVAL) && config.eval.tasks.iter().any(|t| is_yaml(t));
    let known = evaluated(config);
    if of_a_file || known.contains(said) {
        return;
    }
    let all = known.join(", ");
    let hint = match nearest(said, known.iter().map(String::as_str)) {
        Some(near) => format!("{} Valid: {all}", did_you_mean(near)),
        None => format!("valid: {all}"),
    };
    judge.want(
        false,
        &[PATH],
        format!(
            "evaluations of method {} do not measure {}",
            config.method.entry().id,
            one_line(said)
        ),
        one_line(&hint),
    );
}

/// The readings of a run's evaluations of which more, or less, is better.
fn evaluated(config: &RunConfig) -> Vec<String> {
    let extra = config.eval.extra.iter().map(|set| set.name.as_str());
    let tasks = config.eval.tasks.iter().filter(|task| !is_yaml(task));
    let ks = verifier(&config.rewards).map(|_| &*config.rollout.pass_at);
    let mut all = methods::evaluated(&config.method, ks, extra);
    all.extend(tasks.map(|task| format!("eval/{task}")));
    all
}

#[cfg(test)]
mod tests {
    use crate::spec::{SpecSources, load};

    fn loaded(preset: &str, set: &[&str]) -> Result<(), String> {
        let set: Vec<String> = set.iter().map(|word| word.to_string()).collect();
        let loaded = load(preset, &set, &SpecSources::default());
        let best_by = |e: crate::spec::SpecErrors| -> Result<(), String> {
            let of_it = e.issues().iter().filter(|issue| issue.path == super::PATH);
            match of_it.map(|i| format!("{}; {}", i.what, i.hint)).next() {
                Some(said) => Err(said),
                None => Ok(()),
            }
        };
        loaded.map(drop).or_else(best_by)
    }

    #[test]
    fn a_reading_that_no_evaluation_measures_is_refused_before_anything_is_read() {
        let likelihood = ["eval.best_by=val/ppl", "eval.best_by=val/bpb"];
        for word in likelihood {
            loaded("quickstart", &[word]).unwrap();
            for method in ["method=dpo", "method=orpo"] {
                let said = loaded("quickstart", &[method, word]).unwrap_err();
                assert!(said.contains("val/rewards/accuracies"), "{said}");
                assert!(!said.contains("val/ppl,"), "{said}");
            }
        }
        let said = loaded("quickstart", &["eval.best_by=val/los"]).unwrap_err();
        assert!(said.contains("did you mean val/loss?"), "{said}");
        for word in ["lr", "train/loss", "eval/mine", "val/logps/chosen"] {
            let word = format!("eval.best_by={word}");
            loaded("quickstart", &["method=dpo", &word]).unwrap_err();
        }
    }

    #[test]
    fn what_evaluations_measure_is_taken() {
        let margins = "eval.best_by=val/rewards/margins";
        loaded("quickstart", &["method=dpo", margins]).unwrap();
        let of_task = ["eval.tasks=[mine]", "eval.best_by=eval/mine"];
        loaded("quickstart", &of_task).unwrap();
        // Its name stands in the file.
        let of_file = ["eval.tasks=[a.yaml]", "eval.best_by=eval/other"];
        loaded("quickstart", &of_file).unwrap();
        let extra = [
            "eval.extra=[{name: b, source: b.jsonl}]",
            "eval.best_by=extra/b",
        ];
        loaded("quickstart", &extra).unwrap();
        for id in ["eval/pass@1", "eval/reward"] {
            let word = format!("eval.best_by={id}");
            loaded("ppo-demo", &[&word]).unwrap();
        }
        loaded("ppo-demo", &["eval.best_by=val/loss"]).unwrap_err();
        // A score without a scale passes nobody.
        let scores = "rewards=[{length: {}}]";
        loaded("ppo-demo", &[scores, "eval.best_by=eval/pass@1"]).unwrap_err();
        loaded("ppo-demo", &[scores, "eval.best_by=eval/reward"]).unwrap();
    }
}
