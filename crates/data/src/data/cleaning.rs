//! The command that removes the rows that a reader cannot use: `llmtui data clean` with the format, the columns, the tokenizer and
//! the template of that reader. Without them it judges by what the rows show, and keeps some of those rows.

use super::DataConfig;
use super::chat::AUTO;
use super::tokenizer::TokenizerConfig;
use super::vocabulary::TEMPLATE;
use crate::base::ssh::shell_quote;

/// `llmtui data clean FILE --out COPY.jsonl`, with options that each begin with a space.
pub fn clean_command(file: &str, options: &str) -> String {
    format!("llmtui data clean {file}{options} --out COPY.jsonl")
}

/// The format, where the rows do not show it, and the parts that are mapped to columns.
pub fn reading_options<'a>(
    format: Option<&str>,
    columns: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let format = format.map(|word| format!(" --format {word}"));
    let columns = columns.map(|(part, column)| {
        let pair = format!("{part}={column}");
        format!(" --column {}", shell_quote(&pair))
    });
    format.into_iter().chain(columns).collect()
}

/// The tokenizer and the template of a spec: for rows that cannot be rendered.
pub(super) fn rendering_options(config: &DataConfig) -> String {
    let tokenizer = match &config.tokenizer {
        TokenizerConfig::File(file) => Some(file.path.to_string_lossy().into_owned()),
        _ => None,
    };
    let template = match &*config.template {
        AUTO if tokenizer.is_some() => None,
        AUTO => Some(TEMPLATE.to_string()),
        said => Some(said.to_string()),
    };
    let options = [("tokenizer", tokenizer), ("template", template)];
    let said = options.into_iter().filter_map(|(name, value)| {
        let value = shell_quote(&value?);
        Some(format!(" --{name} {value}"))
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_command_judges_rows_as_the_training_does() {
        let rendering = |config: serde_json::Value| {
            let config: DataConfig = serde_json::from_value(config).unwrap();
            rendering_options(&config)
        };
        let model = json!({"file": {"path": "my models/a.gguf"}});
        assert_eq!(
            rendering(json!({"tokenizer": model})),
            " --tokenizer 'my models/a.gguf'"
        );
        assert_eq!(
            rendering(json!({"tokenizer": model, "template": "plain"})),
            " --tokenizer 'my models/a.gguf' --template plain"
        );
        // A vocabulary that is trained for the run has ChatML.
        assert_eq!(rendering(json!({})), " --template chatml");
        let columns = [("instruction", "Customer Question"), ("response", "Reply")];
        let options = reading_options(Some("instruction_response"), columns.into_iter());
        assert_eq!(
            clean_command("FILE", &options),
            "llmtui data clean FILE --format instruction_response --column 'instruction=Customer Question' --column response=Reply --out COPY.jsonl"
        );
    }
}
