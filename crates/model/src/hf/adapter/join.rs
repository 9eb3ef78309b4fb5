//! Joins adapters of several of our matrices into one adapter of the fused matrix of the base's class, for PEFT: A stacked, B
//! block-diagonal; and renames others. `joined` reads them.

use super::super::tensors::{DiskTensor, Values};
use super::super::{CONFIG, HfError, config, disk_tensors, family_in, read_json};
use super::factors::Factors;
use super::joined::{self, ByOffset, Fused};
use super::names::{self, Sizes};
use super::{A, B, MAGNITUDE, PREFIX, Peft};
use crate::base::text::one_line;
use crate::nn::adapter::RankAlpha;
use crate::nn::{ParamInfo, Role, module_name, param_infos};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// How an adapter's matrices map to the names of its base's class.
#[derive(Debug, Default)]
pub struct Joins {
    joins: Vec<Join>,
    /// All matrices of the base under those names, without `.weight`.
    theirs: Vec<String>,
    /// Tables that the adapter has in full, ours to theirs.
    tables: BTreeMap<String, String>,
}

/// Why an adapter cannot be expressed in the names of its base's class.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Unread(#[from] HfError),
    #[error("{0}")]
    Impossible(String),
}

/// A fused matrix of the class.
#[derive(Debug)]
pub(super) struct Join {
    /// Without `.weight`.
    pub name: String,
    pub size: RankAlpha,
    parts: Vec<Part>,
    /// The rows of each part in the fused matrix.
    rows: Vec<Vec<usize>>,
    cols: usize,
    /// Whether all parts have the same A, as when read from one adapter: it stays a single one, of its rank.
    is_shared: bool,
}

#[derive(Debug)]
struct Part {
    /// Our matrix, if it has an adapter.
    module: Option<String>,
    rows: usize,
    rank: usize,
    /// Factor on its B, because the whole has a single scale.
    factor: f32,
}

impl Join {
    /// Rows of one part after the other → rows as in the fused matrix.
    fn in_their_order(&self, values: &[f32]) -> Vec<f32> {
        let rows: usize = self.rows.iter().map(Vec::len).sum();
        let width = values.len() / rows.max(1);
        let mut theirs = vec![0.0; values.len()];
        let ours = values.chunks_exact(width.max(1));
        for (row, ours) in self.rows.iter().flatten().zip(ours) {
            theirs[row * width..][..width].copy_from_slice(ours);
        }
        theirs
    }
}

impl Joins {
    /// Whether the adapter is written unchanged.
    pub fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.tables.is_empty()
    }

    /// Their name of a table that the adapter has in full.
    pub(super) fn table(&self, own: &str) -> Option<&str> {
        self.tables.get(own).map(String::as_str)
    }

    pub(super) fn all(&self) -> &[Join] {
        &self.joins
    }

    /// Whether one of our matrices is part of a fused one.
    pub(super) fn has(&self, module: &str) -> bool {
        let mut parts = self.joins.iter().flat_map(|join| &join.parts);
        parts.any(|part| part.module.as_deref() == Some(module))
    }
}

impl Peft {
    /// How its matrices map to those of its base's class, such as Phi-3's fused queries, keys and values. The base's
    /// config.json is next to the adapter, in checkpoints.
    ///
    /// # Errors
    /// That file cannot be read; the class lacks a matrix; magnitudes for a part of a matrix.
    pub fn joins(&self, folder: &Path) -> Result<Joins, JoinError> {
        let value = read_json(folder)?;
        let config = config::read(&value).map_err(|what| HfError::Config {
            path: folder.join(CONFIG),
            what,
        })?;
        let infos = param_infos(&config, config.vocab_size.unwrap_or(1));
        let tensors = disk_tensors(family_in(&value, &config), &config, &infos);
        let theirs: BTreeSet<&str> = tensors.iter().map(|t| module_name(&t.name)).collect();
        let modules = self.modules();
        let by_offset = joined::by_offset(&infos);
        let matrices = infos.iter().filter(|info| info.shape.len() == 2);
        let by_module: BTreeMap<&str, &ParamInfo> =
            matrices.map(|info| (info.module(), info)).collect();
        let holders = holders(&tensors);
        let mut whole: BTreeMap<&str, &DiskTensor> = BTreeMap::new();
        for module in &modules {
            let info = by_module.get(module.as_str());
            let tensor = info.and_then(|info| holders.get(&info.offset).copied());
            let is_alone = |tensor: &DiskTensor| info.is_none_or(|info| tensor.len() == info.len);
            match tensor {
                // Under their name and by itself, or transposed.
                _ if theirs.contains(module.as_str()) && tensor.is_none_or(is_alone) => {}
                Some(tensor) if !has_beside(&modules, tensor, &by_offset) => {
                    whole.insert(&tensor.name, tensor);
                }
                _ => {
                    return Err(JoinError::Impossible(format!(
                        "the adapter changes {}, which its base's class does not have: PEFT would not find it",
                        one_line(module)
                    )));
                }
            }
        }
        let joins = whole.values().filter_map(|tensor| {
            let fused = Fused::of(tensor, &by_offset)?;
            Some(self.join(module_name(&tensor.name), &fused))
        });
        let saved = self.whole();
        let tables = infos.iter().filter(|info| {
            // PEFT sees the head as lm_head in every class.
            info.role == Role::Embedding && saved.contains(info.module())
        });
        let tables = tables.filter_map(|info| {
            let tensor = holders.get(&info.offset)?;
            let is_other = tensor.name != info.name;
            is_other.then(|| (info.name.clone(), tensor.name.clone()))
        });
        let matrices = tensors.iter().filter(|tensor| tensor.shape.len() == 2);
        Ok(Joins {
            joins: joins.collect::<Result<_, _>>()?,
            tables: tables.collect(),
            theirs: matrices.map(|t| module_name(&t.name).to_string()).collect(),
        })
    }

    fn join(&self, name: &str, fused: &Fused) -> Result<Join, JoinError> {
        let (infos, (_, cols)) = (&fused.parts, fused.shape());
        let modules = self.modules();
        let mut all: Vec<Option<Factors>> = Vec::new();
        for info in infos {
            let module = info.module();
            let factors = modules
                .contains(module)
                .then(|| self.part(module, info.shape[0], cols));
            all.push(factors.transpose()?);
        }
        let adapted: Vec<&Factors> = all.iter().flatten().collect();
        if self.description.lora.dora && adapted.len() < all.len() {
            return Err(JoinError::Impossible(format!(
                "the adapter has magnitudes (DoRA) for some rows of {} and none for the others, which PEFT cannot have",
                one_line(name)
            )));
        }
        let lora = &self.description.lora;
        let first = adapted.first().map_or(lora.size_of(name), |one| one.size);
        let is_shared = adapted.len() == all.len()
            && adapted
                .iter()
                .all(|one| one.size == first && one.a == adapted[0].a);
        let scale = lora.scale_of(first);
        let rank = adapted.iter().map(|one| one.size.rank).sum();
        let size = match is_shared {
            true => first,
            false => RankAlpha {
                rank,
                alpha: joined::round(lora.alpha_for(rank, scale)),
            },
        };
        let parts = infos.iter().zip(&all).map(|(info, factors)| Part {
            module: factors.is_some().then(|| info.module().to_string()),
            rows: info.shape[0],
            rank: factors.as_ref().map_or(0, |one| one.size.rank),
            factor: factors
                .as_ref()
                .map_or(1.0, |one| (lora.scale_of(one.size) / scale) as f32),
        });
        Ok(Join {
            name: name.into(),
            size,
            parts: parts.collect(),
            rows: fused.rows.clone(),
            cols,
            is_shared,
        })
    }

    /// The factors of one of our matrices.
    fn part(&self, module: &str, rows: usize, cols: usize) -> Result<Factors, HfError> {
        let prefixed = format!("{PREFIX}{module}{A}");
        let name = match self.file.contains(&prefixed) {
            true => prefixed,
            false => format!("{module}{A}"),
        };
        self.factors(&name, (rows, cols))
    }

    /// The tensors of a joined adapter: names in the file, shapes, and which of the three they are.
    pub(super) fn joined_heads(&self, join: &Join) -> Vec<(String, Vec<usize>, &'static str)> {
        let rows = join.parts.iter().map(|part| part.rows).sum();
        let rank = join.size.rank;
        let head = |part: &'static str, shape: &[usize]| {
            let name = format!("{PREFIX}{}{part}", join.name);
            (name, shape.to_vec(), part)
        };
        let mut heads = vec![head(A, &[rank, join.cols]), head(B, &[rows, rank])];
        if self.description.lora.dora {
            heads.push(head(MAGNITUDE, &[rows]));
        }
        heads
    }

    /// The values of one of these tensors.
    pub(super) fn joined_values(&self, join: &Join, what: &str) -> Result<Vec<f32>, HfError> {
        let (mut values, mut first) = (Vec::new(), 0);
        for part in &join.parts {
            let Some(module) = &part.module else {
                if what == B {
                    values.resize(values.len() + part.rows * join.size.rank, 0.0);
                }
                continue;
            };
            let factors = self.part(module, part.rows, join.cols)?;
            if what == A {
                if !join.is_shared || first == 0 {
                    values.extend(factors.a);
                }
            } else if what == B {
                let at = if join.is_shared { 0 } else { first };
                for row in factors.b.chunks_exact(part.rank) {
                    let from = values.len();
                    values.resize(from + join.size.rank, 0.0);
                    let block = &mut values[from + at..][..part.rank];
                    for (to, b) in block.iter_mut().zip(row) {
                        *to = part.factor * b;
                    }
                }
            } else {
                values.extend(factors.magnitude.into_iter().flatten());
            }
            first += part.rank;
        }
        Ok(match what {
            A => values,
            _ => join.in_their_order(&values),
        })
    }

    /// Describes the joined matrices and their sizes in a config.
    pub(super) fn describe_joined(&self, joins: &Joins, config: &mut Value) {
        let own = self.modules().into_iter();
        let own = own.filter(|module| !joins.has(module));
        let mut sizes: Sizes = own
            .map(|module| {
                let size = self.description.size_of(&module);
                (module, size)
            })
            .collect();
        let parameters = self.parameters().into_values();
        let of_parameters: Sizes = parameters
            .map(|name| {
                let size = self.description.size_of(&name);
                (name, size)
            })
            .collect();
        sizes.extend(
            joins
                .joins
                .iter()
                .map(|join| (join.name.clone(), join.size)),
        );
        let lora = &self.description.lora;
        let common = RankAlpha {
            rank: lora.rank,
            alpha: lora.alpha,
        };
        let targets = names::targets(&sizes, joins.theirs.iter().map(String::as_str));
        sizes.extend(of_parameters);
        let (ranks, alphas) = names::patterns(&sizes, common);
        config["target_modules"] = targets.into_iter().collect();
        config["rank_pattern"] = ranks;
        config["alpha_pattern"] = alphas;
        let last = |name: &str| module_name(name).rsplit('.').next().map(Value::from);
        let saved = config["modules_to_save"].as_array_mut();
        for module in saved.into_iter().flatten() {
            let mut tables = joins.tables.iter();
            let renamed = tables.find(|(own, _)| last(own).as_ref() == Some(module));
            if let Some(theirs) = renamed.and_then(|(_, theirs)| last(theirs)) {
                *module = theirs;
            }
        }
        // Patterns refer to names that no longer exist.
        for key in ["exclude_modules", "layers_to_transform", "layers_pattern"] {
            if !config[key].is_null() {
                config[key] = Value::Null;
            }
        }
    }
}

/// Whether an adapter changes a fused matrix as one, beside its parts: by its name, which is of none of them.
fn has_beside(modules: &BTreeSet<String>, tensor: &DiskTensor, by_offset: &ByOffset) -> bool {
    let name = module_name(&tensor.name);
    let fused = Fused::of(tensor, by_offset);
    let mut parts = fused.iter().flat_map(|fused| &fused.parts);
    modules.contains(name) && parts.all(|info| info.module() != name)
}

/// The tensor that contains the parameter which begins at an offset, alone or with others.
fn holders(tensors: &[DiskTensor]) -> BTreeMap<usize, &DiskTensor> {
    let parts = |tensor: &DiskTensor| match &tensor.values {
        Values::Own(parts) => parts.iter().map(|part| part.start).collect(),
        Values::Turned(_) | Values::Experts(_) | Values::Zeros => Vec::new(),
    };
    let all = tensors.iter();
    all.flat_map(|tensor| parts(tensor).into_iter().map(move |start| (start, tensor)))
        .collect()
}
