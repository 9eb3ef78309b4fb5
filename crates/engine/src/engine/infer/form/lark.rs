//! A grammar in the parser's own notation, a dialect of Lark's: each rule on a line, those that occur again once.

use crate::data::chat::tool_calls::Grammar;
use serde_json::Value;

/// The rules, of which the first is the whole; `special` says which mark is a token that stands for no text, and its id; `json`
/// makes a schema as the parser takes it.
pub(super) fn rules(
    grammar: &Grammar,
    special: &dyn Fn(&str) -> Option<u32>,
    json: &dyn Fn(&Value) -> Value,
) -> String {
    let mut writer = Writer {
        special,
        json,
        known: Vec::new(),
        rules: Vec::new(),
    };
    let whole = writer.expression(grammar);
    format!("start: {whole}\n{}", writer.rules.concat())
}

struct Writer<'a> {
    special: &'a dyn Fn(&str) -> Option<u32>,
    json: &'a dyn Fn(&Value) -> Value,
    /// What has a rule, and its name.
    known: Vec<(Grammar, String)>,
    rules: Vec<String>,
}

impl Writer<'_> {
    fn expression(&mut self, grammar: &Grammar) -> String {
        match grammar {
            Grammar::Text(text) => quoted(text),
            Grammar::Mark(mark) => self.mark(mark),
            Grammar::Pattern(pattern) => format!("/{pattern}/"),
            Grammar::All(parts) if parts.is_empty() => quoted(""),
            Grammar::All(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| self.expression(part)).collect();
                parts.join(" ")
            }
            Grammar::Many(part) => format!("({})*", self.expression(part)),
            Grammar::One(options) if options.len() == 1 => self.expression(&options[0]),
            Grammar::Until {
                end,
                without,
                least,
                most,
            } => self.until(end, without, *least, *most),
            Grammar::Json(_) | Grammar::One(_) | Grammar::Without(_) | Grammar::Joined(..) => {
                self.named(grammar)
            }
        }
    }

    fn mark(&self, mark: &str) -> String {
        match (self.special)(mark) {
            Some(id) => format!("<[{id}]>"),
            None => quoted(mark),
        }
    }

    /// The name of the rule, which is written once.
    fn named(&mut self, grammar: &Grammar) -> String {
        if let Some((_, name)) = self.known.iter().find(|(known, _)| known == grammar) {
            return name.clone();
        }
        let body = match grammar {
            Grammar::Json(schema) => format!("%json {}", (self.json)(schema)),
            Grammar::One(options) => {
                let options: Vec<String> = options.iter().map(|of| self.expression(of)).collect();
                options.join(" | ")
            }
            Grammar::Without(words) => without(words),
            Grammar::Joined(items, between) => return self.joined(items, between),
            other => self.expression(other),
        };
        let name = match grammar {
            Grammar::Without(_) => self.token(&body),
            _ => self.rule("", &body),
        };
        self.known.push((grammar.clone(), name.clone()));
        name
    }

    /// One that ends where it cannot go on: only those may leave texts out, and their names are in capitals.
    fn token(&mut self, body: &str) -> String {
        let name = format!("T{}", self.rules.len());
        self.rules.push(format!("{name}: {body}\n"));
        name
    }

    fn rule(&mut self, attributes: &str, body: &str) -> String {
        let name = format!("r{}", self.rules.len());
        self.rules.push(format!("{name}{attributes}: {body}\n"));
        name
    }

    /// It ends where its end is first met: it is lazy. The end is no part of what is left out.
    fn until(&mut self, end: &str, words: &[&str], least: u64, most: Option<u64>) -> String {
        if (self.special)(end).is_some() {
            return format!("{} {}", self.named(&Grammar::Without(&[])), self.mark(end));
        }
        let most = most.map(|most| most.to_string()).unwrap_or_default();
        let any = match (least, most.as_str()) {
            (0, "") => "/(?s:.*)/".to_string(),
            // No text at all.
            (_, "0") => String::new(),
            (least, most) => format!("/(?s:.{{{least},{most}}})/"),
        };
        let behind = words.iter().map(|word| quoted(word));
        let behind = behind.collect::<Vec<_>>().join(" | ");
        let end = quoted(end);
        self.rule(
            "[lazy]",
            &format!("{any} {end} & ~(/(?s:.*)/ ({behind}) /(?s:.+)/)"),
        )
    }

    /// From the last item on: what follows where one is written before it, and where none is.
    fn joined(&mut self, items: &[(bool, Grammar)], between: &str) -> String {
        let (mut behind, mut first) = (quoted(""), quoted(""));
        for (is_required, item) in items.iter().rev() {
            let item = self.expression(item);
            let next = format!("{} {item} {behind}", quoted(between));
            let begun = format!("{item} {behind}");
            let (next, begun) = match is_required {
                true => (next, begun),
                false => (format!("{next} | {behind}"), format!("{begun} | {first}")),
            };
            first = self.rule("", &begun);
            behind = self.rule("", &next);
        }
        first
    }
}

fn without(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    match words.is_empty() {
        true => "/(?s:.*)/".into(),
        false => format!("/(?s:.*)/ & ~(/(?s:.*)/ ({}) /(?s:.*)/)", words.join(" | ")),
    }
}

/// As JSON is, which the notation has in common.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
