//! `llmtui runs --compare A B …`: curves, settings and figures of several runs, ours and those of other programs.

use crate::base::human::{self, grouped};
use crate::base::text::{cut, cut_middle, one_line};
use crate::cli::exit::Failure;
use crate::cli::subject::{LogArgs, Subject, read_log};
use crate::cli::{Context, run_ref};
use crate::run::RunDir;
use crate::run::compare::{
    Alignment, Figure, MAX_TRACKS, Schema, Setting, Track, differing, ends, even, figures,
    visible_differences,
};
use crate::run::id::short_run;
use crate::run::no_effect;
use crate::run::objective::Difference;
use crate::spec::{choices, follows, shown};
use crate::wire::id;
use serde_json::{Value, json};
use std::time::Duration;

/// Rows of a curve in a table, and points of one in JSON.
const ROWS: usize = 8;
const POINTS: usize = 400;
/// Columns of a setting's or a metric's name, and of a run's.
const NAME: usize = 30;
const RUN: usize = 22;

const SCHEMA: Schema = Schema { choices, follows };

/// Reads the runs and the logs that the words mean.
///
/// # Errors
/// One of them is neither, or cannot be read; too few or too many.
pub fn read(words: &[String], cx: &Context) -> anyhow::Result<Vec<Track>> {
    if !(2..=MAX_TRACKS).contains(&words.len()) {
        let runs = human::counted(words.len() as u64, "run");
        let what = format!("{runs} to compare: name 2 to {MAX_TRACKS}");
        return Err(Failure::user_error(what, "llmtui runs --compare A B").into());
    }
    words.iter().map(|word| one(word, cx)).collect()
}

fn one(word: &str, cx: &Context) -> anyhow::Result<Track> {
    let args = LogArgs::default();
    match Subject::named(word, &args, cx)? {
        Subject::Run(run) => Ok(of_run(&run)?),
        Subject::Log(found) => {
            let mut track = Track::new(&found.name);
            read_log(&found, &args, |envelope| track.apply(envelope))?;
            Ok(track)
        }
    }
}

fn of_run(run: &RunDir) -> Result<Track, Failure> {
    Track::of_run(run).map_err(|e| run_ref::no_log(run, &e))
}

/// The metrics whose curves are wanted: those named, else the losses that there are.
///
/// # Errors
/// No run has readings of one that was named.
pub fn metrics<'a>(figures: &'a [Figure], wanted: &[String]) -> Result<Vec<&'a Figure>, Failure> {
    if wanted.is_empty() {
        let losses = figures
            .iter()
            .filter(|f| f.id == id::TRAIN_LOSS || f.id == id::VAL_LOSS);
        return Ok(losses.collect());
    }
    let named = |id: &String| {
        figures.iter().find(|f| f.id == *id).ok_or_else(|| {
            let ids: Vec<&str> = figures.iter().map(|f| f.id.as_str()).collect();
            let what = format!("no run has logged {}", one_line(id));
            Failure::user_error(what, format!("there are {}", ids.join(", ")))
        })
    };
    wanted.iter().map(named).collect()
}

fn facts(track: &Track) -> [(&'static str, String); 5] {
    let state = &track.state;
    let params = state.head.as_ref().map_or(0, |head| head.n_params);
    [
        ("state", state.word().into()),
        ("steps", grouped(state.step)),
        ("tokens", known(state.tokens)),
        ("time", track.time()),
        ("parameters", known(params)),
    ]
}

/// A count that logs of other programs may not tell: they then have none.
fn known(count: u64) -> String {
    match count {
        0 => "-".into(),
        count => human::short(count as f64),
    }
}

fn x_word(x: u64, by: Alignment) -> String {
    match by {
        Alignment::Step => grouped(x),
        Alignment::Tokens => human::short(x as f64),
        Alignment::Time => human::duration(Duration::from_millis(x)),
    }
}

/// A cell of at most [`RUN`] columns, with dots where it was longer.
fn short(name: &str) -> String {
    // Ids and paths are known by both ends, a sentence by its beginning.
    match name.contains(' ') {
        true => cut(name, RUN, ".."),
        false => cut_middle(name, RUN, ".."),
    }
}

fn row(out: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let cells: String = cells
        .map(|cell| format!("  {:>RUN$}", short(&cell)))
        .collect();
    // Its end distinguishes it from others: the step of a row, the last word of a path.
    let name = cut_middle(name, NAME, "..");
    out.push_str(format!("{name:<NAME$}{cells}").trim_end());
    out.push('\n');
}

/// A table with one column for each run: what they are, where their settings differ, their figures with a star at the best
/// one, and their curves at shared places.
pub fn text(tracks: &[Track], wanted: &[&Figure], by: Alignment) -> String {
    let mut out = String::new();
    let names = tracks
        .iter()
        .map(|track| short_run(&track.name).to_string());
    row(&mut out, "", names);
    let facts: Vec<_> = tracks.iter().map(facts).collect();
    for (at, (name, _)) in facts[0].iter().enumerate() {
        row(
            &mut out,
            name,
            facts.iter().map(|facts| facts[at].1.clone()),
        );
    }
    let settings = visible_differences(tracks, SCHEMA);
    let (idle, settings): (Vec<&Setting>, Vec<&Setting>) = settings
        .iter()
        .partition(|setting| !setting.changes_results());
    out.push_str("\nsettings that differ\n");
    if settings.is_empty() {
        out.push_str("none\n");
    }
    rows_of(&mut out, &settings);
    if !idle.is_empty() {
        out.push_str(&format!("\n{}\n", no_effect::TITLE));
        rows_of(&mut out, &idle);
    }
    readings(&mut out, tracks);
    let has_bits = |track: &Track| {
        track
            .state
            .metrics
            .iter()
            .any(|info| info.id == id::VAL_BPB)
    };
    let in_bits = tracks.iter().all(has_bits);
    for figure in wanted {
        let apart = match figure.apart {
            None => "",
            Some(Difference::Loss) => " (the runs minimize different losses: not comparable)",
            Some(Difference::Tokenizer) if in_bits => {
                " (different tokenizers: not comparable; val/bpb is)"
            }
            Some(Difference::Tokenizer) => " (different tokenizers: not comparable)",
            Some(Difference::Data) => " (trained on other data: losses are not comparable)",
        };
        out.push_str(&format!("\n{} by {}{apart}\n", figure.id, by.word()));
        for (x, values) in shared(tracks, &figure.id, by) {
            let cell = |x: &Option<f64>| x.map_or("-".into(), |x| human::reading(x, &figure.unit));
            row(&mut out, &x_word(x, by), values.iter().map(cell));
        }
    }
    out
}

fn rows_of(out: &mut String, settings: &[&Setting]) {
    for setting in settings {
        let value = |value: &Option<Value>| {
            value
                .as_ref()
                .map_or("-".into(), |value| one_line(&shown(value)))
        };
        row(out, &setting.path, setting.values.iter().map(value));
    }
}

/// The newest readings, each with its step where the runs' are not of the same one, and those at the last step that all had
/// reached: only there a best one is reported.
fn readings(out: &mut String, tracks: &[Track]) {
    let figures = figures(tracks);
    let steps: Vec<_> = figures.iter().map(|f| ends(tracks, &f.id)).collect();
    let uneven = steps.iter().any(|steps| !even(steps));
    let mut rows = String::new();
    for (figure, steps) in figures.iter().zip(&steps) {
        let even = even(steps);
        let winner = figure.winner(&figure.last).filter(|_| even);
        let cell = |(at, x): (usize, &Option<f64>)| {
            let star = if winner == Some(at) { "*" } else { "" };
            let step = steps[at].filter(|_| !even);
            let step = step.map_or(String::new(), |step| format!(" @{}", grouped(step)));
            x.map_or("-".into(), |x| {
                format!("{star}{}{step}", human::reading(x, &figure.unit))
            })
        };
        row(
            &mut rows,
            &figure.id,
            figure.last.iter().enumerate().map(cell),
        );
    }
    block(
        out,
        match uneven {
            true => "latest value (with its step where they differ)",
            false => "latest value",
        },
        &rows,
    );
    if !uneven {
        return;
    }
    let mut rows = String::new();
    for figure in &figures {
        let Some((common, values)) = figure.at_last_common_step(tracks) else {
            continue;
        };
        let winner = figure.winner(&values);
        let cell = |(at, x): (usize, &Option<f64>)| {
            let star = if winner == Some(at) { "*" } else { "" };
            x.map_or("-".into(), |x| {
                format!("{star}{}", human::reading(x, &figure.unit))
            })
        };
        let name = format!("{} @{}", figure.id, grouped(common));
        row(&mut rows, &name, values.iter().enumerate().map(cell));
    }
    if !rows.is_empty() {
        block(out, "at the last common step", &rows);
    }
}

/// Rows under their heading, which explains the star where there is one.
fn block(out: &mut String, heading: &str, rows: &str) {
    let star = match rows.contains('*') {
        true => "; * best of the runs",
        false => "",
    };
    out.push_str(&format!("\n{heading}{star}\n{rows}"));
}

/// The curves at [`ROWS`] places that all axes share, and where each run ends: the newest mean at or before each. A run that is far
/// shorter than the others would stand in none of the places.
fn shared(tracks: &[Track], id: &str, by: Alignment) -> Vec<(u64, Vec<Option<f64>>)> {
    let curves: Vec<_> = tracks
        .iter()
        .map(|track| (track.points(id, by, POINTS), track.end(by)))
        .collect();
    let read = curves.iter().any(|(curve, _)| !curve.is_empty());
    let Some(end) = curves.iter().map(|curve| curve.1).max().filter(|_| read) else {
        return Vec::new();
    };
    let at = |x: u64| {
        let value = |(curve, end): &(Vec<(u64, f64)>, u64)| {
            let n = curve.partition_point(|point| point.0 <= x);
            // A run has no value behind its end; between evaluations the last one stands.
            n.checked_sub(1).filter(|_| x <= *end).map(|at| curve[at].1)
        };
        (x, curves.iter().map(value).collect())
    };
    let mut ends: Vec<u64> = (1..=ROWS as u64).map(|n| end * n / ROWS as u64).collect();
    ends.extend(curves.iter().map(|(_, end)| *end).filter(|end| *end > 0));
    ends.sort_unstable();
    ends.dedup();
    ends.into_iter().map(at).collect()
}

/// Everything as one object; curves as lists of [x, value], x in steps, tokens or seconds.
pub fn object(tracks: &[Track], wanted: &[&Figure], by: Alignment) -> Value {
    let runs: Vec<Value> = tracks
        .iter()
        .map(|track| {
            let (state, head) = (&track.state, track.state.head.as_ref());
            json!({
                "name": track.name, "method": head.map(|head| &head.method), "state": state.word(),
                "step": state.step, "tokens": state.tokens, "seconds": track.millis() as f64 / 1e3,
                "parameters": head.map(|head| head.n_params),
            })
        })
        .collect();
    // Every difference, and what was chosen first.
    let mut settings = visible_differences(tracks, SCHEMA);
    let known: Vec<String> = settings.iter().map(|s| s.path.clone()).collect();
    let rest = differing(tracks);
    let rest = rest
        .into_iter()
        .filter(|s: &Setting| !known.contains(&s.path));
    settings.extend(rest);
    let settings: Vec<Value> = settings
        .into_iter()
        .map(|setting| {
            json!({
                "path": setting.path, "values": setting.values,
                "changes_results": setting.changes_results(),
            })
        })
        .collect();
    let figures: Vec<Value> = figures(tracks)
        .into_iter()
        .map(|f| {
            json!({
                "id": f.id, "title": f.title, "unit": f.unit, "last": f.last, "best": f.best,
                "winner": f.leader(tracks), "comparable": f.apart.is_none(), "last_steps": ends(tracks, &f.id),
            })
        })
        .collect();
    let x = |x: u64| match by {
        Alignment::Time => json!(x as f64 / 1e3),
        Alignment::Step | Alignment::Tokens => json!(x),
    };
    let curve = |figure: &&Figure| {
        let of = |track: &Track| -> Vec<Value> {
            let points = track.points(&figure.id, by, POINTS).into_iter();
            points.map(|(at, value)| json!([x(at), value])).collect()
        };
        let curves: Vec<Vec<Value>> = tracks.iter().map(of).collect();
        (figure.id.clone(), json!(curves))
    };
    let curves: serde_json::Map<String, Value> = wanted.iter().map(curve).collect();
    json!({"by": by.word(), "runs": runs, "settings": settings, "figures": figures, "curves": curves})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Direction, Envelope, Event, MetricInfo, Num};

    /// A run whose loss falls by a tenth a step.
    fn track(name: &str, steps: u64, from: f64) -> Track {
        logged(name, (1..=steps).collect(), from)
    }

    /// The same, with readings at these steps alone.
    fn logged(name: &str, steps: Vec<u64>, from: f64) -> Track {
        let info = MetricInfo {
            id: "train/loss".into(),
            direction: Direction::Lower,
            ..MetricInfo::default()
        };
        let mut events = vec![Event::MetricsDeclared {
            metrics: vec![info],
        }];
        events.extend(steps.into_iter().map(|step| Event::Stepped {
            step,
            tokens: step,
            values: [("train/loss".to_string(), Num(from - 0.1 * step as f64))].into(),
        }));
        let mut track = Track::new(name);
        for (seq, event) in (1..).zip(events) {
            track.apply(&Envelope {
                v: 1,
                seq,
                t: UnixMillis(seq),
                event,
            });
        }
        track
    }

    #[test]
    fn a_run_that_has_logged_nothing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let clock = crate::base::clock::SystemClock::new();
        let run = RunDir::create(dir.path(), "a", "{}", "", &clock).unwrap();
        let failure = of_run(&run).unwrap_err();
        assert!(failure.what.contains(run.id()), "{}", failure.what);
        assert!(failure.what.contains("has logged nothing yet"));
    }

    #[test]
    fn runs_of_unequal_length_are_compared_where_both_have_been() {
        // The longer one is behind at step 10, and lower at its own end.
        let tracks = [track("long", 20, 5.0), track("short", 10, 4.5)];
        let text = text(&tracks, &[], Alignment::Step);
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            let found = found.unwrap_or_else(|| panic!("{start}: {text}"));
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let newest = line("train/loss ");
        assert!(newest.contains("@20") && newest.contains("@10"), "{text}");
        assert!(!newest.contains('*'), "no best of different steps: {text}");
        assert!(
            !line("latest value").contains('*'),
            "a star that is nowhere: {text}"
        );
        let common = line("train/loss @10");
        let best = common.split(' ').next_back().unwrap_or_default();
        assert!(best.starts_with("*3.5"), "{text}");
        let winner =
            |tracks: &[Track]| object(tracks, &[], Alignment::Step)["figures"][0]["winner"].clone();
        assert!(winner(&tracks).is_null());
        let alike = [track("a", 10, 5.0), track("b", 10, 4.5)];
        let text = super::text(&alike, &[], Alignment::Step);
        assert!(!text.contains('@') && !text.contains("common"), "{text}");
        assert!(text.contains("*3.5"), "{text}");
        assert_eq!(winner(&alike), json!(1));
    }

    /// Only the step distinguishes such a row from the one above it.
    #[test]
    fn the_end_of_a_long_name_is_kept() {
        let mut out = String::new();
        let name = "completions/mean_terminated_length @500";
        row(&mut out, name, ["1".to_string()].into_iter());
        assert!(out.contains("..") && out.contains("length @500 "), "{out}");
    }

    /// A run evaluated at 250 and 500 lost at 400 by its value of step 250.
    #[test]
    fn a_best_one_is_told_at_a_step_where_all_were_evaluated() {
        let both = [
            logged("a", vec![4, 8, 12, 16], 5.0),
            logged("b", vec![6, 12, 18], 4.5),
        ];
        let text = text(&both, &[], Alignment::Step);
        assert!(text.contains("train/loss @12"), "{text}");
        let never = [logged("a", vec![4, 8], 5.0), logged("b", vec![5, 9], 4.5)];
        let text = super::text(&never, &[], Alignment::Step);
        assert!(!text.contains("common step"), "{text}");
    }

    /// The table began behind its end, and the run was a dash everywhere.
    #[test]
    fn a_far_shorter_run_stands_in_the_row_of_its_end() {
        let tracks = [track("long", 32, 5.0), track("short", 3, 4.5)];
        let rows = shared(&tracks, "train/loss", Alignment::Step);
        let (_, values) = rows.iter().find(|(step, _)| *step == 3).unwrap();
        assert!(values.iter().all(Option::is_some), "{rows:?}");
        assert_eq!(rows.len(), ROWS + 1);
        // Of equal ends there is one row.
        let alike = [track("a", 32, 5.0), track("b", 32, 4.5)];
        assert_eq!(shared(&alike, "train/loss", Alignment::Step).len(), ROWS);
    }

    #[test]
    fn what_was_chosen_differently_is_told_and_losses_that_are_no_match_have_a_word() {
        let of = |spec: Value| {
            let mut track = track("a", 10, 5.0);
            let method = spec["method"]
                .as_object()
                .and_then(|m| m.keys().next())
                .cloned();
            let started = Event::Started {
                name: "a".into(),
                method: method.unwrap_or_default(),
                spec,
                n_params: 1,
                vocab_size: 1,
                max_steps: 1,
                batch_tokens: 1,
                epoch_tokens: 1,
                resumed_from: None,
                precision: None,
                unigram_entropy: None,
            };
            track.apply(&Envelope {
                v: 1,
                seq: 99,
                t: UnixMillis(99),
                event: started,
            });
            track
        };
        let simpo = of(json!({
            "method": {"simpo": {"beta": 2.0, "gamma": 1.0}}, "optimizer": {"adamw": {}},
            "schedule": {"cosine": {}}, "adapter": null,
        }));
        let cpo = of(json!({
            "method": {"cpo": {"beta": 0.1, "nll_weight": 1.0}}, "optimizer": {"lion": {}},
            "schedule": {"wsd": {}}, "adapter": {"lora": {}},
        }));
        let tracks = [simpo, cpo];
        let figures = figures(&tracks);
        let wanted: Vec<&Figure> = figures.iter().collect();
        let text = text(&tracks, &wanted, Alignment::Step);
        let rows: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for row in [
            "method simpo cpo",
            "optimizer adamw lion",
            "schedule cosine wsd",
            "adapter none lora",
        ] {
            assert!(rows.iter().any(|found| found == row), "{row}: {text}");
        }
        assert!(
            !text.contains("simpo.beta") && !text.contains('*'),
            "{text}"
        );
        assert!(
            text.contains("by step (the runs minimize different losses"),
            "{text}"
        );
        let object = object(&tracks, &wanted, Alignment::Step);
        assert_eq!(
            object["settings"][0],
            json!({"path": "method", "values": ["simpo", "cpo"], "changes_results": true})
        );
        assert_eq!(object["figures"][0]["comparable"], false);
    }

    #[test]
    fn what_is_cut_says_so_and_keeps_the_end_that_tells_it_apart() {
        assert_eq!(short("3e-4"), "3e-4");
        let id = short("2026-11-25-2359-a-very-long-name-p3c2");
        assert_eq!(id, "2026-11-25..-name-p3c2");
        let about = short("A 0.2M-parameter model learns by DPO to prefer sorted lists.");
        assert_eq!(about, "A 0.2M-parameter mod..");
    }
}
