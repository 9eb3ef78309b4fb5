//! The texts in which a format writes calls, as a grammar: for answers whose calls must have arguments of their tools' schemas. What
//! follows a grammar while it generates is not here.

use serde_json::{Map, Value, json};

/// Texts of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// This text.
    Text(String),
    /// A mark of the format: one token, where the vocabulary has it.
    Mark(&'static str),
    /// A JSON value of this schema.
    Json(Value),
    /// What this regular expression matches as a whole.
    Pattern(&'static str),
    /// Any text without these.
    Without(&'static [&'static str]),
    /// A text without these of so many characters, then its end, which may be one of them.
    Until {
        end: String,
        without: &'static [&'static str],
        least: u64,
        most: Option<u64>,
    },
    /// In their order those that must be there and any of the others, with this between them.
    Joined(Vec<(bool, Grammar)>, &'static str),
    /// One after the other.
    All(Vec<Grammar>),
    /// One of them.
    One(Vec<Grammar>),
    /// Any number of them, or none.
    Many(Box<Grammar>),
}

impl Grammar {
    pub(super) fn text(text: impl Into<String>) -> Grammar {
        Grammar::Text(text.into())
    }

    pub(super) fn maybe(grammar: Grammar) -> Grammar {
        Grammar::One(vec![grammar, Grammar::All(Vec::new())])
    }

    /// A line break, or none: templates differ.
    pub(super) fn line_break() -> Grammar {
        Grammar::maybe(Grammar::text("\n"))
    }
}

/// What an answer says where it calls nothing.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// It must call.
    None,
    Text,
    /// A JSON value of this schema.
    Json(&'a Value),
}

/// The calls that an answer may have.
pub struct Callable<'a> {
    pub functions: Vec<Function<'a>>,
    /// More than one call.
    pub several: bool,
    /// Whether a text is a token of the vocabulary.
    pub is_token: &'a dyn Fn(&str) -> bool,
}

impl Callable<'_> {
    /// A call of one of the functions.
    pub(super) fn any(
        &self,
        of: impl Fn(&Function) -> Result<Grammar, String>,
    ) -> Result<Grammar, String> {
        let calls = self.functions.iter().map(of);
        Ok(Grammar::One(calls.collect::<Result<_, _>>()?))
    }

    /// Calls with this between them.
    pub(super) fn listed(&self, call: Grammar, between: &'static str) -> Grammar {
        self.repeated(
            call.clone(),
            Grammar::All(vec![Grammar::text(between), call]),
        )
    }

    /// The first call, then any number of further ones.
    pub(super) fn repeated(&self, first: Grammar, further: Grammar) -> Grammar {
        match self.several {
            true => Grammar::All(vec![first, Grammar::Many(Box::new(further))]),
            false => first,
        }
    }
}

/// What may be called.
#[derive(Debug, Clone, Copy)]
pub struct Function<'a> {
    pub name: &'a str,
    /// As it was defined: a JSON schema, or nothing for a function without parameters.
    parameters: Option<&'a Map<String, Value>>,
}

impl<'a> Function<'a> {
    /// `definition`: without `{"type": "function", "function": …}` around it.
    pub(super) fn of(definition: &'a Value) -> Option<Function<'a>> {
        Some(Function {
            name: definition.get("name")?.as_str()?,
            parameters: definition.get("parameters").and_then(Value::as_object),
        })
    }

    /// The schema of its arguments: that of an object, which has no further properties than those that are named, be it none, unless
    /// the definition says that it may.
    ///
    /// # Errors
    /// A sentence: the schema is not that of an object.
    pub fn arguments(&self) -> Result<Value, String> {
        let Some(parameters) = self.parameters else {
            return Ok(json!({"type": "object", "additionalProperties": false}));
        };
        let mut schema = parameters.clone();
        match schema.get("type") {
            None | Some(Value::Null) => {
                schema.insert("type".into(), "object".into());
            }
            Some(Value::String(kind)) if kind == "object" => {}
            Some(_) => {
                return Err(format!(
                    "the parameters of {}: a call has an object of arguments, so their schema needs `\"type\": \"object\"`",
                    self.name
                ));
            }
        }
        let has_names = schema.get("properties").is_some_and(Value::is_object);
        let names_more = [
            "additionalProperties",
            "patternProperties",
            "unevaluatedProperties",
        ]
        .iter()
        .chain(COMBINED)
        .any(|key| schema.contains_key(*key));
        if has_names && !names_more {
            schema.insert("additionalProperties".into(), false.into());
        }
        Ok(schema.into())
    }

    /// Its parameters one by one, for formats that write each of them by its name.
    ///
    /// # Errors
    /// A sentence: the schema has parts that say more than the parameters' own ones.
    pub(super) fn parameters(&self) -> Result<Vec<Parameter>, String> {
        let arguments = self.arguments()?;
        let refuse = |what: String| format!("the parameters of {}: {what}", self.name);
        let known = [
            "type",
            "properties",
            "required",
            "additionalProperties",
            "title",
            "description",
            "$schema",
            "$defs",
            "definitions",
            "default",
            "examples",
        ];
        let keys = arguments.as_object().into_iter().flat_map(Map::keys);
        if let Some(other) = keys.into_iter().find(|key| !known.contains(&key.as_str())) {
            return Err(refuse(format!(
                "`{other}` cannot be followed in the format in which this model calls tools, which writes each parameter by itself"
            )));
        }
        let required = arguments["required"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let nothing = Map::new();
        let properties = arguments["properties"].as_object().unwrap_or(&nothing);
        if let Some(missing) = required
            .iter()
            .filter_map(Value::as_str)
            .find(|name| !properties.contains_key(*name))
        {
            return Err(refuse(format!(
                "`{missing}` is required and not among the properties"
            )));
        }
        let parameter = |(name, schema): (&String, &Value)| {
            let mut schema = schema.clone();
            // Their references lead into the whole.
            for key in ["$defs", "definitions"] {
                if let (Some(all), Value::Object(map)) = (arguments.get(key), &mut schema) {
                    map.insert(key.into(), all.clone());
                }
            }
            Parameter {
                name: name.clone(),
                is_required: required.iter().any(|other| other == name),
                schema,
            }
        };
        Ok(properties.iter().map(parameter).collect())
    }

    /// A JSON object with the name and the arguments, as `json.dumps` writes it.
    pub(super) fn object(&self, key: &str) -> Result<Grammar, String> {
        let name = Value::from(self.name);
        Ok(Grammar::All(vec![
            Grammar::Text(format!("{{\"name\": {name}, \"{key}\": ")),
            Grammar::Json(self.arguments()?),
            Grammar::text("}"),
        ]))
    }
}

/// Parts of a schema that say more of the same object.
const COMBINED: &[&str] = &[
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "dependentSchemas",
];

/// One of a function's parameters.
pub(super) struct Parameter {
    pub name: String,
    pub is_required: bool,
    pub schema: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(parameters: Value) -> Result<Value, String> {
        let definition = json!({"name": "f", "parameters": parameters});
        Function::of(&definition).unwrap().arguments()
    }

    #[test]
    fn arguments_are_an_object_of_the_properties_that_are_named() {
        let nothing = json!({"type": "object", "additionalProperties": false});
        assert_eq!(arguments(Value::Null), Ok(nothing));
        let x = json!({"x": {"type": "string"}});
        let closed = arguments(json!({"properties": x})).unwrap();
        assert_eq!(closed["additionalProperties"], false);
        assert_eq!(closed["type"], "object");
        // What libraries write for a function without parameters.
        let nothing = arguments(json!({"type": "object", "properties": {}})).unwrap();
        assert_eq!(nothing["additionalProperties"], false);
        for open in [
            json!({"type": "object", "properties": x, "additionalProperties": {"type": "integer"}}),
            json!({"type": "object", "properties": x, "allOf": [{"properties": {"y": {}}}]}),
            json!({"type": "object"}),
        ] {
            assert_eq!(arguments(open.clone()), Ok(open));
        }
        let why = arguments(json!({"type": "array"})).unwrap_err();
        assert!(
            why.contains("the parameters of f") && why.contains("object"),
            "{why}"
        );
    }

    #[test]
    fn parameters_that_depend_on_each_other_are_refused_where_each_is_written_by_itself() {
        let of = |parameters: Value| {
            let definition = json!({"name": "f", "parameters": parameters});
            let function = Function::of(&definition).unwrap();
            function.parameters().map(|all| {
                let words = all
                    .iter()
                    .map(|p| format!("{}{}", p.name, if p.is_required { "!" } else { "" }));
                words.collect::<Vec<_>>().join(" ")
            })
        };
        let sound =
            json!({"properties": {"b": {}, "a": {}}, "required": ["a"], "description": "d"});
        assert_eq!(of(sound), Ok("b a!".into()));
        let why = of(json!({"properties": {"a": {}}, "anyOf": []})).unwrap_err();
        assert!(why.contains("`anyOf` cannot be followed"), "{why}");
        let why = of(json!({"properties": {"a": {}}, "required": ["b"]})).unwrap_err();
        assert!(why.contains("`b` is required"), "{why}");
    }
}
