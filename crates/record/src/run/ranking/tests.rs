//! Rankings of runs.

use super::*;
use crate::run::objective::Contents;

fn trial(set: &[&str], loss: Option<f64>) -> Trial {
    Trial {
        run: Some("r".into()),
        seconds: Some(1.0),
        over: true,
        score: loss.map(|value| Score {
            metric: id::VAL_LOSS.into(),
            higher: false,
            value,
            step: 10,
            whole: None,
        }),
        ..Trial::new(set.iter().map(ToString::to_string).collect(), 10)
    }
}

fn path(key: &str) -> String {
    key.into()
}

#[test]
fn groups_are_ranked_by_the_mean_over_seeds() {
    let trials = [
        trial(&["lr=1", "seed=1"], Some(2.0)),
        trial(&["lr=1", "seed=2"], Some(2.0)),
        trial(&["lr=2", "seed=1"], Some(1.8)),
        trial(&["lr=2", "seed=2"], Some(2.0)),
    ];
    let groups = ranked(&trials);
    assert_eq!(groups[0].set, ["lr=2"]);
    assert!((groups[0].mean - 1.9).abs() < 1e-12);
    assert!((groups[0].deviation.unwrap() - 0.02_f64.sqrt()).abs() < 1e-12);
    let told = caveats(&trials, &groups, path);
    assert!(told[0].contains("lr=2 is the highest value"), "{told:?}");
    assert!(
        told[1].contains("differ by 0.1000, within the spread of seeds (0.1414)"),
        "{told:?}"
    );
}

#[test]
fn a_setting_with_a_diverged_seed_ranks_behind_whole_ones() {
    let trials = [
        trial(&["lr=1", "seed=1"], Some(2.0)),
        trial(&["lr=1", "seed=2"], Some(2.0)),
        trial(&["lr=9", "seed=1"], Some(1.0)),
        trial(&["lr=9", "seed=2"], None),
    ];
    let groups = ranked(&trials);
    assert_eq!(groups[0].set, ["lr=1"]);
    assert_eq!((groups[1].runs, groups[1].without), (1, 1));
    assert_eq!(groups[1].members, [2, 3]);
}

#[test]
fn a_run_that_diverged_is_no_result_to_take_whatever_it_reached_before() {
    let mut trials = [trial(&["lr=1"], Some(2.0)), trial(&["lr=10"], Some(1.5))];
    trials[1].verdict = Some("DIVERGED".into());
    let groups = ranked(&trials);
    assert_eq!(
        (groups.len(), groups[0].set.clone()),
        (1, vec!["lr=1".to_string()])
    );
    let told = caveats(&trials, &groups, path);
    assert!(told[0].contains("lowest"), "{told:?}");
}

/// Half-way a high rate often leads.
#[test]
fn a_run_on_its_way_is_not_ranked() {
    let mut trials = [trial(&["lr=1"], Some(2.0)), trial(&["lr=2"], Some(1.5))];
    trials[1].over = false;
    let groups = ranked(&trials);
    assert_eq!((groups.len(), &groups[0].members[..]), (1, &[0][..]));
}

#[test]
fn higher_is_better_where_the_reading_says_so() {
    let mut trials = [
        trial(&["method=a"], Some(0.5)),
        trial(&["method=b"], Some(0.7)),
    ];
    for trial in &mut trials {
        let score = trial.score.as_mut().unwrap();
        (score.higher, score.metric) = (true, id::PASS_AT_1.into());
    }
    let groups = ranked(&trials);
    assert_eq!(groups[0].set, ["method=b"]);
    let told = caveats(&trials, &groups, path);
    assert!(
        told.len() == 1 && told[0].contains("one seed each"),
        "{told:?}"
    );
}

/// A sweep ranked by other numbers than `runs` shows.
#[test]
fn whole_split_values_rank_where_every_run_has_one() {
    let mut trials = [trial(&["lr=1"], Some(2.0)), trial(&["lr=2"], Some(2.1))];
    for (trial, whole) in trials.iter_mut().zip([1.9, 1.8]) {
        trial.score.as_mut().unwrap().whole = Some(whole);
    }
    let mut mixed = trials.clone();
    mixed[0].score.as_mut().unwrap().whole = None;
    settle(&mut trials);
    let groups = ranked(&trials);
    assert_eq!((groups[0].mean, &groups[0].set[0][..]), (1.8, "lr=2"));
    let told = caveats(&trials, &groups, path);
    assert!(!told.iter().any(|line| line.contains("eval.batches")));
    settle(&mut mixed);
    let groups = ranked(&mixed);
    assert_eq!((groups[0].mean, &groups[0].set[0][..]), (2.0, "lr=1"));
    let told = caveats(&mixed, &groups, path);
    assert!(
        told.iter().any(|line| line.contains("over eval.batches")),
        "{told:?}"
    );
}

/// What [`in_one_unit`] says of trials with these methods and tokenizers.
fn unit(trials: &mut [Trial], of: &[(&str, &str)]) -> Result<Vec<&'static str>, String> {
    let specs: Vec<serde_json::Value> = of
            .iter()
            .map(|(method, tokenizer)| {
                serde_json::json!({"method": {*method: {}}, "data": {"tokenizer": *tokenizer}})
            })
            .collect();
    in_one_unit_of(trials, of.iter().map(|(method, _)| *method), &specs)
}

fn in_one_unit_of<'a>(
    trials: &mut [Trial],
    methods: impl Iterator<Item = &'a str>,
    specs: &[serde_json::Value],
) -> Result<Vec<&'static str>, String> {
    let contents: Vec<Contents> = specs.iter().map(Contents::of_spec).collect();
    let runs: Vec<Objective<'_>> = methods
        .zip(specs.iter().zip(&contents))
        .map(|(method, (spec, contents))| Objective {
            method,
            spec,
            contents,
        })
        .collect();
    in_one_unit(trials, &runs)
}

/// The smaller vocabulary, with more tokens for the same text, won by its loss per token.
#[test]
fn runs_of_different_tokenizers_are_ranked_by_bits_per_byte() {
    let of = [("pretrain", "small"), ("pretrain", "large")];
    let mut trials = [
        trial(&["vocab=500"], Some(2.0)),
        trial(&["vocab=5000"], Some(3.0)),
    ];
    let said = unit(&mut trials.clone(), &of).unwrap_err();
    assert!(
        said.contains("different tokenizers") && said.contains("val/bpb"),
        "{said}"
    );
    trials[0].bits_per_nat = Some(0.9);
    trials[1].bits_per_nat = Some(0.5);
    trials[1].score.as_mut().unwrap().whole = Some(2.8);
    let told = unit(&mut trials, &of).unwrap();
    assert!(
        told[0].contains("bits per byte") && told.len() == 1,
        "{told:?}"
    );
    let groups = ranked(&trials);
    assert_eq!((groups[0].mean, &groups[0].set[0][..]), (1.5, "vocab=5000"));
    let score = trials[1].score.as_ref().unwrap();
    assert_eq!((&score.metric[..], score.whole), ("val/bpb", Some(1.4)));
    // Of one tokenizer nothing changes.
    let mut alike = [trial(&["lr=1"], Some(2.0)), trial(&["lr=2"], Some(3.0))];
    assert_eq!(unit(&mut alike, &[of[0], of[0]]), Ok(vec![]));
    assert_eq!(alike[0].score.as_ref().unwrap().metric, "val/loss");
}

#[test]
fn losses_of_different_methods_and_different_readings_are_not_ranked() {
    let of = [("sft", "t"), ("dpo", "t")];
    let mut trials = [
        trial(&["method=sft"], Some(2.0)),
        trial(&["method=dpo"], Some(0.5)),
    ];
    assert_eq!(unit(&mut trials, &of), Err("different losses".into()));
    let score = trials[1].score.as_mut().unwrap();
    (score.metric, score.higher) = (id::VAL_ACCURACIES.into(), true);
    let said = unit(&mut trials, &of).unwrap_err();
    assert!(said.contains("val/loss, val/rewards/accuracies"), "{said}");
    let score = trials[0].score.as_mut().unwrap();
    (score.metric, score.higher) = (id::VAL_ACCURACIES.into(), true);
    assert_eq!(unit(&mut trials, &of), Ok(vec![]));
    // One that diverged is no result.
    trials[1].verdict = Some(DIVERGED.into());
    trials[0].score.as_mut().unwrap().metric = id::VAL_LOSS.into();
    assert_eq!(unit(&mut trials, &of), Ok(vec![]));
}

#[test]
fn runs_of_other_data_than_the_best_are_marked_and_a_line_says_so() {
    let on = |path: &str| serde_json::json!({"method": {"sft": {}}, "data": {"path": path}});
    let mut trials = [
        trial(&["path=a"], Some(2.0)),
        trial(&["path=b"], Some(1.5)),
        trial(&["path=b", "lr=9"], None),
    ];
    let specs = ["a", "b", "b"].map(on);
    let told = in_one_unit_of(&mut trials, ["sft"; 3].into_iter(), &specs).unwrap();
    assert!(
        told.len() == 1 && told[0].contains("other data"),
        "{told:?}"
    );
    let marked = [true, false, false];
    assert_eq!(trials.each_ref().map(|trial| trial.other_data), marked);
    let specs = ["a", "a", "b"].map(on);
    let told = in_one_unit_of(&mut trials, ["sft"; 3].into_iter(), &specs).unwrap();
    assert!(
        told.is_empty(),
        "one that is not ranked needs no line: {told:?}"
    );
}

/// The best single run, and the best values over a part of the split, were of other data than the first of the ranking.
#[test]
fn the_data_of_the_first_run_of_the_ranking_are_no_other_data() {
    let on = |path: &str| serde_json::json!({"method": {"sft": {}}, "data": {"path": path}});
    let mut seeds = [
        trial(&["path=a", "seed=1"], Some(1.0)),
        trial(&["path=a", "seed=2"], Some(3.0)),
        trial(&["path=b", "seed=1"], Some(1.5)),
        trial(&["path=b", "seed=2"], Some(1.6)),
    ];
    let specs = ["a", "a", "b", "b"].map(on);
    in_one_unit_of(&mut seeds, ["sft"; 4].into_iter(), &specs).unwrap();
    let marked = seeds.each_ref().map(|trial| trial.other_data);
    assert_eq!(marked, [true, true, false, false]);
    assert_eq!(ranked(&seeds)[0].set, ["path=b"]);
    let mut whole = [trial(&["path=a"], Some(2.0)), trial(&["path=b"], Some(2.1))];
    for (trial, value) in whole.iter_mut().zip([1.9, 1.8]) {
        trial.score.as_mut().unwrap().whole = Some(value);
    }
    let specs = ["a", "b"].map(on);
    in_one_unit_of(&mut whole, ["sft"; 2].into_iter(), &specs).unwrap();
    assert_eq!(
        whole.each_ref().map(|trial| trial.other_data),
        [true, false]
    );
    // What is shown is settled later.
    assert_eq!(whole[0].score.as_ref().unwrap().value, 2.0);
}

#[test]
fn a_best_value_between_others_is_at_no_end() {
    let trials = [
        trial(&["lr=1"], Some(2.0)),
        trial(&["lr=2"], Some(1.0)),
        trial(&["lr=3"], Some(1.5)),
    ];
    assert!(at_the_end("lr=2", &trials).is_none());
    // A higher one that diverged was tried as well.
    let trials = [
        trial(&["lr=2"], Some(1.0)),
        trial(&["lr=3"], None),
        trial(&["lr=1"], Some(2.0)),
    ];
    assert!(at_the_end("lr=2", &trials).is_none());
    assert_eq!(ranked(&[trial(&["lr=1"], None)]), []);
}

/// It advised more threads, and more of what made no difference.
#[test]
fn the_end_of_a_list_is_told_only_where_a_better_value_may_lie_beyond() {
    let ends = |trials: &[Trial]| {
        let told = caveats(trials, &ranked(trials), path);
        told.iter().any(|line| line.contains("that was tried"))
    };
    let pair = |key: &str, losses: [Option<f64>; 2]| {
        [1, 2].map(|value| trial(&[&format!("{key}={value}")], losses[value - 1]))
    };
    let differ = [Some(2.0), Some(1.5)];
    assert!(ends(&pair("optimizer.adamw.lr", differ)));
    assert!(!ends(&pair("optimizer.adamw.lr", [Some(2.0); 2])), "a tie");
    let mut alone = pair("optimizer.adamw.lr", [Some(2.0), None]);
    assert!(!ends(&alone), "nothing is known of the other");
    alone[1].verdict = Some(DIVERGED.into());
    assert!(ends(&alone), "the other is worse");
    for key in [
        "eval.every",
        "checkpoint.keep_last",
        "sample.every",
        "train.log_every",
        "train.threads",
        "train.max_steps",
    ] {
        assert!(!ends(&pair(key, differ)), "{key}");
    }
}
