//! A model whose vocabulary gains tokens: which rows its tables have, and how new ones are initialized.

use super::Model;
use crate::nn::{HeadKind, ModelConfig, ParamInfo, Role};
use candle_core::{Result, bail};

impl Model {
    /// The parameters of the base for a vocabulary of `rows` tokens: of embeddings and head the first rows, everything else
    /// unchanged. Values read for these fill the same positions of this model.
    pub fn base_of_vocabulary(&self, rows: usize) -> Vec<ParamInfo> {
        let mut infos = self.params.base().to_vec();
        for info in infos.iter_mut().filter(|info| self.is_table(info)) {
            if let &mut [ref mut own, cols] = info.shape.as_mut_slice() {
                *own = rows.min(*own);
                info.len = *own * cols;
            }
        }
        infos
    }

    /// Sets the rows of embeddings and head from number `rows` on to the mean of those before them.
    ///
    /// With the mean a new token gets the average logit, so its probability is at most one in `rows` and the others hardly
    /// change (Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models"). Small random rows, or zeros,
    /// give it a logit of about 0, which may be far above those of a trained model. `transformers` draws from a normal
    /// around the same mean with 1e-9 of the rows' covariance (`mean_resizing`); that is omitted: its effect is too small to
    /// measure, and rows with equal values diverge with their first gradients, because their tokens occur at
    /// different positions. So growing is deterministic, whatever the seed.
    ///
    /// # Errors
    /// There is no existing row; quantized weights.
    pub fn begin_rows(&mut self, rows: usize) -> Result<()> {
        if rows == 0 {
            bail!("model: a vocabulary cannot grow from no token")
        }
        let infos = self.params.base().iter();
        let tables: Vec<ParamInfo> = infos.filter(|info| self.is_table(info)).cloned().collect();
        self.recorded = None;
        self.params.write_weights(|weights| {
            for info in tables {
                let cols = info.shape.last().copied().unwrap_or(1).max(1);
                let table = &mut weights[info.offset..][..info.len];
                let (old, new) = table.split_at_mut((rows * cols).min(info.len));
                let mean = mean_row(old, cols);
                new.chunks_exact_mut(cols)
                    .for_each(|row| row.copy_from_slice(&mean));
            }
        })
    }

    /// Grows the model's vocabulary to `vocab_size` tokens: see [`Model::begin_rows`]; no effect if it has as many. During
    /// the call, all weights are in memory twice.
    ///
    /// # Errors
    /// The model has adapters; quantized weights; too little memory.
    pub fn grow_vocabulary(&mut self, vocab_size: usize) -> Result<()> {
        let rows = self.shape.vocab_size;
        if vocab_size <= rows {
            return Ok(());
        }
        if self.adapter.is_some() {
            bail!("model: its vocabulary cannot grow under adapters; merge them first")
        }
        self.params.require_present()?;
        let config = ModelConfig {
            vocab_size: Some(vocab_size),
            ..self.config.clone()
        };
        let device = self.params.device();
        let mut grown = Model::with_backend(&config, vocab_size, device, self.backend)?;
        grown.arithmetic = self.arithmetic;
        grown.kv_precision = self.kv_precision;
        grown.checkpointing = self.checkpointing;
        grown.regularizers = self.regularizers;
        // A value head may follow the base; it is the same in both.
        let behind = |model: &Model| model.params.infos()[model.params.base().len()..].to_vec();
        let to = [grown.base_of_vocabulary(rows), behind(&grown)].concat();
        self.params.read_weights(|from| {
            grown.params.write_weights(|weights| {
                for (ours, theirs) in self.params.infos().iter().zip(&to) {
                    weights[theirs.offset..][..theirs.len]
                        .copy_from_slice(&from[ours.offset..][..ours.len]);
                }
            })
        })??;
        grown.begin_rows(rows)?;
        *self = grown;
        Ok(())
    }

    /// Whether a parameter has a row for each token.
    fn is_table(&self, info: &ParamInfo) -> bool {
        match info.role {
            Role::Embedding => true,
            Role::Head => self.config.head == HeadKind::Vocabulary,
            _ => false,
        }
    }
}

/// The values of a table with the rows that `info` has: further ones are as [`Model::begin_rows`] sets them. Of other parameters the values.
pub fn grown(mut values: Vec<f32>, info: &ParamInfo) -> Vec<f32> {
    let cols = info.shape.last().copied().unwrap_or(1).max(1);
    if values.len() < info.len {
        let mean = mean_row(&values, cols);
        while values.len() < info.len {
            values.extend_from_slice(&mean);
        }
    }
    values
}

/// The mean of rows, added up in f64 and in order.
fn mean_row(rows: &[f32], cols: usize) -> Vec<f32> {
    let mut sums = vec![0.0f64; cols];
    for row in rows.chunks_exact(cols) {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += f64::from(*x);
        }
    }
    let count = (rows.len() / cols).max(1) as f64;
    sums.into_iter().map(|sum| (sum / count) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn model(tied: bool, vocab_size: usize) -> Model {
        let config = ModelConfig {
            n_layer: 1,
            n_head: 2,
            d_model: 8,
            seq_len: 8,
            tie_embeddings: tied,
            init_std: 0.3,
            ..ModelConfig::default()
        };
        let mut model = Model::new(&config, vocab_size, &Device::Cpu).unwrap();
        model.init(5).unwrap();
        model
    }

    fn table(model: &Model, role: Role) -> Vec<Vec<f32>> {
        let mut infos = model.params().base().iter();
        let info = infos.find(|info| info.role == role).unwrap();
        model.params().weight(info).unwrap().to_vec2().unwrap()
    }

    #[test]
    fn a_grown_model_predicts_the_same_and_new_tokens_get_the_average_logit() {
        for tied in [true, false] {
            let (mut small, mut grown) = (model(tied, 11), model(tied, 11));
            grown.grow_vocabulary(14).unwrap();
            assert_eq!(grown.shape().vocab_size, 14);
            assert_eq!(grown.config().vocab_size, Some(14));
            let tokens = [3, 10, 0, 7];
            let logits = |model: &mut Model| -> Vec<Vec<f32>> {
                let all = model.logits(&tokens, 1, 4).unwrap();
                all.squeeze(0).unwrap().to_vec2().unwrap()
            };
            for (before, after) in logits(&mut small).iter().zip(logits(&mut grown)) {
                assert_eq!(after[..11], before[..]);
                let mean = before.iter().sum::<f32>() / 11.0;
                assert!(after[11..].iter().all(|x| (x - mean).abs() < 1e-5));
            }
            let mut roles = vec![Role::Embedding];
            roles.extend((!tied).then_some(Role::Head));
            for role in roles {
                let rows = table(&grown, role);
                assert_eq!(rows[..11], table(&small, role)[..]);
                assert!(rows[11] == rows[12] && rows[12] == rows[13]);
            }
            // A new token as input gives finite logits.
            let new = grown.logits(&[13, 12], 1, 2).unwrap();
            let new: Vec<f32> = new.flatten_all().unwrap().to_vec1().unwrap();
            assert!(new.iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn a_score_is_not_a_table_of_tokens() {
        let config = ModelConfig {
            head: HeadKind::Score,
            ..model(false, 11).config().clone()
        };
        let mut scorer = Model::new(&config, 11, &Device::Cpu).unwrap();
        scorer.init(1).unwrap();
        let before = table(&scorer, Role::Head);
        scorer.grow_vocabulary(12).unwrap();
        assert_eq!(table(&scorer, Role::Head), before);
        assert_eq!(table(&scorer, Role::Embedding).len(), 12);
    }

    #[test]
    fn a_vocabulary_does_not_shrink_nor_grow_under_adapters() {
        let mut own = model(true, 11);
        own.grow_vocabulary(9).unwrap();
        assert_eq!(own.shape().vocab_size, 11);
        let lora = crate::nn::AdapterConfig::Lora(Default::default());
        own.adapt(&lora).unwrap();
        assert!(own.grow_vocabulary(12).is_err());
    }
}
