//! The question about training data.

use crate::advisor::choose::Goal;
use crate::advisor::faulty::Faulty;
use crate::advisor::inspection::DataFacts;
use crate::advisor::wizard::answers::DataAnswer;
use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{InspectRequest, Outcome, Wizard};
use crate::base::human;
use crate::base::paths::unquoted;
use crate::base::ssh::shell_quote;
use crate::base::text::one_line;
use crate::data::cleaning::{clean_command, reading_options};

pub(in crate::advisor::wizard) struct Data;

impl Ask for Data {
    fn word(&self) -> &'static str {
        "data"
    }

    fn title(&self) -> &'static str {
        "What data should it learn from?"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let corpus = wizard
            .corpus
            .as_ref()
            .map(|f| f.summary())
            .unwrap_or_default();
        let later = "I have none yet: advice only";
        DataAnswer::ALL
            .iter()
            .map(|answer| match answer {
                DataAnswer::Corpus => Row::choice("Tiny Shakespeare, built in", corpus.clone()),
                DataAnswer::Path => Row::input(
                    "my own file or folder",
                    &wizard.answers.data_path,
                    "type its path",
                ),
                DataAnswer::Demos => Row::choice("prompts with good answers", later),
                DataAnswer::Pairs => Row::choice("chosen and rejected answers", later),
                DataAnswer::Thumbs => Row::choice("answers rated up or down", later),
                DataAnswer::Checked => {
                    Row::choice("prompts, and a program that verifies answers", later)
                }
                DataAnswer::Judged => Row::choice("prompts, and a reward model", later),
            })
            .collect()
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        let answer = DataAnswer::ALL.get(wizard.selected()).copied();
        let facts = match answer {
            Some(DataAnswer::Corpus) => wizard.corpus.as_ref(),
            Some(DataAnswer::Path) => wizard.data_facts().and_then(|f| f.as_ref().ok()),
            _ => None,
        };
        let Some(facts) = facts else {
            let words = match answer {
                Some(DataAnswer::Path) => {
                    "A UTF-8 text, rows (.jsonl, .json, .csv, .tsv, .parquet, compressed or not), or a folder of either: texts, answers, preferences, labelled answers and prompts with references are trained on."
                }
                _ => {
                    "A description cannot be trained on: you get advice on the method and what it needs."
                }
            };
            return (vec![note("Read", words)], Vec::new());
        };
        let mut notes = vec![note("Found", facts.summary())];
        if let Some(faulty) = &facts.faulty {
            notes.push(note("Careful", faulty.summary()));
        }
        if !facts.note.is_empty() {
            notes.push(note("Careful", facts.note.clone()));
        }
        notes.push(note("It begins", ""));
        (notes, facts.preview.clone())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        Some(match wizard.answers.data? {
            DataAnswer::Corpus => "Tiny Shakespeare".into(),
            DataAnswer::Path => {
                let path = std::path::Path::new(wizard.answers.data_path.trim());
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
                let size = wizard.chosen_data().map(|f| {
                    let size = f.rows_words().unwrap_or_else(|| human::bytes(f.bytes));
                    format!(" · {size}")
                });
                name.unwrap_or_default() + &size.unwrap_or_default()
            }
            DataAnswer::Demos => "answers, not available yet".into(),
            DataAnswer::Pairs => "pairs, not available yet".into(),
            DataAnswer::Thumbs => "ratings, not available yet".into(),
            DataAnswer::Checked => "prompts and a checker".into(),
            DataAnswer::Judged => "prompts and a judge".into(),
        })
    }

    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        // The built-in text is for a model from scratch; any other goal needs data of the user's own.
        let usual = match wizard.answers.goal {
            None | Some(Goal::NewModel) => DataAnswer::Corpus,
            Some(_) => DataAnswer::Path,
        };
        let data = wizard.answers.data.unwrap_or(usual);
        DataAnswer::ALL.iter().position(|d| *d == data)
    }

    fn type_in(&self, wizard: &mut Wizard, text: &str) {
        wizard.answers.data_path = unquoted(text, wizard.home());
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let answer = DataAnswer::ALL.get(wizard.selected()).copied();
        wizard.answers.data = answer;
        if answer != Some(DataAnswer::Path) {
            return wizard.advance();
        }
        let path = wizard.answers.data_path.trim().to_string();
        if path.is_empty() {
            return wizard
                .refuse("which file? Type the path of a text, of rows (JSONL, CSV, parquet …), or of a folder of either");
        }
        match &wizard.data {
            Some((known, Ok(facts))) if *known == path => {
                let faulty = facts.faulty.as_ref();
                let faulty = faulty.map(|faulty| choices(faulty, facts, &path));
                let guessed = facts.guessed.as_ref().map(|found| guess(found));
                let asked: Vec<String> = guessed.into_iter().chain(faulty).collect();
                if asked.is_empty() || wizard.leaves_out.as_ref() == Some(&path) {
                    return wizard.advance();
                }
                wizard.leaves_out = Some(path);
                wizard.refuse(asked.join(" "))
            }
            Some((known, Err(why))) if *known == path => {
                let why = why.clone();
                // If asked again, look again: the file may exist by now.
                wizard.data = None;
                wizard.refuse(why)
            }
            _ => Outcome::Look(InspectRequest::Data(path.into())),
        }
    }
}

/// What the columns are taken for, and what to do if they are something else.
fn guess(found: &str) -> String {
    format!(
        "The columns have names that no format knows: taken as {found}. Choose the file again if that is right; else rename them: prompt and completion, or prompt, chosen and rejected."
    )
}

/// What can be done about rows that cannot be read.
fn choices(faulty: &Faulty, facts: &DataFacts, path: &str) -> String {
    let (summary, path) = (faulty.summary(), shell_quote(&one_line(path)));
    // A format that the columns do not show, and the columns that were guessed.
    let columns = facts.columns.iter();
    let columns = columns.map(|(part, column)| (*part, column.as_str()));
    let clean = clean_command(&path, &reading_options(facts.format_word, columns));
    format!(
        "{summary}. Choose the file again to skip them (data.on_bad_row: skip); `{clean}` writes a copy without them"
    )
}
