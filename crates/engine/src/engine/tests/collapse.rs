//! `health.reference_run`: residuals against the loss curve of another run.

use super::*;
use crate::base::clock::UnixMillis;
use crate::wire::{Envelope, id};

/// Runs it and leaves its log, as the log's thread would.
fn logged(run: &Run) -> Vec<Event> {
    let events = run.go();
    let lines = events.iter().enumerate().map(|(at, event)| {
        let envelope = Envelope {
            v: crate::wire::VERSION,
            seq: at as u64 + 1,
            t: UnixMillis(at as u64),
            event: event.clone(),
        };
        serde_json::to_string(&envelope).unwrap() + "\n"
    });
    std::fs::write(run.job.run_dir.events_path(), lines.collect::<String>()).unwrap();
    events
}

fn readings(logs: &[&[Event]], id: &str) -> Vec<(u64, f64)> {
    let reading = |event: &Event| match event {
        Event::Stepped { step, values, .. } => values.get(id).map(|value| (*step, value.0)),
        _ => None,
    };
    logs.iter()
        .flat_map(|log| log.iter().filter_map(reading))
        .collect()
}

fn against(reference: &Run, words: &[&str]) -> Run {
    let at = format!(
        "health.reference_run={}",
        reference.job.run_dir.path().display()
    );
    Run::new(
        &[
            &["train.max_steps=80", "train.log_every=1", "seed=2", &at],
            words,
        ]
        .concat(),
    )
}

fn reference(words: &[&str]) -> Run {
    Run::new(&[&["train.max_steps=60", "train.log_every=1"], words].concat())
}

fn said(events: &[Event]) -> String {
    let all = events.iter().map(|event| format!("{event:?}\n"));
    all.collect()
}

#[test]
fn the_residual_comes_in_the_second_half_and_survives_a_stop_and_the_loss_of_the_reference() {
    let earlier = reference(&[]);
    logged(&earlier);
    let whole = against(&earlier, &[]).go();
    let residuals = readings(&[&whole], id::COLLAPSE_RESIDUAL);
    let steps: Vec<u64> = residuals.iter().map(|(step, _)| *step).collect();
    // Half of a window of four steps after the middle.
    assert_eq!(steps, (42..=80).collect::<Vec<_>>());
    // The same model on the same text: the curves differ by the noise of batches.
    assert!(
        residuals.iter().all(|(_, r)| r.abs() < 0.1),
        "{residuals:?}"
    );
    let forecast = readings(&[&whole], "loss_forecast").last().unwrap().1;
    let losses = readings(&[&whole], id::TRAIN_LOSS);
    assert!(
        (forecast / losses.last().unwrap().1 - 1.0).abs() < 0.1,
        "{forecast}"
    );
    assert!(
        said(&whole).contains("collapse residual: measured against"),
        "{}",
        said(&whole)
    );

    let mut parted = against(&earlier, &[]);
    parted.job.stop_after = Some(45);
    let first = parted.go();
    std::fs::remove_dir_all(earlier.job.run_dir.path()).unwrap();
    let second = parted.resumed();
    assert_eq!(
        readings(&[&first, &second], id::COLLAPSE_RESIDUAL),
        residuals
    );
    assert!(!said(&second).contains("measured against"), "said before");
}

/// A resume went on against the curve of the run that the spec had named before, and with the fit to it.
#[test]
fn a_resume_that_names_another_reference_measures_against_that_one() {
    let (earlier, other) = (reference(&[]), reference(&["seed=3"]));
    logged(&earlier);
    logged(&other);
    let mut run = against(&earlier, &[]);
    run.job.stop_after = Some(30);
    run.go();
    run.job.spec = against(&other, &[]).job.spec;
    let said = said(&run.resumed());
    assert!(
        said.contains("collapse residual: measured against"),
        "{said}"
    );
    let kept = run.job.run_dir.path().join(crate::engine::collapse::FILE);
    let kept = std::fs::read_to_string(kept).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let path = other.job.run_dir.path().to_str();
    assert_eq!(kept["reference"].as_str(), path);
    // Fitted to that curve alone, from the step of the resume on.
    let state = checkpoint::read_state(&run.checkpoint(80)).unwrap();
    let carried = &state.progress.probes["collapse"];
    assert_eq!(carried["fit"]["n"], 11, "{carried}");
}

/// A branch begins with the curve of its parent.
#[test]
fn a_recipe_that_changed_since_the_curve_was_kept_is_warned_of() {
    let earlier = reference(&[]);
    logged(&earlier);
    let mut run = against(&earlier, &[]);
    run.job.stop_after = Some(30);
    run.go();
    run.job.spec = against(&earlier, &["optimizer.adamw.weight_decay=0.02"])
        .job
        .spec;
    std::fs::remove_dir_all(earlier.job.run_dir.path()).unwrap();
    // Before a resume or a branch, too, the curve that is kept serves; one of another length would have to be read anew.
    let (spec, keeper) = (&run.job.spec, &run.job.run_dir);
    assert!(check_reference(spec, None).is_err());
    assert!(check_reference(spec, Some(keeper)).is_ok());
    let longer = spec.clone().to_step(70);
    assert!(check_reference(&longer, Some(keeper)).is_err());
    let said = said(&run.resumed());
    assert!(said.contains("\"reference_run\""), "{said}");
}

#[test]
fn another_recipe_is_warned_of() {
    let earlier = reference(&["optimizer.adamw.weight_decay=0.02"]);
    logged(&earlier);
    let said = said(&against(&earlier, &[]).go());
    assert!(said.contains("timescale of weight decay"), "{said}");
    assert!(said.contains("\"reference_run\""), "{said}");
}

#[test]
fn a_run_that_cannot_serve_is_refused_with_its_place_and_a_fix() {
    let mut unfinished = reference(&[]);
    unfinished.job.stop_after = Some(30);
    logged(&unfinished);
    let sparse = reference(&["train.log_every=10"]);
    logged(&sparse);
    let empty = reference(&[]);
    for (run, cause) in [
        (&unfinished, "took 30 of its 60 steps"),
        (&sparse, "too few losses"),
        (&empty, "health.reference_run"),
    ] {
        let next = against(run, &[]);
        let (what, fix) = check_reference(&next.job.spec, None).unwrap_err();
        assert!(
            what.contains(cause) && what.contains("health.reference_run"),
            "{what}"
        );
        assert!(!fix.is_empty());
        let said = said(&next.go());
        assert!(said.contains(cause) && said.contains("Invalid"), "{said}");
    }
}
