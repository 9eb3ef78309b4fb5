//! The conversation: a line is an answer, a question about a row, or a step back. What is refused changes nothing.

use super::ask::{ask, notes, print_wrapped, refusal};
use crate::advisor::wizard::{InspectRequest, Inspection, Outcome, Question, Step, Wizard};
use crate::base::paths::expand_home;
use crate::base::text::one_line;
use crate::cli::exit::Failure;
use crate::models::has_chat_template;
use crate::plan::start::{model_of_hub, model_of_run};
use std::io::{BufRead, Write};
use std::path::Path;

/// Asks until the last question; false if the user quit.
pub fn converse(
    wizard: &mut Wizard,
    input: &mut impl BufRead,
    out: &mut impl Write,
    columns: usize,
) -> anyhow::Result<bool> {
    let (mut asked, mut explained) = (None, false);
    // The row that asked for a text and got none yet.
    let mut wanted = None;
    loop {
        if wizard.step() == Step::Finish {
            let Some((at, why)) = wizard.not_runnable() else {
                return Ok(true);
            };
            // Back to where it can be answered: the answers so far are worth keeping.
            refusal(&why, out, columns)?;
            while wizard.step() > at && wizard.back() == Outcome::Moved {}
            asked = None;
        }
        if asked != Some(wizard.step()) {
            ask(wizard, out, columns)?;
            if !explained {
                let how = "an empty line takes the row marked *, N takes row N (with a text behind it where the row asks for one), \
                    ?N explains it, b goes back, q quits";
                print_wrapped(how, out, columns)?;
                explained = true;
            }
            asked = Some(wizard.step());
            wanted = None;
        }
        write!(out, "> ")?;
        out.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            let what = format!(
                "the input ended at question {} of {} ({})",
                wizard.number(wizard.step()),
                wizard.number(Step::Plan),
                wizard.step().word()
            );
            let hint = "an empty line accepts the default; --defaults accepts all of them";
            return Err(Failure::user_error(what, hint).into());
        }
        let line = line.trim_end_matches(['\n', '\r']);
        match reply(wizard, line, wanted, out, columns)? {
            After::Left => return Ok(false),
            After::Again => asked = None,
            After::Wants(row) => wanted = Some(row),
            After::Stay => {}
        }
    }
}

enum After {
    /// Show the question again.
    Again,
    Stay,
    /// The row wants a text, or another one.
    Wants(usize),
    Left,
}

fn reply(
    wizard: &mut Wizard,
    line: &str,
    wanted: Option<usize>,
    out: &mut impl Write,
    columns: usize,
) -> anyhow::Result<After> {
    let line = line.trim();
    match line {
        "q" => return Ok(After::Left),
        "b" => {
            if wizard.back() == Outcome::Close {
                writeln!(out, "  this is the first question; q quits")?;
            }
            return Ok(After::Again);
        }
        "" => return enter(wizard, out, columns),
        _ => {}
    }
    let question = wizard.question();
    if let Some(row) = line.strip_prefix('?') {
        // Asking about a row does not choose it.
        let row = row_of(&question, row.trim()).unwrap_or(wizard.selected());
        let mut asked = wizard.clone();
        asked.select(row);
        notes(&asked.question(), out, columns)?;
        return Ok(After::Stay);
    }
    let (word, text) = line.split_once([' ', '=']).unwrap_or((line, ""));
    if row_of(&question, word).is_none()
        && let Some(row) = taker(
            &question,
            wanted.unwrap_or(wizard.selected()),
            &typed(wizard, line),
        )
        .or_else(|| model_row(wizard, &question, line))
    {
        return choose(wizard, row, line, out, columns);
    }
    let Some(row) = row_of(&question, word) else {
        let why = format!(
            "`{}` is not an answer: enter a number from 1 to {}, an empty line, ?N, b or q",
            one_line(word),
            question.rows.len()
        );
        refusal(&why, out, columns)?;
        return Ok(After::Stay);
    };
    match wizard.step() {
        Step::Settings => set_value(wizard, row, text.trim(), out, columns),
        _ => choose(wizard, row, text.trim(), out, columns),
    }
}

/// A form: each line sets one value, or shows it where it has no text. A wrong value changes nothing.
fn set_value(
    wizard: &mut Wizard,
    row: usize,
    text: &str,
    out: &mut impl Write,
    columns: usize,
) -> anyhow::Result<After> {
    let before = wizard.clone();
    let value_of = |question: &Question| {
        let input = question.rows.get(row).and_then(|row| row.input.as_ref());
        input.map_or_else(String::new, |input| one_line(&input.text))
    };
    let old = value_of(&wizard.question());
    wizard.select(row);
    if !text.is_empty() {
        wizard.type_in(text);
    }
    // What contradicts another value stays: that one may be the next to change.
    let wrong = wizard.wrong_settings().len();
    let is_wrong = wrong > 0 && wrong >= before.wrong_settings().len();
    let question = wizard.question();
    if let Some(set) = question.rows.get(row) {
        let (title, value) = (&set.title, value_of(&question));
        match &set.fault {
            Some(fault) if is_wrong => refusal(&format!("{title}: {fault}"), out, columns)?,
            Some(fault) if value == old => {
                refusal(&format!("{title} = {value}: {fault}"), out, columns)?
            }
            Some(fault) => {
                let back = format!("`{} {old}` undoes it", row + 1);
                let why = format!("{title} = {value}, but {fault}: change one of them; {back}");
                refusal(&why, out, columns)?;
            }
            None => writeln!(out, "  {title} = {value}")?,
        }
    }
    if is_wrong {
        *wizard = before;
    }
    Ok(After::Stay)
}

/// Answers with a row and what was typed for it. A refused answer changes nothing: the row that is marked stays the default.
fn choose(
    wizard: &mut Wizard,
    row: usize,
    text: &str,
    out: &mut impl Write,
    columns: usize,
) -> anyhow::Result<After> {
    let before = wizard.clone();
    wizard.select(row);
    let question = wizard.question();
    let takes_text = question.rows.get(row).is_some_and(|r| r.input.is_some());
    if takes_text && !text.is_empty() {
        wizard.type_in(text);
    } else if !text.is_empty() {
        // Chosen without it, the row would stand for something else than was meant.
        let takes = question.rows.iter().position(|r| r.input.is_some());
        let other = takes.map_or_else(String::new, |other| format!(", {} does", other + 1));
        let why = format!(
            "{} takes no text{other}: `{}` was not read",
            row + 1,
            one_line(text)
        );
        *wizard = before;
        refusal(&why, out, columns)?;
        return Ok(After::Stay);
    }
    let after = enter(wizard, out, columns)?;
    let refused = wizard.error().is_some();
    // A row that the question itself proposes in its place, and says so, is the default from here on; and so is an answer that
    // is accepted once it is given again.
    let stays = wizard.step() == before.step();
    if refused && stays && wizard.selected() == row && !wizard.asks_for_consent() {
        *wizard = before;
    }
    Ok(match refused && takes_text {
        true => After::Wants(row),
        false => after,
    })
}

fn enter(wizard: &mut Wizard, out: &mut impl Write, columns: usize) -> anyhow::Result<After> {
    let mut found = None;
    let mut outcome = wizard.enter();
    // A run in a model's place is looked at twice: for its checkpoint, and for what that is.
    while let Outcome::Look(look) = outcome {
        let run = match (&look, wizard.runs_dir()) {
            (InspectRequest::Model { path, .. }, Some(runs)) => {
                let (said, home) = (path.to_string_lossy(), wizard.home());
                let found = model_of_run(runs, &said, home)
                    .or_else(|| model_of_hub(&said, home, wizard.hub_cache()));
                found.map(|found| Inspection::Run(path.clone(), found))
            }
            _ => None,
        };
        let seen = run.unwrap_or_else(|| look.now(wizard.home()));
        found = seen.summary();
        outcome = wizard.on_inspected(seen);
    }
    if let Some(error) = wizard.error() {
        refusal(error, out, columns)?;
        return Ok(After::Stay);
    }
    Ok(match outcome {
        Outcome::Moved => {
            if let Some(found) = found {
                print_wrapped(&format!("found: {}", one_line(&found)), out, columns)?;
            }
            After::Again
        }
        // Something was detected: show it before importing anything.
        _ => {
            notes(&wizard.question(), out, columns)?;
            After::Stay
        }
    })
}

/// The row that a line is the text of, where no number was meant: the selected one if it asks for a text, else the first
/// that asks for one, if the line names a file or folder, or looks as if it were meant to.
fn taker(question: &Question, selected: usize, line: &str) -> Option<usize> {
    if question.step == Step::Settings || line.parse::<usize>().is_ok() {
        return None;
    }
    let asks = |row: &usize| {
        question
            .rows
            .get(*row)
            .is_some_and(|row| row.input.is_some())
    };
    Some(selected).filter(asks).or_else(|| {
        let path = Path::new(line);
        let is_path = path.exists() || line.contains('/') || path.extension().is_some();
        (0..question.rows.len()).filter(|_| is_path).find(asks)
    })
}

/// The row of a start model that a run's name is the text of: an instruct model where the run has a chat template.
fn model_row(wizard: &Wizard, question: &Question, line: &str) -> Option<usize> {
    let runs = wizard.runs_dir().filter(|_| question.step == Step::Start)?;
    let folder = model_of_run(runs, line, wizard.home())?.ok()?;
    let takes = question.rows.iter().enumerate();
    let mut takes = takes.filter(|(_, row)| row.input.is_some());
    match has_chat_template(&folder) {
        true => takes.next_back(),
        false => takes.next(),
    }
    .map(|(row, _)| row)
}

/// A path as it is looked up; one that cannot be expanded is refused where it is read.
pub fn typed(wizard: &Wizard, line: &str) -> String {
    let full = expand_home(Path::new(line), Path::new(""), wizard.home());
    full.map_or_else(|_| line.into(), |full| full.display().to_string())
}

/// By number or by the row's name.
fn row_of(question: &Question, word: &str) -> Option<usize> {
    let by_number = word.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
    by_number
        .filter(|row| *row < question.rows.len())
        .or_else(|| question.rows.iter().position(|row| row.title == word))
}
