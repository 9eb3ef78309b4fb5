//! What the review advises can be typed: the spec loads with it.

use super::*;

/// Every change of every finding, alone and together with the others of its finding, is taken.
fn all_load(preset: &str, set: &[&str], sizes: Sizes) -> Vec<Finding> {
    let found = said(preset, set, sizes);
    for finding in &found {
        let changes = finding.changes();
        let changes = changes.iter().map(String::as_str);
        let all: Vec<String> = set
            .iter()
            .copied()
            .chain(changes)
            .map(String::from)
            .collect();
        if let Err(errors) = load(preset, &all, &SpecSources::default()) {
            panic!("{preset} {all:?}: {errors}, advised by {finding:?}");
        }
    }
    found
}

fn fix_at(found: &[Finding], place: &str) -> String {
    let hit = found.iter().find(|finding| finding.place == place);
    hit.unwrap_or_else(|| panic!("nothing at {place}: {found:?}"))
        .fix
        .clone()
}

/// Presets beside sizes of all kinds, and settings that are poor in many ways.
#[test]
fn whatever_is_advised_loads() {
    let sizes = [
        Sizes::default(),
        KNOWN,
        Sizes {
            pass_tokens: Some(3_000),
            val_tokens: Some(100),
            held_out: Some(0.1),
            labels: Some((2, 90_000)),
            ..KNOWN
        },
        Sizes {
            step_tokens: Some(60_000_000),
            pass_tokens: Some(1_000),
            val_tokens: Some(3),
            held_out: Some(0.4),
            labels: Some((900_000, 1)),
            ..KNOWN
        },
    ];
    let settings: &[&[&str]] = &[
        &[],
        &["max_steps=40"],
        &["max_steps=90000"],
        &["lr=0.5"],
        &["lr=1e-9"],
        &[
            "model.d_model=100",
            "model.n_head=10",
            "model.n_kv_head=null",
        ],
        &["model.d_model=128", "model.n_head=16", "model.n_kv_head=8"],
        &["model.d_model=64", "model.n_head=8", "model.n_kv_head=8"],
        &["model.n_head=2", "model.n_kv_head=2", "model.head_dim=8"],
        &["data.val_rows=20"],
        &["model.dropout=0.1"],
        &["clip_norm=0"],
    ];
    let presets = [
        "quickstart",
        "sft-demo",
        "sft-lora-demo",
        "dpo-demo",
        "kto-demo",
        "orpo-demo",
        "reward-demo",
        "grpo-sort",
        "ppo-demo",
        "cpt-demo",
        "size-100m",
    ];
    let mut told = 0;
    for preset in presets {
        for set in settings {
            let words: Vec<String> = set.iter().map(ToString::to_string).collect();
            // Not every preset takes every setting.
            if load(preset, &words, &SpecSources::default()).is_err() {
                continue;
            }
            for sizes in sizes {
                told += all_load(preset, set, sizes).len();
            }
        }
    }
    assert!(told > 300, "{told}");
}

#[test]
fn fewer_heads_divide_what_is_there() {
    let heads = |set: &[&str]| {
        let found = all_load("quickstart", set, KNOWN);
        fix_at(&found, "model.n_head")
    };
    let odd = ["model.d_model=100", "model.n_head=10"];
    assert_eq!(heads(&odd), "-s model.n_head=2 -s model.n_kv_head=2");
    let grouped = ["model.d_model=128", "model.n_head=16", "model.n_kv_head=8"];
    assert_eq!(heads(&grouped), "-s model.n_head=4 -s model.n_kv_head=2");
    let said_so = ["model.n_head=4", "model.head_dim=8"];
    assert_eq!(heads(&said_so), "-s model.head_dim=32");
}

/// The heads of a base are what they are.
#[test]
fn a_base_is_told_nothing_of_its_heads() {
    let mut value = spec("quickstart", &["n_head=32"]).to_value();
    value["train"]["from"] = "somewhere".into();
    let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&value)).unwrap();
    let found = review(&spec, KNOWN);
    assert!(found.iter().all(|f| f.place != "model.n_head"), "{found:?}");
}

#[test]
fn weights_of_answers_stay_in_their_range() {
    let labels = |labels| Sizes {
        labels: Some(labels),
        ..KNOWN
    };
    let found = all_load("kto-demo", &[], labels((1, 2_000)));
    assert_eq!(
        fix_at(&found, "method.kto.desirable_weight"),
        "-s method.kto.desirable_weight=1000 -s method.kto.undesirable_weight=0.5"
    );
    for counts in [(1, 2_000), (90_000_000, 1)] {
        let found = all_load("kto-demo", &[], labels(counts));
        let fix = fix_at(&found, "method.kto.desirable_weight");
        let made: Vec<&str> = fix
            .split("-s ")
            .map(str::trim)
            .filter(|w| !w.is_empty())
            .collect();
        let left = said("kto-demo", &made, labels(counts));
        let told = |f: &Finding| f.place == "method.kto.desirable_weight";
        assert!(!left.iter().any(told), "{left:?}");
    }
}

/// A judged answer needs another beside it, and a batch ramp has stages below the step that it leads to.
#[test]
fn smaller_batches_are_those_that_a_method_and_a_ramp_take() {
    let few = Sizes {
        step_tokens: Some(1_024 * 8),
        pass_tokens: Some(1_024 * 12),
        ..KNOWN
    };
    let of = |preset: &str, set: &[&str]| {
        let mut value = spec(preset, set).to_value();
        value["train"]["from"] = "somewhere".into();
        let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&value)).unwrap();
        fix_at(&review(&spec, few), "train")
    };
    let rows = ["epochs=3", "micro_batch_size=8", "grad_accum_steps=1"];
    let fix = of("kto", &rows);
    assert!(fix.ends_with("-s train.micro_batch_size=2"), "{fix}");
    let ramp = [
        "epochs=3",
        "micro_batch_size=1",
        "grad_accum_steps=8",
        "train.batch_ramp=[{until_step: 10, grad_accum_steps: 2}]",
    ];
    let fix = of("sft", &ramp);
    assert!(fix.ends_with("-s train.grad_accum_steps=3"), "{fix}");
}

/// 200 tokens in 20 of 200 rows: 400 rows for some thousand tokens were advised, and one row was left to learn from.
#[test]
fn no_more_rows_are_held_out_than_leave_data_to_train_on() {
    let of = |share| Sizes {
        val_tokens: Some(200),
        held_out: Some(share),
        ..KNOWN
    };
    let fix = |share| {
        let found = all_load("sft-demo", &["data.val_rows=20"], of(share));
        let few = found
            .iter()
            .find(|f| f.evidence.to_string().contains("200 validation tokens"));
        few.unwrap().fix.clone()
    };
    assert!(fix(0.1).starts_with("-s data.val_rows=40,"), "{}", fix(0.1));
    assert!(fix(0.3).starts_with("set data.val_path"), "{}", fix(0.3));
    // Of many rows, as many as it takes.
    assert!(
        fix(0.001).starts_with("-s data.val_rows=400,"),
        "{}",
        fix(0.001)
    );
}

/// Of 40 prompts one was held out, and the best checkpoint and the verdict went by it.
#[test]
fn a_share_of_right_answers_over_few_prompts_is_told_of() {
    let few = |val_prompts, words: &[&str]| {
        let sizes = Sizes {
            val_prompts,
            ..Sizes::default()
        };
        let found = said("grpo-gsm8k", words, sizes).into_iter();
        found
            .filter(|f| f.evidence.to_string().contains("held-out prompt"))
            .map(|f| (f.evidence.to_string(), f.fix))
            .collect::<Vec<_>>()
    };
    let (what, _) = few(Some((1, 40)), &[]).remove(0);
    assert!(what.starts_with("1 held-out prompt: "), "{what}");
    let (what, fix) = few(Some((4, 400)), &[]).remove(0);
    assert!(what.contains("in steps of 25 %"), "{what}");
    assert!(fix.starts_with("-s data.val_rows=20,"), "{fix}");
    // Of so few not enough can be spared: 8 of them, as it once said, are told of again.
    for held_out in [1, 8] {
        let (_, fix) = few(Some((held_out, 40)), &[]).remove(0);
        assert_eq!(
            fix,
            "set data.val_path to 20 prompts or more of its own: of 40 too few can be held out"
        );
    }
    for quiet in [None, Some((0, 40)), Some((20, 400))] {
        assert!(few(quiet, &[]).is_empty(), "{quiet:?}");
    }
    assert!(few(Some((1, 40)), &["eval.every=0"]).is_empty());
}

/// Adapters have dropout by default: where passes without any are compared with, it is named; elsewhere it stays.
#[test]
fn dropout_of_adapters_is_named_where_policies_are_compared() {
    let adapter = "adapter.lora.rank=4";
    let words = "dropout 0.05 makes the policy differ";
    let ppo = [adapter, "method.ppo.beta=0", "method.ppo.kl_target=null"];
    for (preset, set) in [
        ("dpo-demo", &[adapter][..]),
        ("grpo-sort", &[adapter]),
        ("ppo-demo", &ppo),
    ] {
        let found = finds(preset, set, Sizes::default(), words);
        assert_eq!(found.fix, "-s adapter.lora.dropout=0");
        let off = [set, &["adapter.lora.dropout=0"]].concat();
        let found = said(preset, &off, Sizes::default());
        assert!(found.iter().all(|f| f.place != "adapter.lora.dropout"));
    }
    let found = said("sft-lora-demo", &[], Sizes::default());
    assert!(found.iter().all(|f| f.place != "adapter.lora.dropout"));
}
