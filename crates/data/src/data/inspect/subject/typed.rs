//! A path with options of `llmtui data` behind it, as a person types them where no command line is:
//! `faq.csv --format instruction_response --column 'instruction=My question'`.

use super::Subject;
use crate::base::paths::unquoted;
use crate::data::DataError;

impl Subject {
    /// Reads the path, the format and the columns.
    ///
    /// # Errors
    /// A format that does not exist; an option without its value.
    pub fn of_words(text: &str) -> Result<Subject, DataError> {
        let options = ["--format ", "--column "].iter();
        let begins = options.filter_map(|option| text.find(&format!(" {option}")));
        let Some(at) = begins.min() else {
            return Ok(Subject::of_path(text));
        };
        let (path, options) = text.split_at(at);
        let mut subject = Subject::of_path(&unquoted(path.trim(), None));
        let mut columns = Vec::new();
        let mut words = words(options).into_iter();
        while let Some(option) = words.next() {
            let value = words.next().unwrap_or_default();
            match (option.as_str(), value.split_once('=')) {
                ("--format", _) => subject.set_format(&value)?,
                ("--column", Some((part, column))) => {
                    columns.push((part.to_string(), column.to_string()));
                }
                _ => {
                    return Err(DataError::source(
                        path.trim(),
                        format!("the options behind it end at `{option} {value}`"),
                        "--format FORMAT, --column PART=COLUMN; names with blanks in quotes",
                    ));
                }
            }
        }
        subject.set_columns(&columns);
        Ok(subject)
    }
}

/// Words as a shell divides them.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            ('\\', None) => word.get_or_insert_default().extend(letters.next()),
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_behind_a_path_are_those_of_the_command() {
        let plain = Subject::of_words("my notes/a.csv").unwrap();
        assert_eq!(plain, Subject::of_path("my notes/a.csv"));
        let mut mapped = Subject::of_path("my notes/a.csv");
        mapped.set_format("instruction_response").unwrap();
        let pairs = [("instruction", "My question"), ("response", "It's")];
        let pairs = pairs.map(|(part, column)| (part.to_string(), column.to_string()));
        mapped.set_columns(&pairs);
        let typed = "my notes/a.csv --format instruction_response --column 'instruction=My question' --column 'response=It'\\''s'";
        assert_eq!(Subject::of_words(typed).unwrap(), mapped);
        for wrong in [
            "a.csv --column text",
            "a.csv --format no",
            "a.csv --column a=b x",
        ] {
            assert!(Subject::of_words(wrong).is_err(), "{wrong}");
        }
    }
}
