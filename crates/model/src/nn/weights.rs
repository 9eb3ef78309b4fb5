//! The source of a pass's weights: the flat buffer of a trainable model, or tensor by tensor as in a file, quantized and
//! frozen, with adapters in f32.

use super::layout::{Layout, Span};
use super::params::ParamInfo;
use crate::kernels::matrix::Matrix;
use crate::kernels::quant::{Kind, PackError, Packed};
use std::collections::BTreeMap;

/// The weights of one pass.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    Flat(&'a [f32]),
    /// The base in a file's formats, and adapters in f32, which start at the offset `from`.
    Stored {
        stored: &'a Stored,
        adapters: &'a [f32],
        from: usize,
    },
    /// For a counting pass. All matrices are empty.
    Absent {
        are_stored: bool,
    },
}

impl<'a> Weights<'a> {
    /// A matrix, in any format.
    pub fn matrix(self, span: Span) -> Matrix<'a> {
        match self {
            Weights::Flat(weights) => Matrix::Dense(&weights[span.range()]),
            Weights::Stored { adapters, from, .. } if span.offset >= from => {
                Matrix::Dense(&adapters[span.offset - from..][..span.len()])
            }
            Weights::Stored { stored, .. } => match stored.parts.get(&span.offset) {
                Some(StoredPart::Packed(packed)) => Matrix::Packed(packed),
                Some(StoredPart::Dense(values)) => Matrix::Dense(values),
                None => Matrix::Dense(&[]),
            },
            Weights::Absent { .. } => Matrix::Dense(&[]),
        }
    }

    /// Whether matrices are in a file's formats.
    pub fn are_stored(self) -> bool {
        match self {
            Weights::Flat(_) => false,
            Weights::Stored { .. } => true,
            Weights::Absent { are_stored } => are_stored,
        }
    }

    /// The parameters that are always f32: vectors, and tables whose rows are summed. Empty for a packed matrix.
    pub fn dense(self, span: Span) -> &'a [f32] {
        match self {
            Weights::Flat(weights) => &weights[span.range()],
            _ => self.matrix(span).dense(),
        }
    }
}

/// One parameter, as read from a file.
#[derive(Debug)]
pub enum StoredTensor {
    /// Row-major f32.
    Dense(Vec<f32>),
    /// The bytes of a matrix's rows in a format of [`Kind`].
    Packed(Kind, Vec<u8>),
}

impl StoredTensor {
    /// Checks the number of values against the parameter.
    fn check(&self, info: &ParamInfo) -> Result<(), PackError> {
        let (kind, found) = match self {
            StoredTensor::Dense(values) => (Kind::F32, size_of_val(values.as_slice())),
            StoredTensor::Packed(kind, bytes) => (*kind, bytes.len()),
        };
        let cols = info.shape.last().copied().unwrap_or(0);
        let rows = info.len.checked_div(cols).unwrap_or(0);
        let expected = match kind.row_bytes(cols) {
            Some(row_bytes) => row_bytes.saturating_mul(rows),
            None => {
                let kind = kind.name();
                return Err(PackError::Cols { kind, cols });
            }
        };
        if found != expected {
            return Err(PackError::Bytes {
                kind: kind.name(),
                rows,
                cols,
                expected,
                found,
            });
        }
        Ok(())
    }
}

/// The weights of an inference-only model, by their offset in the layout.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    parts: BTreeMap<usize, StoredPart>,
}

#[derive(Debug)]
pub(crate) enum StoredPart {
    Dense(Vec<f32>),
    Packed(Packed),
}

/// A whole embedding or head, in any format, for [`super::Model::replace_table`].
#[derive(Debug)]
pub struct Table {
    pub(super) part: StoredPart,
    pub(super) shape: Vec<usize>,
}

impl Table {
    /// A table of row-major values.
    ///
    /// # Errors
    /// The number of values does not match the shape.
    pub fn dense(values: Vec<f32>, shape: &[usize]) -> candle_core::Result<Table> {
        if values.len() != shape.iter().product::<usize>() {
            candle_core::bail!("table: {} values for the shape {shape:?}", values.len())
        }
        Ok(Table {
            part: StoredPart::Dense(values),
            shape: shape.to_vec(),
        })
    }

    /// The same for a model whose matrices are in a file's formats, which include f32.
    pub(super) fn packed(self) -> candle_core::Result<StoredPart> {
        match self.part {
            StoredPart::Dense(values) => {
                let cols = self.shape.last().copied().unwrap_or(0);
                let mut part = StoredPart::Packed(Packed::new(cols));
                part.push(StoredTensor::Dense(values), cols)
                    .map_err(|what| candle_core::Error::Msg(format!("table: {what}")))?;
                Ok(part)
            }
            part => Ok(part),
        }
    }
}

impl Stored {
    /// Calls `read` for every parameter and fuses those of one matmul.
    ///
    /// # Errors
    /// Those of `read`; a tensor of another shape than its parameter.
    pub fn new<E: From<candle_core::Error>>(
        layout: &Layout,
        mut read: impl FnMut(&ParamInfo) -> Result<StoredTensor, E>,
    ) -> Result<Stored, E> {
        let mut parts = BTreeMap::new();
        for span in layout.spans() {
            if parts.contains_key(&span.offset) {
                continue;
            }
            let infos = layout.infos.iter();
            let infos = infos.filter(|info| span.range().contains(&info.offset));
            // Rows of the position table are added, never multiplied.
            let mut part = match span.rows == 1 || Some(span) == layout.positions {
                true => StoredPart::Dense(Vec::new()),
                false => StoredPart::Packed(Packed::new(span.cols)),
            };
            for info in infos {
                let tensor = read(info)?;
                let pushed = tensor
                    .check(info)
                    .and_then(|()| part.push(tensor, span.cols));
                pushed.map_err(|what| {
                    candle_core::Error::Msg(format!("tensor {}: {what}", info.name))
                })?;
            }
            parts.insert(span.offset, part);
        }
        Ok(Stored { parts })
    }

    /// Replaces the table of a parameter stored separately; returns the previous one.
    pub fn replace(&mut self, info: &ParamInfo, table: StoredPart) -> Option<StoredPart> {
        let part = self.parts.get_mut(&info.offset)?;
        Some(std::mem::replace(part, table))
    }

    /// Whether any weights are stored in blocks with a scale: matmuls with those round activations to eight bits.
    pub fn is_quantized(&self) -> bool {
        self.parts.values().any(|part| match part {
            StoredPart::Dense(_) => false,
            StoredPart::Packed(packed) => packed.is_quantized(),
        })
    }

    /// Bytes of the part that starts at a span's offset.
    pub fn bytes(&self, span: Span) -> usize {
        match self.parts.get(&span.offset) {
            Some(StoredPart::Packed(packed)) => packed.bytes(),
            Some(StoredPart::Dense(values)) => size_of_val(values.as_slice()),
            None => 0,
        }
    }
}

impl StoredPart {
    fn push(&mut self, tensor: StoredTensor, cols: usize) -> Result<(), PackError> {
        match (self, tensor) {
            (StoredPart::Dense(all), StoredTensor::Dense(values)) => all.extend(values),
            (StoredPart::Dense(all), StoredTensor::Packed(kind, bytes)) => {
                let format = kind.format();
                let at = all.len();
                all.resize(at + bytes.len() / format.bytes * format.values, 0.0);
                kind.decode(&bytes, &mut all[at..]);
            }
            (StoredPart::Packed(all), StoredTensor::Packed(kind, bytes)) => {
                let row_bytes = kind.row_bytes(cols).filter(|n| *n > 0);
                let rows = row_bytes.map_or(0, |n| bytes.len() / n);
                all.push(kind, rows, &bytes)?;
            }
            (StoredPart::Packed(all), StoredTensor::Dense(values)) => {
                let mut bytes = vec![0; size_of_val(values.as_slice())];
                Kind::F32.encode(&values, &mut bytes);
                all.push(Kind::F32, values.len() / cols.max(1), &bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::mlp::MlpConfig;
    use crate::nn::norm::NormConfig;
    use crate::nn::position::PositionConfig;
    use crate::nn::{Model, ModelConfig, TokenBatch};
    use candle_core::{Device, Error, Tensor};

    fn llama() -> ModelConfig {
        ModelConfig {
            n_layer: 2,
            n_head: 4,
            n_kv_head: Some(2),
            d_model: 64,
            d_ff: Some(96),
            seq_len: 16,
            position: PositionConfig::Rope(Default::default()),
            norm: NormConfig::RmsNorm(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            init_std: 0.3,
            ..Default::default()
        }
    }

    /// A model with weights of `kind`, stored and in f32.
    fn pair(config: &ModelConfig, kind: Kind) -> (Model, Model) {
        let mut dense = Model::new(config, 50, &Device::Cpu).unwrap();
        dense.init(3).unwrap();
        let encoded = |info: &ParamInfo| -> Result<StoredTensor, Error> {
            let values = dense
                .params()
                .weight(info)?
                .flatten_all()?
                .to_vec1::<f32>()?;
            if info.shape.len() == 1 {
                return Ok(StoredTensor::Dense(values));
            }
            let mut bytes = vec![0; kind.row_bytes(values.len()).unwrap()];
            kind.encode(&values, &mut bytes);
            Ok(StoredTensor::Packed(kind, bytes))
        };
        let stored = Model::stored(config, 50, encoded).unwrap();
        let infos = dense.params().infos().to_vec();
        let all: Vec<StoredTensor> = infos.iter().map(|i| encoded(i).unwrap()).collect();
        dense
            .params_mut()
            .write_weights(|weights| {
                for (info, tensor) in infos.iter().zip(all) {
                    if let StoredTensor::Packed(kind, bytes) = tensor {
                        kind.decode(&bytes, &mut weights[info.offset..info.offset + info.len]);
                    }
                }
            })
            .unwrap();
        (stored, dense)
    }

    fn flat(logits: &Tensor) -> Vec<f32> {
        logits.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn a_stored_model_agrees_with_its_values_in_f32() {
        let gpt2 = ModelConfig {
            bias: true,
            d_model: 64,
            n_layer: 1,
            seq_len: 16,
            init_std: 0.3,
            ..Default::default()
        };
        let untied = ModelConfig {
            tie_embeddings: false,
            ..llama()
        };
        for config in [llama(), untied, gpt2] {
            for kind in [Kind::F32, Kind::Q8_0, Kind::Q4_1] {
                let (mut stored, mut dense) = pair(&config, kind);
                let tokens: Vec<u32> = (0..16).map(|i| i * 7 % 50).collect();
                let [a, b] = [&mut stored, &mut dense]
                    .map(|model| flat(&model.logits(&tokens, 1, 16).unwrap()));
                let square = |x: f32| f64::from(x * x);
                let off: f64 = a.iter().zip(&b).map(|(a, b)| square(a - b)).sum();
                let share = (off / b.iter().map(|b| square(*b)).sum::<f64>()).sqrt();
                // Activations are rounded to eight bits as inputs of a matmul with quantized weights, and these weights
                // are large: errors grow from layer to layer.
                let allowed = if kind == Kind::F32 { 1e-5 } else { 0.05 };
                assert!(share <= allowed, "{kind:?}: {share}");
            }
        }
    }

    #[test]
    fn training_quantized_weights_is_rejected_with_a_fix() {
        let (mut stored, dense) = pair(&llama(), Kind::Q8_0);
        let batch = TokenBatch::plain(&[1, 2], &[2, 3], 1, 2);
        let refused = stored.forward(&batch).unwrap_err().to_string();
        assert!(refused.contains("--dequantize"), "{refused}");
        assert!(stored.accumulate(&batch, |_, _| Ok(())).is_err());
        assert!(stored.params().read_weights(|_| ()).is_err());
        assert!(stored.params().grad_norm().is_err());
        assert!(stored.score(&batch).is_ok());
        assert_eq!(stored.n_params(), dense.n_params());
        assert!(stored.decode_bytes_per_token() < dense.decode_bytes_per_token() / 3);
    }

    #[test]
    fn adapters_train_on_a_quantized_base() {
        use crate::nn::adapter::{AdapterConfig, Lora};
        let adapter = AdapterConfig::Lora(Lora {
            rank: 4,
            ..Lora::default()
        });
        let tokens: Vec<u32> = (0..17).map(|i| i * 7 % 50).collect();
        let batch = TokenBatch::plain(&tokens[..16], &tokens[1..], 1, 16);
        // Matmuls with quantized weights round activations to eight bits, so the two models differ by more than their
        // backward; `kernels/matrix` tests that alone.
        for (kind, allowed) in [(Kind::F32, 1e-4), (Kind::Bf16, 1e-4), (Kind::Q8_0, 0.3)] {
            let (mut stored, mut dense) = pair(&llama(), kind);
            let base = flat(&stored.logits(&tokens[..16], 1, 16).unwrap());
            let mut steps = Vec::new();
            for model in [&mut stored, &mut dense] {
                model.adapt(&adapter).unwrap();
                model.init_adapters(3).unwrap();
                let mut all = Vec::new();
                // B first, then A as well.
                for _ in 0..2 {
                    let grads = gradients(model, &batch);
                    assert_eq!(grads.len(), model.params().n_trainable());
                    let first = model.params().base().len();
                    let params = model.params_mut();
                    let from = params.infos()[first].offset - params.first_held();
                    let descend = |weights: &mut [f32]| {
                        let trained = weights[from..].iter_mut();
                        trained.zip(&grads).for_each(|(w, g)| *w -= g);
                    };
                    params.write_from(first, descend).unwrap();
                    all.extend(grads);
                }
                steps.push(all);
            }
            let square = |x: f32| f64::from(x * x);
            let off: f64 = steps[0]
                .iter()
                .zip(&steps[1])
                .map(|(a, b)| square(a - b))
                .sum();
            let share = (off / steps[1].iter().map(|b| square(*b)).sum::<f64>()).sqrt();
            assert!(share <= allowed, "{kind:?}: {share}");
            // The base is unchanged.
            assert_ne!(flat(&stored.logits(&tokens[..16], 1, 16).unwrap()), base);
            stored.set_adapters(false);
            assert_eq!(flat(&stored.logits(&tokens[..16], 1, 16).unwrap()), base);
            assert!(stored.params_mut().write_weights(|_| ()).is_err());
        }
    }

    /// Gradients of the trainable parameters, for a loss that makes every token more likely.
    fn gradients(model: &mut Model, batch: &TokenBatch) -> Vec<f32> {
        model.params_mut().zero_grads().unwrap();
        let logp = model.forward(batch).unwrap().logp;
        let down = Tensor::full(-0.1f32, logp.shape(), &Device::Cpu).unwrap();
        model.backward(&down, None).unwrap();
        model.params().read_grads(<[f32]>::to_vec).unwrap()
    }

    #[test]
    fn in_tile_registers_a_quantized_base_trains_adapters_as_its_values_do_to_the_bit() {
        use crate::kernels::matmul::ComputeDtype;
        use crate::nn::adapter::{AdapterConfig, Lora};
        if !crate::kernels::quant::dequantizes_fast() {
            println!("skipped: no tile registers for bf16 (AMX)");
            return;
        }
        let tokens: Vec<u32> = (0..129).map(|i| i * 7 % 50).collect();
        let batch = TokenBatch::plain(&tokens[..128], &tokens[1..], 8, 16);
        for kind in [Kind::F16, Kind::Q8_0, Kind::Q5_1] {
            let (mut stored, mut dense) = pair(&llama(), kind);
            let [a, b] = [&mut stored, &mut dense].map(|model| {
                model.adapt(&AdapterConfig::Lora(Lora::default())).unwrap();
                model.init_adapters(3).unwrap();
                model.set_compute_dtype(ComputeDtype::Bf16).unwrap();
                gradients(model, &batch)
            });
            assert_eq!(a, b, "{kind:?}");
        }
    }

    #[test]
    fn bytes_of_another_shape_are_rejected() {
        let short = |info: &ParamInfo| -> Result<StoredTensor, Error> {
            Ok(match info.shape.len() {
                1 => StoredTensor::Dense(vec![1.0; info.len]),
                _ => StoredTensor::Packed(Kind::F32, vec![0; info.len * 4 - 4]),
            })
        };
        assert!(Model::stored(&llama(), 50, short).is_err());
    }
}
