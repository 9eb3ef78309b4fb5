//! `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`: Mistral's templates; those from 2025 on write `[TOOL_CALLS]name[ARGS]{…}`,
//! some with `[CALL_ID]id` in between.

use super::json::{self, Json};
use super::{Block, Call, Callable, Format, Grammar, Reading};

const MARK: &str = "[TOOL_CALLS]";
const ID: &str = "[CALL_ID]";
const ARGUMENTS: &str = "[ARGS]";
/// Longest name and id of a call, in bytes.
const MAX_HEAD: usize = 256;

pub(super) const FORMAT: Format = Format {
    word: "mistral",
    marks: &[MARK],
    bare: None,
    read,
    write,
    turn_ends: &[],
    thinks: None,
};

fn read(text: &str, _: Reading) -> Block {
    let inner = text.strip_prefix(MARK).unwrap_or(text).trim_start();
    let before = text.len() - inner.len();
    match inner.chars().next() {
        None => Block::Open,
        Some('[') => list(inner, before),
        Some(_) => named(inner, before),
    }
}

fn list(inner: &str, before: usize) -> Block {
    match Json::begins(inner) {
        Json::Open => Block::Open,
        Json::Whole(written, len) => {
            let items = written.items();
            let calls: Option<Vec<Call>> =
                items.and_then(|items| items.iter().map(json::call).collect());
            match calls {
                Some(calls) if !calls.is_empty() => Block::Calls(calls, before + len),
                _ => Block::Text,
            }
        }
        Json::Wrong => Block::Text,
    }
}

fn named(inner: &str, before: usize) -> Block {
    let at = inner.find('{');
    let head = &inner[..at.unwrap_or(inner.len())];
    if head.len() > MAX_HEAD || head.contains('\n') {
        return Block::Text;
    }
    let Some(at) = at else {
        return Block::Open;
    };
    let (arguments, len) = match Json::begins(&inner[at..]) {
        Json::Whole(arguments, len) => (arguments, len),
        Json::Open => return Block::Open,
        Json::Wrong => return Block::Text,
    };
    let head = head.trim_end().trim_end_matches(ARGUMENTS);
    let (name, id) = match head.split_once(ID) {
        Some((name, id)) => (name, Some(id)),
        None => (head, None),
    };
    let name = name.trim();
    match arguments.arguments().filter(|_| !name.is_empty()) {
        Some(arguments) => {
            let call = Call {
                name: name.into(),
                arguments,
                id: id.map(String::from),
            };
            Block::Calls(vec![call], before + at + len)
        }
        None => Block::Text,
    }
}

/// A list, or names where the vocabulary has what stands behind them.
fn write(callable: &Callable) -> Result<Grammar, String> {
    let call = callable.any(|function| function.object("arguments"))?;
    let list = Grammar::All(vec![
        Grammar::maybe(Grammar::text(" ")),
        Grammar::text("["),
        callable.listed(call, ", "),
        Grammar::text("]"),
    ]);
    if !(callable.is_token)(ARGUMENTS) {
        return Ok(list);
    }
    let id = match (callable.is_token)(ID) {
        true => Grammar::maybe(Grammar::All(vec![
            Grammar::Mark(ID),
            Grammar::Pattern("[a-zA-Z0-9]{9}"),
        ])),
        false => Grammar::All(Vec::new()),
    };
    let named = callable.any(|function| {
        Ok(Grammar::All(vec![
            Grammar::text(function.name),
            id.clone(),
            Grammar::Mark(ARGUMENTS),
            Grammar::Json(function.arguments()?),
        ]))
    })?;
    let further = Grammar::All(vec![Grammar::Mark(MARK), named.clone()]);
    Ok(Grammar::One(vec![list, callable.repeated(named, further)]))
}
