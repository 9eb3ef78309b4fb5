//! Adapters on all experts of a block, as PEFT has them for `target_parameters`: one pair of factors for the three-dimensional
//! parameter, with E experts of rank r
//!
//! ```text
//! lora_A (E · r, in):  row e · r + j is row j of A of expert e
//! lora_B (out, r · E): column j · E + e is column j of B of expert e
//! ```
//!
//! A module of experts with two such parameters is wrapped twice, the parameter that comes first (gate and up) under `base_layer`.

use super::super::{HfError, families};
use super::factors::{Change, Factors};
use super::{A, B, PREFIX, Peft};
use crate::base::text::one_line;
use crate::nn::adapter::ExpertMatrix;
use crate::nn::role::MlpRole;
use crate::nn::{ModelConfig, ParamInfo, Role};
use std::collections::{BTreeMap, BTreeSet};

/// Of a module that is wrapped twice: the first.
const INNER: &str = ".base_layer";
/// Where a block has its experts here, and in classes of transformers.
const OURS: &str = "mlp.experts";
const PATHS: [&str; 3] = [OURS, "block_sparse_moe.experts", "feed_forward.experts"];

/// How the files of a model's class have the experts of its blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// From a block on.
    path: &'static str,
    /// Rows of gate and up take turns.
    is_interleaved: bool,
    n_expert: usize,
    /// Of the matrix of gate and up, if there are both.
    is_gated: bool,
}

impl Layout {
    /// That of a model; `None` of one without experts.
    pub fn of(config: &ModelConfig) -> Option<Layout> {
        let moe = config.moe.as_ref()?;
        let family = families::of(&config.in_files()).map(|family| family.model_type());
        let path = match family {
            Some("granitemoe" | "granitemoeshared" | "granitemoehybrid") => PATHS[1],
            Some("lfm2_moe") => PATHS[2],
            _ => OURS,
        };
        Some(Layout {
            path,
            is_interleaved: family == Some("gpt_oss"),
            n_expert: moe.n_expert,
            is_gated: config.mlp.gated(),
        })
    }

    /// The name of the parameter in its class, by our name of the matrix.
    pub fn parameter(&self, module: &str) -> String {
        module.replacen(&format!(".{OURS}."), &format!(".{}.", self.path), 1)
    }

    /// The name of a factor in a file, with its prefix, by our name of the matrix: `both` if the block's other matrix has an adapter
    /// too.
    pub fn name(&self, module: &str, both: bool, part: &str) -> String {
        let parameter = self.parameter(module);
        let (stem, end) = parameter.rsplit_once('.').unwrap_or((&parameter, ""));
        let inner = match both && end != "down_proj" {
            true => INNER,
            false => "",
        };
        format!("{PREFIX}{stem}{inner}{part}")
    }

    /// The row of an expert's B in a file, of row `at` of ours.
    fn row(&self, at: usize, (rows, is_wide): (usize, bool)) -> usize {
        let half = rows / 2;
        match self.is_interleaved && is_wide && self.is_gated {
            true => at % half.max(1) * 2 + at / half.max(1),
            false => at,
        }
    }

    /// B of all experts as a file has it, (out, r · E), from ours, (E · out, r).
    pub fn b_in_file(&self, ours: &[f32], rank: usize, is_wide: bool) -> Vec<f32> {
        let mut theirs = vec![0.0; ours.len()];
        self.places(ours.len(), rank, is_wide, |own, file| {
            theirs[file] = ours[own]
        });
        theirs
    }

    /// Its reverse.
    pub fn b_of_file(&self, theirs: &[f32], rank: usize, is_wide: bool) -> Vec<f32> {
        let mut ours = vec![0.0; theirs.len()];
        self.places(theirs.len(), rank, is_wide, |own, file| {
            ours[own] = theirs[file]
        });
        ours
    }

    /// The place of each value of B in ours and in a file.
    fn places(&self, len: usize, rank: usize, is_wide: bool, mut put: impl FnMut(usize, usize)) {
        let n = self.n_expert;
        let rows = len / (n * rank).max(1);
        for e in 0..n {
            for at in 0..rows {
                let row = self.row(at, (rows, is_wide));
                for j in 0..rank {
                    put((e * rows + at) * rank + j, row * rank * n + j * n + e);
                }
            }
        }
    }

    /// The shape of B in a file, by that of ours.
    pub fn b_shape(&self, ours: &[usize]) -> Vec<usize> {
        match *ours {
            [rows, rank] => vec![rows / self.n_expert.max(1), rank * self.n_expert],
            _ => ours.to_vec(),
        }
    }
}

/// Our name of the matrix of all experts that a factor of a model belongs to, by the factor's.
pub(super) fn matrix_of(factor: &str) -> Option<(&str, &'static str)> {
    let mut ends = [A, B].into_iter();
    let (module, part) = ends.find_map(|end| Some((factor.strip_suffix(end)?, end)))?;
    let (stem, _) = module.rsplit_once('.')?;
    stem.ends_with(".experts").then_some((module, part))
}

/// Whether that of gate and up, or up alone.
pub(super) fn is_wide(module: &str) -> bool {
    !module.ends_with("down_proj")
}

/// Whether the block's other matrix has an adapter, too.
pub(super) fn has_both(module: &str, all: &BTreeSet<&str>) -> bool {
    let stem = module.rsplit_once('.').map(|(stem, _)| stem);
    let of_block = |other: &&&str| other.rsplit_once('.').map(|(stem, _)| stem) == stem;
    all.iter().filter(of_block).count() > 1
}

/// The matrices of experts among a model's adapters, by our names.
pub(super) fn matrices_of(infos: &[ParamInfo]) -> BTreeSet<&str> {
    let found = infos.iter().filter_map(|info| matrix_of(&info.name));
    found.map(|(module, _)| module).collect()
}

/// `target_parameters`: the ends of their names where every block with experts has them, else whole names.
pub(super) fn targets(
    layout: &Layout,
    config: &ModelConfig,
    matrices: &BTreeSet<&str>,
) -> BTreeSet<String> {
    let blocks = (0..config.n_layer).filter(|layer| config.experts(*layer).is_some());
    let blocks: Vec<usize> = blocks.collect();
    let mut all = BTreeSet::new();
    for matrix in [ExpertMatrix::Wide, ExpertMatrix::Out] {
        let names = blocks.iter().map(|layer| matrix.name(config, *layer));
        let adapted: Vec<String> = names.filter(|name| matrices.contains(&**name)).collect();
        let whole = adapted.iter().map(|name| layout.parameter(name));
        match adapted.len() == blocks.len() {
            true => all.extend(whole.take(1).map(|name| match name.find(layout.path) {
                Some(at) => name[at..].to_string(),
                None => name,
            })),
            false => all.extend(whole),
        }
    }
    all
}

/// Factors of a matrix of all experts.
pub(super) struct Stack {
    /// The matrix, by our name.
    pub module: String,
    /// Those of all experts, one below the other.
    pub factors: Factors,
    cols: usize,
    /// Of each expert the matrices: module, offset and rows.
    parts: Vec<Vec<(String, usize, usize)>>,
}

impl Stack {
    /// The same as adapters of each matrix of each expert.
    pub fn by_matrix(&self) -> impl Iterator<Item = Change> {
        let (rank, cols) = (self.factors.size.rank, self.cols);
        let mut first = 0;
        let each = self.parts.iter().enumerate();
        let all = each.flat_map(|(e, parts)| parts.iter().map(move |part| (e, part)));
        all.map(move |(e, (module, offset, rows))| {
            let b = &self.factors.b[first * rank..][..rows * rank];
            first += rows;
            Change {
                module: module.clone(),
                offset: *offset,
                shape: (*rows, cols),
                factors: Factors {
                    size: self.factors.size,
                    a: self.factors.a[e * rank * cols..][..rank * cols].to_vec(),
                    b: b.to_vec(),
                    magnitude: None,
                },
            }
        })
    }
}

impl Peft {
    /// Whether a module in the file, without its prefix, is that of a block's experts: its factors are those of parameters.
    pub(super) fn is_stack(&self, module: &str) -> bool {
        let module = module.strip_suffix(INNER).unwrap_or(module);
        !self.description.parameters.is_empty() && module.ends_with(".experts")
    }

    /// The parameters that modules of experts in the file stand for, without prefix: by the module with `base_layer`, if it has it.
    pub(super) fn parameters(&self) -> BTreeMap<String, String> {
        let names = self.file.names().filter_map(|name| name.strip_suffix(A));
        let modules = names.map(|name| name.strip_prefix(PREFIX).unwrap_or(name));
        let stacks: BTreeSet<&str> = modules.filter(|module| self.is_stack(module)).collect();
        let parameter = |module: &str| {
            let stem = module.strip_suffix(INNER).unwrap_or(module);
            let twice = stacks.contains(&*format!("{stem}{INNER}"));
            let wide = ["gate_up_proj", "up_proj"].map(|end| format!("{stem}.{end}"));
            let out = format!("{stem}.down_proj");
            let named = wide.into_iter().find(|name| self.names_parameter(name));
            match (twice, module.ends_with(INNER), named) {
                (true, false, _) => out,
                (_, _, Some(wide)) => wide,
                _ => out,
            }
        };
        let all = stacks.iter();
        all.map(|module| (module.to_string(), parameter(module)))
            .collect()
    }

    /// Whether PEFT puts factors on the parameter.
    pub(super) fn names_parameter(&self, parameter: &str) -> bool {
        let is_end = |end: &String| {
            let rest = parameter.strip_suffix(end.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.description.parameters.iter().any(is_end)
    }

    /// The factors of a module of experts; `name` is that of the first in the file, `module` without prefix, `parameter` what it
    /// stands for.
    ///
    /// # Errors
    /// The model has no such experts, or of another size.
    pub(super) fn stack(
        &self,
        (name, parameter): (&str, &str),
        config: &ModelConfig,
        infos: &[ParamInfo],
    ) -> Result<Stack, HfError> {
        if !self.names_parameter(parameter) {
            return Err(self.wrong(format!(
                "target_parameters does not name {}, which the file has factors of",
                one_line(parameter)
            )));
        }
        let missing = || {
            self.wrong(format!(
                "it belongs to another model: this one has no experts {}",
                one_line(parameter)
            ))
        };
        let layout = Layout::of(config).ok_or_else(missing)?;
        let ours = PATHS.iter().find_map(|path| {
            let at = parameter.find(&format!(".{path}."))?;
            let end = &parameter[at + path.len() + 2..];
            Some(format!("{}.{OURS}.{end}", &parameter[..at]))
        });
        let ours = ours.ok_or_else(missing)?;
        let blocks = (0..config.n_layer).filter(|layer| config.experts(*layer).is_some());
        let mut all = blocks.flat_map(|layer| {
            [ExpertMatrix::Wide, ExpertMatrix::Out].map(|matrix| (layer, matrix))
        });
        let found = all.find(|(layer, matrix)| matrix.name(config, *layer) == ours);
        let (layer, matrix) = found.ok_or_else(missing)?;
        let is_part = |info: &&ParamInfo| {
            let is_down = info.role == Role::Mlp(MlpRole::Down);
            info.layer == Some(layer as u32)
                && info.shape.len() == 2
                && is_down == (matrix == ExpertMatrix::Out)
        };
        let mut parts: Vec<Vec<(String, usize, usize)>> = vec![Vec::new(); layout.n_expert];
        let mut cols = 0;
        for info in infos.iter().filter(is_part) {
            let of = info.expert.and_then(|e| parts.get_mut(e as usize));
            if let (Some(of), &[rows, width]) = (of, &info.shape[..]) {
                cols = width;
                of.push((info.module().into(), info.offset, rows));
            }
        }
        let rows: usize = parts[0].iter().map(|(_, _, rows)| rows).sum();
        let size = self.description.size_of(parameter);
        let ranks = layout.n_expert * size.rank;
        let b = self.file.read(
            &format!("{}{B}", name.strip_suffix(A).unwrap_or(name)),
            &[rows, ranks],
        )?;
        Ok(Stack {
            factors: Factors {
                size,
                a: self.file.read(name, &[ranks, cols])?,
                b: layout.b_of_file(&b, size.rank, is_wide(&ours)),
                magnitude: None,
            },
            module: ours,
            cols,
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_b_take_turns_by_expert_and_rows_of_some_classes_by_half() {
        let layout = |is_interleaved| Layout {
            path: OURS,
            is_interleaved,
            n_expert: 2,
            is_gated: true,
        };
        // Two experts of four rows and rank 3: the hundreds are the expert, the tens the row, the ones the rank.
        let mut ours = Vec::new();
        for e in 0..2 {
            for row in 0..4 {
                ours.extend((0..3).map(|j| (100 * e + 10 * row + j) as f32));
            }
        }
        let plain = layout(false).b_in_file(&ours, 3, true);
        assert_eq!(plain[..6], [0.0, 100.0, 1.0, 101.0, 2.0, 102.0]);
        assert_eq!(plain[6..8], [10.0, 110.0]);
        let turns = layout(true).b_in_file(&ours, 3, true);
        let firsts: Vec<f32> = turns.iter().copied().step_by(6).collect();
        assert_eq!(firsts, [0.0, 20.0, 10.0, 30.0]);
        for layout in [layout(false), layout(true)] {
            for is_wide in [true, false] {
                let file = layout.b_in_file(&ours, 3, is_wide);
                assert_eq!(layout.b_of_file(&file, 3, is_wide), ours);
            }
        }
        assert_eq!(layout(true).b_in_file(&ours, 3, false), plain);
    }
}
