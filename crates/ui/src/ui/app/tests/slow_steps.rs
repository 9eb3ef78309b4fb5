//! Steps that take many seconds: how long this one has taken, and what waits for its end.

use super::*;

fn begin(bench: &mut Bench, phase: Phase) {
    bench.event(Event::PhaseChanged { phase, step: 1_240 });
}

fn sent(bench: &mut Bench, slot: Slot, asked: Asked, id: u64) {
    let result = Ok(id);
    bench.msg(Msg::Sent {
        slot,
        asked,
        result,
    });
}

/// A step, an evaluation and a checkpoint took a minute in which nothing moved on the screen.
#[test]
fn a_step_that_takes_long_says_for_how_long_and_the_time_left_stays() {
    let mut bench = Bench::new();
    bench.live();
    begin(&mut bench, Phase::Training);
    bench.wait(4_000);
    assert!(!bench.picture(120, 40).contains("s so far"));
    bench.wait(5_000);
    for width in [80, 120] {
        let picture = bench.picture(width, 40);
        assert!(picture.contains("step 1,241: 9 s so far"), "{picture}");
        assert!(picture.contains(" left"), "{picture}");
    }
    begin(&mut bench, Phase::Checkpointing);
    bench.wait(75_000);
    let picture = bench.picture(80, 24);
    assert!(picture.contains("checkpointing: 1:15 so far"), "{picture}");
    assert!(picture.contains(" left"), "{picture}");
    begin(&mut bench, Phase::Paused);
    bench.wait(75_000);
    let picture = bench.picture(80, 24);
    assert!(!picture.contains("so far"), "{picture}");
}

/// The machine's readings, once a second, and the start of the program cut it to a few seconds.
#[test]
fn who_comes_in_the_middle_of_a_step_sees_how_long_it_takes_since_its_beginning() {
    let mut bench = Bench::new();
    let mut events = tape::until(5, 1_240);
    let seq = events.last().unwrap().seq;
    let add = |at: u64, ago: u64, event: Event| Envelope {
        v: 1,
        seq: seq + at,
        t: UnixMillis(NOW.0 - ago),
        event,
    };
    let phase = Phase::Evaluating;
    events.push(add(1, 130_000, Event::PhaseChanged { phase, step: 1_240 }));
    let values = [("host/cpu".to_string(), Num(40.0))].into();
    events.push(add(2, 1_000, Event::HardwareSampled { values }));
    bench.hold(events, Holder::Detached);
    bench.wait(5_000);
    let picture = bench.picture(120, 40);
    assert!(picture.contains("evaluating: 2:15 so far"), "{picture}");
    begin(&mut bench, Phase::Training);
    bench.wait(9_000);
    let picture = bench.picture(120, 40);
    assert!(picture.contains("step 1,241: 9 s so far"), "{picture}");
}

/// For 25 seconds the header said "training", and a second press was refused: the run was paused already.
#[test]
fn a_pause_says_at_once_that_it_waits_and_a_second_press_takes_it_back() {
    let mut bench = Bench::new();
    let slot = bench.live();
    begin(&mut bench, Phase::Training);
    bench.press("p");
    assert_eq!(bench.sent(), [&Command::Pause]);
    sent(&mut bench, slot, Asked::Pause, 77);
    let picture = bench.picture(80, 24);
    assert!(picture.contains("pausing after this step"), "{picture}");
    assert!(picture.contains("p do not pause"), "{picture}");
    assert!(!picture.contains("● training"), "{picture}");
    bench.press("p");
    assert_eq!(bench.sent(), [&Command::Resume]);
    sent(&mut bench, slot, Asked::Resume, 78);
    let picture = bench.picture(80, 24);
    assert!(picture.contains("going on after this step"), "{picture}");
    assert!(picture.contains("● training"), "{picture}");
    bench.event(Event::Accepted { id: 77 });
    bench.event(Event::Accepted { id: 78 });
    let picture = bench.picture(80, 24);
    assert!(!picture.contains("after this step"), "{picture}");
}

#[test]
fn a_stop_and_an_evaluation_say_what_they_wait_for() {
    let mut bench = Bench::new();
    let slot = bench.live();
    begin(&mut bench, Phase::Evaluating);
    sent(&mut bench, slot, Asked::Evaluate, 5);
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains("evaluating after this evaluation"),
        "{picture}"
    );
    begin(&mut bench, Phase::Training);
    sent(&mut bench, slot, Asked::Stop, 6);
    let picture = bench.picture(100, 30);
    assert!(picture.contains("stopping after this step"), "{picture}");
    assert!(picture.contains("● stopping"), "{picture}");
    bench.event(Event::Rejected {
        id: 6,
        why: "it is busy".into(),
    });
    let picture = bench.picture(100, 30);
    assert!(!picture.contains("stopping after"), "{picture}");
}
