//! The dashboard on the standard tape: pictures at real sizes, every size without a panic, keys and mouse, bytes.

use super::*;
use crate::base::paths::Env;
use crate::metrics::ranks;
use crate::ui::action::Action;
use crate::ui::theme::{ColorDepth, Themes};
use crate::wire::{Band, ChartPlace, Envelope, Event, MetricInfo, Num, Origin, Outcome, Phase};
use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use crate::ui::tape;

mod branch;
mod speed;
mod titles;

/// The rows of a frame, trailing blanks cut.
fn picture(
    dashboard: &mut Dashboard,
    state: &RunState,
    theme: &Theme,
    (w, h): (u16, u16),
) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, w, h));
    dashboard.render(
        &mut buffer,
        Rect::new(0, 0, w, h),
        state,
        theme,
        state.last_t,
    );
    let row = |y| (0..w).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..h)
        .map(|y| row(y).trim_end().to_string())
        .collect::<Vec<_>>()
        .join("\n")
}

fn live() -> RunState {
    RunState::from_events(&tape::until(5, 1_240))
}

fn finished() -> RunState {
    RunState::from_events(&tape::standard(5))
}

/// The live run, and one more event.
fn live_and(events: Vec<Event>) -> RunState {
    let mut state = live();
    for event in events {
        let (seq, t) = (state.last_seq + 1, UnixMillis(state.last_t.0 + 40));
        state.apply(&Envelope {
            v: 1,
            seq,
            t,
            event,
        });
    }
    state
}

fn failed() -> RunState {
    live_and(vec![Event::Finished {
        outcome: Outcome::Failed,
        step: 1_241,
        tokens: 1_241 * tape::BATCH_TOKENS,
        val_loss: None,
        best: serde_json::from_str("1.721").ok(),
        train_loss: Some(Num(f64::NAN)),
        seconds: 61.2,
        message: "The loss is NaN for 10 steps in a row; the weights of step 1,240 were kept. Lower the learning rate or the clipping norm and resume from step-001000.".into(),
    }])
}

fn paused() -> RunState {
    live_and(vec![Event::PhaseChanged {
        phase: Phase::Paused,
        step: 1_240,
    }])
}

fn ascii() -> Theme {
    Themes::embedded().get("ansi", ColorDepth::Ansi16, true)
}

const SMALL: (u16, u16) = (80, 22);

/// Does the actions with a frame before each, as a person sees them.
fn after(actions: &[Action], state: &RunState, size: (u16, u16)) -> (Dashboard, String) {
    let mut dashboard = Dashboard::new();
    let theme = Theme::ansi();
    let mut last = picture(&mut dashboard, state, &theme, size);
    for action in actions {
        assert!(dashboard.act(*action, state), "{action:?} was not taken");
        last = picture(&mut dashboard, state, &theme, size);
    }
    (dashboard, last)
}

#[test]
fn a_run_of_unknown_length_has_no_bar_and_no_time_left() {
    let mut events = tape::until(5, 1_240);
    for envelope in &mut events {
        if let Event::Started { max_steps, .. } = &mut envelope.event {
            *max_steps = 0;
        }
    }
    let first_row = |state: &RunState| {
        let picture = picture(&mut Dashboard::new(), state, &ascii(), (160, 46));
        picture.lines().next().unwrap().to_string()
    };
    let theme = ascii();
    let bar = [theme.glyphs().bar, theme.glyphs().track].map(|glyph| glyph.repeat(3));
    let has_bar = |row: &str| bar.iter().any(|part| row.contains(part));
    let (known, unknown) = (
        first_row(&live()),
        first_row(&RunState::from_events(&events)),
    );
    assert!(has_bar(&known) && known.contains(" left"), "{known}");
    assert!(
        unknown.contains("step 1,240") && unknown.contains("tok/s"),
        "{unknown}"
    );
    assert!(
        !has_bar(&unknown) && !unknown.contains(" left"),
        "{unknown}"
    );
}

#[test]
fn live_at_real_sizes() {
    let state = live();
    for (w, h) in [
        (80, 22),
        (80, 24),
        (100, 30),
        (120, 34),
        (160, 46),
        (200, 58),
    ] {
        let picture = picture(&mut Dashboard::new(), &state, &Theme::ansi(), (w, h));
        insta::assert_snapshot!(format!("live_{w}x{h}"), picture);
    }
}

/// The live run with what probes saw: block 2's units die, the rest is well.
fn probed() -> RunState {
    let band = |low: Option<f64>, high: f64| Band {
        low,
        high: Some(high),
        origin: Origin::RuleOfThumb,
    };
    let info = |id: &str, label: &str, band: Option<Band>| MetricInfo {
        id: id.into(),
        title: label.into(),
        label: label.into(),
        place: ChartPlace::Health,
        per_layer: id.ends_with("/layer"),
        band,
        ..MetricInfo::default()
    };
    let metrics = vec![
        info("update_ratio", "update ratio", Some(band(None, 1e-2))),
        info("grad_spike", "gradient spike", Some(band(None, 10.0))),
        info("noise_scale", "noise scale", None),
        info("gsnr", "GSNR, whole", None),
        info("dead_units/layer", "dead units", Some(band(None, 0.5))),
        info(
            "attn_entropy/layer",
            "attention entropy",
            Some(band(Some(0.05), 0.97)),
        ),
        info("alpha/layer", "alpha", Some(band(Some(2.0), 6.0))),
        info("act_max/layer", "largest activation", Some(band(None, 1e4))),
    ];
    let values = [
        ("update_ratio", 1.24e-3),
        ("grad_spike", 1.31),
        ("noise_scale", 12_300.0),
        ("gsnr", 0.0312),
    ];
    let layers = [
        ("dead_units/layer", vec![0.01, 0.75, 0.02]),
        ("attn_entropy/layer", vec![0.61, 0.55, 0.48]),
        ("alpha/layer", vec![3.1, 3.6, 4.2]),
        ("act_max/layer", vec![12.0, 31.0, 44.0]),
    ];
    let (step, tokens) = (1_240, 1_240 * tape::BATCH_TOKENS);
    live_and(vec![
        Event::MetricsDeclared { metrics },
        Event::Stepped {
            step,
            tokens,
            values: values.map(|(id, x)| (id.to_string(), Num(x))).into(),
        },
        Event::Probed {
            step,
            layers: layers
                .map(|(id, xs)| (id.to_string(), xs.into_iter().map(Num).collect()))
                .into(),
        },
    ])
}

#[test]
fn vital_signs_stand_in_a_row_and_what_is_outside_its_band_is_always_among_them() {
    let state = probed();
    for (w, h) in [(80, 24), (160, 48)] {
        let mut dashboard = Dashboard::new();
        let picture = picture(&mut dashboard, &state, &Theme::ansi(), (w, h));
        assert!(picture.contains("↑ dead   0.75"), "{picture}");
        assert!(dashboard.vitals().is_some());
        insta::assert_snapshot!(format!("vitals_{w}x{h}"), picture);
    }
    let mut dashboard = Dashboard::new();
    let short = picture(&mut dashboard, &state, &Theme::ansi(), (80, 18));
    assert!(!short.contains("dead ") && dashboard.vitals().is_none());
}

#[test]
fn every_state_of_a_run_has_its_face() {
    let preparing = RunState::from_events(&tape::until(5, 0)[..8]);
    let states = [
        ("empty", RunState::new()),
        ("preparing", preparing),
        ("paused", paused()),
        ("failed", failed()),
        ("finished", finished()),
    ];
    for (name, state) in states {
        for (w, h) in [SMALL, (120, 34)] {
            let picture = picture(&mut Dashboard::new(), &state, &Theme::ansi(), (w, h));
            insta::assert_snapshot!(format!("{name}_{w}x{h}"), picture);
        }
    }
}

#[test]
fn small_and_tiny_terminals() {
    let state = live();
    for (w, h) in [(59, 22), (60, 15), (40, 10), (28, 7), (27, 3)] {
        let picture = picture(&mut Dashboard::new(), &state, &Theme::ansi(), (w, h));
        insta::assert_snapshot!(format!("tiny_{w}x{h}"), picture);
    }
}

#[test]
fn ascii_is_ascii() {
    for (name, state) in [
        ("live", live()),
        ("finished", finished()),
        ("failed", failed()),
    ] {
        let mut dashboard = Dashboard::new();
        let picture = picture(&mut dashboard, &state, &ascii(), SMALL);
        let odd: String = picture.chars().filter(|c| !c.is_ascii()).collect();
        assert!(odd.is_empty(), "{name}: {odd}");
        insta::assert_snapshot!(format!("ascii_{name}"), picture);
    }
}

#[test]
fn without_colour_nothing_is_coloured_and_nothing_is_lost() {
    let env = Env {
        no_color: true,
        ..Env::default()
    };
    let theme = Themes::embedded().get("dark", ColorDepth::of(&env), false);
    let area = Rect::new(0, 0, 120, 34);
    let mut buffer = Buffer::empty(area);
    let state = live();
    Dashboard::new().render(&mut buffer, area, &state, &theme, state.last_t);
    let plain = ratatui::style::Style::reset();
    assert!(
        buffer
            .content
            .iter()
            .all(|c| Some(c.fg) == plain.fg && Some(c.bg) == plain.bg)
    );
    assert_eq!(
        picture(&mut Dashboard::new(), &state, &theme, (120, 34)),
        picture(&mut Dashboard::new(), &state, &Theme::ansi(), (120, 34))
    );
}

#[test]
fn views_of_charts() {
    use Action as A;
    let (live, finished) = (live(), finished());
    type View<'a> = (&'a str, &'a RunState, &'a [A], (u16, u16));
    let views: [View; 7] = [
        ("full", &live, &[A::Zoom], (100, 30)),
        ("log_scale", &live, &[A::LogScale, A::Zoom], SMALL),
        (
            "cursor",
            &live,
            &[A::ChartCursor, A::ChartLeft, A::ChartLeft],
            (120, 34),
        ),
        (
            "zoomed",
            &finished,
            &[A::ChartCursor, A::ZoomIn, A::ZoomIn, A::PanLeft, A::Back],
            SMALL,
        ),
        ("not_smoothed", &live, &[A::Smooth, A::Smooth], SMALL),
        (
            "second_page",
            &live,
            &[A::ChartPrevious, A::ChartPrevious],
            SMALL,
        ),
        ("selected", &live, &[A::ChartRight, A::ChartDown], SMALL),
    ];
    for (name, state, actions, size) in views {
        insta::assert_snapshot!(format!("view_{name}"), after(actions, state, size).1);
    }
    let mut dashboard = Dashboard::new();
    dashboard.set_filter("norm");
    insta::assert_snapshot!(
        "view_filter",
        picture(&mut dashboard, &live, &Theme::ansi(), SMALL)
    );
    dashboard.set_filter("nothing like that");
    assert!(picture(&mut dashboard, &live, &Theme::ansi(), SMALL).contains("No chart has"));
}

#[test]
fn a_metric_that_nobody_knew_is_drawn_under_its_own_title() {
    let declared = MetricInfo {
        id: "rewards/margins".into(),
        title: "reward margin".into(),
        unit: "nats".into(),
        direction: crate::wire::Direction::Higher,
        ..MetricInfo::default()
    };
    let values = |x: f64| [("rewards/margins".to_string(), Num(x))].into();
    let state = live_and(vec![
        Event::MetricsDeclared {
            metrics: vec![declared],
        },
        Event::Stepped {
            step: 1_241,
            tokens: 1,
            values: values(0.25),
        },
        Event::Stepped {
            step: 1_242,
            tokens: 2,
            values: values(0.75),
        },
    ]);
    let mut dashboard = Dashboard::new();
    dashboard.set_filter("margin");
    let picture = picture(&mut dashboard, &state, &Theme::ansi(), SMALL);
    assert!(
        picture.contains("reward margin ── ") && picture.contains("0.7"),
        "{picture}"
    );
}

#[test]
fn a_nan_leaves_a_mark_and_a_gap() {
    let (_, picture) = after(&[Action::Zoom], &finished(), (100, 30));
    assert!(
        picture.lines().nth(2).unwrap_or_default().contains('×'),
        "{picture}"
    );
    let (_, zoomed) = after(&[Action::ChartCursor], &finished(), SMALL);
    assert!(zoomed.contains("at 2,000"), "{zoomed}");
}

#[test]
fn keys_move_cursors_and_back_undoes_them_one_by_one() {
    use Action as A;
    let state = live();
    let (mut dashboard, _) = after(&[A::ZoomIn, A::Zoom, A::ChartCursor], &state, SMALL);
    assert!(
        dashboard.zoom.is_some_and(|z| z.follows),
        "a zoom on the newest steps follows the run"
    );
    assert!(dashboard.act(A::Back, &state) && dashboard.cursor.is_none() && dashboard.full);
    assert!(dashboard.act(A::Back, &state) && !dashboard.full);
    assert!(dashboard.act(A::Back, &state) && dashboard.zoom.is_none());
    assert!(!dashboard.act(A::Back, &state), "nothing left to leave");
    assert!(!dashboard.act(A::Pause, &state), "not the dashboard's");
    let (zoomed, _) = after(&[A::ZoomIn; 12], &state, SMALL);
    let (from, to) = zoomed.range(&state);
    assert!(to - from >= 4.0 && to >= 1_240.0, "{from} {to}");
    let (panned, _) = after(
        &[A::ZoomIn, A::PanLeft, A::PanLeft, A::PanLeft, A::PanLeft],
        &state,
        SMALL,
    );
    assert_eq!(panned.range(&state).0, 0.0);
    assert_eq!(after(&[A::ZoomIn, A::ZoomOut], &state, SMALL).0.zoom, None);
}

#[test]
fn arrows_reach_every_chart_of_the_page() {
    use Action as A;
    let state = live();
    let reach = |actions: &[A]| after(actions, &state, SMALL).0.selected;
    assert_eq!(reach(&[A::ChartRight]), 1);
    assert_eq!(reach(&[A::ChartDown]), 2);
    assert_eq!(
        reach(&[A::ChartDown, A::ChartRight, A::ChartUp, A::ChartLeft]),
        0
    );
    assert_eq!(reach(&[A::ChartPrevious, A::ChartNext]), 0);
}

fn mouse(kind: MouseEventKind, column: u16, row: u16) -> MouseEvent {
    MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    }
}

#[test]
fn the_mouse_selects_reads_and_zooms() {
    let state = live();
    let (mut dashboard, _) = after(&[], &state, SMALL);
    assert!(
        !dashboard.mouse(mouse(MouseEventKind::Down(MouseButton::Left), 5, 0), &state),
        "the progress line is no chart"
    );
    assert!(dashboard.mouse(
        mouse(MouseEventKind::Down(MouseButton::Left), 60, 15),
        &state
    ));
    assert_eq!(dashboard.selected, 3);
    let at = dashboard.cursor.unwrap();
    assert!((700..1_400).contains(&at), "{at}");
    assert!(dashboard.mouse(
        mouse(MouseEventKind::Drag(MouseButton::Left), 50, 15),
        &state
    ));
    assert!(dashboard.cursor.unwrap() < at);
    assert!(dashboard.mouse(mouse(MouseEventKind::ScrollUp, 60, 15), &state));
    let (from, to) = dashboard.range(&state);
    assert!(from < at as f64 && to > at as f64 && to - from < 1_100.0);
    assert!(dashboard.mouse(
        mouse(MouseEventKind::Down(MouseButton::Right), 60, 15),
        &state
    ));
    assert_eq!(dashboard.cursor, None);
}

#[test]
fn a_frame_without_news_is_the_same_frame() {
    let (state, theme) = (live(), Theme::ansi());
    let mut dashboard = Dashboard::new();
    let first = picture(&mut dashboard, &state, &theme, (120, 34));
    assert_eq!(picture(&mut dashboard, &state, &theme, (120, 34)), first);
}

#[test]
fn every_size_draws_without_a_panic() {
    let states = [
        RunState::new(),
        RunState::from_events(&tape::until(1, 0)),
        RunState::from_events(&tape::until(5, 1_240)),
        RunState::from_events(&tape::standard(5)),
    ];
    let theme = Theme::ansi();
    for (w, h) in (1..=210)
        .step_by(11)
        .flat_map(|w| (1..=65).step_by(3).map(move |h| (w, h)))
    {
        for state in &states {
            let mut dashboard = Dashboard::new();
            picture(&mut dashboard, state, &theme, (w, h));
            dashboard.full = true;
            dashboard.cursor = Some(700);
            picture(&mut dashboard, state, &theme, (w, h));
        }
    }
}

/// The newest loss stood under a step that is still to come.
#[test]
fn a_reading_of_another_step_names_it() {
    let state = RunState::from_events(&tape::until(1, 1_240));
    let mut dashboard = Dashboard::new();
    dashboard.cursor = Some(1_800);
    let text = picture(&mut dashboard, &state, &Theme::ansi(), (160, 48));
    assert!(
        text.contains("at 1,800") && text.contains("(step 1,240)"),
        "{text}"
    );
    dashboard.cursor = Some(1_240);
    let text = picture(&mut dashboard, &state, &Theme::ansi(), (160, 48));
    let loss = text.lines().find(|line| line.contains("at 1,240")).unwrap();
    assert!(!loss.contains("train 1.764 (step"), "{loss}");
}

/// Counts what a terminal would receive.
#[derive(Clone, Default)]
struct Wire(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl std::io::Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Bytes a second over the training steps of the tape, at ten frames a second through the real backend.
fn bytes_per_second((w, h): (u16, u16), theme: &Theme) -> (f64, usize) {
    use ratatui::{Terminal, TerminalOptions, Viewport, backend::CrosstermBackend};
    /// Begin and end of a synchronised update around each frame.
    const SYNCHRONISED: usize = 16;
    let wire = Wire::default();
    let viewport = Viewport::Fixed(Rect::new(0, 0, w, h));
    let mut terminal = Terminal::with_options(
        CrosstermBackend::new(wire.clone()),
        TerminalOptions { viewport },
    )
    .unwrap();
    let events = tape::until(1, 1_480);
    let (mut state, mut dashboard) = (RunState::new(), Dashboard::new());
    let (mut next, mut frames, mut bytes, mut first) = (0, 0, 0, 0);
    let mut now = events[0].t;
    while next < events.len() {
        now.0 += 100;
        let before = next;
        while next < events.len() && events[next].t <= now {
            state.apply(&events[next]);
            next += 1;
        }
        if next == before {
            continue;
        }
        terminal
            .draw(|frame| dashboard.draw(frame, frame.area(), &state, theme, now))
            .unwrap();
        let raw = std::mem::take(&mut *wire.0.borrow_mut());
        let written = raw.len();
        if first == 0 {
            first = written;
        } else {
            bytes += written + SYNCHRONISED;
            frames += 1;
        }
    }
    // Frames without news are not drawn and cost nothing; they do not count as time either.
    let seconds = frames as f64 / 10.0;
    println!(
        "{w}×{h}: first frame {first} B, then {frames} frames of {} B",
        bytes / frames
    );
    (bytes as f64 / seconds, first)
}

#[test]
fn a_live_run_costs_few_bytes_a_second() {
    for (size, most, n_charts) in [((80, 24), 1_200.0, 4), ((200, 50), 2_450.0, 6)] {
        let (rate, _) = bytes_per_second(size, &Theme::ansi());
        let dark = Themes::embedded().get("dark", ColorDepth::True, false);
        let (true_color, _) = bytes_per_second(size, &dark);
        println!("{size:?}: {rate:.0} B/s, {true_color:.0} B/s in true colour");
        assert!(
            true_color < most * 1.4,
            "{size:?}: {true_color:.0} B/s in true colour"
        );
        let charts = plan::plan(Rect::new(0, 0, size.0, size.1), 12, Mode::Overview, true)
            .map_or(0, |p| p.charts.len());
        assert!(
            charts >= n_charts && rate < most,
            "{size:?}: {rate:.0} B/s for {charts} charts"
        );
    }
}

#[test]
fn the_log_scrolls_by_pages_and_the_filter_shows_no_empty_boxes() {
    let state = live();
    let (mut dashboard, _) = after(&[], &state, (120, 34));
    let rows = dashboard.log_rows;
    assert!(rows > 2, "{rows}");
    // Lines that arrive do not move what is read.
    let mut growing = live();
    let mut reader = Dashboard::new();
    picture(&mut reader, &growing, &Theme::ansi(), (120, 34));
    reader.act(Action::LogUp, &growing);
    picture(&mut reader, &growing, &Theme::ansi(), (120, 34));
    let back = reader.log_back;
    let line = growing.log[0].clone();
    growing.log.push_back(crate::run::state::LogLine {
        text: "a new line".into(),
        ..line
    });
    picture(&mut reader, &growing, &Theme::ansi(), (120, 34));
    assert_eq!(reader.log_back, back + 1);
    // The title of its box says how far back it is.
    let title = |dashboard: &mut Dashboard| {
        let picture = picture(dashboard, &state, &Theme::ansi(), (120, 34));
        let line = picture.lines().find(|line| line.starts_with("├ log"));
        line.and_then(|line| line[3..].split(" ─").next().map(|t| t.trim().to_string()))
    };
    assert_eq!(title(&mut dashboard).as_deref(), Some("log"));
    dashboard.act(Action::LogUp, &state);
    assert_eq!(dashboard.log_back, rows - 1);
    let back = format!("log, {} lines back", rows - 1);
    assert_eq!(title(&mut dashboard), Some(back));
    dashboard.act(Action::LogDown, &state);
    assert_eq!(dashboard.log_back, 0);
    assert_eq!(title(&mut dashboard).as_deref(), Some("log"));
    let mut state = state;
    state.metrics.push(crate::wire::MetricInfo {
        id: "train/token_accuracy".into(),
        title: "Token accuracy".into(),
        ..crate::wire::MetricInfo::default()
    });
    let found = |filter: &str| catalog::charts(&state, filter).len();
    assert_eq!((found("token acc"), found("token e")), (0, 1));
}

#[test]
fn ranks_are_summed_up_and_the_slow_one_is_named() {
    let mut state = live();
    let shown =
        |state: &RunState, size| picture(&mut Dashboard::new(), state, &Theme::ansi(), size);
    assert!(!shown(&state, (160, 46)).contains("rank"));
    let step = state.step + 1;
    let stepped = |step: u64, millis: &[f64]| {
        let of = |(rank, x): (usize, &f64)| (ranks::forward(rank), Num(*x));
        let values = millis.iter().enumerate().map(of).collect();
        Event::Stepped {
            step,
            tokens: 0,
            values,
        }
    };
    let say = |state: &mut RunState, event: Event| {
        let (seq, t) = (state.last_seq + 1, state.last_t);
        state.apply(&Envelope {
            v: 1,
            seq,
            t,
            event,
        });
    };
    say(&mut state, stepped(step, &[40.0, 41.0, 42.0, 41.0]));
    assert!(shown(&state, (160, 46)).contains("4 alike, 41 ms"));
    say(&mut state, stepped(step + 1, &[40.0, 41.0, 42.0, 82.0]));
    assert!(shown(&state, (160, 46)).contains("rank 3 slow (2.0×)"));
    // A generation of fewer ranks: those that are gone do not count.
    say(&mut state, stepped(step + 2, &[40.0, 42.0]));
    assert!(shown(&state, (160, 46)).contains("2 alike, 41 ms"));
    // GPUs of other machines by the words of their ranks, and main memory with that of the processes here.
    let said = |rank, used: u64| {
        ranks::parse_memory(
            rank,
            &serde_json::json!({"gpu_used_bytes": used, "gpu_total_bytes": 80_u64 << 30}),
        )
    };
    let mut values = said(0, 20 << 30);
    values.extend(said(1, 40 << 30));
    values.insert("host/rss_bytes".into(), Num(f64::from(1 << 30)));
    values.insert("host/started_bytes".into(), Num(f64::from(1 << 30)));
    say(&mut state, Event::HardwareSampled { values });
    let shown = shown(&state, (160, 46));
    assert!(shown.contains("40 GiB, rank 1 of 2"), "{shown}");
    assert!(shown.contains("2 GiB"), "{shown}");
}
