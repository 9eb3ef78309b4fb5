//! The weights of a folder, read a parameter at a time: what [`super::load_base`] reads at once.

use super::tensors::{DiskTensor, Experts, Reading, Values};
use super::{HfError, Weights, family_in, is_buffer, read_json, tensors_of};
use crate::nn::{ModelConfig, ParamInfo, param_infos};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// A folder's weights on the disk.
pub struct Stored {
    file: Weights,
    /// Each tensor with its name and shape in the file.
    tensors: Vec<(DiskTensor, String, Vec<usize>)>,
    /// By where they begin in the flat weights.
    pieces: BTreeMap<usize, Piece>,
}

/// Values that are together in the flat weights and in one tensor.
struct Piece {
    len: usize,
    tensor: usize,
    form: Form,
}

/// How a piece is in its tensor.
enum Form {
    /// As it is, from this value on.
    Plain { first: usize },
    /// It is the whole tensor, transposed.
    Turned,
    /// The matrix `at` of the `n` of an expert, whose values begin at `first` and are `len`.
    OfExpert {
        first: usize,
        len: usize,
        at: usize,
        n: usize,
    },
}

impl Stored {
    /// Finds every tensor of a model of this config, as [`super::check_weights`] does. Reads none of them.
    ///
    /// # Errors
    /// A file is absent or damaged, or its tensors are not those of the config.
    pub fn open(folder: &Path, config: &ModelConfig) -> Result<Stored, HfError> {
        let family = family_in(&read_json(folder)?, config);
        let file = Weights::open(folder)?;
        let infos = param_infos(config, config.vocab_size.unwrap_or_default());
        let mapped = tensors_of(&file, family, config, &infos);
        let ignored = |name: &str| is_buffer(family, config, name);
        let tensors = Reading::plan(&file, &mapped, &ignored)?.found();
        let mut pieces = BTreeMap::new();
        for (tensor, (disk, ..)) in tensors.iter().enumerate() {
            let mut add = |place: &Range<usize>, form: Form| {
                let piece = Piece {
                    len: place.len(),
                    tensor,
                    form,
                };
                pieces.insert(place.start, piece);
            };
            let mut first = 0;
            match &disk.values {
                Values::Own(parts) => {
                    for part in parts {
                        add(part, Form::Plain { first });
                        first += part.len();
                    }
                }
                Values::Turned(whole) => add(whole, Form::Turned),
                Values::Experts(Experts { parts, .. }) => {
                    for parts in parts {
                        let (len, n) = (parts.iter().map(Range::len).sum(), parts.len());
                        for (at, part) in parts.iter().enumerate() {
                            add(part, Form::OfExpert { first, len, at, n });
                        }
                        first += len;
                    }
                }
                Values::Zeros => {}
            }
        }
        Ok(Stored {
            file,
            tensors,
            pieces,
        })
    }

    /// The values of a parameter of the model. Besides them, a transposed tensor or the matrices of an expert are in memory.
    ///
    /// # Errors
    /// The file can no longer be read; it is no parameter of the model.
    pub fn read(&self, info: &ParamInfo) -> Result<Vec<f32>, HfError> {
        let mut values = vec![0.0; info.len];
        let mut at = 0;
        while at < info.len {
            let from = info.offset + at;
            let found = self.pieces.range(..=from).next_back();
            let found = found.filter(|(start, piece)| from < **start + piece.len);
            let Some((start, piece)) = found else {
                return Err(HfError::Model(format!("{} has no tensor", info.name)));
            };
            let skipped = from - start;
            let len = (piece.len - skipped).min(info.len - at);
            self.read_piece(piece, skipped, &mut values[at..at + len])?;
            at += len;
        }
        Ok(values)
    }

    /// The values of a piece from number `skipped` on.
    fn read_piece(&self, piece: &Piece, skipped: usize, into: &mut [f32]) -> Result<(), HfError> {
        let (tensor, name, shape) = &self.tensors[piece.tensor];
        let whole = match (&piece.form, &tensor.values) {
            (Form::Plain { first }, _) => {
                return Ok(self.file.read_part(name, shape, first + skipped, into)?);
            }
            (&Form::OfExpert { first, len, at, n }, Values::Experts(experts)) => {
                let mut values = vec![0.0; len];
                self.file.read_part(name, shape, first, &mut values)?;
                experts.matrix(at, n, values)
            }
            _ => {
                let values = self.file.read(name, shape)?;
                super::tensors::transposed(&values, shape[0], shape[1])
            }
        };
        into.copy_from_slice(&whole[skipped..skipped + into.len()]);
        Ok(())
    }
}
