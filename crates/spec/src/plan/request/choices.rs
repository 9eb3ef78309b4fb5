//! What a planned training chooses to save memory: adapters and the format of the base below them, recomputation, logits, attention.

use super::super::arch::Arch;
use crate::nn::adapter::{Lora as LoraConfig, Targets};
use crate::nn::{ActivationCheckpointing, AdapterConfig};

/// Low-rank adapters on a frozen base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lora {
    pub rank: u64,
    pub targets: LoraTargets,
}

/// Which linear layers carry an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoraTargets {
    /// Queries and values.
    Minimal,
    /// Queries, keys, values and the projection out.
    Attention,
    /// The feed-forward block.
    Ffn,
    /// Every linear layer of a block.
    All,
}

impl LoraTargets {
    pub const ALL: [(&str, LoraTargets); 4] = [
        ("minimal", LoraTargets::Minimal),
        ("attention", LoraTargets::Attention),
        ("ffn", LoraTargets::Ffn),
        ("all", LoraTargets::All),
    ];

    pub fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, t)| *t == self)
            .map_or("", |(word, _)| word)
    }

    /// As a spec says them.
    pub(super) fn config(self) -> Targets {
        match self {
            LoraTargets::Minimal => Targets::Minimal,
            LoraTargets::Attention => Targets::AttentionOnly,
            LoraTargets::Ffn => Targets::FfnOnly,
            LoraTargets::All => Targets::All,
        }
    }
}

impl Lora {
    /// Those of a spec; a list of layers counts as all of them.
    pub fn of(adapter: &AdapterConfig) -> Lora {
        let AdapterConfig::Lora(lora) = adapter;
        Lora {
            rank: lora.rank as u64,
            targets: match lora.targets {
                Targets::Minimal => LoraTargets::Minimal,
                Targets::AttentionOnly => LoraTargets::Attention,
                Targets::FfnOnly => LoraTargets::Ffn,
                Targets::All | Targets::AllAndExperts | Targets::Custom | Targets::Pattern => {
                    LoraTargets::All
                }
            },
        }
    }

    /// As a spec says it.
    pub(super) fn config(self) -> LoraConfig {
        LoraConfig {
            rank: self.rank as usize,
            targets: self.targets.config(),
            ..LoraConfig::default()
        }
    }

    /// Trainable parameters: rank × (in + out) of every adapted layer.
    pub fn params(&self, arch: &Arch) -> u64 {
        let widths = arch.linear_widths();
        let attention = widths.query_value + widths.key_output;
        let widths = match self.targets {
            LoraTargets::Minimal => widths.query_value,
            LoraTargets::Attention => attention,
            LoraTargets::Ffn => widths.mlp,
            LoraTargets::All => attention + widths.mixers + widths.mlp,
        };
        self.rank * widths
    }
}

/// The number format of frozen weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseFormat {
    /// As the precision says.
    Whole,
    Int8,
    Nf4,
    /// NF4 with double quantization: 4.127 bits (QLoRA).
    Nf4Double,
    Int2,
}

impl BaseFormat {
    pub const ALL: [(&str, BaseFormat); 5] = [
        ("none", BaseFormat::Whole),
        ("int8", BaseFormat::Int8),
        ("nf4", BaseFormat::Nf4Double),
        ("nf4-single", BaseFormat::Nf4),
        ("int2", BaseFormat::Int2),
    ];

    pub fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, b)| *b == self)
            .map_or("", |(word, _)| word)
    }

    /// Bits per quantized weight, scales included; `None` for unquantized formats.
    pub fn bits(self) -> Option<f64> {
        match self {
            BaseFormat::Whole => None,
            BaseFormat::Int8 => Some(8.16),
            // One f32 scale for 64 weights.
            BaseFormat::Nf4 => Some(4.5),
            BaseFormat::Nf4Double => Some(4.127),
            BaseFormat::Int2 => Some(2.127),
        }
    }
}

/// Which activations are stored for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpointing {
    Off,
    /// Only the input of every n-th block; segments are recomputed one at a time.
    EveryN(u64),
    /// Only the input of each block; the rest is recomputed.
    Full,
}

impl Checkpointing {
    /// Choices offered by forms.
    pub const ALL: [Checkpointing; 4] = [
        Checkpointing::Off,
        Checkpointing::EveryN(2),
        Checkpointing::EveryN(4),
        Checkpointing::Full,
    ];

    /// `off`, `every 2 blocks`, `full`.
    pub fn words(self) -> String {
        match self {
            Checkpointing::Off => "off".into(),
            Checkpointing::EveryN(n) => format!("every {n} blocks"),
            Checkpointing::Full => "full".into(),
        }
    }

    /// Reads `off`, `full`, `every-4`.
    pub fn by_word(word: &str) -> Option<Checkpointing> {
        let word = word.to_lowercase();
        match word.strip_prefix("every-") {
            Some(n) => n.parse().ok().filter(|n| *n >= 1).map(Self::EveryN),
            None if word == "off" => Some(Checkpointing::Off),
            None => (word == "full").then_some(Checkpointing::Full),
        }
    }

    /// As this program's engine implements it.
    pub fn engine(self) -> ActivationCheckpointing {
        match self {
            Checkpointing::Off => ActivationCheckpointing::None {},
            Checkpointing::EveryN(n) => ActivationCheckpointing::EveryN { n: n as usize },
            Checkpointing::Full => ActivationCheckpointing::Full {},
        }
    }

    /// Blocks per segment, in a model of `n_layer` blocks.
    pub fn segment_len(self, n_layer: u64) -> u64 {
        self.engine().segment_len(n_layer as usize) as u64
    }
}

impl From<ActivationCheckpointing> for Checkpointing {
    fn from(engine: ActivationCheckpointing) -> Self {
        match engine {
            ActivationCheckpointing::None {} => Checkpointing::Off,
            ActivationCheckpointing::EveryN { n } => Checkpointing::EveryN(n as u64),
            ActivationCheckpointing::Full {} => Checkpointing::Full,
        }
    }
}

/// How many logits exist at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    Whole,
    /// A loss in chunks of this many tokens.
    Chunked(u64),
}

/// How attention stores its scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKind {
    /// Flash attention: one number per row (arXiv 2205.14135).
    Flash,
    /// Eager: the full matrices of scores and probabilities.
    Eager,
}
