//! Finished and failed runs: the end screen, its error and the next steps.

use super::*;
use crate::base::human;
use crate::wire::Outcome;

fn finish(outcome: Outcome, step: u64, message: &str) -> Event {
    Event::Finished {
        outcome,
        step,
        tokens: step * tape::BATCH_TOKENS,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 60.0,
        message: message.into(),
    }
}

/// The workbench with a run that was read from its log, these events at its end.
fn ended(mut log: Vec<Envelope>, events: Vec<Event>) -> Bench {
    for event in events {
        let last = log.last().unwrap();
        let (seq, t) = (last.seq + 1, UnixMillis(last.t.0 + 40));
        log.push(Envelope {
            v: 1,
            seq,
            t,
            event,
        });
    }
    let mut bench = Bench::new();
    bench.hold(log, Holder::Log);
    bench
}

/// What stands on the screen, its borders and line breaks left out.
fn flowing(picture: &str) -> String {
    let plain = picture.replace(['\u{2502}', '\n'], " ");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At 80 columns the line is cut, and nothing showed the rest.
#[test]
fn all_messages_begin_with_what_the_line_of_the_run_cuts() {
    let why = "the engine died at step 24: its log has no end and no process is training it, and this is its end";
    let mut bench = ended(
        tape::until(5, 1_240),
        vec![finish(Outcome::Failed, 1_240, why)],
    );
    let words = flowing(&bench.press("shift-m").picture(80, 24));
    assert!(words.contains("and this is its end"), "{words}");
    assert!(words.contains("gradient norm:"), "{words}");
}

/// Who opens the run of a stage by its name sees that it is one, and what is left to be trained.
#[test]
fn the_run_of_a_stage_names_its_pipeline_and_how_the_next_stages_are_trained() {
    let mut log = tape::until(5, 1_240);
    let last = log.last().unwrap().clone();
    log.push(Envelope {
        seq: last.seq + 1,
        event: finish(Outcome::Completed, 1_240, ""),
        ..last
    });
    let path = "runs/2026-11-21-1040-shakespeare-k3qf";
    let mut bench = Bench::new();
    let slot = bench.hold(log, Holder::Log);
    let mut opened = Opened::new(path, Holder::Log);
    opened.stage = Some(first_of_two());
    let stage = opened.stage.clone();
    let result = Ok(opened);
    bench.msg(Msg::Opened { slot, result });
    bench.msg(Msg::Incoming {
        slot,
        batch: vec![Incoming::CaughtUp],
    });
    bench.press("r");
    for size in [(80, 24), (160, 48)] {
        let words = flowing(&bench.picture(size.0, size.1));
        let place = "stage base, 1 of 2, of pipeline follow, which goes on with chat";
        assert!(words.contains(place), "{words}");
        assert!(!words.contains("continue the pipeline"), "{words}");
    }
    bench.msg(Msg::Incoming {
        slot,
        batch: vec![Incoming::Closed(None)],
    });
    // How the pipeline stands is looked at as long as that can change.
    let look = Effect::LookAtStage(path.into());
    assert!(bench.wait(2_000).effects.contains(&look));
    let seen = |standing: PipelineStatus| Msg::StageSeen {
        run_dir: path.into(),
        stage: stage.clone().map(|stage| StageOf { standing, ..stage }),
    };
    bench.msg(seen(PipelineStatus::Halted {
        resume: "llmtui train --resume follow-abcd".into(),
    }));
    for size in [(80, 24), (160, 48)] {
        let words = flowing(&bench.picture(size.0, size.1));
        let next = "continue the pipeline llmtui train --resume follow-abcd";
        assert!(words.contains(next), "{words}");
    }
    let done = StageOf {
        standing: PipelineStatus::Finished,
        next: None,
        live: None,
        outputs: vec![("report", "runs/pipelines/follow-abcd/report.html".into())],
        ..first_of_two()
    };
    bench.msg(Msg::StageSeen {
        run_dir: path.into(),
        stage: Some(done),
    });
    for size in [(80, 24), (160, 48)] {
        let words = flowing(&bench.picture(size.0, size.1));
        assert!(words.contains("which is finished"), "{words}");
        assert!(!words.contains("continue the pipeline"), "{words}");
        let report = "its report runs/pipelines/follow-abcd/report.html";
        assert!(words.contains(report), "{words}");
    }
    assert!(!bench.wait(2_000).effects.contains(&look));
}

fn first_of_two() -> StageOf {
    StageOf {
        id: "follow-x7ka".into(),
        pipeline: "follow".into(),
        stage: "base".into(),
        number: 1,
        n_stages: 2,
        is_over: true,
        standing: PipelineStatus::Running,
        next: Some("chat".into()),
        live: None,
        outputs: Vec::new(),
    }
}

/// Only the page of its end said so.
#[test]
fn a_run_of_a_pipeline_shows_its_stage_while_it_trains_and_in_the_list() {
    let mut bench = Bench::new();
    bench.runs().live();
    let alone = bench.press("2").picture(160, 48);
    assert!(!alone.contains("stage"), "{alone}");
    let run_dir = bench.app.store.held.as_ref().unwrap().path.clone().unwrap();
    bench.msg(Msg::StageSeen {
        run_dir,
        stage: Some(first_of_two()),
    });
    let wide = bench.picture(160, 48);
    let above = wide.lines().next().unwrap();
    assert!(above.contains("stage 1 of 2"), "{above}");
    assert!(above.contains("next: chat"), "{above}");
    let narrow = bench.picture(80, 24);
    let row = narrow.lines().nth(1).unwrap();
    for words in ["stage 1 of 2", "left"] {
        assert!(row.contains(words), "{row}");
    }
    let runs = runs();
    bench.msg(Msg::Stages([(runs[0].id.clone(), first_of_two())].into()));
    for (width, height) in [(80, 24), (160, 48)] {
        let home = bench.press("1").picture(width, height);
        assert!(home.contains("shakespeare-k3qf 1/2"), "{home}");
        let place = "stage base, 1 of 2, of pipeline follow";
        assert!(home.contains(place), "{home}");
    }
    // The filter finds them by their pipeline's name.
    let found = bench.press("/").write("follow").picture(80, 24);
    assert!(found.contains("shakespeare-k3qf 1/2"), "{found}");
    assert!(!found.contains("quickstart-a2b7"), "{found}");
}

#[test]
fn an_error_before_the_first_step_is_told_whole_and_once_with_a_way_to_mend_it() {
    let long = "has a value that nobody can read, ".repeat(4);
    let message = format!("rows.jsonl:3 {long}and no more; write it anew");
    let failed = finish(Outcome::Failed, 0, &message);
    let mut bench = ended(tape::until(5, 0)[..8].to_vec(), vec![failed]);
    // In place of the charts, and on the last page.
    for key in ["2", "r"] {
        let picture = bench.press(key).picture(80, 24);
        let words = flowing(&picture);
        assert!(
            words.contains("nobody can read, and no more; write it anew"),
            "{picture}"
        );
        assert_eq!(words.matches("rows.jsonl:3").count(), 1, "{picture}");
        assert!(words.contains("e edit the spec"), "{picture}");
    }
    let picture = bench.press("9").picture(80, 24);
    assert!(picture.contains("ended before its first step"), "{picture}");
    bench.press("2 e");
    let asked = "runs/2026-11-21-1040-shakespeare-k3qf/asked.yaml";
    assert_eq!(
        bench.effects.last(),
        Some(&Effect::OpenEditor(asked.into()))
    );
}

#[test]
fn a_character_model_is_trained_longer_and_never_taught_conversations() {
    let mut bench = ended(tape::standard(5), Vec::new());
    let picture = bench.press("r").picture(120, 40);
    for part in ["llmtui train --resume shakespeare-k3qf", "max_steps=4000"] {
        assert!(picture.contains(part), "{picture}");
    }
    assert!(!picture.contains("train sft"), "{picture}");
    // A command that is too long for the column has a row of its own, or at least keeps its words.
    let command = "llmtui train --resume shakespeare-k3qf -s max_steps=4000";
    let picture = bench.picture(80, 24);
    let own = |line: &str| line.starts_with(&format!("│      train longer  {command} "));
    assert!(picture.lines().any(own), "{picture}");
    assert!(picture.contains("warnings"), "{picture}");
    let picture = bench.picture(80, 20);
    assert!(
        picture.contains(&format!("train longer  {command}")),
        "{picture}"
    );
}

/// The page began with fewer steps, from a check before the first, and advised twice as many below: the best step was the last.
#[test]
fn fewer_steps_than_the_best_took_are_not_advised_and_more_only_without_such_advice() {
    let checked = Event::Checked {
        finding: crate::base::finding::Finding {
            fix: "more data, or -s max_steps=476".into(),
            status: crate::base::finding::Status::Warn,
            ..crate::base::finding::Finding::pass("train: 67 epochs").named("settings", "settings")
        }
        .into(),
        seconds: 0.1,
        next: None,
    };
    let page = |best: u64| {
        let mut end = finish(Outcome::Completed, 1_990, "");
        if let Event::Finished { best: of, .. } = &mut end {
            *of = Some(crate::wire::Best {
                step: best,
                metric: "val/loss".into(),
                value: Num(1.8),
                direction: crate::wire::Direction::Lower,
            });
        }
        let mut bench = ended(tape::until(5, 1_990), vec![checked.clone(), end]);
        flowing(&bench.press("r").picture(160, 60))
    };
    let (last, early) = (page(1_990), page(400));
    assert!(!last.contains("max_steps=476"), "{last}");
    assert!(last.contains("-s max_steps=4000"), "{last}");
    assert!(early.contains("@0 -s max_steps=476"), "{early}");
    assert!(!early.contains("train longer"), "{early}");
}

/// A pause of an hour is time of the run, and no part of its speed.
#[test]
fn the_last_page_tells_the_speed_of_the_steps_as_the_report_does() {
    let pages = [0, 3_600_000].map(|pause| {
        let mut log = tape::until(5, 40);
        let phase = |phase| Event::PhaseChanged { phase, step: 40 };
        for (wait, event) in [
            (40, phase(crate::wire::Phase::Paused)),
            (pause, phase(crate::wire::Phase::Training)),
        ] {
            let last = log.last().unwrap();
            let (seq, t) = (last.seq + 1, UnixMillis(last.t.0 + wait));
            log.push(Envelope {
                v: 1,
                seq,
                t,
                event,
            });
        }
        let state = crate::run::RunState::from_events(&log);
        let speed = state.mean_tok_per_sec().unwrap();
        let mut bench = ended(log, vec![finish(Outcome::Stopped, 40, "")]);
        let picture = bench.press("r").picture(120, 40);
        let told = format!("step speed {} tokens/s", human::short(speed));
        let picture = flowing(&picture);
        assert!(picture.contains(&told), "{told}\n{picture}");
        told
    });
    assert_eq!(pages[0], pages[1]);
}

/// Other settings do not help against a disk.
#[test]
fn a_run_that_the_machine_failed_is_tried_again_before_advice_is_followed() {
    let advised = Event::Diagnosed {
        step: 40,
        finding: crate::base::finding::Finding {
            fix: "-s warmup_steps=6".into(),
            status: crate::base::finding::Status::Warn,
            ..crate::base::finding::Finding::pass("too short").named("new_rule", "warm-up")
        }
        .into(),
    };
    let first = |outcome| {
        let end = finish(outcome, 40, "step 40 could not be saved");
        let mut bench = ended(tape::until(5, 40), vec![advised.clone(), end]);
        let picture = bench.press("r").picture(120, 40);
        let at = |words: &str| {
            picture
                .find(words)
                .unwrap_or_else(|| panic!("{words}\n{picture}"))
        };
        at("try again") < at("as advised")
    };
    assert!(first(Outcome::Starved));
    assert!(!first(Outcome::Failed));
}

#[test]
fn a_stopped_run_goes_on_before_it_is_given_more_steps() {
    let stopped = finish(Outcome::Stopped, 1_240, "");
    let mut bench = ended(tape::until(5, 1_240), vec![stopped]);
    let picture = bench.press("r").picture(120, 40);
    assert!(picture.contains("resume from step 1,000"), "{picture}");
    assert!(!picture.contains("max_steps="), "{picture}");
}

#[test]
fn a_training_loss_on_the_last_page_is_a_line_without_points_of_evaluations() {
    let stopped = finish(Outcome::Stopped, 20, "");
    // Stopped before its first evaluation.
    let mut log = tape::until(5, 20);
    log.retain(|line| !matches!(line.event, Event::Evaluated { .. }));
    for (seq, line) in (1..).zip(&mut log) {
        line.seq = seq;
    }
    let mut bench = ended(log, vec![stopped]);
    let picture = bench.press("r").picture(80, 24);
    assert!(picture.contains("training loss"), "{picture}");
    let points = picture
        .lines()
        .filter(|line| line.contains('┤') && line.contains('○'));
    assert_eq!(points.count(), 0, "{picture}");
}

#[test]
fn a_share_that_stays_at_zero_lies_on_the_floor_of_the_last_page() {
    let pass = "eval/pass@1";
    let metrics = vec![crate::wire::MetricInfo {
        id: pass.into(),
        title: "Held-out pass@1".into(),
        unit: "share".into(),
        ..Default::default()
    }];
    let evaluated = |step| Event::Evaluated {
        step,
        tokens: 0,
        values: [(pass.into(), Num(0.0))].into(),
        n_windows: 1,
        whole: true,
        seconds: 0.1,
    };
    let mut log = tape::until(5, 20);
    log.retain(|line| !matches!(line.event, Event::Evaluated { .. }));
    for (seq, line) in (1..).zip(&mut log) {
        line.seq = seq;
    }
    let declared = Event::MetricsDeclared { metrics };
    let end = finish(Outcome::Stopped, 20, "");
    let mut bench = ended(log, vec![declared, evaluated(10), evaluated(20), end]);
    let picture = bench.press("r").picture(80, 24);
    assert!(picture.contains("held-out pass@1"), "{picture}");
    assert!(
        picture.contains("100%┤") && !picture.contains("-100%┤"),
        "{picture}"
    );
}

#[test]
fn a_diverged_run_gets_advice_and_no_praise() {
    let overflow = Event::Stepped {
        step: 1_241,
        tokens: 1_241 * tape::BATCH_TOKENS,
        values: [("train/loss".into(), Num(f64::NAN))].into(),
    };
    let events = vec![overflow, finish(Outcome::Completed, 1_241, "")];
    let mut bench = ended(tape::until(5, 1_240), events);
    let picture = bench.press("r").picture(120, 40);
    assert!(picture.contains("DIVERGED"), "{picture}");
    assert!(picture.contains("a    branch as advised"), "{picture}");
    for part in ["llmtui train --branch shakespeare-k3qf@1000", "-s lr=4e-5"] {
        assert!(picture.contains(part), "{picture}");
    }
    for praise in ["chat with it", "llmtui export", "train longer"] {
        assert!(!picture.contains(praise), "{picture}");
    }
    // The charts say the same.
    let picture = bench.press("r").picture(120, 40);
    assert!(picture.contains("train again, as advised"), "{picture}");
    assert!(!picture.contains("chat with it"), "{picture}");
}

#[test]
fn the_last_page_has_the_whole_time_and_the_speed_of_the_steps_in_it() {
    let stopped = finish(Outcome::Stopped, 1_240, "");
    let mut bench = ended(tape::until(5, 1_240), vec![stopped]);
    let picture = flowing(&bench.press("r").picture(80, 24));
    for told in ["total time 1:00", "step speed 19.3k tokens/s"] {
        assert!(picture.contains(told), "{told}\n{picture}");
    }
}

#[test]
fn the_guide_learns_of_the_machine_while_it_is_open_and_knows_that_nothing_crashed() {
    let mut bench = ended(tape::standard(5), Vec::new());
    bench.press("ctrl-g");
    for look in [Effect::LookAtMachine, Effect::WatchHardware] {
        assert!(bench.effects.contains(&look), "{:?}", bench.effects);
    }
    let picture = bench.picture(100, 40);
    assert!(!picture.contains("! Why a crash"), "{picture}");
    assert!(picture.contains("Why a crash"), "{picture}");
    let known = crate::plan::calibration::Machine {
        memory: Some(24 << 30),
        ..Default::default()
    };
    bench.msg(Msg::Machine(Box::new(known)));
    let row = bench.picture(100, 40);
    let crash = row
        .lines()
        .filter(|line| line.contains('?'))
        .position(|line| line.contains("Why a crash"));
    for _ in 0..crash.unwrap() {
        bench.press("down");
    }
    let page = flowing(&bench.press("enter").picture(100, 40));
    assert!(page.contains("so it fits"), "{page}");
    assert!(!page.contains("memory is unknown"), "{page}");
}

/// The screen of its end says it; elsewhere a toast does.
#[test]
fn an_end_before_our_eyes_is_not_told_twice() {
    for (key, told) in [("2", 0), ("1", 1)] {
        let mut bench = Bench::new();
        bench.live();
        bench.press(key);
        bench.event(finish(Outcome::Failed, 30, "no room on the disk"));
        let picture = bench.picture(100, 30);
        assert_eq!(picture.matches("✗ failed at").count(), told, "{picture}");
    }
}

#[test]
fn commands_lead_to_runs_that_lie_elsewhere() {
    let elsewhere = AppOptions {
        runs_dir: "/data/my runs".into(),
        ..options("ansi", ColorDepth::Ansi16, false)
    };
    let mut bench = Bench::with(elsewhere);
    bench.hold(tape::standard(5), Holder::Log);
    let words = flowing(&bench.press("2 r").picture(108, 44));
    for command in [
        "llmtui chat shakespeare-k3qf",
        "export shakespeare-k3qf --to DIR",
    ] {
        let whole = format!("{command} --runs-dir '/data/my runs'");
        assert!(words.contains(&whole), "{words}");
    }
    let words = flowing(
        &ended(tape::standard(5), Vec::new())
            .press("2 r")
            .picture(108, 44),
    );
    assert!(!words.contains("--runs-dir"), "{words}");
}

#[test]
fn a_run_with_adapters_is_exported_alone_or_merged() {
    let mut log = tape::standard(5);
    for envelope in &mut log {
        if let Event::Started { spec, .. } = &mut envelope.event {
            spec["adapter"] = serde_json::json!({"lora": {"rank": 8}});
        }
    }
    let words = flowing(&ended(log, Vec::new()).press("2 r").picture(108, 44));
    let alone = "export only the adapter llmtui export shakespeare-k3qf --format peft --to DIR";
    assert!(words.contains(alone), "{words}");
    assert!(
        words.contains("export it merged llmtui export shakespeare-k3qf --to DIR"),
        "{words}"
    );
}

/// Where its checkpoints lie is its own program's business; how it went stands below its charts as of any run.
#[test]
fn a_run_of_another_program_ends_with_its_verdict() {
    let mut log = tape::until(5, 1_240);
    for line in &mut log {
        if let Event::Hello { pid, engine, .. } = &mut line.event {
            (*pid, *engine) = (0, "trainer_state".into());
        }
    }
    let mut bench = ended(log, vec![finish(Outcome::Completed, 1_240, "")]);
    let picture = bench.press("2").picture(80, 24);
    assert!(picture.contains("LEARNING"), "{picture}");
    assert!(!picture.contains("its own program"), "{picture}");
}

/// A request to go on is what was done last: why nothing came of it stands where the run does.
#[test]
fn a_refused_resume_is_told_on_the_last_page_and_below_the_charts() {
    let hello = Event::Hello {
        run: "shakespeare-k3qf".into(),
        engine: "0".into(),
        pid: 1,
        host: "h".into(),
    };
    let events = vec![
        finish(Outcome::Stopped, 1_240, ""),
        hello,
        finish(
            Outcome::Invalid,
            1_240,
            "the data have changed; bring them back",
        ),
    ];
    let mut bench = ended(tape::until(5, 1_240), events);
    for keys in ["2", "r"] {
        let picture = bench.press(keys).picture(80, 24);
        let told = "not resumed: the data have changed; bring them back";
        assert!(picture.contains(told), "{picture}");
        assert!(
            picture.contains("stopped") && !picture.contains("failed"),
            "{picture}"
        );
    }
    assert!(bench.picture(80, 24).contains("resume from step 1,000"));
}

/// Half a command helps nobody: without room for all of it its key is left.
#[test]
fn a_command_stands_whole_or_not_at_all() {
    let overflow = Event::Stepped {
        step: 1_241,
        tokens: 1_241 * tape::BATCH_TOKENS,
        values: [("train/loss".into(), Num(f64::NAN))].into(),
    };
    let events = vec![overflow, finish(Outcome::Completed, 1_241, "")];
    let mut bench = ended(tape::until(5, 1_240), events);
    bench.press("r");
    let whole = "llmtui train --branch shakespeare-k3qf@1000 -s lr=4e-5";
    let mut told = [0, 0];
    for (width, height) in (56..110).flat_map(|w| (8..30).map(move |h| (w, h))) {
        let picture = bench.picture(width, height);
        let words = flowing(&picture);
        let has = words.contains("--branch");
        assert!(!has || words.contains(whole), "{width}x{height}\n{picture}");
        told[usize::from(has)] += 1;
    }
    assert!(told.iter().all(|n| *n > 0), "{told:?}");
}

#[test]
fn a_reward_model_is_told_to_score_answers_and_not_to_chat() {
    let mut log = tape::standard(5);
    for line in &mut log {
        if let Event::Started { method, .. } = &mut line.event {
            *method = "reward".into();
        }
    }
    let mut bench = ended(log, Vec::new());
    let picture = bench.press("2").picture(160, 46);
    assert!(
        picture.contains("score completions: llmtui score"),
        "{picture}"
    );
    assert!(!picture.contains("chat with it"), "{picture}");
    assert!(!picture.contains("3 chat"), "{picture}");
    let last = flowing(&bench.press("r").picture(160, 46));
    assert!(
        last.contains("train longer") && last.contains("llmtui train --resume"),
        "{last}"
    );
    // Its chat is one with another model, and says so; or with none.
    let alone = flowing(&bench.press("3").picture(120, 30));
    assert!(
        alone.contains("is a reward model: it scores completions"),
        "{alone}"
    );
    let mut rows = checkpoint_rows();
    rows[0].generates = false;
    rows[1].generates = false;
    bench.msg(Msg::Checkpoints(rows));
    let other = flowing(&bench.picture(120, 30));
    assert!(
        other.contains("and cannot generate: this chat is with"),
        "{other}"
    );
}

#[test]
fn a_run_whose_engine_was_killed_crashed_and_does_not_go_on() {
    for (steps, words) in [
        (
            1_240,
            "this run crashed at step 1,240: p resumes it from step 1,000",
        ),
        (
            20,
            "this run crashed at step 20: no checkpoint was saved, p restarts it",
        ),
    ] {
        let mut bench = ended(tape::until(5, steps), Vec::new());
        let slot = bench.app.run_slot().unwrap();
        let batch = vec![Incoming::Closed(None)];
        bench.msg(Msg::Incoming { slot, batch });
        let picture = bench.press("2 r").picture(160, 24);
        assert!(picture.contains(words), "{picture}");
        assert!(!picture.contains("is live"), "{picture}");
    }
    let mut bench = Bench::new();
    bench.live();
    let picture = bench.press("r").picture(160, 24);
    assert!(picture.contains("this run is live"), "{picture}");
}

/// `--no-start` made it; its page was a dead end.
#[test]
fn a_run_that_was_made_and_not_started_is_started_from_its_page() {
    let mut bench = Bench::new();
    let slot = bench.hold(Vec::new(), Holder::Log);
    let batch = vec![Incoming::Closed(None)];
    bench.msg(Msg::Incoming { slot, batch });
    let picture = bench.picture(100, 30);
    for words in ["Not started yet: p starts it", "p start", "e edit the spec"] {
        assert!(picture.contains(words), "{words}:\n{picture}");
    }
    bench.press("p");
    let resumes = |e: &Effect| matches!(e, Effect::ResumeRun { .. });
    assert!(bench.effects.iter().any(resumes), "{:?}", bench.effects);
}

#[test]
fn the_end_of_a_run_with_more_readings_than_lines_is_drawn_at_every_height() {
    let mut bench = Bench::new();
    bench.hold(tape::standard(5), Holder::Log);
    let state = &mut bench.app.store.held.as_mut().unwrap().state;
    for at in 0..60 {
        let id = format!("extra/{at}");
        for evaluation in &mut state.evaluations {
            evaluation.values.insert(id.clone(), 1.0);
        }
        let title = id.clone();
        let info = crate::wire::MetricInfo {
            id,
            title,
            ..Default::default()
        };
        state.metrics.push(info);
    }
    assert!(!state.samples.is_empty());
    for height in 10..60 {
        assert!(bench.picture(130, height).contains("result") || height < 20);
    }
}
