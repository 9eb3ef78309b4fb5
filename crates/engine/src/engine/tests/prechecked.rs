//! A run that begins soon after its checks were made does not compute them again, and trains as it would have.

use super::*;
use crate::base::paths::Env;

#[test]
fn what_a_preflight_computed_is_not_computed_again() {
    let home = tempfile::tempdir().unwrap();
    let env = Env {
        state_dir: Some(home.path().join("state")),
        ..Env::default()
    };
    let clock = SystemClock::new();
    let words = ["preflight.enabled=true"];
    let mut run = Run::new(&words);
    run.job.env = env.clone();
    let mut told = Vec::new();
    let spec = &run.job.spec;
    preflight::check_spec((spec, None), &env, home.path(), &clock, &mut |checked| {
        told.push(checked.clone());
    })
    .unwrap();
    assert!(told.iter().all(|it| it.finding.status != Status::Fail));
    let said = |events: &[Event]| {
        let again = |event: &Event| matches!(event, Event::Noted { text, .. } if text.ends_with("not made again"));
        events.iter().any(again)
    };
    let checks = |events: &[Event]| -> Vec<(String, f64)> {
        let of = |event: &Event| match event {
            Event::Checked {
                finding, seconds, ..
            } => Some((finding.evidence.to_string(), *seconds)),
            _ => None,
        };
        events.iter().filter_map(of).collect()
    };
    let events = run.go();
    assert!(said(&events), "{events:?}");
    let anew = Run::new(&words).go();
    assert!(!said(&anew));
    assert_eq!(checks(&events).len(), told.len());
    let computed = |id: &str| {
        preflight::CHECKS
            .iter()
            .any(|it| it.id == id && it.computes)
    };
    for (told, (evidence, seconds)) in told.iter().zip(checks(&events)) {
        if computed(&told.finding.id) {
            assert_eq!(told.finding.evidence.to_string(), evidence);
            assert!(seconds < told.seconds, "{evidence}");
        }
    }
    assert_eq!(loss_log(&[&events]), loss_log(&[&anew]));
    // Another rate is another training.
    let mut other = Run::new(&["preflight.enabled=true", "optimizer.adamw.lr=2e-3"]);
    other.job.env = env;
    assert!(!said(&other.go()));
}
