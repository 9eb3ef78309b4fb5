//! What opens by a job has the keyboard before it is there.

use super::*;
use crate::spec::{Draft, SpecSources};
use crate::ui::msg::BranchPlan;

fn draft(target: &str) -> Msg {
    Msg::Editor {
        target: target.into(),
        draft: Ok(Box::new(
            Draft::open(target, &SpecSources::default()).unwrap(),
        )),
    }
}

/// `n` and Enter sent together started a training, over which the wizard opened.
#[test]
fn keys_behind_the_one_that_opens_the_wizard_are_the_wizards() {
    let mut bench = Bench::new();
    bench.press("n");
    assert_eq!(bench.effects, [Effect::OpenWizard]);
    bench.press("enter");
    assert_eq!(bench.effects, []);
    assert!(bench.picture(80, 24).contains("checking this machine"));
    bench.wizard();
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains("What data should it learn from?"),
        "{picture}"
    );
    assert!(bench.app.store.held.is_none(), "nothing trains");
}

#[test]
fn esc_cancels_what_is_not_there_yet() {
    let mut bench = Bench::new();
    bench.runs();
    let home = bench.picture(80, 24);
    bench.press("n esc");
    assert_eq!(bench.picture(80, 24), home);
    // The answer comes all the same, for nobody.
    bench.app.ask(Effect::OpenEditor("smoke".into()));
    bench.msg(draft("quickstart"));
    assert!(bench.app.overlays.is_empty());
    bench.press("/").write("epochs").msg(draft("smoke"));
    let picture = bench.picture(80, 24);
    assert!(picture.contains("epochs"), "{picture}");
    assert!(!bench.app.pane().typing(), "the filter of Home is not open");
}

/// A branch starts with one Enter: it answers only a question that was seen.
#[test]
fn keys_typed_before_a_branch_is_checked_do_not_start_it() {
    let mut bench = Bench::new();
    let plan = BranchPlan {
        step: 30,
        settings: Vec::new(),
    };
    let run_dir: PathBuf = "runs/x".into();
    bench.app.ask(Effect::PlanBranch {
        run_dir: run_dir.clone(),
        plan: plan.clone(),
    });
    bench.press("enter enter");
    assert_eq!(bench.effects, []);
    bench.msg(Msg::BranchPlanned {
        run_dir,
        plan,
        result: Ok(vec!["branch of x at step 30".into()]),
    });
    assert_eq!(bench.effects, []);
}

/// Nobody waits for a spec that cannot be read, and its keys are for nobody.
#[test]
fn keys_for_an_editor_that_does_not_open_are_dropped() {
    let mut bench = Bench::new();
    bench.app.ask(Effect::OpenEditor("gone.yaml".into()));
    bench.press("enter").msg(Msg::Editor {
        target: "gone.yaml".into(),
        draft: Err("gone.yaml: no such file".into()),
    });
    assert_eq!(bench.effects, []);
    assert!(bench.picture(80, 24).contains("no such file"));
}

/// A start that is refused threw every edit away.
#[test]
fn a_start_that_is_refused_leads_back_to_the_editor_with_its_edits() {
    let mut bench = Bench::new();
    bench.app.ask(Effect::OpenEditor("quickstart".into()));
    bench.msg(draft("quickstart"));
    bench.press("/").write("max_steps").press("enter enter");
    bench.press("ctrl-u").write("77").press("enter t");
    let Some(Effect::StartSpec { slot, yaml, .. }) = bench.effects.last().cloned() else {
        panic!("{:?}", bench.effects);
    };
    assert!(yaml.contains("77"), "{yaml}");
    assert!(bench.app.overlays.is_empty());
    bench.msg(Msg::Opened {
        slot,
        result: Err("train.from m does not exist".into()),
    });
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains("not started: train.from m does not exist"),
        "{picture}"
    );
    assert!(picture.contains("77"), "{picture}");
    // Once: a run that is opened later and fails brings nothing back.
    bench.press("esc esc esc").msg(Msg::Opened {
        slot,
        result: Err("gone".into()),
    });
    assert!(bench.app.overlays.is_empty());
}

/// The announcement stood beside the refusal.
#[test]
fn a_stop_that_is_refused_is_no_longer_announced() {
    let mut bench = Bench::new();
    let slot = bench.live();
    bench.press("shift-s c");
    let announced = "stopping after a checkpoint";
    let picture = bench.picture(120, 40);
    assert!(picture.contains(announced), "{picture}");
    bench.msg(Msg::Sent {
        slot,
        asked: Asked::Stop,
        result: Ok(77),
    });
    bench.event(Event::Rejected {
        id: 77,
        why: "the disk is full".into(),
    });
    let picture = bench.picture(120, 40);
    assert!(
        picture.contains("stop refused: the disk is full"),
        "{picture}"
    );
    assert!(!picture.contains(announced), "{picture}");
}
