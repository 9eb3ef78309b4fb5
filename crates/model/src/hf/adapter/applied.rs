//! An adapter that is merged into its base a parameter at a time: what [`super::merge_adapter`] does to all of them at once.

use super::super::HfError;
use super::peft::{Changes, Peft};
use crate::kernels::low_rank;
use crate::nn::{ModelConfig, ParamInfo, grown, param_infos};
use std::collections::BTreeMap;
use std::path::Path;

/// An adapter's changes by parameter. Its factors are in memory.
pub struct Applied {
    peft: Peft,
    changes: Changes,
    /// The parameters of the model with it, by name.
    infos: BTreeMap<String, ParamInfo>,
}

impl Applied {
    /// The adapter in a folder, on a model of this config with the vocabulary that both together have.
    ///
    /// # Errors
    /// An unsupported kind of adapter, or one for another model.
    pub fn open(folder: &Path, config: &ModelConfig) -> Result<Applied, HfError> {
        let peft = Peft::open(folder)?;
        let infos = param_infos(config, config.vocab_size.unwrap_or_default());
        let mut changes = peft.changes(config, &infos)?;
        changes.by_matrix();
        let infos = infos.into_iter().map(|info| (info.name.clone(), info));
        Ok(Applied {
            peft,
            changes,
            infos: infos.collect(),
        })
    }

    /// Bytes of what is in memory.
    pub fn bytes(&self) -> u64 {
        let whole = self.changes.whole.iter().map(|(_, values)| values.len());
        let factors = self.changes.products.iter().map(|change| {
            let factors = &change.factors;
            factors.a.len() + factors.b.len() + factors.magnitude.as_ref().map_or(0, Vec::len)
        });
        whole.chain(factors).sum::<usize>() as u64 * size_of::<f32>() as u64
    }

    /// A parameter with the adapter merged, whose values below it `below` reads: those of fewer tokens grow as a vocabulary does.
    ///
    /// # Errors
    /// Those of `below`.
    pub fn apply<E>(
        &self,
        name: &str,
        below: &mut dyn FnMut() -> Result<Vec<f32>, E>,
    ) -> Result<Vec<f32>, E> {
        let info = self.infos.get(name);
        let mut whole = self.changes.whole.iter();
        let mut values = match whole.find(|(info, _)| info.name == name) {
            Some((_, values)) => values.clone(),
            None => match info {
                Some(info) => grown(below()?, info),
                None => below()?,
            },
        };
        // In the order of their offsets, each once.
        let products = &self.changes.products;
        let at = info.map(|info| products.binary_search_by_key(&info.offset, |one| one.offset));
        if let Some(Ok(at)) = at {
            let change = &products[at];
            let ((_, cols), factors) = (change.shape, &change.factors);
            let scale = self.peft.scale_of(factors.size) as f32;
            low_rank::merge(scale, (&factors.b, &factors.a), change.shape, &mut values);
            if let Some(lengths) = &factors.magnitude {
                low_rank::rescale(lengths, cols, &mut values);
            }
        }
        Ok(values)
    }
}
