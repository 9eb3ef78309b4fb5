//! Supervised fine-tuning: the mean negative log-probability of the answers' tokens over the whole optimizer step. Prompts
//! are context only; which tokens are answers is decided by the data.

use super::{Batch, LossMask, Needs};
use crate::base::registry::Entry;
use crate::metrics::{self, Metric};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "sft",
    title: "Supervised fine-tuning (SFT)",
    summary: "Learn to answer from conversations or prompt/completion pairs; only the answers count in the loss.",
    source: "Ouyang et al. 2022, arXiv 2203.02155",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// NEFTune: uniform noise on the embeddings of training batches, in ±alpha / √(tokens · features of a row); 5 is usual, 0 is off.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub neftune_alpha: f64,
}

impl super::Method for Config {
    fn needs(&self) -> Needs {
        Needs {
            mask: LossMask::CompletionOnly,
            ..Needs::default()
        }
    }

    fn coefficients(&self, _batch: &Batch, _mask: &mut [f32]) -> bool {
        true
    }

    fn readings(&self) -> &'static [Metric] {
        &[metrics::TOKEN_ACCURACY]
    }

    fn is_likelihood(&self) -> bool {
        true
    }

    fn embedding_noise(&self) -> f64 {
        self.neftune_alpha
    }
}
