//! What a live watch reports, and when a warning is cleared.

use super::*;

#[test]
fn a_watch_reports_each_change_once() {
    let mut watch = Monitor::new();
    let step = |watch: &mut Monitor, range: std::ops::RangeInclusive<u64>, loss: f64| {
        for step in range {
            let values = [("train/loss".to_string(), Num(loss + noise(step)))].into();
            watch.on_event(&Event::Stepped {
                step,
                tokens: step,
                values,
            });
        }
    };
    step(&mut watch, 1..=50, 2.0);
    assert_eq!(
        watch.news().len(),
        1,
        "what passes is no news; the verdict is"
    );
    let word = |event: &Event| match event {
        Event::Diagnosed { finding, .. } if finding.id == VERDICT => finding.title.clone(),
        _ => String::new(),
    };
    step(&mut watch, 51..=100, 9.0);
    let news = watch.news();
    assert!(
        matches!(&news[..], [Event::Diagnosed { step: 100, finding }, verdict] if finding.id == "diverged" && word(verdict) == "DIVERGED"),
        "{news:?}"
    );
    let Event::Diagnosed { finding, .. } = &news[0] else {
        return;
    };
    assert!(finding.fix.contains("-s lr="), "{}", finding.fix);
    assert_eq!(watch.news().len(), 1);
    watch.on_event(&Event::RolledBack { step: 40 });
    step(&mut watch, 41..=100, 1.5);
    let news = watch.news();
    let clear = |f: &Finding| f.id == "diverged" && f.status == Status::Pass;
    assert!(
        news.iter()
            .any(|e| matches!(e, Event::Diagnosed { finding, .. } if clear(finding)))
    );
}

/// A reading that fluctuates around its threshold is one warning; it is cleared if it stays below, and raised at once if it
/// returns.
#[test]
fn a_warning_is_cleared_at_the_second_evaluation_without_it() {
    let (mut watch, mut at) = (Monitor::new(), 0);
    let mut look = |steps: u64, waits: f64| -> Option<Status> {
        for _ in 0..steps {
            at += 1;
            let values = [("train/loss", 2.0 + noise(at)), ("data_wait", waits)];
            let values = values.map(|(id, x)| (id.to_string(), Num(x))).into();
            watch.on_event(&Event::Stepped {
                step: at,
                tokens: at,
                values,
            });
        }
        if steps == 0 {
            watch.on_event(&Event::RolledBack { step: 0 });
        }
        let news = watch.news();
        news.iter().find_map(|e| match e {
            Event::Diagnosed { finding, .. } if finding.id == "data_wait" => Some(finding.status),
            _ => None,
        })
    };
    // The rule uses the median of all readings so far.
    assert_eq!(look(20, 0.5), Some(Status::Warn));
    assert_eq!(look(21, 0.0), None, "once is not enough");
    for _ in 0..3 {
        assert_eq!(look(2, 0.5), None, "it never was cleared");
        assert_eq!(look(2, 0.0), None);
    }
    assert_eq!(look(1, 0.0), Some(Status::Pass));
    assert_eq!(look(1, 0.0), None);
    assert_eq!(look(150, 0.5), Some(Status::Warn));
    // A recurring warning takes twice as long to clear.
    assert_eq!(look(200, 0.0), None);
    assert_eq!([look(1, 0.0), look(1, 0.0)], [None, None]);
    assert_eq!(look(1, 0.0), Some(Status::Pass));
    assert_eq!(look(400, 0.5), Some(Status::Warn));
    // A rollback discards the steps that the warning was about.
    assert_eq!(look(0, 0.0), Some(Status::Pass));
}

/// Between evaluations a list of runs gets each new verdict once.
#[test]
fn a_new_verdict_is_reported_once() {
    let mut watch = Monitor::new();
    let step = |watch: &mut Monitor, range: std::ops::RangeInclusive<u64>| {
        for step in range {
            let loss = 4.0 - 0.01 * step as f64;
            watch.on_event(&Event::Stepped {
                step,
                tokens: step,
                values: [("train/loss".to_string(), Num(loss))].into(),
            });
        }
    };
    let word = |event: Option<Event>| match event {
        Some(Event::Diagnosed { finding, .. }) => finding.title,
        _ => String::new(),
    };
    step(&mut watch, 1..=10);
    assert_eq!(word(watch.new_verdict()), "TOO EARLY");
    step(&mut watch, 11..=40);
    assert_eq!(word(watch.new_verdict()), "LEARNING");
    assert_eq!(watch.new_verdict(), None);
    // A verdict reported at an evaluation is not new either.
    step(&mut watch, 41..=50);
    watch.news();
    assert_eq!(watch.new_verdict(), None);
}

/// A rule without metrics that it always needs was taken for one that only repeats other events.
#[test]
fn a_task_that_falls_is_reported_beside_an_engine() {
    let mut watch = Monitor::new();
    let info = crate::wire::MetricInfo {
        id: "eval/arc".into(),
        direction: crate::wire::Direction::Higher,
        ..Default::default()
    };
    watch.on_event(&Event::MetricsDeclared {
        metrics: vec![info],
    });
    let evaluated = |step: u64, score: f64| Event::Evaluated {
        step,
        tokens: step,
        values: [("eval/arc", score), ("eval_stderr/arc", 0.01)]
            .map(|(id, x)| (id.to_string(), Num(x)))
            .into(),
        n_windows: 100,
        whole: false,
        seconds: 0.0,
    };
    let status = |watch: &mut Monitor| {
        watch.news().iter().find_map(|event| match event {
            Event::Diagnosed { finding, .. } if finding.id == "task_drop" => Some(finding.status),
            _ => None,
        })
    };
    watch.on_event(&evaluated(0, 0.6));
    assert_eq!(status(&mut watch), None);
    watch.on_event(&evaluated(100, 0.4));
    assert_eq!(status(&mut watch), Some(Status::Warn));
}

#[test]
fn what_only_repeats_other_events_is_left_to_viewers() {
    let mut watch = Monitor::new();
    watch.on_event(&Event::Warned {
        step: 1,
        code: "x".into(),
        message: "the disk is full".into(),
        hint: String::new(),
    });
    let repeats = ["engine", "preflight", "warnings", "events"];
    let of_repeaters = |event: &Event| matches!(event, Event::Diagnosed { finding, .. } if repeats.contains(&finding.id.as_str()));
    assert!(!watch.news().iter().any(of_repeaters));
    // Every rule of a metric is reported.
    let marked = RULES.iter().map(|rule| rule.entry.id);
    let marked: Vec<&str> = marked.filter(|id| rules::is_repeater(id)).collect();
    assert_eq!(marked.len(), repeats.len(), "{marked:?}");
}
