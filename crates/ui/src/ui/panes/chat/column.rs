//! One model of the chat: its engine, and its answers to what was said. Answers come in the order of the turns, one at a
//! time, so that a model that is put beside later works through the same conversation.

use super::models::{About, ChatModel};
use super::reply::{Answer, Reply};
use super::said::{Said, ToolFile};
use crate::base::clock::UnixMillis;
use crate::base::human;
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::data::chat::tool_calls::Call;
use crate::link::message;
use crate::ui::msg::Slot;
use crate::ui::rows::CheckpointRow;
use crate::wire::{Command, CommandId, Event, Prompt, StopReason, Turn, Wanted};

/// The engine that answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Engine {
    /// On its way, since then.
    Opening(Slot, UnixMillis),
    /// The model is loaded.
    Ready(Slot),
    Failed(String),
}

/// What was said to all models.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The system prompt; empty for none.
    pub system: String,
    /// What the models may call.
    pub tools: ToolFile,
    /// What the person said, oldest first.
    pub said: Vec<Said>,
}

/// A file that comes from the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct Download {
    /// With its repository.
    pub file: String,
    pub bytes: u64,
    /// 0 where it is not known.
    pub total: u64,
    pub bytes_per_sec: Option<f64>,
}

impl Download {
    /// `1.2 GiB of 4.9 GiB`
    fn so_far(&self) -> String {
        match self.total {
            0 => human::bytes(self.bytes),
            total => format!("{} of {}", human::bytes(self.bytes), human::bytes(total)),
        }
    }

    /// `downloading model.safetensors: 1.2 GiB of 4.9 GiB, 35 MiB/s`
    pub fn words(&self) -> String {
        let file = self.file.rsplit('/').next().unwrap_or(&self.file);
        let rate = self
            .bytes_per_sec
            .map(|r| format!(", {}/s", human::bytes(r as u64)));
        let file = one_line(file);
        format!(
            "downloading {file}: {}{}",
            self.so_far(),
            rate.unwrap_or_default()
        )
    }
}

/// A model and its answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub model: ChatModel,
    pub engine: Engine,
    pub about: Option<About>,
    /// How far a download from the hub is, while there is one.
    pub download: Option<Download>,
    /// By turn; shorter than what was said while answers are missing.
    pub replies: Vec<Reply>,
    /// Rows scrolled back from the end.
    pub scroll: usize,
    /// Stopped by hand: asks nothing more by itself.
    halted: bool,
}

impl Column {
    pub fn new(model: ChatModel, slot: Slot, now: UnixMillis) -> Column {
        Column {
            model,
            engine: Engine::Opening(slot, now),
            about: None,
            download: None,
            replies: Vec::new(),
            scroll: 0,
            halted: false,
        }
    }

    pub fn slot(&self) -> Option<Slot> {
        match self.engine {
            Engine::Opening(slot, _) | Engine::Ready(slot) => Some(slot),
            Engine::Failed(_) => None,
        }
    }

    pub fn converses(&self) -> bool {
        self.about.as_ref().is_some_and(About::converses)
    }

    /// Whether an answer began with thoughts.
    pub fn has_thoughts(&self) -> bool {
        self.replies.iter().any(|reply| reply.thoughts(&[]).is_some())
    }

    /// The answer that is being written.
    pub fn streaming(&self) -> Option<&Reply> {
        self.replies.last().filter(|reply| reply.streaming())
    }

    /// The checkpoint of a run that trained on while its engine was lost before it had read it: it may have been pruned.
    pub fn unread(&self) -> Option<&CheckpointRow> {
        let failed = matches!(self.engine, Engine::Failed(_)) && self.about.is_none();
        self.model.row.as_ref().filter(|row| failed && row.phase.is_some())
    }

    /// Its engine ended before the model was there, and nothing can take its place.
    pub(super) fn not_loaded(&self) -> bool {
        let failed = matches!(self.engine, Engine::Failed(_)) && self.about.is_none();
        failed && self.unread().is_none()
    }

    /// Whether an answer is on its way or will be asked for.
    pub fn busy(&self, said: usize) -> bool {
        self.streaming().is_some()
            || (self.replies.len() < said && !self.halted && self.slot().is_some())
    }

    /// Asks for the next answer that is missing, when the engine is there and idle.
    pub fn ask(
        &mut self,
        conversation: &Conversation,
        sampling: &Sampling,
        now: UnixMillis,
    ) -> Option<(Slot, Command)> {
        let Engine::Ready(slot) = self.engine else {
            return None;
        };
        let turn = self.replies.len();
        if self.halted || self.streaming().is_some() || turn >= conversation.said.len() {
            return None;
        }
        let prompt = self.prompt(conversation, turn);
        let sent = self.sent_turns(conversation, turn);
        self.replies.push(Reply::begin(sent, sampling.clone(), now));
        self.scroll = 0;
        Some((slot, generate(prompt, sampling)))
    }

    /// Continues the last answer where it was cut off, by the length limit or by the user.
    pub fn continue_answer(
        &mut self,
        conversation: &Conversation,
        sampling: &Sampling,
        now: UnixMillis,
    ) -> Option<(Slot, Command)> {
        let Engine::Ready(slot) = self.engine else {
            return None;
        };
        let turn = self.replies.len().checked_sub(1)?;
        let over = match &self.replies[turn].answer {
            Answer::Done(done) => {
                matches!(done.reason, StopReason::Length | StopReason::Cancelled)
                    || !self.converses()
            }
            Answer::Streaming | Answer::Failed(_) => false,
        };
        if !over || turn + 1 != conversation.said.len() {
            return None;
        }
        let prompt = self.prompt(conversation, turn);
        self.replies[turn].begin_again(sampling.clone(), now);
        self.scroll = 0;
        Some((slot, generate(prompt, sampling)))
    }

    /// What the model is asked for turn number `turn`, behind what it has answered of that turn already.
    fn prompt(&self, conversation: &Conversation, turn: usize) -> Prompt {
        let begun = self.replies.get(turn).map_or("", |reply| &reply.text);
        if !self.converses() {
            return Prompt::Text(self.sent_text(conversation, turn) + begun);
        }
        let tools = &conversation.tools.definitions;
        let mut turns = Vec::new();
        if !conversation.system.is_empty() {
            turns.push(Turn::new("system", conversation.system.as_str()));
        }
        for (at, reply) in self.replies.iter().enumerate().take(turn) {
            if !reply.text.is_empty() {
                turns.extend(self.sent_turns(conversation, at));
                turns.push(reply.turn(tools, at));
            }
        }
        turns.extend(self.sent_turns(conversation, turn));
        if !begun.is_empty() {
            turns.push(Turn::new("assistant", begun));
        }
        match tools.is_empty() {
            true => Prompt::Turns(turns),
            false => Prompt::WithTools {
                messages: turns,
                tools: tools.clone(),
            },
        }
    }

    /// Turn number `turn` as this model is sent it: a text, or the results of its own calls.
    fn sent_turns(&self, conversation: &Conversation, turn: usize) -> Vec<Turn> {
        let before = turn.checked_sub(1).and_then(|at| self.replies.get(at));
        if let (Some(Said::Results(results)), Some(reply)) = (conversation.said.get(turn), before) {
            let calls = reply.numbered_calls(&conversation.tools.definitions, turn - 1);
            if !calls.is_empty() {
                let result = |(call, result): (&Call, &String)| Turn {
                    extra: call.result_fields(),
                    ..Turn::new("tool", result.as_str())
                };
                return calls.iter().zip(results).map(result).collect();
            }
        }
        vec![Turn::new("user", self.sent_text(conversation, turn))]
    }

    /// What the person said in turn number `turn`, as this model is sent it. Turns without an answer stay in front of the next
    /// one, as templates want one speaker after the other; those that the model could not take are left out.
    fn sent_text(&self, conversation: &Conversation, turn: usize) -> String {
        let said = conversation.said.get(turn).map(Said::text).unwrap_or_default();
        if !self.converses() {
            return said.into_owned();
        }
        let before = conversation.said.iter().zip(&self.replies).take(turn);
        let mut unanswered = String::new();
        for (said, reply) in before.filter(|(_, reply)| !reply.left_out()) {
            match reply.text.is_empty() {
                true => unanswered.extend([&said.text(), "\n\n"]),
                false => unanswered.clear(),
            }
        }
        unanswered + &said
    }

    /// Asks again by itself after a stop.
    pub fn wake(&mut self) {
        self.halted = false;
    }

    /// Forgets the answers from turn number `turn` on, and asks again.
    pub fn forget_from(&mut self, turn: usize) {
        self.replies.truncate(turn);
        self.scroll = 0;
    }

    /// Gives a download up; what is there of it stays. Returns whose engine is to go.
    pub fn stop_download(&mut self) -> Option<Slot> {
        let Engine::Opening(slot, _) = self.engine else {
            return None;
        };
        let download = self.download.take()?;
        let so_far = download.so_far();
        self.engine = Engine::Failed(format!(
            "The download stopped at {so_far}; choose the model again to resume it"
        ));
        Some(slot)
    }

    /// The engine's process runs, or why not. The model comes with [`Event::Loaded`].
    pub fn opened(&mut self, result: Result<(), String>) {
        if let Err(why) = result {
            self.engine = Engine::Failed(why);
        }
    }

    /// The id under which the last command went out.
    pub fn sent(&mut self, result: Result<CommandId, String>) {
        if let Some(reply) = self.replies.last_mut().filter(|reply| reply.streaming()) {
            match result {
                Ok(id) => reply.command = Some(id),
                Err(why) => reply.answer = Answer::Failed(why),
            }
        }
    }

    /// Cuts the answer short that is being written, and asks nothing more.
    pub fn stop(&mut self) -> Option<(Slot, Command)> {
        self.halted = true;
        let target = self.streaming()?.command?;
        Some((self.slot()?, Command::Cancel { target }))
    }

    /// Folds an event of its engine.
    pub fn apply(&mut self, event: &Event, now: UnixMillis) {
        let command = match event {
            Event::Downloading {
                file,
                bytes,
                total,
                bytes_per_sec,
            } => {
                self.download = Some(Download {
                    file: file.clone(),
                    bytes: *bytes,
                    total: *total,
                    bytes_per_sec: *bytes_per_sec,
                });
                return;
            }
            Event::Loaded { .. } => {
                self.download = None;
                self.about = About::of(event);
                if let Engine::Opening(slot, _) = self.engine {
                    self.engine = Engine::Ready(slot);
                }
                return;
            }
            Event::AdapterUsed { name, .. } => {
                if let Some(about) = &mut self.about {
                    let at = |name: &String| about.adapters.iter().position(|own| own == name);
                    about.adapter = name.as_ref().and_then(at);
                }
                return;
            }
            Event::Finished { message, .. } => {
                let why = match message.is_empty() {
                    true => "the engine ended",
                    false => message.as_str(),
                };
                return self.lost(why);
            }
            Event::Prompted { command, .. }
            | Event::PromptRead { command, .. }
            | Event::Token { command, .. }
            | Event::Generated { command, .. } => *command,
            Event::Rejected { id, .. } => *id,
            _ => return,
        };
        let reply = self
            .replies
            .last_mut()
            .filter(|r| r.command == Some(command) && r.streaming());
        if let Some(reply) = reply {
            reply.apply(event, now);
        }
    }

    /// Answers that nothing more comes to: those that a file of the conversation would have.
    pub(super) fn n_answers(&self) -> usize {
        self.replies.iter().filter(|reply| reply.has_answer()).count()
    }

    /// The engine is gone; `why` is the tail of its standard error.
    pub fn lost(&mut self, why: &str) {
        let said = message::found(why.trim());
        let why = said.as_deref().unwrap_or(why.trim());
        if let Some(reply) = self.replies.last_mut().filter(|reply| reply.streaming()) {
            reply.answer = Answer::Failed(why.to_string());
        }
        if self.slot().is_some() {
            self.engine = Engine::Failed(why.to_string());
        }
    }
}

fn generate(prompt: Prompt, sampling: &Sampling) -> Command {
    Command::Generate {
        prompt,
        sampling: sampling.clone(),
        wanted: Wanted::default(),
    }
}
