//! The runs of a sweep: marked with one key on Home, ranked on Compare.

use super::*;
use crate::run::compare::Track;
use crate::ui::rows::ComparedRun;
use crate::wire::{Best, Direction};
use serde_json::json;

/// A run of a grid: rate, seed, best loss, status.
type Point = (f64, u64, f64, RunStatus);

const GRID: [Point; 8] = [
    (1e-4, 1, 2.410, RunStatus::Finished),
    (1e-4, 2, 2.450, RunStatus::Finished),
    (3e-4, 1, 2.030, RunStatus::Finished),
    (3e-4, 2, 2.050, RunStatus::Finished),
    (1e-3, 1, 1.904, RunStatus::Finished),
    (1e-3, 2, 1.930, RunStatus::Finished),
    (1e-1, 1, 1.500, RunStatus::Failed),
    (1e-1, 2, 1.700, RunStatus::Live),
];

fn summary(at: usize, (_, _, loss, status): Point) -> RunSummary {
    let diverged = status == RunStatus::Failed;
    RunSummary {
        id: format!("2026-11-21-0912-quickstart-s{at:03}"),
        path: format!("runs/s{at}").into(),
        status,
        phase: None,
        verdict: Some(if diverged { "DIVERGED" } else { "LEARNING" }.into()),
        message: if diverged {
            "the loss is NaN".into()
        } else {
            String::new()
        },
        preset: "quickstart".into(),
        best_evaluation: Some(Best {
            metric: "val/loss".into(),
            direction: Direction::Lower,
            value: Num(loss),
            step: 1_900,
        }),
        ..runs()[1].clone()
    }
}

fn entrants() -> Vec<ComparedRun> {
    let entrant = |(at, point): (usize, Point)| ComparedRun {
        run: summary(at, point),
        spec: json!({"name": "quickstart", "seed": point.1, "optimizer": {"adamw": {"lr": point.0}}}),
        contents: crate::run::objective::Contents::default(),
    };
    GRID.into_iter().enumerate().map(entrant).collect()
}

/// Home with the sweep and another run, all of the sweep marked and compared.
fn compared() -> Bench {
    compared_of(&entrants())
}

fn compared_of(entrants: &[ComparedRun]) -> Bench {
    let mut bench = Bench::new();
    let mut listed: Vec<RunSummary> = entrants.iter().map(|entrant| entrant.run.clone()).collect();
    listed.push(runs()[2].clone());
    // One that was made and not started has nothing to compare.
    listed.push(RunSummary {
        id: "2026-11-21-0912-quickstart-new".into(),
        path: "runs/new".into(),
        step: 0,
        ..summary(0, (1e-4, 3, 9.0, RunStatus::Empty))
    });
    bench.msg(Msg::Runs(Ok((listed, Vec::new()))));
    bench.press("m v");
    let asked = bench.effects.iter().find_map(|effect| match effect {
        Effect::ReadEntrants(paths) => Some(paths.clone()),
        _ => None,
    });
    let paths = asked.unwrap_or_else(|| panic!("{:?}", bench.effects));
    assert_eq!(
        paths.len(),
        GRID.len(),
        "the other run is none of the sweep"
    );
    // They come in the order of the marks.
    let of = |path: &PathBuf| {
        entrants
            .iter()
            .find(|entrant| entrant.run.path == *path)
            .cloned()
    };
    let found = paths.iter().filter_map(of).collect();
    bench.msg(Msg::Entrants { paths, found });
    bench
}

#[test]
fn the_runs_of_a_sweep_are_marked_with_one_key_and_ranked() {
    let mut bench = compared();
    let Some(Effect::ReadTracks(best)) = bench.effects.last().cloned() else {
        panic!("{:?}", bench.effects)
    };
    let expected = ["s4", "s5", "s2", "s3", "s0", "s1"];
    assert_eq!(
        best,
        expected.map(|run| PathBuf::from(format!("runs/{run}")))
    );
    let results = best
        .iter()
        .map(|path| Ok(Track::new(&title_of(path))))
        .collect();
    bench.msg(Msg::Tracks {
        paths: best,
        results,
    });
    for (width, height) in [(80, 24), (160, 48)] {
        let picture = bench.picture(width, height);
        insta::assert_snapshot!(format!("ranking-{width}x{height}"), picture);
    }
    let picture = bench.picture(160, 48);
    let row = |words: &str| {
        let found = picture.lines().position(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("{words}:\n{picture}"))
    };
    let order = [
        "1.917 ± 0.0184",
        "2.040 ± 0.0141",
        "2.430 ± 0.0283",
        "diverged",
    ];
    assert!(order.map(row).is_sorted(), "{picture}");
    assert!(
        row("live") > row("2.430 ± 0.0283"),
        "a run on its way is not ranked:\n{picture}"
    );
    // What does not fit is counted, until it is scrolled to.
    let more = |picture: String| {
        let mut lines = picture.lines().filter(|line| line.contains("ranking by"));
        lines
            .next()
            .is_some_and(|line| line.contains("▼") && line.contains(" more"))
    };
    assert!(more(bench.picture(80, 18)));
    assert!(!more(bench.press("end").picture(80, 18)) && !more(bench.picture(160, 48)));
    let table = bench.press("t").picture(160, 48);
    assert!(table.contains("t ranking"), "{table}");
}

/// Without a column for what differed they were taken for runs of several seeds, with a spread.
#[test]
fn runs_that_differ_in_settings_without_a_column_are_no_seeds() {
    let mut all = entrants();
    for (at, entrant) in all.iter_mut().enumerate() {
        let lr = GRID[at].0;
        entrant.spec = json!({"name": "quickstart", "seed": 1, "optimizer": {"adamw": {"lr": lr}},
            "train": {"threads": at}, "sample": {"every": at}, "health": {"every": at}, "checkpoint": {"every": at}});
    }
    let mut bench = compared_of(&all);
    let Some(Effect::ReadTracks(paths)) = bench.effects.last().cloned() else {
        panic!("{:?}", bench.effects)
    };
    let track = |path: &PathBuf| Ok(Track::new(&title_of(path)));
    let results = paths.iter().map(track).collect();
    bench.msg(Msg::Tracks { paths, results });
    let picture = bench.picture(160, 48);
    let heading = picture.lines().find(|line| line.contains("val/loss  step"));
    let heading = heading.unwrap_or_else(|| panic!("{picture}"));
    assert!(
        heading.contains(" lr ") && !heading.contains("threads"),
        "{heading}"
    );
    assert!(
        !heading.contains("seeds") && !picture.contains('±'),
        "{picture}"
    );
    let row = picture
        .lines()
        .find(|line| line.contains("quickstart-s005"));
    assert!(
        row.is_some_and(|row| row.contains("1.930") && row.starts_with(" 2 ")),
        "{picture}"
    );
}

/// `8 runs are marked` stood there with nine marked.
#[test]
fn runs_that_were_marked_before_are_counted_beside_the_sweep() {
    let mut bench = Bench::new();
    let mut listed: Vec<RunSummary> = entrants().into_iter().map(|entrant| entrant.run).collect();
    listed.insert(0, runs()[2].clone());
    bench.msg(Msg::Runs(Ok((listed, Vec::new()))));
    bench.press("end space up m");
    let picture = bench.picture(120, 40);
    assert!(
        picture.contains("8 runs are marked, beside 1 marked before"),
        "{picture}"
    );
}

#[test]
fn the_key_that_marks_a_sweep_unmarks_it_again() {
    let mut bench = compared();
    bench.press("1 m v");
    let words = "mark at least two runs";
    assert!(
        bench.picture(120, 40).contains(words),
        "{}",
        bench.picture(120, 40)
    );
}

#[test]
fn a_run_without_others_of_its_origin_marks_nothing() {
    let mut bench = Bench::new();
    bench.runs().press("m");
    assert!(
        bench
            .picture(120, 40)
            .contains("no other run has the same preset")
    );
}
