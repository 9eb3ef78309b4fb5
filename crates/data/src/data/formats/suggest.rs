//! What rows probably mean whose columns have names that no format knows, or of which only the prompt is read: by the words in
//! their names, in some languages. A guess is never taken by itself: it is shown, and somebody accepts it.

use super::{FormatId, Shape};
use crate::base::text::one_line;
use crate::data::Record;
use serde_json::{Map, Value};

const ASKED: &[&str] = &[
    "prompt",
    "question",
    "instruction",
    "query",
    "input",
    "problem",
    "request",
    "user",
    "human",
    "ask",
    "q",
    "frage",
    "aufgabe",
    "anweisung",
    "eingabe",
    "pregunta",
    "instruccion",
    "instrucción",
    "domanda",
    "istruzione",
    "pergunta",
    "consigne",
    "вопрос",
    "问题",
    "指令",
    "質問",
    "問題",
    "질문",
];
const ANSWERED: &[&str] = &[
    "completion",
    "response",
    "answer",
    "output",
    "reply",
    "solution",
    "assistant",
    "bot",
    "a",
    "antwort",
    "ausgabe",
    "lösung",
    "loesung",
    "réponse",
    "reponse",
    "respuesta",
    "risposta",
    "resposta",
    "ответ",
    "回答",
    "答案",
    "输出",
    "답변",
];
const GOOD: &[&str] = &[
    "chosen",
    "good",
    "better",
    "best",
    "preferred",
    "accepted",
    "positive",
    "winner",
    "winning",
    "win",
    "gut",
    "besser",
];
const BAD: &[&str] = &[
    "rejected",
    "bad",
    "worse",
    "worst",
    "dispreferred",
    "negative",
    "loser",
    "losing",
    "lose",
    "schlecht",
    "schlechter",
];
/// Of columns about a row, which are no part of it, or that rewards read.
const ABOUT: &[&str] = &[
    "id",
    "uid",
    "uuid",
    "index",
    "idx",
    "source",
    "url",
    "date",
    "lang",
    "language",
    "type",
    "category",
    "topic",
    "level",
    "difficulty",
    "label",
    "split",
    "subset",
    "score",
    "rating",
    "tests",
    "test",
    "metadata",
    "hash",
];

/// A format, and which columns would be its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub format: FormatId,
    pub parts: Vec<(&'static str, String)>,
}

impl Suggestion {
    /// In the words of a command; in those of a spec where a shell would read names otherwise.
    pub fn fix(&self) -> String {
        let plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        if self
            .parts
            .iter()
            .all(|(_, column)| column.chars().all(plain))
        {
            let parts = self.parts.iter();
            let columns = parts.map(|(part, column)| format!(" -s data.columns.{part}={column}"));
            return format!(
                "-s data.format={}{}",
                self.format,
                columns.collect::<String>()
            );
        }
        let parts = self.parts.iter();
        let parts: Vec<String> = parts
            .map(|(part, column)| format!("{part}: {}", one_line(column)))
            .collect();
        let columns = parts.join(", ");
        format!(
            "data.format: {} with data.columns: {{{columns}}}",
            self.format
        )
    }

    /// `chosen from good, rejected from bad`
    pub fn words(&self) -> String {
        let parts = self.parts.iter();
        let parts: Vec<String> = parts
            .map(|(part, column)| format!("{part} from {}", one_line(column)))
            .collect();
        parts.join(", ")
    }
}

/// Whether a column's name has one of these words in it: `answer_good` has two. A single letter is a word only where it is the
/// whole name: `option_a` is one of several options.
fn says(name: &str, words: &[&str]) -> bool {
    let name = name.to_lowercase();
    let mut parts = name.split(|c: char| !c.is_alphanumeric());
    parts.any(|part| words.contains(&part) && (part.len() > 1 || part == name))
}

/// Columns with text that are no remarks about the row.
pub(in crate::data) fn texts(fields: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let is_text = |value: &Value| Shape::Prose.fits(value) && value.as_str() != Some("");
    let texts = fields.iter().filter(move |(_, value)| is_text(value));
    let names = texts.map(|(name, _)| name.as_str());
    names.filter(|name| !says(name, ABOUT))
}

/// Whether a column is an answer by its name.
pub(in crate::data) fn is_answer(name: &str) -> bool {
    says(name, ANSWERED) || says(name, GOOD) || says(name, BAD)
}

/// What rows that fit no format probably are: of two columns with text of which one is named as a question or an answer, the other is
/// the other; of two without such names, the first is the question.
pub fn suggest(sample: &[Record]) -> Option<Suggestion> {
    let columns = common(sample);
    named(&columns).or_else(|| {
        let [a, b] = columns[..] else { return None };
        let turned = says(a, ANSWERED) || says(b, ASKED);
        let (asked, answered) = if turned { (b, a) } else { (a, b) };
        Some(asked_and_answered(asked, answered))
    })
}

/// What rows probably are of which only the prompt is read: by names alone. A column of another name may be anything.
pub fn suggest_answers(sample: &[Record]) -> Option<Suggestion> {
    named(&common(sample))
}

/// Columns with text beside the prompt, of rows of which only the prompt is read.
pub fn unread(sample: &[Record], prompt: &str) -> Vec<String> {
    let others = common(sample).into_iter().filter(|name| *name != prompt);
    others.map(one_line).collect()
}

/// Columns with text in the rows of the sample; a few cells may be empty.
fn common(sample: &[Record]) -> Vec<&str> {
    // The first of those with the most: a cell of any row may be empty, also of the first.
    let fullest = sample.iter().rev();
    let Some(fullest) = fullest.max_by_key(|row| texts(&row.fields).count()) else {
        return Vec::new();
    };
    let has = |row: &&Record, name: &str| texts(&row.fields).any(|other| other == name);
    let mostly = |name: &&str| {
        let rows = sample.iter().filter(|row| has(row, name)).count();
        rows * 10 >= sample.len() * 9
    };
    texts(&fullest.fields).filter(mostly).collect()
}

fn named(columns: &[&str]) -> Option<Suggestion> {
    let judged = |words: &[&str]| columns.iter().copied().find(|name| says(name, words));
    let is_asked = |name: &&str| says(name, ASKED) && !is_answer(name);
    let asked = columns.iter().copied().find(is_asked)?;
    if let (Some(good), Some(bad)) = (judged(GOOD), judged(BAD))
        && good != bad
    {
        let parts = [("prompt", asked), ("chosen", good), ("rejected", bad)];
        return Some(Suggestion {
            format: FormatId::Preference,
            parts: parts.map(|(part, name)| (part, name.to_string())).into(),
        });
    }
    Some(asked_and_answered(asked, judged(ANSWERED)?))
}

/// Turns of a conversation, as a model that follows instructions reads them.
fn asked_and_answered(asked: &str, answered: &str) -> Suggestion {
    let parts = [("instruction", asked), ("response", answered)];
    Suggestion {
        format: FormatId::InstructionResponse,
        parts: parts.map(|(part, name)| (part, name.to_string())).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Place;

    fn rows(rows: &[&str]) -> Vec<Record> {
        let record = |text: &&str| Record {
            place: Place {
                file: "a.jsonl".into(),
                row: 1,
            },
            fields: serde_json::from_str(text).unwrap(),
        };
        rows.iter().map(record).collect()
    }

    #[test]
    fn pairs_and_answers_are_known_by_words_in_their_names() {
        for (row, words) in [
            (
                r#"{"question": "q", "good": "a", "bad": "b"}"#,
                "prompt from question, chosen from good, rejected from bad",
            ),
            (
                r#"{"id": "7", "user_query": "q", "answer_worst": "b", "answer_best": "a"}"#,
                "prompt from user_query, chosen from answer_best, rejected from answer_worst",
            ),
            (
                r#"{"Frage": "q", "Antwort": "a", "Quelle-url": "x"}"#,
                "instruction from Frage, response from Antwort",
            ),
            (
                r#"{"left": "q", "right": "a"}"#,
                "instruction from left, response from right",
            ),
            (
                r#"{"answer": "a", "what": "q"}"#,
                "instruction from what, response from answer",
            ),
        ] {
            let found = suggest(&rows(&[row])).map(|found| found.words());
            assert_eq!(found.as_deref(), Some(words), "{row}");
        }
        let fix = suggest(&rows(&[r#"{"Frage": "q", "Antwort": "a"}"#]))
            .unwrap()
            .fix();
        assert_eq!(
            fix,
            "-s data.format=instruction_response -s data.columns.instruction=Frage -s data.columns.response=Antwort"
        );
        let fix = suggest(&rows(&[r#"{"Die Frage": "q", "Antwort": "a"}"#]))
            .unwrap()
            .fix();
        assert_eq!(
            fix,
            "data.format: instruction_response with data.columns: {instruction: Die Frage, response: Antwort}"
        );
    }

    #[test]
    fn what_names_do_not_say_is_not_guessed() {
        let three = [r#"{"x": "q", "y": "a", "z": "b"}"#];
        assert_eq!(suggest(&rows(&three)), None);
        // A column that some rows lack is none of an answer.
        let some = [r#"{"Frage": "q", "Antwort": "a"}"#, r#"{"Frage": "q"}"#];
        assert_eq!(suggest(&rows(&some)), None);
        // One empty cell among many says nothing of the column.
        let mut many = vec![r#"{"My question": "q", "Agent Reply": "a"}"#; 40];
        many.push(r#"{"My question": "", "Agent Reply": "a"}"#);
        let words = "instruction from My question, response from Agent Reply";
        for _ in 0..2 {
            let found = suggest(&rows(&many)).map(|found| found.words());
            assert_eq!(found.as_deref(), Some(words));
            // Nor does it as the first.
            many.reverse();
        }
        // Beside a prompt, a column of any name is no answer.
        let two = [r#"{"question": "q", "remark": "a"}"#];
        assert_eq!(suggest_answers(&rows(&two)), None);
        assert_eq!(suggest(&[]), None);
    }

    /// Rows of a test with options trained on option A, whichever was right.
    #[test]
    fn a_single_letter_is_a_word_only_where_it_is_the_whole_name() {
        let options = [
            r#"{"question": "q", "option_a": "x", "option_b": "y", "option_c": "z", "label": "B"}"#,
        ];
        assert_eq!(suggest(&rows(&options)), None);
        assert_eq!(suggest_answers(&rows(&options)), None);
        let letters = [r#"{"Q": "why", "A": "so", "more": "x"}"#];
        let found = suggest(&rows(&letters)).map(|found| found.words());
        assert_eq!(
            found.as_deref(),
            Some("instruction from Q, response from A")
        );
    }
}
