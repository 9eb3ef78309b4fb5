//! A model with adapters: frozen weights, and small matrices beside them that train.

use super::Model;
use crate::kernels::low_rank;
use crate::nn::layout::{AdapterSpans, Layout, LinearSpans, Parts};
use crate::nn::{AdapterConfig, ParamInfo};
use candle_core::{Result, bail};

impl Model {
    /// Freezes the weights and puts adapters beside them, which alone train from now on; [`Model::init_adapters`] or a
    /// checkpoint fills them. An update rule must be built after this.
    ///
    /// # Errors
    /// The model has adapters, or is of a kind that these do not go with.
    pub fn adapt(&mut self, adapter: &AdapterConfig) -> Result<()> {
        if self.adapter.is_some() {
            bail!("model: it has adapters; merge them first")
        }
        if let Some(fault) = adapter.faults(&self.config).first() {
            bail!("adapter: {}; {}", fault.what, fault.hint)
        }
        let layout = Layout::adapted(&self.config, &self.shape, Some(adapter));
        self.rearrange(layout)?;
        self.adapter = Some(adapter.clone());
        self.adapters_on = true;
        Ok(())
    }

    /// Lets only those parameters train for which `trains` says so; the others are frozen: no gradient is computed for them
    /// and none is kept. Gradients are zeros afterwards, and an update rule must be built after this.
    ///
    /// # Errors
    /// Parameters that one matmul serves (q, k and v of a block, gate and up), gain and bias of a norm, and the
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

    /// Fills the adapters with what they start from: the model then says what it says without them. The base stays.
    pub fn init_adapters(&mut self, seed: u64) -> Result<()> {
        self.init_from(seed, self.layout.n_base)
    }

    /// What adapts the model, where something does.
    pub fn adapter(&self) -> Option<&AdapterConfig> {
        self.adapter.as_ref()
    }

    /// Whether passes use the adapters.
    pub fn adapters_on(&self) -> bool {
        self.adapters_on
    }

    /// Whether passes use the adapters from now on. Without them the model says what its base says, to the bit, and cannot
    /// train.
    pub fn set_adapters(&mut self, on: bool) {
        self.adapters_on = on;
        self.recorded = None;
    }

    /// Adds the adapters to the weights that they stand beside, W + scale · B A in f32, and takes them away; everything
    /// trains again.
    pub fn merge_adapters(&mut self) -> Result<()> {
        if self.adapter.is_none() {
            return Ok(());
        }
        let linears = self.layout.adapted_linears();
        self.params.write_weights(|weights| {
            for (linear, adapter) in linears {
                merge(weights, &linear, adapter);
            }
        })?;
        self.adapter = None;
        self.rearrange(Layout::new(&self.config, &self.shape))
    }
}

/// Rows of W += scale · B A. Adapters lie behind the base.
fn merge(weights: &mut [f32], linear: &LinearSpans, adapter: &AdapterSpans) {
    let (base, factors) = weights.split_at_mut(adapter.a.offset);
    let a = &factors[..adapter.a.len()];
    let d_in = linear.weight.cols;
    for (i, part) in adapter.parts().enumerate() {
        let from = part.b.offset - adapter.a.offset;
        let b = &factors[from..from + part.b.len()];
        let first = linear.weight.offset + part.first * d_in;
        let rows = &mut base[first..first + part.b.rows * d_in];
        let a = &a[i * adapter.rank * d_in..(i + 1) * adapter.rank * d_in];
        low_rank::merge(adapter.scale, (b, a), (part.b.rows, d_in), rows);
    }
}
