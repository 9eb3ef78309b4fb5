//! Home's list of presets: groups, and what enter does in each.

use super::*;

fn bench() -> Bench {
    bench_with(Vec::new())
}

fn bench_with(runs: Vec<RunSummary>) -> Bench {
    let mut options = options("ansi", ColorDepth::Ansi16, false);
    let row = |name: &str, kind| PresetRow {
        name: name.into(),
        about: "One sentence.".into(),
        kind,
        is_template: kind == PresetKind::Run(PresetGroup::Template),
    };
    options.presets = vec![
        row("mine", PresetKind::Run(PresetGroup::Own)),
        row("quickstart", PresetKind::Run(PresetGroup::Demo)),
        row("speedrun", PresetKind::Pipeline),
        row("dpo", PresetKind::Run(PresetGroup::Template)),
        row("size-7b", PresetKind::Run(PresetGroup::Size)),
    ];
    let mut bench = Bench::with(options);
    bench.msg(Msg::Runs(Ok((runs, Vec::new()))));
    bench
}

#[test]
fn presets_stand_under_the_headings_of_their_groups() {
    let mut bench = bench();
    let picture = bench.picture(80, 24);
    let lines: Vec<&str> = picture.lines().map(str::trim).collect();
    let at = |what: &str| {
        let found = lines.iter().position(|line| line.starts_with(what));
        found.unwrap_or_else(|| panic!("{what}:\n{picture}"))
    };
    let order = [
        "your presets",
        "mine",
        "demos",
        "▸ quickstart",
        "pipelines",
        "speedrun",
        "templates",
        "dpo",
        "sizes",
        "size-7b",
        "new run",
    ];
    assert!(order.map(at).is_sorted(), "{picture}");
    // Headings are passed over.
    bench.press("down").press("up").press("up");
    assert!(bench.picture(80, 24).contains("▸ mine"));
}

#[test]
fn with_runs_the_newest_is_selected_and_the_presets_stay_at_their_top() {
    let ended = runs()
        .into_iter()
        .filter(|run| run.status != RunStatus::Live);
    let mut bench = bench_with(ended.collect());
    let picture = bench.picture(80, 14);
    let selected = picture.lines().find(|line| line.contains('▸'));
    assert!(
        selected.is_some_and(|line| line.contains("quickstart-a2b7")),
        "{picture}"
    );
    assert!(picture.contains("   mine  "), "{picture}");
    // Up from the first run is the row behind the presets, and only then do they scroll.
    let picture = bench.press("up").picture(80, 14);
    assert!(
        picture.contains("▸ new run") && !picture.contains("   mine  "),
        "{picture}"
    );
}

#[test]
fn a_template_is_set_up_before_it_is_trained() {
    let mut bench = bench();
    bench.press("down").press("down");
    assert!(bench.picture(80, 24).contains("enter set up"));
    bench.press("enter");
    assert_eq!(bench.effects, [Effect::OpenEditor("dpo".into())]);
    let draft = crate::spec::Draft::open("dpo", &crate::spec::SpecSources::default()).unwrap();
    bench.msg(Msg::Editor {
        target: "dpo".into(),
        draft: Ok(Box::new(draft)),
    });
    let picture = bench.picture(80, 24);
    assert!(picture.contains("▸ train.from"), "{picture}");
}

#[test]
fn the_editor_shows_its_undo_and_its_help_on_80_columns() {
    let mut bench = bench();
    let draft = crate::spec::Draft::open("dpo", &crate::spec::SpecSources::default()).unwrap();
    bench.app.ask(Effect::OpenEditor("dpo".into()));
    bench.msg(Msg::Editor {
        target: "dpo".into(),
        draft: Ok(Box::new(draft)),
    });
    let picture = bench.picture(80, 24);
    let foot = picture.lines().last().unwrap_or_default();
    for hint in ["enter change", "u undo", "? help", "esc "] {
        assert!(foot.contains(hint), "{hint}: {foot}");
    }
}

#[test]
fn runs_of_a_ladder_are_told_apart_on_80_columns() {
    let rung = |n: usize| {
        let mut run = runs().remove(1);
        run.name = format!("quickstart-tokens-{n}");
        run.id = format!("2026-11-21-1422-quickstart-tokens-{n}-a2b{n}");
        run.path = format!("runs/{}", run.id).into();
        run
    };
    let mut bench = bench_with((1..4).map(rung).collect());
    let picture = bench.picture(80, 30);
    for n in 1..4 {
        assert!(picture.contains(&format!("-{n}-a2b{n} ")), "{picture}");
    }
}

#[test]
fn a_run_and_the_one_that_it_came_from_are_chatted_with_by_one_key() {
    let base = runs().remove(1);
    let mut child = base.clone();
    child.id = "2026-11-21-1500-sft-b3c8".into();
    child.created_as = child.id.clone();
    child.path = format!("runs/{}", child.id).into();
    child.parent = Some(crate::run::Parent {
        run: base.created_as.clone(),
        step: 2_000,
    });
    let rows: Vec<CheckpointRow> = [&base.id, &child.id]
        .map(|run| CheckpointRow {
            rows: None,
            on_all: None,
            path: format!("runs/{run}/checkpoints/step-002000").into(),
            run: run.clone(),
            ..checkpoint_rows().remove(2)
        })
        .into();
    let opened = |bench: &Bench| -> Vec<PathBuf> {
        let model = |effect: &Effect| match effect {
            Effect::OpenChat { model, .. } => Some(model.clone()),
            _ => None,
        };
        bench.effects.iter().filter_map(model).collect()
    };
    // The child hangs below its parent.
    let mut bench = bench_with(vec![child.clone(), base.clone()]);
    bench.press("down").write("w");
    bench.msg(Msg::Checkpoints(rows.clone()));
    let both = [rows[0].path.clone(), rows[1].path.clone()];
    assert_eq!(opened(&bench), both);
    // A run that started from a model of no run, beside that model.
    let tuned = RunSummary {
        start_model: Some("models/qwen".into()),
        ..base.clone()
    };
    let mut bench = bench_with(vec![tuned]);
    bench.write("w");
    bench.msg(Msg::Checkpoints(rows.clone()));
    assert_eq!(opened(&bench), ["models/qwen".into(), rows[0].path.clone()]);
    let mut bench = bench_with(vec![base]);
    let picture = bench.write("w").picture(120, 30);
    assert!(picture.contains("has a parent"), "{picture}");
    assert!(opened(&bench).is_empty());
}

/// The checkpoint of another run was opened, and passed for its own.
#[test]
fn a_run_without_a_checkpoint_is_not_chatted_with_through_another() {
    let rows = checkpoint_rows();
    let mut young = runs().remove(1);
    young.id = "2026-11-21-1500-sft-b3c8".into();
    young.path = format!("runs/{}", young.id).into();
    let mut bench = bench_with(vec![young]);
    bench.write("c");
    bench.msg(Msg::Checkpoints(rows));
    let opens = |effect: &Effect| matches!(effect, Effect::OpenChat { .. });
    assert!(!bench.effects.iter().any(opens), "{:?}", bench.effects);
    let picture = bench.picture(120, 30);
    assert!(picture.contains("has no checkpoint yet"), "{picture}");
    // Beside a model of another run in the chat, which stayed on the screen, the message went unread.
    assert!(picture.contains("Start a run"), "{picture}");
}

#[test]
fn more_runs_than_fit_side_by_side_are_said_to_be_more() {
    let all: Vec<RunSummary> = (0..4)
        .map(|n| {
            let mut run = runs().remove(1);
            run.id = format!("2026-11-21-150{n}-sft-b3c{n}");
            run.path = format!("runs/{}", run.id).into();
            run
        })
        .collect();
    let row = |run: &RunSummary| CheckpointRow {
        rows: None,
        on_all: None,
        path: run.path.join("checkpoints/step-002000"),
        run: run.id.clone(),
        ..checkpoint_rows().remove(2)
    };
    let rows: Vec<CheckpointRow> = all.iter().map(row).collect();
    let mut bench = bench_with(all);
    bench.write("    ").write("c");
    bench.msg(Msg::Checkpoints(rows));
    let picture = bench.picture(160, 40);
    assert!(picture.contains("the first 3 of 4"), "{picture}");
    assert!(!picture.contains("3 of 4 runs"), "{picture}");
}

/// In a folder without runs the filter opened the wizard.
#[test]
fn the_filter_finds_presets_and_runs_come_first() {
    let selected = |bench: &mut Bench| {
        let picture = bench.picture(120, 40);
        let line = picture.lines().find(|line| line.contains('▸'));
        line.map(String::from).unwrap_or(picture)
    };
    let mut bench = bench_with(Vec::new());
    bench.write("/speed").press("enter");
    let line = selected(&mut bench);
    assert!(line.contains("speedrun"), "{line}");
    assert!(!bench.picture(120, 40).contains("The wizard asks"));
    bench.press("esc");
    let line = selected(&mut bench);
    assert!(line.contains("speedrun"), "{line}");
    let mut run = runs().remove(1);
    run.id = "2026-11-21-1500-speed-b3c1".into();
    let mut bench = bench_with(vec![run]);
    bench.write("/speed").press("enter");
    let line = selected(&mut bench);
    assert!(line.contains("b3c1"), "{line}");
}

/// It said that the run could not be opened, in one paragraph.
#[test]
fn what_does_not_start_says_so_with_its_list_and_keys() {
    let mut bench = bench_with(Vec::new());
    bench.press("enter");
    let slot = bench.app.run_slot().unwrap();
    let why = "big needs at least 9 GiB of memory, and 2 GiB are free\n  micro-batch 1: saves 8 GiB, then 1 GiB\n      -s train.micro_batch_size=1\n\ntry: a change above";
    bench.msg(Msg::Opened {
        slot,
        result: Err(why.into()),
    });
    bench.wait(20_000);
    let picture = bench.picture(80, 24);
    for words in [
        "was not started",
        "    micro-batch 1: saves",
        "        -s train.micro",
        "its plan",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    assert!(!picture.contains("could not be opened"), "{picture}");
}

/// Checkpoints come by themselves, often: a message each covered the charts.
#[test]
fn a_checkpoint_that_nobody_asked_for_is_no_message() {
    let kept = |step| Event::Checkpointed {
        step,
        path: crate::run::checkpoints::path_in_run(step),
        bytes: 1,
        seconds: 0.1,
        best: false,
        val_loss: None,
        by: None,
    };
    let mut bench = Bench::new();
    let slot = bench.live();
    bench.event(kept(1_241));
    let picture = bench.press("1").picture(120, 40);
    assert!(!picture.contains("checkpoint step-001241"), "{picture}");
    bench.press("2 c");
    let result = Ok(7);
    let asked = crate::ui::msg::Asked::Checkpoint;
    bench.msg(Msg::Sent {
        slot,
        asked,
        result,
    });
    bench.event(Event::Accepted { id: 7 });
    bench.event(kept(1_242));
    let picture = bench.press("1").picture(120, 40);
    assert!(picture.contains("checkpoint step-001242"), "{picture}");
}

#[test]
fn a_finished_run_shows_its_verdict_at_80_columns() {
    let mut run = runs().remove(1);
    (run.status, run.verdict) = (RunStatus::Finished, Some("LEARNING".into()));
    let picture = bench_with(vec![run.clone()]).picture(80, 24);
    assert!(
        picture.contains("LEARNING") && !picture.contains("finished"),
        "{picture}"
    );
    run.verdict = Some("TOO EARLY".into());
    let picture = bench_with(vec![run]).picture(80, 24);
    assert!(picture.contains("finished"), "{picture}");
}

#[test]
fn the_selected_run_stays_selected_without_the_filter_and_in_another_order() {
    let all: Vec<RunSummary> = ["sft-b3c1", "dpo-b3c2", "sft-b3c3"]
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let mut run = runs().remove(1);
            run.id = format!("2026-11-21-150{n}-{name}");
            run.created_as = run.id.clone();
            run.path = format!("runs/{}", run.id).into();
            run.val_loss = Some(1.0 + n as f64);
            run
        })
        .rev()
        .collect();
    let mut bench = bench_with(all);
    let selected = |bench: &mut Bench| {
        let picture = bench.picture(120, 40);
        let line = picture
            .lines()
            .find(|line| line.contains('▸'))
            .map(String::from);
        line.unwrap_or_else(|| panic!("{picture}"))
    };
    bench.write("/sft").press("enter").press("down");
    assert!(selected(&mut bench).contains("b3c1"));
    bench.press("esc");
    assert!(
        selected(&mut bench).contains("b3c1"),
        "{}",
        selected(&mut bench)
    );
    for _ in 0..4 {
        bench.write("s");
        assert!(
            selected(&mut bench).contains("b3c1"),
            "{}",
            selected(&mut bench)
        );
    }
}

#[test]
fn a_pipeline_is_started_but_neither_edited_nor_planned() {
    let mut bench = bench();
    bench.press("down").press("e");
    assert!(bench.effects.is_empty(), "{:?}", bench.effects);
    assert!(
        bench
            .picture(80, 24)
            .contains("llmtui presets eject speedrun")
    );
    bench.press("enter");
    let slot = bench.app.run_slot().unwrap();
    let target = "speedrun".into();
    assert_eq!(bench.effects, [Effect::StartRun { slot, target }]);
}

#[test]
fn a_run_on_answers_of_its_own_shows_pass_at_1_where_others_show_the_loss() {
    let mut policy = runs().remove(1);
    (policy.val_loss, policy.reward) = (None, Some(0.5));
    for (share, short, long) in [
        (0.75, "p@1 75%", "pass@1 75.0 %"),
        (0.0023, "p@1 0.2%", "pass@1 0.2 %"),
    ] {
        policy.pass_at_1 = Some(share);
        let mut bench = Bench::new();
        bench.msg(Msg::Runs(Ok((vec![policy.clone()], Vec::new()))));
        assert!(bench.picture(80, 24).contains(&format!(" {short} ")));
        assert!(bench.picture(160, 48).contains(&format!(" {long} ")));
    }
}

#[test]
fn runs_that_failed_before_their_first_step_are_one_line_that_opens() {
    let refused = |n: usize| {
        let mut run = runs().remove(3);
        (run.step, run.verdict) = (0, None);
        run.curve.clear();
        run.id = format!("2026-11-2{n}-0900-refused-{n}");
        run.path = format!("runs/{}", run.id).into();
        run
    };
    let line = "runs failed before their first step";
    let mut bench = bench_with(runs().into_iter().chain([refused(1)]).collect());
    let picture = bench.picture(120, 40);
    assert!(
        picture.contains("refused-1") && !picture.contains(line),
        "{picture}"
    );

    bench.msg(Msg::Runs(Ok((
        [refused(1), refused(2), refused(3)]
            .into_iter()
            .chain(runs())
            .collect(),
        Vec::new(),
    ))));
    let picture = bench.picture(120, 40);
    let at = |what: &str| picture.lines().position(|line| line.contains(what));
    assert!(picture.contains("3 runs failed"), "{picture}");
    assert!(!picture.contains("refused-"), "{picture}");
    // One that learned something before it failed stays where it is.
    assert!(at("wild-lr") < at(line), "{picture}");
    let picture = bench.press("end").picture(120, 40);
    assert!(picture.contains("enter show them"), "{picture}");
    assert!(picture.contains("llmtui gc"), "{picture}");
    let picture = bench.press("enter").picture(120, 40);
    for name in ["refused-1", "refused-2", "refused-3"] {
        assert!(picture.contains(name), "{picture}");
    }
    // Back from the last of them to the line.
    let picture = bench.press("end up up up enter").picture(120, 40);
    assert!(
        !picture.contains("refused-") && picture.contains("enter show them"),
        "{picture}"
    );
    // Who filters finds every run.
    let picture = bench.press("/").write("refused").picture(120, 40);
    assert!(
        picture.contains("refused-2") && !picture.contains(line),
        "{picture}"
    );
}

/// Who has many runs came for them: presets keep a third.
#[test]
fn many_runs_have_two_thirds_of_the_screen_and_presets_stay_in_reach() {
    let one = runs().remove(0);
    let many = (0..40).map(|i| RunSummary {
        id: format!("many-{i:02}"),
        name: format!("many-{i:02}"),
        path: format!("/runs/many-{i:02}").into(),
        parent: None,
        ..one.clone()
    });
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((many.collect(), Vec::new()))));
    for (width, height, least) in [(80, 24, 10), (160, 48, 25)] {
        let picture = bench.picture(width, height);
        let shown = picture.matches("many-").count();
        assert!(
            shown >= least,
            "{shown} runs at {width}×{height}:\n{picture}"
        );
        assert!(picture.contains("quickstart"), "{picture}");
    }
}

/// Rows above the window stayed hidden when it had grown, and nothing said that there are some.
#[test]
fn runs_out_of_sight_are_counted_and_come_back_when_the_window_grows() {
    let many = |n: usize| {
        let mut all = Vec::new();
        for i in 0..n {
            let mut run = runs().remove(1);
            run.id = format!("2026-11-21-09{i:02}-quickstart-a{i:03}");
            run.created_as = run.id.clone();
            run.path = format!("runs/{}", run.id).into();
            all.push(run);
        }
        all
    };
    let mut bench = bench_with(many(20));
    let small = bench.press("g").picture(80, 24);
    assert!(small.contains("more"), "{small}");
    let end = bench.press("end").picture(80, 24);
    assert!(end.contains("▲") && !end.contains("a000 "), "{end}");
    let grown = bench.picture(160, 60);
    for i in 0..20 {
        assert!(grown.contains(&format!("quickstart-a{i:03}")), "{grown}");
    }
    assert!(!grown.contains("▲"), "{grown}");
}

#[test]
fn a_failed_run_says_why_and_has_no_verdict_that_nobody_gave() {
    let mut failed = runs().remove(3);
    failed.message = "data.path: nothing is there".into();
    failed.verdict = None;
    failed.parent = Some(crate::run::Parent {
        run: "a".into(),
        step: 1,
    });
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((vec![failed], Vec::new()))));
    bench.press("down down down down");
    let picture = bench.picture(160, 48);
    assert!(
        picture.contains("   data.path: nothing is there"),
        "{picture}"
    );
    assert!(picture.contains(" failed       - "), "{picture}");
}

#[test]
fn a_saved_spec_is_listed_opened_planned_and_trained() {
    let mut bench = bench();
    let mut rows = bench.app.store.presets.clone();
    bench.msg(Msg::Saved(Ok(crate::ui::msg::SavedSpec {
        path: "/specs/poems.yaml".into(),
        fault: None,
    })));
    assert_eq!(bench.effects, [Effect::ListPresets]);
    let path = "/specs/poems.yaml";
    rows.insert(
        0,
        PresetRow {
            name: path.into(),
            about: "extends quickstart, in /specs".into(),
            kind: PresetKind::File,
            is_template: false,
        },
    );
    bench.msg(Msg::Presets(rows.clone()));
    let picture = bench.picture(80, 30);
    // The selection stays where it was.
    assert!(
        picture.contains("your specs") && picture.contains("▸ quickstart"),
        "{picture}"
    );
    bench.wait(10_000);
    let picture = bench.press("home").picture(80, 30);
    assert!(
        picture.contains("▸ poems.yaml") && picture.contains("in /specs"),
        "{picture}"
    );
    bench.press("e");
    assert_eq!(bench.effects, [Effect::OpenEditor(path.into())]);
    let picker = bench.press("5").write("o").picture(80, 30);
    assert!(picker.contains("poems.yaml"), "{picker}");
    bench.press("esc").press("1").press("home").press("enter");
    let slot = bench.app.run_slot().unwrap();
    let target = path.into();
    assert_eq!(bench.effects, [Effect::StartRun { slot, target }]);
    // A copied template is set up first, as the template itself is.
    rows[0].is_template = true;
    bench.msg(Msg::Presets(rows));
    bench.press("1").press("home").press("enter");
    assert_eq!(bench.effects, [Effect::OpenEditor(path.into())]);
}

#[test]
fn panes_without_a_run_list_no_keys_that_do_nothing() {
    let mut bench = bench();
    let panes = ["health", "samples", "examples"];
    for pane in PANES.iter().filter(|pane| panes.contains(&pane.id)) {
        bench.app.act(crate::ui::action::Action::Open(pane));
        let picture = bench.picture(80, 24);
        let foot = picture.lines().last().unwrap_or_default().trim();
        let first = foot.split("  ").next().unwrap_or_default();
        assert_eq!(first, ": palette", "{}: {foot}", pane.id);
    }
}

/// A run's line on Home.
fn line_of(picture: &str, run: &str) -> String {
    let line = picture.lines().find(|line| line.contains(run));
    line.unwrap_or_else(|| panic!("{run}:\n{picture}"))
        .to_string()
}

#[test]
fn the_age_is_that_of_the_order() {
    let mut all = runs();
    // Began an hour before the other one, and was resumed since.
    all[1].created = UnixMillis(NOW.0 - 3 * 3_600_000);
    all[1].updated = UnixMillis(NOW.0 - 17_000);
    all[2].created = UnixMillis(NOW.0 - 2 * 3_600_000);
    all[2].updated = UnixMillis(NOW.0 - 3_600_000);
    all.truncate(3);
    let mut bench = bench_with(all);
    let picture = bench.picture(80, 40);
    assert!(picture.contains("newest first"), "{picture}");
    let rows: Vec<&str> = picture.lines().map(str::trim_end).collect();
    let at = |end: &str| {
        rows.iter()
            .position(|row| row.ends_with(end))
            .unwrap_or_else(|| panic!("{picture}"))
    };
    assert!(at(" 2 h") < at(" 3 h"), "{picture}");
}

#[test]
fn runs_are_found_by_preset_phase_and_verdict() {
    let mut all = runs();
    all[1].preset = "smoke".into();
    all[1].verdict = Some("DIVERGED".into());
    all.truncate(3);
    for (typed, found, lost) in [
        ("smoke", "quickstart-a2b7", "my-poems"),
        ("DIVERGED", "quickstart-a2b7", "my-poems"),
        ("div smo", "quickstart-a2b7", "shakespeare-k3qf"),
        ("training", "shakespeare-k3qf", "my-poems"),
        ("stopped", "my-poems", "quickstart-a2b7"),
    ] {
        let mut bench = bench_with(all.clone());
        let picture = bench.press("/").write(typed).picture(100, 40);
        assert!(
            picture.contains(found) && !picture.contains(lost),
            "{typed}\n{picture}"
        );
    }
}

#[test]
fn a_run_that_did_all_its_steps_and_diverged_has_no_check_mark() {
    for (verdict, status, mark) in [
        ("LEARNING", RunStatus::Finished, '✓'),
        ("DIVERGED", RunStatus::Finished, '✗'),
        ("DIVERGED", RunStatus::Stopped, '✗'),
        ("NOT LEARNING", RunStatus::Finished, '✗'),
        ("OVERFITTING", RunStatus::Finished, '!'),
        ("OVERFITTING", RunStatus::Crashed, '✗'),
        ("DIVERGED", RunStatus::Live, '●'),
    ] {
        let mut run = runs().remove(1);
        (run.status, run.verdict) = (status, Some(verdict.into()));
        for width in [80, 160] {
            let mut bench = bench_with(vec![run.clone()]);
            let line = line_of(&bench.picture(width, 40), "quickstart-a2b7");
            let shown = line.trim_start_matches([' ', '▸']).chars().next();
            assert_eq!(shown, Some(mark), "{verdict}: {line}");
        }
    }
}

/// Runs and spec files of other programs appear, and those that are gone go, though no run here is live.
#[test]
fn folders_that_changed_are_listed_again() {
    let mut bench = bench();
    bench.wait(3_000);
    assert_eq!(bench.effects, [Effect::LookAtFolders]);
    assert_eq!(bench.wait(3_000).effects, [], "one look at a time");
    let lists = [Effect::RefreshRuns, Effect::ListPresets];
    assert_eq!(bench.msg(Msg::Folders(1)).effects, lists);
    bench.wait(3_000);
    assert_eq!(bench.msg(Msg::Folders(1)).effects, []);
    bench.wait(3_000);
    assert_eq!(bench.msg(Msg::Folders(2)).effects, lists);
    // Elsewhere nobody looks.
    bench.press("2");
    assert!(!bench.wait(3_000).effects.contains(&Effect::LookAtFolders));
}

#[test]
fn names_that_have_room_are_whole_at_every_width() {
    for width in [60, 72, 80, 96, 109, 110, 111, 112, 120, 160] {
        let mut run = runs().remove(1);
        run.id = "2026-11-21-1422-quickstart-ehzr".into();
        run.path = format!("runs/{}", run.id).into();
        let picture = bench_with(vec![run]).picture(width, 24);
        assert!(picture.contains("quickstart-ehzr"), "{width}: {picture}");
    }
}

/// At 80 columns only the first hints have room.
#[test]
fn the_first_hints_are_of_the_selected_row() {
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((runs(), Vec::new()))));
    let mut hints = |keys: &str| {
        let picture = bench.press(keys).picture(80, 24);
        picture.lines().last().unwrap_or_default().to_string()
    };
    let of_live = hints("up down");
    assert!(
        of_live.contains("c chat") && !of_live.contains("R resume"),
        "{of_live}"
    );
    let of_stopped = hints("down down");
    assert!(of_stopped.contains("R resume"), "{of_stopped}");
    let of_preset = hints("home");
    assert!(
        of_preset.contains("e edit") && !of_preset.contains("c chat"),
        "{of_preset}"
    );
}
