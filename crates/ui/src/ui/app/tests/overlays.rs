//! What holds for every overlay.

use super::*;
use crate::run::state::Level;
use crate::ui::action::Context;
use crate::ui::overlays::{HelpSheet, examples};

/// The workbench with one overlay on it, and whether letters are text there.
fn with(overlay: Box<dyn Overlay>) -> (Bench, bool) {
    let mut bench = Bench::new();
    let typing = overlay.typing();
    bench.app.open(overlay);
    (bench, typing)
}

#[test]
fn esc_and_ctrl_c_close_every_overlay_and_so_does_q_where_it_is_no_text() {
    for (name, overlay) in examples() {
        let (mut bench, typing) = with(overlay);
        bench.press("q");
        assert_eq!(bench.app.overlays.is_empty(), !typing, "{name}: q");
        assert!(bench.effects.is_empty() || name == "wizard", "{name}");
    }
    for keys in ["esc", "ctrl-c"] {
        for (name, overlay) in examples() {
            let (mut bench, _) = with(overlay);
            bench.press(keys);
            assert!(bench.app.overlays.is_empty(), "{name}: {keys}");
            assert!(!bench.effects.contains(&Effect::Quit), "{name}: {keys}");
        }
    }
}

#[test]
fn a_question_mark_helps_with_every_overlay_and_closes_the_help() {
    for (name, overlay) in examples().into_iter().filter(|(_, o)| !o.typing()) {
        let first = overlay.contexts()[0].title();
        let (mut bench, _) = with(overlay);
        bench.press("?");
        if name == "help" {
            assert!(bench.app.overlays.is_empty(), "help closes itself");
            continue;
        }
        assert_eq!(bench.app.overlays.len(), 2, "{name}");
        let picture = bench.picture(100, 30);
        assert!(picture.contains("┌ help "), "{name}:\n{picture}");
        assert!(picture.contains(first), "{name}:\n{picture}");
        bench.press("?");
        assert_eq!(bench.app.overlays.len(), 1, "{name}");
    }
}

#[test]
fn keys_of_the_workbench_do_not_reach_past_an_overlay() {
    for (name, overlay) in examples() {
        let (mut bench, _) = with(overlay);
        bench.press("5 ] shift-t ctrl-p");
        assert_eq!(bench.app.front, 0, "{name}");
        assert_eq!(bench.app.overlays.len(), 1, "{name}");
    }
}

#[test]
fn every_overlay_draws_at_every_size_and_names_the_key_that_leaves_it() {
    for (name, overlay) in examples() {
        let (mut bench, _) = with(overlay);
        for (width, height) in [(24, 6), (40, 8), (80, 24), (160, 48)] {
            bench.draw(width, height);
        }
        let picture = bench.picture(100, 30);
        let hints = picture.lines().last().unwrap_or_default();
        assert!(hints.contains("esc "), "{name}: {hints}");
    }
}

#[test]
fn a_hint_of_an_overlay_does_what_its_key_does_and_a_click_beside_it_closes_it() {
    let (mut bench, _) = with(Box::new(HelpSheet::new(&[Context::Global])));
    let hints = bench.picture(100, 30);
    let hints = hints.lines().last().unwrap();
    let before_page = hints.split("page").next().unwrap();
    let page = before_page.chars().count() as u16;
    let top = |bench: &mut Bench| bench.picture(100, 30).lines().nth(2).unwrap().to_string();
    let before = top(&mut bench);
    bench.click(page, 29);
    assert_eq!(bench.app.overlays.len(), 1, "{hints}");
    assert_ne!(top(&mut bench), before, "a page further");
    // The tabs lie below it.
    bench.click(12, 0);
    assert_eq!((bench.app.overlays.len(), bench.app.front), (0, 0));
}

#[test]
fn steps_from_the_end_stay_at_the_end() {
    for name in ["help", "guide"] {
        let found = examples().into_iter().find(|(of, _)| *of == name);
        let (mut bench, _) = with(found.unwrap().1);
        if name == "guide" {
            bench.press("enter");
        }
        // Before the next draw the end is not known yet.
        bench.press("end");
        let end = bench.picture(80, 12);
        bench.press("end down pagedown");
        assert_eq!(bench.picture(80, 12), end, "{name}");
    }
}

#[test]
fn the_guide_answers_what_is_typed() {
    let mut bench = Bench::new();
    bench.press("ctrl-g").write("rank hang nccl");
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains("A rank hangs in the middle of a run"),
        "{picture}"
    );
    assert!(!picture.contains("Can this machine train it?"), "{picture}");
    let page = bench.press("enter").picture(100, 30);
    assert!(page.contains("Cause: One rank died"), "{page}");
    // A step back each: to the answers, to all questions.
    let picture = bench.press("esc").picture(100, 30);
    assert!(picture.contains("A rank hangs"), "{picture}");
    let picture = bench.press("esc").picture(100, 30);
    assert!(picture.contains("Can this machine train it?"), "{picture}");
    bench.write("what is grad_norm");
    let term = bench.press("enter").picture(100, 30);
    assert!(
        term.contains("grad_norm, a metric") && term.contains("Normal: "),
        "{term}"
    );
    bench.press("esc").press("esc").write("zxcv");
    let none = bench.press("enter").picture(100, 30);
    assert!(none.contains("nothing answers this"), "{none}");
    bench.press("esc").press("esc");
    assert_eq!(bench.app.overlays.len(), 0);
}

#[test]
fn a_toast_lies_over_no_field_and_goes_with_its_cause() {
    let mut bench = Bench::new();
    let slot = bench.live();
    bench.app.toast(
        Level::Bad,
        "this value is wrong, for reasons that take many words",
    );
    bench.press(":").write("checkpoint");
    let picture = bench.picture(80, 24);
    assert!(picture.contains("▸ checkpoint"), "{picture}");
    let lines: Vec<&str> = picture.lines().collect();
    assert!(lines[0].contains("this value is wrong"), "{picture}");
    assert!(!lines[1..].concat().contains("this value"), "{picture}");
    bench.press("esc");
    assert!(!bench.picture(80, 24).contains("this value"));
    let batch = vec![Incoming::Closed(Some("reset by peer".into()))];
    bench.msg(Msg::Incoming { slot, batch });
    assert!(
        bench
            .picture(100, 30)
            .contains("lost the connection to the run")
    );
    bench.press("p");
    assert!(matches!(
        bench.effects.last(),
        Some(Effect::ResumeRun { .. })
    ));
    assert!(
        !bench
            .picture(100, 30)
            .contains("lost the connection to the run")
    );
}

/// Of three that are long, one was on the screen, cut, and the others never.
#[test]
fn every_complaint_about_the_users_files_can_be_read_on_a_small_screen() {
    let complaint = |file: &str| {
        let why = "is 2.1 MiB; at most 1 MiB is read, so that a wrong file is no danger; ";
        format!("/home/somebody/.config/llmtui/{file} {why}choose a smaller one, end of {file}")
    };
    let files = ["keymap.yaml", "themes/a.yaml", "themes/b.yaml", "c.yml"];
    let mut options = options("ansi", ColorDepth::Ansi16, false);
    options.complaints = files.map(complaint).into();
    let mut bench = Bench::with(options);
    let corner = bench.picture(80, 24);
    assert!(corner.contains("3 more: M shows all"), "{corner}");
    let all = bench.press("shift-m").picture(80, 24);
    for file in files {
        assert!(
            all.matches(file).count() >= 2,
            "its beginning and its end: {all}"
        );
    }
    // They can be read once more when they are gone.
    bench.press("esc").wait(20_000);
    assert!(!bench.picture(80, 24).contains("M shows all"));
    assert!(
        bench
            .press("shift-m")
            .picture(80, 24)
            .contains("end of c.yml")
    );
}

/// It started on the made-up rows that Home refuses.
#[test]
fn the_palette_sets_a_template_up_like_home() {
    let mut bench = Bench::new();
    let row = |name: &str, kind, is_template| PresetRow {
        name: name.into(),
        about: String::new(),
        kind,
        is_template,
    };
    bench.app.store.presets = vec![
        row("sft", PresetKind::Run(PresetGroup::Template), true),
        row("sft-demo", PresetKind::Run(PresetGroup::Demo), false),
        row("mine.yaml", PresetKind::File, true),
    ];
    for name in ["sft", "mine.yaml"] {
        bench.press(":").write(&format!("set up {name}"));
        let picture = bench.picture(100, 30);
        assert!(picture.contains(&format!("▸ set up {name}")), "{picture}");
        assert!(!picture.contains(&format!("start {name}")), "{picture}");
        bench.press("enter");
        assert_eq!(bench.effects, [Effect::OpenEditor(name.into())]);
        bench.press("esc");
    }
    bench.press(":").write("sft-demo start").press("enter");
    let started = |e: &Effect| matches!(e, Effect::StartRun { target, .. } if target == "sft-demo");
    assert!(bench.effects.iter().any(started), "{:?}", bench.effects);
}

#[test]
fn what_stands_in_the_last_row_already_is_not_said_twice() {
    let mut bench = Bench::new();
    bench.hold(tape::until(5, 30), Holder::Detached);
    bench.event(Event::Noted {
        step: 30,
        text: "the data is new".into(),
    });
    let picture = bench.picture(80, 24);
    assert_eq!(picture.matches("the data is new").count(), 1, "{picture}");
}

#[test]
fn a_path_is_typed_on_a_line_of_its_own_and_what_it_could_go_on_with_is_listed() {
    let mut bench = Bench::new();
    bench.wizard().press("enter down");
    let path = "/home/somebody/projects/data/chats.";
    bench.write(path);
    let picture = bench.picture(80, 24);
    assert!(picture.contains(path), "{picture}");
    assert!(picture.contains("tab complete  ctrl-u clear"), "{picture}");
    bench.press("tab");
    assert!(bench.effects.contains(&Effect::Complete(path.into())));
    let mut completed = |names: &[&str]| {
        bench.msg(Msg::Completed {
            of: path.into(),
            path: path.into(),
            names: names.iter().map(|name| name.to_string()).collect(),
        });
        bench.picture(80, 24)
    };
    let picture = completed(&["chats.csv", "chats.jsonl"]);
    assert!(picture.contains("chats.csv  chats.jsonl"), "{picture}");
    assert!(completed(&[]).contains("no file or folder starts like this"));
}

#[test]
fn a_run_whose_engine_died_is_watched_again_when_somebody_resumes_it() {
    let mut bench = Bench::new();
    let slot = bench.live();
    let closed = vec![Incoming::Closed(None)];
    bench.msg(Msg::Incoming {
        slot,
        batch: closed,
    });
    let picture = bench.picture(160, 48);
    assert!(
        picture.contains("✗ crashed")
            && !picture.contains("no engine")
            && !picture.contains("evaluating"),
        "{picture}"
    );
    assert!(picture.contains("crashed at step"), "{picture}");
    assert!(!picture.contains("the engine died"), "{picture}");
    let small = bench.picture(80, 24);
    assert!(small.contains(": p resumes it from step"), "{small}");
    assert!(!small.contains("LEARNING"), "{small}");
    let run_dir = bench.app.store.held.as_ref().unwrap().path.clone().unwrap();
    bench.wait(2_000);
    assert!(
        bench
            .effects
            .contains(&Effect::LookForEngine(run_dir.clone()))
    );
    let found = |alive| Msg::EngineFound {
        run_dir: run_dir.clone(),
        alive,
    };
    bench.msg(found(false));
    assert_eq!(bench.app.run_slot(), Some(slot), "nobody resumed it");
    bench.msg(found(true));
    let attached = bench
        .effects
        .iter()
        .any(|e| matches!(e, Effect::Attach { run_dir: of, .. } if *of == run_dir));
    assert!(attached && bench.app.run_slot() != Some(slot));
    // What was asked twice is answered twice.
    bench.msg(found(true));
    assert!(bench.effects.is_empty());
}

#[test]
fn a_run_that_a_check_ended_shows_it_on_its_page_and_on_health() {
    let mut bench = Bench::new();
    bench.hold(tape::until(5, 0), Holder::Detached);
    let mut finding = crate::base::finding::Finding::fail(
        "loss 14.124, ln(65) = 4.174",
        "initial weights are too large",
        "model.init_std near 0.02 suits most models",
    );
    finding.title = "Loss before training is as expected".into();
    bench.event(Event::Checked {
        finding: finding.into(),
        seconds: 0.1,
        next: None,
    });
    bench.event(Event::Finished {
        outcome: crate::wire::Outcome::Refused,
        step: 0,
        tokens: 0,
        val_loss: None,
        best: None,
        train_loss: None,
        seconds: 0.0,
        message: "preflight failed".into(),
    });
    for (width, height) in [(80, 24), (160, 48)] {
        for keys in ["2", "9"] {
            bench.press(keys);
            let picture = bench.picture(width, height);
            for words in ["loss 14.124", "model.init_std near 0.02"] {
                assert!(picture.contains(words), "{keys}: {picture}");
            }
        }
    }
}

#[test]
fn escape_leads_back_from_the_panes_that_have_no_digit() {
    let mut bench = Bench::new();
    bench.runs();
    bench.live();
    let ways = [
        ("2", "b", "┌ loss"),
        ("1", "V", "Start a run"),
        ("1 space space", "v", "Start a run"),
    ];
    for (from, key, back) in ways {
        let away = bench.press(from).write(key).picture(120, 40);
        let gone = !away.contains(back) && away.contains("esc back");
        assert!(gone, "{key}: {away}");
        let picture = bench.press("esc").picture(120, 40);
        assert!(picture.contains(back), "{key}: {picture}");
    }
}
