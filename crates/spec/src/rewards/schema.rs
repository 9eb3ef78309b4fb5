//! 1 if the completion is JSON that is valid under a JSON Schema.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use crate::base::text::one_line;
use boon::{CompileError, Compiler, Draft, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub const ENTRY: Entry = Entry {
    id: "schema",
    title: "JSON of a schema",
    summary: "1 if the answer is one JSON value that matches a JSON Schema, else 0.",
    source: "JSON Schema 2020-12, json-schema.org",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The schema, of draft 4 to 2020-12. References lead to places inside it; nothing is fetched.
    pub schema: Map<String, Value>,
}

/// Where the schema lies for the library, which names every schema by an address.
const ADDRESS: &str = "llmtui:///schema";

/// Loads nothing: no file, no network.
struct Nowhere;

impl UrlLoader for Nowhere {
    fn load(&self, _: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err("references must point inside the schema".into())
    }
}

impl Config {
    fn compile(&self) -> Result<(Schemas, SchemaIndex), String> {
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        compiler.use_loader(Box::new(Nowhere));
        let mut schemas = Schemas::new();
        let whole = Value::Object(self.schema.clone());
        compiler
            .add_resource(ADDRESS, whole)
            .map_err(|error| self.wrong(&error))?;
        let index = compiler
            .compile(ADDRESS, &mut schemas)
            .map_err(|error| self.wrong(&error))?;
        Ok((schemas, index))
    }

    /// What is wrong with the schema: the place, what stands there, and what should.
    fn wrong(&self, error: &CompileError) -> String {
        one_line(&match error {
            CompileError::ValidationError { src, .. } => {
                let deepest = deepest(src);
                let place = deepest.instance_location.to_string();
                let whole = Value::Object(self.schema.clone());
                match whole.pointer(&place).filter(|_| !place.is_empty()) {
                    Some(value) => format!("{place} is {value}: {}", deepest.kind),
                    None => deepest.kind.to_string(),
                }
            }
            other => format!("{other:#}").replace(ADDRESS, ""),
        })
    }
}

/// The error that the others follow from.
fn deepest<'e, 's, 'v>(error: &'e ValidationError<'s, 'v>) -> &'e ValidationError<'s, 'v> {
    error.causes.first().map_or(error, deepest)
}

impl Reward for Config {
    fn reads(&self, answer: &Answer) -> Option<bool> {
        Some(serde_json::from_str::<serde::de::IgnoredAny>(&answer.text).is_ok())
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let Ok(value) = serde_json::from_str::<Value>(&answer.text) else {
            return Ok(0.0);
        };
        let (schemas, index) = self.compile()?;
        let allowed = schemas.validate(&value, index).is_ok();
        Ok(f64::from(u8::from(allowed)))
    }

    fn fault(&self) -> Option<(String, String)> {
        if self.schema.is_empty() {
            let fix = "write {schema: {schema: {type: object, required: [answer]}}}, or use the reward json";
            return Some(("an empty schema allows everything".into(), fix.into()));
        }
        let what = self.compile().err()?;
        Some((what, "fix the schema: json-schema.org".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        schema: Map<String, Value>,
        text: String,
        allowed: bool,
    }

    #[test]
    fn what_is_allowed_is_what_the_library_jsonschema_allows() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../../../tests/oracle/json_schema.json"))
                .unwrap();
        assert!(cases.len() > 100 && cases.iter().any(|case| case.allowed));
        for case in cases {
            let answer = Answer {
                prompt: String::new(),
                text: case.text.clone(),
                tokens: 1,
                ended: true,
                behind: None,
                thinking: None,
                reference: super::super::Reference::default(),
            };
            let config = Config {
                schema: case.schema,
            };
            assert_eq!(config.fault(), None, "{config:?}");
            let score = config.score(&answer).unwrap();
            assert_eq!(score == 1.0, case.allowed, "{config:?}: {}", case.text);
        }
    }

    #[test]
    fn a_schema_that_is_wrong_says_where() {
        for (schema, word) in [
            (serde_json::json!({}), "empty"),
            (serde_json::json!({"$ref": "#/x"}), "x"),
            (
                serde_json::json!({"$ref": "https://example.org/s.json"}),
                "example.org",
            ),
            (serde_json::json!({"type": "text"}), "text"),
            (
                serde_json::json!({"properties": {"a": {"minimum": "1"}}}),
                "/properties/a/minimum",
            ),
            (serde_json::json!({"items": [1]}), "items"),
            (serde_json::json!({"pattern": "("}), "("),
        ] {
            let schema = schema.as_object().cloned().unwrap();
            let (what, _) = Config { schema }.fault().unwrap();
            assert!(what.contains(word), "{what}");
        }
    }
}
