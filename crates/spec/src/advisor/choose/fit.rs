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

    /// `beside`: all weights fit too.
    pub(super) fn words(self, adapter: Adapter, beside: bool) -> Option<String> {
        match self {
            Fit::Fits { need, memory } => Some(format!(
                "states take {} of {}{}",
                human::bytes(need),
                human::bytes(memory),
                match (adapter, beside) {
                    (Adapter::Full, _) => "",
                    (Adapter::Lora, true) => ": little is trained, so little is forgotten",
                    (Adapter::Lora, false) => ": all weights would not fit",
                    (Adapter::QLora, _) =>
                        ": neither all weights nor LoRA would fit; the base is a quantized GGUF file, which llmtui quantize makes",
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

/// The forms that fit, the recommended one first. From scratch, or for a billion tokens of new text, only full training
/// works.
pub(super) fn options(facts: &Facts, inputs: &Inputs) -> Vec<(Adapter, Fit)> {
    if facts.trained_copies() == 0.0 {
        return vec![(Adapter::Full, Fit::Nothing)];
    }
    let adapters: &[Adapter] = if inputs.start == Start::Scratch || !facts.adapters {
        &[Adapter::Full]
    } else if inputs.start == Start::Instruct && inputs.goal != Goal::Reasoning {
        // Rule 7: a model that already follows instructions is changed as little as possible.
        &[Adapter::Lora, Adapter::Full]
    } else {
        &[Adapter::Full, Adapter::Lora]
    };
    let elsewhere = inputs.gpu_memory.filter(|_| !super::available(facts));
    let memory = elsewhere.or(inputs.memory);
    let judged = |adapter: &Adapter| {
        let need = need(facts, *adapter, inputs.n_params);
        let fit = match memory {
            None => Fit::Unknown { need },
            Some(memory) if need as f64 <= SHARE * memory as f64 => Fit::Fits { need, memory },
            Some(_) => Fit::TooLarge,
        };
        (*adapter, fit)
    };
    let fits = |option: &(Adapter, Fit)| option.1 != Fit::TooLarge;
    let good: Vec<(Adapter, Fit)> = adapters.iter().map(judged).filter(fits).collect();
    match (good.is_empty(), adapters.len()) {
        (false, _) => good,
        (true, 1) => vec![(Adapter::Full, Fit::TooLarge)],
        (true, _) => vec![judged(&Adapter::QLora)],
    }
}
