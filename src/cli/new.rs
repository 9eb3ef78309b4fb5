//! `llmtui new`: the wizard in plain text, questions on standard output, answers on standard input.
//! Same questions as in the workbench; works in a pipe.

use super::Context;
use super::exit::{Exit, Failure};
use crate::advisor::look::Machine;
use crate::advisor::remember;
use crate::advisor::wizard::{self, Answers, Outcome, Question, Step, Wizard};
use crate::base::paths::expand_home;
use crate::base::text::{one_line, shown, wrap};
use crate::hardware::{Live, Provider, Recorded};
use crate::plan::learn;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Create a spec by answering questions: goal, data, start, method, size, settings
///
/// Each question takes a number (followed by text where asked for), an empty line for the default,
/// `?3` to explain row 3, `b` for the previous question, `q` to quit. Answers are remembered for next time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui new
  llmtui new poems.yaml
  printf '1\\n2 poems.txt\\n\\n\\n\\n3 1e-3\\n\\n\\n\\n' | llmtui new poems.yaml
  llmtui new --defaults first.yaml")]
pub struct Args {
    /// Where to write the spec; never overwrites. Default: the run's name
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Ask nothing; accept every default
    #[arg(long)]
    pub defaults: bool,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    // Said before the questions, not after them.
    if let Some(file) = &args.file {
        let path = expand_home(file, Path::new(""), cx.env.home.as_deref())
            .unwrap_or_else(|_| file.clone());
        if path.symlink_metadata().is_ok() {
            let what = format!("{} already exists: choose another name", shown(&path));
            return Err(Failure::yours(what, "llmtui new FILE").into());
        }
    }
    let newest = newest_checkpoints(cx);
    let machine = machine(cx)?;
    let context = wizard::Context::gather(&cx.spec_sources(), newest, machine);
    let mut out = std::io::stdout().lock();
    if args.defaults {
        let mut wizard = Wizard::new(context, Answers::default());
        straight(&mut wizard)?;
        return write_out(&wizard, args.file, &mut out, cx);
    }
    let mut wizard = Wizard::new(context, remember::answers(&cx.env));
    let mut input = std::io::stdin().lock();
    let columns = cx.columns().unwrap_or(usize::MAX);
    let done = converse(&mut wizard, &mut input, &mut out, columns)?;
    // Answers are remembered even if the user quits midway; without a state folder none are.
    if let Err(error) = remember::keep(&cx.env, &wizard.to_remember()) {
        writeln!(out, "the answers could not be remembered: {error}")?;
    }
    match done {
        true => write_out(&wizard, args.file, &mut out, cx),
        false => Ok(Exit::Done),
    }
}

/// This machine, or the recorded one of `--hardware`, whose speed is unknown.
fn machine(cx: &Context) -> anyhow::Result<Machine> {
    Ok(match cx.recording()? {
        Some(recording) => {
            let summary = Recorded::new(recording).machine().summary();
            Machine::of(summary, learn::Machine::default())
        }
        None => {
            let known = learn::Machine::look_and_measure(&cx.env, super::probe::measure);
            Machine::of(Live::new(&cx.env).machine().summary(), known)
        }
    })
}

/// The newest checkpoint of each run, the newest run first: one of them is offered as the base model.
fn newest_checkpoints(cx: &Context) -> impl Iterator<Item = String> {
    let runs = crate::run::index::list(&cx.runs_dir).map(|(runs, _)| runs);
    runs.unwrap_or_default().into_iter().filter_map(|run| {
        let run = crate::run::RunDir::open(&run.path).ok()?;
        // One of step 0 was saved by a run that was stopped before it learned anything.
        let newest = run.checkpoints().pop().filter(|kept| kept.step > 0)?;
        Some(newest.path.display().to_string())
    })
}

/// Accepts the default for every question.
fn straight(wizard: &mut Wizard) -> anyhow::Result<()> {
    while wizard.step() != Step::Finish {
        let before = wizard.step();
        if wizard.enter() != Outcome::Moved || wizard.step() == before {
            let why = wizard.error().unwrap_or("it has no default");
            let what = format!("the question `{}` cannot be answered: {why}", before.word());
            return Err(Failure::yours(what, "llmtui new, without --defaults").into());
        }
    }
    Ok(())
}

/// Asks until the last question; false if the user quit.
fn converse(
    wizard: &mut Wizard,
    input: &mut impl BufRead,
    out: &mut impl Write,
    columns: usize,
) -> anyhow::Result<bool> {
    let mut asked = None;
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
            asked = Some(wizard.step());
        }
        write!(out, "> ")?;
        out.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            let what = format!(
                "the input ended at question {} of {} ({})",
                wizard.step().number(),
                Step::Plan.number(),
                wizard.step().word()
            );
            let hint = "an empty line accepts the default; --defaults accepts all of them";
            return Err(Failure::yours(what, hint).into());
        }
        match reply(wizard, line.trim_end_matches(['\n', '\r']), out, columns)? {
            After::Left => return Ok(false),
            After::Again => asked = None,
            After::Stay => {}
        }
    }
}

enum After {
    /// Show the question again.
    Again,
    Stay,
    Left,
}

fn reply(
    wizard: &mut Wizard,
    line: &str,
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
        && let Some(row) = taker(&question, wizard.selected(), &typed(wizard, line))
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
    if wizard.step() != Step::Settings {
        return choose(wizard, row, text.trim(), out, columns);
    }
    // A form: each line sets one value, an empty line continues.
    let before = wizard.clone();
    wizard.select(row);
    if !text.trim().is_empty() {
        wizard.type_in(text.trim());
    }
    let question = wizard.question();
    if let Some(row) = question.rows.get(row) {
        match &row.fault {
            Some(fault) => refusal(&format!("{}: {fault}", row.title), out, columns)?,
            None => {
                let value = row.input.as_ref().map_or("", |input| input.text.as_str());
                writeln!(out, "  {} = {}", row.title, one_line(value))?;
            }
        }
    }
    // What contradicts another value stays: that one may be the next to change.
    let wrong = wizard.wrong_settings().len();
    if wrong > 0 && wrong >= before.wrong_settings().len() {
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
    // A row that the question itself proposes in its place, and says so, is the default from here on.
    if wizard.error().is_some() && wizard.selected() == row {
        *wizard = before;
    }
    Ok(after)
}

/// Why an answer was refused, broken between words.
fn refusal(why: &str, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
    said(&format!("! {}", one_line(why)), out, columns)
}

/// A sentence below a question, in whole words.
fn said(words: &str, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
    wrap(words, columns, "  ", "    ")
        .iter()
        .try_for_each(|line| writeln!(out, "{line}"))
}

fn enter(wizard: &mut Wizard, out: &mut impl Write, columns: usize) -> anyhow::Result<After> {
    let mut found = None;
    let outcome = match wizard.enter() {
        Outcome::Look(look) => {
            let seen = look.now(wizard.home());
            found = seen.summary();
            wizard.seen(seen)
        }
        outcome => outcome,
    };
    if let Some(error) = wizard.error() {
        refusal(error, out, columns)?;
        return Ok(After::Stay);
    }
    Ok(match outcome {
        Outcome::Moved => {
            if let Some(found) = found {
                said(&format!("found: {}", one_line(&found)), out, columns)?;
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
/// that asks for one, if the line names a file or folder.
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
        let there = std::path::Path::new(line).exists();
        (0..question.rows.len()).filter(|_| there).find(asks)
    })
}

/// A path as it is looked up; one that cannot be expanded is refused where it is read.
fn typed(wizard: &Wizard, line: &str) -> String {
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

/// ```text
///
/// [1/7] What should the model do?
///   * 1  train a model from scratch   the whole pipeline, small …
///     2  follow instructions          …
/// ```
fn ask(wizard: &Wizard, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
    let question = wizard.question();
    // What follows the plan in the workbench is a command here.
    let (number, of) = (question.step.number(), Step::Plan.number());
    writeln!(out, "\n[{number}/{of}] {}", question.title)?;
    let width = question.rows.iter().map(|r| r.title.chars().count()).max();
    let width = width.unwrap_or(0).min(44);
    for (i, row) in question.rows.iter().enumerate() {
        let marked = i == wizard.selected() && question.step != Step::Settings;
        let mark = if marked { "*" } else { " " };
        let value = row.input.as_ref().map(|input| match input.text.as_str() {
            "" => format!("({})", input.placeholder),
            text => one_line(text),
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

fn notes(question: &Question, out: &mut impl Write, columns: usize) -> std::io::Result<()> {
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

/// Writes the spec and shows how to train it. Writes nothing for answers that cannot be trained.
fn write_out(
    wizard: &Wizard,
    file: Option<PathBuf>,
    out: &mut impl Write,
    cx: &Context,
) -> anyhow::Result<Exit> {
    let mut finish = wizard.clone();
    finish.select(1);
    if let Some(file) = &file {
        finish.type_in(&file.display().to_string());
    }
    match finish.enter() {
        Outcome::Save { path, yaml } => {
            let path = typed(wizard, &path.to_string_lossy());
            let path = PathBuf::from(path);
            crate::spec::save_new(&path, &yaml)
                .map_err(|error| Failure::unsaved(&error, "llmtui new FILE"))?;
            crate::ui::remember_spec(&cx.env, &path);
            writeln!(out, "\n{yaml}")?;
            writeln!(out, "saved as {}", shown(&path))?;
            writeln!(out, "llmtui train {}", shown(&path))?;
            Ok(Exit::Done)
        }
        _ => {
            let why = finish
                .error()
                .unwrap_or("the answers do not make a valid spec");
            let hint = "run llmtui new again: your answers are remembered";
            Err(Failure::yours(why, hint).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::choose::Goal;
    use crate::spec::SpecSources;

    fn talk(text: &str) -> (Wizard, anyhow::Result<bool>, String) {
        talk_at(&SpecSources::default(), text)
    }

    fn talk_at(sources: &SpecSources, text: &str) -> (Wizard, anyhow::Result<bool>, String) {
        let context = wizard::Context::gather(sources, None, Machine::default());
        let mut wizard = Wizard::new(context, Answers::default());
        let mut out = Vec::new();
        let done = converse(&mut wizard, &mut text.as_bytes(), &mut out, 80);
        (wizard, done, String::from_utf8(out).unwrap())
    }

    #[test]
    fn empty_lines_take_everything_that_is_marked() {
        let (wizard, done, out) = talk("\n\n\n\n\n\n\n");
        assert!(done.unwrap(), "{out}");
        assert!(wizard.yaml().unwrap().contains("extends: quickstart"));
        assert!(out.contains("[7/7] What it will cost"), "{out}");
    }

    #[test]
    fn values_are_set_by_number_and_by_name_and_faults_are_said() {
        let (wizard, done, out) = talk("\n\n\n\n\nmax_steps=77\n3 fast\n3 2e-3\n?2\n\n\n");
        assert!(done.unwrap(), "{out}");
        let yaml = wizard.yaml().unwrap();
        assert!(
            yaml.contains("max_steps: 77") && yaml.contains("lr: 0.002"),
            "{yaml}"
        );
        assert!(out.contains("! lr: expected a number"), "{out}");
        assert!(out.contains("Means         Optimizer steps."), "{out}");
    }

    #[test]
    fn a_path_is_taken_as_it_stands_where_one_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("my poems.txt");
        std::fs::write(
            &path,
            "Shall I compare thee to a summer's day?\n".repeat(400),
        )
        .unwrap();
        let (wizard, _, out) = talk(&format!("1\n2\n{}\n", path.display()));
        assert!(!out.contains("is not an answer"), "{out}");
        assert!(out.contains("  found: plain text"), "{out}");
        assert_eq!(
            wizard.answers().data_path,
            path.display().to_string(),
            "{out}"
        );
        // In one line too, though another row is marked.
        let (wizard, _, out) = talk(&format!("1\n{}\n", path.display()));
        assert_eq!(
            wizard.answers().data_path,
            path.display().to_string(),
            "{out}"
        );
    }

    /// A path behind the number of a row without one is not dropped: the row would train something else.
    #[test]
    fn what_a_row_cannot_take_is_refused_with_the_row_that_can() {
        let (wizard, _, out) = talk("2\n1 chats.jsonl\n");
        assert!(
            out.contains("! 1 takes no text, 2 does: `chats.jsonl`"),
            "{out}"
        );
        assert_eq!(wizard.step(), Step::Data, "{out}");
    }

    #[test]
    fn a_tilde_means_the_users_home_and_stays_in_the_spec() {
        let dir = tempfile::tempdir().unwrap();
        let text = "Shall I compare thee to a summer's day?\n".repeat(400);
        std::fs::write(dir.path().join("poems.txt"), text).unwrap();
        let sources = SpecSources {
            home: Some(dir.path().into()),
            ..SpecSources::default()
        };
        let (wizard, _, out) = talk_at(&sources, "1\n~/poems.txt\n");
        assert_eq!(wizard.answers().data_path, "~/poems.txt", "{out}");
        // The file was read.
        assert_eq!(wizard.step(), Step::Start, "{out}");
        let (.., out) = talk_at(&sources, "1\n2 ~nobody/poems.txt\n");
        assert!(out.contains("`~nobody` is not expanded"), "{out}");
        let (.., out) = talk("1\n2 ~/poems.txt\n");
        assert!(out.contains("HOME is not set"), "{out}");
    }

    #[test]
    fn no_line_of_a_question_is_wider_than_the_terminal() {
        let (_, _, out) = talk("\n\n\n\n\n\n\n");
        assert!(out.contains("[7/7]"), "{out}");
        let lines = out.lines();
        let wide: Vec<&str> = lines.filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn answers_that_cannot_be_trained_lead_back_to_their_question() {
        // Described data: advice, and at the end the question again, not the end of the program.
        let (wizard, done, out) = talk("\n3\n\n\n\n\n\n1\n\n\n\n\n\n");
        assert!(done.unwrap(), "{out}");
        assert!(out.contains("! the data was only described"), "{out}");
        assert_eq!(out.matches("[2/7]").count(), 2, "{out}");
        assert!(wizard.yaml().is_some(), "{out}");
    }

    /// A text of one's own and a model to start from, both in a folder of their own.
    fn material(dir: &Path) -> (String, String) {
        let (text, model) = (dir.join("own.txt"), dir.join("model"));
        std::fs::write(
            &text,
            "To be, or not to be: that is the question.\n".repeat(400),
        )
        .unwrap();
        std::fs::create_dir(&model).unwrap();
        let config = serde_json::json!({"model_type": "gpt2", "llmtui": {"model": {
            "n_layer": 3, "n_head": 2, "d_model": 48, "seq_len": 2048, "vocab_size": 5000}}});
        std::fs::write(model.join("config.json"), config.to_string()).unwrap();
        std::fs::write(model.join("model.safetensors"), vec![0; 4_000]).unwrap();
        std::fs::write(model.join("tokenizer.json"), "{}").unwrap();
        (text.display().to_string(), model.display().to_string())
    }

    #[test]
    fn empty_lines_lead_on_where_training_is_advised_against() {
        let dir = tempfile::tempdir().unwrap();
        let (text, model) = material(dir.path());
        let (wizard, done, out) = talk(&format!("3\n2 {text}\n2 {model}\n\n\n\n\n"));
        assert!(done.unwrap(), "{out}");
        assert!(wizard.yaml().is_some(), "{out}");
        let careful = "  ! training is not the first thing to try";
        assert!(out.contains(careful), "{out}");
    }

    #[test]
    fn a_refused_answer_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (text, model) = material(dir.path());
        // A refused row is not the default of the empty line after it.
        let (wizard, _, out) = talk(&format!("3\n2 {text}\n2 {model}\n1\n\n"));
        assert!(out.contains("! without training"), "{out}");
        assert_eq!(wizard.step(), Step::Model, "{out}");
        // A refused path is nobody's: the row has none again.
        let empty = dir.path().display();
        let (wizard, _, out) = talk(&format!("3\n2 {text}\n2 {empty}\n3\n"));
        assert_eq!(wizard.step(), Step::Method, "{out}");
        assert_eq!(wizard.answers().start_path, "", "{out}");
        // Nor does asking about a row choose it.
        let (wizard, _, out) = talk("?3\n\n");
        assert_eq!(wizard.answers().goal, Some(Goal::NewModel), "{out}");
        // An invalid value leaves the previous one.
        let (wizard, done, out) = talk("\n\n\n\n\n3 2e-3\n3 fast\n\n\n");
        assert!(done.unwrap(), "{out}");
        assert!(wizard.yaml().unwrap().contains("lr: 0.002"), "{out}");
    }

    #[test]
    fn what_is_refused_is_told_in_whole_words() {
        let (.., out) =
            talk("99\n\n2 /a/long/path/to/a/file/that/nobody/has/written/in/this/place\n");
        // At a terminal the line ends that answered.
        let out = out.replace("> ", "\n");
        let wide = |line: &&str| line.chars().count() > 80;
        let wide: Vec<&str> = out.lines().filter(wide).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(out.contains("is not an answer") && out.contains("does not exist"));
    }

    #[test]
    fn one_goes_back_leaves_and_is_told_when_the_input_ends() {
        let (wizard, done, _) = talk("2\nb\nb\n1\nq\n");
        assert!(!done.unwrap());
        assert_eq!(wizard.step(), Step::Data);
        let (_, done, _) = talk("\n\n");
        assert!(
            done.unwrap_err()
                .to_string()
                .contains("question 3 of 7 (start)")
        );
        let (_, _, out) = talk("99\nxyz\n");
        assert!(out.contains("`99` is not an answer") && out.contains("`xyz` is not an answer"));
    }
}
