//! A model's weights prepared for writing: which tensors, in which files, in which dtype. The values are a model's, or come one tensor
//! after another.

use super::safetensors::{TensorHead, TensorSink, write_to};
use super::tensors::DiskTensor;
use super::{Dtype, Naming, WEIGHTS, disk_tensors, families, pretty, shard_name};
use crate::kernels::errors::io_error;
use crate::nn::{Model, ModelConfig, ParamInfo};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::ops::Range;

/// The values of a tensor, by its number and the ranges of the flat weights that they are.
pub type Values<'a> = &'a mut dyn FnMut(usize, &[Range<usize>]) -> io::Result<Vec<f32>>;

/// The files of a model's weights.
pub struct Outgoing {
    dtype: Dtype,
    /// The tensors of each file.
    shards: Vec<Vec<DiskTensor>>,
}

impl Outgoing {
    /// Files of at most `max_bytes` each; a larger tensor gets its own file.
    pub fn new(model: &Model, naming: Naming, dtype: Dtype, max_bytes: u64) -> Outgoing {
        let of = (model.config(), model.params().base());
        Outgoing::of(of, naming, dtype, max_bytes)
    }

    /// The same for a model with these parameters.
    pub fn of(
        (config, infos): (&ModelConfig, &[ParamInfo]),
        naming: Naming,
        dtype: Dtype,
        max_bytes: u64,
    ) -> Outgoing {
        let mut shards: Vec<Vec<DiskTensor>> = vec![Vec::new()];
        // As `config.json` states it, context included: a family that knew one and not the other would name half a model.
        let config = config.in_files();
        let family = families::of(&config).filter(|_| naming == Naming::Family);
        let mut filled = 0;
        for tensor in disk_tensors(family, &config, infos) {
            let bytes = tensor.bytes(dtype) as u64;
            if filled > 0 && filled + bytes > max_bytes {
                shards.push(Vec::new());
                filled = 0;
            }
            filled += bytes;
            if let Some(last) = shards.last_mut() {
                last.push(tensor);
            }
        }
        Outgoing { dtype, shards }
    }

    /// The files by name, in order.
    pub fn files(&self) -> Vec<String> {
        match self.shards.len() {
            1 => vec![WEIGHTS.into()],
            n => (1..=n).map(|number| shard_name(number, n)).collect(),
        }
    }

    /// Values in all files together: some families store more than a model computes with, such as biases of zero.
    pub fn n_values(&self) -> usize {
        self.shards.iter().flatten().map(DiskTensor::len).sum()
    }

    /// Values of the largest tensor.
    pub fn largest(&self) -> usize {
        let sizes = self.shards.iter().flatten().map(DiskTensor::len);
        sizes.max().unwrap_or_default()
    }

    /// The text of the shard index; `None` for a single file.
    pub fn index_json(&self) -> Option<String> {
        let files = self.files();
        if files.len() == 1 {
            return None;
        }
        let map: serde_json::Map<String, Value> = self
            .shards
            .iter()
            .zip(&files)
            .flat_map(|(tensors, file)| tensors.iter().map(move |t| (t.name.clone(), json!(file))))
            .collect();
        let values = self.n_values();
        let tensors = self.shards.iter().flatten();
        let bytes: usize = tensors.map(|tensor| tensor.bytes(self.dtype)).sum();
        let metadata = json!({"total_parameters": values, "total_size": bytes});
        Some(pretty(&json!({"metadata": metadata, "weight_map": map})))
    }

    /// Writes file `at` (from 0) of a model. Holds at most one transposed matrix.
    ///
    /// # Errors
    /// Errors of the writer; values out of range for the dtype.
    pub fn write(&self, at: usize, model: &Model, out: &mut dyn Write) -> io::Result<()> {
        let tensors = self.tensors(at);
        let written = model.params().read_weights(|weights| {
            write_to(out, &self.heads(at), &mut |sink: &mut TensorSink| {
                tensors
                    .iter()
                    .try_for_each(|tensor| tensor.write(weights, &mut |part| sink.put(part)))
            })
        });
        written.map_err(io_error)?
    }

    /// Writes file `at` (from 0) of values that come when they are wanted: `values` receives the number of a tensor, counted over all
    /// files and without those that are all zeros, and where its values are in the flat weights. Holds one tensor, twice if it is
    /// transposed.
    ///
    /// # Errors
    /// As [`Outgoing::write`]; those of `values`.
    pub fn write_each(&self, at: usize, values: Values<'_>, out: &mut dyn Write) -> io::Result<()> {
        let has_values = |tensor: &&DiskTensor| !tensor.places().is_empty();
        let earlier = self.shards.iter().take(at).flatten();
        let mut number = earlier.filter(has_values).count();
        write_to(out, &self.heads(at), &mut |sink: &mut TensorSink| {
            for tensor in self.tensors(at) {
                let places = tensor.places();
                let own = match places.is_empty() {
                    true => Vec::new(),
                    false => {
                        number += 1;
                        values(number - 1, &places)?
                    }
                };
                tensor.by_itself().write(&own, &mut |part| sink.put(part))?;
            }
            Ok(())
        })
    }

    fn tensors(&self, at: usize) -> &[DiskTensor] {
        self.shards.get(at).map_or(&[][..], Vec::as_slice)
    }

    fn heads(&self, at: usize) -> Vec<TensorHead> {
        let tensors = self.tensors(at).iter();
        let head = |tensor: &DiskTensor| TensorHead {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            dtype: tensor.dtype(self.dtype),
        };
        tensors.map(head).collect()
    }
}
