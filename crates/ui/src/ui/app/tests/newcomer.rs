//! What somebody meets who uses the workbench for the first time: long lists, letters that are text, pipelines as one, exports.

use super::*;
use crate::run::state::Level;
use crate::ui::msg::{PipelineStatus, StageOf};

/// The question of the method after a start model was only described: every method stands there with its reason.
fn at_the_method(bench: &mut Bench) {
    bench.wizard().press("down enter down enter enter");
    let picture = bench.picture(120, 40);
    assert!(picture.contains("How should it learn?"), "{picture}");
}

#[test]
fn methods_stand_under_headings_and_letters_find_one() {
    let mut bench = Bench::new();
    at_the_method(&mut bench);
    let picture = bench.picture(120, 48);
    let at = |words: &str| {
        picture
            .find(words)
            .unwrap_or_else(|| panic!("{words}: {picture}"))
    };
    assert!(
        at("recommended for these answers") < at("not with these answers"),
        "{picture}"
    );
    assert!(picture.contains("type to find one"), "{picture}");
    // `q`, `j` and `?` are letters here, and the list follows them.
    let picture = bench.write("grpo").picture(120, 48);
    assert!(picture.contains("grpo  1 of "), "{picture}");
    assert!(
        picture.contains("GRPO") && !picture.contains("KTO  "),
        "{picture}"
    );
    let picture = bench.write("?q").picture(120, 48);
    assert!(picture.contains("grpo?q  0 of "), "{picture}");
    // Nothing is chosen that is not on the screen.
    let picture = bench.press("enter").picture(120, 48);
    assert!(picture.contains("grpo?q  0 of "), "{picture}");
    let picture = bench.press("esc").picture(120, 48);
    assert!(picture.contains("type to find one"), "{picture}");
    bench.press("home");
    for size in [(80, 24), (160, 48)] {
        let picture = bench.picture(size.0, size.1);
        assert!(picture.contains("recommended for these"), "{picture}");
    }
}

/// `q` closed the wizard, with all answers, where a path was asked for and another row was selected.
#[test]
fn every_letter_begins_a_path_where_one_is_asked_for() {
    let mut bench = Bench::new();
    bench.wizard().press("enter");
    let picture = bench.write("q?jsk.txt").picture(120, 40);
    assert!(picture.contains("q?jsk.txt"), "{picture}");
    assert!(
        picture.contains("What data should it learn from?"),
        "{picture}"
    );
}

fn staged() -> Bench {
    let run = runs().remove(0);
    let stages = ["base", "sft", "rl"];
    let mut listed = Vec::new();
    let mut of = std::collections::BTreeMap::new();
    for (at, stage) in stages.iter().enumerate() {
        let mut one = run.clone();
        one.id = format!("2026-11-21-10{at}0-speedrun-{stage}-zz{at}z");
        one.created_as = one.id.clone();
        one.path = format!("runs/{}", one.id).into();
        one.created = UnixMillis(run.created.0 + 1_000 * at as u64);
        one.status = match at {
            2 => crate::run::index::RunStatus::Live,
            _ => crate::run::index::RunStatus::Finished,
        };
        of.insert(
            one.id.clone(),
            StageOf {
                id: "speedrun-x7ka".into(),
                pipeline: "speedrun".into(),
                stage: (*stage).into(),
                number: at + 1,
                n_stages: 5,
                is_over: at < 2,
                standing: PipelineStatus::Running,
                next: None,
                live: None,
                outputs: Vec::new(),
            },
        );
        listed.insert(0, one);
    }
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((listed, Vec::new()))));
    bench.msg(Msg::Stages(of));
    bench
}

/// Five runs of one pipeline stood there as if they had nothing to do with each other.
#[test]
fn a_pipeline_is_one_run_with_its_stage_and_its_earlier_ones_unfold() {
    for (width, height) in [(80, 24), (160, 48)] {
        let mut bench = staged();
        let picture = bench.picture(width, height);
        assert!(picture.contains("speedrun-rl-zz2z 3/5"), "{picture}");
        assert!(
            picture.contains("2 earlier stages of pipeline speedrun"),
            "{picture}"
        );
        assert!(!picture.contains("speedrun-sft-zz1z"), "{picture}");
        let picture = bench.press("down enter").picture(width, height);
        assert!(picture.contains("speedrun-sft-zz1z 2/5"), "{picture}");
        assert!(picture.contains("speedrun-base-zz0z 1/5"), "{picture}");
        let picture = bench.press("enter").picture(width, height);
        assert!(!picture.contains("speedrun-sft-zz1z"), "{picture}");
        // Who filters looks for one of them.
        let picture = bench.press("/").write("sft-zz1z").picture(width, height);
        assert!(picture.contains("speedrun-sft-zz1z"), "{picture}");
    }
}

#[test]
fn a_run_is_exported_from_home() {
    let mut bench = Bench::new();
    bench.runs().press("x");
    let picture = bench.picture(80, 24);
    assert!(picture.contains("export shakespeare-k3qf"), "{picture}");
    assert!(
        picture.contains("PEFT adapter") && picture.contains("GGUF file"),
        "{picture}"
    );
    bench.write("q8_0").press("enter");
    let picture = bench.picture(80, 24);
    assert!(
        picture.contains("exports/shakespeare-k3qf-gguf-q8_0"),
        "{picture}"
    );
    bench.press("enter");
    let to = PathBuf::from("exports/shakespeare-k3qf-gguf-q8_0");
    let wanted = Effect::ExportRun {
        run_dir: "runs/2026-11-21-1040-shakespeare-k3qf".into(),
        options: ["--format", "gguf", "--dtype", "q8_0"]
            .map(String::from)
            .into(),
        to: to.clone(),
    };
    assert!(bench.effects.contains(&wanted), "{:?}", bench.effects);
    bench.msg(Msg::RunExported {
        to: to.clone(),
        result: Ok(()),
    });
    assert!(
        bench.app.toasts.said()[0]
            .1
            .contains("exported to exports/")
    );
    let why = "x is not empty; try: choose another folder";
    bench.msg(Msg::RunExported {
        to,
        result: Err(why.into()),
    });
    assert_eq!(
        bench.app.toasts.said()[0],
        (Level::Bad, format!("not exported: {why}"))
    );
}

/// A notice ended in the middle of a word, and nothing said where the rest was.
#[test]
fn a_long_notice_ends_with_a_word_and_the_key_for_all_of_it() {
    let mut bench = Bench::new();
    bench.live();
    let long = "checkpoint step-001240 kept because it is the best so far, and because a note was written at its step";
    bench.press(":");
    bench.app.toast(Level::Info, long);
    let picture = bench.picture(80, 24);
    let row = picture.lines().next().unwrap();
    assert!(row.contains("… M shows all"), "{picture}");
}
