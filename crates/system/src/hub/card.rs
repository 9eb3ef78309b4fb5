//! The part of a dataset's README that defines its subsets: `configs:` between the two `---` lines. Only the plain block
//! style that the hub itself writes is parsed; anything else is reported, not guessed.

/// A subset and its splits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardConfig {
    pub name: String,
    pub is_default: bool,
    /// Splits with the patterns of their files.
    pub splits: Vec<(String, Vec<String>)>,
}

/// The subsets defined in a README; `Ok(None)` if there are none.
///
/// # Errors
/// The number of the line (from 1) that cannot be parsed.
pub fn configs(readme: &str) -> Result<Option<Vec<CardConfig>>, usize> {
    let mut configs: Vec<CardConfig> = Vec::new();
    let mut block = Block::default();
    let mut inside = false;
    let lines = readme.trim_start_matches('\u{feff}').lines().enumerate();
    for (at, line) in lines {
        let line = line.trim_end();
        if at == 0 && line != "---" {
            return Ok(None);
        }
        if at > 0 && line == "---" {
            break;
        }
        let text = line.trim_start();
        if text.is_empty() || text.starts_with('#') || at == 0 {
            continue;
        }
        let top_level_key = line.len() == text.len() && !text.starts_with('-');
        if top_level_key {
            inside = text == "configs:";
        } else if inside {
            block.take(text, &mut configs).ok_or(at + 1)?;
        }
    }
    Ok((!configs.is_empty()).then_some(configs))
}

/// Which list the next `- item` belongs to.
#[derive(Default)]
struct Block {
    in_path_list: bool,
    in_files: bool,
}

impl Block {
    fn take(&mut self, text: &str, configs: &mut Vec<CardConfig>) -> Option<()> {
        let (item, text) = match text.strip_prefix("- ") {
            Some(rest) => (true, rest.trim_start()),
            None => (false, text),
        };
        let Some((key, value)) = key_value(text) else {
            // An entry of a list of patterns.
            let (_, patterns) = configs.last_mut()?.splits.last_mut()?;
            (item && self.in_path_list).then(|| patterns.push(unquoted(text)))?;
            return Some(());
        };
        self.in_path_list = false;
        match key {
            "config_name" => {
                configs.push(CardConfig {
                    name: unquoted(value),
                    is_default: value == "default",
                    ..CardConfig::default()
                });
                self.in_files = false;
            }
            "default" => configs.last_mut()?.is_default = value == "true",
            "data_files" => {
                self.in_files = true;
                if !value.is_empty() {
                    let splits = &mut configs.last_mut()?.splits;
                    splits.push(("train".into(), patterns(value)?));
                }
            }
            "split" if self.in_files => {
                let splits = &mut configs.last_mut()?.splits;
                splits.push((unquoted(value), Vec::new()));
            }
            "path" if self.in_files => {
                let (_, known) = configs.last_mut()?.splits.last_mut()?;
                self.in_path_list = value.is_empty();
                if !value.is_empty() {
                    known.extend(patterns(value)?);
                }
            }
            // A base folder changes the meaning of all patterns; the remaining keys (separators, descriptions) do not
            // select files.
            "data_dir" => return None,
            _ => {}
        }
        Some(())
    }
}

fn key_value(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(':')?;
    let is_key = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let apart = value.is_empty() || value.starts_with(' ');
    (is_key && apart).then(|| (key, value.trim()))
}

/// One pattern, or `[a, b]`.
fn patterns(value: &str) -> Option<Vec<String>> {
    match value.strip_prefix('[') {
        None if value.starts_with(['{', '&', '|', '>']) => None,
        None => Some(vec![unquoted(value)]),
        Some(list) => {
            let list = list.strip_suffix(']')?;
            Some(list.split(',').map(|item| unquoted(item.trim())).collect())
        }
    }
}

fn unquoted(text: &str) -> String {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"')
        .or_else(|| inner('\''))
        .unwrap_or(text)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "---
license: mit
task_categories:
- text-generation
configs:
- config_name: main
  default: true
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path:
    - \"main/test-*\"
    - 'extra/test.jsonl'
- config_name: socratic
  data_files: socratic/*.jsonl
dataset_info:
- config_name: ignored
---
configs: not this
";

    #[test]
    fn subsets_and_splits_are_read() {
        let configs = configs(README).unwrap().unwrap();
        assert_eq!(configs.len(), 2);
        assert!(configs[0].is_default && !configs[1].is_default);
        assert_eq!(
            configs[0].splits[0],
            ("train".into(), vec!["main/train-*".into()])
        );
        assert_eq!(configs[0].splits[1].1, ["main/test-*", "extra/test.jsonl"]);
        assert_eq!(
            configs[1].splits,
            [("train".into(), vec!["socratic/*.jsonl".into()])]
        );
    }

    #[test]
    fn without_front_matter_there_are_none_and_errors_have_a_line_number() {
        assert_eq!(configs("# A data set\nconfigs:\n- x"), Ok(None));
        assert_eq!(configs("---\nlicense: mit\n---\n"), Ok(None));
        let odd = "---\nconfigs:\n- config_name: a\n  data_dir: x\n---\n";
        assert_eq!(configs(odd), Err(4));
        let folded = "---\nconfigs:\n- config_name: a\n  data_files: {train: x}\n---\n";
        assert_eq!(configs(folded), Err(4));
    }
}
