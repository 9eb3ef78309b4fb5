//! Where each of our parameters is in a file: its tensor's name, and which rows of it.

use super::arch::{Architecture, Rotated};
use crate::nn::norm::NormConfig;
use crate::nn::{ModelConfig, ModelShape, NormPlacement, ParamInfo};

/// A parameter's location.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub tensor: String,
    /// First row within the tensor, which may contain several parameters.
    pub first: usize,
    /// Total rows of the tensor.
    pub rows: usize,
    /// Number of experts stacked in the tensor, and the index of this one.
    pub expert: Option<(usize, usize)>,
    /// Head size if the rows of each head are permuted.
    pub shuffled: Option<usize>,
    /// Added to each value when writing (Gemma's unit offset).
    pub offset: f32,
    /// Whether queries are computed from it: an attention scale can be folded in here.
    pub makes_queries: bool,
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
    let rows = info.shape[0];
    let mut place = Place {
        tensor: String::new(),
        first: 0,
        rows,
        expert: None,
        shuffled: None,
        offset: 0.0,
        makes_queries: false,
    };
    let is_gain = info.shape.len() == 1 && end == "weight";
    if is_gain && matches!(&config.norm, NormConfig::RmsNorm(norm) if norm.unit_offset) {
        place.offset = 1.0;
    }
    let Some((layer, part)) = in_block(stem) else {
        let name = match stem {
            "model.embed_tokens" | "transformer.wte" => "token_embd",
            "model.embed_positions" | "transformer.wpe" => "position_embd",
            "model.norm" | "transformer.ln_f" => "output_norm",
            "lm_head" => "output",
            _ => return Err(unknown()),
        };
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
        if let Some((name, first, rows)) = fused {
            place.tensor = format!("blk.{layer}.{name}.{end}");
            (place.first, place.rows) = (first, rows);
            return Ok(place);
        }
    }
    let is_rotated = matches!(part, "self_attn.q_proj" | "self_attn.k_proj");
    if is_rotated && architecture.rotated() == Rotated::Neighbours {
        place.shuffled = Some(shape.head_dim);
    }
    let name = block_name(part, config.norm_placement).ok_or_else(unknown)?;
    let stacked = if place.expert.is_some() { "_exps" } else { "" };
    place.tensor = format!("blk.{layer}.{name}{stacked}.{end}");
    Ok(place)
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
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "self_attn.o_proj" | "attn.c_proj" => "attn_output",
        "mlp.gate" => "ffn_gate_inp",
        "mlp.gate_proj" | "gate_proj" => "ffn_gate",
        "mlp.up_proj" | "up_proj" | "mlp.c_fc" => "ffn_up",
        "mlp.down_proj" | "down_proj" | "mlp.c_proj" => "ffn_down",
        _ => return None,
    })
}

/// The permuted index of row `row` for heads of `head_dim` features: we pair feature j with
/// j + half, they store the two adjacently.
pub(super) fn shuffled_row(row: usize, head_dim: usize) -> usize {
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
    fn blocks_are_found_by_either_naming() {
        assert_eq!(in_block("model.layers.12.mlp.gate"), Some((12, "mlp.gate")));
        assert_eq!(in_block("transformer.h.0.ln_1"), Some((0, "ln_1")));
        assert_eq!(in_block("model.norm"), None);
    }
}
