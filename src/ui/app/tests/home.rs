//! Home's list of presets: groups, and what enter does in each.

use super::*;

fn bench() -> Bench {
    let mut options = options("ansi", ColorDepth::Ansi16, false);
    let row = |name: &str, group| PresetRow {
        name: name.into(),
        about: "One sentence.".into(),
        group,
    };
    options.presets = vec![
        row("mine", PresetGroup::Own),
        row("quickstart", PresetGroup::Demo),
        row("dpo", PresetGroup::Template),
        row("size-7b", PresetGroup::Size),
    ];
    let mut bench = Bench::with(options);
    bench.msg(Msg::Runs(Ok((Vec::new(), Vec::new()))));
    bench
}

#[test]
fn presets_stand_under_the_headings_of_their_groups() {
    let mut bench = bench();
    let picture = bench.picture(80, 24);
    let lines: Vec<&str> = picture.lines().map(str::trim).collect();
    let at = |what: &str| {
        let found = lines.iter().position(|line| line.starts_with(what));
        found.unwrap_or_else(|| panic!("{what}:\n{picture}"))
    };
    let order = [
        "your presets",
        "mine",
        "demos",
        "▸ quickstart",
        "templates",
        "dpo",
        "sizes",
        "size-7b",
        "new run",
    ];
    assert!(order.map(at).is_sorted(), "{picture}");
    // Headings are passed over.
    bench.press("down").press("up").press("up");
    assert!(bench.picture(80, 24).contains("▸ mine"));
}

#[test]
fn a_template_is_set_up_before_it_is_trained() {
    let mut bench = bench();
    bench.press("down");
    assert!(bench.picture(80, 24).contains("enter set up"));
    bench.press("enter");
    assert_eq!(bench.effects, [Effect::OpenEditor("dpo".into())]);
    let draft = crate::spec::Draft::open("dpo", &crate::spec::SpecSources::default()).unwrap();
    bench.msg(Msg::Editor(Ok(Box::new(draft))));
    let picture = bench.picture(80, 24);
    assert!(picture.contains("▸ train.from"), "{picture}");
}
