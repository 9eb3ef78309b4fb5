//! `s` where charts are drawn: the file is written and holds the curves.

use super::*;
use crate::ui::jobs;
use crate::wire::{Band, ChartPlace, MetricInfo, Origin};

/// Presses `s`, draws again as the runtime does, and writes what was asked for: the pictures' name and the SVG.
fn saved(bench: &mut Bench, width: u16, height: u16) -> (String, String) {
    bench.draw(width, height);
    bench.press("s");
    let found = bench.effects.iter().find_map(|effect| match effect {
        Effect::SavePicture { name, area } => Some((name.clone(), area.expect("a part of it"))),
        _ => None,
    });
    let (name, area) = found.expect("a picture to save");
    // The picture before this one is still being talked of: that is no part of it.
    bench
        .app
        .toast(crate::run::state::Level::Good, "saved as a picture");
    let toasted = bench.picture(width, height);
    assert!(toasted.contains("saved as a picture"), "{toasted}");
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| bench.app.draw_still(frame)).unwrap();
    let screen = terminal.backend().buffer().clone();
    let dir = tempfile::tempdir().unwrap();
    let path = jobs::save_in(
        dir.path(),
        &name,
        &jobs::part(&screen, area),
        bench.app.theme().ground(),
    )
    .unwrap();
    let png = std::fs::read(path.to_string_lossy().replace(".svg", ".png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"), "{name}");
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(!svg.contains("saved as a picture"), "{svg}");
    (name, svg)
}

/// Points of curves: each is a stroke of no length with a round end.
fn points(svg: &str) -> usize {
    svg.matches("h0").count()
}

fn text(svg: &str, phrases: &[&str]) {
    for phrase in phrases {
        assert!(
            svg.contains(&format!("{phrase}<")) || svg.contains(phrase),
            "{phrase}: {svg}"
        );
    }
}

/// `dead` by block and `noise` as one number, at forty steps.
fn probed(bench: &mut Bench) {
    let info = |id: &str, per_layer| MetricInfo {
        id: id.into(),
        title: format!("Title of {id}"),
        place: ChartPlace::Health,
        per_layer,
        band: Some(Band {
            low: None,
            high: Some(0.5),
            origin: Origin::RuleOfThumb,
        }),
        normal: "so much is normal".into(),
        ..MetricInfo::default()
    };
    let metrics = vec![info("dead/layer", true), info("noise", false)];
    bench.event(Event::MetricsDeclared { metrics });
    for step in (1_250..=1_640).step_by(10) {
        bench.event(Event::Stepped {
            step,
            tokens: step * 100,
            values: [("noise".into(), Num(f64::sin(step as f64)))].into(),
        });
        let values = [0.0, (step as f64 - 1_250.0) / 390.0].map(Num).to_vec();
        bench.event(Event::Probed {
            step,
            layers: [("dead/layer".into(), values)].into(),
        });
    }
}

#[test]
fn the_health_pane_saves_the_selected_metric_and_nothing_where_there_are_words() {
    let mut bench = Bench::new();
    bench.live();
    probed(&mut bench);
    bench.press("9 g");
    let mut names = Vec::new();
    for _ in 0..40 {
        let (name, svg) = saved(&mut bench, 120, 40);
        assert!(
            !svg.contains("so much is normal"),
            "words are no part of it"
        );
        match &name {
            name if name.ends_with("-noise") => {
                text(&svg, &["Title of noise", "1,640"]);
                assert!(points(&svg) > 40, "{svg}");
            }
            name if name.ends_with("-dead/layer") => {
                text(&svg, &["Title of dead/layer", "step 1,640"])
            }
            _ => {}
        }
        if names.last() == Some(&name) {
            break;
        }
        names.push(name);
        bench.press("down");
    }
    for id in ["noise", "dead/layer"] {
        assert!(
            names.iter().any(|name| name.ends_with(&format!("-{id}"))),
            "{names:?}"
        );
    }
    bench.press("enter");
    bench.draw(120, 40);
    bench.press("s");
    assert!(
        !bench
            .effects
            .iter()
            .any(|e| matches!(e, Effect::SavePicture { .. }))
    );
}

#[test]
fn the_samples_pane_saves_the_loss_with_the_texts_under_it() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("8");
    let (name, svg) = saved(&mut bench, 120, 34);
    assert!(name.ends_with("-samples"), "{name}");
    text(&svg, &["loss", "train", "samples"]);
    assert!(points(&svg) > 40);
    // The tabs above and the keys below are no part of it.
    assert!(!svg.contains("Hardware"), "{svg}");
}

#[test]
fn the_hardware_pane_saves_its_charts() {
    let recording = include_str!("../../../../../../tests/machines/healthy.json");
    let mut bench = Bench::new();
    bench.machine(recording, 1);
    let (_, first) = saved(&mut bench, 160, 46);
    let mut bench = Bench::new();
    bench.machine(recording, 90);
    let (name, svg) = saved(&mut bench, 160, 46);
    assert!(name.ends_with("-hardware"), "{name}");
    text(&svg, &["temperature", "CPU", "ago"]);
    assert!(
        points(&svg) > points(&first) + 40,
        "{} {}",
        points(&svg),
        points(&first)
    );
    for other in ["doctor", "machine"] {
        assert!(!svg.contains(other), "{other} is no part of it");
    }
}

#[test]
fn before_there_is_a_chart_the_key_says_so() {
    let mut bench = Bench::new();
    for pane in ["6", "8", "9"] {
        bench.press(pane);
        bench.draw(100, 30);
        bench.press("s");
        let picture = bench.picture(100, 30);
        assert!(
            picture.contains("there is no chart to save here"),
            "{picture}"
        );
    }
}
