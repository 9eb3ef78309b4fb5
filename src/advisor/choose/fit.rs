//! Rule 8, memory: full training if its states fit, else LoRA, else QLoRA. Only states count here, which scale with the
//! parameters; activations depend on the batch and belong to the plan.

use super::Facts;
use super::{Goal, Inputs, Start};
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

    pub(super) fn words(self, adapter: Adapter) -> Option<String> {
        match self {
            Fit::Fits { need, memory } => Some(format!(
                "states take {} of {}{}",
                human::bytes(need),
                human::bytes(memory),
                match adapter {
                    Adapter::Full => "",
                    Adapter::Lora => ": all weights would not fit",
                    Adapter::QLora => ": neither all weights nor LoRA would fit",
                }
            )),
            Fit::TooLarge => {
                Some("not even QLoRA fits here: a smaller model, or more memory".into())
            }
            Fit::Unknown { .. } | Fit::Nothing => None,
        }
    }
}

/// Bytes per trained parameter: f32 weights, gradients and two moments, or bf16 with an f32 master; both are 16.
const FULL: f64 = 16.0;
/// The frozen base in bf16, plus the states of adapters of about one percent of it.
const LORA: f64 = 2.0 + 0.01 * 18.0;
/// NF4 with double quantization, 16-bit embeddings and head, plus the adapters.
const QLORA: f64 = 0.52 + 0.2 + 0.01 * 18.0;
/// Part of the memory stays free for activations, fragmentation and the device's own context.
const SHARE: f64 = 0.9;

/// Bytes of states for a method with an adapter.
fn need(facts: &Facts, adapter: Adapter, n_params: u64) -> u64 {
    let trained = match adapter {
        Adapter::Full => FULL * facts.trained_copies() + facts.frozen_bytes_per_param(),
        // With adapters the base itself is the reference, and actor and critic share it; a reward model comes on top.
        Adapter::Lora => LORA + (facts.frozen_bytes_per_param() - 2.0).max(0.0),
        Adapter::QLora => QLORA + (facts.frozen_bytes_per_param() - 2.0).max(0.0) * 0.36,
    };
    (trained * n_params as f64) as u64
}

/// The most capable form that fits. From scratch, or for a billion tokens of new text, only full training works.
pub(super) fn choose(facts: &Facts, inputs: &Inputs) -> (Adapter, Fit) {
    if facts.trained_copies() == 0.0 {
        return (Adapter::Full, Fit::Nothing);
    }
    let whole = inputs.start == Start::Scratch || !facts.adapters;
    let adapters: &[Adapter] = if whole {
        &[Adapter::Full]
    } else if inputs.start == Start::Instruct && inputs.goal != Goal::Reasoning {
        // Rule 7: a model that already follows instructions is changed as little as possible.
        &[Adapter::Lora, Adapter::QLora]
    } else {
        &[Adapter::Full, Adapter::Lora, Adapter::QLora]
    };
    let first = adapters.first().copied().unwrap_or(Adapter::Full);
    let elsewhere = inputs.gpu_memory.filter(|_| !super::available(facts));
    let Some(memory) = elsewhere.or(inputs.memory) else {
        return (
            first,
            Fit::Unknown {
                need: need(facts, first, inputs.n_params),
            },
        );
    };
    for adapter in adapters {
        let need = need(facts, *adapter, inputs.n_params);
        if need as f64 <= SHARE * memory as f64 {
            return (*adapter, Fit::Fits { need, memory });
        }
    }
    (adapters.last().copied().unwrap_or(first), Fit::TooLarge)
}
