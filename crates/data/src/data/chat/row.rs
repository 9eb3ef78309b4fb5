//! Templates and expressions over the columns of one row, in the same Jinja as chat templates: prompts of evaluation tasks. A
//! missing column is an error, newlines around blocks are kept.

use super::bounded::{Engine, RenderError};
use super::{TODAY, dialect, explain, overdrawn};
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
fn broken(place: &str, broken: &RenderError, row: &Map<String, Value>) -> DataError {
    let error = match broken {
        RenderError::Engine(error) => error,
        RenderError::Full => return fault(place, "it printed more than 64 MiB"),
        RenderError::NotText => return fault(place, "it printed something that is not text"),
        RenderError::BudgetExceeded(why) => return fault(place, &overdrawn(why)),
    };
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
        fix: "fix the template: its variables are the columns of the row",
    }
}

/// Text out of a row: `Question: {{ question }}`.
#[derive(Debug, Clone)]
pub struct RowTemplate {
    name: String,
    engine: Engine,
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
            engine: Engine::new(env),
        })
    }

    /// # Errors
    /// A column that the row lacks, or whatever breaks in the template.
    pub fn render(&self, row: &Map<String, Value>) -> Result<String, DataError> {
        self.engine
            .print(super::NAME, row.clone())
            .map_err(|e| broken(&self.name, &e, row))
    }
}

/// A value out of a row: `choices.text`, `[sol1, sol2]`.
#[derive(Debug, Clone)]
pub struct Formula {
    name: String,
    source: String,
    engine: Engine,
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
            engine: Engine::new(env),
        })
    }

    /// # Errors
    /// A column that the row lacks, or whatever breaks in the expression.
    pub fn value(&self, row: &Map<String, Value>) -> Result<Value, DataError> {
        let source = self.source.clone();
        let value = self.engine.run(row.clone(), move |env, row| {
            let expression = env
                .compile_expression(&source)
                .map_err(RenderError::Engine)?;
            let value = expression
                .eval(minijinja::value::Serde(row))
                .map_err(RenderError::Engine)?;
            let json = || serde_json::to_value(&value).map_err(|e| e.to_string());
            Ok((!value.is_undefined()).then(json))
        });
        match value.map_err(|e| broken(&self.name, &e, row))? {
            Some(value) => value.map_err(|e| fault(&self.name, &e)),
            None => Err(fault(
                &self.name,
                &format!("`{}` is undefined in this row", self.source),
            )),
        }
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
    fn what_doubles_for_one_row_is_refused_and_not_asked_again() {
        let source = "{% if n == 7 %}{% set ns = namespace(a='xxxxxxxx') %}{% for i in range(40) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{% endif %}{{ n }}";
        let template = RowTemplate::new("prompt", source).unwrap();
        let row = |n: u64| Map::from_iter([("n".to_string(), json!(n))]);
        assert_eq!(template.render(&row(1)).unwrap(), "1");
        for n in [7, 1] {
            let error = template.render(&row(n)).unwrap_err().to_string();
            assert!(
                error.contains("256 MiB") && error.contains("malicious"),
                "{error}"
            );
        }
        let formula = Formula::new("f", "'x' * n").unwrap();
        assert_eq!(formula.value(&row(3)).unwrap(), json!("xxx"));
        assert!(formula.value(&row(1 << 40)).is_err());
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
