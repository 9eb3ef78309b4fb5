//! What is known of the tools that a model may call.

use serde_json::Value;

/// Definitions of tools, as for transformers' `apply_chat_template`.
#[derive(Debug, Clone, Default)]
pub struct Tools(Vec<Value>);

impl Tools {
    pub fn new(definitions: Vec<Value>) -> Tools {
        Tools(definitions)
    }

    /// Tools of which only the names are known.
    pub(super) fn of_names(names: &[&str]) -> Tools {
        let named = names.iter().map(|name| serde_json::json!({"name": name}));
        Tools(named.collect())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.function(name).is_some()
    }

    /// The JSON schema of a function's parameter.
    pub(super) fn parameter(&self, function: &str, parameter: &str) -> Option<&Value> {
        let parameters = self.function(function)?.get("parameters")?;
        parameters.get("properties")?.get(parameter)
    }

    /// With or without `{"type": "function", "function": …}` around it.
    fn function(&self, name: &str) -> Option<&Value> {
        let mut functions = self
            .0
            .iter()
            .map(|tool| tool.get("function").unwrap_or(tool));
        functions.find(|function| function["name"] == name)
    }
}
