//! Metrics of a model and a set of texts, measured on demand (`llmtui memorization`).

use super::Repeatable::Yes;
use super::{Metric, metric};
use crate::wire::{Direction, Origin};

pub const CODEC: Metric = metric(
    "codec",
    "CoDeC score",
    "share",
    Direction::Lower,
    Yes,
    "share of texts whose mean log-likelihood falls when another text of the set precedes them (Zawalski et al. 2025, arXiv 2510.27055)",
)
.estimator("codec")
.band(f64::NEG_INFINITY, 0.8, Origin::Literature)
.meaning(
    "Below 0.5 where context helps, as with unseen texts; up to 0.6 in very diverse unseen sets; near 0.5 in untrained models. It applies to a set, never to one text.",
    "Above 0.8 the model was trained on the set or on very similar texts: do not report scores on it. From 0.6 to 0.8 compare with other models and other sets.",
);

pub const ZLIB: Metric = metric(
    "zlib_ratio",
    "zlib ratio",
    "bits/bits",
    Direction::Neutral,
    Yes,
    "bits that the model needs for a text, without its first token, over bits that zlib (level 6) needs; the median of the texts (after Carlini et al. 2021, arXiv 2012.07805)",
)
.estimator("bits_ratio")
.band(0.05, f64::INFINITY, Origin::RuleOfThumb)
.meaning(
    "0.2 to 0.35 of a good model on English, near 1 of a small one. Texts of fewer than 500 bytes and those that zlib packs to less than 0.15 are skipped.",
    "Below 0.05 texts are memorized verbatim. Compare with held-out texts of the same kind: an AUC above 0.6 means some are memorized, above 0.8 many; remove duplicates, train for fewer epochs.",
);

pub const MIN_K: Metric = metric(
    "min_k_prob",
    "Min-20 % probability",
    "nats",
    Direction::Neutral,
    Yes,
    "mean log-probability of the least likely fifth of a text's tokens; the median of the texts (Shi et al. 2024, arXiv 2310.16789)",
)
.estimator("min_k_20")
.meaning(
    "Depends on text and model; only the difference from held-out texts of the same kind is meaningful.",
    "An AUC above 0.6 against them: texts of the set were seen in training.",
);

/// A CoDeC score above this, but within the band, is inconclusive.
pub const CODEC_UNSURE: f64 = 0.6;

/// Areas under the ROC curve, against held-out texts of the same kind, above which some or many texts are memorized.
pub const AUC_SOME: f64 = 0.6;
pub const AUC_MANY: f64 = 0.8;

/// All of them, in the order of the table of `llmtui memorization`.
pub const OF_TEXTS: [&Metric; 3] = [&CODEC, &ZLIB, &MIN_K];
