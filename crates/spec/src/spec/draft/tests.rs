//! Edits of a spec, and the file that they become.

use super::*;
use crate::spec::load_text;

fn draft() -> Draft {
    Draft::open("quickstart", &SpecSources::default()).unwrap()
}

#[test]
fn what_is_written_is_small_says_why_and_loads_to_the_same_spec() {
    let mut draft = draft();
    draft
        .set("train.max_steps", "500", "a quarter of the time")
        .unwrap();
    draft.set("optimizer.adamw.lr", "5e-4", "").unwrap();
    draft
        .set("model.position", "rope", "today's habit")
        .unwrap();
    draft.set("seed", "1337", "the same as before").unwrap();
    let text = draft.to_yaml(&["Made by hand.".into()]);
    assert_eq!(
        text,
        "# Made by hand.\nextends: quickstart\nname: quickstart\nmodel:\n  # today's habit\n  position: rope\ntrain:\n  \
         # a quarter of the time\n  max_steps: 500\noptimizer:\n  adamw:\n    lr: 0.0005\n"
    );
    let loaded = load_text("mine.yaml", &text, &SpecSources::default()).unwrap();
    assert_eq!(loaded.spec, draft.spec().unwrap());
}

#[test]
fn a_map_of_own_names_is_one_value_in_its_order() {
    let mut draft = draft();
    let (path, text) = (
        "adapter.lora.rank_pattern",
        "{layers.0.*: 2, attn.c_attn: 16}",
    );
    draft.set("model.position", "rope", "").unwrap();
    draft.set("adapter", "lora", "").unwrap();
    draft.set(path, text, "early layers change little").unwrap();
    assert_eq!(
        shown(&draft.value(path)),
        r#"{"layers.0.*":2,"attn.c_attn":16}"#
    );
    // As a form hands it back.
    let again = shown(&draft.value(path));
    draft
        .set(path, &again, "early layers change little")
        .unwrap();
    let text = draft.to_yaml(&[]);
    assert!(text.contains("# early layers change little"), "{text}");
    let loaded = load_text("mine.yaml", &text, &SpecSources::default());
    // No module of this model is called so, and each pattern that has none is named with its line.
    let error = loaded.unwrap_err().to_string();
    assert!(error.contains("`attn.c_attn` is the end of no"), "{error}");
    let sized = "{layers.0.*: 2, self_attn.q_proj: 16}";
    draft.set(path, sized, "").unwrap();
    let loaded = load_text("mine.yaml", &draft.to_yaml(&[]), &SpecSources::default()).unwrap();
    assert_eq!(loaded.spec, draft.spec().unwrap());
    let written = loaded.spec.to_yaml();
    assert_eq!(
        crate::spec::RunSpec::from_yaml(&written).unwrap(),
        loaded.spec
    );
    for (text, what) in [
        ("{q_proj: 0}", "`q_proj`: 0 is too small"),
        ("{q_proj: two}", "`q_proj`: expected a whole number"),
        ("16", "expected a map, each value a whole number"),
    ] {
        let issue = draft.set(path, text, "").unwrap_err();
        assert!(issue.what.contains(what), "{issue}");
    }
}

#[test]
fn a_bad_value_is_refused_with_its_reason_and_changes_nothing() {
    let mut draft = draft();
    let before = draft.to_yaml(&[]);
    let issue = draft.set("train.max_steps", "0", "").unwrap_err();
    assert_eq!(issue.path, "train.max_steps");
    assert!(issue.what.contains("too small"), "{issue}");
    assert!(draft.set("optimizer", "adamv", "").is_err());
    assert_eq!(draft.to_yaml(&[]), before);
}

#[test]
fn a_value_kept_against_what_another_edit_implies_is_written() {
    let mut draft = draft();
    let floor = "schedule.cosine.min_lr";
    let kept = shown(&draft.value(floor));
    draft.set("optimizer.adamw.lr", "2e-3", "").unwrap();
    assert_eq!(shown(&draft.value(floor)), "2e-4", "scaled with the peak");
    draft.set(floor, &kept, "").unwrap();
    let paths: Vec<String> = draft.changes().into_iter().map(|c| c.path).collect();
    assert_eq!(paths, ["optimizer.adamw.lr", floor]);
    let text = draft.to_yaml(&[]);
    let loaded = load_text("mine.yaml", &text, &SpecSources::default()).unwrap();
    assert_eq!(loaded.spec, draft.spec().unwrap(), "{text}");
}

#[test]
fn contradictions_are_issues_of_their_fields() {
    let mut draft = draft();
    draft.set("model.n_head", "3", "").unwrap();
    let issues = draft.issues();
    assert!(
        issues.iter().any(|i| i.path == "model.n_head"),
        "{issues:?}"
    );
    assert!(draft.spec().is_err());
    draft.reset("model.n_head");
    assert!(draft.issues().is_empty() && draft.changes().is_empty());
}

#[test]
fn another_member_brings_its_own_settings_and_drops_the_old_ones() {
    let mut draft = draft();
    draft.set("schedule.cosine.warmup_steps", "7", "").unwrap();
    draft.set("schedule", "linear", "").unwrap();
    let paths: Vec<String> = draft.places().into_iter().map(|p| p.path).collect();
    assert!(paths.contains(&"schedule.linear.warmup_steps".to_string()));
    assert!(!paths.iter().any(|p| p.contains("cosine")));
    assert_eq!(draft.value("schedule"), "linear");
    assert_eq!(
        draft.resolve_wildcard("schedule.*.warmup_steps").as_deref(),
        Some("schedule.linear.warmup_steps")
    );
    assert!(draft.to_yaml(&[]).contains("schedule: linear"));
}

#[test]
fn the_newer_of_two_edits_that_say_the_same_in_different_ways_counts() {
    const STEPS: &str = "schedule.cosine.warmup_steps";
    const RATIO: &str = "train.warmup_ratio";
    let edits = |edits: &[(&str, &str)]| {
        let mut draft = draft();
        for (path, text) in edits {
            draft.set(path, text, "").unwrap();
        }
        assert!(draft.issues().is_empty(), "{:?}", draft.issues());
        let paths: Vec<String> = draft.edited().map(String::from).collect();
        paths
    };
    assert_eq!(edits(&[(STEPS, "50"), (RATIO, "0.1")]), [RATIO]);
    assert_eq!(edits(&[(RATIO, "0.1"), (STEPS, "50")]), [STEPS]);
    let (epochs, steps) = ("train.epochs", "train.max_steps");
    assert_eq!(edits(&[(steps, "300"), (epochs, "2")]), [epochs]);
    assert_eq!(
        edits(&[(STEPS, "50"), (RATIO, "null")]),
        [STEPS, RATIO],
        "taking a value back replaces nothing"
    );
}

#[test]
fn every_place_has_a_value_and_an_origin() {
    let draft = draft();
    let places = draft.places();
    let lr = places.iter().find(|p| p.path == "optimizer.adamw.lr");
    let lr = lr.unwrap();
    assert_eq!((shown(&lr.value), lr.edited), ("0.001".into(), false));
    assert!(matches!(&lr.origin, Origin::File { name, .. } if name.contains("quickstart")));
    assert_eq!(shown(&draft.value("model.d_ff")), "auto");
    for (path, value) in [
        ("model.parallel_residual", "false"),
        ("model.global_first", "false"),
        ("model.qk_norm_over", "head"),
        // The method's, and of a section that is off.
        ("model.head", "auto"),
        ("model.moe.n_expert", "auto"),
    ] {
        let place = places.iter().find(|place| place.path == path).unwrap();
        assert_eq!(shown(&place.value), value, "{path}");
    }
    assert_eq!(shown(&draft.value("sample.prompt")), "\"\"");
}

#[test]
fn numbers_are_shown_as_people_type_them() {
    for (x, text) in [(1e-4, "1e-4"), (0.001, "0.001"), (3.0, "3"), (0.0, "0")] {
        assert_eq!(number(x), text);
        assert_eq!(text.parse::<f64>().unwrap(), x);
    }
    assert_eq!(number(5.000000000000001e-7), "5e-7");
}
