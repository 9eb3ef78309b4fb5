//! Decode time of completions on a GPU: one token at a time, so it is bound by weight reads and kernel launches, not FLOPs. This
//! program's own engine is calibrated by its earlier runs instead.

use super::request::{Estimator, Request};
use super::scheme::Precision;

/// Kernels that a layer launches for a token on a rank of PyTorch (docs/torch.md), and the seconds that one takes in a CUDA graph.
const KERNELS: f64 = 20.0;
const LAUNCH: f64 = 5e-6;
/// Bytes per second at which the logits of next tokens come from ranks and are sampled. With the launches: one H200, 64 answers at once of a model
/// of 135M parameters, 30 layers and 49,152 tokens, took 15.6 ms for a token of all.
const LOGITS: f64 = 1e9;

/// Hours on all devices; `None` where nothing is written, or the bandwidth is not known.
pub fn hours(request: &Request) -> Option<f64> {
    is_counted(request).then(|| seconds(request).map(|seconds| seconds / 3600.0))?
}

/// Whether decode time is estimated separately.
pub fn is_counted(request: &Request) -> bool {
    let general = request.estimator == Estimator::General;
    general && request.method.rolls_out() && request.device.bandwidth.is_some()
}

/// KV cache bytes of a text of so many tokens. Ranks keep all of them also where a block has a sliding window.
pub fn kv_bytes(request: &Request, tokens: u64, width: u64) -> u64 {
    match request.extras.ranks {
        Some(_) => tokens * request.arch.kv_bytes_per_token(width),
        None => request.arch.kv_bytes(tokens, width),
    }
}

fn seconds(request: &Request) -> Option<f64> {
    let bandwidth = request.device.bandwidth?;
    let (arch, devices) = (&request.arch, request.n_devices.max(1));
    let answers = request.answers();
    // Without a spec as long as a sequence may be.
    let tokens = answers.map_or(request.seq_len, |answers| answers.max_new_tokens);
    let share = answers.map_or(1.0, |answers| {
        (1.0 - answers.cold_share) / answers.epochs.max(1) as f64
    });
    let texts = request.tokens as f64 / request.row_tokens().max(1.0) * share;
    let rollouts = request.rollouts.max(1);
    // Ranks share them; other trainers have as many on each GPU.
    let (on_one, at_once) = match request.extras.ranks {
        Some(_) => (rollouts.div_ceil(devices), rollouts),
        None => (rollouts, rollouts * devices),
    };
    let width = match request.precision {
        Precision::Fp32 => 4,
        _ => 2,
    };
    // Keys and values of half of a text, in the mean.
    let cached = on_one * kv_bytes(request, request.seq_len.div_ceil(2), width);
    let read = width as f64 * arch.n_read(on_one) + cached as f64;
    let launches = arch.n_layer() as f64 * KERNELS * LAUNCH;
    let logits = match request.extras.ranks {
        Some(_) => (4 * at_once * arch.vocab_size()) as f64 / LOGITS,
        None => 0.0,
    };
    Some(texts / at_once as f64 * tokens as f64 * (read / bandwidth + launches + logits))
}

#[cfg(test)]
mod tests {
    use crate::hardware::GpuSummary;
    use crate::plan::ranks::on_ranks;
    use crate::plan::request::Method;
    use crate::plan::{Device, Part, Request, gpus, models, plan, reference_request, target};

    fn on_an_h200(set: &[&str]) -> Request {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let request = target::resolve("grpo-sort", &set, &Default::default()).unwrap();
        let gpu = GpuSummary {
            name: "NVIDIA H200".into(),
            memory_bytes: 143_771 << 20,
        };
        on_ranks(request, &[gpu])
    }

    /// `grpo-gsm8k` in the shape of SmolLM2-135M on one H200: 64 answers of 48 tokens, a step of 0.86 s, 4,100 tokens/s written.
    #[test]
    fn a_step_on_own_answers_takes_about_what_was_measured() {
        let request = on_an_h200(&[
            "engine=torch",
            "model.n_layer=30",
            "model.d_model=576",
            "model.n_head=9",
            "model.n_kv_head=3",
            "model.d_ff=1536",
            "model.vocab_size=49152",
            "model.seq_len=256",
            "rollout.max_new_tokens=48",
            "rollout.side_by_side=64",
            "rollout.cold_start_steps=0",
            "rollout.group_size=8",
            "train.micro_batch_size=64",
            "train.grad_accum_steps=1",
            "max_steps=100",
        ]);
        let work = plan(&request).work;
        let step = work.hours.unwrap() * 3600.0 / 100.0;
        assert!((0.43..1.72).contains(&step), "{step} s");
        let share = work.writing_share.unwrap();
        assert!((0.7..1.0).contains(&share), "{share}");
        assert!(request.is_timed_at_most());
    }

    /// What memory holds on each GPU is what its time is for: four of them write four times as many at once.
    #[test]
    fn several_gpus_write_as_many_answers_each() {
        let mut request = reference_request(models::find("llama-2-7b").unwrap());
        request.set_method(Method::Grpo);
        request.device = Device::of(gpus::find("h100").unwrap());
        let of = |request: &Request| {
            let kept = plan(request).memory.bytes(Part::Rollouts);
            (kept, super::seconds(request).unwrap())
        };
        let one = of(&request);
        request.n_devices = 4;
        let four = of(&request);
        assert_eq!(one.0, four.0);
        assert!((one.1 / four.1 - 4.0).abs() < 1e-9, "{one:?} {four:?}");
    }

    /// Beside the experts of one token a batch wakes those of the others.
    #[test]
    fn more_answers_at_once_read_more_experts() {
        let seconds = |arch: &str, rollouts| {
            let mut request = reference_request(models::find(arch).unwrap());
            request.set_method(Method::Grpo);
            request.device = Device::of(gpus::find("h100").unwrap());
            (request.rollouts, request.seq_len) = (rollouts, 64);
            super::seconds(&request).unwrap() * rollouts as f64
        };
        let rise = |arch| seconds(arch, 64) / seconds(arch, 1);
        let (dense, sparse) = (rise("llama-2-7b"), rise("mixtral-8x7b"));
        assert!(dense < 1.3 && sparse > 2.0, "{dense} {sparse}");
    }

    /// A rollout for four steps has four times the answers: as many are written in a run, and half as many where each is learned from twice.
    #[test]
    fn every_answer_is_written_once() {
        let hours = |set: &[&str]| {
            let set = [&["engine=torch", "rollout.side_by_side=8"], set].concat();
            super::hours(&on_an_h200(&set)).unwrap()
        };
        let one = hours(&[]);
        assert!((hours(&["rollout.steps=4"]) / one - 1.0).abs() < 1e-9);
        assert!((hours(&["rollout.epochs=2"]) / one - 0.5).abs() < 1e-9);
    }

    #[test]
    fn writing_counts_for_methods_that_write_and_gpus_that_are_known() {
        let mut request = on_an_h200(&["engine=torch"]);
        let with = plan(&request).work;
        request.device.bandwidth = None;
        let without = plan(&request).work;
        assert_eq!(without.writing_share, None);
        assert!(with.hours > without.hours && !request.is_timed_at_most());
    }
}
