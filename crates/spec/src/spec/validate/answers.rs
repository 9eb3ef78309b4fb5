//! Rules for a spec's RL settings: rollouts, rewards, and the critic.

use super::IssueCollector;
use crate::methods::ReferenceChoice;
use crate::models::is_gguf;
use crate::rewards::WeightedReward;
use crate::spec::RunConfig;

/// Methods that learn from the model's own answers.
/// Completions that leave room for their prompts, and do not end before they begin.
pub(super) fn room_and_ends(config: &RunConfig, judge: &mut IssueCollector) {
    let rollout = &config.rollout;
    judge.want(
        rollout.max_new_tokens < config.model.seq_len,
        &["rollout.max_new_tokens", "model.seq_len"],
        format!(
            "completions of {} tokens leave no room for a prompt in {}",
            rollout.max_new_tokens, config.model.seq_len
        ),
        "lower max_new_tokens, or raise model.seq_len",
    );
    judge.want(
        rollout.stop.iter().all(|s| !s.is_empty()),
        &["rollout.stop"],
        "an empty stop string stops immediately",
        "remove it",
    );
}

pub(super) fn rollouts(config: &RunConfig, judge: &mut IssueCollector) {
    rewards(config, judge);
    if config.method.on_policy().is_none() {
        return;
    }
    groups(config, judge);
    critic(config, judge);
    evaluation(config, judge);
    let rollout = &config.rollout;
    let critic = config.method.on_policy().and_then(|method| method.critic());
    judge.want(
        !rollout.mask_truncated || critic.is_none_or(|ppo| ppo.missing_eos_penalty <= 0.0),
        &["rollout.mask_truncated", "method.ppo.missing_eos_penalty"],
        "truncated completions are left out of the loss, so no token can bear their penalty",
        "remove one of them",
    );
    room_and_ends(config, judge);
    if let Some((key, what, hint)) = config.method.fault() {
        let word = config.method.entry().id;
        judge.want(false, &[&format!("method.{word}.{key}")], what, hint);
    }
    reference(config, judge);
}

/// Each has a name of its own, and only methods that learn from answers have any.
fn rewards(config: &RunConfig, judge: &mut IssueCollector) {
    for fault in config.rewards.iter().filter_map(WeightedReward::fault) {
        judge.want(false, &["rewards"], fault.0, fault.1);
    }
    let mut names: Vec<&str> = config.rewards.iter().map(|r| r.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|two| two[0] == two[1]);
    judge.want(
        twice.is_none(),
        &["rewards"],
        format!("two rewards are named `{}`", twice.map_or("", |two| two[0])),
        "give each a distinct `name`",
    );
    let word = config.method.entry().id;
    match config.method.on_policy() {
        None => judge.want(
            config.rewards.is_empty(),
            &["rewards"],
            format!("the method {word} does not use rewards"),
            "remove them, or choose method=grpo, rloo or ppo",
        ),
        Some(_) => judge.want(
            !config.rewards.is_empty(),
            &["rewards"],
            format!("{word} needs rewards, and there are none"),
            "rewards=[exact] compares completions with the data's answers; docs/rewards.md lists all rewards",
        ),
    }
}

/// Answers to a prompt, and whole groups of them in a rollout.
fn groups(config: &RunConfig, judge: &mut IssueCollector) {
    let (t, r) = (&config.train, &config.rollout);
    let least = config.method.on_policy().map_or(1, |m| m.least_group());
    judge.want(
        r.group_size >= least,
        &["rollout.group_size"],
        format!(
            "{} compares the completions of a prompt, and there is only one",
            config.method.entry().id
        ),
        "rollout.group_size=4",
    );
    judge.want(
        r.group_size > 1 || r.refill == 0,
        &["rollout.group_size", "rollout.refill"],
        "with one completion per prompt every group has equal rewards: every prompt would be replaced",
        "rollout.refill=0, or group_size of at least 2",
    );
    let answers = t
        .micro_batch_size
        .saturating_mul(t.grad_accum_steps)
        .saturating_mul(r.steps);
    judge.want(
        answers % r.group_size.max(1) == 0,
        &[
            "rollout.group_size",
            "train.micro_batch_size",
            "train.grad_accum_steps",
        ],
        format!(
            "{answers} completions per rollout is not a multiple of group_size {}",
            r.group_size
        ),
        "micro_batch_size × grad_accum_steps × rollout.steps must be a multiple of group_size",
    );
}

/// Answers to held-out prompts.
fn evaluation(config: &RunConfig, judge: &mut IssueCollector) {
    let r = &config.rollout;
    let wrong = r
        .pass_at
        .iter()
        .find(|k| !(1..=r.eval_answers).contains(*k));
    judge.want(
        wrong.is_none(),
        &["rollout.pass_at", "rollout.eval_answers"],
        format!(
            "pass@{} cannot be estimated from {} completions per prompt",
            wrong.unwrap_or(&0),
            r.eval_answers
        ),
        "each k must be from 1 to rollout.eval_answers",
    );
    judge.want(
        r.eval_answers == 1 || r.eval_temperature > 0.0,
        &["rollout.eval_answers", "rollout.eval_temperature"],
        "at temperature 0 all completions of a held-out prompt are identical",
        "rollout.eval_temperature=1, or eval_answers=1",
    );
}

/// What answers are held near to.
fn reference(config: &RunConfig, judge: &mut IssueCollector) {
    let (word, t) = (config.method.entry().id, &config.train);
    let reference = config.method.needs().reference;
    judge.want(
        reference != Some(ReferenceChoice::Precomputed),
        &[&format!("method.{word}.reference")],
        "completions sampled later cannot be scored before the first step",
        "use frozen, or adapter_off with an adapter",
    );
    judge.want(
        reference.is_none()
            || config.rollout.cold_start_steps == 0
            || t.from.is_some()
            || config.adapter.is_none(),
        &[&format!("method.{word}.beta"), "rollout.cold_start_steps"],
        "the reference would be the untrained model",
        format!("method.{word}.beta=0, or start from a trained model with train.from"),
    );
    // A copy of an adapted model is one of its base.
    judge.want(
        reference.is_none()
            || reference == Some(ReferenceChoice::AdapterOff)
            || config.rollout.cold_start_steps == 0
            || t.from.is_none()
            || config.adapter.is_none(),
        &[&format!("method.{word}.reference"), "rollout.cold_start_steps"],
        "with an adapter the reference is the base alone, as it was before the cold start",
        format!(
            "method.{word}.reference=adapter_off where that is meant, method.{word}.beta=0 for no reference, or an SFT run first and train.from its checkpoint"
        ),
    );
}

/// A second model that learns values, or a value head on the policy's trunk.
fn critic(config: &RunConfig, judge: &mut IssueCollector) {
    let Some(ppo) = config.method.on_policy().and_then(|m| m.critic()) else {
        return;
    };
    let shared = ppo.shares_trunk();
    judge.want(
        !shared || ppo.critic_from.is_none(),
        &["method.ppo.critic", "method.ppo.critic_from"],
        "a critic on the policy's trunk is initialized from the policy",
        "remove critic_from, or set method.ppo.critic=separate",
    );
    judge.want(
        !shared || ppo.critic_warmup_steps == 0,
        &["method.ppo.critic", "method.ppo.critic_warmup_steps"],
        "a critic on the policy's trunk cannot be warmed up alone: its updates change the policy",
        "method.ppo.critic_warmup_steps=0, or method.ppo.critic=separate",
    );
    let packed = config.train.from.as_deref().is_some_and(is_gguf) && !config.train.dequantize;
    judge.want(
        !packed || (!shared && ppo.critic_from.is_some()),
        &["method.ppo", "train.from"],
        "a critic is initialized from the policy or shares its trunk, which a quantized base does not allow",
        "train.dequantize=true converts the base to f32; or method.ppo.critic_from names a reward model",
    );
    judge.want(
        ppo.kl_target.is_none_or(|target| target > 0.0)
            && (ppo.kl_target.is_none() || ppo.beta > 0.0),
        &["method.ppo.kl_target", "method.ppo.beta"],
        "a KL target needs a KL coefficient to adapt and must be above 0",
        "method.ppo.beta=0.05 and method.ppo.kl_target=6, or remove the target",
    );
    let (total, cold, alone) = (
        config.train.max_steps,
        config.rollout.cold_start_steps,
        ppo.critic_warmup_steps,
    );
    let before = match cold {
        0 => format!("critic warm-up takes {alone} steps"),
        cold => format!("the cold start takes {cold} steps and the critic warm-up {alone}"),
    };
    let shorter = match cold {
        0 => "method.ppo.critic_warmup_steps=0",
        _ => "rollout.cold_start_steps=0 and method.ppo.critic_warmup_steps=0",
    };
    judge.want(
        alone == 0 || cold.saturating_add(alone) < total,
        &["method.ppo.critic_warmup_steps", "train.max_steps"],
        format!("{before}: none of {total} steps is left for the policy"),
        format!(
            "max_steps={} or more; for a short trial {shorter}",
            cold.saturating_add(alone).saturating_add(1)
        ),
    );
}

#[cfg(test)]
mod tests {
    use crate::spec::{SpecSources, load};

    #[test]
    fn a_run_that_ends_before_the_policy_learns_is_told_what_takes_its_steps_and_what_helps() {
        let loaded = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|word| word.to_string()).collect();
            let loaded = load("ppo-demo", &set, &SpecSources::default());
            loaded.map(drop).map_err(|e| e.to_string())
        };
        let said = loaded(&["max_steps=2"]).unwrap_err();
        for part in [
            "cold start takes 450 steps",
            "critic warm-up 16",
            "max_steps=467",
        ] {
            assert!(said.contains(part), "{said}");
        }
        loaded(&["max_steps=467"]).unwrap();
        let trial = "rollout.cold_start_steps=0 and method.ppo.critic_warmup_steps=0";
        assert!(said.contains(trial), "{said}");
        let mut words: Vec<&str> = trial.split(" and ").collect();
        words.push("max_steps=2");
        loaded(&words).unwrap();
    }
}
