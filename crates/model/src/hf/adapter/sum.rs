//! Several adapters on one model: as a single one whose rank is the sum of theirs.

use super::super::HfError;
use super::factors::Change;
use super::peft::Peft;
use super::{A, B};
use crate::base::text::one_line;
use crate::nn::adapter::{Lora, Targets};
use crate::nn::{AdapterConfig, Model};
use std::collections::BTreeMap;

/// Attaches Σ weight · scale · B A of several adapters to a model without adapters.
///
/// # Errors
/// As [`Peft::attach`]; an adapter with magnitudes or full tables.
pub fn attach_sum(parts: &[(Peft, f64)], model: &mut Model) -> Result<(), HfError> {
    if let [(peft, weight)] = parts
        && *weight == 1.0
    {
        return peft.attach(model);
    }
    if let Some((dora, _)) = parts.iter().find(|(peft, _)| peft.has_magnitudes()) {
        return Err(dora.wrong("magnitudes (DoRA) cannot be summed with other adapters".into()));
    }
    let factors = factors(parts, model)?;
    let rank = |changes: &[(f32, Change)]| -> usize {
        changes
            .iter()
            .map(|(_, change)| change.factors.size.rank)
            .sum()
    };
    let widest = factors
        .values()
        .map(|changes| rank(changes))
        .max()
        .unwrap_or(1);
    model.adapt(&AdapterConfig::Lora(Lora {
        rank: widest,
        alpha: widest as f64,
        dropout: 0.0,
        targets: Targets::Pattern,
        patterns: factors.keys().cloned().collect(),
        ..Lora::default()
    }))?;
    write_factors(&factors, widest, model)
}

/// Scale · B and A of every adapted matrix, by module, in the order of the adapters.
type Factors = BTreeMap<String, Vec<(f32, Change)>>;

fn factors(parts: &[(Peft, f64)], model: &Model) -> Result<Factors, HfError> {
    let mut factors: Factors = BTreeMap::new();
    for (peft, weight) in parts {
        let changes = peft.changes(model.config(), model.params().base())?;
        // Says whether each can stand beside the weights.
        peft.config_for(&changes, model.config())?;
        if !changes.stacks.is_empty() {
            let what = "it is on experts, and such adapters cannot be summed with others here: merge them one after the other";
            return Err(peft.wrong(what.into()));
        }
        if let Some((info, _)) = changes.whole.first() {
            return Err(peft.wrong(format!(
                "it replaces {}, which cannot be summed with other adapters",
                one_line(&info.name)
            )));
        }
        for change in changes.products {
            let scale = (weight * peft.scale_of(change.factors.size)) as f32;
            factors
                .entry(change.module.clone())
                .or_default()
                .push((scale, change));
        }
    }
    Ok(factors)
}

/// A's below each other, scale · B's side by side: their product is the sum.
fn write_factors(factors: &Factors, widest: usize, model: &mut Model) -> Result<(), HfError> {
    let params = model.params_mut();
    let (infos, held) = (params.adapters().to_vec(), params.first_held());
    params.write_held(|weights| {
        for info in &infos {
            let part = &mut weights[info.offset - held..][..info.len];
            let of = |ending| factors.get(info.name.strip_suffix(ending)?);
            if let Some(changes) = of(A) {
                let mut at = 0;
                for (_, change) in changes {
                    let a = &change.factors.a;
                    part[at..at + a.len()].copy_from_slice(a);
                    at += a.len();
                }
            } else if let Some(changes) = of(B) {
                write_b(changes, widest, part);
            }
        }
    })?;
    Ok(())
}

fn write_b(changes: &[(f32, Change)], widest: usize, part: &mut [f32]) {
    let mut first = 0;
    for (scale, change) in changes {
        let rank = change.factors.size.rank;
        let rows = part
            .chunks_exact_mut(widest)
            .zip(change.factors.b.chunks_exact(rank));
        for (row, b) in rows {
            let to = row[first..first + rank].iter_mut();
            to.zip(b).for_each(|(to, b)| *to = scale * b);
        }
        first += rank;
    }
}
