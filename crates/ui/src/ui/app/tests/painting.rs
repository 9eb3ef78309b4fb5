//! What an answer, or the time alone, changes on the screen is drawn without a key.

use super::*;

/// The question stood open and was not seen: Enter would have deleted the run behind it.
#[test]
fn a_question_that_an_answer_opens_is_drawn_at_once() {
    let path: PathBuf = "runs/2026-11-20-1801-my-poems-x9zz".into();
    let mut ended = runs();
    ended[0].status = RunStatus::Crashed;
    let mut bench = Bench::new();
    // A run was opened before.
    bench.msg(Msg::Runs(Ok((ended, Vec::new()))));
    bench.hold(tape::until(5, 1_240), Holder::Log);
    bench.press("1 end up shift-d").picture(80, 24);
    let planned = Msg::RemovalPlanned {
        run_dir: path,
        result: Ok(vec!["my-poems-x9zz: 3 checkpoints, 29.1 MiB".into()]),
    };
    bench.msg(planned);
    assert_eq!(bench.app.freshness(), Freshness::Asked);
}

/// "2 min" stood there until a key was pressed, and then "6 min".
#[test]
fn ages_on_home_grow_while_nobody_presses_a_key() {
    let mut bench = Bench::new();
    let mut ended = runs();
    ended[0].status = RunStatus::Finished;
    bench.msg(Msg::Runs(Ok((ended.clone(), Vec::new()))));
    let before = bench.picture(80, 24);
    bench.wait(1_000);
    assert_eq!(
        bench.app.freshness(),
        Freshness::Fresh,
        "no age has changed"
    );
    bench.wait(4 * 60_000);
    assert_eq!(bench.app.freshness(), Freshness::DataMoved);
    assert_ne!(bench.picture(80, 24), before);
    assert!(bench.app.tick().is_some(), "somebody looks at the clock");
}

/// Two runs that a filter hid were talked to instead of the selected one.
#[test]
fn chat_with_both_is_about_the_selected_run_and_marks_are_counted() {
    let mut bench = Bench::new();
    let mut all = runs();
    all[1].start_model = Some("models/base".into());
    let rows = vec![CheckpointRow {
        path: all[1].path.join("checkpoints/step-002000"),
        run: all[1].id.clone(),
        ..checkpoint_rows().remove(2)
    }];
    bench.msg(Msg::Runs(Ok((all, Vec::new()))));
    // My poems and wild-lr are marked.
    bench.press("end up space space");
    let picture = bench.picture(100, 30);
    assert!(picture.contains("2 marked"), "{picture}");
    bench.press("/").write("quickstart-a2b7").press("enter");
    let picture = bench.picture(100, 30);
    assert!(picture.contains("2 marked, 2 not listed"), "{picture}");
    bench.press("w");
    bench.msg(Msg::Checkpoints(rows.clone()));
    let opened = bench.effects.iter().filter_map(|effect| match effect {
        Effect::OpenChat { model, .. } => Some(model.clone()),
        _ => None,
    });
    let opened: Vec<PathBuf> = opened.collect();
    assert_eq!(opened, ["models/base".into(), rows[0].path.clone()]);
}

/// "sample accepted" covered the charts for seconds behind the sample itself.
#[test]
fn what_says_that_a_sample_is_under_way_goes_with_the_sample() {
    let mut bench = Bench::new();
    let slot = bench.live();
    let id: CommandId = 7;
    bench.msg(Msg::Sent {
        slot,
        asked: Asked::Sample,
        result: Ok(id),
    });
    bench.event(Event::Accepted { id });
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains("sampling …") && !picture.contains("accepted"),
        "{picture}"
    );
    bench.event(Event::Sampled {
        step: 1_240,
        prompt: "To".into(),
        text: " be".into(),
        thought: None,
        seconds: 0.1,
    });
    let picture = bench.picture(100, 30);
    assert!(!picture.contains("sampling …"), "{picture}");
}
