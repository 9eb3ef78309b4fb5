//! Validation loss that rises for good while training loss falls.

use super::*;

#[test]
fn overfitting_needs_both_signals_and_patience() {
    let run = |train: fn(u64) -> f64, val: &[f64]| {
        let mut tape = fresh().steps(1, 100 * val.len() as u64, train);
        val.iter()
            .zip(1..)
            .for_each(|(x, i)| tape.evaluate(100 * i, *x));
        tape
    };
    let rising = [3.0, 2.6, 2.4, 2.5, 2.6, 2.7];
    let over = run(learning, &rising);
    let found = over.found("overfitting").unwrap();
    assert_eq!(found.status, Status::Warn);
    assert!(
        found
            .fix
            .starts_with("stop; -s eval.patience=3 saves each new best"),
        "{}",
        found.fix
    );
    assert_eq!(over.diagnose().verdict, Verdict::Overfitting);
    assert_eq!(
        run(learning, &rising[..5]).status("overfitting"),
        Some(Status::Pass),
        "two after the best"
    );
    let small = [3.0, 2.6, 2.4, 2.41, 2.415, 2.41];
    assert_eq!(
        run(learning, &small).status("overfitting"),
        Some(Status::Pass),
        "within noise"
    );
    let both = run(|s| 2.0 + 0.0005 * s as f64 + noise(s), &rising);
    assert_eq!(
        both.status("overfitting"),
        Some(Status::Pass),
        "training rises, too"
    );
}
