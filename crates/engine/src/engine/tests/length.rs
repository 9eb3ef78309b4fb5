//! Epochs in place of steps, and batches that grow.

use super::*;
use crate::base::paths::Env;

/// A logged step: number, tokens so far, and what repeats to the bit.
type Logged = (u64, u64, Vec<(String, u64)>);

fn steps(events: &[Event]) -> Vec<Logged> {
    let step = |event: &Event| match event {
        Event::Stepped {
            step,
            tokens,
            values,
        } => Some((*step, *tokens, bits(values))),
        _ => None,
    };
    events.iter().filter_map(step).collect()
}

fn max_steps(events: &[Event]) -> Option<u64> {
    events.iter().find_map(|event| match event {
        Event::Started { max_steps, .. } => Some(*max_steps),
        _ => None,
    })
}

#[test]
fn epochs_become_steps_once_the_data_are_read_and_the_run_says_so_from_then_on() {
    let (spec, data) = tiny(&["data.order=shuffled"]);
    let pass = data.micro_steps_per_epoch(spec.train.micro_batch_size);
    // A pass over the windows of the text: none is left out, none is read twice; the rest fills none.
    let tokens = pass * spec.batch_tokens() as f64;
    let rest = data.epoch_tokens() as f64 - tokens;
    assert!((0.0..spec.model.seq_len as f64).contains(&rest), "{rest}");

    let word = format!("train.epochs={}", 23.5 / pass);
    let words = [
        word.as_str(),
        "train.grad_accum_steps=2",
        "eval.every=0",
        "train.warmup_ratio=0.25",
    ];
    let mut run = Run::new(&words);
    run.job.stop_after = Some(5);
    let first = run.go();
    // 24 micro-steps, two to a step.
    assert_eq!(max_steps(&first), Some(12));
    assert!(
        first
            .iter()
            .any(|e| matches!(e, Event::Noted { text, .. } if text.contains("12 steps over")))
    );
    let yaml = std::fs::read_to_string(run.job.run_dir.spec_path()).unwrap();
    let said = RunSpec::from_yaml(&yaml).unwrap();
    assert_eq!(
        (said.train.max_steps, said.schedule.warmup_steps()),
        (12, 3)
    );
    assert_eq!(said.train.epochs, run.job.spec.train.epochs);

    // Whether the spec says it or the data are counted again: the same course as of one that says steps.
    let mut resumed = Run::new(&[]);
    resumed.job.run_dir = run.job.run_dir.clone();
    resumed.job.spec = said;
    let second = resumed.resumed();
    assert_eq!(finished(&second).0, Outcome::Completed);
    assert_eq!(max_steps(&second), Some(12));
    let stated = [
        "train.max_steps=12",
        "data.order=shuffled",
        words[1],
        words[2],
        words[3],
    ];
    let stated = Run::new(&stated).go();
    let both: Vec<_> = steps(&first).into_iter().chain(steps(&second)).collect();
    assert_eq!(both, steps(&stated));

    // Fewer than are done: nothing is trained, and nothing is written.
    let fewer = format!("train.epochs={}", 15.5 / pass);
    let fewer = [fewer.as_str(), words[1], words[2], words[3]];
    resumed.job.spec = tiny(&fewer).0;
    let (outcome, step, why) = finished(&resumed.resumed());
    assert_eq!((outcome, step), (Outcome::Invalid, 12), "{why}");
    assert!(
        why.contains("ends at step 8") && why.contains("nothing is left to train"),
        "{why}"
    );
    assert_eq!(
        std::fs::read_to_string(run.job.run_dir.spec_path()).unwrap(),
        yaml
    );
}

#[test]
fn shares_of_a_run_in_epochs_are_of_the_steps_that_they_come_to() {
    // What epochs read: each window once.
    let (spec, data) = tiny(&["data.order=shuffled"]);
    let pass = data.micro_steps_per_epoch(spec.train.micro_batch_size);
    let word = format!("train.epochs={}", 9.5 / pass);
    let words = [
        &word,
        "eval.every=0.25",
        "sample.every=0.5",
        "checkpoint.every=0.5",
    ];
    let events = Run::new(&words).go();
    assert_eq!(max_steps(&events), Some(10));
    let at = |pick: fn(&Event) -> Option<u64>| events.iter().filter_map(pick).collect::<Vec<_>>();
    let evaluated = at(|e| match e {
        Event::Evaluated { step, .. } => Some(*step),
        _ => None,
    });
    let sampled = at(|e| match e {
        Event::Sampled { step, .. } => Some(*step),
        _ => None,
    });
    let saved = at(|e| match e {
        Event::Checkpointed { step, .. } => Some(*step),
        _ => None,
    });
    assert_eq!(
        (evaluated, sampled, saved),
        (vec![3, 6, 9, 10], vec![5, 10], vec![5, 10])
    );
    // One micro-step a step.
    let epochs = events.iter().filter_map(|e| match e {
        Event::Stepped { values, .. } => Some(values["epochs"].0),
        _ => None,
    });
    let expected: Vec<f64> = (1..=10).map(|step| f64::from(step) / pass).collect();
    assert_eq!(epochs.collect::<Vec<_>>(), expected);
    let told = "10 steps over";
    let rhythm =
        "evaluated every 3 steps, sampled every 5 steps, saved every 5 steps, and at the end";
    assert!(events.iter().any(
        |e| matches!(e, Event::Noted { text, .. } if text.contains(told) && text.ends_with(rhythm))
    ));
}

#[test]
fn a_ramp_takes_the_micro_steps_one_after_the_other_and_resumes_to_the_bit() {
    const RAMP: &str = "train.batch_ramp=[{grad_accum_steps: 1, until_step: 4}, {grad_accum_steps: 2, until_step: 9}]";
    let words = [RAMP, "train.grad_accum_steps=4", "train.max_steps=14"];
    let straight = Run::new(&words);
    let whole = straight.go();
    let (spec, _) = tiny(&words);
    let micro_tokens = (spec.train.micro_batch_size * spec.model.seq_len) as u64;
    for (step, tokens, _) in steps(&whole) {
        assert_eq!(
            tokens,
            spec.train.micro_steps(step) * micro_tokens,
            "{step}"
        );
    }
    assert_eq!(spec.run_tokens(), steps(&whole).last().unwrap().1);
    // The first stage is a run of that batch; its schedule is the same.
    let small = Run::new(&["train.max_steps=14"]).go();
    assert_eq!(steps(&whole)[..4], steps(&small)[..4]);
    assert_ne!(steps(&whole)[4], steps(&small)[4]);

    // Once inside a stage, once at its border.
    for stop in [7, 9] {
        let mut parted = Run::new(&words);
        parted.job.stop_after = Some(stop);
        let (first, second) = (parted.go(), parted.resumed());
        let both: Vec<_> = steps(&first).into_iter().chain(steps(&second)).collect();
        assert_eq!(both, steps(&whole));
        same_files(&straight.checkpoint(14), &parted.checkpoint(14));
    }
}

#[test]
fn checks_without_a_run_know_what_epochs_come_to() {
    let room = tempfile::tempdir().unwrap();
    let settings = |words: &[&str]| {
        let spec = tiny(words).0;
        let (env, clock) = (Env::default(), SystemClock::new());
        let mut said = String::new();
        preflight::check_spec((&spec, None), &env, room.path(), &clock, &mut |checked| {
            if checked.finding.id == "settings" {
                said = checked.finding.evidence.to_string();
            }
        })
        .unwrap();
        said
    };
    let repeats = "epochs over the same";
    assert!(settings(&["train.epochs=20"]).contains("20 epochs over the same"));
    let once = settings(&["train.epochs=1"]);
    assert!(!once.contains(repeats), "{once}");
}
