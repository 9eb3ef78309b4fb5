//! Incompatible values of a [`ModelConfig`], with a fix for each. Ranges of single values are in the types.

use super::mixer::MixerConfig;
use super::mla;
use super::{ModelConfig, MoeConfig, NormPlacement, QkNormOver};

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The keys concerned, as written in a spec's `model` section.
    pub keys: &'static [&'static str],
    pub what: String,
    pub hint: String,
}

impl Fault {
    /// A fault, unless the condition holds.
    pub fn unless(
        good: bool,
        keys: &'static [&'static str],
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Option<Fault> {
        (!good).then(|| Fault {
            keys,
            what: what.into(),
            hint: hint.into(),
        })
    }
}

impl ModelConfig {
    /// All problems, in the order of the keys; empty if a model can be built.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Faults(Vec::new());
        heads(self, &mut faults);
        context(self, &mut faults);
        waves(self, &mut faults);
        rotary(self, &mut faults);
        attention(self, &mut faults);
        residual(self, &mut faults);
        experts(self, &mut faults);
        mixers(self, &mut faults);
        latents(self, &mut faults);
        faults.0
    }
}

struct Faults(Vec<Fault>);

impl Faults {
    fn want(
        &mut self,
        good: bool,
        keys: &'static [&'static str],
        what: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.0.extend(Fault::unless(good, keys, what, hint));
    }
}

fn heads(config: &ModelConfig, faults: &mut Faults) {
    let (n_head, d_model) = (config.n_head.max(1), config.d_model);
    faults.want(
        config.head_dim.is_some() || config.mla.is_some() || d_model.is_multiple_of(n_head),
        &["n_head", "d_model"],
        format!("d_model {d_model} is not a multiple of n_head {n_head}"),
        format!(
            "d_model {} or {}, or n_head {}; or say head_dim",
            (d_model / n_head).max(1) * n_head,
            d_model.div_ceil(n_head) * n_head,
            list(&divisors_near(d_model, n_head))
        ),
    );
    let n_kv_head = config.kv_heads().max(1);
    let divisors = list(&divisors_near(n_head, n_kv_head));
    faults.want(
        n_head.is_multiple_of(n_kv_head),
        &["n_kv_head", "n_head"],
        format!("n_head {n_head} is not a multiple of n_kv_head {n_kv_head}"),
        format!("n_kv_head {divisors}"),
    );
    if config.mla.is_some() {
        return;
    }
    use super::AttentionType::{Gqa, Mha, Mqa};
    let keys = &["attention_type", "n_kv_head"];
    match config.attention_type {
        None => {}
        Some(Mha) => faults.want(
            n_kv_head == n_head,
            keys,
            format!(
                "mha is n_kv_head {n_head}, one for each query head, and n_kv_head is {n_kv_head}"
            ),
            "remove one of the two",
        ),
        Some(Mqa) => faults.want(
            n_kv_head == 1,
            keys,
            format!("mqa is n_kv_head 1, and n_kv_head is {n_kv_head}"),
            "leave n_kv_head out, or write gqa",
        ),
        Some(Gqa) => faults.want(
            config.n_kv_head.is_some(),
            keys,
            "gqa leaves open how many heads share keys and values",
            format!("n_kv_head {}", list(&divisors_near(n_head, 2))),
        ),
    }
}

fn latents(config: &ModelConfig, faults: &mut Faults) {
    let Some(mla) = &config.mla else {
        return;
    };
    for (is_there, keys, hint) in mla::conflicts(config) {
        let what = format!("{} does not go together with mla", keys[1]);
        faults.want(!is_there, keys, what, hint);
    }
    faults.want(
        mla.rope_dim.is_multiple_of(2),
        &["mla"],
        format!(
            "RoPE turns pairs of features, and rope_dim is {}",
            mla.rope_dim
        ),
        format!("rope_dim {}", (mla.rope_dim / 2).max(1) * 2),
    );
    let fraction = config.position.rope().map_or(1.0, |rope| rope.fraction);
    faults.want(
        fraction == 1.0,
        &["position.rope.fraction", "mla"],
        "rope_dim and fraction both set the number of rotated features",
        "leave fraction out",
    );
}

fn mixers(config: &ModelConfig, faults: &mut Faults) {
    let (every, blocks) = (config.attention_every, config.attention_blocks.as_ref());
    let Some(mixer) = &config.mixer else {
        let keys = &["attention_every", "attention_blocks", "mixer"];
        faults.want(
            every.is_none() && blocks.is_none(),
            keys,
            "without a mixer all blocks have attention",
            "say mixer, or leave attention_every and attention_blocks out",
        );
        return;
    };
    faults.want(
        every.is_none() || blocks.is_none(),
        &["attention_every", "attention_blocks"],
        "both say which blocks have attention",
        "keep one of the two",
    );
    let n_layer = config.n_layer;
    let beyond = blocks.and_then(|blocks| blocks.iter().find(|block| **block >= n_layer));
    if let Some(block) = beyond {
        faults.want(
            false,
            &["attention_blocks", "n_layer"],
            format!("there is no block {block}: n_layer is {n_layer}"),
            format!("numbers from 0 to {}", n_layer - 1),
        );
    }
    if let MixerConfig::GatedDeltaNet(net) = mixer {
        let (values, keys) = (net.n_value_head, net.n_key_head.max(1));
        faults.want(
            values.is_multiple_of(keys),
            &["mixer"],
            format!("n_value_head {values} is not a multiple of n_key_head {keys}"),
            format!("n_key_head {}", list(&divisors_near(values, keys))),
        );
    }
    if let MixerConfig::Mamba2(net) = mixer {
        let (heads, groups) = (net.n_head, net.n_group.max(1));
        faults.want(
            heads.is_multiple_of(groups),
            &["mixer"],
            format!("n_head {heads} of mamba2 is not a multiple of n_group {groups}"),
            format!("n_group {}", list(&divisors_near(heads, groups))),
        );
        faults.want(
            net.dt_max.is_none_or(|most| most > net.dt_min),
            &["mixer"],
            format!(
                "dt_max {} is not above dt_min {}",
                net.dt_max.unwrap_or_default(),
                net.dt_min
            ),
            "leave both out, as the published models do",
        );
    }
}

fn context(config: &ModelConfig, faults: &mut Faults) {
    let Some(len) = config.context_len else {
        return;
    };
    faults.want(
        len >= config.seq_len,
        &["context_len", "seq_len"],
        format!(
            "context_len {len} is shorter than seq_len {}",
            config.seq_len
        ),
        "leave context_len out",
    );
    faults.want(
        len == config.seq_len || config.keeps_context(),
        &["context_len", "position"],
        format!(
            "context_len {len}, but these positions exist for seq_len {} only",
            config.seq_len
        ),
        "leave context_len out, or choose position: rope",
    );
}

fn waves(config: &ModelConfig, faults: &mut Faults) {
    faults.want(
        !config.position.adds_position_vectors() || config.d_model.is_multiple_of(2),
        &["position", "d_model"],
        format!(
            "sinusoidal positions are pairs of features, and d_model {} is odd",
            config.d_model
        ),
        "choose d_model even",
    );
}

fn rotary(config: &ModelConfig, faults: &mut Faults) {
    // Latent attention says itself what is rotated.
    let head_dim = match &config.mla {
        Some(mla) => mla.rope_dim & !1,
        None => config.head_width(),
    };
    let sized = config.head_dim.is_some() || config.d_model.is_multiple_of(config.n_head.max(1));
    let Some(rope) = config.position.rope() else {
        return;
    };
    faults.want(
        head_dim.is_multiple_of(2) || !sized,
        &["position", "n_head", "d_model"],
        format!("rotary positions turn pairs of features, and head_dim is {head_dim}: odd"),
        "choose d_model / n_head even, or say an even head_dim",
    );
    let width = rope.width(head_dim);
    faults.want(
        rope.fraction == 1.0 || config.mla.is_some() || (width >= 2 && width.is_multiple_of(2)),
        &["position.rope.fraction", "n_head", "d_model"],
        format!(
            "a fraction of {} rotates {width} of {head_dim} features, and they turn in pairs",
            rope.fraction
        ),
        format!(
            "fraction {}",
            2.0 * (width / 2).max(1) as f64 / head_dim.max(1) as f64
        ),
    );
    faults.want(
        rope.local_theta.is_none() || config.sliding_window.is_some(),
        &["position.rope.local_theta", "sliding_window"],
        "local_theta is for blocks with a sliding window, and no block has one",
        "say sliding_window and global_every, or leave local_theta out",
    );
    blocks_without_positions(config, rope.nope_every, faults);
    if let Some(scaling) = &rope.scaling {
        faults.0.extend(scaling.faults(rope.theta, width / 2));
    }
}

fn blocks_without_positions(config: &ModelConfig, every: Option<usize>, faults: &mut Faults) {
    let (Some(n), n_layer) = (every, config.n_layer) else {
        return;
    };
    faults.want(
        n != 1,
        &["position.rope.nope_every", "position"],
        "nope_every 1 leaves every block without positions",
        "choose position: none, or nope_every 2 and above (SmolLM3: 4)",
    );
    faults.want(
        n <= n_layer,
        &["position.rope.nope_every", "n_layer"],
        format!("nope_every {n} reaches no block: there are {n_layer}"),
        format!("nope_every {n_layer} or less, or leave it out"),
    );
}

fn attention(config: &ModelConfig, faults: &mut Faults) {
    faults.want(
        config.global_every.is_none() || config.sliding_window.is_some(),
        &["global_every", "sliding_window"],
        "global_every says which blocks are without a sliding window, and none is set",
        "say sliding_window, or leave global_every out",
    );
    faults.want(
        !config.global_first || config.global_every.is_some(),
        &["global_first", "global_every"],
        "global_first is about the blocks that global_every leaves without a sliding window, and none is set",
        "say global_every, or leave global_first out",
    );
    faults.want(
        config.qk_norm || config.qk_norm_over == QkNormOver::Head,
        &["qk_norm_over", "qk_norm"],
        "qk_norm_over has no effect without qk_norm",
        "say qk_norm: true, or leave qk_norm_over out",
    );
}

fn residual(config: &ModelConfig, faults: &mut Faults) {
    faults.want(
        !config.parallel_residual || config.norm_placement == NormPlacement::Pre,
        &["parallel_residual", "norm_placement"],
        "parallel_residual is x + attention(norm1(x)) + mlp(norm2(x)): norms are before attention and the feed-forward block only",
        "norm_placement: pre, or parallel_residual: false",
    );
}

fn groups(moe: &MoeConfig, faults: &mut Faults) {
    let keys = &["moe.n_group", "moe.top_group", "moe.n_expert"];
    let (n, top) = match (moe.n_group, moe.top_group) {
        (None, None) => return,
        (Some(n), Some(top)) => (n.max(1), top),
        _ => {
            return faults.want(
                false,
                keys,
                "n_group says how many groups of experts there are, and top_group how many a token reaches",
                "say both, or neither",
            );
        }
    };
    faults.want(
        moe.n_expert.is_multiple_of(n),
        keys,
        format!("n_expert {} is not a multiple of n_group {n}", moe.n_expert),
        format!("n_group {}", list(&divisors_near(moe.n_expert, n))),
    );
    faults.want(
        top <= n && moe.top_k <= top * (moe.n_expert / n),
        keys,
        format!(
            "top_group {top} of n_group {n} groups of {} experts, with top_k {}",
            moe.n_expert / n,
            moe.top_k
        ),
        "top_group of at most n_group, with at least top_k experts in them",
    );
}

fn experts(config: &ModelConfig, faults: &mut Faults) {
    let Some(moe) = &config.moe else {
        return;
    };
    faults.want(
        moe.top_k <= moe.n_expert,
        &["moe.top_k", "moe.n_expert"],
        format!("top_k {} of {} experts", moe.top_k, moe.n_expert),
        format!("top_k of at most {}; 2 of 8 is usual", moe.n_expert),
    );
    groups(moe, faults);
    faults.want(
        moe.every <= config.n_layer,
        &["moe.every", "n_layer"],
        format!(
            "every {}th block has experts, and there are {}",
            moe.every, config.n_layer
        ),
        "1 gives all blocks experts, 2 every other one",
    );
    let dense = moe.dense_blocks.iter().flatten();
    let beyond = dense.copied().find(|block| *block >= config.n_layer);
    faults.want(
        beyond.is_none(),
        &["moe.dense_blocks", "n_layer"],
        format!(
            "there is no block {}: there are {}, counted from 0",
            beyond.unwrap_or_default(),
            config.n_layer
        ),
        format!("blocks from 0 to {}", config.n_layer.saturating_sub(1)),
    );
    faults.want(
        moe.every > config.n_layer || config.expert_blocks() > 0,
        &["moe.dense_blocks", "moe.every"],
        "no block has experts: all are in dense_blocks, or not among every n-th",
        "name fewer blocks, or leave moe out",
    );
    faults.want(
        !moe.shared_gate || moe.shared_d_ff.is_some(),
        &["moe.shared_gate", "moe.shared_d_ff"],
        "shared_gate needs a shared expert (shared_d_ff)",
        "say shared_d_ff, the width inside it, or leave shared_gate out",
    );
}

/// Divisors of `n` around `wish`, at most three.
fn divisors_near(n: usize, wish: usize) -> Vec<usize> {
    let mut divisors: Vec<usize> = (1..=n.min(4096)).filter(|d| n.is_multiple_of(*d)).collect();
    divisors.sort_by_key(|d| d.abs_diff(wish));
    divisors.truncate(3);
    divisors.sort_unstable();
    divisors
}

fn list(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(usize::to_string).collect();
    words.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::position::{PositionConfig, RopeConfig};

    #[test]
    fn heads_of_mamba_are_in_groups_and_its_steps_between_limits() {
        let found = |net: serde_json::Value| {
            let says = serde_json::json!({"mixer": {"mamba2": net}});
            let config: ModelConfig = serde_json::from_value(says).unwrap();
            config.faults()
        };
        assert!(found(serde_json::json!({"n_head": 6, "n_group": 3})).is_empty());
        let groups = found(serde_json::json!({"n_head": 6, "n_group": 4}));
        assert!(groups[0].hint.contains("n_group 2 or 3"), "{groups:?}");
        let limits = found(serde_json::json!({"dt_min": 0.5, "dt_max": 0.5}));
        assert!(limits[0].what.contains("not above dt_min"), "{limits:?}");
    }

    #[test]
    fn blocks_without_positions_are_some_of_the_blocks() {
        let found = |n: usize| {
            let rope = RopeConfig {
                nope_every: Some(n),
                ..RopeConfig::default()
            };
            let config = ModelConfig {
                n_layer: 4,
                position: PositionConfig::Rope(rope),
                ..ModelConfig::default()
            };
            config.faults()
        };
        assert!(found(2).is_empty() && found(4).is_empty());
        let [one, many] = [1, 5].map(found);
        assert_eq!((one.len(), many.len()), (1, 1));
        assert!(one[0].hint.contains("position: none"), "{one:?}");
        assert!(many[0].what.contains("there are 4") && many[0].hint.contains("nope_every 4"));
    }
}
