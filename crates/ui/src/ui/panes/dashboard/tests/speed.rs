//! The speeds on a screen agree: header and charts show one, and times the step time it is the tokens of a step.

use super::*;
use crate::metrics::id;

/// `19.2` or `19.2k` as a number.
fn parsed(text: &str) -> f64 {
    let (digits, scale) = match text.strip_suffix('k') {
        Some(digits) => (digits, 1e3),
        None => (text, 1.0),
    };
    digits.parse::<f64>().expect("it is a number") * scale
}

/// The word before `unit` in the first row.
fn in_the_header(picture: &str, unit: &str) -> String {
    let first = picture.lines().next().expect("there is a row");
    let (before, _) = first.split_once(unit).expect("the header has the unit");
    before.split_whitespace().last().unwrap().to_string()
}

/// The word behind the title of a chart.
fn in_the_title(picture: &str, title: &str) -> Option<String> {
    let (_, behind) = picture.split_once(&format!("{title} ── "))?;
    behind.split_whitespace().next().map(str::to_string)
}

/// Steps of which every third is five times slower, as where a probe looks at the model or a machine is shared.
fn uneven() -> RunState {
    let steps = (1_241..=1_300).map(|step| {
        let ms = if step % 3 == 0 { 200.0 } else { 40.0 };
        let rate = 1e3 * tape::BATCH_TOKENS as f64 / ms;
        Event::Stepped {
            step,
            tokens: step * tape::BATCH_TOKENS,
            values: [(id::STEP_MS, ms), (id::TOK_PER_SEC, rate)]
                .map(|(id, x)| (id.to_string(), Num(x)))
                .into(),
        }
    });
    live_and(steps.collect())
}

#[test]
fn header_and_charts_show_one_speed() {
    let full: &[Action] = &[];
    let raw: &[Action] = &[Action::Smooth, Action::Smooth];
    for state in [live(), uneven(), finished()] {
        for actions in [full, raw] {
            let (_, small) = after(actions, &state, (80, 22));
            let (_, large) = after(actions, &state, (160, 46));
            let speed = in_the_header(&small, " tok/s");
            assert_eq!(in_the_header(&large, " tok/s"), speed);
            for picture in [&small, &large] {
                let title = in_the_title(picture, "tokens/s");
                assert_eq!(title.as_ref(), Some(&speed), "{picture}");
            }
            let ms = in_the_title(&large, "step time").expect("it has a chart");
            let tokens = parsed(&speed) * parsed(&ms) / 1e3;
            let shown = tokens / tape::BATCH_TOKENS as f64;
            assert!((0.99..1.01).contains(&shown), "{speed} × {ms} ms: {tokens}");
        }
    }
}

#[test]
fn under_the_cursor_both_are_those_of_its_step() {
    let state = uneven();
    let (_, picture) = after(&[Action::ChartCursor, Action::ChartLeft], &state, (160, 46));
    let value = |title: &str| {
        let (_, behind) = picture.split_once(&format!("{title} ── ")).unwrap();
        // Narrow titles leave the step out.
        let mut words = behind.split_whitespace().peekable();
        let step = words.next_if_eq(&"at").is_some();
        parsed(words.nth(usize::from(step)).unwrap())
    };
    let tokens = value("tokens/s") * value("step time") / 1e3;
    let shown = tokens / tape::BATCH_TOKENS as f64;
    assert!((0.99..1.01).contains(&shown), "{picture}");
}
