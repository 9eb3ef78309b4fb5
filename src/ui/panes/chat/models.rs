//! What can be talked to: checkpoints of runs, model folders, GGUF files.

use crate::base::human;
use crate::base::text::one_line;
use crate::ui::msg::CheckpointRow;
use crate::ui::store::short_run;
use crate::wire::Event;
use std::path::PathBuf;

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
        let loss = row
            .val_loss
            .map(|x| format!(" {dot} val {}", human::number(x)))
            .unwrap_or_default();
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

/// What an engine reported of the model that it loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    pub architecture: String,
    pub n_params: u64,
    pub context: u64,
    /// The template's name; none for a model that completes texts.
    pub template: Option<String>,
    pub quantised: Option<String>,
    pub notes: Vec<String>,
}

impl About {
    pub fn of(event: &Event) -> Option<About> {
        let Event::Loaded {
            architecture,
            n_params,
            context,
            template,
            quantised,
            notes,
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
            quantised: quantised.clone(),
            notes: notes.clone(),
        })
    }

    pub fn converses(&self) -> bool {
        self.template.is_some()
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
        words.extend(self.quantised.as_deref().map(one_line));
        words.push(format!("context {}", human::grouped(self.context)));
        words.join(&format!(" {dot} "))
    }
}
