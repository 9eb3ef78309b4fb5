//! A question in plain text: its rows, its notes, and what is said to an answer, no wider than the terminal.

use crate::advisor::wizard::{Question, Step, Wizard};
use crate::base::text::{cut_middle, one_line, wrap};
use std::io::Write;

/// ```text
///
/// [1/7] What should the model do?
///   * 1  train a model from scratch   the whole pipeline, small …
///     2  follow instructions          …
/// ```
pub fn ask(wizard: &Wizard, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
    /// Columns in front of a value that stands below its row.
    const INDENT: usize = 10;
    let question = wizard.question();
    // What follows the plan in the workbench is a command here.
    let (number, of) = (wizard.number(question.step), wizard.number(Step::Plan));
    writeln!(out, "\n[{number}/{of}] {}", question.title)?;
    let width = question.rows.iter().map(|r| r.title.chars().count()).max();
    let width = width.unwrap_or(0).min(44);
    let aside = aside(&question, columns);
    let folded = folded(&question, wizard.selected(), &aside);
    let mut group = None;
    for (i, row) in question.rows.iter().enumerate() {
        if aside.contains(&i) || folded.contains(&i) {
            continue;
        }
        if row.group != group {
            group = row.group;
            writeln!(out, "  {}", group.unwrap_or_default())?;
        }
        let marked = i == wizard.selected() && question.step != Step::Settings;
        let mark = if marked { "*" } else { " " };
        let value = row.input.as_ref().map(|input| match input.text.as_str() {
            "" => format!("({})", input.placeholder),
            // Broken anywhere by the terminal, a path is hard to read.
            text => cut_middle(&one_line(text), columns.saturating_sub(INDENT), "…"),
        });
        let words: Vec<String> = value
            .into_iter()
            .chain([one_line(&row.detail)])
            .filter(|w| !w.is_empty())
            .collect();
        let head = format!("  {mark}{:>3}  {:width$}", i + 1, row.title);
        for line in option(&head, &words.join("   "), columns) {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    let of_group = |i: &usize| question.rows[*i].group.unwrap_or_default();
    for part in folded.chunk_by(|a, b| of_group(a) == of_group(b)) {
        named(of_group(&part[0]), part, &question, out, columns)?;
    }
    if !aside.is_empty() {
        let why = "not available for these answers (?N says why)";
        named(why, &aside, &question, out, columns)?;
    }
    if question.rows.is_empty() {
        notes(&question, out, columns)?;
    }
    // The words about the marked row are shown where they warn.
    let warnings = question.notes.iter().filter(|note| note.label == "Careful");
    for warning in warnings.filter(|_| !question.rows.is_empty()) {
        refusal(&warning.text, out, columns)?;
    }
    if question.step == Step::Settings {
        writeln!(
            out,
            "  N VALUE changes a setting, ?N explains it, an empty line continues"
        )?;
    }
    Ok(())
}

/// Indices of unavailable rows to hide where listing their reasons would make the question taller than the screen.
fn aside(question: &Question, columns: usize) -> Vec<usize> {
    /// Rows of a question that a small screen shows with a reason each.
    const SHOWN: usize = 8;
    let many = question.rows.len() > SHOWN && columns < usize::MAX;
    if !many || question.step != Step::Method {
        return Vec::new();
    }
    // Best first: what stands above one that suits is advice.
    let last = question.rows.iter().rposition(|row| row.open);
    (last.map_or(0, |last| last + 1)..question.rows.len()).collect()
}

/// Rows of a long list that could be chosen, but are neither recommended nor selected: they stand in a line for each part of it.
fn folded(question: &Question, selected: usize, aside: &[usize]) -> Vec<usize> {
    // In a pipe, and in a short list, all stand with their reasons.
    if aside.is_empty() {
        return Vec::new();
    }
    let first = question.rows.first().and_then(|row| row.group);
    let rows = question.rows.iter().enumerate();
    let others = rows.filter(|(i, row)| row.group != first && *i != selected && !aside.contains(i));
    others.map(|(i, _)| i).collect()
}

/// Rows by number and name behind what they have in common.
fn named(
    what: &str,
    rows: &[usize],
    question: &Question,
    out: &mut impl Write,
    columns: usize,
) -> std::io::Result<()> {
    let name = |i: &usize| format!("{} {}", i + 1, question.rows[*i].title);
    let names: Vec<String> = rows.iter().map(name).collect();
    let words = format!("{what}: {}", names.join(" · "));
    let lines = wrap(&words, columns, "  ", "      ");
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// A row and the words beside it; below it where they do not fit the terminal.
fn option(head: &str, words: &str, columns: usize) -> Vec<String> {
    /// Columns in front of words that stand below.
    const INDENT: &str = "          ";
    if head.chars().count() + 2 + words.chars().count() <= columns || words.is_empty() {
        return vec![format!("{head}  {words}")];
    }
    let mut lines = vec![head.to_string()];
    lines.extend(wrap(words, columns, INDENT, INDENT));
    lines
}

pub fn notes(question: &Question, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
    /// Columns in front of the lines of a note.
    const INDENT: &str = "                ";
    for note in &question.notes {
        let label = format!("  {:14}", note.label);
        let lines = wrap(&one_line(&note.text), columns, &label, INDENT);
        // A label alone stands over the text below.
        match lines.is_empty() {
            true => writeln!(out, "{}", label.trim_end())?,
            false => lines
                .iter()
                .try_for_each(|line| writeln!(out, "{}", line.trim_end()))?,
        }
    }
    for line in &question.text {
        writeln!(out, "    {}", one_line(line))?;
    }
    Ok(())
}

/// Why an answer was refused, broken between words.
pub fn refusal(why: &str, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
    print_wrapped(&format!("! {}", one_line(why)), out, columns)
}

/// A sentence below a question, in whole words.
pub fn print_wrapped(words: &str, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
    wrap(words, columns, "  ", "    ")
        .iter()
        .try_for_each(|line| writeln!(out, "{line}"))
}
