//! What is taken from the curves of a run.

use super::*;

fn series(n: u64, value: impl Fn(u64) -> f64) -> Series {
    let mut series = Series::new();
    (1..=n).for_each(|step| series.push(step, value(step)));
    series
}

#[test]
fn noise_is_per_step_and_unaffected_by_trends_and_spikes() {
    // Differences of ±0.1 noise: 0 or 0.2; a trend of 0.001 a step; one spike.
    let noisy = |s: u64| 3.0 - 0.001 * s as f64 + if s.is_multiple_of(3) { 0.1 } else { -0.1 };
    let quiet = read(&series(400, noisy)).unwrap().sigma;
    let spiky = read(&series(400, |s| if s == 350 { 90.0 } else { noisy(s) })).unwrap();
    assert!((0.05..0.3).contains(&quiet), "{quiet}");
    assert!((spiky.sigma / quiet - 1.0).abs() < 0.05, "{}", spiky.sigma);
}

#[test]
fn start_best_and_now_are_found_and_a_single_spike_is_not_the_worst_window() {
    let loss = read(&series(1000, |s| match s {
        500 => 80.0,
        s => 4.0 - 0.003 * s.min(600) as f64,
    }))
    .unwrap();
    assert!((loss.start - 3.997).abs() < 0.01, "{}", loss.start);
    assert!((loss.now - 2.2).abs() < 1e-9 && (loss.best.mean - 2.2).abs() < 1e-9);
    assert!(loss.worst.min < 4.0, "{:?}", loss.worst);
    assert!(loss.trend.z().abs() < 1.0, "{:?}", loss.trend);
    assert_eq!(read(&series(19, |_| 1.0)), None);
}

#[test]
fn descriptions_of_the_start_use_the_first_reading() {
    let falls = |s: u64| match s {
        1 => 4.152,
        2 => 3.8,
        _ => 3.698,
    };
    let fast = read(&series(40, falls)).unwrap();
    assert_eq!((fast.opening, fast.start), (4.152, 3.698));
    assert_eq!(
        fast.began(),
        "it began at 4.152 and was at 3.698 within five steps"
    );
    let slow = read(&series(40, |s| 4.2 - 0.001 * s as f64)).unwrap();
    assert_eq!(slow.began(), "it began at 4.199");
}

#[test]
fn a_sparse_log_is_judged_by_few_readings() {
    let mut log = Series::new();
    (1..=7).for_each(|n| log.push(5 * n, 4.0 / n as f64));
    assert_eq!(read(&log), None);
    (8..=12).for_each(|n| log.push(5 * n, 4.0 / n as f64));
    let loss = read(&log).unwrap();
    assert!(
        (loss.start, loss.now) == (4.0, (0.4 + 4.0 / 11.0 + 4.0 / 12.0) / 3.0),
        "{loss:?}"
    );
    assert!(loss.trend.z() < -3.0, "{:?}", loss.trend);
    assert_eq!(loss.n_now, 3);
}
