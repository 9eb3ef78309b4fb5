//! Bytes per parameter: weights, gradient, optimizer state, by number format and update rule.

use crate::nn::ParamInfo;
use crate::spec::RunConfig;
use crate::spec::schema::{Node, root};
use serde_json::Value;

/// Number formats of the state of trainable parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Everything in f32.
    Fp32,
    /// 16-bit weights and gradients, f32 master weights and moments (ZeRO, arXiv 1910.02054).
    Mixed,
    /// The same with gradients in f32 (Megatron, Hugging Face).
    MixedFp32Grads,
    /// Weights, gradients and moments in bf16.
    Bf16,
    /// Weights, gradients and moments in f32, matmul inputs rounded to bf16 on load: this program's engine on a
    /// processor with fast bf16. What matmuls alone read and write is kept in bf16.
    Fp32Bf16Matmuls,
}

/// The update rule, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateState {
    /// Two moments.
    AdamW,
    /// Two moments of one byte each.
    AdamW8bit,
    /// One moment: Lion, Muon, SGD with momentum.
    OneMoment,
    /// Row and column statistics only.
    Adafactor,
    /// One of this program's own, by what it says of itself.
    Own {
        /// As a spec names it.
        word: &'static str,
        /// Of its state, for so many trained parameters.
        bytes: u64,
        /// Of the same in a checkpoint.
        saved: u64,
        params: u64,
    },
}

/// Bytes per trainable parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BytesPerParam {
    pub weights: f64,
    pub gradient: f64,
    /// Master weights included.
    pub optimizer: f64,
}

impl BytesPerParam {
    pub fn sum(&self) -> f64 {
        self.weights + self.gradient + self.optimizer
    }
}

impl Precision {
    pub const ALL: [(&str, Precision); 4] = [
        ("fp32", Precision::Fp32),
        ("mixed", Precision::Mixed),
        ("mixed-fp32-grads", Precision::MixedFp32Grads),
        ("bf16", Precision::Bf16),
    ];

    pub fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, p)| *p == self)
            .map_or("f32, matmuls in bf16", |(word, _)| word)
    }

    /// Bytes per weight in compute precision.
    pub fn weight_bytes(self) -> f64 {
        match self {
            Precision::Fp32 | Precision::Fp32Bf16Matmuls => 4.0,
            Precision::Mixed | Precision::MixedFp32Grads | Precision::Bf16 => 2.0,
        }
    }

    /// The dtype of this engine's matmuls, as named by runs and benchmarks.
    pub fn matmul_dtype(self) -> &'static str {
        match self {
            Precision::Fp32 => "f32",
            _ => "bf16",
        }
    }
}

impl UpdateState {
    pub const ALL: [(&str, UpdateState); 4] = [
        ("adamw", UpdateState::AdamW),
        ("adamw8bit", UpdateState::AdamW8bit),
        ("one-moment", UpdateState::OneMoment),
        ("adafactor", UpdateState::Adafactor),
    ];

    pub fn word(self) -> &'static str {
        if let UpdateState::Own { word, .. } = self {
            return word;
        }
        Self::ALL
            .iter()
            .find(|(_, u)| *u == self)
            .map_or("", |(word, _)| word)
    }

    /// Bytes of state for a trained parameter in this program's engine, which keeps f32 but for codes of 8 bits.
    pub fn engine_bytes(self) -> f64 {
        match self {
            UpdateState::AdamW => 8.0,
            UpdateState::AdamW8bit => 2.0,
            UpdateState::OneMoment => 4.0,
            UpdateState::Adafactor => 0.0,
            UpdateState::Own { bytes, params, .. } => bytes as f64 / params.max(1) as f64,
        }
    }

    /// Bytes of the same in a checkpoint, which has f32 alone: three codes of 8 bits in each.
    pub fn saved_bytes(self) -> f64 {
        match self {
            UpdateState::AdamW8bit => 8.0 / 3.0,
            UpdateState::Own { saved, params, .. } => saved as f64 / params.max(1) as f64,
            other => other.engine_bytes(),
        }
    }

    /// What it keeps in this program's engine, in words.
    pub fn kept(self) -> &'static str {
        let config = self.config();
        config.map_or("f32 moments", |config| config.optimizer.state_summary())
    }

    /// A spec with the optimizer of this name; `None` for a rule that only other trainers have.
    pub(super) fn config(self) -> Option<RunConfig> {
        updated_by(self.word())
    }

    /// The rule of a spec's optimizer with its own settings, for these parameters; `None` where no optimizer is called so.
    pub fn of_optimizer(word: &str, infos: &[ParamInfo]) -> Option<UpdateState> {
        let word = word.replace('-', "_");
        let plain = [Self::AdamW, Self::AdamW8bit, Self::Adafactor];
        if let Some(plain) = plain.into_iter().find(|rule| rule.word() == word) {
            return Some(plain);
        }
        Self::own(&word, infos)
    }

    fn own(word: &str, infos: &[ParamInfo]) -> Option<UpdateState> {
        let RunConfig { optimizer, .. } = updated_by(word)?;
        let trained = infos.iter().filter(|info| info.trains());
        Some(UpdateState::Own {
            word: optimizer.entry().id,
            bytes: optimizer.state_bytes(infos),
            saved: optimizer.saved_bytes(infos),
            params: trained.map(|info| info.len as u64).sum(),
        })
    }

    /// AdamW of a spec with moments of 8 bits; what it keeps beside moments (`train.ema_decay`) stays.
    pub(super) fn in_8_bits(self, infos: &[ParamInfo]) -> Option<UpdateState> {
        let beside = self.engine_bytes() - Self::AdamW.engine_bytes();
        let mut rule = Self::own(Self::AdamW8bit.word(), infos)?;
        if let UpdateState::Own {
            bytes,
            saved,
            params,
            ..
        } = &mut rule
        {
            let beside = (beside.max(0.0) * *params as f64).round() as u64;
            (*bytes, *saved) = (*bytes + beside, *saved + beside);
        }
        Some(rule)
    }

    /// The optimizers of a spec, and the rule that only other trainers have.
    pub fn optimizers() -> Vec<&'static str> {
        let own = root().at("optimizer").map(Node::choices);
        own.unwrap_or_default().into_iter().chain(["sgd"]).collect()
    }

    /// The rule for another tool's name.
    pub fn by_word(word: &str) -> Option<UpdateState> {
        match word {
            "sgd" | "sgdm" | "momentum" => Some(UpdateState::OneMoment),
            "adam" => Some(UpdateState::AdamW),
            "adamw-8bit" | "paged-adamw-8bit" | "adam8bit" => Some(UpdateState::AdamW8bit),
            word => Self::ALL.iter().find(|(w, _)| *w == word).map(|(_, u)| *u),
        }
    }
}

/// The settings that leave a spec's AdamW its rates where `-s optimizer=adamw8bit` replaces it: those that differ from the defaults there.
/// Empty for other rules.
pub(super) fn rates_in_8_bits(config: &RunConfig) -> String {
    let word = UpdateState::AdamW8bit.word();
    let usual = updated_by(word).and_then(|config| serde_json::to_value(config.optimizer).ok());
    let (Some(usual), Ok(said)) = (usual, serde_json::to_value(&config.optimizer)) else {
        return String::new();
    };
    let said = &said[UpdateState::AdamW.word()];
    let differs = |(key, usual): (&String, &Value)| {
        let said = said.get(key).filter(|said| *said != usual)?;
        Some(format!(" -s optimizer.{word}.{key}={said}"))
    };
    let keys = usual[word].as_object().into_iter().flatten();
    keys.filter_map(differs).collect()
}

/// The default spec with an optimizer by name.
fn updated_by(word: &str) -> Option<RunConfig> {
    serde_json::from_value(serde_json::json!({ "optimizer": { word: {} } })).ok()
}

/// The table of planning, one row for each pair.
pub fn bytes_per_param(precision: Precision, update: UpdateState) -> BytesPerParam {
    let (weights, gradient, master, moment) = match precision {
        Precision::Fp32 | Precision::Fp32Bf16Matmuls => (4.0, 4.0, 0.0, 4.0),
        Precision::Mixed => (2.0, 2.0, 4.0, 4.0),
        Precision::MixedFp32Grads => (2.0, 4.0, 4.0, 4.0),
        Precision::Bf16 => (2.0, 2.0, 0.0, 2.0),
    };
    let moments = match update {
        UpdateState::AdamW => 2.0 * moment,
        UpdateState::AdamW8bit => 2.0,
        UpdateState::OneMoment => moment,
        UpdateState::Adafactor => 0.0,
        UpdateState::Own { .. } => update.engine_bytes() / 4.0 * moment,
    };
    BytesPerParam {
        weights,
        gradient,
        optimizer: master + moments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_the_literature() {
        use Precision::{Bf16, Fp32, Fp32Bf16Matmuls, Mixed, MixedFp32Grads};
        use UpdateState::{Adafactor, AdamW, AdamW8bit, OneMoment};
        for (precision, update, sum) in [
            (Fp32, AdamW, 16.0),
            (Fp32Bf16Matmuls, AdamW, 16.0),
            (Mixed, AdamW, 16.0),
            (MixedFp32Grads, AdamW, 18.0),
            (Bf16, AdamW, 8.0),
            (Mixed, AdamW8bit, 10.0),
            (Bf16, AdamW8bit, 6.0),
            (Mixed, OneMoment, 12.0),
            (Mixed, Adafactor, 8.0),
        ] {
            assert_eq!(
                bytes_per_param(precision, update).sum(),
                sum,
                "{precision:?} {update:?}"
            );
        }
    }

    #[test]
    fn words_of_other_tools_are_understood() {
        assert_eq!(UpdateState::by_word("sgdm"), Some(UpdateState::OneMoment));
        assert_eq!(UpdateState::by_word("adamw"), Some(UpdateState::AdamW));
        assert_eq!(UpdateState::by_word("levitation"), None);
    }

    #[test]
    fn every_optimizer_of_a_spec_is_planned_with_what_it_keeps() {
        let sources = crate::spec::SpecSources::default();
        let request = crate::plan::target::resolve("smoke", &[], &sources).unwrap();
        let infos = request.param_infos();
        let all = UpdateState::optimizers();
        let (sgd, own) = all.split_last().unwrap();
        assert_eq!((*sgd, own.len()), ("sgd", 8));
        for word in own {
            let rule = UpdateState::of_optimizer(word, &infos).unwrap();
            assert_eq!(rule.word(), *word);
            // The same spec says as much of itself.
            let set = [format!("optimizer={word}")];
            let own = crate::plan::target::resolve("smoke", &set, &sources).unwrap();
            let (a, b) = (rule.engine_bytes(), own.update.engine_bytes());
            assert!((a - b).abs() < 0.2, "{word}: {a} {b}");
        }
        assert!(UpdateState::of_optimizer("schedule-free", &infos).is_some());
        assert_eq!(UpdateState::of_optimizer("levitation", &infos), None);
    }
}
