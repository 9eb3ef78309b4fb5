//! `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes 2 Pro, Qwen 2.5, Qwen 3, SmolLM 3 and many others.

use super::json::{self, Json};
use super::{Block, Callable, Format, Grammar, Reading};

const START: &str = "<tool_call>";
const END: &str = "</tool_call>";

pub(super) const FORMAT: Format = Format {
    word: "hermes",
    marks: &[START],
    bare: None,
    read,
    write,
    turn_ends: &[],
    thinks: None,
};

fn read(text: &str, reading: Reading) -> Block {
    let inner = text.strip_prefix(START).unwrap_or(text);
    let (value, len) = match Json::begins(inner) {
        Json::Whole(value, len) => (value, len),
        Json::Open => return Block::Open,
        Json::Wrong => return Block::Text,
    };
    let Some(call) = json::call(&value) else {
        return Block::Text;
    };
    let rest = &inner[len..];
    let behind = rest.trim_start();
    if behind.starts_with(END) {
        let taken = text.len() - behind.len() + END.len();
        return Block::Calls(vec![call], taken);
    }
    match (END.starts_with(behind), reading.is_end) {
        // The model may end its turn instead.
        (true, true) => Block::Calls(vec![call], text.len()),
        (true, false) => Block::Open,
        (false, _) => Block::Text,
    }
}

fn write(callable: &Callable) -> Result<Grammar, String> {
    let call = Grammar::All(vec![
        Grammar::line_break(),
        callable.any(|function| function.object("arguments"))?,
        Grammar::line_break(),
        Grammar::Mark(END),
    ]);
    let further = vec![Grammar::line_break(), Grammar::Mark(START), call.clone()];
    Ok(callable.repeated(call, Grammar::All(further)))
}
