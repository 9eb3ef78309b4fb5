//! Where each of our parameters is in a file: its tensor's name, and which rows of it.

use super::arch::{Architecture, Rotated};
use crate::nn::mixer::{GatedDeltaNetConfig, MixerConfig};
use crate::nn::norm::NormConfig;
use crate::nn::{ModelConfig, ModelShape, NormPlacement, ParamInfo};

/// A parameter's location.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub tensor: String,
    /// Total rows of the tensor, which may contain several parameters.
    pub total: usize,
    /// Where its own rows are among them.
    pub rows: Rows,
    /// The order of its columns, if it is another than ours.
    pub columns: Option<Tiles>,
    /// Length of the rows that a vector of ours has in the file.
    pub row_len: Option<usize>,
    /// Number of experts stacked in the tensor, and the index of this one.
    pub expert: Option<(usize, usize)>,
    /// What the file has in place of a value.
    pub value: Stands,
    /// Whether queries are computed from it: an attention scale can be folded in here.
    pub makes_queries: bool,
}

/// The rows of a parameter within its tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// From this one on, in our order.
    From(usize),
    /// Those of each head of so many features are permuted, see [`super::arch::Rotated::Neighbours`].
    Pairs(usize),
    /// Heads of so many features take turns with those of another parameter, of which it is the first or the second.
    Turns { head: usize, second: bool },
    /// From row `from` on heads are in another order.
    Tiles { from: usize, tiles: Tiles },
    /// By heads of keys: of each the rows of its query, its key, its values and their gates.
    ByKeys { groups: Groups, gates: bool },
}

/// Rows of a delta net's projections where those of a head of keys follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Groups {
    /// Heads of keys.
    pub n: usize,
    /// Rows of each query and each key.
    pub key: usize,
    /// Rows of the values of each.
    pub values: usize,
}

/// Heads of values in a delta net that has fewer heads of keys. Ours that share a key follow each other; theirs are first one for
/// each key, then the next for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Heads of keys, and of values for each.
    pub keys: usize,
    pub shared: usize,
    /// Features of a head.
    pub head: usize,
}

/// What a file has in place of a value x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stands {
    Itself,
    /// x + 1, of gains stored less one (Gemma).
    OneMore,
    /// −exp(x), of the logarithms of decay rates.
    MinusExp,
}

impl Place {
    /// The dimensions of the tensor that holds a parameter, the fastest first. A matrix of one row, a gate of a shared expert, is a
    /// vector there; of experts of one feature each has its row.
    pub fn dims(&self, info: &ParamInfo) -> Vec<u64> {
        if let Some(len) = self.row_len {
            return vec![len as u64, (self.total / len.max(1)) as u64];
        }
        let mut dims: Vec<u64> = info.shape[1..].iter().map(|n| *n as u64).collect();
        if dims.is_empty() || self.total > 1 || self.expert.is_some() {
            dims.push(self.total as u64);
        }
        dims.extend(self.expert.map(|(_, count)| count as u64));
        dims
    }
}

impl Rows {
    /// The row in the tensor of one of ours.
    pub fn at(self, row: usize) -> usize {
        match self {
            Rows::From(first) => first + row,
            Rows::Pairs(head) => shuffled_row(row, head),
            Rows::Turns { head, second } => {
                (2 * (row / head) + usize::from(second)) * head + row % head
            }
            Rows::Tiles { from, tiles } => match row.checked_sub(from) {
                Some(row) => from + tiles.at(row),
                None => row,
            },
            Rows::ByKeys { groups, gates } => groups.at(row, gates),
        }
    }
}

impl Groups {
    /// The place of a row of ours: of all gates, or of all queries, all keys and all values.
    fn at(self, row: usize, gates: bool) -> usize {
        let (key, values) = (self.key, self.values);
        let keys = self.n * key;
        let (row, len, before) = if gates {
            (row, values, 2 * key + values)
        } else if row < keys {
            (row, key, 0)
        } else if row < 2 * keys {
            (row - keys, key, key)
        } else {
            (row - 2 * keys, values, 2 * key)
        };
        row / len * (2 * key + 2 * values) + before + row % len
    }
}

impl Tiles {
    /// Their index of one of our features.
    pub fn at(self, feature: usize) -> usize {
        let (head, inside) = (feature / self.head, feature % self.head);
        let theirs = head % self.shared * self.keys + head / self.shared;
        theirs * self.head + inside
    }

    /// Of single values per head.
    fn of_heads(self) -> Tiles {
        Tiles { head: 1, ..self }
    }
}

impl Stands {
    /// The file's value.
    pub fn theirs(self, x: f32) -> f32 {
        match self {
            Stands::Itself => x,
            Stands::OneMore => x + 1.0,
            Stands::MinusExp => -x.exp(),
        }
    }

    /// Ours.
    pub fn ours(self, x: f32) -> f32 {
        match self {
            Stands::Itself => x,
            Stands::OneMore => x - 1.0,
            Stands::MinusExp => (-x).ln(),
        }
    }
}

/// The location of a parameter.
///
/// # Errors
/// The architecture has no such tensor.
pub(super) fn place(
    architecture: &dyn Architecture,
    config: &ModelConfig,
    shape: &ModelShape,
    info: &ParamInfo,
) -> Result<Place, String> {
    let unknown = || format!("{} has no tensor for {}", architecture.name(), info.name);
    let (stem, end) = info.name.rsplit_once('.').ok_or_else(unknown)?;
    let mut place = Place {
        tensor: String::new(),
        total: info.shape[0],
        rows: Rows::From(0),
        columns: None,
        row_len: None,
        expert: None,
        value: Stands::Itself,
        makes_queries: false,
    };
    // A mixer's own norm has gains as they are.
    let is_own = stem.ends_with("linear_attn.norm") || stem.ends_with("mamba.norm");
    let is_gain = info.shape.len() == 1 && end == "weight" && !is_own;
    if is_gain && matches!(&config.norm, NormConfig::RmsNorm(norm) if norm.unit_offset) {
        place.value = Stands::OneMore;
    }
    let Some((layer, part)) = in_block(stem) else {
        let usual = match stem {
            "model.embed_tokens" | "transformer.wte" => "token_embd",
            "model.embed_positions" | "transformer.wpe" => "position_embd",
            "model.norm" | "transformer.ln_f" => "output_norm",
            "lm_head" => "output",
            _ => return Err(unknown()),
        };
        let name = architecture.own_name(stem).unwrap_or(usual);
        place.tensor = format!("{name}.{end}");
        return Ok(place);
    };
    let part = match part.strip_prefix("mlp.experts.") {
        None => part,
        Some(rest) => {
            let (expert, part) = rest.split_once('.').ok_or_else(unknown)?;
            let expert = expert.parse().map_err(|_| unknown())?;
            let count = config.moe.as_ref().map_or(0, |moe| moe.n_expert);
            place.expert = Some((expert, count));
            part
        }
    };
    let (q, kv) = (
        shape.n_head * shape.head_dim,
        shape.n_kv_head * shape.head_dim,
    );
    place.makes_queries = match config.qk_norm {
        true => part == "self_attn.q_norm",
        false => part == "self_attn.q_proj",
    };
    if architecture.is_fused() {
        let fused = match part {
            "self_attn.q_proj" => Some(("attn_qkv", 0, q + 2 * kv)),
            "self_attn.k_proj" => Some(("attn_qkv", q, q + 2 * kv)),
            "self_attn.v_proj" => Some(("attn_qkv", q + kv, q + 2 * kv)),
            "mlp.gate_proj" => Some(("ffn_up", 0, 2 * shape.d_ff)),
            "mlp.up_proj" if config.mlp.gated() => Some(("ffn_up", shape.d_ff, 2 * shape.d_ff)),
            _ => None,
        };
        if let Some((name, first, total)) = fused {
            place.tensor = format!("blk.{layer}.{name}.{end}");
            (place.rows, place.total) = (Rows::From(first), total);
            return Ok(place);
        }
    }
    let is_rotated = matches!(part, "self_attn.q_proj" | "self_attn.k_proj");
    if is_rotated && architecture.rotated() == Rotated::Neighbours {
        place.rows = Rows::Pairs(shape.head_dim);
    }
    let with_gates = matches!(part, "self_attn.q_proj" | "self_attn.q_gate_proj");
    if with_gates && config.attention_gate {
        let (head, second) = (shape.head_dim, part == "self_attn.q_gate_proj");
        (place.rows, place.total) = (Rows::Turns { head, second }, 2 * q);
    }
    if let Some(MixerConfig::GatedDeltaNet(net)) = &config.mixer {
        match architecture.is_grouped() {
            true => group(&mut place, net, part),
            false => tile(&mut place, net, part),
        }
    }
    if end == "A_log" {
        place.value = Stands::MinusExp;
    }
    if let Some(MixerConfig::Mamba2(net)) = &config.mixer {
        place.row_len = match (part, end) {
            ("mamba", "A_log" | "D") => Some(1),
            ("mamba.norm", _) => Some(net.inner() / net.n_group.max(1)),
            _ => None,
        };
    }
    if (part, end) == ("mlp.gate", "e_score_correction_bias") {
        place.tensor = format!("blk.{layer}.exp_probs_b.bias");
        return Ok(place);
    }
    if (part, end) == ("self_attn", "sinks") {
        place.tensor = format!("blk.{layer}.attn_sinks.weight");
        return Ok(place);
    }
    // Some vectors of mixers have no name but their own.
    if matches!(part, "linear_attn" | "mamba") {
        let name = match end {
            "A_log" => "ssm_a",
            "D" => "ssm_d",
            "dt_bias" => "ssm_dt.bias",
            _ => return Err(unknown()),
        };
        place.tensor = format!("blk.{layer}.{name}");
        return Ok(place);
    }
    let usual = || block_name(part, config.norm_placement);
    let name = architecture.own_name(part).or_else(usual);
    let name = name.ok_or_else(unknown)?;
    let stacked = if place.expert.is_some() { "_exps" } else { "" };
    place.tensor = format!("blk.{layer}.{name}{stacked}.{end}");
    Ok(place)
}

/// The order of a delta net's heads of values.
fn tile(place: &mut Place, net: &GatedDeltaNetConfig, part: &str) {
    let tiles = Tiles {
        keys: net.n_key_head,
        shared: net.n_value_head / net.n_key_head.max(1),
        head: net.value_dim,
    };
    if tiles.shared < 2 {
        return;
    }
    let from = |from, tiles| Rows::Tiles { from, tiles };
    match part {
        "linear_attn.in_proj_qkv" | "linear_attn.conv1d" => {
            place.rows = from(2 * net.keys(), tiles);
        }
        "linear_attn.in_proj_z" => place.rows = from(0, tiles),
        "linear_attn.in_proj_a" | "linear_attn.in_proj_b" | "linear_attn" => {
            place.rows = from(0, tiles.of_heads());
        }
        "linear_attn.out_proj" => place.columns = Some(tiles),
        _ => {}
    }
}

/// Qwen3-Next's: b and a in one tensor, of each head of keys the heads of values in b, then those in a.
fn group(place: &mut Place, net: &GatedDeltaNetConfig, part: &str) {
    let second = part == "linear_attn.in_proj_a";
    if second || part == "linear_attn.in_proj_b" {
        let head = net.n_value_head / net.n_key_head.max(1);
        (place.rows, place.total) = (Rows::Turns { head, second }, 2 * net.n_value_head);
    }
}

/// Where earlier conversions of Qwen3-Next have what is at `place`: all projections of a delta net but b and a in `ssm_in`, as the
/// model's own files have them.
pub(super) fn earlier(
    architecture: &dyn Architecture,
    config: &ModelConfig,
    place: &Place,
) -> Option<Place> {
    let Some(MixerConfig::GatedDeltaNet(net)) = &config.mixer else {
        return None;
    };
    let (block, part) = place.tensor.rsplit_once(".attn_")?;
    let gates = match part {
        "qkv.weight" => false,
        "gate.weight" => true,
        _ => return None,
    };
    let groups = Groups {
        n: net.n_key_head,
        key: net.key_dim,
        values: net.values() / net.n_key_head.max(1),
    };
    architecture.is_grouped().then(|| Place {
        tensor: format!("{block}.ssm_in.weight"),
        total: 2 * net.keys() + 2 * net.values(),
        rows: Rows::ByKeys { groups, gates },
        ..place.clone()
    })
}

/// The block index, and the rest of the name.
fn in_block(stem: &str) -> Option<(usize, &str)> {
    let rest = stem
        .strip_prefix("model.layers.")
        .or_else(|| stem.strip_prefix("transformer.h."))?;
    let (layer, part) = rest.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

fn block_name(part: &str, placement: NormPlacement) -> Option<&'static str> {
    Some(match part {
        "input_layernorm" | "ln_1" => "attn_norm",
        "post_attention_layernorm" if placement.is_before_sum() => "post_attention_norm",
        "post_attention_layernorm" | "pre_feedforward_layernorm" | "ln_2" => "ffn_norm",
        "post_feedforward_layernorm" => "post_ffw_norm",
        "attn.c_attn" => "attn_qkv",
        "self_attn.q_proj" | "self_attn.q_gate_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "self_attn.q_a_proj" => "attn_q_a",
        "self_attn.q_a_layernorm" => "attn_q_a_norm",
        "self_attn.q_b_proj" => "attn_q_b",
        "self_attn.kv_a_proj_with_mqa" => "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm" => "attn_kv_a_norm",
        "self_attn.kv_b_proj" => "attn_kv_b",
        "self_attn.o_proj" | "attn.c_proj" => "attn_output",
        "conv.in_proj" => "shortconv.in_proj",
        "conv.conv" => "shortconv.conv",
        "conv.out_proj" => "shortconv.out_proj",
        "linear_attn.in_proj_qkv" => "attn_qkv",
        "linear_attn.in_proj_z" => "attn_gate",
        "linear_attn.in_proj_b" => "ssm_beta",
        "linear_attn.in_proj_a" => "ssm_alpha",
        "linear_attn.conv1d" => "ssm_conv1d",
        "linear_attn.norm" => "ssm_norm",
        "linear_attn.out_proj" => "ssm_out",
        "mamba.in_proj" => "ssm_in",
        "mamba.conv1d" => "ssm_conv1d",
        "mamba.norm" => "ssm_norm",
        "mamba.out_proj" => "ssm_out",
        "mlp.gate" => "ffn_gate_inp",
        "mlp.shared_expert_gate" => "ffn_gate_inp_shexp",
        "mlp.shared_expert.gate_proj" => "ffn_gate_shexp",
        "mlp.shared_expert.up_proj" => "ffn_up_shexp",
        "mlp.shared_expert.down_proj" => "ffn_down_shexp",
        "mlp.gate_proj" | "gate_proj" => "ffn_gate",
        "mlp.up_proj" | "up_proj" | "mlp.c_fc" => "ffn_up",
        "mlp.down_proj" | "down_proj" | "mlp.c_proj" => "ffn_down",
        _ => return None,
    })
}

/// The permuted index of row `row` for heads of `head_dim` features: we pair feature j with
/// j + half, they store the two adjacently.
fn shuffled_row(row: usize, head_dim: usize) -> usize {
    let (head, feature) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    head * head_dim + 2 * (feature % half) + feature / half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_rows_make_pairs_adjacent() {
        let rows: Vec<usize> = (0..8).map(|row| shuffled_row(row, 4)).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
    }

    #[test]
    fn heads_of_queries_and_gates_take_turns_and_heads_of_values_are_tiled() {
        let all = |rows: Rows, n: usize| (0..n).map(|row| rows.at(row)).collect::<Vec<usize>>();
        let turns = |second| Rows::Turns { head: 2, second };
        assert_eq!(all(turns(false), 4), [0, 1, 4, 5]);
        assert_eq!(all(turns(true), 4), [2, 3, 6, 7]);
        // Three keys, two values for each.
        let tiles = Tiles {
            keys: 3,
            shared: 2,
            head: 1,
        };
        assert_eq!(
            all(Rows::Tiles { from: 1, tiles }, 7),
            [0, 1, 4, 2, 5, 3, 6]
        );
        let wide = Tiles { head: 2, ..tiles };
        let from = |at| wide.at(at);
        assert_eq!((0..6).map(from).collect::<Vec<_>>(), [0, 1, 6, 7, 2, 3]);
    }

    #[test]
    fn queries_keys_values_and_gates_are_grouped_by_heads_of_keys() {
        let groups = Groups {
            n: 2,
            key: 1,
            values: 2,
        };
        let at = |gates| move |row| Rows::ByKeys { groups, gates }.at(row);
        let of = |gates, n: usize| (0..n).map(at(gates)).collect::<Vec<usize>>();
        assert_eq!(of(false, 8), [0, 6, 1, 7, 2, 3, 8, 9]);
        assert_eq!(of(true, 4), [4, 5, 10, 11]);
    }

    #[test]
    fn values_that_stand_for_others_are_read_back() {
        for stands in [Stands::Itself, Stands::OneMore, Stands::MinusExp] {
            for x in [-2.5_f32, 0.0, 0.75] {
                assert!(
                    (stands.ours(stands.theirs(x)) - x).abs() < 1e-6,
                    "{stands:?}"
                );
            }
        }
        assert!(!Stands::MinusExp.ours(1.0).is_finite());
    }

    #[test]
    fn blocks_are_found_by_either_naming() {
        assert_eq!(in_block("model.layers.12.mlp.gate"), Some((12, "mlp.gate")));
        assert_eq!(in_block("transformer.h.0.ln_1"), Some((0, "ln_1")));
        assert_eq!(in_block("model.norm"), None);
    }
}
