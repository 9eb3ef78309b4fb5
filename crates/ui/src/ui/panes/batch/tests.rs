//! The pane with rows made by hand: what stands on the screen, what keys ask for, late answers.

use super::*;
use crate::base::finding::Finding;
use crate::base::clock::UnixMillis;
use crate::run::revisit::ScoredRow;
use crate::run::state::Finish;
use crate::ui::panes::bench::TestContext;
use crate::ui::store::{OpenRun, LinkState};
use crate::wire::{Best, Command, Direction, Envelope, Event, Num, Outcome, id};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn row(number: usize, text: &str, loss: f32) -> Row {
    let n = text.len();
    Row {
        step: Some(40),
        row: number,
        ids: vec![1; n],
        targets: vec![2; n],
        mask: vec![true; n],
        supervised: n,
        text: text.into(),
        scored: Some(ScoredRow {
            weights_of: 30,
            losses: vec![loss; n],
            loss: Some(loss.into()),
            pieces: text.chars().map(String::from).collect(),
            firsts: Vec::new(),
        }),
        ..Row::default()
    }
}

/// Two rows of one number looked like one row twice.
#[test]
fn answers_of_a_pair_are_told_apart_in_the_list() {
    let mut around = around(false);
    let mut pane = BatchPane::default();
    pane.answered("step", Answer::Text("40".into()), &mut around.context());
    let of = |label: &str| Row { label: Some(label.into()), ..row(3, "abc", 1.5) };
    let found = Revisited { rows: vec![of("chosen"), of("rejected")], ..found() };
    let msg = Msg::Revisited { run_dir: "runs/x".into(), step: 40, result: Ok(Box::new(found)) };
    pane.incoming(&msg, &mut around.context());
    let picture = screen(&mut pane, &mut around);
    assert!(picture.contains("3  chosen ") && picture.contains("3  rejected "), "{picture}");
}

fn checkpointed(step: u64, best: bool) -> Envelope {
    Envelope {
        v: 1,
        seq: 100 + step,
        t: UnixMillis(step),
        event: Event::Checkpointed {
            step,
            path: crate::run::checkpoints::path_in_run(step),
            bytes: 1,
            seconds: 0.1,
            best,
            val_loss: None,
            by: None,
        },
    }
}

/// Checkpoints of the run on the screen.
fn save(around: &mut TestContext, steps: &[u64]) {
    let held = around.store.held.as_mut().unwrap();
    for step in steps {
        held.state.apply(&checkpointed(*step, false));
    }
}

/// A run at step 50 on the screen.
fn around(live: bool) -> TestContext {
    let mut around = TestContext::new();
    let mut held = OpenRun::opening(Slot(1), "x".into(), Default::default());
    held.path = Some("runs/x".into());
    held.link = if live { LinkState::Live } else { LinkState::Ended(None) };
    for step in 1..=50 {
        let loss = if step == 40 { 9.5 } else { 2.0 };
        held.state.apply(&Envelope {
            v: 1,
            seq: step,
            t: UnixMillis(step),
            event: Event::Stepped {
                step,
                tokens: step,
                values: [("train/loss".to_string(), Num(loss))].into(),
            },
        });
    }
    around.store.held = Some(held);
    around
}

fn found() -> Revisited {
    Revisited {
        step: 40,
        rows: vec![row(0, "all is well", 1.5), row(1, "qzxv", 8.25)],
        before: Some(2.1),
    }
}

/// A pane that shows the batch of step 40.
fn pane(around: &mut TestContext) -> BatchPane {
    let mut pane = BatchPane::default();
    let asked = pane.answered("step", Answer::Text("40".into()), &mut around.context());
    assert!(
        matches!(&asked[..], [Request::Do(Effect::Revisit { step: 40, .. })]),
        "{asked:?}"
    );
    let msg = Msg::Revisited {
        run_dir: "runs/x".into(),
        step: 40,
        result: Ok(Box::new(found())),
    };
    pane.incoming(&msg, &mut around.context());
    pane
}

fn screen(pane: &mut BatchPane, around: &mut TestContext) -> String {
    screen_of(90, pane, around)
}

fn screen_of(width: u16, pane: &mut BatchPane, around: &mut TestContext) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
    terminal
        .draw(|frame| pane.draw(frame, frame.area(), &mut around.context()))
        .unwrap();
    terminal.backend().to_string()
}

#[test]
fn the_step_its_rows_and_the_step_before_stand_on_the_screen() {
    let mut around = around(true);
    let mut pane = pane(&mut around);
    let shown = screen(&mut pane, &mut around);
    for words in ["batch of step 40", "loss 9.5", "by checkpoint 30", "1.500", "8.250", "all is well"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    // (11 · 1.5 + 4 · 8.25) / 15 = 3.3, 1.2 above the step before.
    assert!(shown.contains("3.300") && shown.contains("(+1.200)"), "{shown}");
    pane.act(Action::BatchSort, &mut around.context());
    assert_eq!(pane.rows()[0].text, "qzxv");
    let shown = screen(&mut pane, &mut around);
    assert!(shown.contains("highest loss first"), "{shown}");
}

#[test]
fn whose_weights_read_the_rows_is_told_whole_on_80_columns() {
    let mut around = around(true);
    let mut pane = pane(&mut around);
    pane.worst_first = true;
    for (weights_of, words) in [
        (30, "by checkpoint 30 "),
        (0, "with the initial weights "),
    ] {
        for row in &mut pane.found.as_mut().unwrap().rows {
            row.scored.as_mut().unwrap().weights_of = weights_of;
        }
        let shown = screen_of(80, &mut pane, &mut around);
        for words in [words, "(+1.200)", "highest loss first "] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
        let shown = screen_of(50, &mut pane, &mut around);
        assert!(shown.contains(words), "{words}\n{shown}");
    }
}

#[test]
fn the_first_token_of_a_document_stands_before_its_targets() {
    let mut around = around(true);
    let mut pane = pane(&mut around);
    let rows = &mut pane.found.as_mut().unwrap().rows;
    let scored = rows[0].scored.as_mut().unwrap();
    scored.pieces = ["o", "r", "t", " ", "1", "o", "p", "y"].map(String::from).to_vec();
    scored.firsts = vec![(0, "s".into()), (5, "c".into())];
    let shown = screen(&mut pane, &mut around);
    assert!(shown.contains("sort 1copy"), "{shown}");
}

#[test]
fn keys_walk_through_the_steps_and_late_answers_are_dropped() {
    let mut around = around(true);
    let mut pane = pane(&mut around);
    let asked = pane.act(Action::BatchLater, &mut around.context());
    assert!(matches!(&asked[..], [Request::Do(Effect::Revisit { step: 41, .. })]), "{asked:?}");
    // On while that is computed: one at a time.
    assert!(pane.act(Action::BatchLater, &mut around.context()).is_empty());
    let late = Msg::Revisited {
        run_dir: "runs/x".into(),
        step: 41,
        result: Err("no".into()),
    };
    let asked = pane.incoming(&late, &mut around.context());
    assert!(
        matches!(&asked[..], [_, Request::Do(Effect::Revisit { step: 42, .. })]),
        "{asked:?}"
    );
    let failed = Msg::Revisited {
        run_dir: "runs/x".into(),
        step: 42,
        result: Err("the training text changed".into()),
    };
    assert_eq!(pane.incoming(&failed, &mut around.context()).len(), 1);
    let shown = screen(&mut pane, &mut around);
    assert!(shown.contains("the training text changed"), "{shown}");
    // No step behind the newest, none before the first.
    for (typed, at) in [("1,000", 50), ("0", 1)] {
        let said = pane.answered("step", Answer::Text(typed.into()), &mut around.context());
        assert_eq!(pane.step, Some(at));
        let said = format!("{said:?}");
        assert!(said.contains(&format!("no step {typed}: the run has steps 1 to 50")), "{said}");
    }
    let said = pane.answered("step", Answer::Text("50".into()), &mut around.context());
    assert!(!format!("{said:?}").contains("no step "), "{said:?}");
}

#[test]
fn a_live_run_goes_back_and_any_run_branches() {
    let mut around = around(true);
    save(&mut around, &[10, 30, 45]);
    let mut at = pane(&mut around);
    let opened = format!("{:?}", at.act(Action::FromHere, &mut around.context()));
    assert!(opened.contains("roll back to step 30"), "{opened}");
    assert!(opened.contains("discards 20 steps and checkpoint 45\""), "{opened}");
    assert!(opened.contains("branch from step 10"), "{opened}");
    let sent = at.answered("from", Answer::Text("back 30".into()), &mut around.context());
    assert!(
        matches!(
            &sent[..],
            [Request::Do(Effect::Send { command: Command::Rollback { step: 30 }, .. })]
        ),
        "{sent:?}"
    );

    around = super::tests::around(false);
    save(&mut around, &[10, 30, 45]);
    at = pane(&mut around);
    let opened = format!("{:?}", at.act(Action::FromHere, &mut around.context()));
    assert!(!opened.contains("roll back") && opened.contains("branch from step 30"), "{opened}");
    at.answered("from", Answer::Text("branch 30".into()), &mut around.context());
    let wrong = at.answered("settings", Answer::Text("lr".into()), &mut around.context());
    assert!(matches!(&wrong[..], [Request::Toast(..), Request::Open(_)]), "{wrong:?}");
    let planned = at.answered("settings", Answer::Text("lr=1e-4".into()), &mut around.context());
    let plan = BranchPlan {
        step: 30,
        settings: vec!["lr=1e-4".into()],
    };
    assert!(
        matches!(&planned[..], [Request::Do(Effect::PlanBranch { plan: asked, .. })] if *asked == plan),
        "{planned:?}"
    );
    let lines = [
        "branch of x at step 30",
        "  train.clip_norm     0 → 1",
        "  optimizer.adamw.lr  0.001 → 0.0001",
        "model …",
    ];
    let msg = Msg::BranchPlanned {
        run_dir: "runs/x".into(),
        plan: plan.clone(),
        result: Ok(lines.map(String::from).to_vec()),
    };
    let opened = format!("{:?}", at.incoming(&msg, &mut around.context()));
    let sentence = "train.clip_norm 0 → 1; optimizer.adamw.lr 0.001 → 0.0001";
    assert!(opened.contains(sentence) && !opened.contains("model …"), "{opened}");
    let made = at.answered("planned", Answer::Text("start".into()), &mut around.context());
    assert!(
        matches!(&made[..], [Request::Do(Effect::MakeBranch { plan: asked, .. })] if *asked == plan),
        "{made:?}"
    );
    let msg = Msg::BranchMade {
        run_dir: "runs/x".into(),
        result: Ok("runs/y".into()),
    };
    let opened = at.incoming(&msg, &mut around.context());
    assert!(matches!(&opened[..], [Request::ResumeRun(path)] if path.ends_with("y")), "{opened:?}");
}

/// The list was of the moment at which the step's rows were read: a roll-back deleted checkpoints without a word, and rows
/// named checkpoints that had made room for newer ones.
#[test]
fn the_list_is_of_the_checkpoints_that_are_there_now() {
    let mut around = around(true);
    let dir = tempfile::tempdir().unwrap();
    around.store.held.as_mut().unwrap().path = Some(dir.path().into());
    save(&mut around, &[10, 30]);
    let mut at = BatchPane {
        slot: Some(Slot(1)),
        step: Some(40),
        found: Some(found()),
        ..BatchPane::default()
    };
    save(&mut around, &[42, 48]);
    for step in [10, 42, 48] {
        let folder = crate::run::checkpoints::path_in_run(step);
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    let opened = format!("{:?}", at.act(Action::FromHere, &mut around.context()));
    assert!(opened.contains("roll back to step 10") && !opened.contains("step 30"), "{opened}");
    assert!(opened.contains("discards 40 steps and checkpoints 42, 48\""), "{opened}");
    // The rows of the next step are on their way.
    at.step = Some(41);
    let opened = format!("{:?}", at.act(Action::FromHere, &mut around.context()));
    assert!(opened.contains("wait until the step's rows are loaded"), "{opened}");
    // At the checkpoint already: there is nothing to go back from.
    at.step = Some(40);
    let held = around.store.held.as_mut().unwrap();
    held.state.apply(&Envelope {
        event: Event::RolledBack { step: 10 },
        ..checkpointed(900, false)
    });
    let opened = format!("{:?}", at.act(Action::FromHere, &mut around.context()));
    assert!(!opened.contains("roll back") && opened.contains("branch from step 10"), "{opened}");
}

/// Of `a, or b` both were set. What diverged has lost its weights: tuning goes on with what is left of them, and so does a
/// branch from a later checkpoint.
#[test]
fn advice_is_one_way_each_and_what_failed_begins_before_it() {
    let mut around = around(true);
    save(&mut around, &[20, 40]);
    let held = around.store.held.as_ref().unwrap();
    let choice = Finding::warn("short", "", "-s lr=1e-3, or -s clip_norm=1").named("x", "settings");
    let opened = format!("{:?}", advice(held, &[choice]));
    assert!(opened.contains("set lr=1e-3\"") && opened.contains("set clip_norm=1\""), "{opened}");
    assert!(!opened.contains("lr=1e-3 clip_norm=1"), "{opened}");
    let seen = crate::base::finding::Signal::of("train/loss", 325.0, "train loss 325").at(30);
    let failed = Finding::fail(seen, "too large a step", "-s lr=5e-5").named("diverged", "divergence");
    let settings = failed.changes();
    assert_eq!(starts(held, &[], &failed, &settings), [("before it", 20), ("start", 0)]);
    let opened = format!("{:?}", advice(held, &[failed]));
    assert!(!opened.contains("in this run, now") && !opened.contains("from 40"), "{opened}");
    let first = "title: \"roll back to 20, then lr=5e-5\", detail: \"discards 30 steps and checkpoint 40; ";
    assert!(opened.find(first) < opened.find("branch from 20"), "{opened}");
    assert!(opened.contains(first), "{opened}");
    let mut pane = BatchPane::default();
    let word = Answer::Text("back 20 lr=5e-5".into());
    let sent = pane.answered("advice", word, &mut around.context());
    let commands = sent.iter().filter_map(|request| match request {
        Request::Do(Effect::Send { command, .. }) => Some(command.clone()),
        _ => None,
    });
    let adjust = Command::Adjust {
        key: "lr".into(),
        value: 5e-5,
    };
    let commands: Vec<Command> = commands.collect();
    assert_eq!(commands, [Command::Rollback { step: 20 }, adjust]);
}

#[test]
fn advice_of_findings_is_followed_in_the_run_or_in_a_branch() {
    let mut around = around(true);
    let finding = |fix: &str| Finding::fail("loss 153", "each step was too large", fix).named("x", "divergence");
    let doubt = |fix: &str| Finding::warn("loss 153", "each step is large", fix).named("x", "rate");
    let held = around.store.held.as_mut().unwrap();
    held.state.apply(&checkpointed(20, true));
    held.state.apply(&checkpointed(40, false));
    let none = format!("{:?}", advice(held, &[finding("look at the data")]));
    assert!(none.contains("no finding suggests a setting"), "{none}");
    let opened = format!("{:?}", advice(held, &[doubt("-s lr=1e-3 -s clip_norm=1")]));
    for words in ["in this run, now", "from 20 (best)", "from 40 (newest)"] {
        assert!(opened.contains(words), "{words}: {opened}");
    }
    // What two findings advise stands once.
    let same = [doubt("-s lr=1e-3"), doubt("-s lr=1e-3")];
    let opened = format!("{:?}", advice(held, &same));
    assert_eq!(opened.matches("in this run, now").count(), 1, "{opened}");
    // A run that was at its best later needs no fewer steps.
    let mut ended = held.state.clone();
    ended.finished = Some(Finish {
        t: UnixMillis(1),
        outcome: Outcome::Completed,
        step: 60,
        val_loss: None,
        best: Some(Best {
            step: 40,
            metric: id::VAL_LOSS.into(),
            value: Num(1.0),
            direction: Direction::Lower,
        }),
        train_loss: None,
        seconds: 1.0,
        message: String::new(),
    });
    assert!(is_refuted(&ended, &["max_steps=20".into()]));
    assert!(!is_refuted(&ended, &["max_steps=40".into()]));
    assert!(!is_refuted(&ended, &["lr=1e-3".into()]));
    // Dropout is fixed while a run trains.
    let opened = format!("{:?}", advice(held, &[finding("-s dropout=0.1")]));
    assert!(!opened.contains("this run") && opened.contains("branch"), "{opened}");
    // Other data or another warm-up change nothing in the middle of a run.
    for setting in ["-s data.val_fraction=0.2", "-s schedule.cosine.warmup_steps=12"] {
        let found = finding(setting);
        assert_eq!(starts(held, &[], &found, &found.changes()), [("start", 0)], "{setting}");
    }
    // The checkpoint of the last step leaves nothing to train, and what failed begins anew.
    held.state.head = Some(crate::run::state::Head {
        name: "x".into(),
        method: "pretrain".into(),
        spec: serde_json::Value::Null,
        n_params: 1,
        vocab_size: 1,
        max_steps: 40,
        batch_tokens: 1,
        epoch_tokens: 1,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    });
    let failed = finding("-s lr=1e-3");
    let settings = failed.changes();
    // It does not say since when: no checkpoint is known to be sound, for no other advice either.
    assert_eq!(starts(held, &[], &failed, &settings), [("start", 0)]);
    let doubtful = Finding::warn("clipped", "", "-s lr=1e-3");
    assert_eq!(starts(held, &[], &doubtful, &settings), [("best", 20), ("start", 0)]);
    let lost = failed.clone().named("token_frequencies", "unigram loss");
    assert_eq!(starts(held, &[lost], &doubtful, &settings), [("start", 0)]);
    // How it is now is not since when it is so: no checkpoint is "before it".
    let now = crate::base::finding::Signal::of("train/loss", 3.2, "train loss 3.2").at(50);
    let rises = Finding::warn(now.clone(), "", "-s lr=1e-3");
    assert_eq!(starts(held, &[], &rises, &settings), [("best", 20), ("start", 0)]);
    let stuck = Finding::fail(now, "", "-s lr=1e-3");
    assert_eq!(starts(held, &[], &stuck, &settings), [("start", 0)]);
    let odd = crate::base::finding::Signal::of("train/loss", f64::NAN, "train loss NaN").at(50);
    let odd = Finding::fail(odd, "", "-s lr=1e-3");
    assert_eq!(starts(held, &[], &odd, &settings)[0], ("before it", 20));
    // Fewer steps than are done end before a checkpoint.
    let fewer = Finding::warn("43 epochs", "", "more data, or -s train.max_steps=20");
    assert_eq!(starts(held, &[], &fewer, &fewer.changes()), [("start", 0)]);
    let more = Finding::warn("short", "", "-s max_steps=1_000");
    assert_eq!(starts(held, &[], &more, &more.changes()), [("best", 20), ("newest", 40), ("start", 0)]);
    // The best is the last one: an older one, which was the best when it was saved, is not called so.
    held.state.apply(&Envelope { seq: 900, ..checkpointed(40, true) });
    assert_eq!(starts(held, &[], &doubtful, &settings), [("earlier", 20), ("start", 0)]);
    let opened = format!("{:?}", advice(held, &[failed]));
    assert!(opened.contains("title: \"from the start: lr=1e-3\"") && !opened.contains("from 40"), "{opened}");
    let mut pane = BatchPane::default();
    let word = Answer::Text("set lr=1e-3 clip_norm=1".into());
    let sent = pane.answered("advice", word, &mut around.context());
    let keys: Vec<&str> = sent
        .iter()
        .filter_map(|request| match request {
            Request::Do(Effect::Send {
                command: Command::Adjust { key, .. },
                ..
            }) => Some(key.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(keys, ["lr", "clip_norm"]);
    let word = Answer::Text("branch 20 dropout=0.1".into());
    let planned = format!("{:?}", pane.answered("advice", word, &mut around.context()));
    assert!(planned.contains("PlanBranch") && planned.contains("dropout=0.1"), "{planned}");
    // The box of what opens says that it is checked, and goes with the result; a toast stayed beside the result.
    assert!(!planned.contains("Toast"), "{planned}");
}

/// The path of the one file of the data stood in each row, and took the room of the text.
#[test]
fn rows_of_one_file_begin_with_their_text_and_others_name_their_files() {
    let path = "/home/someone/work/my data/essay*.txt";
    let of = |number: usize, source: &str| Row {
        sources: vec![source.into()],
        ..row(number, "To be or not to be", 1.5)
    };
    for (second, several) in [(path, false), ("/home/someone/else/poems.txt", true)] {
        let mut around = around(false);
        let mut pane = BatchPane::default();
        pane.answered("step", Answer::Text("40".into()), &mut around.context());
        let found = Revisited { rows: vec![of(0, path), of(1, second)], ..found() };
        let msg = Msg::Revisited { run_dir: "runs/x".into(), step: 40, result: Ok(Box::new(found)) };
        pane.incoming(&msg, &mut around.context());
        let picture = screen(&mut pane, &mut around);
        assert_eq!(picture.contains("rows of essay*.txt"), !several, "{picture}");
        assert_eq!(picture.contains("  poems.txt  To be or not"), several, "{picture}");
        assert_eq!(picture.contains("18 tokens  To be or not"), !several, "{picture}");
        assert!(!picture.contains("someone"), "{picture}");
    }
}
