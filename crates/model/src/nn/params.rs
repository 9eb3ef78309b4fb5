//! All weights of a model in one flat tensor, the gradients of the trainable ones in another: norms, clipping and optimizers
//! are one pass each.

use super::role::{AdapterRole, Role};
use crate::kernels::matmul::Accumulation;
use crate::kernels::{flat, pages};
use candle_core::{DType, Device, Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Uniform in ± this bound.
    Uniform(f64),
    /// The logarithm of a number that is uniform between these two.
    LogUniform(f64, f64),
    /// What softplus maps to a number whose logarithm is uniform between those of these two.
    Step(f64, f64),
    Ones,
    Zeros,
}

/// One named parameter and its position in the flat buffers.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamInfo {
    /// Name as Hugging Face writes it.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The block that it belongs to, counted from 0.
    pub layer: Option<u32>,
    /// The expert of that block, counted from 0.
    pub expert: Option<u32>,
    /// Row-major; linear layers are (out, in).
    pub shape: Vec<usize>,
    /// First element in the flat weights.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
    /// First element in the flat gradients and moments; `None` if it is frozen.
    pub grad: Option<usize>,
    /// Whether weight decay applies: matrices and embeddings yes, norms and biases no.
    pub decay: bool,
    /// Its learning rate relative to the run's.
    pub lr_scale: f64,
    /// Its initialization.
    pub init: Init,
}

impl ParamInfo {
    /// Whether the update-to-weight ratio is meaningful: for matrices. An adapter's B starts at 0, so that every early
    /// update is relatively large.
    pub fn has_update_ratio(&self) -> bool {
        self.shape.len() == 2 && self.role != Role::Adapter(AdapterRole::B)
    }

    /// Whether it has a gradient and is updated.
    pub fn trains(&self) -> bool {
        self.grad.is_some()
    }

    /// Whether the balancing rule of experts moves it between updates, not a gradient.
    pub fn is_balancing_bias(&self) -> bool {
        self.role == Role::Router && self.shape.len() == 1
    }

    /// The name of the module that it is the weight of, as adapters and patterns name it.
    pub fn module(&self) -> &str {
        module_name(&self.name)
    }
}

/// The module of a parameter's name.
pub fn module_name(parameter: &str) -> &str {
    parameter.strip_suffix(".weight").unwrap_or(parameter)
}

/// Flat weights and gradients with the table that names their parts.
#[derive(Debug)]
pub struct Params {
    /// The base model's, then those of adapters.
    infos: Vec<ParamInfo>,
    n_base: usize,
    /// Offset of the first parameter stored here: 0, or the end of a base that is stored elsewhere, quantized.
    held: usize,
    weights: Tensor,
    grads: Tensor,
    /// The gradients count as zeros, whatever the memory contains: the next backward overwrites it, which saves a pass over
    /// all of it to clear and another to add. Any other reader must have them cleared first.
    cleared: AtomicBool,
}

impl Params {
    /// Names and shapes of weights that are not stored here: those of an inference-only model in its file's formats.
    pub(crate) fn absent(infos: Vec<ParamInfo>) -> Result<Self> {
        let nothing = || Tensor::zeros(0, DType::F32, &Device::Cpu);
        Ok(Params {
            n_base: infos.len(),
            held: infos.iter().map(|info| info.len).sum(),
            infos,
            weights: nothing()?,
            grads: nothing()?,
            cleared: AtomicBool::new(false),
        })
    }

    /// Whether all weights are in memory as f32.
    pub fn is_present(&self) -> bool {
        self.held == 0
    }

    /// Offset of the first parameter stored here; those before it are stored elsewhere, quantized.
    pub fn first_held(&self) -> usize {
        self.held
    }

    /// An error if weights are quantized, for inference only.
    pub(crate) fn require_present(&self) -> Result<()> {
        if !self.is_present() {
            candle_core::bail!("{QUANTIZED}")
        }
        Ok(())
    }

    /// An error if nothing trains.
    pub(crate) fn require_trainable(&self) -> Result<()> {
        match self.n_trainable() {
            0 if !self.is_present() => candle_core::bail!("{QUANTIZED}"),
            0 => candle_core::bail!("all parameters are frozen: there is nothing to train"),
            _ => Ok(()),
        }
    }

    /// Zero weights on `device`, and zero gradients of those that train. The first `n_base` parameters are the base model's.
    pub(crate) fn new(infos: Vec<ParamInfo>, n_base: usize, device: &Device) -> Result<Self> {
        let len = infos.iter().map(|info| info.len).sum();
        let weights = zeros(len, device)?;
        Params::over((weights, 0), infos, n_base)
    }

    /// The same with existing weights, of parameters from the offset `held` on.
    fn over(
        (weights, held): (Tensor, usize),
        infos: Vec<ParamInfo>,
        n_base: usize,
    ) -> Result<Self> {
        let trained = infos.iter().filter(|info| info.trains());
        Ok(Params {
            held,
            grads: zeros(trained.map(|info| info.len).sum(), weights.device())?,
            weights,
            infos,
            n_base,
            cleared: AtomicBool::new(false),
        })
    }

    /// The same weights, as far as both tables have them, under another table with the same base model; gradients are
    /// zeros.
    pub(crate) fn rearranged(&self, infos: Vec<ParamInfo>, n_base: usize) -> Result<Self> {
        let mut pairs = infos.iter().zip(&self.infos);
        if infos.len() == self.infos.len() && pairs.all(|(a, b)| a.name == b.name && a.len == b.len)
        {
            return Params::over((self.weights.clone(), self.held), infos, n_base);
        }
        let sum = |infos: &[ParamInfo]| infos.iter().map(|info| info.len).sum::<usize>();
        let weights = zeros(sum(&infos) - self.held, self.device())?;
        let copy = |from: usize, to: usize, len: usize| match len {
            0 => Ok(()),
            len => weights.slice_set(&self.weights.narrow(0, from, len)?, 0, to),
        };
        copy(0, 0, sum(&infos[..n_base]) - self.held)?;
        // What follows the base moves with the adapters: a value head comes after those.
        for info in &infos[n_base..] {
            let mut own = self.infos[self.n_base..].iter();
            if let Some(own) = own.find(|own| own.name == info.name && own.len == info.len) {
                copy(own.offset - self.held, info.offset - self.held, info.len)?;
            }
        }
        Params::over((weights, self.held), infos, n_base)
    }

    /// The parameters in memory order, without gaps.
    pub fn infos(&self) -> &[ParamInfo] {
        &self.infos
    }

    /// The base model's parameters: all but adapters.
    pub fn base(&self) -> &[ParamInfo] {
        &self.infos[..self.n_base]
    }

    /// The adapters' parameters.
    pub fn adapters(&self) -> &[ParamInfo] {
        let behind = &self.infos[self.n_base..];
        &behind[..behind.len() - usize::from(self.value_head().is_some())]
    }

    /// Whether only adapters train: no step changes the weights under them.
    pub fn base_is_frozen(&self) -> bool {
        !self.adapters().is_empty() && self.base().iter().all(|info| !info.trains())
    }

    /// A value head's parameter: the last one, part of neither base nor adapters.
    pub fn value_head(&self) -> Option<&ParamInfo> {
        self.infos.last().filter(|info| info.role == Role::Value)
    }

    /// The trainable parameters, in the order of their gradients, which have no gaps.
    pub fn trainable(&self) -> impl Iterator<Item = &ParamInfo> {
        self.infos.iter().filter(|info| info.trains())
    }

    /// Number of trainable elements.
    pub fn n_trainable(&self) -> usize {
        self.grads.elem_count()
    }

    /// Total number of elements.
    pub fn len(&self) -> usize {
        self.infos.iter().map(|info| info.len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn device(&self) -> &Device {
        self.weights.device()
    }

    /// The flat weights (n_params), f32; only the adapters' if the base is quantized. Shares memory: writes through
    /// it change the model.
    pub fn weights(&self) -> &Tensor {
        &self.weights
    }

    /// The flat gradients (n_trainable), f32.
    ///
    /// # Errors
    /// Nothing trains.
    pub fn grads(&self) -> Result<&Tensor> {
        self.require_trainable()?;
        self.settle()?;
        Ok(&self.grads)
    }

    /// The flat gradients for a backward, and whether it overwrites them or adds to them.
    pub(crate) fn open_grads(&mut self) -> (Tensor, Accumulation) {
        let into = if std::mem::take(self.cleared.get_mut()) {
            Accumulation::Overwrite
        } else {
            Accumulation::Add
        };
        (self.grads.clone(), into)
    }

    /// Writes the zeros that the gradients count as.
    fn settle(&self) -> Result<()> {
        if self.cleared.swap(false, Ordering::Relaxed) {
            flat::write(&self.grads, |grads| grads.fill(0.0))?;
        }
        Ok(())
    }

    /// One parameter's weights in its own shape, copied.
    ///
    /// # Errors
    /// A quantized weight, and candle's own.
    pub fn weight(&self, info: &ParamInfo) -> Result<Tensor> {
        let Some(from) = info.offset.checked_sub(self.held) else {
            candle_core::bail!("{QUANTIZED}")
        };
        self.weights
            .narrow(0, from, info.len)?
            .reshape(info.shape.as_slice())?
            .copy()
    }

    /// One parameter's gradient in its own shape, copied.
    ///
    /// # Errors
    /// The parameter is frozen.
    pub fn grad(&self, info: &ParamInfo) -> Result<Tensor> {
        let Some(from) = info.grad else {
            candle_core::bail!("{} is frozen: it has no gradient", info.name)
        };
        self.grads()?
            .narrow(0, from, info.len)?
            .reshape(info.shape.as_slice())?
            .copy()
    }

    /// Reads all weights; on an accelerator through a copy.
    ///
    /// # Errors
    /// Quantized weights; as [`Params::read_held`].
    pub fn read_weights<R>(&self, read: impl FnOnce(&[f32]) -> R) -> Result<R> {
        self.require_present()?;
        flat::read(&self.weights, read)
    }

    /// Changes weights in place; on an accelerator through a copy.
    ///
    /// # Errors
    /// As [`Params::read_weights`].
    pub fn write_weights<R>(&mut self, write: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
        self.require_present()?;
        flat::write(&self.weights, write)
    }

    /// Sets the trainable parameters: `values` (n_trainable) in the order of the flat gradients. Frozen weights stay.
    ///
    /// # Errors
    /// Another number of values.
    pub fn write_trained(&mut self, values: &[f32]) -> Result<()> {
        if values.len() != self.n_trainable() {
            let (got, wanted) = (values.len(), self.n_trainable());
            candle_core::bail!("{got} values for {wanted} trained weights")
        }
        let places: Vec<(usize, usize, usize)> = self
            .infos
            .iter()
            .filter_map(|info| {
                // What is frozen may lie elsewhere, below `held`.
                let grad = info.grad?;
                Some((info.offset - self.held, grad, info.len))
            })
            .collect();
        self.write_held(|own| {
            for (to, from, len) in places {
                own[to..to + len].copy_from_slice(&values[from..from + len]);
            }
        })
    }

    /// Reads the weights stored here: those of parameters from offset [`Params::first_held`] on.
    ///
    /// # Errors
    /// A copy from or to an accelerator that fails.
    pub fn read_held<R>(&self, read: impl FnOnce(&[f32]) -> R) -> Result<R> {
        flat::read(&self.weights, read)
    }

    /// The same for changing them in place.
    ///
    /// # Errors
    /// As [`Params::read_held`].
    pub fn write_held<R>(&mut self, write: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
        flat::write(&self.weights, write)
    }

    /// The position of a parameter in the flat weights; `None` if it is stored elsewhere, quantized.
    pub fn place(&self, info: &ParamInfo) -> Option<std::ops::Range<usize>> {
        let from = info.offset.checked_sub(self.held)?;
        Some(from..from + info.len)
    }

    /// Changes contiguous weights in place: all that are stored here, of parameters from number `first` on.
    pub(crate) fn write_from<R>(
        &mut self,
        first: usize,
        write: impl FnOnce(&mut [f32]) -> R,
    ) -> Result<R> {
        let offset = self.infos.get(first).map_or(self.len(), |info| info.offset);
        if offset < self.held {
            candle_core::bail!("{QUANTIZED}")
        }
        flat::write(&self.weights, write)
    }

    /// Reads all gradients; on an accelerator through a copy.
    ///
    /// # Errors
    /// As [`Params::grads`] and [`Params::read_held`].
    pub fn read_grads<R>(&self, read: impl FnOnce(&[f32]) -> R) -> Result<R> {
        flat::read(self.grads()?, read)
    }

    /// Changes gradients in place; on an accelerator through a copy. For tests: training changes them in its passes.
    ///
    /// # Errors
    /// As [`Params::read_grads`].
    pub fn write_grads<R>(&mut self, write: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
        flat::write(self.grads()?, write)
    }

    /// Sets all gradients to zero.
    ///
    /// # Errors
    /// Nothing trains.
    pub fn zero_grads(&mut self) -> Result<()> {
        self.require_trainable()?;
        if self.device().is_cpu() {
            *self.cleared.get_mut() = true;
            return Ok(());
        }
        self.grads.slice_set(&self.grads.zeros_like()?, 0, 0)
    }

    /// Global L2 norm of the gradients, accumulated in f64; the same bits whatever the number of threads.
    ///
    /// # Errors
    /// Nothing trains.
    pub fn grad_norm(&self) -> Result<f64> {
        if self.device().is_cpu() {
            return flat::read(self.grads()?, crate::kernels::reduce::l2_norm);
        }
        let sum = self.grads.to_dtype(DType::F64)?.sqr()?.sum_all()?;
        Ok(sum.to_scalar::<f64>()?.sqrt())
    }
}

const QUANTIZED: &str = "the model's weights are quantized, for reading only; `llmtui export FILE.gguf --dequantize --to DIR` makes a copy that can be trained";

/// Zeros on huge pages if the system has them.
fn zeros(len: usize, device: &Device) -> Result<Tensor> {
    let zeros = Tensor::zeros(len, DType::F32, device)?;
    pages::prefer_huge(&zeros)?;
    Ok(zeros)
}
