//! What keys, clicks and messages do, down to random ones.

use super::*;

#[test]
fn enter_starts_the_quickstart_on_an_empty_home() {
    let mut bench = Bench::new();
    assert_eq!(bench.effects, [Effect::RefreshRuns]);
    bench
        .msg(Msg::Runs(Ok((Vec::new(), Vec::new()))))
        .press("enter");
    let slot = bench.app.run_slot().unwrap();
    assert_eq!(
        bench.effects,
        [Effect::StartRun {
            slot,
            target: "quickstart".into()
        }]
    );
    assert!(bench.picture(80, 24).contains("opening quickstart"));
    bench.msg(Msg::Opened {
        slot,
        result: Err("presets/quickstart.yaml: max_steps: no number".into()),
    });
    assert!(bench.picture(80, 24).contains("max_steps: no number"));
}

#[test]
fn what_was_decided_at_a_start_is_told() {
    let mut bench = Bench::new();
    bench
        .msg(Msg::Runs(Ok((Vec::new(), Vec::new()))))
        .press("enter");
    let slot = bench.app.run_slot().unwrap();
    let mut opened = Opened::new("x", Holder::Detached);
    opened.decided = Some("engine auto is candle: no GPU is here".into());
    let result = Ok(opened);
    bench.msg(Msg::Opened { slot, result });
    let picture = bench.picture(80, 24);
    assert!(picture.contains("engine auto is candle"), "{picture}");
}

#[test]
fn the_selection_starts_at_a_live_run_and_stays_on_its_run() {
    let mut bench = Bench::new();
    bench.runs().press("enter");
    let live: PathBuf = "runs/2026-11-21-1040-shakespeare-k3qf".into();
    assert!(matches!(&bench.effects[..], [Effect::Attach { run_dir, .. }] if *run_dir == live));
    let mut bench = Bench::new();
    bench.runs().press("down");
    let mut fewer = runs();
    fewer.remove(0);
    bench.msg(Msg::Runs(Ok((fewer, Vec::new())))).press("enter");
    let second: PathBuf = "runs/2026-11-21-0912-quickstart-a2b7".into();
    assert!(matches!(&bench.effects[..], [Effect::Attach { run_dir, .. }] if *run_dir == second));
}

#[test]
fn sorting_and_filtering_the_runs() {
    let mut bench = Bench::new();
    bench.runs().press("o");
    let picture = bench.picture(100, 24);
    let at = |what: &str| {
        picture
            .find(what)
            .unwrap_or_else(|| panic!("{what}:\n{picture}"))
    };
    assert!(
        at("shakespeare-k3qf") < at("quickstart-a2b7") && at("quickstart-a2b7") < at("my-poems")
    );
    bench.press("/").write("failed").press("enter");
    let picture = bench.picture(100, 24);
    assert!(
        picture.contains("wild-lr") && !picture.contains("my-poems"),
        "{picture}"
    );
    bench.press("esc");
    assert!(bench.picture(100, 24).contains("my-poems"));
}

#[test]
fn control_keys_become_commands_and_answers_are_told() {
    let mut bench = Bench::new();
    let slot = bench.live();
    bench.press("p");
    assert_eq!(bench.sent(), [&Command::Pause]);
    bench.msg(Msg::Sent {
        slot,
        asked: Asked::Pause,
        result: Ok(77),
    });
    bench.event(Event::Rejected {
        id: 77,
        why: "it is stopping".into(),
    });
    let picture = bench.picture(100, 30);
    assert!(picture.contains("pause refused: it is stopping"));
    // A second box would say the same.
    assert!(!picture.contains("! refused: it is stopping"), "{picture}");
    bench
        .event(Event::PhaseChanged {
            phase: Phase::Paused,
            step: 1_240,
        })
        .press("p");
    assert_eq!(bench.sent(), [&Command::Resume]);
    bench.press("c");
    assert_eq!(bench.sent(), [&Command::Checkpoint]);
    bench.press("e");
    assert_eq!(bench.sent(), [&Command::Evaluate]);
    bench.press("n").write("looks fine").press("enter");
    assert_eq!(
        bench.sent(),
        [&Command::Note {
            text: "looks fine".into()
        }]
    );
    bench.press("s").write("ROMEO:").press("enter");
    assert!(matches!(bench.sent()[..], [Command::Sample { prompt, .. }] if prompt == "ROMEO:"));
    bench
        .press("t")
        .write("3e-4")
        .press("tab")
        .write("0.5")
        .press("enter");
    let adjust = |key: &str, value| Command::Adjust {
        key: key.into(),
        value,
    };
    assert_eq!(
        bench.sent(),
        [&adjust("lr", 3e-4), &adjust("clip_norm", 0.5)]
    );
}

#[test]
fn a_finished_run_takes_no_commands_and_leaves_without_a_question() {
    let mut bench = Bench::new();
    bench.hold(tape::standard(5), Holder::Log);
    bench.press("p");
    assert!(bench.effects.is_empty());
    assert!(bench.picture(100, 30).contains("this run has ended"));
    bench.press("q");
    assert_eq!(bench.effects, [Effect::Quit]);
}

#[test]
fn leaving_a_live_run_asks_and_each_answer_does_what_it_says() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("q esc");
    assert!(bench.effects.is_empty());
    bench.press("q enter");
    assert_eq!(
        bench.effects,
        [Effect::Quit],
        "the first answer leaves it running"
    );
    assert_eq!(
        bench.app.leaves(),
        Some(ExitReport::Running("shakespeare-k3qf".into()))
    );
    let mut bench = Bench::new();
    bench.live();
    bench.press("q c");
    assert_eq!(
        bench.sent(),
        [&Command::Stop {
            when: StopWhen::AfterCheckpoint
        }]
    );
    bench.event(Event::PhaseChanged {
        phase: Phase::Stopping,
        step: 1_240,
    });
    assert!(bench.effects.is_empty(), "it waits for the run's last word");
    let finished = tape::standard(5).pop().unwrap().event;
    bench.event(finished);
    assert_eq!(bench.effects, [Effect::Quit]);
    // The shell is told where it goes on.
    let left = bench.app.leaves();
    assert!(
        matches!(&left, Some(ExitReport::Stopped { run_dir, kept: Some(1_000), finish: Some(_), .. })
            if run_dir.ends_with("2026-11-21-1040-shakespeare-k3qf")),
        "{left:?}"
    );
    let mut bench = Bench::new();
    bench.live();
    bench.press("shift-s s");
    assert_eq!(
        bench.sent(),
        [&Command::Stop {
            when: StopWhen::Now
        }]
    );
    let finished = tape::standard(5).pop().unwrap().event;
    bench.event(finished);
    assert_eq!(
        bench.effects,
        [Effect::Ring],
        "stopping without leaving stays"
    );
    bench.press("q");
    assert_eq!(bench.app.leaves(), None, "the screen has told it");
}

#[test]
fn nothing_is_due_while_nothing_changes() {
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((Vec::new(), Vec::new()))));
    bench.draw(80, 24);
    assert_eq!(bench.app.freshness(), Freshness::Fresh);
    assert_eq!(
        bench.app.tick(),
        Some(Duration::from_secs(3)),
        "an idle home screen only looks whether its folders changed"
    );
    bench.wait(3_000);
    assert_eq!(bench.app.freshness(), Freshness::Fresh);
    bench.msg(Msg::Runs(Ok((Vec::new(), Vec::new()))));
    assert_eq!(
        bench.app.freshness(),
        Freshness::Fresh,
        "the same list changes nothing"
    );
    bench.live();
    bench.draw(80, 24);
    assert_eq!(bench.app.tick(), None);
    bench.event(Event::Noted {
        step: 1_240,
        text: "x".into(),
    });
    assert_eq!(bench.app.freshness(), Freshness::DataMoved);
}

#[test]
fn toasts_go_with_time_and_old_news_never_pops_up() {
    let mut bench = Bench::new();
    bench.live();
    assert!(
        !bench.picture(100, 30).contains(" ✓ checkpoint"),
        "what came before is no news"
    );
    bench.press("p");
    bench.app.toast(Level::Warn, "mind the gap");
    assert!(bench.picture(100, 30).contains("mind the gap"));
    assert!(bench.app.tick().is_some());
    bench.wait(9_000);
    assert!(!bench.picture(100, 30).contains("mind the gap"));
}

#[test]
fn esc_closes_the_messages_over_the_screen_before_what_is_below_them() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("2 z");
    bench.app.toast(Level::Bad, "mind the gap");
    let covered = bench.picture(100, 30);
    assert!(covered.contains("mind the gap"), "{covered}");
    let free = bench.press("esc").picture(100, 30);
    assert!(!free.contains("mind the gap"), "{free}");
    // One chart alone is still there; the next leaves it.
    let charts = bench.press("esc").picture(100, 30);
    assert!(!free.contains("grad norm"), "{free}");
    assert!(charts.contains("grad norm"), "{charts}");
}

#[test]
fn a_late_link_of_a_run_that_was_let_go_is_let_go_too() {
    let mut bench = Bench::new();
    bench.runs().press("enter");
    let first = bench.app.run_slot().unwrap();
    bench.press("1 down enter");
    assert!(bench.effects.contains(&Effect::Detach { slot: first }));
    let late = Opened::new("x", Holder::Detached);
    bench.msg(Msg::Opened {
        slot: first,
        result: Ok(late),
    });
    assert_eq!(bench.effects, [Effect::Detach { slot: first }]);
}

#[test]
fn mouse_clicks_reach_tabs_rows_and_answers() {
    let mut bench = Bench::new();
    bench.runs();
    let picture = bench.picture(80, 24);
    let find = |what: &str| {
        let rows = picture.lines().enumerate();
        let mut found =
            rows.filter_map(|(y, row)| row.find(what).map(|x| (row[..x].chars().count(), y)));
        found.next().unwrap_or_else(|| panic!("{what}"))
    };
    let click = |bench: &mut Bench, (x, y): (usize, usize)| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        let (column, row) = (u16::try_from(x).unwrap(), u16::try_from(y).unwrap());
        bench.msg(Msg::Mouse(MouseEvent {
            kind,
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }));
    };
    click(&mut bench, find("my-poems"));
    assert!(bench.effects.is_empty(), "the first click selects");
    click(&mut bench, find("my-poems"));
    assert!(matches!(bench.effects[..], [Effect::Attach { .. }]));
    click(&mut bench, find("3 Chat"));
    assert_eq!(bench.app.entry().id, "chat");
}

#[test]
fn random_keys_events_and_sizes_never_panic() {
    use crate::base::rng::{Rng, Stream};
    let keys: Vec<KeyEvent> = "q w e r t y u i o p a s d f g h j k l z x c v b n m / : ? 0 1 2 3 + - [ ] enter esc tab \
         backtab up down left right pageup pagedown home end backspace space ctrl-p ctrl-o ctrl-n ctrl-s ctrl-r ctrl-x ctrl-j ctrl-e ctrl-v ctrl-b ctrl-y \
         ctrl-u ctrl-d shift-s shift-t shift-h shift-l shift-g shift-left shift-right"
        .split_whitespace()
        .map(|key| {
            let combination = crokey::parse(key).unwrap();
            let crokey::OneToThree::One(code) = combination.codes else { panic!("{key}") };
            KeyEvent::new(code, combination.modifiers)
        })
        .collect();
    let events = tape::standard(40);
    for seed in 0..12 {
        let mut rng = Rng::new(seed, Stream::Test, 0, 0);
        let mut bench = Bench::new();
        bench.runs();
        let mut next = 0;
        for _ in 0..400 {
            match rng.below(12) {
                0 => {
                    bench.draw(1 + rng.below(200) as u16, 1 + rng.below(60) as u16);
                }
                1 if bench.app.run_slot().is_some() => {
                    let slot = bench.app.run_slot().unwrap();
                    let end = (next + 40).min(events.len());
                    let batch = events[next..end]
                        .iter()
                        .map(|e| Incoming::Event(Box::new(e.clone())))
                        .collect();
                    next = end;
                    bench.msg(Msg::Incoming { slot, batch });
                }
                2 => {
                    bench.msg(Msg::Checkpoints(checkpoint_rows()));
                }
                3 => {
                    let kind = MouseEventKind::Down(MouseButton::Left);
                    let (column, row) = (rng.below(200) as u16, rng.below(60) as u16);
                    bench.msg(Msg::Mouse(MouseEvent {
                        kind,
                        column,
                        row,
                        modifiers: KeyModifiers::NONE,
                    }));
                }
                4 => {
                    bench.msg(Msg::Paste("a\x1b[31mb\n日本\u{202e}".into()));
                }
                5 => {
                    bench.wait(rng.below(5_000));
                }
                _ => {
                    let key = keys[rng.below(keys.len() as u64) as usize];
                    bench.msg(Msg::Key(key));
                }
            }
            for effect in std::mem::take(&mut bench.effects) {
                if let Effect::Attach {
                    slot,
                    run_dir: path,
                } = effect
                {
                    let opened = Opened::new(path, Holder::Detached);
                    bench.msg(Msg::Opened {
                        slot,
                        result: Ok(opened),
                    });
                    next = 0;
                }
            }
        }
        bench.draw(80, 24);
    }
}

#[test]
fn a_stopped_run_goes_on_from_its_screen_and_from_home() {
    let stopped: PathBuf = "runs/2026-11-20-1801-my-poems-x9zz".into();
    let mut bench = Bench::new();
    let mut ended = runs();
    ended[0].status = crate::run::index::RunStatus::Crashed;
    bench
        .msg(Msg::Runs(Ok((ended, Vec::new()))))
        .press("end up shift-r");
    assert!(
        matches!(&bench.effects[..], [Effect::ResumeRun { run_dir, .. }] if *run_dir == stopped)
    );
    // One that saved nothing threw its steps away at one key.
    let mut ended = runs();
    ended[0].status = crate::run::index::RunStatus::Crashed;
    let unsaved = ended.iter_mut().find(|run| run.path == stopped).unwrap();
    (unsaved.nothing_saved, unsaved.step) = (true, 500);
    let mut bench = Bench::new();
    bench
        .msg(Msg::Runs(Ok((ended, Vec::new()))))
        .press("end up shift-r");
    assert!(bench.effects.is_empty(), "{:?}", bench.effects);
    let picture = bench.picture(100, 30);
    for words in ["no checkpoint yet: it starts over", "500"] {
        assert!(picture.contains(words), "{words}:\n{picture}");
    }
    bench.press("enter");
    assert!(
        matches!(&bench.effects[..], [Effect::ResumeRun { run_dir, .. }] if *run_dir == stopped)
    );
    let mut bench = Bench::new();
    bench.runs().press("shift-r");
    assert!(bench.effects.is_empty(), "a live run is not resumed");
    let mut bench = Bench::new();
    bench.hold(tape::until(5, 1_500), Holder::Log);
    let finished = |outcome| Event::Finished {
        outcome,
        step: 1_500,
        tokens: 0,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 60.0,
        message: String::new(),
    };
    bench.event(finished(crate::wire::Outcome::Stopped));
    assert!(bench.picture(120, 30).contains("p resume"));
    bench.press("p");
    let effects = &bench.effects;
    assert!(
        effects
            .iter()
            .any(|e| matches!(e, Effect::ResumeRun { .. })),
        "{effects:?}"
    );
    let mut bench = Bench::new();
    bench.hold(tape::standard(5), Holder::Log);
    bench.press("p");
    assert!(bench.effects.is_empty(), "a completed run is not resumed");
}

#[test]
fn tabs_stand_still_whatever_pane_is_in_front() {
    let first = |bench: &mut Bench, width| {
        let picture = bench.picture(width, 24);
        picture.lines().next().unwrap().to_string()
    };
    // Where the tabs end: behind the ninth, which has a title or none.
    let tabs = |row: &str| {
        let end = match row.find("9 Health") {
            Some(at) => at + "9 Health".len(),
            None => row.find('9').unwrap() + 1,
        };
        row[..end].to_string()
    };
    for width in [40, 60, 72, 76, 80, 84, 92, 100, 112, 120, 160] {
        let mut bench = Bench::new();
        bench.runs();
        let known = tabs(&first(&mut bench, width));
        let titles = width >= 76;
        assert_eq!(known.contains("1 Home  2 Run"), titles, "{known}");
        for run in [false, true] {
            if run {
                bench.live();
            }
            for pane in PANES {
                bench.app.act(crate::ui::action::Action::Open(pane));
                let row = first(&mut bench, width);
                assert_eq!(tabs(&row), known, "{width}, {pane:?}");
                // The title in front is always written: on its tab or behind the last one.
                assert!(row.contains(pane.title), "{width}: {row}");
                let state = row.contains("● training");
                assert!(state == run || width < 46, "{width}: {row}");
            }
        }
    }
    let mut bench = Bench::new();
    bench.live();
    bench.press("6");
    let row = first(&mut bench, 80);
    assert!(row.contains(" 6 7 8 9  Hardware "), "{row}");
    bench.press("shift-b");
    let row = first(&mut bench, 80);
    assert!(row.contains(" 6 7 8 9  B Batch "), "{row}");
    assert!(row.contains("…"), "the run's name gives way: {row}");
    assert!(row.contains("k3qf ● training"), "{row}");
}

#[test]
fn two_copies_of_a_run_are_two_runs_for_the_panes_data_and_plan() {
    let loaded = crate::spec::load("quickstart", &[], &Default::default()).unwrap();
    let mut events = tape::standard(5);
    for envelope in &mut events {
        if let Event::Started { spec, .. } = &mut envelope.event {
            *spec = loaded.spec.to_value();
        }
    }
    let mut bench = Bench::new();
    let mut inspected = Vec::new();
    let mut planned = Vec::new();
    for folder in ["one", "two", "two"] {
        bench.hold_at(&format!("runs/{folder}"), events.clone(), Holder::Log);
        bench.effects.clear();
        bench.press("4");
        let asked = |effect: &Effect| match effect {
            Effect::InspectData(subject) => Some(subject.name.clone()),
            _ => None,
        };
        inspected.push(bench.effects.iter().find_map(asked));
        // A number of the plan is changed; the plan of the same run keeps it.
        let plan = bench.press("5").picture(120, 40);
        planned.push(plan.contains(" micro-batch     12 "));
        bench.press("home down down down right");
    }
    assert_eq!(
        inspected,
        [Some("data of one".into()), Some("data of two".into()), None]
    );
    assert_eq!(planned, [true, true, false]);
}

#[test]
fn a_run_that_ends_before_our_eyes_shows_its_end_and_an_old_log_its_charts() {
    let end = |b: &mut Bench| {
        let last = tape::standard(5).pop().unwrap().event;
        assert!(matches!(last, Event::Finished { .. }));
        b.event(last);
    };
    let mut bench = Bench::new();
    bench.live();
    end(&mut bench);
    let picture = bench.picture(80, 24);
    for words in [
        "FINISHED",
        "best ",
        "at step",
        "llmtui chat shakespeare-k3qf",
        "all charts",
    ] {
        assert!(picture.contains(words), "{words}\n{picture}");
    }
    // Commands stand in their column, or on a row of their own.
    let column = |line: &str| {
        line.split_once("llmtui ")
            .map(|(before, _)| before.chars().count())
    };
    let mut columns: Vec<usize> = picture.lines().filter_map(column).collect();
    columns.sort();
    columns.dedup();
    assert_eq!(columns.len(), 2, "{picture}");
    assert!(
        picture.contains("│      train longer  llmtui train --resume "),
        "{picture}"
    );
    bench.press("r");
    assert!(!bench.picture(80, 24).contains("all charts"));
    bench.press("r");
    assert!(bench.picture(80, 24).contains("all charts"));
    bench.press("esc");
    assert!(!bench.picture(80, 24).contains("all charts"));
    let mut bench = Bench::new();
    bench.hold(tape::standard(5), Holder::Log);
    assert!(!bench.picture(80, 24).contains("all charts"));
    let mut bench = Bench::new();
    bench.live();
    bench.press("r");
    assert!(bench.picture(80, 24).contains("this run is live"));
}

#[test]
fn a_paused_run_says_how_it_goes_on_and_its_name_is_seen_at_80_columns() {
    let mut bench = Bench::new();
    bench.live();
    let picture = bench.picture(80, 24);
    let tabs = picture.lines().next().unwrap();
    assert!(tabs.contains("shakespeare-k3qf ● training"), "{tabs}");
    assert!(picture.contains("p pause"), "{picture}");
    bench.event(Event::PhaseChanged {
        phase: Phase::Paused,
        step: 1_240,
    });
    let picture = bench.picture(80, 24);
    assert!(picture.contains("p resume"), "{picture}");
    assert!(!picture.contains("p pause"), "{picture}");
    let narrow = bench.picture(72, 24);
    let tabs = narrow.lines().next().unwrap();
    assert!(tabs.contains("k3qf") && tabs.contains("○ paused"), "{tabs}");
}

#[test]
fn the_theme_picker_shows_each_theme_and_only_a_chosen_one_is_kept() {
    let mut bench = Bench::new();
    let name = |bench: &Bench| bench.app.theme.name.clone();
    let before = name(&bench);
    bench.press("shift-t down");
    let other = name(&bench);
    assert_ne!(other, before);
    assert!(bench.effects.is_empty());
    bench.press("esc");
    assert_eq!((name(&bench), bench.effects.len()), (before, 0));
    bench.press("shift-t down enter");
    assert_eq!(name(&bench), other);
    assert_eq!(bench.effects, [Effect::RememberTheme(other)]);
}

#[test]
fn ctrl_u_clears_a_field_and_tab_completes_a_path() {
    let mut bench = Bench::new();
    bench.press("4 o").write("old.txt").press("ctrl-u");
    bench.write("ch").press("tab");
    assert_eq!(bench.effects, [Effect::Complete("ch".into())]);
    bench.msg(Msg::Completed {
        of: "ch".into(),
        path: "chats".into(),
        names: vec!["chats.csv".into(), "chats.jsonl".into()],
    });
    let picture = bench.picture(80, 24);
    assert!(picture.contains("chats.csv  chats.jsonl"), "{picture}");
    bench.write(".csv").press("enter");
    let subject = crate::data::inspect::Subject::of_path("chats.csv");
    assert_eq!(bench.effects, [Effect::InspectData(Box::new(subject))]);
    let mut bench = Bench::new();
    bench.runs().press("/").write("nothing").press("ctrl-u");
    assert!(bench.picture(100, 24).contains("my-poems"));
}

#[test]
fn what_was_saved_and_cannot_run_is_not_praised() {
    let mut bench = Bench::new();
    let saved = |fault: Option<&str>| {
        Msg::Saved(Ok(crate::ui::msg::SavedSpec {
            path: "my.yaml".into(),
            fault: fault.map(String::from),
        }))
    };
    bench.msg(saved(None));
    assert!(bench.picture(100, 30).contains("llmtui train my.yaml"));
    bench.wait(10_000);
    bench.msg(saved(Some("model.n_head: 5 does not divide d_model 128")));
    let picture = bench.picture(100, 30);
    assert!(picture.contains("cannot run yet"), "{picture}");
    assert!(!picture.contains("llmtui train"), "{picture}");
    bench.wait(10_000);
    // `llmtui train sft` is the preset.
    bench.msg(Msg::Saved(Ok(crate::ui::msg::SavedSpec {
        path: "sft".into(),
        fault: None,
    })));
    assert!(bench.picture(100, 30).contains("llmtui train ./sft"));
}

#[test]
fn sentences_of_panes_and_overlays_name_the_users_keys() {
    let mut options = options("ansi", ColorDepth::Ansi16, false);
    let mine = "home: {mark-run: ctrl-g, compare-runs: f2, compare-evals: f3}
global: {guide: []}
list: {accept: f4, cancel: f5}
compare: {pick-run: f6}
evals: {evals-add: f7}
samples: {ask-sample: f8}
run: {filter-charts: f9}";
    assert_eq!(options.keymap.overlay("mine", mine), []);
    let mut bench = Bench::with(options);
    bench.msg(Msg::Runs(Ok((Vec::new(), Vec::new()))));
    assert!(bench.picture(120, 30).contains("first run: f4 trains"));
    for (pane, words) in [
        ("shift-c", "mark runs with ctrl-g and press f2; or press f6"),
        ("shift-e", "mark runs with ctrl-g and press f3; or press f7"),
    ] {
        bench.press(pane);
        let picture = bench.picture(160, 30);
        assert!(picture.contains(words), "{picture}");
    }
    bench.press("?");
    let help = bench.picture(120, 30);
    assert!(
        help.contains("┌ help ") && help.contains("f5 back"),
        "{help}"
    );
    bench.press("f5");
    bench.hold(tape::until(5, 20), Holder::Detached);
    bench.press("8");
    let picture = bench.picture(120, 30);
    assert!(picture.contains("f8 asks for one now"), "{picture}");
    bench.press("2 f9");
    let picture = bench.picture(120, 30);
    assert!(picture.contains("f4 applies it, f5 shows all"), "{picture}");
}
