//! What can be talked to: checkpoints of runs, model folders, GGUF files.

use crate::base::human;
use crate::base::text::one_line;
use crate::ui::rows::CheckpointRow;
use crate::ui::store::{Store, short_run};
use crate::wire::Event;
use std::path::{Path, PathBuf};

/// A model by its place.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatModel {
    pub path: PathBuf,
    /// What the run's log says of it, where it is a checkpoint of a run here.
    pub row: Option<CheckpointRow>,
}

impl ChatModel {
    pub fn of_row(row: CheckpointRow) -> ChatModel {
        ChatModel {
            path: row.path.clone(),
            row: Some(row),
        }
    }

    pub fn of_path(path: PathBuf) -> ChatModel {
        ChatModel { path, row: None }
    }

    /// `shakespeare-k3qf · step 1,000 · val 1.93`, or the last part of the path.
    pub fn name(&self, dot: &str) -> String {
        let Some(row) = &self.row else {
            return self.short();
        };
        let reading = row.reading().map(|reading| format!(" {dot} {reading}"));
        let loss = reading.unwrap_or_default();
        let step = human::grouped(row.step);
        format!("{} {dot} step {step}{loss}", self.short())
    }

    /// The run, or the last part of the path.
    pub fn short(&self) -> String {
        match &self.row {
            Some(row) => one_line(short_run(&row.run)),
            None => {
                let last = self.path.file_name().unwrap_or(self.path.as_os_str());
                one_line(&last.to_string_lossy())
            }
        }
    }
}

/// The best checkpoint of a run, or else the newest: that of `llmtui chat RUN`.
pub(super) fn best<'a>(rows: &'a [CheckpointRow], run: &PathBuf) -> Option<&'a CheckpointRow> {
    let of_run = rows.iter().filter(|row| row.path.starts_with(run));
    of_run.max_by_key(|row| (row.step > 0, row.best, row.step))
}

/// The model that the run on the screen was fine-tuned from, unless that is a checkpoint of a run, which is listed as such.
pub(super) fn start_model(store: &Store) -> Option<PathBuf> {
    let head = store.held.as_ref()?.state.head.as_ref()?;
    let from = PathBuf::from(head.spec["train"]["from"].as_str()?);
    let listed = store.checkpoints.iter().any(|row| row.path == from);
    let run = store.runs().iter().any(|run| run.path == from || Path::new(&run.id) == from);
    (!listed && !run && !from.as_os_str().is_empty()).then_some(from)
}

/// Why a run cannot be talked to: another one in its place would pass for it.
pub(super) fn without_checkpoint(run: &Path, store: &Store) -> String {
    let found = store.runs().iter().find(|there| there.path == *run);
    match found {
        Some(found) => format!("{} has no checkpoint yet", one_line(short_run(&found.id))),
        None => {
            let name = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
            format!("no checkpoint of {} is in the runs directory", one_line(short_run(&name)))
        }
    }
}

/// What an engine reported of the model that it loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    pub architecture: String,
    pub n_params: u64,
    pub context: u64,
    /// The template's name; none for a model that completes texts.
    pub template: Option<String>,
    pub quantized: Option<String>,
    pub notes: Vec<String>,
    /// Stop strings where the settings name none.
    pub stop: Vec<String>,
    /// The method that trained it on prompts with answers, where one did.
    pub trained_by: Option<String>,
    /// Adapters that it can be asked with, and which of them answers.
    pub adapters: Vec<String>,
    pub adapter: Option<usize>,
}

impl About {
    pub fn of(event: &Event) -> Option<About> {
        let Event::Loaded {
            architecture,
            n_params,
            context,
            template,
            quantized,
            notes,
            adapters,
            stop,
            trained_by,
            ..
        } = event
        else {
            return None;
        };
        Some(About {
            architecture: architecture.clone(),
            n_params: *n_params,
            context: *context,
            template: template.clone(),
            quantized: quantized.clone(),
            notes: notes.clone(),
            stop: stop.clone(),
            trained_by: trained_by.clone(),
            adapters: adapters.clone(),
            adapter: (!adapters.is_empty()).then_some(0),
        })
    }

    /// The adapter behind the one that answers; behind the last, none.
    pub fn next_adapter(&self) -> Option<&str> {
        let next = self.adapter.map_or(0, |at| at + 1);
        self.adapters.get(next).map(String::as_str)
    }

    pub fn converses(&self) -> bool {
        self.template.is_some()
    }

    /// What to type to a model without a chat template, and where its answers end.
    pub fn to_type(&self, send: &str) -> String {
        let Some(method) = &self.trained_by else {
            return format!(
                "A base model completes your text; it was not trained to answer questions. Type the beginning of a text and press \
                 {send}."
            );
        };
        let stop: Vec<String> = self.stop.iter().map(|stop| format!("{stop:?}")).collect();
        let ends = match stop.is_empty() {
            true => String::new(),
            false => format!(
                " An answer ends at {}, as in the run's samples; the setting stop replaces that.",
                one_line(&stop.join(" or "))
            ),
        };
        format!(
            "{} trained this model on prompts without a chat template. Write a prompt as in the data and press {send}.{ends}",
            one_line(method)
        )
    }

    /// `chat · llama · 134.5M · Q4_1 · context 8,192`
    pub fn words(&self, dot: &str) -> String {
        let kind = match self.converses() {
            true => "chat",
            false => "no chat template, completes texts",
        };
        let mut words = vec![
            kind.into(),
            one_line(&self.architecture),
            human::short(self.n_params as f64),
        ];
        words.extend(self.quantized.as_deref().map(one_line));
        if !self.adapters.is_empty() {
            let name = self.adapter.and_then(|at| self.adapters.get(at));
            words.push(match name {
                Some(name) => format!("adapter {}", one_line(name)),
                None => "no adapter".into(),
            });
        }
        words.push(format!("context {}", human::grouped(self.context)));
        words.join(&format!(" {dot} "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models of SFT, DPO and GRPO runs were called base models that do not answer.
    #[test]
    fn a_model_trained_on_prompts_is_no_base_model() {
        let mut about = About {
            architecture: "llama".into(),
            n_params: 1_000,
            context: 64,
            template: None,
            quantized: None,
            notes: Vec::new(),
            stop: vec!["\n".into()],
            trained_by: None,
            adapters: Vec::new(),
            adapter: None,
        };
        assert!(about.to_type("enter").starts_with("A base model"));
        about.trained_by = Some("DPO".into());
        let words = about.to_type("enter");
        assert!(words.starts_with("DPO trained this model on prompts"), "{words}");
        assert!(words.contains("ends at \"\\n\""), "{words}");
    }
}
