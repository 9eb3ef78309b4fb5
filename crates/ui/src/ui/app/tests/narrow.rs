//! What differs between rows stays where there is little room, and words do not run into each other.

use super::*;

/// Runs of a sweep had one name, one state and one verdict, beside 25 empty columns.
#[test]
fn runs_of_a_sweep_differ_in_the_list() {
    let mut all = runs();
    all.truncate(3);
    for (run, changed) in all.iter_mut().zip(["lr=1e-2 seed=1", "lr=1e-2 seed=2", ""]) {
        run.changed = changed.split_whitespace().map(String::from).collect();
    }
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((all, Vec::new()))));
    let wide = bench.picture(160, 48);
    for words in ["changed", "lr=1e-2 seed=1", "lr=1e-2 seed=2"] {
        assert!(wide.contains(words), "{words}: {wide}");
    }
    // Where there is no room for a column, the line below the list says it of the selected run.
    bench.press("end");
    for _ in 0..2 {
        bench.press("up");
    }
    let narrow = bench.picture(80, 24);
    assert!(narrow.contains("changed: lr=1e-2 seed=1"), "{narrow}");
    let mut plain = Bench::new();
    let picture = plain.runs().picture(160, 48);
    assert!(!picture.contains("changed"), "{picture}");
}

/// "enter trains the selected p▼ 31 more"
#[test]
fn a_heading_ends_before_the_number_of_hidden_rows() {
    let mut bench = Bench::new();
    let presets = bench.app.store.presets.clone();
    bench.app.store.presets = (0..40).flat_map(|_| presets.iter().cloned()).collect();
    bench.msg(Msg::Runs(Ok((Vec::new(), Vec::new()))));
    let picture = bench.picture(60, 18);
    let heading = picture.lines().find(|line| line.contains("first run"));
    let heading = heading.unwrap_or_else(|| panic!("{picture}"));
    assert!(heading.contains(" more"), "{picture}");
    let before = heading.split('▼').next().unwrap();
    assert!(before.ends_with(' '), "{heading}");
}

/// "llmtui gc lists those ● mark at least two runs…"
#[test]
fn a_message_in_the_last_row_stands_there_alone() {
    let mut bench = Bench::new();
    bench.runs().press("end");
    let before = bench.picture(80, 24);
    bench.press("v");
    let after = bench.picture(80, 24);
    let changed: Vec<&str> = before
        .lines()
        .zip(after.lines())
        .filter(|(old, new)| old != new)
        .map(|(_, new)| new)
        .collect();
    let message = changed.iter().find(|line| line.contains('●'));
    let message = message.unwrap_or_else(|| panic!("{after}"));
    assert!(message.trim_start().starts_with('●'), "{after}");
}

/// All of them had no match.
#[test]
fn the_palette_finds_what_is_done_elsewhere() {
    for (word, found) in [
        ("export", "llmtui export"),
        ("delete", "llmtui rm"),
        ("sweep", "llmtui sweep"),
        ("queue", "--after RUN"),
        ("copy", "shift"),
        ("slow", "llmtui doctor"),
    ] {
        let mut bench = Bench::new();
        bench.press(":").write(word);
        let picture = bench.picture(160, 48);
        assert!(picture.contains(found), "{word}: {picture}");
    }
    let mut bench = Bench::new();
    bench.press(":").write("export the model").press("enter");
    let picture = bench.picture(160, 48);
    assert!(picture.contains("llmtui export RUN"), "{picture}");
}

#[test]
fn help_explains_the_mouse_and_the_marks() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("?");
    let mut all = String::new();
    for _ in 0..12 {
        all.push_str(&bench.picture(100, 48));
        bench.press("pagedown");
    }
    for words in [
        "Mouse",
        "shift+drag",
        "Marks below charts",
        "A note, yours or the engine's",
        "above the band of most runs",
        "higher than at the evaluation before",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }
}
