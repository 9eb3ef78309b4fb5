//! The training method, as far as planning distinguishes it.

use super::facts::{Facts, MethodId};
use crate::methods::MethodConfig;

/// The training method, as far as cost is concerned; what each needs stands in
/// [`FACTS`](super::facts::FACTS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Pretrain,
    Sft,
    Distill,
    Reward,
    Dpo,
    Kto,
    Orpo,
    SimPo,
    Cpo,
    Ppo,
    Grpo,
    Rloo,
}

impl Method {
    pub const ALL: [(&str, Method); 13] = [
        ("pretrain", Method::Pretrain),
        ("cpt", Method::Pretrain),
        ("sft", Method::Sft),
        ("distill", Method::Distill),
        ("reward", Method::Reward),
        ("dpo", Method::Dpo),
        ("kto", Method::Kto),
        ("orpo", Method::Orpo),
        ("simpo", Method::SimPo),
        ("cpo", Method::Cpo),
        ("ppo", Method::Ppo),
        ("grpo", Method::Grpo),
        ("rloo", Method::Rloo),
    ];

    /// That of a spec. A method that planning does not know does not compile.
    pub fn of(method: &MethodConfig) -> Method {
        match method {
            MethodConfig::Pretrain(_) => Method::Pretrain,
            MethodConfig::Sft(_) => Method::Sft,
            MethodConfig::Distill(_) => Method::Distill,
            MethodConfig::Reward(_) => Method::Reward,
            MethodConfig::Dpo(_) => Method::Dpo,
            MethodConfig::Kto(_) => Method::Kto,
            MethodConfig::Orpo(_) => Method::Orpo,
            MethodConfig::Simpo(_) => Method::SimPo,
            MethodConfig::Cpo(_) => Method::Cpo,
            MethodConfig::Ppo(_) => Method::Ppo,
            MethodConfig::Grpo(_) => Method::Grpo,
            MethodConfig::Rloo(_) => Method::Rloo,
        }
    }

    /// Its id in a spec's `method`.
    pub fn word(self) -> &'static str {
        self.facts().spec_word
    }

    pub fn by_word(word: &str) -> Option<Method> {
        let word = word.to_lowercase();
        Self::ALL.iter().find(|(w, _)| *w == word).map(|(_, m)| *m)
    }

    /// Sequences per example of the batch.
    pub fn sequences(self) -> u64 {
        self.facts().sequences()
    }

    /// Its row of the table.
    pub fn facts(self) -> &'static Facts {
        let id = match self {
            Method::Pretrain => MethodId::Pretrain,
            Method::Sft => MethodId::Sft,
            Method::Distill => MethodId::Distill,
            Method::Reward => MethodId::RewardModel,
            Method::Dpo => MethodId::Dpo,
            Method::Kto => MethodId::Kto,
            Method::Orpo => MethodId::Orpo,
            Method::SimPo => MethodId::SimPo,
            Method::Cpo => MethodId::Cpo,
            Method::Ppo => MethodId::Ppo,
            Method::Grpo => MethodId::Grpo,
            Method::Rloo => MethodId::Rloo,
        };
        id.facts()
    }

    /// Whether the loss is linear in log-probabilities, so that the head never holds all logits.
    pub fn is_linear(self) -> bool {
        let trained = self.facts().trained();
        trained.is_none_or(|method| method.is_likelihood() || method.distills().is_some())
    }

    /// Whether it needs a frozen reference model.
    pub fn has_reference(self) -> bool {
        self.facts().has_reference()
    }

    /// Whether the policy samples completions during training.
    pub fn rolls_out(self) -> bool {
        self.facts().passes.rolls_out
    }
}
