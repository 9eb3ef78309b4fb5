//! Adapters of a conversation's model, by name or number.

use crate::base::text::one_line;

/// The adapters by number, the one that answers marked; the base alone, where it does.
pub fn list(adapters: &[String], in_use: Option<&str>) -> Vec<String> {
    let line = |(number, name): (usize, &String)| {
        let answers = in_use == Some(name);
        let mark = if answers { "  answers now" } else { "" };
        format!("{number}  {}{mark}", one_line(name))
    };
    let mut lines: Vec<String> = (1..).zip(adapters).map(line).collect();
    if in_use.is_none() {
        lines.push("the base model answers without an adapter now".into());
    }
    lines
}

/// The adapter that a word means: its name, its number in the list, or the only one with such a part: of the name of a run's
/// folder nobody types the date.
pub fn find<'n>(adapters: &'n [String], word: &str) -> Option<&'n str> {
    let only = |part: &str| {
        let mut with = adapters.iter().filter(|name| name.contains(part));
        with.next().filter(|_| with.next().is_none())
    };
    let exact = adapters.iter().find(|name| *name == word);
    let number = word.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
    exact
        .or_else(|| adapters.get(number?))
        .or_else(|| only(&format!("-{word}-")))
        .or_else(|| only(word))
        .map(String::as_str)
}
