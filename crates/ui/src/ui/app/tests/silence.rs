//! An engine that says nothing any more, and what is told of it.

use super::*;

/// "● training", the time that is left and the speed stood there for as long as somebody looked.
#[test]
fn an_engine_that_falls_silent_between_steps_is_told_of_and_one_that_is_busy_is_not() {
    let mut bench = Bench::new();
    bench.live();
    let phase = |phase| Event::PhaseChanged { phase, step: 1_240 };
    bench.event(phase(Phase::Training));
    bench.wait(9_000);
    let at_once = bench.picture(120, 40);
    assert!(at_once.contains("● training"), "{at_once}");
    bench.wait(61_000);
    let silent = bench.picture(120, 40);
    assert!(silent.contains("no event for 1:10"), "{silent}");
    assert!(silent.contains("silent"), "{silent}");
    assert!(
        !silent.contains("● training") && !silent.contains(" left"),
        "{silent}"
    );
    // What takes long by nature is no silence.
    for busy in [Phase::Evaluating, Phase::Checkpointing, Phase::Sampling] {
        bench.event(phase(busy));
        bench.wait(600_000);
        let picture = bench.picture(120, 40);
        assert!(!picture.contains("no event for"), "{picture}");
    }
    bench.event(phase(Phase::Training));
    let again = bench.picture(120, 40);
    assert!(again.contains("● training"), "{again}");
}

#[test]
fn a_suspended_engine_and_one_that_waits_for_the_disk_do_not_train() {
    for (code, word) in [("suspended", "suspended"), ("log_stalled", "stalled")] {
        let mut bench = Bench::new();
        let slot = bench.live();
        bench.event(Event::PhaseChanged {
            phase: Phase::Training,
            step: 1_240,
        });
        let alarm = Envelope {
            v: 1,
            seq: 0,
            t: bench.now,
            event: Event::Warned {
                step: 0,
                code: code.into(),
                message: "it stands still".into(),
                hint: "so it is".into(),
            },
        };
        let batch = vec![Incoming::Event(Box::new(alarm))];
        bench.msg(Msg::Incoming { slot, batch });
        let picture = bench.picture(120, 40);
        assert!(
            picture.contains(word) && !picture.contains("● training"),
            "{picture}"
        );
        bench.press("q");
        let asked = bench.picture(120, 40);
        assert!(!asked.contains("nothing is lost"), "{asked}");
    }
}

/// "no event for 24:00:00" stood there when somebody had set the machine's clock, and a message stayed for a day.
#[test]
fn a_clock_that_is_set_makes_no_engine_silent() {
    let mut bench = Bench::new();
    bench.live();
    bench.event(Event::PhaseChanged {
        phase: Phase::Training,
        step: 1_240,
    });
    bench.set_forward = 24 * 3_600_000;
    bench.wait(1_000);
    let picture = bench.picture(120, 40);
    assert!(
        picture.contains("● training") && !picture.contains("no event for"),
        "{picture}"
    );
    // Set back again, it is silent for as long as it is.
    bench.set_forward = 0;
    bench.wait(69_000);
    let picture = bench.picture(120, 40);
    assert!(picture.contains("no event for 1:10"), "{picture}");
}
