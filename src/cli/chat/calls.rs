//! The parts of a conversation's answers: thoughts, text, and tool calls, which are answered by `/tool TEXT`. Nothing is executed.

use crate::base::text::{one_line, sanitize};
use crate::cli::out;
use crate::data::chat::tool_calls::{
    AnswerReader, Call, Format, Part, ReadAnswer, Tools, read_all,
};
use crate::wire::Turn;
use serde_json::Value;

/// Columns where the terminal does not say how many it has.
const COLUMNS: usize = 80;
const INDENT: &str = "    ";

/// The calls of the last answer, and their results as far as they are there.
#[derive(Debug, Default)]
pub struct Calls {
    tools: Tools,
    format: Option<&'static Format>,
    reader: Option<AnswerReader>,
    asked: Vec<Call>,
    results: Vec<Turn>,
}

/// What a result leads to.
#[derive(Debug, PartialEq)]
pub enum Answered {
    /// No call waits for one.
    NoCall,
    /// The call of this function waits next.
    Next(String),
    /// All have theirs: turns for the model.
    All(Vec<Turn>),
}

impl Calls {
    pub fn new(tools: Vec<Value>) -> Calls {
        Calls {
            tools: Tools::new(tools),
            ..Calls::default()
        }
    }

    /// An answer begins, whose calls are in the format of this name; `as_written`: they stay text, but for those of a format of messages.
    pub fn begin(&mut self, word: Option<&str>, as_written: bool) {
        self.format = word.and_then(Format::named);
        let tools = self.tools.clone();
        self.reader = self.format.map(|format| {
            let reads_calls = !as_written || format.has_messages();
            AnswerReader::behind("", format, reads_calls.then_some(tools))
        });
    }

    /// What can be shown of an answer by now.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        match &mut self.reader {
            Some(reader) => reader.push(text),
            None => vec![Part::Text(text.into())],
        }
    }

    /// The rest, at its end.
    pub fn finish(&mut self) -> Vec<Part> {
        self.reader
            .take()
            .map_or_else(Vec::new, AnswerReader::finish)
    }

    /// Whether the answer has thoughts, which stand apart from its text.
    pub fn has_thoughts(&self) -> bool {
        self.format.is_some_and(Format::has_thoughts)
    }

    /// The parts of a whole answer, which is turn number `turn`, its calls in their order.
    pub fn of(&self, answer: &str, turn: usize) -> ReadAnswer {
        let Some(format) = self.format else {
            return ReadAnswer {
                text: answer.into(),
                ..ReadAnswer::default()
            };
        };
        let mut read = read_all(format, &self.tools, answer);
        let calls = std::mem::take(&mut read.calls).into_iter().enumerate();
        read.calls = calls.map(|(at, call)| call.numbered(turn, at)).collect();
        read
    }

    /// An answer as turn number `at` of the conversation; its calls wait for results.
    pub fn turn(&mut self, answer: &str, at: usize) -> Turn {
        let read = self.of(answer, at);
        self.results.clear();
        let fields = read.fields();
        self.asked = read.calls;
        // What is no call stays as it was written.
        if self.asked.is_empty() && !self.has_thoughts() {
            return Turn::new("assistant", answer);
        }
        let mut turn = Turn::new("assistant", read.text);
        turn.extra = fields;
        turn
    }

    /// Nothing waits any more.
    pub fn forget(&mut self) {
        self.asked.clear();
        self.results.clear();
    }

    /// The results can be given again.
    pub fn take_back(&mut self) {
        self.results.clear();
    }

    /// The function of the call that waits next.
    pub fn waits(&self) -> Option<&str> {
        let call = self.asked.get(self.results.len())?;
        Some(&call.name)
    }

    /// Takes the result of the next call.
    pub fn answer(&mut self, result: &str) -> Answered {
        let Some(call) = self.asked.get(self.results.len()) else {
            return Answered::NoCall;
        };
        let mut turn = Turn::new("tool", result);
        turn.extra = call.result_fields();
        self.results.push(turn);
        match self.waits() {
            Some(next) => Answered::Next(next.into()),
            None => Answered::All(self.results.clone()),
        }
    }
}

/// The function's name, and below it the arguments.
pub fn shown(call: &Call, columns: Option<usize>) -> String {
    let mut text = format!("call {}", one_line(&call.name));
    for line in call.lines() {
        let indent = " ".repeat(line.indent);
        let words = sanitize(&line.text);
        text.push_str(&format!("\n{INDENT}{indent}{words}"));
    }
    out::wrapped(&text, Some(columns.unwrap_or(COLUMNS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CALLS: &str = "Both.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>";

    #[test]
    fn each_call_gets_its_result() {
        let mut calls = Calls::new(Vec::new());
        calls.begin(Some("hermes"), false);
        assert_eq!(calls.answer("3"), Answered::NoCall);
        let turn = calls.turn(CALLS, 2);
        assert_eq!(turn.content, "Both.");
        let said = json!([
            {"type": "function", "id": "call00200", "function": {"name": "add", "arguments": {"a": 1}}},
            {"type": "function", "id": "call00201", "function": {"name": "now", "arguments": {}}},
        ]);
        assert_eq!(turn.extra["tool_calls"], said);
        assert_eq!(calls.answer("3"), Answered::Next("now".into()));
        let Answered::All(turns) = calls.answer("noon") else {
            panic!("both have a result");
        };
        let words: Vec<_> = turns
            .iter()
            .map(|t| (t.role.as_str(), t.content.as_str()))
            .collect();
        assert_eq!(words, [("tool", "3"), ("tool", "noon")]);
        assert_eq!(turns[1].extra["tool_call_id"], "call00201");
        assert_eq!(calls.waits(), None);
        calls.take_back();
        assert_eq!(calls.waits(), Some("add"));
        assert_eq!(
            calls.turn("No call.", 4),
            Turn::new("assistant", "No call.")
        );
        assert_eq!(calls.waits(), None);
    }

    #[test]
    fn a_call_is_readable_in_a_narrow_terminal() {
        let call = Call {
            name: "find".into(),
            arguments: json!({"what": "a word after another ".repeat(3), "n": 2}).to_string(),
            id: None,
        };
        let text = shown(&call, Some(34));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= 34), "{text}");
        assert_eq!(
            (lines[0], lines[lines.len() - 1]),
            ("call find", "    n: 2")
        );
        assert!(lines[1].starts_with("    what: \"a word"), "{text}");
        assert!(lines[2].starts_with("      "), "{text}");
    }
}
