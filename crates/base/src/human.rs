//! Human-readable numbers, in few columns and fixed formats.

use std::time::Duration;

/// `1,240`
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A count with its regular noun: `1 thread`, `1,200 threads`.
pub fn counted(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{} {noun}s", grouped(n)),
    }
}

/// `999`, `8k`, `20.9k`, `1.54M`: three significant digits, no trailing zeros after the point. Beyond the last
/// suffix `5.60e33`: a cell that truncated a long number would show another one.
pub fn short(x: f64) -> String {
    if !x.is_finite() {
        return number(x);
    }
    let (scaled, suffix) = match x.abs() {
        a if a >= 999.5e12 => return format!("{x:.2e}"),
        a if a >= 999.5e9 => (x / 1e12, "T"),
        a if a >= 999.5e6 => (x / 1e9, "B"),
        a if a >= 999.5e3 => (x / 1e6, "M"),
        a if a >= 999.5 => (x / 1e3, "k"),
        _ => (x, ""),
    };
    format!("{scaled:.*}{suffix}", decimals(scaled))
}

/// `78 MiB`, `1.23 GiB`, `22.4 GiB`: powers of two, three significant digits, no trailing zeros after the point.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    amount(n as f64, 1024.0, UNITS)
}

/// A part of a whole, with a single unit if both share it: `1.15 / 24 GiB`, `780 MiB / 24 GiB`.
pub fn bytes_of(part: u64, whole: u64) -> String {
    let (part, whole) = (bytes(part), bytes(whole));
    match (part.split_once(' '), whole.split_once(' ')) {
        (Some((number, unit)), Some((_, of_whole))) if unit == of_whole => {
            format!("{number} / {whole}")
        }
        _ => format!("{part} / {whole}"),
    }
}

/// `24 GB`, `1.23 TB`, `815 MB`: the same in powers of ten, as vendors state memory.
pub fn bytes_sold(n: u64) -> String {
    amount(n as f64, 1000.0, ["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

fn amount(mut x: f64, base: f64, units: [&str; 7]) -> String {
    let mut unit = 0;
    while x >= 999.5 && unit + 1 < units.len() {
        x /= base;
        unit += 1;
    }
    format!("{x:.*} {}", decimals(x), units[unit])
}

/// Decimal places that leave three significant digits; none for an integer.
fn decimals(x: f64) -> usize {
    match x.abs() {
        _ if x.fract() == 0.0 => 0,
        a if a >= 99.95 => 0,
        a if a >= 9.995 => 1,
        _ => 2,
    }
}

/// Eight heights of a [`sparkline`], lowest first.
pub const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// One row of marks for all `values`, neighbours averaged if there are more than `width`, scaled to their range: a flat
/// curve has middle height, non-finite values are blank.
pub fn sparkline(values: &[f64], width: usize, levels: &[&str; 8]) -> String {
    let n = values.len().min(width);
    let part = |i: usize| &values[i * values.len() / n..(i + 1) * values.len() / n];
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let shown: Vec<f64> = (0..n).map(|i| mean(part(i))).collect();
    let finite = || shown.iter().copied().filter(|x| x.is_finite());
    let (low, high) = finite().fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(x), h.max(x)));
    let span = high - low;
    shown
        .iter()
        .map(|x| match x {
            x if !x.is_finite() => " ",
            _ if span <= 0.0 => levels[3],
            x => levels[(((x - low) / span) * 7.0).round().clamp(0.0, 7.0) as usize],
        })
        .collect()
}

/// A share in percent, with so many digits behind the point: `12.5 %`.
pub fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * share)
}

/// A reward in few characters: most are 0 or 1. Without the sign of a negative zero.
pub fn reward(x: f64) -> String {
    match x.fract() == 0.0 {
        true => format!("{:.0}", x + 0.0),
        false => format!("{x:.2}"),
    }
}

/// How much of a prompt was read for an answer: `prompt 36`; `read 31 of 532 tokens` where the rest was cached, lies beyond the
/// context or was not reached.
pub fn prompt_read(read: u64, of: u64) -> String {
    match read == of {
        true => format!("prompt {}", grouped(of)),
        false => format!("read {} of {}", grouped(read), counted(of, "token")),
    }
}

/// `0:38`, `12:05`, `3:20:00`, `2d 4h`
pub fn duration(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..3600 => format!("{}:{:02}", s / 60, s % 60),
        3600..86_400 => format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60),
        _ => format!("{}d {}h", s / 86_400, s / 3600 % 24),
    }
}

/// The same for seconds as found in files and logs: invalid durations (negative, not finite, too large) count as zero.
pub fn seconds(x: f64) -> String {
    duration(Duration::try_from_secs_f64(x).unwrap_or_default())
}

/// An estimated time: `12 min`, `84.3 h`, `213 days`; beyond 1,000 days in years.
pub fn hours(x: f64) -> String {
    const OF_A_YEAR: f64 = 365.25 * 24.0;
    match x {
        h if h < 1.0 / 60.0 => format!("{:.0} s", h * 3600.0),
        h if h < 1.0 => format!("{:.0} min", h * 60.0),
        h if h < 100.0 => format!("{h:.1} h"),
        h if h > 24_000.0 => format!("{} years", grouped((h / OF_A_YEAR).round() as u64)),
        h => format!("{:.0} days", h / 24.0),
    }
}

/// How long ago: `now`, `12 s`, `5 min`, `3 h`, `2 d`.
pub fn age(d: Duration) -> String {
    match d.as_secs() {
        0..3 => "now".into(),
        s @ 3..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min", s / 60),
        s @ 3600..86_400 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// A value with four significant digits: `1.764`, `0.0821`, `6.40e-4`, `NaN`.
pub fn number(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    match x.abs() {
        0.0 => "0".into(),
        a if a >= 1e6 => short(x),
        a if a >= 1e3 => format!("{x:.0}"),
        a if a >= 100.0 => format!("{x:.1}"),
        a if a >= 10.0 => format!("{x:.2}"),
        a if a >= 1.0 => format!("{x:.3}"),
        a if a >= 1e-2 => format!("{x:.4}"),
        _ => format!("{x:.2e}"),
    }
}

/// A loss to four decimals, `1.7640`; of a diverged run `5.600e33`.
pub fn loss(x: f64) -> String {
    match x.is_finite() {
        true => with_error(x, None),
        false => number(x),
    }
}

/// The perplexity of a loss in nats: `5.871`; of a diverged run `5.60e33`.
pub fn perplexity(loss: f64) -> String {
    number(loss.exp())
}

/// Passes over the data: `2.00`, `0.25`, `0.0031` below one hundredth.
pub fn epochs(x: f64) -> String {
    match x {
        x if x == 0.0 || x >= 0.01 => format!("{x:.2}"),
        x => format!("{x:.4}"),
    }
}

/// A small count, not necessarily whole, to two digits: `16`, `4.6`, `0.35`.
pub fn few(x: f64) -> String {
    match x {
        x if x >= 10.0 => format!("{x:.0}"),
        x if x >= 1.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

/// A reading of a metric, in its customary unit: `1.764`, `20.9k`, `3.80 GiB`, `240 ms`, `3.03 s`.
pub fn reading(x: f64, unit: &str) -> String {
    if !x.is_finite() {
        return number(x);
    }
    match unit {
        "bytes" => bytes(x.max(0.0) as u64),
        "1/s" => short(x),
        "%" => of_any_size(x),
        "share" => of_any_size(x * 100.0),
        "ms" if x.abs() >= 999.5 => format!("{} s", short(x / 1000.0)),
        "ms" => format!("{} ms", short(x)),
        "" | "nats" | "bits" => number(x),
        unit => format!("{} {unit}", number(x)),
    }
}

/// From here on only the first digits are shown.
const MANY: f64 = 1e6;

/// `42 %`, `0.8 %`, `3.0e-4 %`: a small share has more digits, so that it is not shown as 0.
fn of_any_size(x: f64) -> String {
    match x.abs() {
        a if a > 0.0 && a < 0.05 => format!("{x:.1e} %"),
        a if a >= MANY => format!("{} %", short(x)),
        a if a > 0.0 && a < 9.95 => format!("{x:.1} %"),
        _ => format!("{x:.0} %"),
    }
}

/// A value with its standard error: `0.4213 ± 0.0081`, far from 1 as `9.793e16 ± 2e15`.
pub fn with_error(value: f64, stderr: Option<f64>) -> String {
    let far = value.abs() >= 1e4;
    match stderr {
        Some(stderr) if far => format!("{value:.3e} ± {stderr:.0e}"),
        Some(stderr) => format!("{value:.4} ± {stderr:.4}"),
        None if far => format!("{value:.3e}"),
        // Four decimals would show an error of zero.
        None if value != 0.0 && value.abs() < 5e-5 => format!("{value:.1e}"),
        None => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_digits_that_are_asked_for() {
        assert_eq!(percent(0.125, 1), "12.5 %");
        assert_eq!(percent(0.996, 0), "100 %");
        assert_eq!(percent(0.000_04, 2), "0.00 %");
    }

    #[test]
    fn what_is_small_is_not_told_as_none() {
        assert_eq!(loss(2e-5), "2.0e-5");
        assert_eq!([0.0, 1e-4].map(loss), ["0.0000", "0.0001"]);
        assert_eq!(reading(3e-6, "share"), "3.0e-4 %");
        assert_eq!(reading(0.0, "share"), "0 %");
        assert_eq!(reading(8e-3, "share"), "0.8 %");
        let scores = [0.0, 0.03, 0.4, 42.0].map(|x| reading(x, "%"));
        assert_eq!(scores, ["0 %", "3.0e-2 %", "0.4 %", "42 %"]);
    }

    #[test]
    fn sparklines_scale_and_keep_gaps() {
        let line = |values: &[f64], width| sparkline(values, width, &BARS);
        assert_eq!(line(&[4.0, f64::NAN, 3.0, 2.0], 4), "█ ▅▁");
        assert_eq!(line(&[1.0, 1.0], 9), "▄▄");
        assert_eq!(line(&[], 9), "");
        // The whole curve in few columns, not just its end.
        assert_eq!(line(&[9.0, 9.0, 2.0, 2.0, 1.0, 1.0], 3), "█▂▁");
        assert_eq!(line(&[1.0], 0), "");
    }

    #[test]
    fn rewards_are_short() {
        assert_eq!(
            (reward(1.0), reward(-0.0), reward(-0.25)),
            ("1".into(), "0".into(), "-0.25".into())
        );
    }

    #[test]
    fn shapes() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(
            [999.0, 8_000.0, 20_941.0, 1_540_000.0, 999_600.0].map(short),
            ["999", "8k", "20.9k", "1.54M", "1.00M"]
        );
        assert_eq!(
            [0, 1023, 81_788_928, 1_181_116_006, 24_051_816_858].map(bytes),
            ["0 B", "1.00 KiB", "78 MiB", "1.10 GiB", "22.4 GiB"]
        );
        assert_eq!(
            [38, 725, 12_000, 187_200].map(|s| duration(Duration::from_secs(s))),
            ["0:38", "12:05", "3:20:00", "2d 4h"]
        );
        let none = [-1.0, f64::NAN, f64::INFINITY, 1e300, 0.0].map(seconds);
        assert_eq!(none, ["0:00"; 5]);
        assert_eq!(seconds(725.9), "12:05");
        assert_eq!(
            [1.7641, 0.08213, 6.4e-4, f64::NAN].map(number),
            ["1.764", "0.0821", "6.40e-4", "NaN"]
        );
    }

    #[test]
    fn estimated_times_have_their_customary_unit() {
        let shown = [0.001, 0.2, 84.26, 5103.0, 18_469_680.0].map(hours);
        assert_eq!(
            shown,
            ["4 s", "12 min", "84.3 h", "213 days", "2,107 years"]
        );
    }

    #[test]
    fn sold_memory_is_shown_in_powers_of_ten() {
        let shown = [107_814_649_856, 815, 1_230_000, 24_000_000_000].map(bytes_sold);
        assert_eq!(shown, ["108 GB", "815 B", "1.23 MB", "24 GB"]);
        assert_eq!(bytes(107_814_649_856), "100 GiB");
        let (used, total) = (1_234_803_098, 24 << 30);
        assert_eq!(bytes_of(used, total), "1.15 / 24 GiB");
        assert_eq!(bytes_of(used / 2, total), "589 MiB / 24 GiB");
    }

    #[test]
    fn diverged_values_are_shown_in_scientific_notation() {
        let shown = [999.4e12, 999.6e12, 5.6e33, -2e20, f64::MAX].map(short);
        assert_eq!(
            shown,
            ["999T", "1.00e15", "5.60e33", "-2.00e20", "1.80e308"]
        );
        let shown = [
            (5.6e33, ""),
            (5.6e33, "share"),
            (5.6e33, "%"),
            (5.6e33, "ms"),
        ];
        assert_eq!(
            shown.map(|(x, unit)| reading(x, unit)),
            ["5.60e33", "5.60e35 %", "5.60e33 %", "5.60e30 s"]
        );
        assert_eq!(perplexity(78.0), "7.50e33");
        assert_eq!(perplexity(1.77), "5.871");
        assert_eq!(
            [1.764, 3e30, f64::NAN].map(loss),
            ["1.7640", "3.000e30", "NaN"]
        );
        assert_eq!([1 << 50, u64::MAX].map(bytes), ["1 PiB", "16 EiB"]);
    }

    #[test]
    fn readings_have_their_customary_unit() {
        let readings = [
            reading(4_080_218_931.0, "bytes"),
            reading(3_030.0, "ms"),
            reading(240.0, "ms"),
            reading(0.42, "share"),
            reading(0.0, "share"),
            reading(0.0078, "share"),
            reading(1.0, "share"),
            reading(1.5, "nats"),
            reading(70.0, "W"),
        ];
        assert_eq!(
            readings,
            [
                "3.80 GiB", "3.03 s", "240 ms", "42 %", "0 %", "0.8 %", "100 %", "1.500", "70.00 W"
            ]
        );
    }

    #[test]
    fn epochs_below_a_hundredth_have_more_digits() {
        let shown = [0.0, 0.0031, 0.01, 1.526, 12.0].map(epochs);
        assert_eq!(shown, ["0.00", "0.0031", "0.01", "1.53", "12.00"]);
    }

    #[test]
    fn values_with_errors_stay_short() {
        assert_eq!(with_error(0.421_34, Some(0.008_1)), "0.4213 ± 0.0081");
        assert_eq!(with_error(9.793e16, Some(2.1e15)), "9.793e16 ± 2e15");
        assert_eq!(with_error(12_345.0, None), "1.234e4");
    }
}
