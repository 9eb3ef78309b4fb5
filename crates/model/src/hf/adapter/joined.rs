//! Matrices of ours that a transformers class fuses, Phi-3's qkv_proj and gate_up_proj, or calls by another name, StarCoder2's
//! c_fc and c_proj. Their adapters are read as one per matrix.

use super::super::families::{fused_name, renamed};
use super::factors::{Change, Factors};
use crate::nn::adapter::{Lora, RankAlpha};
use crate::nn::{ParamInfo, module_name};
use std::collections::BTreeMap;
use std::ops::Range;

/// Our matrices that are parts of a fused one, in order, by its name without `.weight`; a renamed one is its only part.
pub(super) fn matrices(infos: &[ParamInfo]) -> BTreeMap<String, Vec<&ParamInfo>> {
    let mut found: BTreeMap<String, Vec<&ParamInfo>> = BTreeMap::new();
    // Only a family without gates renames them.
    let is_gated = infos.iter().any(|info| info.name.contains(".gate_proj."));
    for info in infos.iter().filter(|info| info.shape.len() == 2) {
        let other = renamed(&info.name).filter(|_| !is_gated);
        for name in fused_name(&info.name).into_iter().chain(other) {
            let module = module_name(&name);
            found.entry(module.to_string()).or_default().push(info);
        }
    }
    found
}

/// (out, in) of the fused matrix.
pub(super) fn shape(parts: &[&ParamInfo]) -> (usize, usize) {
    let rows = parts.iter().map(|info| info.shape[0]).sum();
    let cols = parts.first().map_or(0, |info| info.shape[1]);
    (rows, cols)
}

/// The adapters of the parts, which together are bit-identical to `whole`. Each has its own rows of B.
/// If each column of B affects a single part, a part has its columns and their rows of A, as before they were joined
/// (`joining`); otherwise all parts have the whole A, and its rank.
pub(super) fn split(lora: &Lora, whole: &Factors, parts: &[&ParamInfo]) -> Vec<Change> {
    let rank = whole.size.rank;
    let (_, cols) = shape(parts);
    let rows = rows_of(parts);
    let owners = owners(whole, &rows);
    let mut changes = Vec::new();
    for (number, (info, rows)) in parts.iter().zip(rows).enumerate() {
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
        let b = whole.b[rows.start * rank..rows.end * rank].chunks_exact(rank);
        let magnitude = whole
            .magnitude
            .as_ref()
            .map(|all| all[rows.clone()].to_vec());
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

/// The rows of each part in the fused matrix.
fn rows_of(parts: &[&ParamInfo]) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |info: &&ParamInfo| {
        let first = end;
        end += info.shape[0];
        first..end
    };
    parts.iter().map(next).collect()
}

/// The part that each column of B affects: the only one where it is not zero. `None` if a column affects several or
/// no parts, or if a part with magnitudes would have no column.
fn owners(whole: &Factors, rows: &[Range<usize>]) -> Option<Vec<usize>> {
    let rank = whole.size.rank;
    let is_about = |column: usize, rows: &Range<usize>| {
        rows.clone().any(|row| whole.b[row * rank + column] != 0.0)
    };
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
    use crate::nn::{ModelConfig, param_infos};

    /// Width 4, two heads with one of keys and values: queries have 4 rows, keys and values 2.
    fn infos() -> Vec<ParamInfo> {
        let config = ModelConfig {
            n_layer: 1,
            n_head: 2,
            n_kv_head: Some(1),
            d_model: 4,
            seq_len: 4,
            position: PositionConfig::Rope(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            ..ModelConfig::default()
        };
        param_infos(&config, 5)
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

    fn qkv(infos: &[ParamInfo]) -> Vec<&ParamInfo> {
        let all = matrices(infos);
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "model.layers.0.mlp.gate_up_proj",
                "model.layers.0.self_attn.qkv_proj"
            ]
        );
        let parts = all["model.layers.0.self_attn.qkv_proj"].clone();
        assert_eq!(shape(&parts), (8, 4));
        parts
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
