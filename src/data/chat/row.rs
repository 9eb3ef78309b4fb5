//! Templates and expressions over the columns of one row, in the same Jinja as chat templates: prompts of evaluation tasks.
//! A column that is not there is an error, newlines around blocks stay as they are written.

use super::{MAX_OUTPUT, TODAY, dialect, explain};
use crate::base::text::one_line;
use crate::data::DataError;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use serde_json::{Map, Value};

/// The engine of chat templates, strict about names, with `regex_replace(pattern, with)`.
fn environment() -> Environment<'static> {
    let mut env = dialect::environment(TODAY);
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    // Only delimiters can be refused, and these are Jinja's own.
    env.set_syntax(syntax.unwrap_or_default());
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.add_filter(
        "regex_replace",
        |text: &str, pattern: &str, with: &str| -> Result<String, Error> {
            let pattern = regex::Regex::new(pattern)
                .map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))?;
            Ok(pattern.replace_all(text, with).into_owned())
        },
    );
    env
}

/// What broke, and which columns there are where one is missing.
fn broken(place: &str, error: &Error, row: &Map<String, Value>) -> DataError {
    let mut what = explain(error);
    if error.kind() == ErrorKind::UndefinedError {
        let columns: Vec<&str> = row.keys().map(String::as_str).collect();
        what = format!("{what}; the row has the columns {}", columns.join(", "));
    }
    fault(place, &what)
}

fn fault(place: &str, what: &str) -> DataError {
    DataError::Template {
        place: one_line(place),
        what: one_line(what),
        fix: "correct the template: columns of the row are its variables",
    }
}

/// Text out of a row: `Question: {{ question }}`.
#[derive(Debug, Clone)]
pub struct RowTemplate {
    name: String,
    env: Environment<'static>,
}

impl RowTemplate {
    /// `name` is for messages.
    ///
    /// # Errors
    /// Not a template.
    pub fn new(name: &str, source: &str) -> Result<RowTemplate, DataError> {
        let mut env = environment();
        env.add_template_owned(super::NAME, source.to_string())
            .map_err(|e| fault(name, &explain(&e)))?;
        Ok(RowTemplate {
            name: name.to_string(),
            env,
        })
    }

    /// # Errors
    /// A column that the row lacks, or whatever breaks in the template.
    pub fn render(&self, row: &Map<String, Value>) -> Result<String, DataError> {
        let broken = |e: Error| broken(&self.name, &e, row);
        let template = self.env.get_template(super::NAME).map_err(broken)?;
        let text = template
            .render(minijinja::value::Serde(row))
            .map_err(broken)?;
        match text.len() > MAX_OUTPUT {
            true => Err(fault(&self.name, "it printed more than 64 MiB")),
            false => Ok(text),
        }
    }
}

/// A value out of a row: `choices.text`, `[sol1, sol2]`.
#[derive(Debug, Clone)]
pub struct Formula {
    name: String,
    source: String,
    env: Environment<'static>,
}

impl Formula {
    /// `name` is for messages.
    ///
    /// # Errors
    /// Not an expression.
    pub fn new(name: &str, source: &str) -> Result<Formula, DataError> {
        let env = environment();
        env.compile_expression(source)
            .map_err(|e| fault(name, &explain(&e)))?;
        Ok(Formula {
            name: name.to_string(),
            source: source.to_string(),
            env,
        })
    }

    /// # Errors
    /// A column that the row lacks, or whatever breaks in the expression.
    pub fn value(&self, row: &Map<String, Value>) -> Result<Value, DataError> {
        let broken = |e: Error| broken(&self.name, &e, row);
        let expression = self.env.compile_expression(&self.source).map_err(broken)?;
        let value = expression
            .eval(minijinja::value::Serde(row))
            .map_err(broken)?;
        if value.is_undefined() {
            return Err(fault(
                &self.name,
                &format!("`{}` is nothing in this row", self.source),
            ));
        }
        serde_json::to_value(&value).map_err(|e| fault(&self.name, &e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row() -> Map<String, Value> {
        let row = json!({"question": "2+2?", "choices": {"text": ["3", "4"], "label": ["A", "B"]}, "n": 1});
        row.as_object().unwrap().clone()
    }

    #[test]
    fn columns_are_variables_and_missing_ones_are_named() {
        let template = RowTemplate::new("prompt", "Q: {{ question }}\nA:\n").unwrap();
        assert_eq!(template.render(&row()).unwrap(), "Q: 2+2?\nA:\n");
        let absent = RowTemplate::new("prompt", "{{ gone }}").unwrap();
        let error = absent.render(&row()).unwrap_err().to_string();
        assert!(error.contains("prompt: line 1"), "{error}");
        assert!(error.contains("columns question, choices, n"), "{error}");
        assert!(RowTemplate::new("prompt", "{{").is_err());
        let cut = RowTemplate::new("p", "{{ question | regex_replace('[0-9]', '#') }}").unwrap();
        assert_eq!(cut.render(&row()).unwrap(), "#+#?");
    }

    #[test]
    fn expressions_give_values() {
        let value = |source: &str| Formula::new("f", source).unwrap().value(&row());
        assert_eq!(value("choices.text").unwrap(), json!(["3", "4"]));
        assert_eq!(value("[question, n + 1]").unwrap(), json!(["2+2?", 2]));
        assert!(value("gone").is_err() && value("choices.gone").is_err());
        assert!(Formula::new("f", "a b").is_err());
    }
}
