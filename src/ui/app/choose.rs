//! What the answers of overlays do.

use super::{App, Leaving};
use crate::base::sampling::Sampling;
use crate::run::state::Level;
use crate::ui::effect::Effect;
use crate::ui::msg::Asked;
use crate::ui::overlays::{
    Choice, Editor, FormKind, LeaveChoice, Overlay, Prompt, PromptKind, Reply,
};
use crate::ui::panes::chat::{ChatModel, Settings};
use crate::wire::{Command, StopWhen};

impl App {
    pub(super) fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        match reply {
            Reply::Stay => self.remember(),
            Reply::Look(look) => vec![Effect::Look(look)],
            Reply::Check(yaml) => self.check(yaml),
            Reply::Save { path, yaml } => vec![Effect::SaveSpec { path, yaml }],
            Reply::Edit(draft) => self.open(Overlay::Editor(Box::new(Editor::new(*draft)))),
            Reply::Close => {
                let effects = self.remember();
                if let Some(Overlay::Prompt(prompt)) = self.overlays.pop()
                    && prompt.kind() == PromptKind::FilterCharts
                {
                    self.dashboard.set_filter("");
                }
                effects
            }
            Reply::Chosen(choice) => {
                let mut effects = self.remember();
                let overlay = self.overlays.pop();
                effects.extend(self.choose(choice, overlay));
                effects
            }
        }
    }

    fn choose(&mut self, choice: Choice, overlay: Option<Overlay>) -> Vec<Effect> {
        match choice {
            Choice::Action(action) => self.act(action),
            Choice::StartPreset(name) => self.start_run(name),
            Choice::StartSpec { name, yaml } => self.start_spec(name, yaml),
            Choice::EditPreset(name) => vec![Effect::OpenEditor(name)],
            Choice::OpenRun(path) => self.open_or_show(path),
            Choice::Theme(name) => {
                self.theme = self.themes.get(&name, self.depth, self.theme.ascii);
                Vec::new()
            }
            Choice::Model(model) => self.open_chat(*model),
            Choice::ModelPath => self.open(Overlay::Prompt(Prompt::new(PromptKind::ModelPath, ""))),
            Choice::PlanTarget(name) => self.plan_what(name),
            Choice::PlanDevice(name) => {
                self.plan_on(name.as_deref());
                Vec::new()
            }
            Choice::Form(FormKind::Sampling, values) => {
                let settings = Settings::of(&values, &self.chat.sampling);
                self.chat.set(settings);
                Vec::new()
            }
            Choice::Form(FormKind::Tune, values) => self.tune(&values),
            Choice::Prompt(PromptKind::Note, text) => {
                self.command(Asked::Note, Command::Note { text })
            }
            Choice::Prompt(PromptKind::ModelPath, text) => {
                self.open_chat(ChatModel::of_path(text.trim().into()))
            }
            Choice::Prompt(PromptKind::FilterCharts, text) => {
                self.dashboard.set_filter(&text);
                Vec::new()
            }
            Choice::Prompt(
                kind @ (PromptKind::DataPath
                | PromptKind::DataTokenizer
                | PromptKind::DataRow
                | PromptKind::DataSearch),
                text,
            ) => self.data_answer(kind, &text),
            Choice::Prompt(PromptKind::Sample, text) => {
                let prompt = if text.is_empty() {
                    "\n".to_string()
                } else {
                    text
                };
                self.command(
                    Asked::Sample,
                    Command::Sample {
                        prompt,
                        sampling: self.sampling_of_run(),
                    },
                )
            }
            Choice::Leave(choice) => {
                let leaving = matches!(overlay, Some(Overlay::Leave(question)) if question.leaving);
                self.answer_leave(choice, leaving)
            }
        }
    }

    /// How the run's own samples are drawn, as its spec says.
    fn sampling_of_run(&self) -> Sampling {
        let head = self.store.held.as_ref().and_then(|h| h.state.head.as_ref());
        let said = head.map(|head| head.spec["sample"]["sampling"].clone());
        said.and_then(|value| serde_json::from_value(value).ok())
            .unwrap_or_default()
    }

    fn tune(&mut self, values: &[String]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (key, text) in ["lr", "clip_norm"].into_iter().zip(values) {
            if let Ok(value) = text.trim().parse::<f64>() {
                effects.extend(self.command(
                    Asked::Adjust,
                    Command::Adjust {
                        key: key.into(),
                        value,
                    },
                ));
            }
        }
        effects
    }

    fn answer_leave(&mut self, choice: LeaveChoice, leaving: bool) -> Vec<Effect> {
        let (when, words) = match choice {
            LeaveChoice::Running => return vec![Effect::Quit],
            LeaveChoice::StopAfterCheckpoint => {
                (StopWhen::AfterCheckpoint, "stopping after a checkpoint")
            }
            LeaveChoice::StopNow => (StopWhen::Now, "stopping"),
        };
        if leaving {
            self.leaving = Leaving::WhenStopped;
        }
        self.toast(Level::Info, words);
        self.command(Asked::Stop, Command::Stop { when })
    }
}
