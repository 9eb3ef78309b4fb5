//! Matrices of ours that a class of transformers keeps as one: Phi-3's qkv_proj and gate_up_proj. Their adapters are read as
//! one for each of ours.

use super::super::families::fused_name;
use super::peft::{Change, Factors};
use crate::nn::ParamInfo;
use crate::nn::adapter::{Lora, RankAlpha};
use std::collections::BTreeMap;
use std::ops::Range;

/// The matrices that are parts of one of theirs, first to last, by its name without `.weight`.
pub(super) fn matrices(infos: &[ParamInfo]) -> BTreeMap<String, Vec<&ParamInfo>> {
    let mut found: BTreeMap<String, Vec<&ParamInfo>> = BTreeMap::new();
    for info in infos.iter().filter(|info| info.shape.len() == 2) {
        if let Some(name) = fused_name(&info.name) {
            let module = name.trim_end_matches(".weight");
            found.entry(module.to_string()).or_default().push(info);
        }
    }
    found
}

/// (out, in) of the whole.
pub(super) fn shape(parts: &[&ParamInfo]) -> (usize, usize) {
    let rows = parts.iter().map(|info| info.shape[0]).sum();
    let cols = parts.first().map_or(0, |info| info.shape[1]);
    (rows, cols)
}

/// The adapters of the parts, which together change what `whole` does, to the bit. Each has the rows of B that are its own.
/// Where each column of B is about one part, a part has its columns and their rows of A, as before they were joined
/// (`joining`); else all parts have the whole A, and its rank.
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
            module: info.name.trim_end_matches(".weight").into(),
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

/// The rows of each part in the whole.
fn rows_of(parts: &[&ParamInfo]) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |info: &&ParamInfo| {
        let first = end;
        end += info.shape[0];
        first..end
    };
    parts.iter().map(next).collect()
}

/// The part that each column of B is about: the only one in which it is not zero; `None` where a column is about several or
/// none, and where a part with magnitudes would have none.
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

/// A square root and back leaves 16.000000000000004. f32, in which the product is computed, has seven digits.
pub(super) fn round(alpha: f64) -> f64 {
    let near = (alpha * 1e6).round() / 1e6;
    match (near - alpha).abs() <= 1e-12 * alpha {
        true => near,
        false => alpha,
    }
}
