//! Distillation: a student approaches its teacher, on the data's answers and on its own, and resumes bit-exactly; what does not
//! fit is refused.

use super::preferences::{data, last, spec_of, trained};
use super::*;
use std::sync::OnceLock;

/// A model that puts lists in order, trained once.
fn teacher() -> &'static Path {
    static TEACHER: OnceLock<(Run, std::path::PathBuf)> = OnceLock::new();
    let (_, folder) = TEACHER.get_or_init(|| {
        let (run, _) = trained(&format!("method: sft\n{}", data("completion", false)), &[]);
        let folder = last(&run);
        (run, folder)
    });
    folder
}

/// A smaller student of the same tokens.
fn student(words: &[&str]) -> Run {
    let teacher = format!("method.distill.teacher={}", teacher().display());
    let own = ["model.d_model=32", "eval.every=20", "checkpoint.every=10"];
    let all = [&teacher as &str].into_iter().chain(own);
    let words: Vec<String> = all.chain(words.iter().copied()).map(String::from).collect();
    let mut run = Run::new(&["max_steps=1"]);
    let text = format!("method: distill\n{}", data("completion", false));
    run.job.spec = spec_of(&text, &words);
    run
}

fn readings(events: &[Event], id: &str) -> Vec<f64> {
    let of = |event: &Event| match event {
        Event::Stepped { values, .. } | Event::Evaluated { values, .. } => Some(values.get(id)?.0),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn a_student_approaches_its_teacher() {
    for beta in ["0", "0.5", "1"] {
        let beta = format!("method.distill.beta={beta}");
        let run = student(&[&beta, "max_steps=60"]);
        let events = run.go();
        assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
        let noted = |event: &Event| matches!(event, Event::Noted { text, .. } if text.starts_with("teacher: "));
        assert!(events.iter().any(noted));
        let of = |id: &str| {
            let all = readings(&events, id);
            (all[0], all[all.len() - 1])
        };
        for id in [
            "divergence",
            "val/divergence",
            "val/loss",
            "val/cross_entropy",
        ] {
            let (first, last) = of(id);
            assert!(
                last > 0.0 && last < 0.8 * first,
                "{beta} {id}: {first} → {last}"
            );
        }
        let (first, last) = of("val/teacher_agreement");
        assert!(last > first + 0.02, "{beta}: {first} → {last}");
        assert_eq!(of("divergence").1, of("train/loss").1);
        assert_eq!(of("val/loss").1, of("val/divergence").1);
        assert!(readings(&events, "val/ppl").is_empty());
    }
}

/// Steps on the data and on its own answers, also of an adapter on a start model: ten and a resume and ten are twenty.
#[test]
fn a_resume_is_bit_exact_in_answers_of_its_own_too() {
    let from = format!("train.from={}", teacher().display());
    let own = "method.distill.on_policy=0.5";
    let short = "rollout.max_new_tokens=8";
    let adapted = [
        &from as &str,
        "adapter.lora.rank=2",
        "model.d_model=48",
        own,
        short,
    ];
    for words in [
        &[][..],
        &[own, short, "method.distill.ce_weight=0.5"],
        &adapted,
    ] {
        let words = [words, &["max_steps=20", "train.grad_accum_steps=2"]].concat();
        let straight = student(&words);
        let whole = straight.go();
        assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
        let mut parted = student(&words);
        parted.job.stop_after = Some(10);
        let first = parted.go();
        let second = parted.resumed();
        assert_eq!(finished(&second).0, Outcome::Completed, "{second:?}");
        assert_eq!(loss_log(&[&whole]), loss_log(&[&first, &second]));
        same_files(&straight.checkpoint(20), &parted.checkpoint(20));
        let steps = readings(&whole, "on_policy");
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        match words.contains(&own) {
            true => assert!((0.1..0.9).contains(&mean), "{steps:?}"),
            false => assert!(steps.is_empty()),
        }
    }
}

/// Its own answers have a lower loss than the data's: one curve of both said of a run that learned that it did not.
#[test]
fn losses_of_both_kinds_of_steps_are_two_curves() {
    for (share, mixed) in [("0.5", true), ("1", false)] {
        let share = format!("method.distill.on_policy={share}");
        let words = ["rollout.max_new_tokens=8", "method.distill.ce_weight=0.3"];
        let run = student(&[&[&share as &str, "max_steps=16"], &words[..]].concat());
        let events = run.go();
        let mut kinds = [0, 0];
        for event in &events {
            let Event::Stepped { values, .. } = event else {
                continue;
            };
            let has = |id: &str| values.contains_key(id);
            let own = values["on_policy"].0 == 1.0;
            kinds[usize::from(own)] += 1;
            assert_eq!(has("on_policy_loss"), own && mixed, "{values:?}");
            assert_eq!(has("train/loss"), !(own && mixed), "{values:?}");
        }
        assert_eq!((kinds[0] > 0, kinds[1] > 0), (mixed, true), "{kinds:?}");
    }
}

/// Other weights under the same name would be another training; under another name they are a changed setting.
#[test]
fn a_resume_notices_another_teacher() {
    let home = tempfile::tempdir().unwrap();
    let put = |from: &Path, name: &str| {
        let to = home.path().join(name);
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        format!("method.distill.teacher={}", to.display())
    };
    let named = put(teacher(), "big");
    let mut run = student(&["max_steps=20", &named]);
    run.job.stop_after = Some(10);
    run.go();
    std::fs::rename(home.path().join("big"), home.path().join("moved")).unwrap();
    put(&run.checkpoint(10), "big");
    let (outcome, _, message) = finished(&run.resumed());
    assert_ne!(outcome, Outcome::Completed);
    assert!(
        message.contains("the teacher's weights changed")
            && message.contains("restore the teacher"),
        "{message}"
    );
    // The same weights elsewhere are the same teacher.
    let moved = home.path().join("moved");
    let moved = format!("method.distill.teacher={}", moved.display());
    run.job.spec = student(&["max_steps=20", &moved]).job.spec.clone();
    let events = run.resumed();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    let inexact =
        |event: &Event| matches!(event, Event::Warned { code, .. } if code == "not_bit_exact");
    assert!(!events.iter().any(inexact));
}

#[test]
fn the_start_weights_of_a_teacher_have_no_distance_to_it() {
    let from = format!("train.from={}", teacher().display());
    let run = student(&[
        &from,
        "model.d_model=48",
        "max_steps=1",
        "optimizer.adamw.lr=1e-9",
    ]);
    let events = run.go();
    let first = readings(&events, "divergence")[0];
    assert!((0.0..1e-6).contains(&first), "{first}");
    assert_eq!(readings(&events, "teacher_agreement")[0], 1.0);
}

#[test]
fn what_does_not_fit_is_said_with_what_to_do() {
    let told = |run: &Run| {
        let (outcome, _, message) = finished(&run.go());
        assert_ne!(outcome, Outcome::Completed);
        message
    };
    let long = told(&student(&["model.seq_len=48", "max_steps=2"]));
    assert!(
        long.contains("reads at most 40 tokens") && long.contains("model.seq_len=40"),
        "{long}"
    );
    // Tokens of another kind.
    let other = told(&student(&["data.tokenizer=bpe", "max_steps=2"]));
    assert!(
        other.contains("token ") && other.contains("same family"),
        "{other}"
    );
    let words = [
        format!("method.distill.teacher={}", teacher().display()),
        "method.distill.on_policy=0.5".into(),
        "rollout.max_new_tokens=8".into(),
        "max_steps=2".into(),
    ];
    let mut plain = Run::new(&["max_steps=1"]);
    plain.job.spec = spec_of(&format!("method: distill\n{}", data("text", false)), &words);
    let message = told(&plain);
    assert!(
        message.contains("plain text") && message.contains("on_policy=0"),
        "{message}"
    );
}

/// Preflight reads the teacher once, and its twin shares it.
#[test]
fn preflight_passes_with_a_teacher() {
    let run = student(&["max_steps=2", "preflight.enabled=true"]);
    let events = run.go();
    let failed = events.iter().filter_map(|event| match event {
        Event::Checked { finding, .. } => Some(finding),
        _ => None,
    });
    let failed: Vec<_> = failed
        .filter(|finding| format!("{finding:?}").contains("Fail"))
        .collect();
    assert_eq!(finished(&events).0, Outcome::Completed, "{failed:?}");
}
