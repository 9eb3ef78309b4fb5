//! What is left of a run to resume.

use super::*;

/// A resume of such a run starts over: who is asked has to know.
#[test]
fn a_run_that_saved_nothing_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let run = new_run(dir.path(), "a", 1);
    assert!(!summarize(&run).unwrap().nothing_saved, "it made no step");
    let line = crate::wire::encode(&crate::wire::Envelope {
        v: 1,
        seq: 1,
        t: UnixMillis(1),
        event: crate::wire::Event::Stepped {
            step: 500,
            tokens: 1,
            values: [("train/loss".into(), crate::wire::Num(2.0))].into(),
        },
    });
    std::fs::write(run.events_path(), line).unwrap();
    assert!(summarize(&run).unwrap().nothing_saved);
    let claim = run.claim().unwrap();
    assert!(!summarize(&run).unwrap().nothing_saved, "it may save yet");
    drop(claim);
    let saved = run.checkpoint_path(400);
    std::fs::create_dir_all(&saved).unwrap();
    std::fs::write(saved.join("manifest.json"), "{}").unwrap();
    assert!(!summarize(&run).unwrap().nothing_saved);
}
