//! The comparison with runs made by hand: what stands on the screen, the axes, late answers. Reading logs is the job's.

use super::*;
use crate::base::clock::UnixMillis;
use crate::ui::panes::bench::TestContext;
use crate::wire::{Direction, Envelope, Event, MetricInfo, Num};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

fn track(name: &str, lr: f64, steps: u64) -> Track {
    let spec = json!({"name": name, "optimizer": {"adamw": {"lr": lr}}});
    track_with(spec, name, lr, steps)
}

fn track_with(spec: serde_json::Value, name: &str, lr: f64, steps: u64) -> Track {
    let mut events = vec![
        Event::Hello {
            run: name.into(),
            engine: "0".into(),
            pid: 1,
            host: "h".into(),
        },
        Event::Started {
            name: name.into(),
            method: "pretrain".into(),
            spec,
            n_params: 1_000,
            vocab_size: 65,
            max_steps: steps,
            batch_tokens: 64,
            epoch_tokens: 1_000,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        },
        Event::MetricsDeclared {
            metrics: vec![MetricInfo {
                id: "train/loss".into(),
                title: "Training loss".into(),
                direction: Direction::Lower,
                ..MetricInfo::default()
            }],
        },
    ];
    events.extend((1..=steps).map(|step| Event::Stepped {
        step,
        tokens: 64 * step,
        values: [("train/loss".to_string(), Num(4.0 - lr * step as f64))].into(),
    }));
    let mut track = Track::new(name);
    for (seq, event) in (1..).zip(events) {
        track.apply(&Envelope {
            v: 1,
            seq,
            t: UnixMillis(seq * 250),
            event,
        });
    }
    track
}

fn screen(pane: &mut ComparePane, around: &mut TestContext, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| pane.draw(frame, frame.area(), &mut around.context()))
        .unwrap();
    terminal.backend().to_string()
}

fn read(pane: &mut ComparePane, around: &mut TestContext) {
    let paths: Vec<PathBuf> = vec!["runs/one".into(), "runs/two".into()];
    let asked = pane.answered("runs", Answer::Paths(paths.clone()), &mut around.context());
    let [Request::Do(Effect::ReadEntrants(ranked)), Request::Do(Effect::ReadTracks(read))] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!([ranked, read], [&paths; 2]);
    let tracks = [track("one", 0.01, 100), track("two", 0.02, 60)];
    let msg = Msg::Tracks {
        paths,
        results: tracks.map(Ok).into(),
    };
    pane.incoming(&msg, &mut around.context());
}

#[test]
fn runs_are_drawn_beside_each_other_at_every_size() {
    let (mut pane, mut around) = (ComparePane::default(), TestContext::new());
    assert!(screen(&mut pane, &mut around, 80, 22).contains("mark runs with space"));
    read(&mut pane, &mut around);
    let text = screen(&mut pane, &mut around, 80, 22);
    for words in ["Training loss by step", "A one", "B two", "optimizer.adamw.lr", "0.02", "0:"] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    let text = screen(&mut pane, &mut around, 120, 40);
    // The lower loss after fewer steps.
    assert!(text.contains("*2.8"), "{text}");
    for size in [(30, 8), (160, 46)] {
        screen(&mut pane, &mut around, size.0, size.1);
    }
}

/// The longer run had the star, for a loss of a later step.
#[test]
fn a_best_one_is_told_of_equal_steps_alone() {
    let (mut pane, mut around) = (ComparePane::default(), TestContext::new());
    read(&mut pane, &mut around);
    let row = |text: &str| {
        let own = |line: &&str| line.contains(" train/loss ") && !line.contains("@60 train/loss");
        let found = text.lines().find(own);
        found.unwrap_or_else(|| panic!("{text}")).to_string()
    };
    let uneven = row(&screen(&mut pane, &mut around, 120, 48));
    assert!(!uneven.contains('*'), "{uneven}");
    assert!(uneven.contains("@100") && uneven.contains("@60"), "{uneven}");
    let text = screen(&mut pane, &mut around, 120, 48);
    let line = |words: &str| text.lines().position(|line| line.contains(words)).unwrap_or(usize::MAX);
    assert!(line("at the last common step, * best") < line("latest value"), "{text}");
    assert!(!text.contains("latest value, *"), "{text}");
    let small = screen(&mut pane, &mut around, 80, 16);
    assert!(small.contains("more"), "{small}");
    let common = text.lines().find(|line| line.contains("@60 train/loss"));
    assert!(common.is_some_and(|line| line.contains("3.400") && line.contains("*2.800")), "{text}");
    let paths: Vec<PathBuf> = vec!["runs/one".into(), "runs/two".into()];
    pane.answered("runs", Answer::Paths(paths.clone()), &mut around.context());
    let results = [track("one", 0.01, 60), track("two", 0.02, 60)].map(Ok).into();
    pane.incoming(&Msg::Tracks { paths, results }, &mut around.context());
    let even = row(&screen(&mut pane, &mut around, 120, 48));
    assert!(even.contains('*') && !even.contains('@'), "{even}");
}

#[test]
fn the_axis_is_steps_tokens_or_time_and_late_answers_find_nobody() {
    let (mut pane, mut around) = (ComparePane::default(), TestContext::new());
    read(&mut pane, &mut around);
    let ends = |pane: &ComparePane| -> Vec<u64> {
        let steps = |curve: &Option<Series>| curve.as_ref().unwrap().steps().unwrap().1;
        pane.curves.iter().map(steps).collect()
    };
    assert_eq!(ends(&pane), [100, 60]);
    pane.act(Action::CompareBy, &mut around.context());
    assert_eq!(ends(&pane), [6_400, 3_840]);
    pane.act(Action::CompareBy, &mut around.context());
    assert_eq!(ends(&pane), [25_500, 15_500]);
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("by time") && text.contains("0:20"), "{text}");
    let late = Msg::Tracks {
        paths: vec!["runs/old".into()],
        results: Vec::new(),
    };
    pane.incoming(&late, &mut around.context());
    assert_eq!(pane.tracks.len(), 2);
    let saved = pane.act(Action::SaveChart, &mut around.context());
    assert!(
        matches!(&saved[..], [Request::Do(Effect::SavePicture { name, area: Some(area) })]
        if name.contains("by-time") && area.width > 0)
    );
    for left in [1, 0] {
        pane.act(Action::DropRun, &mut around.context());
        assert_eq!(pane.paths.len(), left);
    }
    assert!(screen(&mut pane, &mut around, 80, 22).contains("Nothing to compare"));
}

/// A curve of SFT and one of DPO lie on one axis, and are no match: it is said, as are the methods.
#[test]
fn losses_of_different_methods_are_drawn_with_a_word() {
    let of = |method: &str| {
        let mut track = track(method, 0.01, 20);
        let head = track.state.head.as_mut().unwrap();
        head.method = method.into();
        head.spec = json!({"method": {method: {}}});
        track
    };
    let shown = |tracks: Vec<Track>| {
        let (mut pane, mut around) = (ComparePane::default(), TestContext::new());
        let paths: Vec<PathBuf> = vec!["runs/one".into(), "runs/two".into()];
        pane.answered("runs", Answer::Paths(paths.clone()), &mut around.context());
        let msg = Msg::Tracks {
            paths,
            results: tracks.into_iter().map(Ok).collect(),
        };
        pane.incoming(&msg, &mut around.context());
        screen(&mut pane, &mut around, 120, 40)
    };
    let text = shown(vec![of("sft"), of("dpo")]);
    assert!(text.contains("not comparable: different losses"), "{text}");
    let method = text.lines().find(|line| line.trim_start_matches('"').trim_start().starts_with("method "));
    let method = method.unwrap_or_else(|| panic!("{text}"));
    assert!(method.contains("sft") && method.contains("dpo"), "{method}");
    let text = shown(vec![of("sft"), of("sft")]);
    assert!(!text.contains("not comparable"), "{text}");
    let cut = |size: u64| {
        let spec = json!({"data": {"tokenizer": {"bpe": {"vocab_size": size}}}});
        track_with(spec, "pretrain", 0.01, 20)
    };
    let text = shown(vec![cut(500), cut(50_000)]);
    assert!(text.contains("not comparable: different tokenizers"), "{text}");
}

/// The whole comparison was gone.
#[test]
fn a_run_that_cannot_be_read_is_named_and_the_others_are_compared() {
    let (mut pane, mut around) = (ComparePane::default(), TestContext::new());
    let paths: Vec<PathBuf> = ["runs/empty", "runs/one", "runs/two"].map(PathBuf::from).into();
    pane.answered("runs", Answer::Paths(paths.clone()), &mut around.context());
    let why = || Err("runs/empty has no log".to_string());
    let results = vec![why(), Ok(track("one", 0.01, 100)), Ok(track("two", 0.02, 60))];
    let msg = Msg::Tracks {
        paths: paths.clone(),
        results,
    };
    pane.incoming(&msg, &mut around.context());
    let text = screen(&mut pane, &mut around, 120, 40);
    for words in ["left out: runs/empty has no log", "A one", "B two", "optimizer.adamw.lr"] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    let results = vec![why(); 3];
    pane.incoming(&Msg::Tracks { paths, results }, &mut around.context());
    let text = screen(&mut pane, &mut around, 120, 40);
    assert!(text.contains("left out: runs/empty has no log") && !text.contains("A one"), "{text}");
}
