//! Matrices of ours that a transformers class fuses or names otherwise: Phi-3's qkv_proj and gate_up_proj, GPT-NeoX's
//! query_key_value, Qwen 3.5's q_proj, which holds gates too. Adapters of fused ones are read as one per matrix.

use super::super::families;
use super::super::tensors::{DiskTensor, Values};
use super::factors::{Change, Factors};
use crate::nn::adapter::{Lora, RankAlpha};
use crate::nn::{ModelConfig, ParamInfo, module_name};
use std::collections::BTreeMap;

/// Our parameters by where they begin in the flat weights.
pub(super) type ByOffset<'a> = BTreeMap<usize, &'a ParamInfo>;

pub(super) fn by_offset(infos: &[ParamInfo]) -> ByOffset<'_> {
    infos.iter().map(|info| (info.offset, info)).collect()
}

/// One matrix of a class, made of ours.
#[derive(Debug, Clone)]
pub(super) struct Fused<'a> {
    pub parts: Vec<&'a ParamInfo>,
    /// Where the rows of each part are: of GPT-NeoX and Qwen3-Next those of several take turns.
    pub rows: Vec<Vec<usize>>,
}

impl<'a> Fused<'a> {
    /// The matrix of a class's tensor; `None` if it is not made of whole ones of ours.
    pub fn of(tensor: &DiskTensor, by_offset: &ByOffset<'a>) -> Option<Fused<'a>> {
        let Values::Own(ranges) = &tensor.values else {
            return None;
        };
        let mut parts: Vec<&ParamInfo> = Vec::new();
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut next = 0;
        for range in ranges {
            let (_, info) = by_offset.range(..=range.start).next_back()?;
            let cols = info.shape.get(1).copied().unwrap_or(1).max(1);
            let at = parts.iter().position(|part| part.offset == info.offset);
            let at = at.unwrap_or_else(|| {
                parts.push(info);
                rows.push(vec![0; info.len / cols]);
                parts.len() - 1
            });
            let (first, n) = ((range.start - info.offset) / cols, range.len() / cols);
            let own = rows[at].get_mut(first..first + n)?;
            own.iter_mut().zip(next..).for_each(|(row, to)| *row = to);
            next += n;
        }
        let all: usize = rows.iter().map(Vec::len).sum();
        (all == next && next > 0).then_some(Fused { parts, rows })
    }

    /// (out, in) of the fused matrix.
    pub fn shape(&self) -> (usize, usize) {
        let rows = self.parts.iter().map(|info| info.shape[0]).sum();
        let cols = self.parts.first().map_or(0, |info| info.shape[1]);
        (rows, cols)
    }
}

/// The matrices that the classes that the model may be of fuse or rename, by their names without `.weight`.
pub(super) fn matrices<'a>(
    config: &ModelConfig,
    infos: &'a [ParamInfo],
) -> BTreeMap<String, Fused<'a>> {
    let by_offset = by_offset(infos);
    let mut found = BTreeMap::new();
    for family in families::renamed(config) {
        let tensors = family.tensors(config, infos);
        for tensor in tensors.iter().filter(|tensor| tensor.shape.len() == 2) {
            let Some(fused) = Fused::of(tensor, &by_offset) else {
                continue;
            };
            // One that joins several may have the name of the first (Qwen 3.5's queries with their gates).
            let is_other = fused.parts.len() > 1 || fused.parts[0].name != tensor.name;
            if is_other {
                found.insert(module_name(&tensor.name).to_string(), fused);
            }
        }
    }
    found
}

/// The adapters of the parts, which together are bit-identical to `whole`. Each has its own rows of B.
/// If each column of B affects a single part, a part has its columns and their rows of A, as before they were joined
/// (`joining`); otherwise all parts have the whole A, and its rank.
pub(super) fn split(lora: &Lora, whole: &Factors, fused: &Fused) -> Vec<Change> {
    let rank = whole.size.rank;
    let (_, cols) = fused.shape();
    let owners = owners(whole, &fused.rows);
    let mut changes = Vec::new();
    for (number, (info, rows)) in fused.parts.iter().zip(&fused.rows).enumerate() {
        let columns: Vec<usize> = match &owners {
            Some(owners) => (0..rank).filter(|at| owners[*at] == number).collect(),
            None => (0..rank).collect(),
        };
        if columns.is_empty() {
            continue;
        }
        let size = match columns.len() == rank {
            true => whole.size,
            false => RankAlpha {
                rank: columns.len(),
                alpha: round(lora.alpha_for(columns.len(), lora.scale_of(whole.size))),
            },
        };
        let a = columns.iter().flat_map(|at| &whole.a[at * cols..][..cols]);
        let b = rows.iter().map(|row| &whole.b[row * rank..][..rank]);
        let magnitude = whole
            .magnitude
            .as_ref()
            .map(|all| rows.iter().map(|row| all[*row]).collect());
        changes.push(Change {
            module: info.module().into(),
            offset: info.offset,
            shape: (rows.len(), cols),
            factors: Factors {
                size,
                a: a.copied().collect(),
                b: b.flat_map(|row| columns.iter().map(|at| row[*at]))
                    .collect(),
                magnitude,
            },
        });
    }
    changes
}

/// The part that each column of B affects: the only one where it is not zero. `None` if a column affects several or
/// no parts, or if a part with magnitudes would have no column.
fn owners(whole: &Factors, rows: &[Vec<usize>]) -> Option<Vec<usize>> {
    let rank = whole.size.rank;
    let is_about =
        |column: usize, rows: &[usize]| rows.iter().any(|row| whole.b[row * rank + column] != 0.0);
    let owner = |column: usize| {
        let mut about = (0..rows.len()).filter(|part| is_about(column, &rows[*part]));
        about.next().filter(|_| about.next().is_none())
    };
    let owners: Vec<usize> = (0..rank).map(owner).collect::<Option<_>>()?;
    let all = (0..rows.len()).all(|part| owners.contains(&part));
    (all || whole.magnitude.is_none()).then_some(owners)
}

/// A square root and back leaves 16.000000000000004. f32, in which it is used, has seven digits.
pub(super) fn round(alpha: f64) -> f64 {
    let near = (alpha * 1e6).round() / 1e6;
    match (near - alpha).abs() <= 1e-12 * alpha {
        true => near,
        false => alpha,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::mlp::MlpConfig;
    use crate::nn::position::PositionConfig;
    use crate::nn::{AttentionBias, MoeConfig, param_infos};
    use std::collections::BTreeSet;
    use std::ops::Range;

    /// Width 4, two heads with one of keys and values: queries have 4 rows, keys and values 2.
    fn config() -> ModelConfig {
        ModelConfig {
            n_layer: 1,
            n_head: 2,
            n_kv_head: Some(1),
            d_model: 4,
            seq_len: 4,
            position: PositionConfig::Rope(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            ..ModelConfig::default()
        }
    }

    fn infos() -> Vec<ParamInfo> {
        param_infos(&config(), 5)
    }

    /// Rank 3 and alpha 6; column c of B is not zero in the rows of `owners[c]`.
    fn whole(owners: [&[Range<usize>]; 3], magnitudes: bool) -> Factors {
        let b = (0..8 * 3).map(|at| {
            let (row, column) = (at / 3, at % 3);
            let is_about = owners[column].iter().any(|rows| rows.contains(&row));
            if is_about { 1.0 + at as f32 } else { 0.0 }
        });
        Factors {
            size: RankAlpha {
                rank: 3,
                alpha: 6.0,
            },
            a: (0..12).map(|x| x as f32).collect(),
            b: b.collect(),
            magnitude: magnitudes.then(|| (0..8).map(|x| x as f32).collect()),
        }
    }

    fn qkv(infos: &[ParamInfo]) -> Fused<'_> {
        let all = matrices(&config(), infos);
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "model.layers.0.mlp.gate_up_proj",
                "model.layers.0.self_attn.qkv_proj"
            ]
        );
        let fused = all["model.layers.0.self_attn.qkv_proj"].clone();
        let rows: [Vec<usize>; 3] = [(0..4).collect(), (4..6).collect(), (6..8).collect()];
        assert_eq!((fused.shape(), &fused.rows[..]), ((8, 4), &rows[..]));
        fused
    }

    /// GPT-NeoX's rows are (head, q | k | v, head_dim).
    #[test]
    fn rows_of_heads_alternate_between_queries_keys_and_values() {
        let config = ModelConfig {
            n_kv_head: None,
            mlp: MlpConfig::Gelu(Default::default()),
            bias: true,
            ..config()
        };
        let infos = param_infos(&config, 5);
        let all = matrices(&config, &infos);
        let fused = &all["gpt_neox.layers.0.attention.query_key_value"];
        let rows = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]];
        assert_eq!(fused.shape(), (12, 4));
        assert_eq!(fused.rows, rows);
        let down = &all["gpt_neox.layers.0.mlp.dense_4h_to_h"];
        assert_eq!((down.parts.len(), down.shape()), (1, (4, 16)));
    }

    /// An adapter of a GPT-2 (`c_fc`) fits the shapes of a Pythia, and is none of it.
    #[test]
    fn names_of_classes_that_the_model_is_not_of_are_unknown() {
        let stems = |config: &ModelConfig| {
            let infos = param_infos(config, 5);
            let all = matrices(config, &infos);
            let is_fused = |name: &&String| name.ends_with("qkv_proj");
            let stem = |name: &String| name.split('.').next().unwrap().to_string();
            let others = all.keys().filter(|name| !is_fused(name));
            others.map(stem).collect::<BTreeSet<String>>()
        };
        let pythia = ModelConfig {
            n_kv_head: None,
            mlp: MlpConfig::Gelu(Default::default()),
            parallel_residual: true,
            bias: true,
            ..config()
        };
        assert_eq!(stems(&pythia), BTreeSet::from(["gpt_neox".to_string()]));
        let starcoder2 = ModelConfig {
            parallel_residual: false,
            sliding_window: Some(2),
            ..pythia.clone()
        };
        assert_eq!(stems(&starcoder2), BTreeSet::from(["model".to_string()]));
        let gpt_neo = ModelConfig {
            position: PositionConfig::Learned(Default::default()),
            attention_scale: Some(1.0),
            attention_bias: AttentionBias::Output,
            parallel_residual: false,
            ..pythia.clone()
        };
        assert_eq!(stems(&gpt_neo), BTreeSet::from(["transformer".to_string()]));
        let ours = ModelConfig {
            qk_norm: true,
            ..pythia
        };
        assert_eq!(stems(&ours), BTreeSet::new());
    }

    /// As many parameters as Qwen3-30B-A3B has: each tensor finds its parts without a search through all.
    #[test]
    fn models_of_many_experts_have_fused_names_for_each() {
        let (n_layer, n_expert) = (48, 128);
        let config = ModelConfig {
            n_layer,
            moe: Some(MoeConfig {
                n_expert,
                d_ff: Some(2),
                ..MoeConfig::default()
            }),
            ..config()
        };
        let infos = param_infos(&config, 5);
        let all = matrices(&config, &infos);
        assert_eq!(all.len(), n_layer * (1 + n_expert));
        let last = &all["model.layers.47.mlp.experts.127.gate_up_proj"];
        let names: Vec<&str> = last.parts.iter().map(|info| info.module()).collect();
        assert!(names[0].ends_with("experts.127.gate_proj"), "{names:?}");
        assert!(names[1].ends_with("experts.127.up_proj"), "{names:?}");
        assert_eq!(last.shape(), (4, 4));
    }

    const Q: Range<usize> = 0..4;
    const K: Range<usize> = 4..6;
    const V: Range<usize> = 6..8;

    #[test]
    fn parts_have_the_columns_that_only_affect_them() {
        let (infos, lora) = (infos(), Lora::default());
        let whole = whole([&[Q], &[V], &[Q]], false);
        let parts = split(&lora, &whole, &qkv(&infos));
        let ends = parts
            .iter()
            .map(|part| part.module.rsplit('.').next().unwrap());
        assert_eq!(
            ends.collect::<Vec<_>>(),
            ["q_proj", "v_proj"],
            "no column is about keys"
        );
        // The scale is still 2.
        let size = |rank, alpha| RankAlpha { rank, alpha };
        assert_eq!(parts[0].factors.size, size(2, 4.0));
        assert_eq!(parts[1].factors.size, size(1, 2.0));
        assert_eq!(
            parts[0].factors.a,
            [0.0, 1.0, 2.0, 3.0, 8.0, 9.0, 10.0, 11.0]
        );
        assert_eq!(
            parts[0].factors.b,
            [1.0, 3.0, 4.0, 6.0, 7.0, 9.0, 10.0, 12.0]
        );
        assert_eq!(parts[1].factors.a, [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(parts[1].factors.b, [20.0, 23.0]);
    }

    #[test]
    fn shared_or_empty_columns_give_all_parts_the_full_rank() {
        let (infos, lora) = (infos(), Lora::default());
        for (owners, magnitudes) in [
            ([&[Q, K][..], &[V], &[Q]], false),
            ([&[Q], &[], &[V]], false),
            // Keys have magnitudes, but no column.
            ([&[Q], &[V], &[Q]], true),
        ] {
            let whole = whole(owners, magnitudes);
            let parts = split(&lora, &whole, &qkv(&infos));
            assert_eq!(parts.len(), 3);
            for (part, rows) in parts.iter().zip([Q, K, V]) {
                let factors = &part.factors;
                assert_eq!((&factors.size, &factors.a), (&whole.size, &whole.a));
                assert_eq!(factors.b, whole.b[rows.start * 3..rows.end * 3]);
                let lengths = whole.magnitude.as_ref().map(|all| all[rows].to_vec());
                assert_eq!(factors.magnitude, lengths);
            }
        }
    }

    #[test]
    fn square_roots_round_trip_to_round_alphas() {
        assert_eq!(round(16.000000000000004), 16.0);
        let root = 6.0 * 3.0_f64.sqrt();
        assert_eq!(round(root), root);
    }
}
