//! LoRA: the update of a frozen matrix is the product of two low-rank matrices. rsLoRA, DoRA and LoRA+ are options of it.

use super::{Adapter, ByPattern};
use crate::base::registry::Entry;
use crate::nn::role::{AttentionRole, MixerRole, MlpRole};
use crate::nn::{Fault, ModelConfig, Naming, Role, param_infos};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const ENTRY: Entry = Entry {
    id: "lora",
    title: "LoRA",
    summary: "Low-rank adapters on frozen weights: few trainable parameters, small checkpoints, less memory.",
    source: "Hu et al. 2021, arXiv 2106.09685; files as PEFT writes them",
};

/// y = W x + (alpha / rank) · B (A · dropout(x)), W frozen. A starts uniform in ±1/√in, B at zero: training starts from the
/// base model exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Rows of A and columns of B.
    #[schemars(range(min = 1, max = 4096))]
    pub rank: usize,
    /// The adapter's output is scaled by alpha / rank, or alpha / √rank with rslora.
    #[schemars(range(min = 0.001, max = 65536.0))]
    pub alpha: f64,
    /// Dropout probability on the adapter's input, in training.
    #[schemars(range(min = 0.0, max = 0.95))]
    pub dropout: f64,
    /// Which linear layers of a block have an adapter. All of them perform best for their size (Schulman et al. 2025, "LoRA
    /// without regret"). A list of modules, as PEFT's target_modules is written, is taken too: `[q_proj, v_proj]` is
    /// `pattern` with these `patterns`, `[query, value]` is `custom`.
    pub targets: Targets,
    /// The layers of `targets: custom`; `output` is attention's projection out, `experts` are the matrices of all experts (PEFT's
    /// target_parameters).
    pub custom: Vec<Target>,
    /// The modules of `targets: pattern`, by name or the end of a name, `*` for anything: `q_proj`, `layers.3.*`.
    pub patterns: Vec<String>,
    /// Ranks of single modules, by patterns for the end of a name; the first match counts: `{q_proj: 16,
    /// layers.0.*: 4}` (PEFT's rank_pattern). All others have `rank`.
    #[schemars(schema_with = "ranks")]
    pub rank_pattern: ByPattern<usize>,
    /// Alphas of single modules, in the same way (PEFT's alpha_pattern). Others have `alpha`, whatever their rank.
    #[schemars(schema_with = "alphas")]
    pub alpha_pattern: ByPattern<f64>,
    /// Scale by alpha / √rank: stable at high ranks (rsLoRA, Kalajdzievski 2023, arXiv 2312.03732).
    pub rslora: bool,
    /// Train the magnitude of each weight row separately from its direction (DoRA, Liu et al. 2024, arXiv 2402.09353). Learns
    /// more at low ranks; steps take longer and store one more activation per layer.
    pub dora: bool,
    /// Learning rate of B, and of DoRA's magnitudes, relative to A; 16 is typical (LoRA+, Hayou et al. 2024, arXiv 2402.12354), 1 is
    /// plain LoRA.
    #[schemars(range(min = 0.01, max = 1000.0))]
    pub b_lr_ratio: f64,
    /// Modules trained in full next to the adapters, for tokens that the base has never seen (PEFT's modules_to_save).
    pub modules_to_save: Vec<Whole>,
    /// Modules whose rank or alpha is another than all of these say, by whole names: those of adapters from files. A spec has
    /// patterns.
    #[serde(skip)]
    pub modules: BTreeMap<String, RankAlpha>,
}

fn ranks(_: &mut SchemaGenerator) -> Schema {
    let rank = serde_json::json!({"type": "integer", "minimum": 1, "maximum": 4096});
    json_schema!({"type": "object", "additionalProperties": rank})
}

fn alphas(_: &mut SchemaGenerator) -> Schema {
    let alpha = serde_json::json!({"type": "number", "minimum": 0.001, "maximum": 65536.0});
    json_schema!({"type": "object", "additionalProperties": alpha})
}

/// The size of one module's adapter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankAlpha {
    pub rank: usize,
    pub alpha: f64,
}

/// Sets of linear layers.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    /// Every linear layer of a block, experts excepted.
    #[default]
    All,
    /// The same and the experts of every block, each of which has factors of its own.
    AllAndExperts,
    /// Queries and values.
    Minimal,
    /// Queries, keys, values, the gate and the projection out.
    AttentionOnly,
    /// The feed-forward block.
    FfnOnly,
    /// What `custom` lists.
    Custom,
    /// What `patterns` name.
    Pattern,
}

/// What can train whole beside adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whole {
    /// Token embeddings; where the head is tied to them, the head too.
    Embeddings,
    /// The output head, where it has weights of its own.
    Head,
}

/// One kind of linear layer; `output` is attention's projection out, `gate` the feed-forward block's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Query,
    Key,
    Value,
    // The gate of attention's output. (Only plain comments: with a description of some, the schema lists no words.)
    AttentionGate,
    Output,
    // The projections of the input of a token mixer other than attention.
    MixerIn,
    // Its projection out.
    MixerOut,
    Gate,
    Up,
    Down,
    // The matrices of all experts: gate and up as one, and down (PEFT's target_parameters).
    Experts,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            rank: 8,
            alpha: 16.0,
            dropout: 0.05,
            targets: Targets::default(),
            custom: Vec::new(),
            patterns: Vec::new(),
            rank_pattern: ByPattern::default(),
            alpha_pattern: ByPattern::default(),
            rslora: false,
            dora: false,
            b_lr_ratio: 1.0,
            modules_to_save: Vec::new(),
            modules: BTreeMap::new(),
        }
    }
}

impl Config {
    /// The kinds of layers that have an adapter.
    pub fn chosen(&self) -> &[Target] {
        use Target::{AttentionGate, Down, Gate, Key, MixerIn, MixerOut, Output, Query, Up, Value};
        const ALL: [Target; 11] = [
            Query,
            Key,
            Value,
            AttentionGate,
            Output,
            MixerIn,
            MixerOut,
            Gate,
            Up,
            Down,
            Target::Experts,
        ];
        match self.targets {
            Targets::All => &ALL[..10],
            Targets::AllAndExperts => &ALL,
            Targets::Minimal => &[Query, Value],
            Targets::AttentionOnly => &[Query, Key, Value, AttentionGate, Output],
            Targets::FfnOnly => &[Gate, Up, Down],
            Targets::Custom => &self.custom,
            Targets::Pattern => &[],
        }
    }

    /// Rank and alpha of a module's adapter.
    pub fn size_of(&self, module: &str) -> RankAlpha {
        let own = self.modules.get(module).copied();
        own.unwrap_or_else(|| RankAlpha {
            rank: self.rank_pattern.get(module).unwrap_or(self.rank),
            alpha: self.alpha_pattern.get(module).unwrap_or(self.alpha),
        })
    }

    /// The smallest and largest configured rank.
    pub fn ranks(&self) -> (usize, usize) {
        let own = self.rank_pattern.entries().map(|(_, rank)| *rank);
        let all = own.chain([self.rank]);
        all.fold((usize::MAX, 0), |(least, most), rank| {
            (least.min(rank), most.max(rank))
        })
    }

    /// The modules of a model that have adapters, by full name.
    pub fn modules_of(&self, model: &ModelConfig) -> Vec<String> {
        let infos = param_infos(model, 1).into_iter();
        let adapted = infos.filter(|info| {
            // Biases have the role of their matrix.
            info.shape.len() == 2 && info.expert.is_none() && self.adapts(info.role, info.module())
        });
        let linears = adapted.map(|info| info.module().to_string());
        linears.chain(self.stacks_of(model)).collect()
    }

    /// The same of the matrices of experts, of which all of a block are one: see [`ExpertMatrix`].
    pub(super) fn stacks_of(&self, model: &ModelConfig) -> Vec<String> {
        let blocks = (0..model.n_layer).filter(|layer| model.experts(*layer).is_some());
        let names = blocks.flat_map(|layer| {
            [ExpertMatrix::Wide, ExpertMatrix::Out].map(|matrix| matrix.name(model, layer))
        });
        names.filter(|name| self.adapts_experts(name)).collect()
    }

    /// The scale of the low-rank term with factors of this size.
    pub fn scale_of(&self, size: RankAlpha) -> f64 {
        size.alpha / self.divisor(size.rank)
    }

    /// The alpha that gives `scale` at this rank.
    pub fn alpha_for(&self, rank: usize, scale: f64) -> f64 {
        scale * self.divisor(rank)
    }

    fn divisor(&self, rank: usize) -> f64 {
        let rank = rank.max(1) as f64;
        match self.rslora {
            true => rank.sqrt(),
            false => rank,
        }
    }

    fn names(&self, module: &str) -> bool {
        is_named(module, &self.patterns)
    }
}

/// The matrices of a block's experts that have adapters as one, with factors of each expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertMatrix {
    /// Gate and up, or up alone.
    Wide,
    Out,
}

impl ExpertMatrix {
    /// Its name in a block: that of the parameter in transformers 5.
    pub fn name(self, model: &ModelConfig, layer: usize) -> String {
        let stem = match Naming::of(model) {
            Naming::Gpt2 => "transformer.h",
            Naming::Llama => "model.layers",
        };
        let end = match self {
            ExpertMatrix::Wide if model.mlp.gated() => "gate_up_proj",
            ExpertMatrix::Wide => "up_proj",
            ExpertMatrix::Out => "down_proj",
        };
        format!("{stem}.{layer}.mlp.experts.{end}")
    }
}

/// Whether a module, or a suffix of its name, matches one of the patterns.
pub(in crate::nn) fn is_named(module: &str, patterns: &[impl AsRef<str>]) -> bool {
    let ends = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
    let mut ends = std::iter::once(module).chain(ends);
    ends.any(|end| {
        patterns
            .iter()
            .any(|pattern| is_like(end, pattern.as_ref()))
    })
}

/// Whether a text matches a pattern in which `*` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.any(|at| is_like(&text[at..], rest))
}

impl Adapter for Config {
    fn rank(&self, module: &str) -> usize {
        self.size_of(module).rank
    }

    fn scale(&self, module: &str) -> f64 {
        self.scale_of(self.size_of(module))
    }

    fn dropout(&self) -> f64 {
        self.dropout
    }

    fn adapts(&self, role: Role, name: &str) -> bool {
        let target = match role {
            Role::Attention(AttentionRole::Query) => Target::Query,
            Role::Attention(AttentionRole::Key) => Target::Key,
            Role::Attention(AttentionRole::Value) => Target::Value,
            Role::Attention(AttentionRole::Gate) => Target::AttentionGate,
            Role::Attention(AttentionRole::Output) => Target::Output,
            Role::Mixer(MixerRole::In) => Target::MixerIn,
            Role::Mixer(MixerRole::Output) => Target::MixerOut,
            Role::Mlp(MlpRole::Gate) => Target::Gate,
            Role::Mlp(MlpRole::Up) => Target::Up,
            Role::Mlp(MlpRole::Down) => Target::Down,
            // One matrix, one adapter: `faults` rejects a choice among its three parts.
            Role::Attention(AttentionRole::QueryKeyValue) => Target::Query,
            _ => return false,
        };
        match self.targets {
            Targets::Pattern => self.names(name),
            _ => self.chosen().contains(&target),
        }
    }

    fn adapts_experts(&self, name: &str) -> bool {
        // A pattern for a whole block is for its linear layers.
        let of_experts = |pattern: &&String| pattern.contains("experts");
        match self.targets {
            Targets::Pattern => {
                let patterns: Vec<&String> = self.patterns.iter().filter(of_experts).collect();
                is_named(name, &patterns)
            }
            _ => self.chosen().contains(&Target::Experts),
        }
    }

    fn trains_whole(&self, role: Role) -> bool {
        self.modules_to_save.iter().any(|whole| match whole {
            Whole::Embeddings => role == Role::Embedding,
            Whole::Head => role == Role::Head,
        })
    }

    fn has_magnitudes(&self) -> bool {
        self.dora
    }

    fn b_lr_ratio(&self) -> f64 {
        self.b_lr_ratio
    }

    fn faults(&self, model: &ModelConfig) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut want = |good: bool, keys, what: &str, hint: &str| {
            if !good {
                faults.push(Fault {
                    keys,
                    what: what.into(),
                    hint: hint.into(),
                });
            }
        };
        let is_custom = self.targets == Targets::Custom;
        want(
            is_custom != self.custom.is_empty(),
            &["custom", "targets"],
            match is_custom {
                true => "targets is custom, and custom lists no layer",
                false => "custom lists layers, and targets is not custom",
            },
            "targets: custom with custom: [query, value], or another word and no list",
        );
        let by_name = self.targets == Targets::Pattern;
        want(
            by_name != self.patterns.is_empty(),
            &["patterns", "targets"],
            match by_name {
                true => "targets is pattern, and patterns names no module",
                false => "patterns names modules, and targets is not pattern",
            },
            "targets: pattern with patterns: [q_proj, layers.0.*], or another word and no patterns",
        );
        let has_sizes = !self.rank_pattern.is_empty() || !self.alpha_pattern.is_empty();
        let kinds = [Target::AttentionGate, Target::MixerIn, Target::MixerOut];
        let is_rare = model.mixer.is_some() || self.custom.iter().any(|t| kinds.contains(t));
        let modules = match by_name || has_sizes || is_rare {
            true => self.modules_of(model),
            false => Vec::new(),
        };
        want(
            !by_name || self.patterns.is_empty() || !modules.is_empty(),
            &["patterns"],
            "no linear layer of this model has a name like that",
            "llmtui model show MODEL lists the names; the end of one is enough, and * matches anything",
        );
        want(
            by_name || !is_rare || !modules.is_empty(),
            &["targets", "custom"],
            "no block of this model has a layer of this kind",
            "targets: all; llmtui model show MODEL lists the layers",
        );
        want(
            !self.modules_to_save.contains(&Whole::Head) || !model.ties_head(),
            &["modules_to_save"],
            "this model has no head of its own: it is tied to the embeddings",
            "modules_to_save: [embeddings] trains both",
        );
        let chosen = self.chosen();
        let qkv = [Target::Query, Target::Key, Target::Value].map(|t| chosen.contains(&t));
        let one = qkv.iter().all(|has| *has == qkv[0]);
        want(
            Naming::of(model) != Naming::Gpt2 || one,
            &["targets", "custom"],
            "this model keeps queries, keys and values in one matrix (GPT-2's c_attn), which has one adapter or none",
            "targets: attention_only or all; a custom list names query, key and value together",
        );
        let ffn = [Target::Gate, Target::Up, Target::Down];
        want(
            model.has_common_mlp()
                || chosen.contains(&Target::Experts)
                || !ffn.iter().any(|t| chosen.contains(t)),
            &["targets", "custom"],
            "every block has experts without a shared one, and experts are no linear layers",
            "targets: all_and_experts, or attention_only",
        );
        let has_experts = chosen.contains(&Target::Experts) || !self.stacks_of(model).is_empty();
        want(
            !has_experts || model.moe.is_some(),
            &["targets", "custom"],
            "this model has no experts",
            "targets: all",
        );
        want(
            !has_experts || self.dropout == 0.0,
            &["dropout"],
            "adapters of experts have no dropout, in PEFT neither",
            "adapter.lora.dropout=0",
        );
        want(
            !has_experts || !self.dora,
            &["dora"],
            "adapters of experts have no magnitudes (DoRA), in PEFT neither",
            "dora: false; or targets: all, which leaves experts out",
        );
        let gate = is_custom && !model.mlp.gated() && chosen.contains(&Target::Gate);
        want(
            !gate,
            &["custom"],
            "the feed-forward block has no gate",
            "leave gate out, or choose a gated model.mlp such as swiglu",
        );
        // With an invalid choice the modules are unknown.
        if faults.is_empty() {
            faults.extend(self.rank_pattern.faults(&["rank_pattern"], &modules));
            faults.extend(self.alpha_pattern.faults(&["alpha_pattern"], &modules));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::MoeConfig;
    use crate::nn::position::PositionConfig;

    fn llama() -> ModelConfig {
        ModelConfig {
            position: PositionConfig::Rope(Default::default()),
            ..ModelConfig::default()
        }
    }

    fn lora(targets: Targets, custom: &[Target]) -> Config {
        Config {
            targets,
            custom: custom.to_vec(),
            ..Config::default()
        }
    }

    #[test]
    fn a_fused_matrix_has_one_adapter_or_none() {
        let gpt2 = ModelConfig::default();
        for targets in [Targets::All, Targets::AttentionOnly, Targets::FfnOnly] {
            assert!(lora(targets, &[]).faults(&gpt2).is_empty(), "{targets:?}");
        }
        let minimal = lora(Targets::Minimal, &[]);
        let fault = &minimal.faults(&gpt2)[0];
        assert!(fault.what.contains("c_attn") && fault.hint.contains("attention_only"));
        assert!(minimal.faults(&llama()).is_empty());
        let whole = [Target::Query, Target::Key, Target::Value];
        assert!(lora(Targets::Custom, &whole).faults(&gpt2).is_empty());
    }

    #[test]
    fn layers_that_no_block_has_are_rejected() {
        let conv = || crate::nn::mixer::MixerConfig::ShortConv(Default::default());
        let pure = ModelConfig {
            mixer: Some(conv()),
            ..llama()
        };
        let mixed = ModelConfig {
            attention_every: Some(2),
            ..pure.clone()
        };
        let mixers = [Target::MixerIn, Target::MixerOut];
        for (lora, good, bad) in [
            (lora(Targets::Minimal, &[]), &mixed, &pure),
            (lora(Targets::AttentionOnly, &[]), &mixed, &pure),
            (lora(Targets::Custom, &mixers), &pure, &llama()),
            (
                lora(Targets::Custom, &[Target::AttentionGate]),
                &gated(),
                &mixed,
            ),
        ] {
            assert_eq!(lora.faults(good), []);
            let faults = lora.faults(bad);
            assert_eq!(faults[0].keys, ["targets", "custom"], "{faults:?}");
            assert!(faults[0].what.contains("no block"));
        }
        assert_eq!(lora(Targets::All, &[]).modules_of(&pure).len(), 4 * 4);
    }

    fn gated() -> ModelConfig {
        ModelConfig {
            attention_gate: true,
            ..llama()
        }
    }

    #[test]
    fn patterns_set_ranks_and_alphas_of_adapted_modules() {
        let text = r#"{"rank": 4, "alpha": 8, "targets": "attention_only",
            "rank_pattern": {"layers.0.*": 2, "q_proj": 16}, "alpha_pattern": {"q_proj": 32}}"#;
        let lora: Config = serde_json::from_str(text).unwrap();
        let of = |module: &str| {
            let size = lora.size_of(module);
            (size.rank, size.alpha, lora.scale(module))
        };
        assert_eq!(of("model.layers.0.self_attn.q_proj"), (2, 32.0, 16.0));
        assert_eq!(of("model.layers.1.self_attn.q_proj"), (16, 32.0, 2.0));
        assert_eq!(of("model.layers.1.self_attn.v_proj"), (4, 8.0, 2.0));
        assert_eq!(lora.ranks(), (2, 16));
        assert!(lora.faults(&llama()).is_empty());
        let written = serde_json::to_string(&lora).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&written).unwrap(), lora);
        for (table, what, hint) in [
            (r#"{"up_proj": 2}"#, "`up_proj` is the end of no", "targets"),
            (r#"{"proj": 2}"#, "`proj` is the end of no", "model show"),
            (r#"{"q(_proj": 2}"#, "unsupported pattern", "write names"),
            (
                r#"{".*_proj": 2, "q_proj": 3}"#,
                "`.*_proj` precedes `q_proj`",
                "first",
            ),
        ] {
            for key in ["rank_pattern", "alpha_pattern"] {
                let text = format!(r#"{{"targets": "attention_only", "{key}": {table}}}"#);
                let lora: Config = serde_json::from_str(&text).unwrap();
                let faults = lora.faults(&llama());
                assert_eq!(faults.len(), 1, "{text}: {faults:?}");
                assert_eq!(faults[0].keys, [key]);
                assert!(faults[0].what.contains(what), "{}", faults[0].what);
                assert!(faults[0].hint.contains(hint), "{}", faults[0].hint);
            }
        }
    }

    #[test]
    fn lists_require_custom_and_name_existing_layers() {
        let what = |config: Config, model: &ModelConfig| {
            let faults = config.faults(model);
            faults.first().map(|f| f.what.clone()).unwrap_or_default()
        };
        assert!(what(lora(Targets::Custom, &[]), &llama()).contains("no layer"));
        assert!(what(lora(Targets::All, &[Target::Up]), &llama()).contains("not custom"));
        let gate = lora(Targets::Custom, &[Target::Gate, Target::Up]);
        assert!(what(gate, &llama()).contains("no gate"));
        let experts = ModelConfig {
            moe: Some(MoeConfig::default()),
            ..llama()
        };
        assert!(what(lora(Targets::All, &[]), &experts).contains("experts"));
        let with = |change: fn(&mut Config)| {
            let mut lora = lora(Targets::AllAndExperts, &[]);
            lora.dropout = 0.0;
            change(&mut lora);
            lora
        };
        assert_eq!(what(with(|_| {}), &experts), "");
        assert!(what(with(|_| {}), &llama()).contains("no experts"));
        assert!(what(with(|lora| lora.dropout = 0.1), &experts).contains("dropout"));
        assert!(what(with(|lora| lora.dora = true), &experts).contains("DoRA"));
        let named = |pattern: &str| Config {
            targets: Targets::Pattern,
            patterns: vec![pattern.into()],
            dropout: 0.0,
            ..Config::default()
        };
        let one = named("experts.down_proj").modules_of(&experts);
        assert_eq!(one.len(), experts.n_layer);
        assert!(
            one[0].ends_with("layers.0.mlp.experts.down_proj"),
            "{one:?}"
        );
        // As before there were any.
        let block = named("layers.0.*").modules_of(&experts);
        assert!(
            block.iter().all(|name| !name.contains("experts")),
            "{block:?}"
        );
        assert_eq!(what(lora(Targets::AttentionOnly, &[]), &experts), "");
    }
}
