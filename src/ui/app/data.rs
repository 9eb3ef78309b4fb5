//! What the data pane asks for: paths, tokenizers, rows; and the data of the run on the screen.

use super::App;
use crate::data::DataConfig;
use crate::data::inspect::{Inspected, Progress, Subject};
use crate::run::state::Level;
use crate::ui::effect::Effect;
use crate::ui::overlays::{Overlay, Prompt, PromptKind};
use crate::ui::panes::data::PaneRequest;
use std::sync::Arc;

impl App {
    /// The pane comes onto the screen: the data of the run that is open, where they are not shown already.
    pub(super) fn enter_data(&mut self) -> Vec<Effect> {
        let run = self.store.held.as_ref().map(|held| held.state.run.clone());
        match run.filter(|run| !run.is_empty() && self.data.run() != Some(run.as_str())) {
            Some(run) => self.inspect_run(run),
            None => Vec::new(),
        }
    }

    fn inspect_run(&mut self, run: String) -> Vec<Effect> {
        let head = self.store.held.as_ref().and_then(|h| h.state.head.as_ref());
        let Some(head) = head else { return Vec::new() };
        let Ok(config) = serde_json::from_value::<DataConfig>(head.spec["data"].clone()) else {
            // A spec of another version of the program: the person may still name the path.
            return Vec::new();
        };
        let seq_len = head.spec["model"]["seq_len"].as_u64();
        let name = self.store.held.as_ref().map(|h| h.name().to_string());
        let name = format!("data of {}", name.unwrap_or_default());
        self.inspect(Subject::of_spec(&name, config, seq_len), Some(run))
    }

    fn inspect(&mut self, subject: Subject, run: Option<String>) -> Vec<Effect> {
        self.data.read(subject.clone(), run);
        self.ask_draw();
        vec![Effect::InspectData(Box::new(subject))]
    }

    pub(super) fn grant_data(&mut self, request: PaneRequest) -> Vec<Effect> {
        let (kind, text) = match request {
            PaneRequest::None => return Vec::new(),
            PaneRequest::Again => return self.inspect_again(|_| {}),
            PaneRequest::Path => {
                let path = self.data.subject().and_then(Subject::path);
                (PromptKind::DataPath, path.unwrap_or_default().to_string())
            }
            PaneRequest::Tokenizer => {
                let tokenizer = self.data.subject().and_then(|s| s.tokenizer.clone());
                (PromptKind::DataTokenizer, tokenizer.unwrap_or_default())
            }
            PaneRequest::Row => (PromptKind::DataRow, String::new()),
            PaneRequest::Search => (PromptKind::DataSearch, self.data.search_text().to_string()),
        };
        self.open(Overlay::Prompt(Prompt::new(kind, &text)))
    }

    fn inspect_again(&mut self, change: impl FnOnce(&mut Subject)) -> Vec<Effect> {
        let Some(mut subject) = self.data.subject().cloned() else {
            return Vec::new();
        };
        change(&mut subject);
        let run = self.data.run().map(String::from);
        self.inspect(subject, run)
    }

    /// A question of the pane was answered.
    pub(super) fn data_answer(&mut self, kind: PromptKind, text: &str) -> Vec<Effect> {
        let text = text.trim();
        match kind {
            PromptKind::DataPath => {
                self.tab = crate::ui::panes::Tab::Data;
                let mut subject = Subject::of_path(text);
                subject.tokenizer = self.data.subject().and_then(|s| s.tokenizer.clone());
                return self.inspect(subject, None);
            }
            PromptKind::DataTokenizer => {
                let tokenizer = (!text.is_empty()).then(|| text.to_string());
                return self.inspect_again(|subject| subject.tokenizer = tokenizer);
            }
            PromptKind::DataRow => {
                if let Err(why) = self.data.jump(text) {
                    self.toast(Level::Warn, &why);
                }
            }
            _ => self.data.search(text),
        }
        Vec::new()
    }

    pub(super) fn data_progress(&mut self, name: &str, progress: Progress) {
        self.data.progress(name, progress);
        self.data_moved();
    }

    pub(super) fn data_inspected(&mut self, name: &str, result: Result<Arc<Inspected>, String>) {
        if let Err(why) = &result
            && !self.data.idle()
        {
            // What was shown before stays on the screen; the reason must not be lost behind it.
            self.toast(Level::Warn, why);
        }
        self.data.inspected(name, result);
        self.ask_draw();
    }
}
