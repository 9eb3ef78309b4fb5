//! FLOPs, time and cost. `C = 6·N·D`, `time = C / (devices · peak · MFU)`, `cost = device-hours · price`.

use super::arch::Arch;
use super::engine::critic_saved_bytes;
use super::passes::{attention_passes, passes};
use super::request::{Checkpointing, Estimator, Request};
use super::scheme::bytes_per_param;
use super::writing;
use crate::nn::state_flops;
use crate::spec::CheckpointSize;
use serde::Serialize;

/// FLOPs per training token with attention: `6·N + 12·L·n_head·head_dim·s` (PaLM, appendix B), N being the parameters in
/// matmuls. The attention term counts the whole square, causal or not, and of a sliding window no more than that; of states what
/// `nn::state_flops` says. With latent attention n_head·head_dim is the mean of the widths of queries and of values.
pub fn flops_per_token(arch: &Arch, seq_len: u64) -> f64 {
    6.0 * arch.n_matmul() as f64 + attention_per_token(arch, seq_len as f64)
}

/// `12·L·n_head·head_dim·s`, with a window in place of s where a block has a shorter one; and what states cost.
pub fn attention_per_token(arch: &Arch, seq_len: f64) -> f64 {
    let attention = 12.0 * arch.config().scored_width() * arch.config().scored_keys(seq_len);
    attention + state_flops(arch.config())
}

/// FLOPs of all passes for a token, attention and padding included: used for this engine's time estimate and to convert a run's
/// speed (in unpadded tokens) to FLOP/s.
pub fn engine_flops_per_token(request: &Request) -> f64 {
    model_flops_per_token(request) * request.places_per_token()
}

/// The same without padding, whose FLOPs are no use: what a run's utilization (MFU) is counted in (PaLM, appendix B).
pub fn model_flops_per_token(request: &Request) -> f64 {
    let arch = &request.arch;
    let matmuls = passes(request) * arch.n_matmul() as f64;
    let attention = attention_passes(request) / 6.0;
    matmuls + attention * attention_per_token(arch, request.row_places())
}

/// FLOPs, time and cost of the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Work {
    /// Model FLOPs without attention scores: 6·N·D for pretraining.
    pub flops: f64,
    /// What attention scores add to them.
    pub attention_flops: f64,
    /// Wall time on all devices; `None` if no peak is known.
    pub hours: Option<f64>,
    pub device_hours: Option<f64>,
    /// The share of it in which answers are written token by token; `None` where it is in the speed already, or nothing is written.
    pub writing_share: Option<f64>,
    /// US dollars; `None` if no price is known.
    pub cost: Option<f64>,
}

impl Work {
    /// `7.41e12 FLOPs, attention +8.2 %`: beside the matmuls, not as a share of the sum. The wizard, the plan pane and `llmtui plan`
    /// say it so, the pane in 35 columns.
    pub fn compute_words(&self) -> String {
        let more = 100.0 * self.attention_flops / self.flops.max(1.0);
        format!("{:.2e} FLOPs, attention +{more:.1} %", self.flops)
    }
}

/// FLOPs, time and cost of a request. Time follows `6·N·D` for the general estimator, as published GPU-hours do; for
/// this engine it includes attention, as the dashboard's MFU does.
pub fn work(request: &Request) -> Work {
    let (arch, tokens) = (&request.arch, request.tokens as f64);
    let flops = passes(request) * arch.n_active() as f64 * tokens;
    let attention_flops =
        attention_passes(request) / 6.0 * attention_per_token(arch, request.row_places()) * tokens;
    let timed = match request.estimator {
        // Padding is computed like tokens.
        Estimator::General => flops * request.places_per_token(),
        Estimator::Engine => engine_flops_per_token(request) * tokens,
    };
    // Ranks without a row compute a copy of another's.
    let places = (request.micro_batch * request.n_devices) as f64;
    let timed = timed * places / request.micro_rows().max(1) as f64;
    let speed = request
        .peak_flops()
        .map(|peak| peak * request.mfu * request.n_devices as f64);
    let hours = speed
        .filter(|s| *s > 0.0)
        .map(|speed| timed / speed / 3600.0);
    let written = writing::hours(request);
    let hours = hours.map(|hours| hours + written.unwrap_or(0.0));
    let writing_share = written.and_then(|written| Some(written / hours?));
    let device_hours = hours.map(|h| h * request.n_devices as f64);
    let cost = device_hours.and_then(|h| Some(h * request.device.price_per_hour?));
    Work {
        flops,
        attention_flops,
        hours,
        device_hours,
        writing_share,
        cost,
    }
}

/// The default MFU: 40 %, reduced by up to a quarter with activation checkpointing (recomputation is not model FLOPs: a
/// fourth pass on top of three).
pub fn usual_mfu(checkpointing: Checkpointing, n_layer: u64) -> f64 {
    match checkpointing {
        Checkpointing::Off => 0.40,
        Checkpointing::EveryN(_) => {
            let again = checkpointing.engine().recomputed_share(n_layer as usize);
            0.40 * 3.0 / (3.0 + again)
        }
        Checkpointing::Full => 0.30,
    }
}

/// One checkpoint on the disk: all weights and the moments of the trainable set as this engine writes them (f32), those of a
/// critic and of a reference that moves among them; on other trainers the weights and the optimizer's state in the formats of the plan,
/// master weights among them. With LoRA
/// the weights beneath are shared by the checkpoints of a run; other trainers, and this one on a quantized file, save adapters alone.
pub fn checkpoint(request: &Request) -> CheckpointSize {
    let trained = request.n_trainable();
    let vocab_size = request.arch.vocab_size();
    // What ranks have trained is written here.
    let is_ours = request.estimator == Estimator::Engine || request.extras.ranks.is_some();
    if !is_ours {
        let bytes = bytes_per_param(request.precision, request.update);
        let saved = match request.lora {
            Some(_) => trained,
            None => request.arch.n_params(),
        };
        let kept = bytes.weights * saved as f64 + bytes.optimizer * trained as f64;
        return CheckpointSize::of(kept as u64, 0, vocab_size);
    }
    let base = match request.extras.packed_bytes {
        // Its file stays where it is.
        Some(_) => 0,
        // A value head trains beside adapters, and is counted with them.
        None if request.lora.is_some() && request.arch.config().value_head => {
            4 * (request.arch.n_params() - request.arch.d_model())
        }
        None => 4 * request.arch.n_params(),
    };
    let (adapters, shared) = match request.lora {
        Some(_) => (4 * trained, base),
        None => (0, 0),
    };
    let moments = (request.update.saved_bytes() * trained as f64).round() as u64;
    // Without a file it could not be had again; it has no value head.
    let has_head = request.lora.is_none() && request.arch.config().value_head;
    let anchor = match (request.saves_reference(), has_head) {
        (true, true) => base - 4 * request.arch.d_model(),
        (true, false) => base,
        (false, _) => 0,
    };
    let tensors = base + adapters + moments + critic_saved_bytes(request) + anchor;
    CheckpointSize::of(tensors, shared, vocab_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::request::Device;
    use crate::plan::{gpus, models, reference_request};

    fn on(name: &str, gpu: &str, tokens: f64, mfu: f64) -> Work {
        let mut request = reference_request(models::find(name).unwrap());
        request.device = Device::of(gpus::find(gpu).unwrap());
        request.tokens = tokens as u64;
        request.mfu = mfu;
        work(&request)
    }

    #[test]
    fn checkpoints_hold_adapters_alone_on_a_quantized_file_and_share_their_base_else() {
        let mut request = reference_request(models::find("tinyllama-1.1b").unwrap());
        request.estimator = Estimator::Engine;
        request.lora = Some(crate::plan::request::Lora {
            rank: 8,
            targets: crate::plan::request::LoraTargets::All,
        });
        let adapters = request.n_trainable();
        let moments = (request.update.engine_bytes() * adapters as f64) as u64;
        let base = 4 * request.arch.n_params();
        let vocab_size = request.arch.vocab_size();
        let beside =
            |shared| CheckpointSize::of(shared + 4 * adapters + moments, shared, vocab_size);
        assert_eq!(checkpoint(&request), beside(base));
        let plan = crate::plan::plan(&request);
        let all = 2 * base + plan.n_checkpoints() * beside(base).own;
        assert_eq!(plan.disk_bytes, all);
        assert_eq!(plan.checkpoint_bytes, base + beside(base).own);
        request.extras.packed_bytes = Some(700 << 20);
        assert_eq!(checkpoint(&request), beside(0));
    }

    #[test]
    fn another_trainers_checkpoint_has_the_weights_and_the_state_of_its_plan() {
        use crate::plan::scheme::{Precision, UpdateState};
        let mut request = reference_request(models::find("tinyllama-1.1b").unwrap());
        request.estimator = Estimator::General;
        let (n, vocab_size) = (request.n_trainable(), request.arch.vocab_size());
        for (precision, update, bytes) in [
            (Precision::Mixed, UpdateState::AdamW, 14),
            (Precision::Fp32, UpdateState::AdamW, 12),
            (Precision::Bf16, UpdateState::AdamW, 6),
            (Precision::Bf16, UpdateState::Adafactor, 2),
            (Precision::Mixed, UpdateState::AdamW8bit, 8),
        ] {
            (request.precision, request.update) = (precision, update);
            let size = CheckpointSize::of(bytes * n, 0, vocab_size);
            assert_eq!(checkpoint(&request), size, "{precision:?} {update:?}");
        }
    }

    #[test]
    fn a_billion_parameters_on_twenty_billion_tokens_take_an_h100_84_hours() {
        let peak: f64 = 989e12;
        assert!((6.0 * 1e9 * 20e9 / (peak * 0.4) / 3600.0 - 84.26).abs() < 0.1);
        // The same through a request: an architecture of 1.1B, its tokens scaled to the same product.
        let n = models::find("tinyllama-1.1b").unwrap().arch.n_params() as f64;
        let work = on("tinyllama-1.1b", "h100", 20e18 / n, 0.4);
        assert!((work.hours.unwrap() - 84.26).abs() < 0.1, "{work:?}");
        assert!((work.cost.unwrap() - 84.26 * 3.0).abs() < 1.0);
    }

    /// Ranks leave TF32 off: f32 is a fifteenth of the bf16 peak of an H100.
    #[test]
    fn f32_goes_at_the_peak_of_f32() {
        use crate::plan::scheme::Precision;
        let mut request = reference_request(models::find("llama-2-7b").unwrap());
        request.device = Device::of(gpus::find("h100").unwrap());
        let hours = |request: &Request| work(request).hours.unwrap();
        let bf16 = hours(&request);
        request.precision = Precision::Fp32;
        assert!((hours(&request) / bf16 - 989.0 / 67.0).abs() < 1e-9);
        request.device.f32_flops = None;
        assert_eq!(work(&request).hours, None);
        request.device.set_peak(67e12);
        assert!((hours(&request) / bf16 - 989.0 / 67.0).abs() < 1e-9);
    }

    /// Scores have no weights: a frozen base spares them nothing. DPO: 12 L q s of the policy, a third of it of the reference.
    #[test]
    fn attention_costs_the_same_beside_adapters() {
        let mut request = reference_request(models::find("tinyllama-1.1b").unwrap());
        request.set_method(crate::plan::request::Method::Dpo);
        let whole = work(&request);
        request.lora = Some(crate::plan::request::Lora {
            rank: 8,
            targets: crate::plan::request::LoraTargets::All,
        });
        let lora = work(&request);
        let (arch, tokens) = (&request.arch, request.tokens as f64);
        let per_place = (arch.n_layer() * arch.q_width()) as f64 * request.row_places();
        assert!((lora.attention_flops / (16.0 * per_place * tokens) - 1.0).abs() < 1e-12);
        assert_eq!(lora.attention_flops, whole.attention_flops);
        assert!((lora.flops / whole.flops - 6.0 / 8.0).abs() < 1e-12);
    }

    #[test]
    fn published_gpu_hours_come_out() {
        // Llama 2: 184,320 A100-hours for 7B on 2T tokens are 39.1 % of the peak, 45.3 % with attention at 4096.
        let work = on("llama-2-7b", "a100", 2e12, 0.391);
        assert!(
            (work.hours.unwrap() / 184_320.0 - 1.0).abs() < 0.005,
            "{work:?}"
        );
        let mut request = reference_request(models::find("llama-2-7b").unwrap());
        request.seq_len = 4096;
        let with_attention = flops_per_token(&request.arch, 4096) * 2e12;
        let mfu = with_attention / (184_320.0 * 3600.0 * 312e12);
        assert!((mfu - 0.453).abs() < 0.01, "{mfu}");
        let work = on("llama-2-70b", "a100", 2e12, 0.428);
        assert!((work.hours.unwrap() / 1_720_320.0 - 1.0).abs() < 0.005);
        // Llama 3.1 405B: 3.8e25 operations.
        let work = on("llama-3.1-405b", "h100", 15.6e12, 0.4);
        assert!((work.flops / 3.8e25 - 1.0).abs() < 0.01, "{work:?}");
        // The 494M model at 9.88B tokens: 20.6 h on an H100, 123 h on a 4090, at 40 %.
        for (gpu, hours) in [("h100", 20.6), ("rtx-4090", 123.3)] {
            let work = on("qwen2.5-0.5b", gpu, 9.88e9, 0.4);
            assert!(
                (work.hours.unwrap() / hours - 1.0).abs() < 0.01,
                "{gpu} {work:?}"
            );
        }
    }

    #[test]
    fn attention_is_the_published_share_of_the_work() {
        // At 2048 tokens: Llama-2-7B 3.22 of 40.4 GFLOP, the 0.5B model 0.53 of 2.96.
        for (name, attention, rest) in [
            ("llama-2-7b", 3.22e9, 40.4e9),
            ("qwen2.5-0.5b", 0.53e9, 2.96e9),
        ] {
            let arch = &models::find(name).unwrap().arch;
            assert!(
                (attention_per_token(arch, 2048.0) / attention - 1.0).abs() < 0.01,
                "{name}"
            );
            assert!(
                (6.0 * arch.n_params() as f64 / rest - 1.0).abs() < 0.01,
                "{name}"
            );
        }
    }
}
