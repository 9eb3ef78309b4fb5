//! `{"name": …, "parameters": {…}}` as the whole answer, or behind `<|python_tag|>`: Llama 3.1 to 3.3. Several calls follow each
//! other, some with a semicolon in between. Only calls of tools that are there count: an answer may be JSON of another kind.

use super::json::{self, Json};
use super::{Block, Callable, Format, Grammar, Reading};

const TAG: &str = "<|python_tag|>";

pub(super) const FORMAT: Format = Format {
    word: "llama3",
    marks: &[TAG],
    bare: Some("{"),
    read,
    write,
    turn_ends: &[],
    thinks: None,
};

fn read(text: &str, reading: Reading) -> Block {
    let inner = text.strip_prefix(TAG).unwrap_or(text);
    match Json::begins(inner) {
        Json::Open => Block::Open,
        Json::Wrong => Block::Text,
        Json::Whole(value, len) => match json::call(&value) {
            Some(call) if reading.tools.has(&call.name) => {
                Block::Calls(vec![call], text.len() - inner.len() + len)
            }
            _ => Block::Text,
        },
    }
}

fn write(callable: &Callable) -> Result<Grammar, String> {
    let call = callable.any(|function| function.object("parameters"))?;
    Ok(callable.listed(call, "; "))
}
