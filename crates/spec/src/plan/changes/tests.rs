//! Changes that make a plan fit.

use super::*;
use crate::plan::{Device, models, reference_request, target};

fn on(name: &str, method: Method, gb: u64) -> Request {
    let mut request = reference_request(models::find(name).unwrap());
    request.method = method;
    request.device = Device::limit("limit", Some(gb * 1_000_000_000));
    request
}

fn ids(ladder: &Ladder) -> Vec<&str> {
    ladder.changes.iter().map(|c| c.id).collect()
}

#[test]
fn an_8b_on_24_gigabytes_ends_at_qlora_and_nothing_needless_stays() {
    let ladder = ladder(&on("llama-3.1-8b", Method::Sft, 24));
    assert!(ladder.fits);
    // 16 GB of weights and a margin leave no room for LoRA alone with this vocabulary… or just so.
    assert!(
        matches!(ids(&ladder).as_slice(), ["lora"] | ["lora", "qlora"]),
        "{:?}",
        ids(&ladder)
    );
    assert_eq!(plan(&ladder.request).verdict(), Some(Verdict::Fits));
}

#[test]
fn cheap_changes_come_before_costly_ones() {
    let mut request = on("qwen2.5-0.5b", Method::Sft, 24);
    (request.micro_batch, request.logits) = (16, Logits::Whole);
    let ladder = ladder(&request);
    assert!(ladder.fits);
    assert_eq!(ids(&ladder), ["micro_batch"]);
    assert_eq!(ladder.request.micro_batch * ladder.request.grad_accum, 16);
}

#[test]
fn what_fits_already_needs_no_change_and_what_never_fits_says_so() {
    assert_eq!(ladder(&on("gpt2", Method::Pretrain, 80)).changes, []);
    let hopeless = ladder(&on("llama-3.1-405b", Method::Pretrain, 24));
    assert!(!hopeless.fits && !hopeless.changes.is_empty());
}

#[test]
fn each_rung_saves_what_it_says() {
    let mut request = on("llama-3.1-8b", Method::Sft, 80);
    (request.logits, request.checkpointing) = (Logits::Whole, Checkpointing::Off);
    let ladder = ladder(&request);
    let mut needs = plan(&request).p50_bytes();
    for change in &ladder.changes {
        assert_eq!(
            change.needs_bytes,
            needs - change.saves_bytes,
            "{}",
            change.id
        );
        needs = change.needs_bytes;
    }
    assert_eq!(needs, plan(&ladder.request).p50_bytes());
}

/// The request of a preset on a machine whose memory no change fits into: every rung goes as far as it may.
fn cramped(preset: &str, set: &[&str]) -> Request {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let mut request = target::resolve(preset, &set, &Default::default()).unwrap();
    request.device = Device::limit("limit", Some(1_000_000));
    request
}

/// What the ladder names can be typed: the spec loads with it, and learns from as many rows a step as before.
#[test]
fn changes_of_a_spec_load_and_keep_its_batch() {
    for (preset, set) in [
        ("quickstart", &["micro_batch_size=10"][..]),
        ("quickstart", &["micro_batch_size=5", "grad_accum_steps=3"]),
        ("kto-demo", &["micro_batch_size=6"]),
        ("grpo-sort", &["micro_batch_size=5", "rollout.group_size=5"]),
        ("grpo-arithmetic", &["rollout.max_new_tokens=15"]),
    ] {
        let request = cramped(preset, set);
        let rows = request.micro_batch * request.grad_accum;
        for change in rungs(&request) {
            let words = change.flag.split("-s ").map(str::trim);
            let words = words.filter(|word| !word.is_empty());
            let all = set.iter().copied().chain(words);
            let all: Vec<String> = all.map(String::from).collect();
            let loaded = crate::spec::load(preset, &all, &Default::default());
            let loaded = loaded.unwrap_or_else(|e| panic!("{preset} {all:?}: {e}"));
            let train = &loaded.spec.train;
            let now = (train.micro_batch_size * train.grad_accum_steps) as u64;
            assert_eq!(now, rows, "{preset} {all:?}");
        }
    }
}

/// Preflight trains a copy: without it the states of this engine are there once, and what training needs beside that is changed as for
/// itself.
#[test]
fn checks_that_do_not_fit_are_left_out_before_training_is_changed() {
    let on = |set: &[&str], limit: u64| {
        let request = cramped("quickstart", set);
        let device = Device::limit("limit", Some(limit));
        ladder(&Request { device, ..request })
    };
    let large = ["d_model=1024", "n_head=16", "n_layer=12"];
    let small = [&large[..], &["micro_batch_size=1"]].concat();
    // 151M parameters: 2.4 GB of states.
    let once = on(&small, 3_200_000_000);
    assert_eq!((ids(&once), once.fits), (vec!["preflight"], true));
    let in_8_bits = on(&small, 2_000_000_000);
    let wanted = vec!["preflight", "optimizer_8bit"];
    assert_eq!((ids(&in_8_bits), in_8_bits.fits), (wanted, true));
    assert_eq!(on(&small, 6_000_000_000).changes, []);
    // Room for four rows in training, none for a copy.
    let rows = |n: &str| {
        let rows = format!("micro_batch_size={n}");
        cramped(
            "quickstart",
            &[&large[..], &[&rows, "seq_len=256"]].concat(),
        )
    };
    let mut four = rows("4");
    four.extras.preflight = Preflight::Off;
    let limit = plan(&four).p90_bytes();
    let device = Device::limit("limit", Some(limit));
    let ladder = ladder(&Request {
        device,
        ..rows("8")
    });
    let mut found = ids(&ladder);
    found.sort_unstable();
    assert_eq!(
        (found, ladder.fits),
        (vec!["micro_batch", "preflight"], true)
    );
    assert_eq!(ladder.request.micro_batch, 4);
}

/// A spec that starts from a model can have adapters, in place of what is frozen by name.
#[test]
fn adapters_are_a_change_where_there_is_a_model_below_them() {
    let mut request = cramped("sft-demo", &["train.freeze=[mlp]", "d_model=512"]);
    let lora = |request: &Request| {
        let found = rungs(request).into_iter().find(|it| it.id == "lora");
        found.map(|it| it.flag)
    };
    assert_eq!(lora(&request), None);
    request.extras.has_base = true;
    let flag = lora(&request).unwrap();
    let words = flag.split("-s ").map(str::trim).filter(|it| !it.is_empty());
    let words: Vec<String> = words.map(String::from).collect();
    let loaded = crate::spec::load("sft-demo", &words, &Default::default()).unwrap();
    assert!(loaded.spec.adapter.is_some() && loaded.spec.train.freeze.is_empty());
}

/// Another optimizer has other defaults: those of a spec's AdamW stay.
#[test]
fn moments_of_8_bits_leave_the_learning_rate_as_it_is() {
    let found = rungs(&cramped("sft-demo", &[]));
    let change = found.iter().find(|it| it.id == "optimizer_8bit").unwrap();
    let words = change.flag.split("-s ").map(str::trim);
    let words: Vec<String> = words
        .filter(|it| !it.is_empty())
        .map(String::from)
        .collect();
    let load = |words: &[String]| {
        let spec = crate::spec::load("sft-demo", words, &Default::default())
            .unwrap()
            .spec;
        (
            spec.optimizer.lr(),
            spec.optimizer.adam_betas(),
            spec.optimizer.entry().id,
        )
    };
    let ((lr, betas, _), (now, betas_now, word)) = (load(&[]), load(&words));
    assert_eq!((lr, betas, word), (now, betas_now, "adamw8bit"));
    // An average of the weights takes as much as before.
    let bytes = |set: &[&str]| {
        let request = cramped("sft-demo", set);
        let infos = request.param_infos();
        request.update.in_8_bits(&infos).unwrap().engine_bytes()
    };
    assert!((bytes(&["train.ema_decay=0.9"]) - bytes(&[]) - 4.0).abs() < 1e-3);
}

/// Ranks of PyTorch have no ZeRO-1, no pure bf16 and no NF4, and options of `plan` would leave them.
#[test]
fn changes_for_ranks_load_and_keep_their_engine_and_batch() {
    use crate::plan::ranks::on_ranks;
    let gpu = crate::hardware::GpuSummary {
        name: "H100".into(),
        memory_bytes: 1_000_000,
    };
    for (preset, set, gpus) in [
        ("quickstart", &["engine=torch", "micro_batch_size=8"][..], 2),
        ("quickstart", &["engine=torch", "optimizer=adamw8bit"], 2),
        ("sft-demo", &["engine=torch", "micro_batch_size=6"], 1),
        ("kto-demo", &["engine=torch", "micro_batch_size=8"], 2),
    ] {
        let words: Vec<String> = set.iter().map(ToString::to_string).collect();
        let asked = target::resolve(preset, &words, &Default::default()).unwrap();
        let request = on_ranks(asked, &vec![gpu.clone(); gpus]);
        let rows = request.micro_rows() * request.grad_accum;
        let changes = rungs(&request);
        assert!(changes.iter().any(|change| change.id == "micro_batch"));
        for change in changes {
            assert!(!change.flag.contains("--"), "{change:?}");
            let more = change.flag.split("-s ").map(str::trim);
            let more = more.filter(|word| !word.is_empty()).map(String::from);
            let all: Vec<String> = words.iter().cloned().chain(more).collect();
            let loaded = crate::spec::load(preset, &all, &Default::default());
            let loaded = loaded.unwrap_or_else(|e| panic!("{preset} {all:?}: {e}"));
            let train = &loaded.spec.train;
            let now = (train.micro_batch_size * train.grad_accum_steps) as u64;
            assert_eq!(now, rows, "{preset} {all:?}");
        }
    }
}

#[test]
fn several_gpus_share_before_anything_is_lost() {
    let mut request = on("llama-2-7b", Method::Pretrain, 80);
    request.n_devices = 8;
    assert_eq!(ids(&ladder(&request)), ["shard"]);
}
