//! Tool definitions from a file: a list, each a function with its name and parameters.

use crate::base::files::read_small_text;
use crate::base::text::{one_line, shown};
use serde_json::Value;
use std::path::Path;

/// Larger files are none.
const MAX_BYTES: u64 = 1 << 20;

/// What such a file has.
pub const TOOL_FILE: &str = r#"a list such as [{"type": "function", "function": {"name": "add", "description": "…", "parameters": {"type": "object", "properties": {…}}}}]"#;

/// Reads a list of definitions. Templates differ in what they use, but each entry must be an object with a name.
///
/// # Errors
/// A sentence with the file and the location in it.
pub fn read_tools(path: &Path) -> Result<Vec<Value>, String> {
    let fault = |what: String| one_line(&format!("{}: {what}", shown(path)));
    let text = read_small_text(path, MAX_BYTES).map_err(|e| fault(e.to_string()))?;
    let value = serde_json::from_str(&text).map_err(|e| fault(format!("not JSON: {e}")))?;
    let Value::Array(tools) = value else {
        return Err(fault("expected a list of definitions".into()));
    };
    if tools.is_empty() {
        return Err(fault("the list is empty".into()));
    }
    for (at, tool) in tools.iter().enumerate() {
        check_tool(tool).map_err(|(key, what)| fault(format!("[{at}]{key}: {what}")))?;
    }
    Ok(tools)
}

/// Whether it is a definition.
///
/// # Errors
/// The key and what is wrong with it.
pub fn check_tool(tool: &Value) -> Result<(), (&'static str, &'static str)> {
    if !tool.is_object() {
        return Err(("", "expected an object"));
    }
    // transformers also accepts a bare function.
    let (function, name) = match tool.get("function") {
        Some(function) => (function, ".function.name"),
        None => (tool, ".name"),
    };
    match &function["name"] {
        Value::String(word) if !word.trim().is_empty() => {}
        Value::Null => return Err((name, "the function has no name")),
        _ => return Err((name, "expected the name of a function")),
    }
    match (&function["parameters"], name) {
        (Value::Null | Value::Object(_), _) => Ok(()),
        (_, ".name") => Err((".parameters", "expected a JSON schema")),
        _ => Err((".function.parameters", "expected a JSON schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_file_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tools.json");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_tools(&path).map(|tools| tools.len())
        };
        let sound =
            r#"[{"type": "function", "function": {"name": "a", "parameters": {}}}, {"name": "b"}]"#;
        assert_eq!(told(sound), Ok(2));
        for (text, part) in [
            ("[{]", "line 1 column 3"),
            ("{\"name\": \"a\"}", "a list"),
            ("[]", "empty"),
            ("[{\"name\": \"a\"}, 3]", "[1]: expected an object"),
            (
                "[{\"function\": {}}]",
                "[0].function.name: the function has no name",
            ),
            ("[{\"name\": 3}]", "[0].name"),
            (
                "[{\"name\": \"a\", \"parameters\": 1}]",
                "[0].parameters: expected a JSON schema",
            ),
        ] {
            let error = told(text).unwrap_err();
            assert!(
                error.contains(part) && error.contains("tools.json: "),
                "{text}: {error}"
            );
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read_tools(&path).unwrap_err().contains("tools.json: "));
    }
}
