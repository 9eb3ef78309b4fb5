//! The Jinja that chat templates are written in: Hugging Face's (`transformers.utils.chat_template_utils`), as an engine.
//!
//! Bounded: instructions (fuel), the size of what is printed (the writer's matter, see [`super::Template::render`]), the
//! template's size and depth ([`super::scan`]); there is no loader, so nothing can be included. **Not** bounded by fuel
//! is memory inside one instruction: a template that doubles a string thirty times, or replaces each letter of one by a
//! thousand, asks for gigabytes in a few dozen instructions. A template from a stranger is therefore tried out in
//! the limited child process before this process sees it, and rendered within a budget ([`super::bounded`]).

use super::json::tojson;
use super::scan::GENERATION_FILTER;
use jiff::civil::Date;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Tuple, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat;

/// Instructions that one rendering may take, a second's work: a conversation of 1,000 turns with tools takes about 100,000. gpt-oss's
/// template looks for a later answer behind each call, which for 2,000 turns of calls takes more than ten million.
pub const FUEL: u64 = 20_000_000;

/// They stand around generated text while a template renders, and nowhere else: noncharacters, which Unicode keeps out
/// of text that is exchanged.
pub const GENERATED_START: char = '\u{fdd0}';
pub const GENERATED_END: char = '\u{fdd1}';

/// A template's own refusal, by `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Raised(pub String);

/// The engine for one template, which is added by the caller. `today` is what `strftime_now` returns.
pub fn environment(today: Date) -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    // Only delimiters can be refused, and these are Jinja's own.
    env.set_syntax(syntax.unwrap_or_default());
    env.set_fuel(Some(FUEL));
    env.set_debug(false);
    env.set_recursion_limit(100);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(method);
    env.add_test("iterable", is_iterable);
    env.add_filter("tojson", tojson);
    env.add_filter(GENERATION_FILTER, |text: String| {
        format!("{GENERATED_START}{text}{GENERATED_END}")
    });
    env.add_function(
        "raise_exception",
        |message: Value| -> Result<Value, Error> {
            let message = message.to_string();
            Err(Error::new(ErrorKind::InvalidOperation, message.clone())
                .with_source(Raised(message)))
        },
    );
    env.add_function(
        "strftime_now",
        move |format: String| -> Result<String, Error> {
            let midnight = today.to_datetime(jiff::civil::Time::midnight());
            jiff::fmt::strtime::format(&format, midnight)
                .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))
        },
    );
    env
}

/// As Python has it: `none` is not iterable, which templates rely on to ask whether there are tools.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Methods of Python's strings that pycompat lacks and official templates use.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let ours = match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) => string_method(text, name, args)?,
        (ValueKind::Map, _) if name == "copy" => {
            let () = from_args(args)?;
            Some(value.clone())
        }
        _ => None,
    };
    match ours {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn string_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, separator, name == "rpartition")
        }
        "rsplit" => {
            let (separator, most): (&str, Option<i64>) = from_args(args)?;
            let most = most
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(usize::MAX - 1);
            let mut parts: Vec<Value> =
                text.rsplitn(most + 1, separator).map(Value::from).collect();
            parts.reverse();
            Value::from(parts)
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn partition(text: &str, separator: &str, from_end: bool) -> Value {
    let found = match from_end {
        true => text.rsplit_once(separator),
        false => text.split_once(separator),
    };
    let parts = match (found, from_end) {
        (Some((before, after)), _) => [before, separator, after],
        (None, true) => ["", "", text],
        (None, false) => [text, "", ""],
    };
    Value::from(Tuple::from(parts.map(Value::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String, Error> {
        environment(jiff::civil::date(2024, 7, 26)).render_str(source, ())
    }

    #[test]
    fn python_methods_are_there() {
        for (source, python) in [
            ("{{ 'a-b-c'.rsplit('-', 1) }}", "['a-b', 'c']"),
            ("{{ 'a-b'.partition('-')[2] }}", "b"),
            ("{{ 'ab'.rpartition('-') }}", "('', '', 'ab')"),
            ("{{ '<x>'.removeprefix('<').removesuffix('>') }}", "x"),
            ("{{ 'a</think>b'.split('</think>')[-1] }}", "b"),
            ("{{ [1, 2, 3][::-1] }}{{ 'abc'[:-1] }}", "[3, 2, 1]ab"),
            ("{{ {'a': none}.get('a', 1) }}{{ true }}", "NoneTrue"),
            (
                "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
                "13",
            ),
            ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ] {
            assert_eq!(render(source).unwrap(), python, "{source}");
        }
    }

    #[test]
    fn blocks_are_trimmed_as_transformers_trims_them() {
        let source = "a\n  {% if true %}\n b\n  {% endif %}\nc\n";
        assert_eq!(render(source).unwrap(), "a\n b\nc");
    }

    #[test]
    fn endless_work_runs_out_of_fuel_and_nothing_is_loaded() {
        let error =
            render("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}");
        assert_eq!(error.unwrap_err().kind(), ErrorKind::OutOfFuel);
        assert!(render("{% include '/etc/passwd' %}").is_err());
        assert!(render("{{ ''.__class__.__mro__ }}").is_err());
    }
}
