//! Which prompts a rollout asks, and what becomes of long ones.

use super::*;
use crate::engine::rollouts::Asked;
use crate::run::rollouts::{RolloutQuery, find};
use std::collections::BTreeSet;

/// Two sources, of which the second has twice the rows of the first.
const MIX: &str = "data.sources=[\
    {synthetic: {arithmetic: {digits: 1, operations: [add]}}, as: prompt, rows: 20}, \
    {synthetic: {arithmetic: {digits: 1, operations: [subtract]}}, as: prompt, rows: 40}]";

/// Each rollout took all its prompts from one source, and the last one of an epoch asked some of them again.
#[test]
fn a_rollout_asks_prompts_of_every_source_and_none_twice_before_all() {
    let spec = made(&[MIX, "data.mix=concatenate"]);
    let data = spec.open_data(&DataEnv::default()).unwrap();
    let all: usize = data.micro_steps_per_epoch(1) as usize;
    assert!((45..60).contains(&all), "{all}");
    let (mut asked, mut shared) = (BTreeSet::new(), 0);
    let rollouts = all.div_ceil(8);
    for number in 0..rollouts as u64 {
        let drawn = Asked::drawn(&data, 3, number, 8);
        assert_eq!(drawn.len(), 8);
        let origins: Vec<_> = drawn.iter().map(|asked| asked.origin.unwrap()).collect();
        let sources: BTreeSet<u32> = origins.iter().map(|origin| origin.source).collect();
        shared += usize::from(sources.len() == 2);
        let first = number as usize * 8;
        for (at, origin) in origins.iter().enumerate() {
            let fresh = asked.insert((origin.source, origin.start));
            // Where a source ends a little before the other, its next pass begins.
            assert!(fresh || first + at + 3 > all, "{number} {at}");
        }
    }
    assert_eq!(shared, rollouts, "every rollout asks both sources");
    assert!(asked.len() + 2 >= all, "{} of {all}", asked.len());
}

#[test]
fn a_run_on_several_sources_resumes_to_the_bit_and_counts_its_passes() {
    let words = [MIX, "rollout.epochs=2", "rollout.refill=1", "eval.every=0"];
    let straight = run_of(&words);
    let whole = straight.go();
    assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
    let mut parted = run_of(&words);
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let parts = [&first, &second].map(|events| readings(events, "grad_norm"));
    assert_eq!(readings(&whole, "grad_norm"), parts.concat());
    same_files(&straight.checkpoint(12), &parted.checkpoint(12));
    // Six rollouts of four prompts.
    let data = straight.job.spec.open_data(&DataEnv::default()).unwrap();
    let epochs = readings(&whole, "epochs").last().copied().unwrap();
    let expected = 24.0 / data.micro_steps_per_epoch(1);
    assert!((epochs - expected).abs() < 1e-9, "{epochs} {expected}");
}

/// A prompt of one token more than the context was kept, and the run ended where it was asked.
#[test]
fn prompts_that_do_not_fit_are_left_out_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompts.jsonl");
    // Of 12 to 19 characters, in rows of 16.
    let row = |i: usize| {
        let prompt: String = "abcdefgh"
            .chars()
            .cycle()
            .skip(i)
            .take(12 + i % 8)
            .collect();
        format!("{}\n", serde_json::json!({ "prompt": prompt }))
    };
    std::fs::write(&path, (0..64).map(row).collect::<String>()).unwrap();
    let source = format!("data.sources=[{{path: {}}}]", path.display());
    let words = [
        &*source,
        "rewards=[{length: {limit: 2}}]",
        "rollout.keep=16",
        "eval.every=0",
    ];
    let run = run_of(&words);
    let events = run.go();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    let found = find(run.job.run_dir.path(), &RolloutQuery::Upto(12)).unwrap();
    let longest = found.steps.iter().flat_map(|step| {
        let rollout = crate::run::rollouts::read(run.job.run_dir.path(), *step).unwrap();
        rollout.groups.into_iter().map(|group| group.prompt.len())
    });
    assert_eq!(longest.max(), Some(16));
    // What still fits and leaves less than a completion of four tokens is reported: 14 to 16 of 12 to 16 characters.
    let data = run.job.spec.open_data(&DataEnv::default()).unwrap();
    let (long, all) = data.longer_prompts(13).unwrap();
    assert!(long > 0 && long < all, "{long} {all}");
    assert_eq!(data.longer_prompts(16), Some((0, all)));
    let advice = run.job.spec.review_on(&data, None);
    let said = advice.iter().find(|f| f.place == "rollout.max_new_tokens");
    let said = said.map(|f| f.evidence.to_string()).unwrap_or_default();
    assert!(
        said.contains(&format!("{long} of {all} prompts leave fewer")),
        "{said}"
    );
}

/// Counts of replaced completions stood in for those of the ones that are learned from.
#[test]
fn completions_that_replace_others_are_counted_in_their_place() {
    let run = run_of(&[
        "rewards=[number]",
        "rollout.refill=8",
        "rollout.keep=4",
        "max_steps=4",
        "eval.every=0",
    ]);
    let events = run.go();
    assert!(!readings(&events, "rollout/refilled").is_empty());
    let unread = readings(&events, "completions/unread_ratio");
    for (step, unread) in (1..=4).zip(unread) {
        let rollout = crate::run::rollouts::read(run.job.run_dir.path(), step).unwrap();
        let answers: Vec<_> = rollout.groups.iter().flat_map(|g| &g.answers).collect();
        let without = answers
            .iter()
            .filter(|answer| !answer.text().contains(|c: char| c.is_ascii_digit()));
        let share = without.count() as f64 / answers.len() as f64;
        assert!((unread - share).abs() < 1e-9, "{step}: {unread} {share}");
    }
}

/// "0 of 0 samples" end with a supervised token, and the run could not start: its rewards need no answers.
#[test]
fn prompts_alone_pass_the_preflight() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompts.jsonl");
    let row = |i: usize| format!("{}\n", serde_json::json!({"prompt": format!("say {i}")}));
    std::fs::write(&path, (0..200).map(row).collect::<String>()).unwrap();
    let source = format!("data.sources=[{{path: {}}}]", path.display());
    let reward = "rewards=[{length: {limit: 2}}]";
    let words = [&*source, reward, "preflight.enabled=true", "max_steps=1"];
    let events = run_of(&words).go();
    let checks: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Checked { finding, .. } => Some(finding.clone()),
            _ => None,
        })
        .collect();
    let failed = checks.iter().find(|it| it.status == Status::Fail);
    assert_eq!(failed, None);
    let of = |id: &str| checks.iter().find(|it| it.id == id).unwrap();
    for id in ["answers_end", "supervised"] {
        assert_eq!(of(id).status, Status::NotApplicable, "{:?}", of(id));
    }
    let ids = of("token_ids").evidence.to_string();
    assert!(ids.contains("64 samples"), "{ids}");
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
}
