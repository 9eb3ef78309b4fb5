//! What is known of the tools that a model may call.

use super::Function;
use serde_json::Value;

/// Definitions of tools, as for transformers' `apply_chat_template`.
#[derive(Debug, Clone, Default)]
pub struct Tools(Vec<Value>);

impl Tools {
    pub fn new(definitions: Vec<Value>) -> Tools {
        Tools(definitions)
    }

    /// All of them, or the one of this name.
    pub fn functions(&self, name: Option<&str>) -> Vec<Function<'_>> {
        let functions = self.definitions().filter_map(Function::of);
        let is_it = |function: &Function| name.is_none_or(|name| function.name == name);
        functions.filter(is_it).collect()
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
        self.definitions().find(|function| function["name"] == name)
    }

    fn definitions(&self) -> impl Iterator<Item = &Value> {
        let tools = self.0.iter();
        tools.map(|tool| tool.get("function").unwrap_or(tool))
    }
}
