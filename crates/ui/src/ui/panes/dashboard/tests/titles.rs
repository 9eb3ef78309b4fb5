//! Names of charts where little room is left beside their readings, and marks that are none of theirs.

use super::*;

/// "chose…" and "rejec…" at 160 columns.
#[test]
fn a_name_stays_whole_before_the_word_train_does() {
    let declared = |id: &str, label: &str| MetricInfo {
        id: id.into(),
        title: label.into(),
        label: label.into(),
        ..MetricInfo::default()
    };
    let ids = [
        "train/chosen",
        "val/chosen",
        "train/rejected",
        "val/rejected",
    ];
    let labels = [
        "chosen reward",
        "chosen reward",
        "rejected reward",
        "rejected reward",
    ];
    let metrics = ids.into_iter().zip(labels);
    let values = ids.map(|id| (id.to_string(), Num(-0.3214))).into();
    let state = live_and(vec![
        Event::MetricsDeclared {
            metrics: metrics.map(|(id, label)| declared(id, label)).collect(),
        },
        Event::Stepped {
            step: 1_241,
            tokens: 1,
            values,
        },
    ]);
    let mut dashboard = Dashboard::new();
    dashboard.set_filter("reward");
    let mut theme = Theme::ansi();
    theme.ascii = false;
    for width in [80, 100, 120, 160] {
        let picture = picture(&mut dashboard, &state, &theme, (width, 46));
        for label in ["chosen reward", "rejected reward"] {
            assert!(picture.contains(label), "{width}: {picture}");
        }
    }
}

/// `¶` stood at step 0 of nearly every chart.
#[test]
fn what_an_engine_notes_before_its_first_step_is_no_mark() {
    let noted = |step| Event::Noted {
        step,
        text: "a word".into(),
    };
    let marks = |notes| {
        let state = live_and(notes);
        let drawn = picture(&mut Dashboard::new(), &state, &Theme::ansi(), (120, 34));
        drawn.matches('¶').count()
    };
    let without = marks(Vec::new());
    assert_eq!(marks(vec![noted(0)]), without);
    assert!(marks(vec![noted(600)]) > without);
}
