//! The state of most update rules: named f32 buffers and counters, saved and restored by name.

use super::StatePart;
use crate::kernels::flat;
use crate::nn::Params;
use candle_core::{Result, bail};

/// Number of pieces that a counter is stored in.
pub(super) const PIECES: usize = 4;

/// Pieces of 16 bits are exact in f32; a count as a single f32 would not be beyond 2^24.
pub(super) fn pieces(count: u64) -> [f32; PIECES] {
    std::array::from_fn(|i| ((count >> (16 * i)) & 0xffff) as f32)
}

/// The count of these [`pieces`]. In a damaged file they may be anything: that is an error, not another count.
pub(super) fn whole(pieces: &[f32; PIECES]) -> Result<u64> {
    let mut count = 0;
    for &piece in pieces.iter().rev() {
        if piece.fract() != 0.0 || !(0.0..65_536.0).contains(&piece) {
            bail!("a count of steps is made of {piece}, which is not 16 bits of a whole number")
        }
        count = (count << 16) | piece as u64;
    }
    Ok(count)
}

/// State in host memory.
pub(super) struct HostState {
    rule: &'static str,
    buffers: Vec<(&'static str, Vec<f32>)>,
    counters: Vec<(&'static str, u64)>,
}

impl HostState {
    /// Zero-initialized buffers with these names and lengths.
    pub fn new(
        rule: &'static str,
        buffers: &[(&'static str, usize)],
        counters: &[&'static str],
    ) -> HostState {
        HostState {
            rule,
            buffers: buffers
                .iter()
                .map(|(n, len)| (*n, vec![0.0; *len]))
                .collect(),
            counters: counters.iter().map(|name| (*name, 0)).collect(),
        }
    }

    /// The first `N` buffers.
    ///
    /// # Errors
    /// The rule has fewer.
    pub fn buffers<const N: usize>(&mut self) -> Result<[&mut [f32]; N]> {
        let mut all = self.buffers.iter_mut().map(|(_, values)| &mut values[..]);
        let found: Vec<_> = all.by_ref().take(N).collect();
        match found.try_into() {
            Ok(found) => Ok(found),
            Err(_) => bail!("{}: it keeps fewer than {N} buffers", self.rule),
        }
    }

    pub fn counter(&mut self, number: usize) -> &mut u64 {
        &mut self.counters[number].1
    }

    pub fn state(&self) -> Vec<StatePart> {
        let counters = self
            .counters
            .iter()
            .map(|(name, _)| StatePart { name, len: PIECES });
        let buffers = self.buffers.iter().map(|(name, values)| StatePart {
            name,
            len: values.len(),
        });
        counters.chain(buffers).collect()
    }

    pub fn read(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()> {
        if let Some((_, count)) = self.counters.iter().find(|(n, _)| *n == name) {
            read(&pieces(*count));
            return Ok(());
        }
        match self.buffers.iter().find(|(n, _)| *n == name) {
            Some((_, values)) => read(values),
            None => bail!("{}: its state has no `{name}`", self.rule),
        }
        Ok(())
    }

    pub fn write(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        if let Some((_, count)) = self.counters.iter_mut().find(|(n, _)| *n == name) {
            let mut pieces = pieces(*count);
            write(&mut pieces);
            *count = whole(&pieces)?;
            return Ok(());
        }
        match self.buffers.iter_mut().find(|(n, _)| *n == name) {
            Some((_, values)) => write(values),
            None => bail!("{}: its state has no `{name}`", self.rule),
        }
        Ok(())
    }
}

/// Opens weights and gradients; on an accelerator both are copied to the host and back.
pub(super) fn open<R>(params: &Params, update: impl FnOnce(&mut [f32], &[f32]) -> R) -> Result<R> {
    flat::read(params.grads()?, |grads| {
        flat::write(params.weights(), |weights| update(weights, grads))
    })?
}

/// The getters of settings with the fields `lr` and `weight_decay`.
macro_rules! rates {
    () => {
        fn lr(&self) -> f64 {
            self.lr
        }

        fn weight_decay(&self) -> f64 {
            self.weight_decay
        }
    };
}
pub(super) use rates;

/// `Config` of AdamW and its relatives: the same fields, ranges and defaults, but for the rate and the decay.
macro_rules! adam_settings {
    (
        $(#[$lr_doc:meta])* lr = $lr:literal,
        $(#[$beta1_doc:meta])* beta1 = $beta1:literal,
        weight_decay = $weight_decay:literal $(,)?
    ) => {
        #[derive(
            Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(default, deny_unknown_fields)]
        pub struct Config {
            $(#[$lr_doc])*
            #[schemars(range(max = 10.0), extend("exclusiveMinimum" = 0.0))]
            pub lr: f64,
            $(#[$beta1_doc])*
            #[schemars(range(min = 0.0, max = 0.999999))]
            pub beta1: f64,
            /// Decay of the squared gradient's running mean.
            #[schemars(range(min = 0.0, max = 0.999999))]
            pub beta2: f64,
            /// Added to the denominator; at least 1e-20.
            #[schemars(range(min = 0.0, max = 1.0))]
            pub eps: f64,
            /// Decoupled weight decay, applied to matrices and embeddings; never to norms and biases.
            #[schemars(range(min = 0.0, max = 10.0))]
            pub weight_decay: f64,
        }

        impl Default for Config {
            fn default() -> Self {
                Config {
                    lr: $lr,
                    beta1: $beta1,
                    beta2: 0.999,
                    eps: 1e-8,
                    weight_decay: $weight_decay,
                }
            }
        }
    };
}
pub(super) use adam_settings;

/// The state methods of a rule whose state is its field `held`.
macro_rules! state_is_held {
    () => {
        fn state(&self) -> Vec<StatePart> {
            self.held.state()
        }

        fn read_state(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()> {
            self.held.read(name, read)
        }

        fn write_state(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()> {
            self.held.write(name, write)
        }
    };
}
pub(super) use state_is_held;
