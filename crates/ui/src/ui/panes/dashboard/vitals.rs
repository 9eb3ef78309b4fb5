//! Vital signs: one row with the newest values of the health metrics that matter, each with a mark that says whether it lies
//! within its band, above or below. Bands and values are the health pane's; the row says only what to look at there.
//! One value outside its band is no fault by itself (small healthy models clip at every step): it warns where a finding
//! of the diagnosis counts it as evidence.

use crate::base::finding::Status;
use crate::base::human;
use crate::diagnosis::Diagnosis;
use crate::metrics::id;
use crate::run::RunState;
use crate::ui::panes::health::{self, Judged, Row};
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// What is shown first, under a word that is short enough for a row.
const FIRST: [(&str, &str); 14] = [
    (id::UPDATE_RATIO, "update"),
    ("grad_spike", "spike"),
    (id::ENTROPY, "entropy"),
    (id::NOISE_SCALE, "noise"),
    ("gsnr", "GSNR"),
    (id::DEAD_UNITS, "dead"),
    (id::ATTENTION_ENTROPY, "attention"),
    (id::ALPHA, "alpha"),
    (id::CLIPPED, "clipped"),
    ("grad_cosine", "cosine"),
    ("logit_lse", "logits"),
    ("spike_score/loss", "loss spikes"),
    (id::SPECTRAL_NORM, "spectral"),
    (id::LOSS_DISPERSION, "dispersion"),
];
/// Columns of a value, so that a new digit moves nothing.
const VALUE: usize = 6;
/// Columns between two signs.
const GAP: usize = 2;
const TITLE: &str = "health";

/// One metric of the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Vital {
    name: String,
    value: f64,
    /// Of a share: the value in per cent.
    percent: Option<String>,
    place: Place,
    /// A finding that warns names it.
    confirmed: bool,
}

/// Where a value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Inside,
    Above,
    Below,
    /// There is no band, or it does not hold yet.
    Free,
}

/// Whether anything of the row was measured.
pub fn any(state: &RunState) -> bool {
    let measured = |id: &str| {
        state.series.get(id).is_some_and(|s| !s.is_empty()) || state.layers.contains_key(id)
    };
    let mut shown = state.metrics.iter().filter(|info| health::is_shown(info));
    state.step > 0 && shown.any(|info| measured(&info.id))
}

/// The signs in their order; what has no place of its own comes last, and only while it is outside its band.
pub fn of(state: &RunState, diagnosis: &Diagnosis) -> Vec<Vital> {
    let confirmed = confirmed(diagnosis);
    let vital = |name: &str, row: &Row<'_>| Vital {
        confirmed: confirmed.contains(&row.info.id.as_str()),
        ..vital(name, row)
    };
    let rows = health::rows(state);
    let known = |(id, name): &(&str, &str)| match rows.iter().find(|row| row.info.id == *id) {
        Some(row) => Some(vital(name, row)),
        // It has no band, and so no row.
        None => state.latest(id).map(|value| Vital {
            name: (*name).into(),
            value,
            percent: None,
            place: Place::Free,
            confirmed: false,
        }),
    };
    let mut signs: Vec<Vital> = FIRST.iter().filter_map(known).collect();
    if diagnosis.has_no_signal() {
        without_signal(&mut signs);
    }
    let others = rows.iter().filter(|row| {
        row.judged == Judged::Outside && FIRST.iter().all(|(id, _)| *id != row.info.id)
    });
    signs.extend(others.map(|row| {
        let info = row.info;
        let name = if info.label.is_empty() {
            &info.title
        } else {
            &info.label
        };
        vital(name, row)
    }));
    signs
}

/// Where every reward is the same, nothing changes the weights: no value of theirs is a good sign.
fn without_signal(signs: &mut Vec<Vital>) {
    for sign in signs.iter_mut().filter(|sign| sign.place == Place::Inside) {
        sign.place = Place::Free;
    }
    let none = Vital {
        name: "no learning signal: advantages".into(),
        value: 0.0,
        percent: Some("all 0".into()),
        place: Place::Below,
        confirmed: true,
    };
    signs.insert(0, none);
}

fn vital(name: &str, row: &Row<'_>) -> Vital {
    Vital {
        name: name.into(),
        value: row.value,
        percent: health::is_percent(row.info).then(|| health::number(row.info, row.value)),
        place: match (row.judged, row.info.band.and_then(|band| band.high)) {
            (Judged::Inside, _) => Place::Inside,
            (Judged::Outside, Some(high)) if row.value > high => Place::Above,
            (Judged::Outside, _) => Place::Below,
            (Judged::Early(_) | Judged::Free, _) => Place::Free,
        },
        confirmed: false,
    }
}

/// The metrics that findings with a warning count as evidence.
fn confirmed(diagnosis: &Diagnosis) -> Vec<&str> {
    let warning = diagnosis
        .findings
        .iter()
        .filter(|found| found.status <= Status::Warn);
    let signals = warning.flat_map(|found| &found.evidence.0);
    signals
        .filter_map(|signal| signal.metric.as_deref())
        .collect()
}

/// `health  ✓ update 1.2e-3  ↑ spike   14.2  · entropy   1.47 …`, as many as fit; of those that do not, the ones within their
/// bands go first. What a finding confirms has the mark and the colour of a warning.
pub fn draw(buffer: &mut Buffer, area: Rect, signs: &[Vital], theme: &Theme) {
    let room = usize::from(area.width.saturating_sub(2));
    let outside = |sign: &Vital| matches!(sign.place, Place::Above | Place::Below);
    let width = |sign: &Vital| GAP + text::width(&words(sign, theme));
    let mut left = room.saturating_sub(TITLE.len());
    let mut taken = vec![false; signs.len()];
    let first_outside = (0..signs.len()).filter(|i| outside(&signs[*i]));
    let then_the_rest = (0..signs.len()).filter(|i| !outside(&signs[*i]));
    for i in first_outside.chain(then_the_rest) {
        let width = width(&signs[i]);
        if width > left {
            break;
        }
        left -= width;
        taken[i] = true;
    }
    let mut line = vec![word(TITLE, Meaning::Title)];
    for (sign, _) in signs.iter().zip(taken).filter(|(_, taken)| *taken) {
        line.push(word(" ".repeat(GAP), Meaning::Muted));
        line.extend(words(sign, theme));
    }
    text::draw(buffer, area.x + 1, area.y, room as u16, &line, theme);
}

fn words(sign: &Vital, theme: &Theme) -> Vec<Word> {
    let glyphs = theme.glyphs();
    let (mark, of_mark, of_value) = match sign.place {
        Place::Inside => (glyphs.ok, Meaning::Good, Meaning::Text),
        Place::Above | Place::Below if sign.confirmed => {
            (glyphs.warn, Meaning::Warn, Meaning::Warn)
        }
        Place::Above => (glyphs.above, Meaning::Muted, Meaning::Text),
        Place::Below => (glyphs.below, Meaning::Muted, Meaning::Text),
        Place::Free => (glyphs.point, Meaning::Muted, Meaning::Text),
    };
    vec![
        word(glyphs.beside_numbers(mark), of_mark),
        word(format!(" {} ", sign.name), Meaning::Muted),
        word(format!("{:>VALUE$}", shown(sign)), of_value),
    ]
}

fn shown(sign: &Vital) -> String {
    let percent = sign.percent.clone();
    percent.unwrap_or_else(|| short(sign.value))
}

/// Three digits at most: `1.2e-3`, `0.061`, `1.47`, `14.2`, `12k`.
fn short(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() || a == 0.0 => human::number(x),
        a if a >= 1000.0 => human::short(x),
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 0.1 => format!("{x:.2}"),
        a if a >= 0.01 => format!("{x:.3}"),
        _ => format!("{x:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::{Evidence, Finding, Signal};
    use crate::diagnosis::Verdict;
    use crate::ui::theme::{ColorDepth, Themes};

    fn sign(name: &str, value: f64, place: Place) -> Vital {
        Vital {
            name: name.into(),
            value,
            percent: None,
            place,
            confirmed: false,
        }
    }

    fn drawn(signs: &[Vital], width: u16) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
        draw(
            &mut buffer,
            Rect::new(0, 0, width, 1),
            signs,
            &Theme::ansi(),
        );
        let row: String = (0..width).map(|x| buffer[(x, 0)].symbol()).collect();
        row.trim_end().to_string()
    }

    #[test]
    fn what_is_outside_its_band_is_shown_whatever_the_width() {
        let signs = [
            sign("update", 1.2e-3, Place::Inside),
            sign("entropy", 1.4721, Place::Free),
            sign("noise", 12_300.0, Place::Free),
            sign("dead", 0.75, Place::Above),
        ];
        assert_eq!(
            drawn(&signs, 90),
            " health  ✓ update 1.2e-3  · entropy   1.47  · noise  12.3k  ↑ dead   0.75"
        );
        assert_eq!(drawn(&signs, 45), " health  ✓ update 1.2e-3  ↑ dead   0.75");
        assert_eq!(drawn(&signs, 24), " health  ↑ dead   0.75");
    }

    /// `✓ clipped 0 %  ✓ logits`, of a run that no reward could change.
    #[test]
    fn without_a_signal_no_value_is_a_good_sign() {
        let mut signs = vec![
            sign("clipped", 0.0, Place::Inside),
            sign("dead", 0.75, Place::Above),
        ];
        without_signal(&mut signs);
        let row = drawn(&signs, 100);
        assert!(
            row.starts_with(" health  ! no learning signal: advantages  all 0"),
            "{row}"
        );
        assert!(row.contains("· clipped") && row.contains("↑ dead"), "{row}");
        assert!(drawn(&signs, 60).contains("all 0"));
    }

    #[test]
    fn a_value_outside_its_band_warns_where_a_finding_counts_it() {
        let alone = sign("clipped", 1.0, Place::Above);
        let colours = |sign: &Vital| {
            let words = words(sign, &Theme::ansi());
            (words[0].text.clone(), words[2].meaning)
        };
        assert_eq!(colours(&alone), ("↑".into(), Meaning::Text));
        let named = Vital {
            confirmed: true,
            ..alone
        };
        assert_eq!(colours(&named), ("!".into(), Meaning::Warn));
        let signal = |metric| Evidence::from(Signal::of(metric, 1.0, "every step is clipped"));
        let diagnosis = Diagnosis {
            findings: vec![
                Finding::warn(signal("clipped"), "", ""),
                Finding::pass(signal("update_ratio")),
            ],
            verdict: Verdict::Learning,
            summary: String::new(),
            basis: Finding::pass(""),
        };
        assert_eq!(confirmed(&diagnosis), ["clipped"]);
    }

    #[test]
    fn in_ascii_no_mark_is_a_sign() {
        let theme = Themes::embedded().get("ansi", ColorDepth::Ansi16, true);
        let of = |place| text_of(&words(&sign("spike", 0.97, place), &theme));
        assert_eq!(of(Place::Inside), "ok spike   0.97");
        assert_eq!(of(Place::Free), "   spike   0.97");
        assert_eq!(of(Place::Above), "^  spike   0.97");
    }

    fn text_of(words: &[Word]) -> String {
        words.iter().map(|word| word.text.as_str()).collect()
    }

    #[test]
    fn values_keep_their_columns() {
        for x in [
            0.0, 1.24e-7, -3.2e-3, 0.0123, 0.61, 3.4, 14.23, 812.0, 54_321.0, 2.3e8,
        ] {
            let text = short(x);
            assert!(text.len() <= VALUE + usize::from(x < 0.0), "{text}");
        }
        assert_eq!(short(f64::NAN), "NaN");
    }
}
