//! One answer while the model writes it: its tokens, and the thoughts and tool calls in its text.

use super::failed::Failed;
use super::model::{Model, Piece, Pieces, Score};
use super::reply::{Finish, Token, Usage};
use crate::base::human;
use crate::data::chat::tool_calls::{AnswerReader, Call, Format, Part, Tools};
use crate::wire::StopReason;
use std::collections::VecDeque;
use std::sync::Arc;

/// How an answer to a conversation is read.
pub struct CallsRead {
    /// None: nothing is a call.
    pub tools: Option<Tools>,
    /// Several of them; otherwise the answer ends at the first call.
    pub several: bool,
    /// What ends an answer that calls.
    pub end: Finish,
}

/// An answer while it is written. Dropping it ends it.
pub struct Answer {
    /// Of its reply, for the log.
    id: String,
    /// The first one to its prompt, whose tokens it counts.
    is_first: bool,
    pieces: Pieces,
    model: Arc<Model>,
    calls: Calls,
    echo: Echo,
    /// What is read and not passed on yet.
    ready: VecDeque<Step>,
    /// Characters so far.
    at: usize,
    /// As far as the answer has come; its own once it has ended.
    pub usage: Usage,
}

/// A part of an answer.
pub enum Step {
    Token(Token),
    Call(Call),
    End(Finish),
}

/// The prompt that an answer begins with.
#[derive(Default)]
pub struct Echo {
    pub wanted: bool,
    /// As it was asked for; none of token ids.
    pub text: Option<String>,
    /// Of its tokens, as far as they are known.
    pub scores: Vec<Score>,
}

/// What is known of an answer's tool calls.
enum Calls {
    /// The text is passed on as it is.
    None,
    /// The format is not known yet.
    Wanted(CallsRead),
    Read {
        reader: AnswerReader,
        several: bool,
        end: Finish,
        found: bool,
    },
}

impl Answer {
    pub fn begin(
        id: String,
        is_first: bool,
        model: Arc<Model>,
        pieces: Pieces,
        calls: Option<CallsRead>,
        echo: Echo,
    ) -> Answer {
        Answer {
            id,
            is_first,
            pieces,
            model,
            calls: calls.map_or(Calls::None, Calls::Wanted),
            echo,
            ready: VecDeque::new(),
            at: 0,
            usage: Usage::default(),
        }
    }

    /// The next part, the last of which is the end.
    ///
    /// # Errors
    /// The model refuses the prompt or cannot compute, its process is gone, or it did not wait any longer for this reader.
    pub async fn next(&mut self) -> Result<Step, Failed> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Ok(step);
            }
            match self.pieces.recv().await.map(|(piece, _)| piece) {
                Some(Piece::Begun {
                    tool_calls,
                    opening,
                    prompt_tokens,
                }) => {
                    self.calls.begin(tool_calls.as_deref(), &opening);
                    self.usage.prompt = self.counted(prompt_tokens);
                }
                Some(Piece::Prompt(scores)) => self.echo.scores.extend(scores),
                Some(Piece::Token { text, score }) => {
                    self.pass_on_prompt();
                    self.usage.completion += u64::from(score.is_some());
                    let parts = self.calls.push(text);
                    self.pass_on(parts, score);
                    if let Some(end) = self.calls.enough() {
                        self.end_at_call(end);
                    }
                }
                Some(Piece::Done {
                    reason,
                    n_tokens,
                    prompt_tokens,
                    seconds,
                }) => {
                    self.pass_on_prompt();
                    log(&self.id, n_tokens, prompt_tokens, seconds);
                    self.usage = Usage {
                        prompt: self.counted(prompt_tokens),
                        completion: n_tokens,
                    };
                    let (parts, end) = std::mem::replace(&mut self.calls, Calls::None).finish();
                    self.pass_on(parts, None);
                    self.ready.push_back(Step::End(finish(reason, end)));
                }
                Some(Piece::Refused(why)) => return Err(Failed::Refused(why)),
                Some(Piece::Broken(why)) => return Err(Failed::Broken(why)),
                Some(Piece::Gone(why)) => return Err(Failed::Gone(why)),
                None => return Err(self.model.why_gone().map_or(Failed::Slow, Failed::Gone)),
            }
        }
    }

    /// Tokens of the prompt, in the first answer to it.
    fn counted(&self, prompt_tokens: u64) -> u64 {
        match self.is_first {
            true => prompt_tokens,
            false => 0,
        }
    }

    /// The model need not write on.
    fn end_at_call(&mut self, end: Finish) {
        self.pieces.close();
        errln!(
            "{} · {} · up to its call",
            self.id,
            human::counted(self.usage.completion, "token")
        );
        self.ready.push_back(Step::End(end));
    }

    /// A token's text is what it adds first; it may be empty. Further parts, as calls are, have no token of their own.
    fn pass_on(&mut self, parts: Vec<Part>, score: Option<Score>) {
        let mut parts = parts.into_iter().peekable();
        let first = match parts.next_if(|part| !matches!(part, Part::Call(_))) {
            Some(Part::Text(text)) => (text, false),
            Some(Part::Thought(text)) => (text, true),
            Some(Part::Call(_)) | None => (String::new(), false),
        };
        if score.is_some() || !first.0.is_empty() {
            let token = self.token(first.0, score, first.1);
            self.ready.push_back(token);
        }
        for part in parts {
            let step = match part {
                Part::Text(text) => self.token(text, None, false),
                Part::Thought(text) => self.token(text, None, true),
                Part::Call(call) => Step::Call(call),
            };
            self.ready.push_back(step);
        }
    }

    fn token(&mut self, text: String, score: Option<Score>, is_thought: bool) -> Step {
        let at = self.at;
        self.at += text.chars().count();
        Step::Token(Token {
            text,
            score,
            at,
            is_thought,
        })
    }

    /// The prompt before the answer, where it is to be repeated: its text, then its tokens, each at its place in the text.
    fn pass_on_prompt(&mut self) {
        let Echo {
            wanted: true,
            text,
            scores,
        } = std::mem::take(&mut self.echo)
        else {
            return;
        };
        let bytes = match text {
            Some(text) => text.into_bytes(),
            None => scores
                .iter()
                .flat_map(|score| score.bytes.iter().copied())
                .collect(),
        };
        let text = self.token(String::from_utf8_lossy(&bytes).into_owned(), None, false);
        self.ready.push_back(text);
        let (mut rest, mut at) = (bytes.as_slice(), 0);
        for score in scores {
            // What the tokenizer puts in front of a text is not in it.
            let known = rest.strip_prefix(score.bytes.as_slice());
            let known = known.or_else(|| rest.strip_prefix(score.bytes.trim_ascii_start()));
            let after = known.unwrap_or(rest);
            let taken = &rest[..rest.len() - after.len()];
            self.ready.push_back(Step::Token(Token {
                text: String::new(),
                score: Some(score),
                at,
                is_thought: false,
            }));
            // Bytes that begin a character.
            at += taken.iter().filter(|byte| (**byte as i8) >= -0x40).count();
            rest = after;
        }
    }
}

impl Calls {
    /// Begins with the format of that name, where the prompt has it begin.
    fn begin(&mut self, word: Option<&str>, opening: &str) {
        *self = match (
            std::mem::replace(self, Calls::None),
            word.and_then(Format::named),
        ) {
            // Without tools only thoughts are taken apart.
            (Calls::Wanted(CallsRead { tools: None, .. }), Some(format))
                if !format.has_thoughts() =>
            {
                Calls::None
            }
            (Calls::Wanted(wanted), Some(format)) => Calls::Read {
                reader: AnswerReader::behind(opening, format, wanted.tools),
                several: wanted.several,
                end: wanted.end,
                found: false,
            },
            (calls, _) => calls,
        };
    }

    fn push(&mut self, text: String) -> Vec<Part> {
        match self {
            Calls::None | Calls::Wanted(_) => vec![Part::Text(text)],
            Calls::Read {
                reader,
                several,
                found,
                ..
            } => kept(reader.push(&text), *several, found),
        }
    }

    /// What ends the answer: there is a call, and no other one is wanted.
    fn enough(&self) -> Option<Finish> {
        match self {
            Calls::Read {
                several: false,
                found: true,
                end,
                ..
            } => Some(*end),
            _ => None,
        }
    }

    /// The rest, and what ends the answer if there was a call.
    fn finish(self) -> (Vec<Part>, Option<Finish>) {
        match self {
            Calls::None | Calls::Wanted(_) => (Vec::new(), None),
            Calls::Read {
                reader,
                several,
                end,
                mut found,
            } => {
                let parts = kept(reader.finish(), several, &mut found);
                (parts, found.then_some(end))
            }
        }
    }
}

/// All parts, or those up to the first call.
fn kept(parts: Vec<Part>, several: bool, found: &mut bool) -> Vec<Part> {
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        if *found && !several {
            break;
        }
        *found |= matches!(part, Part::Call(_));
        kept.push(part);
    }
    kept
}

fn finish(reason: StopReason, after_calls: Option<Finish>) -> Finish {
    match reason {
        StopReason::Stop => after_calls.unwrap_or(Finish::Stop),
        // The context's end is a length, too.
        StopReason::Length | StopReason::Context | StopReason::Cancelled | StopReason::Failed => {
            Finish::Length
        }
    }
}

/// One line for each answer.
fn log(id: &str, n_tokens: u64, prompt_tokens: u64, seconds: f64) {
    let speed = match seconds > 0.0 {
        true => format!(" · {} tok/s", human::short(n_tokens as f64 / seconds)),
        false => String::new(),
    };
    errln!(
        "{id} · {} · prompt {}{speed}",
        human::counted(n_tokens, "token"),
        human::counted(prompt_tokens, "token")
    );
}
