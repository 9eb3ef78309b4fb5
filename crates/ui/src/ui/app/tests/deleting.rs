//! Deleting runs on Home.

use super::*;

/// Runs were deleted at the command line alone.
#[test]
fn a_run_is_deleted_on_home_after_its_size_was_told_and_never_while_it_is_live() {
    let path: PathBuf = "runs/2026-11-20-1801-my-poems-x9zz".into();
    let mut ended = runs();
    ended[0].status = crate::run::index::RunStatus::Crashed;
    let mut bench = Bench::new();
    let list = Msg::Runs(Ok((ended, Vec::new())));
    bench.msg(list).press("end up shift-d");
    assert!(
        matches!(&bench.effects[..], [Effect::PlanRemoval(run)] if *run == path),
        "{:?}",
        bench.effects
    );
    let planned = || Msg::RemovalPlanned {
        run_dir: path.clone(),
        result: Ok(vec!["my-poems-x9zz: 3 checkpoints, 29.1 MiB".into()]),
    };
    let picture = bench.msg(planned()).picture(100, 30);
    assert!(
        picture.contains("29.1 MiB") && picture.contains("keep it"),
        "{picture}"
    );
    // No is selected.
    bench.press("enter");
    let removes = |e: &Effect| matches!(e, Effect::RemoveRun(run) if *run == path);
    assert!(!bench.effects.iter().any(removes), "{:?}", bench.effects);
    bench.press("shift-d").msg(planned()).press("up enter");
    assert!(bench.effects.iter().any(removes), "{:?}", bench.effects);
    let mut bench = Bench::new();
    bench.runs().press("shift-d");
    assert!(bench.effects.is_empty(), "a live run is not deleted");
}
