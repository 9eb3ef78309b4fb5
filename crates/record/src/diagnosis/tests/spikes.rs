//! Gradient norms above their baseline: which of them are a fault.

use super::*;

/// Steps of a method with spikes of the norm, each `times` a baseline, and with jumps of the loss.
fn run(method: &str, baseline: f64, times: f64, jump: f64, ids: &[&'static str]) -> Finding {
    let mut tape = Tape::new(Some("base"), 0);
    let spec = tape.state.head.as_ref().unwrap().spec.clone();
    tape.begin(method, spec);
    for s in 1..=300 {
        let spiked = s > 220 && s % 10 == 0;
        let (norm, jump) = if spiked { (times, jump) } else { (1.0, 0.0) };
        let loss = 0.05 + 0.6 * (-(s as f64) / 40.0).exp() + 0.2 * noise(s).abs();
        let mut values = vec![("train/loss", loss + jump), ("grad_norm", baseline * norm)];
        values.extend(ids.iter().map(|id| (*id, 0.9)));
        tape.step(s, &values);
    }
    tape.found("gradient_spike").unwrap()
}

/// Clipping at 1 leaves of a norm of 7 twice the baseline: the moments do not see more.
#[test]
fn a_cluster_is_counted_as_clipping_leaves_it() {
    let clipped = run("pretrain", 0.5, 7.0, 0.0, &[]);
    assert_eq!(clipped.status, Status::Pass, "{clipped:?}");
    let said = clipped.evidence.to_string();
    assert_eq!(
        said,
        "7 times its baseline at step 300; 8 spikes in 200 steps"
    );
    let reaches = run("pretrain", 0.1, 7.0, 0.0, &[]);
    assert!(reaches.cause.contains("clusters"), "{reaches:?}");
    // The loss answers: the batches themselves are the fault.
    let corrupt = run("pretrain", 0.5, 7.0, 2.0, &[]);
    assert!(corrupt.cause.contains("clusters"), "{corrupt:?}");
}

/// A solved task: a loss of 0.004 nats and a tiny gradient, of which one unsolved answer in a batch is many times. With a spike of
/// 40 times each tenth step, and what the loss jumps by there.
fn solved(start: f64, left: f64, jump: f64) -> (Finding, Option<Status>) {
    let mut tape = Tape::new(None, 0);
    for s in 1..=1000 {
        let spiked = s > 820 && s % 10 == 0;
        let (norm, jump) = if spiked { (40.0, jump) } else { (1.0, 0.0) };
        let loss = left + start * (-(s as f64) / 40.0).exp() + 0.01 * left * noise(s);
        // Growing: the second sign of a learning rate that is too high.
        let norm = 0.002 * norm * (s as f64 / 100.0).exp2();
        tape.step(s, &[("train/loss", loss + jump), ("grad_norm", norm)]);
    }
    (
        tape.found("gradient_spike").unwrap(),
        tape.status("lr_too_high"),
    )
}

/// SFT on sums ended at 0.004 and warned of spikes: multiples of almost nothing.
#[test]
fn spikes_of_a_solved_task_count_where_the_loss_leaves_it() {
    let (quiet, lr) = solved(2.6, 0.004, 0.05);
    assert_eq!((quiet.status, lr), (Status::Pass, None), "{quiet:?}");
    assert!(
        quiet
            .evidence
            .to_string()
            .contains("18 spikes in 200 steps"),
        "{quiet:?}"
    );
    let (sick, lr) = solved(2.6, 0.004, 0.6);
    assert_eq!(
        (sick.status, lr),
        (Status::Warn, Some(Status::Warn)),
        "{sick:?}"
    );
    assert!(sick.cause.contains("clusters"), "{sick:?}");
    // The same multiples where much is left to learn, or where the loss began that low.
    assert_eq!(solved(2.6, 1.2, 0.05).0.status, Status::Warn);
    assert_eq!(solved(0.04, 0.06, 0.0).0.status, Status::Warn);
}

/// Of solved pairs or prompts the gradient vanishes: one unsolved pair in a batch is a multiple of that. Four presets warned.
#[test]
fn solved_pairs_and_prompts_have_large_norms_now_and_then() {
    for (method, id) in [
        ("dpo", "rewards/accuracies"),
        ("kto", "rewards/chosen"),
        ("ppo", "reward"),
    ] {
        let solved = run(method, 0.1, 40.0, 0.0, &[id]);
        assert_eq!(solved.status, Status::Pass, "{method}: {solved:?}");
        let said = solved.evidence.to_string();
        assert!(said.contains("8 spikes in 200 steps"), "{said}");
    }
    let sick = run("dpo", 0.1, 40.0, 2.0, &["rewards/accuracies"]);
    assert_eq!(sick.status, Status::Warn, "{sick:?}");
    let broken = run("dpo", 0.1, f64::NAN, 0.0, &["rewards/accuracies"]);
    assert_eq!(broken.status, Status::Warn, "{broken:?}");
    // Of other methods a single one of that size is named.
    assert_eq!(run("sft", 0.1, 40.0, 0.0, &[]).status, Status::Warn);
}
