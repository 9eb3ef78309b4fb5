//! Forward and backward passes per supervised token, in units of the model's parameters.

use super::request::{Answers, ReferencePlan, Request};
use crate::nn::frozen_matmul_params;

/// A pass that keeps nothing for a gradient.
const FORWARD: f64 = 2.0;

/// FLOPs per token in units of N: by the steps of a spec on its own answers, else as the table of methods counts them.
pub fn passes(request: &Request) -> f64 {
    // Nothing of a critic is frozen by name.
    let critic = if request.lora.is_some() { 4.0 } else { 6.0 };
    counted(request, learned(request), critic)
}

/// The same for products of activations, which have no weights that could be frozen.
pub fn attention_passes(request: &Request) -> f64 {
    counted(request, 6.0, 6.0)
}

/// `learned`: forward and backward of the policy, and `critic` of a critic.
fn counted(request: &Request, learned: f64, critic: f64) -> f64 {
    if let Some(answers) = request.answers() {
        return of_answers(request, answers, learned, critic);
    }
    let facts = request.method.facts();
    let all = facts.flops_per_token(learned, critic) + of_teacher(request);
    match request.reference_plan() {
        // Scored once, before the first step.
        ReferencePlan::Precomputed => all - FORWARD,
        // Left out (GRPO and RLOO with beta 0), though the table counts it.
        ReferencePlan::None if facts.passes.reference => all - FORWARD,
        _ => all,
    }
}

/// The teacher reads what the student does, which writes a share of it itself.
fn of_teacher(request: &Request) -> f64 {
    let n = request.arch.n_active().max(1) as f64;
    request.teacher().map_or(0.0, |teacher| {
        FORWARD * (teacher.params as f64 / n + teacher.own_share)
    })
}

/// A frozen matrix needs the gradient with respect to its input but not to its weights.
fn learned(request: &Request) -> f64 {
    if request.lora.is_some() {
        return 4.0;
    }
    if !request.has_frozen_parts() {
        return 6.0;
    }
    let arch = &request.arch;
    let frozen = frozen_matmul_params(arch.config(), &request.param_infos());
    6.0 - 2.0 * frozen as f64 / arch.n_matmul().max(1) as f64
}

/// An answer is written, scored and compared once, and learned from in each pass over its rollout, which has the answers of all the steps of a pass;
/// those of a cold start learn from no rollout.
fn of_answers(request: &Request, answers: Answers, learned: f64, critic: f64) -> f64 {
    let has_critic = request.has_critic();
    let critic = if has_critic { critic } else { 0.0 };
    // Sampling, the reference, the policy before it learns, and the critic's values.
    let asked = [
        true,
        request.reference_plan() != ReferencePlan::None,
        answers.has_old_policy,
        has_critic,
    ];
    let asked = asked.iter().filter(|asked| **asked).count() as f64;
    let n = request.arch.n_active().max(1) as f64;
    let scored = match request.scores_on_cpu() {
        // It takes time of this machine's processor, not of GPUs.
        true => 0.0,
        false => request.extras.rewards.params as f64 / n,
    };
    let written = FORWARD * (asked + scored) / answers.epochs.max(1) as f64;
    let step = learned + critic + written;
    answers.cold_share * learned + (1.0 - answers.cold_share) * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ranks::on_gpus_named;
    use crate::plan::request::{Lora, LoraTargets, Method};
    use crate::plan::{gpus, models, reference_request, target};

    fn of(preset: &str, set: &[&str]) -> f64 {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        passes(&target::resolve(preset, &set, &Default::default()).unwrap())
    }

    /// A step learns once from what a rollout was written for, and a cold start writes none.
    #[test]
    fn steps_on_own_answers_cost_what_they_do() {
        let near = |preset, set: &[&str], wanted: f64| {
            let n = of(preset, set);
            assert!(
                (n - wanted).abs() < 1e-9,
                "{preset} {set:?}: {n}, not {wanted}"
            );
        };
        // 350 of 900 steps learn the data's answers; the others write theirs and learn from them, without a reference.
        near("grpo-arithmetic", &[], (350.0 * 6.0 + 550.0 * 8.0) / 900.0);
        let all = "rollout.cold_start_steps=0";
        near("grpo-arithmetic", &[all], 8.0);
        near("grpo-arithmetic", &[all, "method.grpo.beta=0.1"], 10.0);
        // Two steps learn from a rollout: what was written is read by the policy once more, before it learns.
        near("grpo-arithmetic", &[all, "rollout.epochs=2"], 8.0);
        near("grpo-arithmetic", &[all, "rollout.epochs=4"], 7.0);
        // A rollout for four steps has four times the answers: each is written and read once, and learned from once.
        near("grpo-gsm8k", &["rollout.steps=4"], 6.0 + 2.0 * 2.0);
        let both = ["rollout.steps=4", "rollout.epochs=2"];
        near("grpo-gsm8k", &both, 6.0 + 2.0 * 2.0 / 2.0);
        // A KL that is part of the reward reads it by reference and policy.
        let kl = [all, "method=rloo", "method.rloo.beta=0.1"];
        near("grpo-arithmetic", &kl, 12.0);
        // Policy and critic learn; the policy writes, and is asked with its reference and its critic, once in two steps.
        let step = 12.0 + 8.0 / 2.0;
        near("ppo-demo", &[], (450.0 * 6.0 + 400.0 * step) / 850.0);
    }

    /// Reward models of ranks are run by the engine that drives them, on its processor.
    #[test]
    fn what_the_processor_scores_takes_no_time_of_gpus() {
        let set = ["engine=torch", "rollout.cold_start_steps=0"].map(String::from);
        let request = target::resolve("grpo-arithmetic", &set, &Default::default()).unwrap();
        let n = request.arch.n_active();
        let with = |mut request: Request, params| {
            request.extras.rewards.params = params;
            (passes(&request), request.is_timed_at_most())
        };
        let h100 = gpus::find("h100").unwrap();
        let there = on_gpus_named(request.clone(), h100, 1);
        assert_eq!(with(there.clone(), 0), (8.0, true));
        assert_eq!(with(there, n), (8.0, false));
        // On this machine's processor all is timed alike.
        assert_eq!(with(request, n), (10.0, true));
    }

    /// By the table, a model by itself: PPO of four epochs, GRPO without the reference that its default leaves out.
    #[test]
    fn a_model_by_itself_is_counted_by_the_table() {
        let mut request = reference_request(models::find("tinyllama-1.1b").unwrap());
        for (method, wanted) in [
            (Method::Grpo, 8.0),
            (Method::Ppo, 56.0),
            (Method::Dpo, 8.0),
            (Method::Sft, 6.0),
        ] {
            request.set_method(method);
            assert_eq!(passes(&request), wanted, "{method:?}");
        }
        // Beside adapters the base of the critic is frozen like that of the policy.
        request.set_method(Method::Ppo);
        request.lora = Some(Lora {
            rank: 8,
            targets: LoraTargets::All,
        });
        assert_eq!(passes(&request), 4.0 * (4.0 + 4.0) + 3.0 * 2.0 + 2.0);
    }
}
