//! What a bit-exact resume depends on besides the checkpoint: data, program, and class of machine.

use crate::base::text::one_line;
use crate::data::Dataset;
use crate::engine::roles::Models;
use crate::kernels::matmul::{ComputeDtype, kernel_name};
use crate::nn::compute_dtype_name;
use crate::spec::RunSpec;
use serde::{Deserialize, Serialize};

/// Recorded with every checkpoint and compared at a resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// SHA-256 of the text.
    pub data: String,
    /// `data.val_fraction` of a plain text; older checkpoints do not say. Of documents, `data` holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_fraction: Option<String>,
    /// SHA-256 of the tokenizer.
    pub tokenizer: String,
    /// Compute threads; 0 where GPUs compute, whatever the processor beside them has.
    pub threads: usize,
    /// Compute dtype of matmuls, `f32` or `bf16`; checkpoints of version 0.1.0 do not say: they are f32.
    #[serde(default = "f32_word")]
    pub arithmetic: String,
    /// Instructions of the matmuls, which group sums each in their own way: AVX2, AVX-512, AMX. Empty where GPUs compute; older
    /// checkpoints do not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// The teacher of a distillation; older checkpoints do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<FrozenModel>,
    /// What computed: `candle`, or `torch` with its settings; older checkpoints do not say.
    #[serde(default = "candle_word", skip_serializing_if = "is_candle")]
    pub engine: String,
    /// Program version.
    pub program: String,
    /// Architecture of the processor.
    pub arch: String,
}

/// A model beside the one that trains, which training never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenModel {
    /// As the spec names it.
    pub place: String,
    /// [`crate::nn::Model::base_fingerprint`].
    pub weights: String,
}

/// How a checkpoint's circumstances relate to the present ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// The continuation has the same bits as an uninterrupted run.
    Exact,
    /// It can continue, but not bit-exactly; because …
    Inexact(String),
    /// It would continue with something else; because …
    Different(String),
}

fn f32_word() -> String {
    compute_dtype_name(ComputeDtype::F32).into()
}

fn candle_word() -> String {
    crate::workers::candle::ENTRY.id.into()
}

fn is_candle(engine: &String) -> bool {
    *engine == candle_word()
}

impl Fingerprint {
    pub fn of(spec: &RunSpec, data: &Dataset) -> Fingerprint {
        // A run whose precision this machine cannot do ends before its first checkpoint.
        let arithmetic = spec.train.precision.resolve().unwrap_or_default();
        Fingerprint {
            arithmetic: compute_dtype_name(arithmetic).into(),
            kernel: kernel_name(arithmetic).into(),
            engine: match spec.engine.torch() {
                None => candle_word(),
                Some(torch) => {
                    let ranks = torch.ranks.map_or("auto".to_string(), |n| n.to_string());
                    format!("torch ({}, ranks {ranks})", torch.shard_word())
                }
            },
            data: data.fingerprint.clone(),
            val_fraction: data
                .is_plain_text()
                .then(|| spec.data.val_fraction.to_string()),
            tokenizer: data.tokenizer_fingerprint.clone(),
            teacher: None,
            threads: crate::engine::threads(spec),
            program: env!("CARGO_PKG_VERSION").into(),
            arch: std::env::consts::ARCH.into(),
        }
    }

    /// That of a run with these models: its teacher, and its ranks if it has any, how many they really are and on what they compute.
    pub fn with(mut self, models: &Models) -> Fingerprint {
        self.teacher = models.teacher.clone();
        if let Some(ranks) = &models.remote {
            self.engine = ranks.computes();
            self.arithmetic = ranks.precision().into();
            if ranks.are_on_gpus() {
                self.threads = 0;
                self.kernel.clear();
            }
        }
        self
    }

    /// Whether both are of the same data, read by the same tokenizer, with the same part held out.
    pub fn same_data(&self, other: &Fingerprint) -> bool {
        self.other_data(other).is_none()
    }

    fn other_data(&self, now: &Fingerprint) -> Option<String> {
        if self.tokenizer != now.tokenizer {
            return Some("the tokenizer changed since the checkpoint".into());
        }
        if self.data != now.data {
            return Some("the training text changed since the checkpoint".into());
        }
        match (&self.val_fraction, &now.val_fraction) {
            (Some(then), Some(now)) if then != now => Some(format!(
                "data.val_fraction is {now} but was {then} at the checkpoint: another part of the text is held out"
            )),
            _ => None,
        }
    }

    /// Compares a checkpoint's fingerprint, `self`, with the present.
    pub fn compare(&self, now: &Fingerprint) -> Match {
        if let Some(why) = self.other_data(now) {
            return Match::Different(why);
        }
        let mut why = Vec::new();
        if let (Some(then), Some(now)) = (&self.teacher, &now.teacher)
            && then.weights != now.weights
        {
            if then.place == now.place {
                let what = "the teacher's weights changed since the checkpoint";
                return Match::Different(format!("{what} ({})", one_line(&now.place)));
            }
            let [was, is] = [&then.place, &now.place].map(|place| one_line(place));
            why.push(format!("the teacher {is} instead of {was}"));
        }
        let processors = self.threads > 0 && now.threads > 0;
        if processors && self.threads != now.threads {
            why.push(format!(
                "{} compute threads instead of {}",
                now.threads, self.threads
            ));
        }
        if self.arithmetic != now.arithmetic {
            why.push(format!(
                "{} arithmetic instead of {}",
                now.arithmetic, self.arithmetic
            ));
        }
        let kernels = [&self.kernel, &now.kernel];
        let known = processors && kernels.iter().all(|kernel| !kernel.is_empty());
        if known && self.kernel != now.kernel {
            why.push(format!(
                "matmuls with {} instead of {}",
                now.kernel, self.kernel
            ));
        }
        if self.engine != now.engine {
            why.push(format!("engine {} instead of {}", now.engine, self.engine));
        }
        if self.program != now.program {
            why.push(format!(
                "llmtui {} instead of {}",
                now.program, self.program
            ));
        }
        if self.arch != now.arch {
            why.push(format!("{} instead of {}", now.arch, self.arch));
        }
        if why.is_empty() {
            Match::Exact
        } else {
            Match::Inexact(why.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_decides_and_circumstances_are_named() {
        let then = Fingerprint {
            data: "a".into(),
            val_fraction: Some("0.1".into()),
            tokenizer: "t".into(),
            teacher: None,
            threads: 2,
            arithmetic: "bf16".into(),
            kernel: "AMX".into(),
            engine: candle_word(),
            program: "0.1.0".into(),
            arch: "x86_64".into(),
        };
        assert_eq!(then.compare(&then), Match::Exact);
        let slower = Fingerprint {
            threads: 1,
            ..then.clone()
        };
        let Match::Inexact(why) = then.compare(&slower) else {
            panic!("exact?")
        };
        assert_eq!(why, "1 compute threads instead of 2");
        let on_gpus = Fingerprint {
            threads: 0,
            ..then.clone()
        };
        assert_eq!(on_gpus.compare(&then), Match::Exact);
        // Another kind of processor.
        let elsewhere = |kernel: &str| Fingerprint {
            kernel: kernel.into(),
            ..then.clone()
        };
        let why = "matmuls with AVX-512 bf16 instead of AMX".to_string();
        assert_eq!(
            then.compare(&elsewhere("AVX-512 bf16")),
            Match::Inexact(why)
        );
        assert_eq!(then.compare(&elsewhere("")), Match::Exact);
        let older = serde_json::to_string(&elsewhere("")).unwrap();
        assert!(!older.contains("kernel"), "{older}");
        assert_eq!(
            serde_json::from_str::<Fingerprint>(&older).unwrap(),
            elsewhere("")
        );
        let rounded = Fingerprint {
            arithmetic: "f32".into(),
            ..then.clone()
        };
        let why = "f32 arithmetic instead of bf16".to_string();
        assert_eq!(then.compare(&rounded), Match::Inexact(why));
        let split = Fingerprint {
            val_fraction: Some("0.3".into()),
            ..then.clone()
        };
        let Match::Different(why) = then.compare(&split) else {
            panic!("other rows are held out")
        };
        assert!(why.contains("val_fraction is 0.3 but was 0.1"), "{why}");
        let unsaid = Fingerprint {
            val_fraction: None,
            ..then.clone()
        };
        assert_eq!(unsaid.compare(&split), Match::Exact);
        let taught = |place: &str, weights: &str| Fingerprint {
            teacher: Some(FrozenModel {
                place: place.into(),
                weights: weights.into(),
            }),
            ..then.clone()
        };
        let big = taught("big", "w");
        assert_eq!(then.compare(&big), Match::Exact, "an older checkpoint");
        assert_eq!(big.compare(&taught("moved", "w")), Match::Exact);
        assert_eq!(
            big.compare(&taught("bigger", "x")),
            Match::Inexact("the teacher bigger instead of big".into())
        );
        let trained_on = "the teacher's weights changed since the checkpoint (big)".into();
        assert_eq!(
            big.compare(&taught("big", "x")),
            Match::Different(trained_on)
        );
        assert!(big.same_data(&taught("big", "x")) && !then.same_data(&split));
        let other = Fingerprint {
            data: "b".into(),
            ..slower
        };
        assert!(matches!(then.compare(&other), Match::Different(_)));
    }
}
