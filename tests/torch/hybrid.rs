//! Models of other parts than a plain decoder on ranks of real PyTorch, against this program's own engine: mixers in the place of attention
//! (LFM2, Qwen 3.5, Granite 4) here, others in `experts` and `latent`.

use super::real::{largest_difference, real, trained};
use super::{Bench, text};
use llmtui::run::RunState;

const SHORT: &str = "model.mixer={short_conv: {conv_len: 3, bias: true}} model.attention_blocks=[1] model.qk_norm=true model.n_kv_head=2";
/// Two value heads share a key head; attention has a gate and gains around 1, a quarter of a head rotates.
const DELTA: &str = "model.mixer={gated_delta_net: {n_key_head: 2, n_value_head: 4, key_dim: 12, value_dim: 20}} model.attention_every=2 \
                     model.attention_gate=true model.qk_norm=true model.norm={rmsnorm: {unit_offset: true}} model.position={rope: {fraction: 0.25}}";
/// Two groups of two heads share B and C.
const MAMBA: &str = "model.mixer={mamba2: {n_head: 4, head_dim: 12, state_dim: 16, n_group: 2}} model.attention_blocks=[1] model.position=none";
/// One group, no convolution of more than two tokens, steps of time within limits.
const LIMITED: &str = "model.mixer={mamba2: {n_head: 3, head_dim: 8, state_dim: 10, conv_len: 2, conv_bias: false, bias: true, dt_min: 0.01, dt_max: 0.5}} \
                       model.attention_every=2 model.position=none";
pub(super) const COMMON: &str = "model.n_layer=2 train.precision=f32 train.log_every=1 train.threads=1 preflight.enabled=false health.enabled=false \
                      eval.batches=2 sample.every=1000";

/// The arguments that set these settings, one after each space but within braces.
pub(super) fn set(settings: &str) -> Vec<String> {
    let mut depth = 0_i32;
    let parts = settings.split(|c: char| {
        depth += match c {
            '{' | '[' => 1,
            '}' | ']' => -1,
            _ => 0,
        };
        c == ' ' && depth == 0
    });
    let parts = parts.filter(|part| !part.is_empty());
    parts.flat_map(|part| ["-s".into(), part.into()]).collect()
}

pub(super) fn run(preset: &str, settings: &[&str]) -> RunState {
    let all: Vec<String> = settings.iter().flat_map(|part| set(part)).collect();
    let mut args = vec!["train", preset, "--json"];
    args.extend(all.iter().map(String::as_str));
    trained(&Bench::new(&[]), &args)
}

pub(super) fn values(state: &RunState, ids: &[&str]) -> Vec<f64> {
    let of = |id: &&str| {
        let series = state.series.get(*id).unwrap_or_else(|| panic!("{id}"));
        series
            .recent()
            .map(|point| point.value)
            .collect::<Vec<f64>>()
    };
    ids.iter().flat_map(of).collect()
}

/// Trains by this program and by two ranks, by copies and by shards, 20 steps: the readings `ids` and the evaluations agree to `bound`.
pub(super) fn give_the_same_losses(cases: &[(&str, [&str; 2])], ids: &[&str], bound: f64) {
    let torch = format!("engine=torch engine.torch.python={}", real());
    for (preset, settings) in cases {
        let here = [
            settings[0],
            settings[1],
            COMMON,
            "max_steps=20 eval.every=10",
        ];
        let own = values(&run(preset, &here), ids);
        for ranks in [
            "engine.torch.ranks=2",
            "engine.torch.ranks=2 engine.torch.shard=fsdp2",
        ] {
            let there = run(preset, &[&here[..], &[&torch, ranks]].concat());
            let apart = largest_difference(&own, &values(&there, ids));
            println!(
                "{preset} {settings:?} {ranks}: {} values, max |d| {apart:.2e}",
                own.len()
            );
            assert!(apart < bound, "{preset} {settings:?} {ranks}: {own:?}");
        }
        if settings[1].contains("data.packing=packed") {
            let unpacked = [
                settings[0],
                "data.packing=padded",
                COMMON,
                "max_steps=20 eval.every=10",
            ];
            let other = values(&run(preset, &unpacked), ids);
            assert!(
                largest_difference(&own, &other) > 1e-3,
                "rows of several documents"
            );
        }
    }
}

/// A checkpoint of either engine goes on under the other.
pub(super) fn go_from_engine_to_engine(models: &[&str]) {
    let torch = format!(
        "engine=torch engine.torch.python={} engine.torch.ranks=2 engine.torch.shard=fsdp2",
        real()
    );
    let (candle, torch) = ("engine=candle", torch.as_str());
    let losses = |model: &str, first: &str, then: &str| {
        let bench = Bench::new(&[]);
        let llmtui = |args: &[&str], settings: &[&str]| {
            let settings: Vec<String> = settings.iter().flat_map(|part| set(part)).collect();
            let mut args = [&["train", "--headless"], args].concat();
            args.extend(settings.iter().map(String::as_str));
            let out = bench.llmtui(&args);
            assert_eq!(
                out.status.code(),
                Some(0),
                "{args:?}: {}",
                text(&out.stderr)
            );
        };
        let often = "max_steps=20 checkpoint.every=10 eval.every=20";
        llmtui(
            &["quickstart", "--stop-after", "10"],
            &[model, COMMON, often, first],
        );
        llmtui(&["--resume", "auto"], &[then]);
        bench.losses()
    };
    for model in models {
        let own = losses(model, candle, candle);
        for (first, then) in [(candle, torch), (torch, candle), (torch, torch)] {
            let found = losses(model, first, then);
            assert_eq!((found.len(), found[19].0), (20, 20), "{first}, {then}");
            let values = |of: &[(u64, f64)]| of.iter().map(|it| it.1).collect::<Vec<_>>();
            let apart = largest_difference(&values(&own), &values(&found));
            println!("{model}: {first}, then {then}: max |dloss| {apart:.2e}");
            assert!(apart < 1e-5, "{first}, {then}: {own:?} {found:?}");
        }
    }
}

/// Completions go through the ranks' caches.
pub(super) fn answer_alike(models: &[&str]) {
    let python = format!("engine=torch engine.torch.python={}", real());
    let common = "max_steps=5 train.micro_batch_size=16 eval.every=4 rollout.cold_start_steps=2 rollout.epochs=2 rollout.side_by_side=7 \
                  rewards=[{regex: {pattern: '[1-4]'}}]";
    for model in models {
        let ids = [
            "train/loss",
            "reward",
            "completions/mean_length",
            "eval/reward",
            "sampling/logp_difference",
        ];
        let here = [*model, COMMON, common];
        let own = values(&run("grpo-sort", &here), &ids);
        for ranks in [
            "engine.torch.ranks=1",
            "engine.torch.ranks=2 engine.torch.shard=fsdp2",
        ] {
            let there = values(
                &run("grpo-sort", &[&here[..], &[&python, ranks]].concat()),
                &ids,
            );
            let apart = largest_difference(&own, &there);
            println!("{model} {ranks}: {} values, max |d| {apart:.2e}", own.len());
            assert!(apart < 1e-5, "{model} {ranks}: {own:?} {there:?}");
        }
    }
}

/// All weights and some of them; adapters of every matrix with magnitudes; documents packed in rows, blocks recomputed.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn hybrid_models_give_the_same_losses() {
    let dora = "adapter={lora: {rank: 4, targets: all, dora: true, dropout: 0.0}}";
    let named = "adapter={lora: {rank: 4, targets: custom, custom: [mixer_in, mixer_out, query, attention_gate], dropout: 0.0}}";
    let few = "adapter={lora: {rank: 4, targets: custom, custom: [mixer_out], dropout: 0.0}}";
    let packed = "data.packing=packed model.seq_len=64 train.activation_checkpointing=full";
    let cases = [
        ("quickstart", [SHORT, "model.position=rope"]),
        ("quickstart", [DELTA, "train.grad_accum_steps=2"]),
        ("sft-demo", [SHORT, packed]),
        ("sft-demo", [DELTA, packed]),
        ("sft-demo", [DELTA, "train.freeze=[mixer,norms]"]),
        ("sft-lora-demo", [DELTA, named]),
        ("sft-lora-demo", [SHORT, few]),
        ("sft-lora-demo", [DELTA, dora]),
        ("dpo-demo", [SHORT, "method.dpo.reference=frozen"]),
    ];
    give_the_same_losses(&cases, &["train/loss", "grad_norm", "val/loss"], 2e-5);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn mamba_2_gives_the_same_losses() {
    let dora = "adapter={lora: {rank: 4, targets: all, dora: true, dropout: 0.0}}";
    let packed = "data.packing=packed model.seq_len=64 train.activation_checkpointing=full";
    let cases = [
        ("quickstart", [MAMBA, "train.grad_accum_steps=2"]),
        ("quickstart", [LIMITED, "train.micro_batch_size=5"]),
        ("sft-demo", [MAMBA, packed]),
        ("sft-demo", [LIMITED, "train.freeze=[mixer,norms]"]),
        ("sft-lora-demo", [MAMBA, dora]),
        ("dpo-demo", [MAMBA, "method.dpo.reference=frozen"]),
    ];
    give_the_same_losses(&cases, &["train/loss", "grad_norm", "val/loss"], 2e-5);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn checkpoints_of_hybrid_models_go_from_engine_to_engine() {
    go_from_engine_to_engine(&[SHORT, DELTA]);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn checkpoints_of_mamba_2_go_from_engine_to_engine() {
    go_from_engine_to_engine(&[MAMBA]);
}

/// Keys and values, inputs of convolutions and states.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn hybrid_models_answer_alike_on_both_engines() {
    answer_alike(&[SHORT, DELTA, MAMBA, LIMITED]);
}
