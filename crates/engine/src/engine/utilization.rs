//! Model FLOPs utilization (MFU): the FLOPs that a run's model takes, as a share of those that its devices could compute in the same
//! time (Chowdhery et al. 2022, PaLM, appendix B).

use super::context::RunContext;
use crate::hardware;
use crate::kernels::matmul::peak_gflops;
use crate::nn::compute_dtype_name;
use crate::plan::target::{self, DataSize};
use crate::plan::{gpus, work};

/// For measuring what a processor's kernels reach from its registers, on the run's threads: the best of many trials.
const SECONDS: f64 = 0.03;

/// What turns a run's tokens per second into a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Utilization {
    /// FLOPs that a token takes, forward and backward, attention with it.
    flops_per_token: f64,
    /// FLOP/s of all devices, in the number format of the run's matmuls.
    peak_flops: f64,
}

impl Utilization {
    /// Of a run; `None` where the peak of its devices is not known, and where answers are written between updates, whose tokens its
    /// speed does not count.
    pub fn of(cx: &RunContext<'_, '_>) -> Option<Utilization> {
        let policy = &cx.state.models.policy;
        let remote = cx.state.models.remote.as_ref();
        let dtype = match remote {
            Some(remote) => remote.precision(),
            None => compute_dtype_name(policy.arithmetic()),
        };
        let data = DataSize {
            vocab_size: policy.shape().vocab_size,
            epoch_tokens: Some(cx.data.epoch_tokens()),
            ..DataSize::default()
        };
        let mut request = target::of_spec(cx.spec, data);
        target::as_trained(&mut request, Some(dtype));
        if request.method.rolls_out() {
            return None;
        }
        let peak_flops = match remote {
            None => 1e9 * peak_gflops(policy.arithmetic(), SECONDS),
            Some(remote) if remote.are_on_gpus() => remote.ranks() as f64 * gpu_flops(cx, dtype)?,
            // Kernels of another program on processors that were not measured.
            Some(_) => return None,
        };
        Some(Utilization {
            flops_per_token: work::model_flops_per_token(&request),
            peak_flops,
        })
    }

    /// The share at a speed in target tokens per second.
    pub fn at(self, tok_per_sec: f64) -> f64 {
        tok_per_sec * self.flops_per_token / self.peak_flops
    }
}

/// FLOP/s of the first visible GPU by its data sheet. Machines of one run have GPUs of one kind.
fn gpu_flops(cx: &RunContext<'_, '_>, dtype: &str) -> Option<f64> {
    let machine = hardware::summary(None, &cx.job.env).ok()?;
    let gpu = gpus::find(&machine.gpus.first()?.name)?;
    let tflops = match dtype {
        "bf16" => gpu.bf16_tflops,
        _ => gpu.f32_tflops,
    };
    Some(1e12 * tflops)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 2 7B took 184,320 hours of A100s for 2T tokens (Touvron et al. 2023): 3,014 tokens/s of a GPU, 39 % by 6 N.
    #[test]
    fn a_share_is_that_of_published_hours() {
        let llama = Utilization {
            flops_per_token: 6.0 * 6.738e9,
            peak_flops: 312e12,
        };
        let speed = 2e12 / (184_320.0 * 3600.0);
        assert!(
            (llama.at(speed) - 0.391).abs() < 1e-3,
            "{}",
            llama.at(speed)
        );
    }
}
