//! The facts about each training method, whatever the goal: needs, costs, risks, alternatives, sources. One row each, for
//! advice and for plans. What an implemented method trains on is in its own `needs`.

use crate::methods::MethodConfig;

/// A method that advice can name, trainable here or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MethodId {
    Pretrain,
    ContinuedPretrain,
    Sft,
    Distill,
    Dpo,
    Kto,
    Orpo,
    SimPo,
    Cpo,
    Grpo,
    Rloo,
    Ppo,
    RewardModel,
    /// The last one: it counts the rows.
    NoTraining,
}

/// The models of a method, and how often they run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passes {
    /// One of `forwards` is that of a frozen copy of the starting weights.
    pub reference: bool,
    /// A second frozen model scores answers.
    pub reward_model: bool,
    /// A critic trains beside the policy.
    pub critic: bool,
    /// It learns from answers that it samples itself.
    pub rolls_out: bool,
    /// Times that each batch is trained on.
    pub updates: f64,
    /// Forward passes without a gradient for each, sampling not counted: of reference, reward and value models.
    pub forwards: f64,
}

impl Passes {
    /// One model, trained on each batch once.
    const ONE: Passes = Passes {
        reference: false,
        reward_model: false,
        critic: false,
        rolls_out: false,
        updates: 1.0,
        forwards: 0.0,
    };
}

/// One method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    pub id: MethodId,
    pub title: &'static str,
    /// Its id in a spec's `method`.
    pub spec_word: &'static str,
    /// Data requirements.
    pub needs: &'static str,
    /// Typical amount.
    pub typical: &'static str,
    pub passes: Passes,
    /// The cost in words.
    pub cost: &'static str,
    /// Common failures, with the symptom of each.
    pub risks: &'static [&'static str],
    /// What to watch during the run.
    pub watch: &'static str,
    pub cheaper: &'static str,
    /// A typical peak learning rate, full and with an adapter.
    pub lr: &'static str,
    /// Where it says more than the method's entry in the registry, or where there is none.
    own_source: Option<&'static str>,
    /// Whether low-rank adapters make sense.
    pub adapters: bool,
}

impl MethodId {
    /// Its row of the table.
    pub fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }
}

// A method without a row, or a row at another's place, does not compile.
const _: () = {
    assert!(FACTS.len() == MethodId::NoTraining as usize + 1);
    let mut at = 0;
    while at < FACTS.len() {
        assert!(FACTS[at].id as usize == at);
        at += 1;
    }
};

impl Facts {
    /// The method as this build trains it, with its defaults; `None` where it does not.
    pub fn trained(&self) -> Option<MethodConfig> {
        MethodConfig::usual(self.spec_word)
    }

    /// The literature that its row is from.
    pub fn source(&self) -> &'static str {
        let of_entry = || self.trained().map_or("", |method| method.entry().source);
        self.own_source.unwrap_or_else(of_entry)
    }

    /// Sequences of an example.
    pub fn sequences(&self) -> u64 {
        match self.trained() {
            Some(method) => method.needs().unit.sequences() as u64,
            None => 1,
        }
    }

    /// Whether it needs a frozen reference model.
    pub fn has_reference(&self) -> bool {
        let trained = self.trained();
        trained.is_some_and(|method| method.needs().reference.is_some())
    }

    /// Copies with gradients and moments.
    pub fn trained_copies(&self) -> f64 {
        match (self.passes.updates > 0.0, self.passes.critic) {
            (false, _) => 0.0,
            (true, false) => 1.0,
            (true, true) => 2.0,
        }
    }

    /// Frozen models besides the trained ones.
    pub fn frozen_copies(&self) -> f64 {
        f64::from(u8::from(self.has_reference())) + f64::from(u8::from(self.passes.reward_model))
    }

    /// FLOPs per token of a training sequence in units of the parameter count: forward 2, backward 4 (2 through a frozen
    /// base, which has no weight gradients), every pass without a gradient 2, sampling 2. `policy` and `critic`: forward and backward
    /// of theirs.
    pub fn flops_per_token(&self, policy: f64, critic: f64) -> f64 {
        let passes = &self.passes;
        let critic = if passes.critic { critic } else { 0.0 };
        let sampling = if passes.rolls_out { 2.0 } else { 0.0 };
        passes.updates * (policy + critic) + 2.0 * passes.forwards + sampling
    }
}

use MethodId as M;

/// Every method, the plain ones first: the order decides between equals, and is that of [`MethodId`].
pub const FACTS: &[Facts] = &[
    Facts {
        id: M::Pretrain,
        title: "pretraining",
        spec_word: "pretrain",
        needs: "plain text, about 20 tokens per parameter",
        typical: "1 MB for a toy, 2 B tokens for 100M parameters",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token",
        risks: &[
            "the loss stays at ln(vocabulary): targets are not shifted",
            "validation loss rises while training loss falls: the text is too small, the model memorizes it",
            "spikes: the learning rate is too high",
        ],
        watch: "training and validation loss, gradient norm",
        cheaper: "a smaller model, or start from a base model",
        lr: "3e-4 to 1e-3",
        own_source: Some("Radford et al. 2018; Hoffmann et al. 2022, arXiv 2203.15556"),
        adapters: false,
    },
    Facts {
        id: M::ContinuedPretrain,
        title: "continued pretraining",
        spec_word: "pretrain",
        needs: "plain text of the domain, with 10 to 20 % general text mixed in",
        typical: "at least 50M tokens, 1 to 20 B for a whole domain",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token",
        risks: &[
            "forgetting: the loss on general text rises",
            "few documents seen often are memorized, not understood",
        ],
        watch: "validation loss on the domain and on general text",
        cheaper: "retrieval instead of training the facts in",
        lr: "1e-5 to 1e-4: a tenth to a third of the pretraining peak",
        own_source: Some(
            "Gururangan et al. 2020, arXiv 2004.10964; Ibrahim et al. 2024, arXiv 2403.08763",
        ),
        adapters: true,
    },
    Facts {
        id: M::Sft,
        title: "SFT",
        spec_word: "sft",
        needs: "prompts with good answers, or conversations",
        typical: "500 to 2,000 for one task, 1k to 10k curated for general use",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token, prompts included",
        risks: &[
            "it never stops: the end-of-turn token is masked",
            "gibberish in chat: the template differs from training",
            "three epochs are often one too many: overfitting, forgetting",
        ],
        watch: "validation loss, answer length",
        cheaper: "fewer but better examples; a smaller rank; examples in the prompt",
        lr: "1e-5 full, 2e-4 with LoRA",
        own_source: Some(
            "Ouyang et al. 2022, arXiv 2203.02155; Zhou et al. 2023 (LIMA), arXiv 2305.11206",
        ),
        adapters: true,
    },
    Facts {
        id: M::Distill,
        title: "distillation",
        spec_word: "distill",
        needs: "a larger model with the same tokens, and prompts with answers or plain text",
        typical: "1k to 100k examples; of pretraining as many tokens as fit",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token, and 2 per parameter of the teacher",
        risks: &[
            "the tokens differ: the teacher's distributions are over other words",
            "the data's answers are unlike the student's: it errs where it never learned; on_policy above 0 helps",
            "reverse KL (beta 1) covers few of the teacher's answers; forward KL (beta 0) is vague",
        ],
        watch: "divergence, top-1 agreement, cross entropy of held-out answers",
        cheaper: "SFT on answers that the teacher has written",
        lr: "1e-5 full, 2e-4 with LoRA",
        own_source: Some(
            "Agarwal et al. 2024 (GKD), arXiv 2306.13649; Hinton et al. 2015, arXiv 1503.02531",
        ),
        adapters: true,
    },
    Facts {
        id: M::Dpo,
        title: "DPO",
        spec_word: "dpo",
        needs: "prompts with a chosen and a rejected answer each",
        typical: "5k to 60k pairs",
        passes: Passes {
            reference: true,
            forwards: 1.0,
            ..Passes::ONE
        },
        cost: "8 FLOPs per parameter and token of both answers; plus a frozen reference model",
        risks: &[
            "the loss is not 0.693 at the first step: the reference differs",
            "both log-probabilities drop: raise beta, lower the learning rate",
            "answers grow longer: the pairs favour length",
        ],
        watch: "reward margin and accuracy, log-probability of chosen answers",
        cheaper: "ORPO or SimPO need no reference; KTO needs no pairs",
        lr: "5e-7 to 1e-6 full, 5e-6 to 1e-5 with LoRA",
        own_source: None,
        adapters: true,
    },
    Facts {
        id: M::Kto,
        title: "KTO",
        spec_word: "kto",
        needs: "single answers labelled good or bad",
        typical: "5k to 50k labels, not all on one side",
        passes: Passes {
            reference: true,
            forwards: 3.0,
            ..Passes::ONE
        },
        cost: "12 FLOPs per parameter and token: the KL baseline takes two more passes; plus a frozen reference model",
        risks: &[
            "unstable at batch size 1: the baseline is the example itself",
            "90 % of labels are good: upweight the rare side",
        ],
        watch: "rewards of good and of bad answers, KL",
        cheaper: "SFT on the good answers only",
        lr: "1e-6 full, 1e-5 with LoRA",
        own_source: None,
        adapters: true,
    },
    Facts {
        id: M::Orpo,
        title: "ORPO",
        spec_word: "orpo",
        needs: "prompts with a chosen and a rejected answer each",
        typical: "10k to 60k pairs",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token of both answers; no reference model",
        risks: &["weak pairs: the SFT term does all the work"],
        watch: "odds ratio, validation loss of chosen answers",
        cheaper: "SFT on the chosen answers only",
        lr: "8e-6",
        own_source: None,
        adapters: true,
    },
    Facts {
        id: M::SimPo,
        title: "SimPO",
        spec_word: "simpo",
        needs: "prompts with a chosen and a rejected answer each",
        typical: "10k to 60k pairs",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token of both answers; no reference model",
        risks: &[
            "no reference anchors it: a high learning rate ruins the model",
            "beta of DPO (0.1) is far too small here: 2 to 2.5",
        ],
        watch: "reward margin and accuracy, answer length",
        cheaper: "SFT on the chosen answers only",
        lr: "5e-7 to 1e-6",
        own_source: None,
        adapters: true,
    },
    Facts {
        id: M::Cpo,
        title: "CPO",
        spec_word: "cpo",
        needs: "prompts with a chosen and a rejected answer each",
        typical: "10k to 60k pairs",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token of both answers; no reference model",
        risks: &["whole answers are compared: long ones weigh more"],
        watch: "reward accuracy, likelihood of chosen answers",
        cheaper: "SFT on the chosen answers only",
        lr: "1e-6",
        own_source: None,
        adapters: true,
    },
    Facts {
        id: M::Grpo,
        title: "GRPO",
        spec_word: "grpo",
        needs: "prompts and a program that scores answers; pass rate between 10 and 90 %",
        typical: "1k to 50k prompts, 4 to 8 completions each",
        passes: Passes {
            reference: true,
            rolls_out: true,
            forwards: 1.0,
            ..Passes::ONE
        },
        cost: "the model generates its own completions: rollouts dominate the time",
        risks: &[
            "every completion of a group gets the same reward: no learning signal",
            "entropy collapse: all completions become the same",
            "reward hacking: the model exploits a hole in the checker",
        ],
        watch: "reward, fraction of groups with zero variance, entropy, length",
        cheaper: "RLOO with 4 answers; or keep the best of n answers and do SFT",
        lr: "1e-6",
        own_source: Some("Shao et al. 2024 (DeepSeekMath), arXiv 2402.03300"),
        adapters: true,
    },
    Facts {
        id: M::Rloo,
        title: "RLOO",
        spec_word: "rloo",
        needs: "prompts and a reward function",
        typical: "1k to 50k prompts, 4 to 8 completions each",
        passes: Passes {
            reference: true,
            rolls_out: true,
            forwards: 1.0,
            ..Passes::ONE
        },
        cost: "rollouts dominate the time; no critic",
        risks: &[
            "high variance with 2 completions: use 4",
            "reward hacking: watch KL and length",
        ],
        watch: "reward, KL, length",
        cheaper: "DPO on pairs of its own completions",
        lr: "1e-6",
        own_source: None,
        adapters: true,
    },
    Facts {
        id: M::Ppo,
        title: "PPO",
        spec_word: "ppo",
        needs: "prompts and a reward model",
        typical: "10k to 50k prompts",
        passes: Passes {
            reference: true,
            reward_model: true,
            critic: true,
            rolls_out: true,
            updates: 4.0,
            forwards: 3.0,
        },
        cost: "four models at once: about 56 FLOPs per parameter and answer token",
        risks: &[
            "reward rises while quality falls: the reward model is exploited",
            "KL explodes: lower the learning rate, raise beta",
            "flat value loss: initialize the critic from the reward model",
        ],
        watch: "reward, KL, explained variance, clip fraction",
        cheaper: "RLOO without a critic, then DPO",
        lr: "1e-6 to 3e-6",
        own_source: Some(
            "Schulman et al. 2017, arXiv 1707.06347; Ouyang et al. 2022, arXiv 2203.02155",
        ),
        adapters: true,
    },
    Facts {
        id: M::RewardModel,
        title: "reward model",
        spec_word: "reward",
        needs: "prompts with a chosen and a rejected answer each",
        typical: "10k pairs for something narrow, 100k to 1M for general use",
        passes: Passes::ONE,
        cost: "6 FLOPs per parameter and token of both answers",
        risks: &[
            "length bias: compare with a length-only baseline",
            "overconfident after more than one epoch",
        ],
        watch: "accuracy on held-out pairs: 0.65 to 0.75 is typical",
        cheaper: "rules, or an LLM as judge",
        lr: "1e-5 full, 1e-4 with LoRA",
        own_source: Some("Stiennon et al. 2020, arXiv 2009.01325"),
        adapters: true,
    },
    Facts {
        id: M::NoTraining,
        title: "no training: retrieval or examples in the prompt",
        spec_word: "",
        needs: "nothing but the documents or a few examples",
        typical: "any amount",
        passes: Passes {
            updates: 0.0,
            ..Passes::ONE
        },
        cost: "none before use; longer prompts afterwards",
        risks: &[
            "retrieval misses the right passage",
            "the context grows long and expensive",
        ],
        watch: "answers with and without the passages",
        cheaper: "",
        lr: "",
        own_source: Some(
            "Lewis et al. 2020, arXiv 2005.11401; Brown et al. 2020, arXiv 2005.14165",
        ),
        adapters: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What the literature counts for each token of a sequence (methods compared by their passes).
    #[test]
    fn methods_cost_what_their_passes_come_to() {
        let cost = |word: &str| {
            let facts = FACTS.iter().find(|f| f.spec_word == word).unwrap();
            facts.flops_per_token(6.0, 6.0)
        };
        for (word, flops) in [
            ("pretrain", 6.0),
            ("sft", 6.0),
            ("distill", 6.0),
            ("reward", 6.0),
            ("dpo", 8.0),
            ("kto", 12.0),
            ("orpo", 6.0),
            ("simpo", 6.0),
            ("cpo", 6.0),
            ("grpo", 10.0),
            ("rloo", 10.0),
            ("ppo", 56.0),
        ] {
            assert_eq!(cost(word), flops, "{word}");
        }
    }

    #[test]
    fn the_table_holds_every_method_that_is_trained_and_says_what_it_needs() {
        for entry in MethodConfig::ENTRIES {
            let facts = FACTS.iter().find(|f| f.spec_word == entry.id);
            let facts = facts.unwrap_or_else(|| panic!("no row for {}", entry.id));
            let needs = facts.trained().unwrap().needs();
            assert!(
                facts.passes.reference || needs.reference.is_none(),
                "{}",
                entry.id
            );
        }
    }
}
