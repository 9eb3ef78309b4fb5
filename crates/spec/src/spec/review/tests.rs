//! Each warning of the list where it belongs, with a change that is a setting, and none where it does not.

use super::*;
use crate::base::finding::Finding;
use crate::spec::{SpecSources, load};

mod context;
mod limits;
mod loads;
mod shares;
mod template;

const KNOWN: Sizes = Sizes {
    step_tokens: Some(8_192),
    pass_tokens: Some(400_000_000),
    padded: false,
    val_tokens: Some(1_000_000),
    held_out: None,
    val_prompts: None,
    labels: None,
    long_prompts: None,
    plain_prompts: None,
    ranks: None,
    here: true,
};

fn spec(preset: &str, words: &[&str]) -> RunSpec {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    load(preset, &words, &SpecSources::default()).unwrap().spec
}

/// What is said of a preset with these settings, against these sizes.
fn said(preset: &str, words: &[&str], sizes: Sizes) -> Vec<Finding> {
    let found = review(&spec(preset, words), sizes);
    for finding in &found {
        assert!(
            !finding.source.is_empty() && !finding.fix.is_empty(),
            "{finding:?}"
        );
        assert!(!finding.evidence.is_empty(), "{finding:?}");
    }
    found
}

#[test]
fn a_floor_at_the_peak_is_no_decay() {
    let flat = |words: &[&str]| {
        let found = said("quickstart", words, KNOWN).into_iter();
        found
            .filter(|f| f.fix.contains("min_lr"))
            .map(|f| f.fix)
            .collect::<Vec<_>>()
    };
    let fix = flat(&["lr=1e-3", "min_lr=1e-3"]);
    assert_eq!(fix, ["-s schedule.cosine.min_lr=1e-4"]);
    assert!(flat(&["lr=1e-3", "min_lr=9e-4"]).is_empty() && flat(&[]).is_empty());
    assert!(flat(&["schedule=constant"]).is_empty());
}

/// The one finding whose evidence contains `words`.
fn finds(preset: &str, set: &[&str], sizes: Sizes, words: &str) -> Finding {
    let found = said(preset, set, sizes);
    let hit = found
        .iter()
        .find(|f| f.evidence.to_string().contains(words));
    hit.unwrap_or_else(|| panic!("no `{words}` in {found:?}"))
        .clone()
}

/// Its changes load, and nothing is said of the spec with them that was said before.
fn mends(preset: &str, set: &[&str], sizes: Sizes, words: &str) {
    let found = finds(preset, set, sizes, words);
    let changes = found.changes();
    assert!(!changes.is_empty(), "{}", found.fix);
    let changes = changes
        .iter()
        .take(1 + usize::from(found.fix.contains("schedule=")));
    let all: Vec<&str> = set
        .iter()
        .copied()
        .chain(changes.map(String::as_str))
        .collect();
    let left = said(preset, &all, sizes);
    assert!(
        left.iter().all(|f| !f.evidence.to_string().contains(words)),
        "{all:?}: {left:?}"
    );
}

#[test]
fn kto_weights_are_held_against_the_numbers_of_answers() {
    let of = |good, bad| Sizes {
        labels: Some((good, bad)),
        ..Sizes::default()
    };
    let told = |set: &[&str], sizes| {
        let found = said("kto-demo", set, sizes);
        found
            .iter()
            .any(|f| f.place == "method.kto.desirable_weight")
    };
    let heavy = ["method.kto.desirable_weight=5"];
    mends(
        "kto-demo",
        &heavy,
        of(1_000, 1_000),
        "a weighted ratio of 5.00",
    );
    mends(
        "kto-demo",
        &[],
        of(9_000, 1_000),
        "a weighted ratio of 9.00",
    );
    mends(
        "kto-demo",
        &[],
        of(1_000, 9_000),
        "a weighted ratio of 0.11",
    );
    // A fifth of them desirable, at five times the weight.
    assert!(!told(&heavy, of(1_000, 4_500)));
    assert!(!told(&[], of(980, 1_020)) && !told(&heavy, Sizes::default()));
    assert!(
        said("kto-demo", &[], of(0, 50))
            .iter()
            .any(|f| f.place == "data")
    );
    assert!(
        said("dpo-demo", &[], of(9, 1))
            .iter()
            .all(|f| f.place != "data")
    );
    // The answers that the demo makes are counted, and balanced.
    let demo = spec("kto-demo", &heavy);
    let data = demo.open_data(&Default::default()).unwrap();
    let (good, bad) = data.labels().unwrap();
    assert!(
        (3_000..4_000).contains(&(good + bad)) && good.abs_diff(bad) < 300,
        "{good} {bad}"
    );
    let found = demo.review_on(&data, None);
    assert!(
        found
            .iter()
            .any(|f| f.place == "method.kto.desirable_weight"),
        "{found:?}"
    );
    let plain = spec("kto-demo", &[]).review_on(&data, None);
    assert_eq!(plain, []);
}

#[test]
fn the_usual_rate_is_that_of_the_published_models() {
    // GPT-3's table: 125M at 6e-4, 1.3B at 2e-4, 13B at 1e-4.
    for (n, published) in [(125e6, 6e-4), (1.3e9, 2e-4), (13e9, 1e-4)] {
        let usual = super::rate::usual(n);
        assert!((0.6..1.7).contains(&(usual / published)), "{n}: {usual}");
    }
}

#[test]
fn the_critical_batch_is_kaplans() {
    // L(124M) = 2.78 by (8.8e13 / N)^0.076; 2e8 / 2.78^4.76 = 1.5M tokens.
    let critical = super::batch::critical(1.24e8);
    assert!((1.3e6..1.7e6).contains(&critical), "{critical}");
}

#[test]
fn every_poor_setting_of_the_list_is_told_and_its_change_mends_it() {
    let none = Sizes::default();
    mends("quickstart", &["lr=0.1"], none, "lr 0.1 is high");
    mends("quickstart", &["lr=1e-9"], KNOWN, "lr 1e-9 is low");
    mends(
        "dpo-demo",
        &["model.dropout=0.1"],
        none,
        "differ from its reference",
    );
    mends(
        "ppo-demo",
        &["model.dropout=0.1"],
        none,
        "differ from its reference",
    );
    mends(
        "quickstart",
        &["optimizer=lion", "optimizer.lion.lr=3e-3"],
        none,
        "is typical for AdamW",
    );
    mends(
        "quickstart",
        &[
            "optimizer=muon",
            "optimizer.muon.scale=original",
            "optimizer.muon.lr=3e-4",
        ],
        none,
        "Muon's original scale",
    );
    mends(
        "quickstart",
        &["max_steps=20"],
        none,
        "never reaches its peak",
    );
    mends(
        "quickstart",
        &["max_steps=1", "schedule.cosine.warmup_steps=1"],
        none,
        "warm-up takes 1 step of 1",
    );
    mends("quickstart", &["max_steps=300"], none, "below the peak");
    mends(
        "quickstart",
        &["schedule.cosine.warmup_steps=0"],
        none,
        "no warm-up",
    );
    let long = [
        "max_steps=100000",
        "schedule.cosine.warmup_steps=10",
        "optimizer.adamw.beta2=0.999",
    ];
    mends("quickstart", &long, none, "has settled");
    mends(
        "quickstart",
        &["optimizer.adamw.beta2=0.7"],
        none,
        "β1² ≥ β2",
    );
    mends(
        "quickstart",
        &["optimizer.adamw.beta2=0.9999"],
        none,
        "more than the run has",
    );
    mends(
        "quickstart",
        &["optimizer.adamw.eps=0.01"],
        none,
        "second moments",
    );
    mends(
        "quickstart",
        &["optimizer.adamw.weight_decay=10"],
        none,
        "weights lose",
    );
    mends(
        "quickstart",
        &["data.val_fraction=0.5"],
        none,
        "not trained on",
    );
    mends("quickstart", &["eval.every=0"], none, "only at the end");
    mends("quickstart", &["clip_norm=0"], none, "not clipped");
    mends("quickstart", &["n_head=32"], none, "too narrow to attend");
    mends(
        "quickstart",
        &["max_steps=5000", "checkpoint.every=0"],
        none,
        "only the last step",
    );
    let small = Sizes {
        val_tokens: Some(100),
        ..KNOWN
    };
    let few = "100 validation tokens";
    let fix = |share: &str| finds("quickstart", &[share], small, few).fix;
    // A larger share is no way out: it holds too few as well.
    for share in ["0.1", "0.2", "0.25", "0.9"] {
        let fix = fix(&format!("data.val_fraction={share}"));
        assert!(fix.starts_with("set data.val_path"), "{share}: {fix}");
    }
    // A plan knows the split, not the passes.
    let plan = Sizes {
        pass_tokens: None,
        val_tokens: Some(1_600),
        ..KNOWN
    };
    let found = finds("quickstart", &[], plan, "1,600 validation tokens");
    assert!(
        found.fix.contains("data.val_fraction=0.20"),
        "{}",
        found.fix
    );
    let little = Sizes {
        pass_tokens: Some(400_000),
        ..KNOWN
    };
    mends("quickstart", &[], little, "epochs over the same");
    // One step reads all of it sixteen times: fewer steps are no way.
    let once = Sizes {
        step_tokens: Some(65_536),
        pass_tokens: Some(4_096),
        ..KNOWN
    };
    let set = ["max_steps=1", "train.grad_accum_steps=16"];
    let found = finds("quickstart", &set, once, "16 epochs over the same");
    assert!(found.fix.ends_with("grad_accum_steps=1"), "{}", found.fix);
}

/// A ramp of 1,000 small steps was counted as large ones: a run of 3.5 passes was told that it makes 6.
#[test]
fn passes_count_the_small_batches_of_a_ramp() {
    let ramp = [
        "max_steps=2000",
        "train.grad_accum_steps=8",
        "train.batch_ramp=[{until_step: 1000, grad_accum_steps: 1}]",
    ];
    let sizes = |pass| Sizes {
        step_tokens: Some(8 * 768),
        pass_tokens: Some(pass),
        ..KNOWN
    };
    let told = "epochs over the same";
    let found = said("quickstart", &ramp, sizes(2_000_000));
    let found = found.iter().map(|f| f.evidence.to_string());
    assert!(found.into_iter().all(|words| !words.contains(told)));
    let found = finds("quickstart", &ramp, sizes(1_000_000), told);
    // 1,000 micro-steps of the ramp and 8,000 behind it, of 768 tokens each.
    let seen = found.evidence.to_string();
    assert!(seen.starts_with("6.9 epochs over"), "{seen}");
    // 5,208 micro-steps are four passes: the ramp's 1,000, and 8 in each step behind it.
    assert_eq!(found.changes(), ["max_steps=1526"]);
    mends("quickstart", &ramp, sizes(1_000_000), told);
}

/// What a finding says, without its numbers: the same finding may be told of other ones.
fn kind(found: &Finding) -> String {
    let words = found.evidence.to_string();
    let plain = words
        .split(' ')
        .filter(|w| !w.contains(|c: char| c.is_ascii_digit()));
    plain.collect::<Vec<_>>().join(" ")
}

/// An advised value was the one that was set, or a worse one: at a rate of 10 no decay of 0.1 or 0.007 is weak.
#[test]
fn what_is_advised_is_not_advised_against() {
    let rates = ["1e-9", "1e-4", "1e-2", "0.5", "10"];
    let decays = ["0", "7e-3", "0.013", "1", "10"];
    for optimizer in ["adamw", "adamw8bit", "lion", "muon"] {
        for steps in ["20", "150", "5000", "100000"] {
            for (lr, decay) in rates.iter().flat_map(|lr| decays.map(|decay| (lr, decay))) {
                let set = [
                    format!("optimizer={optimizer}"),
                    format!("optimizer.{optimizer}.lr={lr}"),
                    format!("optimizer.{optimizer}.weight_decay={decay}"),
                    format!("max_steps={steps}"),
                    "schedule.cosine.min_lr=0".into(),
                ];
                let set: Vec<&str> = set.iter().map(String::as_str).collect();
                for found in said("quickstart", &set, KNOWN) {
                    let Some(change) = found.changes().first().cloned() else {
                        continue;
                    };
                    let changed = [&set[..], &[&change]].concat();
                    let left = said("quickstart", &changed, KNOWN);
                    assert!(
                        left.iter().all(|f| kind(f) != kind(&found)),
                        "{changed:?}: {found:?}"
                    );
                    let seen = found.evidence.to_string();
                    assert!(!seen.contains("more than 1 steps"), "{seen}");
                }
            }
        }
    }
}

/// A step or a handful are no training: where four passes are no more, only more data help.
#[test]
fn so_few_steps_that_nothing_is_learned_are_no_advice() {
    let few = |pass| Sizes {
        step_tokens: Some(768),
        pass_tokens: Some(pass),
        ..KNOWN
    };
    let fix = |pass| finds("quickstart", &[], few(pass), "epochs over the same").fix;
    assert_eq!(fix(12), "more data");
    // Four passes in 99 steps, and in 101.
    assert_eq!(fix(768 * 99 / 4), "more data");
    assert_eq!(fix(768 * 101 / 4 + 1), "more data, or -s max_steps=101");
}

#[test]
fn few_rows_in_large_batches_leave_hardly_any_updates() {
    let told_of = |preset: &str, set: &[&str], rows_of_step: u64, rows: u64, starts: bool| {
        let mut spec = spec(preset, set).to_value();
        if starts {
            spec["train"]["from"] = "somewhere".into();
        }
        let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&spec)).unwrap();
        let sizes = Sizes {
            step_tokens: Some(1_024 * rows_of_step),
            pass_tokens: Some(1_024 * rows),
            ..KNOWN
        };
        let found = review(&spec, sizes);
        let hit = |f: &Finding| {
            f.evidence
                .to_string()
                .contains("in total: the model will hardly change")
        };
        found.into_iter().find(hit)
    };
    let told =
        |set: &[&str], rows_of_step, rows, starts| told_of("sft", set, rows_of_step, rows, starts);
    // 12 rows, three times, eight to a step.
    let found = told(&[], 8, 12, true).unwrap();
    let one = ["train.micro_batch_size=1", "train.grad_accum_steps=1"];
    assert!(found.evidence.to_string().starts_with("5 updates"));
    assert_eq!(found.changes(), one);
    assert!(told(&one, 1, 12, true).is_none());
    let two_to_a_step = told(&[], 8, 45, true).unwrap();
    assert_eq!(two_to_a_step.changes(), ["train.grad_accum_steps=1"]);
    assert!(told(&[], 8, 60, true).is_none());
    let longer = told(&one, 1, 1, true).unwrap();
    assert!(longer.fix.ends_with("-s epochs=4"), "{}", longer.fix);
    // Pairs are memorized sooner.
    let pairs = told_of("dpo", &one, 1, 1, true).unwrap();
    assert!(pairs.fix.ends_with("-s epochs=2"), "{}", pairs.fix);
    // A number of steps, and weights that begin at random, are as they were asked for.
    assert!(told(&["max_steps=3"], 8, 12, true).is_none());
    assert!(told(&[], 8, 12, false).is_none());
}

#[test]
fn large_models_are_held_against_the_literature() {
    let large = Sizes {
        step_tokens: Some(500_000),
        ..KNOWN
    };
    let all = ["data.tokenizer=bpe"];
    mends(
        "size-500m",
        &[&all[..], &["optimizer.adamw.beta2=0.999"]].concat(),
        large,
        "β2 0.999",
    );
    let huge = Sizes {
        step_tokens: Some(60_000_000),
        ..KNOWN
    };
    let found = finds(
        "size-100m",
        &[&all[..], &["train.grad_accum_steps=64"]].concat(),
        huge,
        "critical batch",
    );
    assert!(
        found.fix.starts_with("-s train.grad_accum_steps="),
        "{}",
        found.fix
    );
    let little = Sizes {
        step_tokens: Some(1_024),
        ..KNOWN
    };
    let found = finds("size-100m", &all, little, "mostly noise");
    assert!(
        found.fix.starts_with("-s train.grad_accum_steps="),
        "{}",
        found.fix
    );
    // A short trial, and letters, of which the fits know nothing.
    let short = said(
        "size-100m",
        &[&all[..], &["max_steps=100"]].concat(),
        little,
    );
    let letters = said("size-100m", &["data.tokenizer=char"], little);
    assert!(
        short
            .iter()
            .chain(&letters)
            .all(|f| !f.evidence.to_string().contains("critical"))
    );
    let usual = said("size-100m", &all, large);
    assert!(
        usual
            .iter()
            .all(|f| !f.evidence.to_string().contains("critical")),
        "{usual:?}"
    );
}

#[test]
fn adapters_have_a_rank_and_a_rate_of_their_own() {
    let on = "train.from=somewhere";
    let of = |words: &[&str], sizes: Sizes| -> Vec<Finding> {
        let mut spec = spec("sft-lora", words).to_value();
        spec["train"]["from"] = "somewhere".into();
        let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&spec)).unwrap();
        review(&spec, sizes)
    };
    let places = |found: &[Finding]| -> Vec<String> {
        found
            .iter()
            .map(|f| f.changes().first().cloned().unwrap_or_default())
            .collect()
    };
    assert_eq!(places(&of(&[], KNOWN)), Vec::<String>::new(), "{on}");
    assert_eq!(
        places(&of(&["lr=5e-6"], KNOWN)),
        ["optimizer.adamw.lr=2e-4"]
    );
    assert_eq!(
        places(&of(&["lr=1e-2"], KNOWN)),
        ["optimizer.adamw.lr=2e-4"]
    );
    assert_eq!(
        places(&of(
            &["adapter.lora.rank=100", "adapter.lora.alpha=100"],
            KNOWN
        )),
        ["adapter.lora.rank=16"]
    );
    assert_eq!(
        places(&of(&["adapter.lora.alpha=100"], KNOWN)),
        ["adapter.lora.alpha=16"]
    );
    assert_eq!(
        places(&of(&["method=pretrain"], KNOWN)),
        ["adapter.lora.rank=64"]
    );
    // Sizes of single modules: the first that is out of range is named.
    let of_one = |words: &[&str]| {
        let found = of(words, KNOWN);
        let found = found.iter().map(|f| format!("{} {}", f.evidence, f.fix));
        found.collect::<Vec<_>>().join("\n")
    };
    let wide = of_one(&[
        "adapter.lora.rank_pattern={.*0.*q_proj|.*0.*c_attn: 100}",
        "adapter.lora.alpha_pattern={.*0.*q_proj|.*0.*c_attn: 100}",
    ]);
    assert!(
        wide.contains("rank 100 of ") && wide.contains("rank_pattern"),
        "{wide}"
    );
    let loud = of_one(&["adapter.lora.alpha_pattern={.*0.*q_proj|.*0.*c_attn: 300}"]);
    assert!(
        loud.contains("_pattern") && loud.contains("alpha / rank of "),
        "{loud}"
    );
    let random = finds("sft-lora", &[], Sizes::default(), "random and stay random");
    assert!(random.fix.contains("-s train.from=MODEL"), "{}", random.fix);
}

#[test]
fn adapters_that_learn_preferences_have_ten_times_the_rate_of_all_weights() {
    let told = |preset: &str, words: &[&str]| -> Vec<String> {
        let mut spec = spec(preset, &[&["adapter=lora"], words].concat()).to_value();
        spec["train"]["from"] = "somewhere".into();
        let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&spec)).unwrap();
        let found = review(&spec, KNOWN);
        let rates = found.iter().filter(|f| f.place == "optimizer");
        rates.filter_map(|f| f.changes().first().cloned()).collect()
    };
    for preset in ["dpo", "kto", "simpo"] {
        assert_eq!(told(preset, &[]), ["optimizer.adamw.lr=1e-5"], "{preset}");
        assert!(told(preset, &["lr=1e-5"]).is_empty(), "{preset}");
    }
    assert_eq!(told("reward", &[]), ["optimizer.adamw.lr=1e-4"]);
}

#[test]
fn policies_learn_at_a_millionth_by_the_schedule_and_its_scale() {
    let told = |more: &[&str]| {
        let words: Vec<&str> = ["lr=1e-4"].iter().chain(more).copied().collect();
        let mut value = spec("grpo-gsm8k", &words).to_value();
        value["train"]["from"] = "somewhere".into();
        let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&value)).unwrap();
        let found = review(&spec, KNOWN);
        let rates = ["optimizer.adamw.lr=1e-6", "rollout.lr_scale=1e-2"];
        found
            .iter()
            .find_map(|f| rates.into_iter().find(|rate| f.changes() == [*rate]))
    };
    let large = ["n_layer=12", "d_model=1024", "n_head=16"];
    let scaled = |scale| told(&[&large[..], &[scale]].concat());
    assert_eq!(told(&large), Some("optimizer.adamw.lr=1e-6"));
    assert_eq!(
        scaled("rollout.lr_scale=0.5"),
        Some("rollout.lr_scale=1e-2")
    );
    // 1e-4 · 0.01 is typical.
    assert_eq!(scaled("rollout.lr_scale=0.01"), None);
    // A model of a million learns nothing at it.
    assert_eq!(told(&["n_layer=4", "d_model=128", "n_head=4"]), None);
}

/// Random weights learned nothing at a rate for the fine-tuning of large models, and nothing was said.
#[test]
fn random_weights_are_told_of_a_rate_of_fine_tuning_whatever_the_method() {
    let found = finds("sft", &[], KNOWN, "is low for");
    assert_eq!(found.place, "optimizer");
    mends("sft", &[], KNOWN, "is low for");
}

#[test]
fn a_cold_start_that_leaves_no_step_for_the_method_is_told_of() {
    let found = finds(
        "grpo-sort",
        &["max_steps=60"],
        KNOWN,
        "the cold start takes 250",
    );
    assert_eq!(
        found.ways(),
        [["max_steps=500"], ["rollout.cold_start_steps=30"]]
    );
    // What the fix names is no longer reported.
    for set in [
        &["max_steps=500"][..],
        &["max_steps=60", "rollout.cold_start_steps=30"],
        &[],
    ] {
        let found = said("grpo-sort", set, KNOWN);
        assert!(
            found.iter().all(|f| f.place != "rollout.cold_start_steps"),
            "{found:?}"
        );
    }
}

#[test]
fn a_source_that_a_mix_reads_again_and_again_is_named() {
    let set = ["method=sft"];
    let of = |set: &[&str], overall, sources: &[(&'static str, f64)]| {
        super::repeated(&spec("quickstart", set), overall, sources.iter().copied())
    };
    let found = of(&set, 1.2, &[("rows.json", 1.0), ("book.txt", 157.0)]);
    assert_eq!(found.len(), 1);
    let seen = found[0].evidence.to_string();
    assert!(
        seen.starts_with("book.txt is repeated for 157.0 epochs"),
        "{seen}"
    );
    assert_eq!(found[0].changes(), ["data.mix=concatenate"]);
    assert!(of(&set, 1.2, &[("a", 4.4), ("b", 0.5)]).is_empty());
    // All are read as often: the number of steps is what to change, and one source is no mix.
    assert!(of(&set, 9.0, &[("a", 9.5), ("b", 8.5)]).is_empty());
    assert!(of(&set, 1.0, &[("a", 9.0)]).is_empty());
}

#[test]
fn label_smoothing_that_no_loss_reads_is_told_of() {
    let words = "the loss does not use it";
    for loss in ["hinge", "ipo", "bco_pair", "apo_zero", "apo_down"] {
        let set = format!("method.dpo.loss={loss}");
        let set = [&*set, "method.dpo.label_smoothing=0.1"];
        let found = finds("dpo-demo", &set, KNOWN, words);
        assert!(found.evidence.to_string().contains(loss), "{found:?}");
        mends("dpo-demo", &set, KNOWN, words);
    }
    for reads in [
        "method.dpo.loss=sigmoid",
        "method.dpo.loss=robust",
        "method.dpo.mix=[{loss: robust, weight: 1}]",
    ] {
        let set = ["method.dpo.label_smoothing=0.1", reads];
        let found = said("dpo-demo", &set, KNOWN);
        assert!(
            found
                .iter()
                .all(|f| f.place != "method.dpo.label_smoothing"),
            "{found:?}"
        );
    }
}
