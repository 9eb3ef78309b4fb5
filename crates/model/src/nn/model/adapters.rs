//! A model with adapters: frozen weights, and small trainable matrices added to them.

use super::Model;
use crate::base::digest::hex;
use crate::kernels::flat;
use crate::nn::freeze::TrainableSet;
use crate::nn::layout::{Layout, Parts};
use crate::nn::weights::{StoredPart, Table, Weights};
use crate::nn::{AdapterConfig, ParamInfo, Role};
use candle_core::{Result, bail};
use sha2::{Digest, Sha256};

impl Model {
    /// Freezes the weights and adds adapters, which alone train from now on; [`Model::init_adapters`] or a
    /// checkpoint fills them. An update rule must be built after this.
    ///
    /// # Errors
    /// The model already has adapters, or is incompatible with these.
    pub fn adapt(&mut self, adapter: &AdapterConfig) -> Result<()> {
        if self.adapter.is_some() {
            bail!("model: it has adapters; merge them first")
        }
        if let Some(fault) = adapter.faults(&self.config).first() {
            bail!("adapter: {}; {}", fault.what, fault.hint)
        }
        let layout = Layout::trained(&self.config, &self.shape, TrainableSet::with(Some(adapter)));
        self.rearrange(layout)?;
        self.adapter = Some(adapter.clone());
        self.adapters_on = true;
        Ok(())
    }

    /// Trains only those parameters for which `trains` returns true; the others are frozen: no gradient is computed
    /// or stored for them. Gradients are zeros afterwards, and an update rule must be built after this.
    ///
    /// # Errors
    /// Parameters of one matmul (q, k and v of a block, gate and up), gain and bias of a norm, and the
    /// experts of a block train together or not at all.
    pub fn train_only(&mut self, trains: impl Fn(&ParamInfo) -> bool) -> Result<()> {
        let parts = Parts {
            adapter: self.adapter.as_ref(),
            trains: &trains,
        };
        let (layout, mixed) = Layout::of(&self.config, &self.shape, parts);
        if !mixed.is_empty() {
            bail!(
                "model: these train together or not at all: {}",
                mixed.join(", ")
            )
        }
        self.rearrange(layout)
    }

    fn rearrange(&mut self, layout: Layout) -> Result<()> {
        let base = &layout.infos[..layout.n_base];
        if base.iter().any(ParamInfo::trains) {
            self.params.require_present()?;
        }
        self.params = self
            .params
            .rearranged(layout.infos.clone(), layout.n_base)?;
        self.layout = layout;
        self.recorded = None;
        Ok(())
    }

    /// Initializes the adapters, and a value head after them: the model then computes the same as without
    /// them. The base stays.
    ///
    /// # Errors
    /// Quantized weights.
    pub fn init_adapters(&mut self, seed: u64) -> Result<()> {
        self.init_from(seed, self.layout.n_base)
    }

    /// Sets magnitudes to the norms of the weight rows: with B = 0, nothing changes.
    pub(super) fn init_magnitudes(&mut self) -> Result<()> {
        let (on, held) = (self.adapters_on, self.params.first_held());
        self.adapters_on = true;
        let norms = self.with_plan(|plan, _, _| {
            let all = plan.layout.adapters.iter().zip(plan.magnitudes);
            let parts = all.flat_map(|(adapter, found)| {
                let parts = adapter
                    .parts()
                    .filter_map(|part| Some((part.first, part.magnitude?)));
                parts.map(|(first, span)| (span, found.norms[first..][..span.len()].to_vec()))
            });
            parts.collect::<Vec<_>>()
        })?;
        self.adapters_on = on;
        self.params.write_from(self.layout.n_base, |weights| {
            for (span, norms) in norms {
                weights[span.offset - held..][..norms.len()].copy_from_slice(&norms);
            }
        })
    }

    /// Removes the adapters: from now on only the base is trained or used.
    ///
    /// # Errors
    /// Too little memory.
    pub fn remove_adapters(&mut self) -> Result<()> {
        self.adapter = None;
        self.adapters_on = true;
        let layout = match self.params.is_present() {
            true => Layout::new(&self.config, &self.shape),
            false => Layout::frozen(&self.config, &self.shape),
        };
        self.rearrange(layout)
    }

    /// Replaces the model's embedding or head, and returns the previous one: replacing it again undoes this.
    /// The formats may differ if the base is stored in a file's formats.
    ///
    /// # Errors
    /// A parameter of another kind or shape, or a trainable one; non-finite values; too little memory.
    pub fn replace_table(&mut self, info: &ParamInfo, table: Table) -> Result<Table> {
        let own = self.params.base().iter().find(|own| own.name == info.name);
        let Some(own) = own.filter(|own| matches!(own.role, Role::Embedding | Role::Head)) else {
            bail!("model: {} is neither an embedding nor a head", info.name)
        };
        let (name, shape) = (&own.name, &own.shape);
        if *shape != table.shape {
            bail!(
                "model: {name} is of the shape {shape:?} and cannot be replaced by one of {:?}",
                table.shape
            )
        }
        if own.trains() && self.adapter.is_some() {
            bail!("model: {name} trains beside the adapters and cannot be replaced")
        }
        let (own, shape) = (own.clone(), table.shape.clone());
        self.recorded = None;
        let part = match &mut self.stored {
            Some(stored) => stored.replace(&own, table.packed()?),
            None => {
                let StoredPart::Dense(mut values) = table.part else {
                    bail!("model: its weights are f32, and the table is quantized")
                };
                self.params.write_weights(|weights| {
                    weights[own.offset..][..own.len].swap_with_slice(&mut values);
                })?;
                Some(StoredPart::Dense(values))
            }
        };
        match part {
            Some(part) => Ok(Table { part, shape }),
            None => bail!("model: {} is not here", own.name),
        }
    }

    /// A digest of the block weights under the adapters, in their storage formats: of sampled
    /// rows of each matrix. Models with the same digest are interchangeable for an adapter.
    ///
    /// # Errors
    /// The weights cannot be read.
    pub fn base_fingerprint(&self) -> Result<String> {
        let from = self.params.first_held();
        flat::read(self.params.weights(), |held| {
            let weights = match &self.stored {
                Some(stored) => Weights::Stored {
                    stored,
                    adapters: held,
                    from,
                },
                None => Weights::Flat(held),
            };
            digest(&self.layout, weights)
        })
    }

    /// Whether the model without its adapters is unchanged by training: nothing of the base trains.
    pub fn is_its_own_reference(&self) -> bool {
        self.adapter.is_some() && !self.params.base().iter().any(ParamInfo::trains)
    }

    /// The adapter of the model, if it has one.
    pub fn adapter(&self) -> Option<&AdapterConfig> {
        self.adapter.as_ref()
    }

    /// Whether passes use the adapters.
    pub fn adapters_on(&self) -> bool {
        self.adapters_on
    }

    /// Enables or disables the adapters. Without them the model computes bit for bit what its base computes, and cannot
    /// train.
    pub fn set_adapters(&mut self, on: bool) {
        self.adapters_on = on;
        self.recorded = None;
    }
}

/// Rows of each matrix in a fingerprint.
const SAMPLED: usize = 4;

fn digest(layout: &Layout, weights: Weights) -> String {
    let mut hash = Sha256::new();
    let spans = layout.spans();
    for info in layout.infos[..layout.n_base]
        .iter()
        .filter(|i| i.layer.is_some())
    {
        hash.update(info.name.as_bytes());
        let Some(span) = spans
            .iter()
            .find(|span| span.range().contains(&info.offset))
        else {
            continue;
        };
        let (first, rows) = (
            (info.offset - span.offset) / span.cols,
            info.len / span.cols,
        );
        let mut values = vec![0.0f32; span.cols];
        for n in 0..rows.min(SAMPLED) {
            let row = first + n * (rows - 1) / (SAMPLED - 1).max(1);
            weights.matrix(*span).row(row, &mut values);
            values.iter().for_each(|x| hash.update(x.to_le_bytes()));
        }
    }
    hex(&hash.finalize())
}
