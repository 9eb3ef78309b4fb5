//! Data among the panes: what its keys do, what it asks for, and the data of the run on the screen.

use super::{DataPane, draw};
use crate::data::DataConfig;
use crate::data::inspect::Subject;
use crate::run::state::Level;
use crate::spec::RunSpec;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::freshness::Freshness;
use crate::ui::msg::Msg;
use crate::ui::overlays::Prompt;
use crate::ui::panes::{Pane, PaneContext, PaneEntry};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::{OpenRun, Store};
use ratatui::Frame;
use ratatui::layout::Rect;
use std::path::{Path, PathBuf};

pub static ENTRY: PaneEntry = PaneEntry {
    id: "data",
    title: "Data",
    doc: "Go to Data: a dataset's contents, its problems, and every row as the model sees it.",
    contexts: &[Context::Data, Context::List, Context::Global],
    everywhere: &[Action::OpenData],
    make: || Box::new(DataPane::default()),
};

/// The run's own tokenizer, of the newest checkpoint that is there; one of its spec would be made anew from the beginning of the
/// data.
fn tokenizer_of(held: &OpenRun, run: &Path) -> Option<String> {
    let checkpoints = held.state.checkpoints.iter().rev();
    let mut files = checkpoints.map(|mark| run.join(&mark.path).join("tokenizer.json"));
    let file = files.find(|file| file.is_file())?;
    Some(file.display().to_string())
}

const PATH: &str = "path";
const TOKENIZER: &str = "tokenizer";
const ROW: &str = "row";
const SEARCH: &str = "search";

/// Lines that a turn of the wheel moves.
const WHEEL: usize = 3;

impl DataPane {
    fn inspect_run(&mut self, store: &Store, run: PathBuf) -> Vec<Request> {
        let Some(held) = &store.held else {
            return Vec::new();
        };
        let Some(head) = &held.state.head else {
            return Vec::new();
        };
        let Ok(config) = crate::base::json::read::<DataConfig>(&head.spec["data"]) else {
            // A spec of another version of the program: the person may still name the path.
            return Vec::new();
        };
        self.shown_for = Some(run.clone());
        let seq_len = head.spec["model"]["seq_len"].as_u64();
        let name = format!("data of {}", held.name());
        let spec = RunSpec::from_yaml(&head.spec.to_string());
        let mut subject = Subject::of_spec(&name, config, seq_len);
        subject.unit = spec.ok().map(|spec| spec.method.needs().unit);
        subject.tokenizer = tokenizer_of(held, &run);
        self.inspect(subject, Some(run))
    }

    fn inspect(&mut self, subject: Subject, run: Option<PathBuf>) -> Vec<Request> {
        self.read(subject.clone(), run);
        vec![
            Request::Do(Effect::InspectData(Box::new(subject))),
            Request::Draw(Freshness::Asked),
        ]
    }

    fn inspect_again(&mut self, change: impl FnOnce(&mut Subject)) -> Vec<Request> {
        let Some(mut subject) = self.subject.clone() else {
            return Vec::new();
        };
        change(&mut subject);
        let run = self.run.clone();
        self.inspect(subject, run)
    }

    fn ask_path(&self) -> Vec<Request> {
        let path = self.subject.as_ref().and_then(Subject::path);
        let path = path.map(|path| match &self.mapping {
            Some(options) => format!("{path} {options}"),
            None => path.to_string(),
        });
        let prompt = Prompt::new(
            topic(PATH),
            "data: a file, a folder or a glob",
            "{accept} reads it: text, JSONL, CSV, parquet …; --column PART=COLUMN may follow",
        );
        open(prompt.with(&path.unwrap_or_default()).needed().path())
    }

    fn ask_tokenizer(&self, subject: &Subject) -> Vec<Request> {
        let prompt = Prompt::new(
            topic(TOKENIZER),
            "tokenizer: a tokenizer file or a model's folder",
            "empty: train one on the data",
        );
        open(prompt.with(subject.tokenizer.as_deref().unwrap_or_default()).path())
    }

    fn ask_row(&self) -> Vec<Request> {
        let hint = "{accept} goes to the row of this number";
        open(Prompt::new(topic(ROW), "go to row", hint).needed())
    }

    fn ask_search(&self) -> Vec<Request> {
        let prompt = Prompt::new(
            topic(SEARCH),
            "show only rows with",
            "{accept} applies it; {cancel} keeps the old one; empty shows all",
        );
        open(prompt.with(&self.search))
    }
}

fn topic(about: &'static str) -> Topic {
    Topic {
        pane: &ENTRY,
        about,
    }
}

fn open(prompt: Prompt) -> Vec<Request> {
    vec![Request::Open(Box::new(prompt))]
}

impl Pane for DataPane {
    fn hints(&self, _store: &Store) -> Hints {
        use Action as A;
        if self.matching.is_empty() {
            return Hints::of_pane(titles(&[A::OpenData]));
        }
        let mut own = titles(&[A::NextRow, A::PreviousRow, A::DataMode]);
        own.push((A::Accept, "its rows"));
        if self.filtered() {
            own.push((A::Cancel, "all rows"));
        }
        own.extend(titles(&[
            A::SearchData,
            A::JumpRow,
            A::OpenData,
            A::DataTokenizer,
            A::DataAgain,
        ]));
        Hints::of_pane(own)
    }

    /// The data of the run that is open, where they are not shown already.
    fn enter(&mut self, context: &mut PaneContext) -> Vec<Request> {
        let run = context.store.held.as_ref().and_then(OpenRun::identity);
        match run.filter(|run| self.shown_for.as_ref() != Some(run)) {
            Some(run) => self.inspect_run(context.store, run),
            None => Vec::new(),
        }
    }

    fn act(&mut self, action: Action, _context: &mut PaneContext) -> Vec<Request> {
        let last = self.matching.len().saturating_sub(1);
        match (action, &self.subject) {
            (Action::OpenData, _) => return self.ask_path(),
            (Action::DataTokenizer, Some(subject)) => return self.ask_tokenizer(subject),
            (Action::DataAgain, Some(_)) => return self.inspect_again(|_| {}),
            (Action::Accept, _) if self.idle() => return self.ask_path(),
            _ if self.shown.is_none() => return Vec::new(),
            (Action::JumpRow, _) => return self.ask_row(),
            (Action::SearchData, _) => return self.ask_search(),
            _ => {}
        }
        match action {
            Action::NextRow if self.at < last => self.show_row(self.at + 1),
            Action::PreviousRow => self.show_row(self.at.saturating_sub(1)),
            Action::DataMode => (self.mode, self.scroll) = (self.mode.next(), 0),
            Action::Up => self.finding = self.finding.saturating_sub(1),
            Action::Down if self.finding + 1 < self.findings().len() => self.finding += 1,
            Action::Top => self.show_row(0),
            Action::Bottom => self.show_row(last),
            Action::PageUp => self.scroll = self.scroll.saturating_sub(self.page.max(1)),
            Action::PageDown => self.scroll = (self.scroll + self.page.max(1)).min(self.most),
            Action::Accept => self.toggle_finding(),
            Action::Cancel => {
                self.only = None;
                self.search.clear();
                self.filter();
            }
            _ => {}
        }
        Vec::new()
    }

    /// A click selects a finding, a second one shows its rows.
    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        if self.finding == row {
            self.toggle_finding();
        }
        self.finding = row.min(self.findings().len().saturating_sub(1));
        Vec::new()
    }

    /// The wheel moves the text.
    fn wheel(&mut self, up: bool, _context: &mut PaneContext) -> Vec<Request> {
        self.scroll = match up {
            true => self.scroll.saturating_sub(WHEEL),
            false => (self.scroll + WHEEL).min(self.most),
        };
        Vec::new()
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        match msg {
            Msg::DataProgress { name, progress } => {
                self.progress(name, *progress);
                vec![Request::Draw(Freshness::DataMoved)]
            }
            Msg::DataInspected { name, result } => {
                let mut requests = vec![Request::Draw(Freshness::Asked)];
                let idle = self.idle();
                self.inspected(name, result.clone());
                if let (Err(why), false) = (result, idle) {
                    // What was shown before stays on the screen; the reason must not be lost behind it.
                    let key = context.keymap.label(Action::OpenData);
                    let words = match &self.mapping {
                        Some(options) => format!("{key} opens it with its columns mapped, {options}: {why}"),
                        None => why.clone(),
                    };
                    requests.push(Request::Toast(Level::Warn, words));
                }
                requests
            }
            _ => Vec::new(),
        }
    }

    fn answered(
        &mut self,
        about: &str,
        answer: Answer,
        _context: &mut PaneContext,
    ) -> Vec<Request> {
        let Answer::Text(text) = answer else {
            return Vec::new();
        };
        let text = text.trim();
        match about {
            PATH => {
                let mut subject = match Subject::of_words(text) {
                    Ok(subject) => subject,
                    Err(error) => {
                        let words = format!("{error}; {}", error.hint());
                        return vec![Request::Toast(Level::Warn, words)];
                    }
                };
                subject.tokenizer = self.subject.as_ref().and_then(|s| s.tokenizer.clone());
                let mut requests = vec![Request::Show(&ENTRY)];
                requests.extend(self.inspect(subject, None));
                requests
            }
            TOKENIZER => {
                let tokenizer = (!text.is_empty()).then(|| text.to_string());
                self.inspect_again(|subject| subject.tokenizer = tokenizer)
            }
            ROW => match self.jump(text) {
                Ok(()) => Vec::new(),
                Err(why) => vec![Request::Toast(Level::Warn, why)],
            },
            _ => {
                self.search(text);
                Vec::new()
            }
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        draw::draw(self, frame, area, context);
    }
}
