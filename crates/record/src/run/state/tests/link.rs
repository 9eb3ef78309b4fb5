//! What the link to an engine says of a run.

use super::*;

#[test]
fn what_the_link_says_holds_until_something_newer_happens() {
    let mut tape = Tape::new();
    tape.steps(1..=3);
    let mut state = RunState::from_events(&tape.events);
    let usual = state.word();
    let alarm = |code: &str, t| Envelope {
        v: 1,
        seq: 0,
        t: UnixMillis(t),
        event: Event::Warned {
            step: 0,
            code: code.into(),
            message: String::new(),
            hint: String::new(),
        },
    };
    state.apply(&alarm("read_only", tape.t + 1));
    assert_eq!(state.word(), usual);
    state.apply(&alarm("log_stalled", tape.t + 60));
    assert_eq!(state.word(), "stalled");
    // An event that was on its way before the alarm.
    tape.steps(4..=4);
    state.apply(tape.events.last().unwrap());
    assert_eq!(state.word(), "stalled");
    tape.steps(5..=5);
    state.apply(tape.events.last().unwrap());
    assert_eq!(state.word(), usual);
    state.apply(&alarm("suspended", tape.t + 1));
    assert_eq!(state.word(), "suspended");
}
