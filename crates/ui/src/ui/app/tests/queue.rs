//! Runs that wait for others on Home, and runs of pipelines.

use super::*;

/// `train --after RUN` without leaving the workbench.
#[test]
fn a_preset_beside_a_live_run_is_started_when_that_one_has_ended() {
    let mut bench = Bench::new();
    bench.runs().press("home");
    let picture = bench.press("enter").picture(80, 24);
    for words in [
        "shakespeare-k3qf is live",
        "start when it has ended",
        "start now, beside it",
    ] {
        assert!(picture.contains(words), "{picture}");
    }
    let after: PathBuf = "runs/2026-11-21-1040-shakespeare-k3qf".into();
    bench.press("enter");
    let slot = bench.app.run_slot().unwrap();
    let target = String::from("quickstart");
    let queued = Effect::QueueRun {
        slot,
        target,
        after,
    };
    assert_eq!(bench.effects, [queued]);
    // Where its place in the queue stands.
    bench.msg(Msg::Opened {
        slot,
        result: Ok(Opened::new(
            "runs/2026-11-21-1422-quickstart-zzzz",
            Holder::Detached,
        )),
    });
    let hello = Event::Hello {
        run: "2026-11-21-1422-quickstart-zzzz".into(),
        engine: "0".into(),
        pid: 1,
        host: "h".into(),
    };
    bench.event(hello);
    bench.event(Event::Queued {
        after: "2026-11-21-1040-shakespeare-k3qf".into(),
    });
    for (width, height) in [(80, 24), (160, 48)] {
        let picture = bench.press("2").picture(width, height);
        let words = "queued: begins when shakespeare-k3qf has ended";
        assert!(picture.contains(words), "{picture}");
        assert!(picture.contains("○ queued"), "{picture}");
        for words in ["checking both", "p pause", "checkpoint"] {
            assert!(!picture.contains(words), "{words}: {picture}");
        }
    }
    let picture = bench.press("shift-s c").picture(160, 48);
    assert!(picture.contains("leaving the queue"), "{picture}");
    assert!(!picture.contains("after a checkpoint"), "{picture}");
    bench.event(Event::Finished {
        outcome: crate::wire::Outcome::Stopped,
        step: 0,
        tokens: 0,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 0.0,
        message: String::new(),
    });
    let picture = bench.press("2").picture(160, 48);
    assert!(picture.contains("left the queue"), "{picture}");
    let mut bench = Bench::new();
    bench.runs().press("home enter down enter");
    let starts = |e: &Effect| matches!(e, Effect::StartRun { .. });
    assert!(bench.effects.iter().any(starts), "{:?}", bench.effects);
    let mut bench = Bench::new();
    bench.runs().press("home enter down down enter");
    assert_eq!(bench.effects, []);
    // Nothing else is at work: it begins at once.
    let mut bench = Bench::new();
    let mut ended = runs();
    ended.remove(0);
    bench
        .msg(Msg::Runs(Ok((ended, Vec::new()))))
        .press("home enter");
    assert!(bench.effects.iter().any(starts), "{:?}", bench.effects);
}

#[test]
fn a_queued_run_is_listed_as_one_and_is_the_one_to_wait_for() {
    let mut listed = runs();
    let mut queued = listed[0].clone();
    (queued.id, queued.path) = (
        "2026-11-21-1100-next-zzzz".into(),
        "runs/2026-11-21-1100-next-zzzz".into(),
    );
    queued.created = UnixMillis(queued.created.0 + 1_000);
    queued.phase = Some(crate::wire::Phase::Queued);
    queued.queued_after = Some(listed[0].id.clone());
    listed.insert(0, queued);
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((listed, Vec::new()))));
    for (width, height) in [(80, 24), (160, 48)] {
        let picture = bench.picture(width, height);
        let row = picture
            .lines()
            .find(|line| line.contains("next-zzzz"))
            .unwrap();
        assert!(
            row.contains("○ next-zzzz") && row.contains("queued"),
            "{picture}"
        );
    }
    let picture = bench.press("home enter").picture(80, 24);
    assert!(
        picture.contains("next-zzzz waits for its turn"),
        "{picture}"
    );
    bench.press("enter");
    let after = |e: &Effect| matches!(e, Effect::QueueRun { after, .. } if after.ends_with("2026-11-21-1100-next-zzzz"));
    assert!(bench.effects.iter().any(after), "{:?}", bench.effects);
}

/// A resumed run is older than the one that it waits for.
#[test]
fn the_one_to_wait_for_is_the_live_run_of_this_machine_that_nobody_waits_for() {
    let mut listed = runs();
    let first = listed[0].clone();
    let beside = |name: &str, by: u64| {
        let mut run = first.clone();
        run.id = format!("2026-11-20-1100-{name}");
        run.path = format!("runs/{}", run.id).into();
        run.created = UnixMillis(first.created.0 - by);
        run
    };
    let mut resumed = beside("resumed-zzzz", 9_000);
    resumed.phase = Some(crate::wire::Phase::Queued);
    resumed.queued_after = Some(first.id.clone());
    let mut elsewhere = beside("elsewhere-zzzz", 1_000);
    elsewhere.elsewhere = true;
    listed.extend([resumed, elsewhere.clone()]);
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((listed, Vec::new()))));
    let picture = bench.press("home enter").picture(80, 24);
    assert!(
        picture.contains("resumed-zzzz waits for its turn"),
        "{picture}"
    );
    // What another machine trains is in nobody's way here.
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((vec![elsewhere], Vec::new()))));
    bench.press("home enter");
    let starts = |e: &Effect| matches!(e, Effect::StartRun { .. });
    assert!(bench.effects.iter().any(starts), "{:?}", bench.effects);
}

#[test]
fn a_renamed_run_of_a_stage_keeps_its_place_in_the_pipeline() {
    let mut run = runs().remove(0);
    let stage = crate::ui::msg::StageOf {
        id: "mine-x7ka".into(),
        pipeline: "mine".into(),
        stage: "sft".into(),
        number: 2,
        n_stages: 5,
        is_over: false,
        standing: crate::ui::msg::PipelineStatus::Running,
        next: None,
        live: None,
        outputs: Vec::new(),
    };
    let stages = [(run.created_as.clone(), stage)].into();
    run.id = "renamed".into();
    run.path = "runs/renamed".into();
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((vec![run], Vec::new()))));
    bench.msg(Msg::Stages(stages));
    let picture = bench.picture(160, 48);
    assert!(picture.contains("renamed 2/5"), "{picture}");
    let picture = bench.press("home enter").picture(160, 48);
    assert!(
        picture.contains("start when its pipeline has ended"),
        "{picture}"
    );
}

#[test]
fn a_resumed_run_in_the_queue_says_what_it_waits_for() {
    let mut bench = Bench::new();
    bench.hold(tape::standard(5), Holder::Detached);
    bench.event(Event::Hello {
        run: "2026-11-21-1422-quickstart-zzzz".into(),
        engine: "0".into(),
        pid: 1,
        host: "h".into(),
    });
    bench.event(Event::Queued {
        after: "2026-11-21-1040-shakespeare-k3qf".into(),
    });
    let words = "queued: begins when shakespeare-k3qf has ended";
    for (width, height) in [(80, 24), (160, 48)] {
        let picture = bench.press("2").picture(width, height);
        assert!(picture.contains(words), "{picture}");
    }
}

#[test]
fn a_state_is_never_cut() {
    use crate::run::state::phase_word;
    for phase in [
        Phase::Queued,
        Phase::Preparing,
        Phase::Preflight,
        Phase::Evaluating,
        Phase::Sampling,
        Phase::Checkpointing,
        Phase::Paused,
        Phase::Stopping,
    ] {
        let mut run = runs().remove(0);
        run.phase = Some(phase);
        let mut bench = Bench::new();
        bench.msg(Msg::Runs(Ok((vec![run], Vec::new()))));
        let picture = bench.picture(80, 24);
        let word = match phase {
            Phase::Checkpointing => "saving",
            phase => phase_word(phase),
        };
        assert!(picture.contains(&format!(" {word} ")), "{picture}");
    }
}

/// Only Enter on Home asked: `:quit` began a training beside the live one.
#[test]
fn whatever_starts_a_run_beside_a_live_one_asks_first() {
    let asks = "start when it has ended";
    let path: PathBuf = "runs/2026-11-21-1040-shakespeare-k3qf".into();
    let other: PathBuf = "runs/2026-11-20-1801-my-poems-x9zz".into();
    let requests = [
        Request::StartRun("quickstart".into()),
        Request::ResumeRun(other.clone()),
    ];
    for request in requests {
        let mut bench = Bench::new();
        bench.runs();
        let said = format!("{request:?}");
        let effects = bench.app.handle_request(0, request);
        assert_eq!(effects, [], "{said}");
        assert!(bench.picture(80, 24).contains(asks), "{said}");
        bench.press("enter");
        let queued = |e: &Effect| match e {
            Effect::QueueRun { after, .. } => *after == path,
            Effect::ResumeRun { after, run_dir, .. } => {
                after.as_ref() == Some(&path) && *run_dir == other
            }
            _ => false,
        };
        assert!(bench.effects.iter().any(queued), "{:?}", bench.effects);
    }
    // The live one itself, and one that is known only from the screen.
    let mut bench = Bench::new();
    bench.runs();
    let effects = bench.app.handle_request(0, Request::ResumeRun(path));
    assert!(matches!(
        &effects[..],
        [Effect::ResumeRun { after: None, .. }]
    ));
    let mut bench = Bench::new();
    bench.live();
    bench.press(":").write("start quickstart").press("enter");
    assert!(bench.picture(80, 24).contains(asks));
    bench.press("down enter");
    let begins = |e: &Effect| matches!(e, Effect::StartRun { .. });
    assert!(bench.effects.iter().any(begins), "{:?}", bench.effects);
}

#[test]
fn the_words_for_leaving_leave_and_scattered_letters_start_nothing() {
    for word in ["quit", "q", "exit", "QUIT"] {
        let mut bench = Bench::new();
        bench.app.store.presets[0].name = "q".into();
        bench.press(":").write(word).press("enter");
        assert_eq!(bench.effects, [Effect::Quit], "{word}");
    }
    let mut bench = Bench::new();
    bench.press(":").write("qkst");
    assert!(!bench.picture(80, 24).contains("start quickstart"));
}
