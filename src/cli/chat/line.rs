//! A line typed in a conversation: a command, or a text for the model.

/// What a line means, whatever the model.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedLine<'l> {
    Text(&'l str),
    Help,
    New,
    Quit,
    Adapter(Option<&'l str>),
    /// The result of a call; none: which one waits.
    Tool(Option<&'l str>),
    Unknown(&'l str),
}

/// Every command, for `/help` and where one was mistyped.
pub const HELP: &str = "/adapter NAME, /adapter off  answer with an adapter (name, part of it, or number), or without; /adapter lists them
/help                        this list
/new                         start a new conversation; keeps the system prompt
/quit                        quit; Ctrl-D does the same
/tool TEXT                   the result of the tool call that waits; /tool alone names it
//TEXT                       send /TEXT to the model; a line that begins with a space is sent as it is";

/// A slash and a word begin a command; paths, fractions and a doubled slash do not.
pub fn parse(line: &str) -> ParsedLine<'_> {
    if line.starts_with("//") {
        return ParsedLine::Text(&line[1..]);
    }
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_word = |name: &str| {
        let part_of_word = |c: char| c.is_alphanumeric() || "-_?".contains(c);
        !name.is_empty() && name.chars().all(part_of_word)
    };
    match line.strip_prefix('/') {
        Some(_) if first.strip_prefix('/').is_some_and(is_word) => match first {
            "/help" | "/?" => ParsedLine::Help,
            "/new" => ParsedLine::New,
            "/quit" | "/exit" | "/bye" => ParsedLine::Quit,
            "/adapter" => ParsedLine::Adapter(words.next()),
            "/tool" => {
                let text = line["/tool".len()..].trim();
                ParsedLine::Tool((!text.is_empty()).then_some(text))
            }
            _ => ParsedLine::Unknown(first),
        },
        _ => ParsedLine::Text(line),
    }
}
