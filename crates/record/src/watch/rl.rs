//! Logs of rewards. Those of RL, such as TRL's of GRPO and RLOO, call the policy's surrogate `loss`, although it is no likelihood and
//! says nothing of how well the policy does: they are known by the mean reward beside it. TRL's log of a reward model calls its
//! readings on pairs `accuracy` and `margin`: it is known by the extremes of the scores beside their mean.

use super::Item;
use super::names::{Mapping, Role};
use crate::wire::id;

/// What a log has, as far as it was read.
#[derive(Debug, Default)]
pub struct RlLog {
    has_reward: bool,
    /// It names the policy loss itself, as this program's exports do: its other loss is that of a cold start.
    has_policy_loss: bool,
    /// Which of [`SCORES`] it has.
    scores: [bool; SCORES.len()],
}

/// What TRL's `RewardTrainer` logs of its model's scores.
const SCORES: [&str; 3] = ["min_reward", "mean_reward", "max_reward"];
/// Its readings on pairs, and what they are called elsewhere.
const PAIRS: [(&str, &str); 2] = [("accuracy", id::ACCURACIES), ("margin", id::MARGINS)];

impl RlLog {
    /// Looks at readings before they are translated: of several records of one step the loss may come before the reward.
    pub fn look(&mut self, items: &[Item], mapping: &Mapping) {
        if self.has_reward && self.has_policy_loss {
            return;
        }
        for item in items {
            let Item::Readings { values, .. } = item else {
                continue;
            };
            for (name, _) in values {
                // Translating every name twice would take as long as all the rest.
                if !(name.ends_with(id::REWARD)
                    || name.ends_with(id::POLICY_LOSS)
                    || mapping.is_mapped(name))
                {
                    continue;
                }
                if let Role::Metric(id, _) = mapping.role(name) {
                    self.has_reward |= id == id::REWARD;
                    self.has_policy_loss |= id == id::POLICY_LOSS;
                    let of_scores = SCORES.iter().position(|score| *score == id);
                    if let Some(at) = of_scores {
                        self.scores[at] = true;
                    }
                }
            }
        }
    }

    /// The id of a reading of this log; `id` is that of its name, which the user may have mapped to it.
    pub fn id(&self, id: String, name: &str, mapping: &Mapping) -> String {
        if self.scores.iter().all(|there| *there) && !mapping.is_mapped(name) {
            let (set, plain) = match id.strip_prefix(id::VAL) {
                Some(plain) => (id::VAL, plain),
                None => ("", id.as_str()),
            };
            let pairs = PAIRS.iter().find(|(theirs, _)| *theirs == plain);
            if let Some((_, ours)) = pairs {
                return format!("{set}{ours}");
            }
        }
        let is_surrogate = self.has_reward && !self.has_policy_loss && !mapping.is_mapped(name);
        match id.as_str() {
            id::TRAIN_LOSS if is_surrogate => id::POLICY_LOSS.into(),
            id::VAL_LOSS if is_surrogate => format!("{}{}", id::VAL, id::POLICY_LOSS),
            _ => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::translate::Translator;
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::run::RunState;
    use crate::wire::Direction;

    fn readings(names: &[&str]) -> Item {
        Item::Readings {
            step: Some(1),
            t: None,
            values: names.iter().map(|name| ((*name).into(), 0.5)).collect(),
        }
    }

    fn ids(items: &[Item], names: &[&str], map: &[&str]) -> Vec<String> {
        let map: Vec<String> = map.iter().map(|word| (*word).into()).collect();
        let mapping = Mapping::parse(&map).unwrap();
        let mut log = RlLog::default();
        log.look(items, &mapping);
        let id = |name: &&str| match mapping.role(name) {
            Role::Metric(id, _) => log.id(id, name, &mapping),
            other => format!("{other:?}"),
        };
        names.iter().map(id).collect()
    }

    #[test]
    fn a_log_of_rl_has_no_training_loss() {
        let items = (1..=3).flat_map(|step| {
            [("loss", 0.01), ("reward", 0.4), ("eval_loss", 0.02)].map(|(name, x)| Item::Readings {
                step: Some(step),
                t: None,
                values: vec![(name.into(), x)],
            })
        });
        let mut translator = Translator::new("x", "tfevents", Mapping::default());
        let events = translator.translate(items.collect(), UnixMillis(5));
        let state = RunState::from_events(&events);
        let ids: Vec<&str> = state.series.keys().map(String::as_str).collect();
        assert_eq!(ids, ["policy_loss", "reward", "val/policy_loss"]);
        let directions: Vec<Direction> = state.metrics.iter().map(|m| m.direction).collect();
        use Direction::{Higher, Neutral};
        assert_eq!(directions, [Neutral, Higher, Neutral]);
    }

    #[test]
    fn readings_on_pairs_beside_the_scores_of_a_reward_model_are_those_of_rewards() {
        let names = [
            "accuracy",
            "train/margin",
            "eval_accuracy",
            "eval_margin",
            "loss",
        ];
        let ours = [
            "rewards/accuracies",
            "rewards/margins",
            "val/rewards/accuracies",
            "val/rewards/margins",
            "train/loss",
        ];
        let scores = ["min_reward", "train/mean_reward", "max_reward"];
        assert_eq!(ids(&[readings(&scores)], &names, &[]), ours);
        // Any other classifier has an accuracy too, and the user's own words come first.
        let plain = [
            "accuracy",
            "margin",
            "val/accuracy",
            "val/margin",
            "train/loss",
        ];
        assert_eq!(ids(&[readings(&scores[1..])], &names, &[]), plain);
        let mapped = ids(&[readings(&scores)], &["accuracy"], &["accuracy=accuracy"]);
        assert_eq!(mapped, ["accuracy"]);
    }

    #[test]
    fn the_loss_beside_a_reward_is_that_of_the_policy() {
        let names = ["loss", "eval_loss", "train/loss", "grad_norm"];
        let policy = ["policy_loss", "val/policy_loss", "policy_loss", "grad_norm"];
        for reward in ["reward", "train/reward"] {
            // Trackers write each number in a record of its own.
            let items = [readings(&["loss"]), readings(&[reward])];
            assert_eq!(ids(&items, &names, &[]), policy, "{reward}");
        }
        let plain = ["train/loss", "val/loss", "train/loss", "grad_norm"];
        for others in [
            &["loss"][..],
            &["rewards/chosen"],
            &["eval_reward"],
            &["my_reward"],
        ] {
            assert_eq!(ids(&[readings(others)], &names, &[]), plain, "{others:?}");
        }
        // An export of this program, and a name that the user has mapped.
        let own = [readings(&["reward", "policy_loss"])];
        assert_eq!(ids(&own, &["loss"], &[]), ["train/loss"]);
        let mapped = [readings(&["score"])];
        assert_eq!(ids(&mapped, &["loss"], &["reward=score"]), ["policy_loss"]);
        let both = ["reward=score", "train/loss=nll"];
        assert_eq!(ids(&mapped, &["nll"], &both), ["train/loss"]);
    }
}
