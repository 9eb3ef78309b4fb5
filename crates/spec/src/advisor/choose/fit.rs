//! Rule 8, memory: full training if its states fit, else LoRA, else QLoRA. Only states count here, which scale with the
//! parameters, beside them those of the copy that preflight trains; activations depend on the batch and belong to the plan.

use super::rules::CPT_TOKENS;
use super::{Facts, Goal, Inputs, MethodId, Start};
use crate::base::human;

/// Which weights are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adapter {
    Full,
    Lora,
    QLora,
}

impl Adapter {
    pub fn word(self) -> &'static str {
        match self {
            Adapter::Full => "all weights",
            Adapter::Lora => "LoRA",
            Adapter::QLora => "QLoRA",
        }
    }
}

/// How the states compare with the memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fit {
    /// The memory is unknown.
    Unknown {
        need: u64,
    },
    Fits {
        need: u64,
        memory: u64,
    },
    TooLarge,
    /// Nothing is trained.
    Nothing,
}

impl Fit {
    /// Bytes of states, if anything is trained.
    pub fn need(self) -> Option<u64> {
        match self {
            Fit::Unknown { need } | Fit::Fits { need, .. } => Some(need),
            Fit::TooLarge | Fit::Nothing => None,
        }
    }

    /// The text for this option, given whether others fit too and whether the base is already a quantized file.
    pub(super) fn words(self, adapter: Adapter, (beside, packed): (bool, bool)) -> Option<String> {
        match self {
            Fit::Fits { need, memory } => Some(format!(
                "states take {} of {}{}",
                human::bytes(need),
                human::bytes(memory),
                match (adapter, beside, packed) {
                    (Adapter::Full, ..) => "",
                    (Adapter::Lora, true, _) => ": little is trained, so little is forgotten",
                    (Adapter::Lora, false, _) => ": all weights would not fit",
                    (Adapter::QLora, true, _) =>
                        ": the base stays as its file has it, and is decoded for every matmul",
                    (Adapter::QLora, false, true) =>
                        ": neither all weights nor LoRA would fit; the base stays as its file has it",
                    (Adapter::QLora, false, false) =>
                        ": neither all weights nor LoRA would fit; llmtui quantize makes a GGUF file of the model, and that is what to start from",
                }
            )),
            Fit::TooLarge if adapter == Adapter::QLora => {
                Some("not even QLoRA fits here: a smaller model, or more memory".into())
            }
            Fit::TooLarge => {
                Some("its states do not fit here: a smaller model, or more memory".into())
            }
            Fit::Unknown { .. } | Fit::Nothing => None,
        }
    }
}

/// Bytes per trained parameter: f32 weights, gradients and two moments, or bf16 with an f32 master; both are 16.
const FULL: f64 = 16.0;
/// The moments among them.
const MOMENTS: f64 = 8.0;
/// Trained parameters of adapters per parameter below them.
const ADAPTERS: f64 = 0.01;
/// A parameter that does not train: this engine holds f32, other trainers 16 bits.
const FROZEN_HERE: f64 = 4.0;
const FROZEN_ELSEWHERE: f64 = 2.0;
/// The same in 4 bits, with embeddings and head in 16.
const FROZEN_PACKED: f64 = 0.52 + 0.2;
/// Part of the memory stays free for activations, fragmentation and the device's own context.
const SHARE: f64 = 0.9;

/// Bytes of states in training, and at most: preflight trains a copy.
#[derive(Debug, Clone, Copy)]
struct States {
    training: u64,
    peak: u64,
}

/// The states of a method with an adapter.
fn states(facts: &Facts, adapter: Adapter, inputs: &Inputs) -> States {
    let n = inputs.n_params as f64;
    let here = super::available(facts);
    let frozen = if here { FROZEN_HERE } else { FROZEN_ELSEWHERE };
    let adapters = ADAPTERS * FULL;
    let packed = inputs.packed_bytes.map(|bytes| bytes as f64 / n.max(1.0));
    // With adapters the base itself is the reference; a critic beside the policy has a base of its own here.
    let models = if here { facts.trained_copies() } else { 1.0 };
    let reward = f64::from(u8::from(facts.passes.reward_model));
    let each = match adapter {
        Adapter::Full => FULL * facts.trained_copies() + frozen * facts.frozen_copies(),
        Adapter::Lora => (frozen + adapters) * models + frozen * reward,
        Adapter::QLora => {
            let base = packed.unwrap_or(FROZEN_PACKED) + adapters;
            base + (frozen + adapters) * (models - 1.0) + frozen * reward
        }
    };
    let peak = match here {
        true => each.max(checking(facts, adapter, packed)),
        false => each,
    };
    States {
        training: (each * n) as u64,
        peak: (peak * n) as u64,
    }
}

/// Bytes per parameter while preflight trains a copy of the policy: each has the moments of its critic, which has no weights yet, and the
/// reference is there once.
fn checking(facts: &Facts, adapter: Adapter, packed: Option<f64>) -> f64 {
    let reference = match adapter {
        Adapter::Full if facts.has_reference() => FROZEN_HERE,
        _ => 0.0,
    };
    let (policy, trained) = match adapter {
        Adapter::Full => (FULL, 1.0),
        Adapter::Lora => (FROZEN_HERE + ADAPTERS * FULL, ADAPTERS),
        Adapter::QLora => (packed.unwrap_or(FROZEN_PACKED) + ADAPTERS * FULL, ADAPTERS),
    };
    let critic = MOMENTS * trained * (facts.trained_copies() - 1.0).max(0.0);
    2.0 * (policy + critic) + reference
}

/// The forms that may be trained, the preferred one first. From scratch only full training works, and adapters hold too little of
/// a billion tokens of new text.
fn forms(facts: &Facts, inputs: &Inputs) -> Vec<Adapter> {
    let much = inputs.tokens.is_some_and(|n| n >= CPT_TOKENS);
    let fills = facts.id == MethodId::ContinuedPretrain && much;
    if inputs.start == Start::Scratch || !facts.adapters || fills {
        return vec![Adapter::Full];
    }
    // A score is read off f32 weights, and a critic begins with them.
    let decoded = matches!(facts.id, MethodId::RewardModel | MethodId::Ppo);
    let packed = inputs
        .packed_bytes
        .filter(|_| !decoded)
        .map(|_| Adapter::QLora);
    // Rule 7: a model that already follows instructions is changed as little as possible.
    let gently = inputs.start == Start::Instruct && inputs.goal != Goal::Reasoning;
    let (first, last) = match gently {
        true => (None, Some(Adapter::Full)),
        false => (Some(Adapter::Full), None),
    };
    let adapters = [Some(Adapter::Lora), packed];
    first
        .into_iter()
        .chain(adapters.into_iter().flatten())
        .chain(last)
        .collect()
}

/// The forms that fit, the recommended one first.
pub(super) fn options(facts: &Facts, inputs: &Inputs) -> Vec<(Adapter, Fit)> {
    if facts.trained_copies() == 0.0 {
        return vec![(Adapter::Full, Fit::Nothing)];
    }
    let forms = forms(facts, inputs);
    let elsewhere = inputs.gpu_memory.filter(|_| !super::available(facts));
    let memory = elsewhere.or(inputs.memory);
    let judged = |adapter: &Adapter| {
        let states = states(facts, *adapter, inputs);
        let need = states.training;
        let fit = match memory {
            None => Fit::Unknown { need },
            Some(memory) if states.peak as f64 <= SHARE * memory as f64 => {
                Fit::Fits { need, memory }
            }
            Some(_) => Fit::TooLarge,
        };
        (*adapter, fit)
    };
    let fits = |option: &(Adapter, Fit)| option.1 != Fit::TooLarge;
    let good: Vec<(Adapter, Fit)> = forms.iter().map(judged).filter(fits).collect();
    match (good.is_empty(), forms.len()) {
        (false, _) => good,
        (true, 1) => vec![(Adapter::Full, Fit::TooLarge)],
        (true, _) => vec![judged(&Adapter::QLora)],
    }
}
