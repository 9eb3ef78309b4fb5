//! An answer as it is judged: what a model says, apart from what it thought first. Calls of tools stay in the text. While an answer is
//! being written, stop texts count in what it says alone.

use super::{AnswerReader, Format, Part};
use crate::data::chat::Template;
use crate::data::tokenizer::{Stops, TextStream, Tokenizer, stop_at};
use std::ops::ControlFlow;

/// How the answers of a model are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answers {
    /// None: an answer is all text.
    format: Option<&'static Format>,
}

/// An answer, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// The final message: what stands behind the thoughts.
    pub text: String,
    /// What the model thought first. None: nothing of the answer is set apart.
    pub thought: Option<String>,
    /// It ended inside its thoughts: there is no final message.
    pub is_unfinished: bool,
    /// The final message behind its prompt, as a model writes it that thinks nothing.
    pub alone: String,
}

impl<T: Into<String>> From<T> for Said {
    /// All of it is said.
    fn from(text: T) -> Said {
        let text = text.into();
        Said {
            alone: text.clone(),
            text,
            ..Said::default()
        }
    }
}

impl Said {
    /// An answer of an unknown program: `<think>` and `</think>` are marks where it begins with the one, or has only the other, as behind
    /// a prompt that began the thought.
    pub fn of_text(answer: &str) -> Said {
        const OPEN: &str = "<think>";
        const CLOSE: &str = "</think>";
        let prompt = match (answer.trim_start().starts_with(OPEN), answer.find(CLOSE)) {
            (true, _) => "",
            (false, Some(end)) if !answer[..end].contains(OPEN) => OPEN,
            (false, _) => return answer.into(),
        };
        let answers = Answers {
            format: Format::named("think"),
        };
        let said = answers.read(prompt, answer);
        Said {
            alone: said.text.clone(),
            ..said
        }
    }
}

impl Answers {
    /// Those of a model that is asked through this template.
    pub fn of(template: Option<&Template>, tokenizer: &Tokenizer) -> Answers {
        let format = template.and_then(|template| Format::of(template, tokenizer));
        Answers {
            format: format.filter(|format| format.has_thoughts()),
        }
    }

    /// Whether some of an answer may be thoughts.
    pub fn have_thoughts(self) -> bool {
        self.format.is_some()
    }

    /// A mark that the model's files may name as an end, and that it goes on behind.
    pub fn goes_on_behind(self) -> Option<&'static str> {
        self.format.and_then(Format::message_end)
    }

    fn behind(self, prompt: &str) -> Option<&'static Format> {
        self.format.and_then(|format| format.behind(prompt, ""))
    }

    /// Reads a whole answer to `prompt`.
    pub fn read(self, prompt: &str, answer: &str) -> Said {
        let format = self.behind(prompt).filter(|format| format.has_thoughts());
        let Some(format) = format else {
            return answer.into();
        };
        let mut reader = AnswerReader::behind(prompt, format, None);
        let mut parts = reader.push(answer);
        let is_thinking = reader.is_thinking();
        parts.extend(reader.finish());
        let (mut text, mut thought) = (String::new(), String::new());
        for part in parts {
            match part {
                Part::Thought(more) => thought.push_str(&more),
                Part::Text(more) => text.push_str(&more),
                Part::Call(call) => text.push_str(&call.arguments),
            }
        }
        let is_unfinished = is_thinking && text.trim().is_empty();
        // Marks of messages are none of the text even where nothing was thought.
        if thought.is_empty() && !is_unfinished && !format.has_messages() && text == answer {
            return answer.into();
        }
        Said {
            alone: format.begun(&text, Some(""), prompt),
            text,
            thought: Some(thought),
            is_unfinished,
        }
    }
}

/// An answer that is being written, token by token.
#[derive(Debug)]
pub struct Writing<'a> {
    answers: Answers,
    prompt: &'a str,
    tokenizer: &'a Tokenizer,
    until: &'a [String],
    stops: Stops<'a>,
    /// Until the final message begins.
    thoughts: Option<(TextStream, AnswerReader)>,
    ids: Vec<u32>,
    /// The first token in which stop texts count.
    from: usize,
}

/// An answer that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeAnswer {
    pub said: Said,
    /// With thoughts and marks, up to the stop text.
    pub written: String,
    /// A stop text ended it.
    pub is_stopped: bool,
}

impl<'a> Writing<'a> {
    /// An answer to `prompt`, which ends before the first of `until`.
    pub fn new(
        answers: Answers,
        prompt: &'a str,
        tokenizer: &'a Tokenizer,
        until: &'a [String],
    ) -> Writing<'a> {
        let format = answers.behind(prompt).filter(|f| f.has_thoughts());
        let thoughts = format.map(|format| {
            let reader = AnswerReader::behind(prompt, format, None);
            (TextStream::default(), reader)
        });
        Writing {
            answers,
            prompt,
            tokenizer,
            until,
            stops: tokenizer.stops(until),
            thoughts,
            ids: Vec::new(),
            from: 0,
        }
    }

    /// Takes the next token; whether the answer ends with it.
    pub fn push(&mut self, id: u32) -> ControlFlow<()> {
        self.ids.push(id);
        if self.stops.lookback() == 0 {
            return ControlFlow::Continue(());
        }
        if let Some((stream, reader)) = &mut self.thoughts {
            let text = stream.push(self.tokenizer, id);
            let parts = reader.push(&text);
            if parts.iter().all(|part| matches!(part, Part::Thought(_))) {
                return ControlFlow::Continue(());
            }
            (self.thoughts, self.from) = (None, self.ids.len() - 1);
        }
        self.stops.check(&self.ids[self.from..])
    }

    pub fn prompt(&self) -> &'a str {
        self.prompt
    }

    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The answer as a text of its own.
    pub fn finish(&self) -> WholeAnswer {
        self.finish_behind(&[])
    }

    /// The same of a text that continues another, with the space before its first word.
    pub fn finish_behind(&self, before: &[u32]) -> WholeAnswer {
        let mut written = self.tokenizer.decode_behind(before, &self.ids);
        let mut said = self.answers.read(self.prompt, &written);
        // Space before a message that may follow thoughts is none of it, as in `push`.
        let space = match self.answers.have_thoughts() {
            true => said.text.len() - said.text.trim_start().len(),
            false => 0,
        };
        let found = stop_at(&said.text[space..], self.until);
        if let Some(at) = found {
            let at = space + at;
            if let Some(message) = written.rfind(&said.text) {
                written.truncate(message + at);
            }
            let rest = said.text.len() - at;
            said.alone.truncate(said.alone.len() - rest);
            said.text.truncate(at);
        }
        WholeAnswer {
            said,
            written,
            is_stopped: found.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: &str) -> Answers {
        let format = Format::named(word);
        assert!(format.is_some(), "{word}");
        Answers { format }
    }

    fn read(word: &str, prompt: &str, answer: &str) -> (Option<String>, String, bool) {
        let said = of(word).read(prompt, answer);
        (said.thought, said.text, said.is_unfinished)
    }

    #[test]
    fn thoughts_are_set_apart_in_both_conventions() {
        let said = |thought: &str, text: &str| (Some(thought.into()), text.into(), false);
        let cut = |thought: &str| (Some(thought.into()), String::new(), true);
        let (user, begun) = ("user\nassistant\n", "user\nassistant\n<think>\n");
        for (word, prompt, answer, expected) in [
            (
                "think",
                user,
                "<think>\n2+2\n</think>\n\n4",
                said("2+2", "4"),
            ),
            ("think", begun, "2+2\n</think>\n\n4", said("2+2", "4")),
            ("think+hermes", user, "<think>a</think> 4", said("a", "4")),
            ("think", user, "<think>\n\n</think>\n\n4", said("", "4")),
            ("think", user, "<think>2+2 is", cut("2+2 is")),
            ("think", user, "<think>", cut("")),
            ("think", begun, "2+2 is", cut("2+2 is")),
            ("think", begun, "", cut("")),
            ("think", user, "<think>a</think>\n", cut("a")),
            // Nothing was thought: the text is as it was written.
            ("think", user, " 4\n", (None, " 4\n".into(), false)),
            ("think", user, "", (None, "".into(), false)),
            // The prompt ended the thoughts; marks behind them are text.
            (
                "think",
                "assistant\n<think>\n\n</think>\n\n",
                "4 </think>",
                (None, "4 </think>".into(), false),
            ),
            (
                "harmony",
                "<|start|>assistant",
                "<|channel|>analysis<|message|>2+2<|end|><|start|>assistant<|channel|>final<|message|>4",
                said("2+2", "4"),
            ),
            (
                "harmony",
                "<|start|>assistant",
                "<|channel|>final<|message|>4",
                said("", "4"),
            ),
            (
                "harmony",
                "<|start|>assistant",
                "<|channel|>analysis<|message|>2+2",
                cut("2+2"),
            ),
            (
                "harmony",
                "<|start|>assistant",
                "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>fin",
                cut("a"),
            ),
        ] {
            assert_eq!(read(word, prompt, answer), expected, "{word} {answer:?}");
        }
        // A call of a tool stays text.
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
        let (_, text, _) = read("think+hermes", user, &format!("<think>a</think>\n\n{call}"));
        assert_eq!(text, call);
    }

    /// A reward model reads the message as one that nothing was thought for.
    #[test]
    fn a_message_alone_is_written_as_the_format_has_it() {
        let alone = |word: &str, prompt: &str, answer: &str| of(word).read(prompt, answer).alone;
        let empty = "<think>\n\n</think>\n\n4";
        assert_eq!(alone("think", "q\n", "<think>2+2</think>4"), empty);
        assert_eq!(alone("think", "q<think>\n", "2+2</think>4"), &empty[8..]);
        assert_eq!(alone("think", "q\n", "4"), "4");
        let both =
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>4";
        let last = "<|channel|>final<|message|>4";
        assert_eq!(alone("harmony", "<|start|>assistant", both), last);
    }

    #[test]
    fn answers_of_other_programs_are_read_by_their_marks() {
        let text = |answer: &str| Said::of_text(answer).text;
        assert_eq!(text("<think>\na\n</think>\n\n4"), "4");
        assert_eq!(text("a\n</think>\n\n4"), "4");
        assert_eq!(text("4"), "4");
        assert_eq!(text("say <think> and </think>"), "say <think> and </think>");
        assert!(Said::of_text("<think> 4").is_unfinished);
    }

    /// A thought had an empty line, which ends an answer: it was cut there.
    #[test]
    fn stop_texts_count_in_the_message_alone() {
        let json = include_str!("../../../../../../tests/fixtures/chat/tokenizer.json");
        let tokenizer = Tokenizer::from_json(json).unwrap();
        let until = vec!["\n\n".to_string(), "Question:".into()];
        let whole = |answers: Answers, text: &str| {
            let mut writing = Writing::new(answers, "assistant\n", &tokenizer, &until);
            let ids = tokenizer.encode(text).unwrap();
            let ended = ids.iter().position(|id| writing.push(*id).is_break());
            let read = tokenizer.decode(writing.ids());
            (writing.finish(), ended.map(|_| read))
        };
        let text = "<think>\nQuestion: 2\n\nand 2\n</think>\n\nIt is 4.\n\nQuestion: more of it";
        let (found, read) = whole(of("think"), text);
        assert_eq!(found.said.text, "It is 4.");
        assert_eq!(found.said.thought.as_deref(), Some("Question: 2\n\nand 2"));
        assert_eq!(found.said.alone, "<think>\n\n</think>\n\nIt is 4.");
        assert_eq!(
            found.written,
            &text[..text.find("\n\nQuestion: more").unwrap()]
        );
        assert!(found.is_stopped);
        let read = read.unwrap();
        assert!(text.starts_with(&read) && !read.contains("more"), "{read}");
        // Without such marks the first stop text counts.
        let (found, _) = whole(Answers::default(), text);
        assert_eq!(found.said.text, "<think>\n");
        // And where nothing was thought, but for space that a thought may follow.
        let (found, _) = whole(of("think"), "\n\n4\n\n5");
        assert_eq!(
            (found.said.text.as_str(), found.is_stopped),
            ("\n\n4", true)
        );
        let (found, read) = whole(of("think"), "<think>\n\n2");
        assert!(found.said.is_unfinished && read.is_none());
    }
}
