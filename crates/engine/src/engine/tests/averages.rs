//! An average of the weights that a branch begins, or ends: `train.ema_decay` differs between a checkpoint and the spec.

use super::*;
use crate::models::ModelSource;

/// The model's weights in a checkpoint, its adapters merged.
fn saved(run: &Run, step: u64) -> Vec<f32> {
    let source = ModelSource::open(&run.checkpoint(step)).unwrap();
    let model = source.load().unwrap();
    model.params().read_weights(<[f32]>::to_vec).unwrap()
}

/// Eight steps with `before`, and the other twelve with `after`, as a branch at step 8 takes them.
fn branched(before: &[&str], after: &[&str]) -> Run {
    let words = ["checkpoint.every=1", "checkpoint.keep_last=20"];
    let mut run = Run::new(&[&words, before].concat());
    run.job.stop_after = Some(8);
    run.go();
    run.job.spec = tiny(&[&words, after].concat()).0;
    let events = run.resumed();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    run
}

/// The checkpoint holds the average as its model: training went on from that.
#[test]
fn a_branch_without_the_average_trains_on_from_the_weights_that_were_trained() {
    let plain = branched(&[], &[]);
    for adapter in [&[][..], &["adapter.lora.rank=2"]] {
        let average = [adapter, &["train.ema_decay=0.9"]].concat();
        let (plain, ended) = match adapter {
            [] => (&plain, branched(&average, adapter)),
            _ => (&branched(adapter, adapter), branched(&average, adapter)),
        };
        assert_ne!(saved(plain, 8), saved(&ended, 8), "an average is saved");
        for step in [9, 20] {
            assert!(saved(plain, step) == saved(&ended, step), "step {step}");
        }
    }
}

/// It began at the weights of before the checkpoint was read, or the checkpoint was refused for want of an average.
#[test]
fn a_branch_begins_its_average_at_the_weights_of_the_checkpoint() {
    let plain = branched(&[], &[]);
    let begun = branched(&[], &["train.ema_decay=0.9"]);
    assert!(saved(&plain, 8) == saved(&begun, 8));
    // Update 1 has the decay (1 + 1) / (10 + 1), as the warm-up of an average has it.
    let gain = (1.0 - 2.0_f64 / 11.0) as f32;
    let (before, trained) = (saved(&plain, 8), saved(&plain, 9));
    let pairs = before.iter().zip(&trained);
    let expected: Vec<f32> = pairs.map(|(a, w)| a + gain * (w - a)).collect();
    let found = saved(&begun, 9);
    assert!(expected != trained && found == expected);
}
