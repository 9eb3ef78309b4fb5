//! One page: a title, the keywords that lead to it, and its text with placeholders like `{plan.memory}`.

use super::facts::Subject;

/// A page as it ships.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its file's name.
    pub id: &'static str,
    /// The question.
    pub title: &'static str,
    /// Words that lead here.
    pub(super) ask: Vec<&'static str>,
    /// Pages to read next.
    pub see: Vec<&'static str>,
    /// Rules of `diagnosis` whose findings it explains.
    pub rules: Vec<&'static str>,
    /// Markdown.
    pub body: &'static str,
}

/// A page with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Markdown.
    pub text: String,
    /// Lines were left out because nobody named a run, a spec, or a machine could not be read: what to name.
    pub missing: Vec<&'static str>,
}

impl Page {
    /// `None` where the head is not in its form; a test reads all of them.
    pub(super) fn read(path: &'static str, text: &'static str) -> Option<Page> {
        let id = path.rsplit('/').next()?.strip_suffix(".md")?;
        let (head, body) = text.split_once("\n\n")?;
        let mut lines = head.lines();
        let title = lines.next()?.strip_prefix("# ")?;
        let mut list = |key: &str| {
            let line = lines.next()?.strip_prefix(key)?.strip_prefix(':')?;
            Some(line.split_whitespace().collect::<Vec<_>>())
        };
        let (ask, see, rules) = (list("ask")?, list("see")?, list("rules")?);
        Some(Page {
            id,
            title,
            ask,
            see,
            rules,
            body,
        })
    }

    /// What stands in braces.
    #[cfg(test)]
    pub(super) fn marks(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.body
            .split('{')
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('}')?.0))
    }

    /// The page with the facts of `subject`. A line whose fact is not known is left out.
    pub fn fill(&self, subject: &Subject<'_>) -> Shown {
        let (mut text, mut missing) = (String::new(), Vec::new());
        for line in self.body.lines() {
            match filled(line, subject) {
                Ok(Some(line)) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Ok(None) => {}
                Err(need) if missing.contains(&need) => {}
                Err(need) => missing.push(need),
            }
        }
        Shown {
            text: text.trim_end().into(),
            missing,
        }
    }
}

/// What a line begins with when it is an item of a list (`- `, or `  - ` of one within another), and its words.
pub fn item(line: &str) -> (&str, &str) {
    let blanks = line.len() - line.trim_start_matches(' ').len();
    let mark = if line[blanks..].starts_with("- ") {
        blanks + 2
    } else {
        0
    };
    line.split_at(mark)
}

/// A line with its facts; `None` where there is nothing to say, an error where something has to be named first.
fn filled(line: &str, subject: &Subject<'_>) -> Result<Option<String>, &'static str> {
    let mut parts = line.split('{');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (mark, rest) = part.split_once('}').unwrap_or((part, ""));
        match subject.fact(mark)? {
            Some(fact) => text.push_str(&fact),
            None => return Ok(None),
        }
        text.push_str(rest);
    }
    Ok(Some(text))
}

/// Markdown as lines for a terminal: links become their words, with the address behind those that do not name it.
pub fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((words, (url, after))) = link
            .split_once("](")
            .and_then(|(words, tail)| Some((words, tail.split_once(')')?)))
        else {
            text.push_str(before);
            text.push('[');
            rest = link;
            continue;
        };
        text.push_str(before);
        text.push_str(words);
        let named = words == url || words.contains("arXiv");
        if !named {
            text.push_str(&format!(", {url}"));
        }
        rest = after;
    }
    text.push_str(rest);
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_lists_within_lists_are_items() {
        assert_eq!(item("- a - b"), ("- ", "a - b"));
        assert_eq!(item("  - a"), ("  - ", "a"));
        assert_eq!(item("a - b"), ("", "a - b"));
        assert_eq!(item("-1 is less"), ("", "-1 is less"));
    }

    #[test]
    fn links_become_words() {
        let text = "Do it ([PaLM, arXiv 2204.02311](https://arxiv.org/abs/2204.02311)), see [docs/plan.md](docs/plan.md) or [him](https://x.y/z) and `a[0]`.";
        assert_eq!(
            plain(text),
            "Do it (PaLM, arXiv 2204.02311), see docs/plan.md or him, https://x.y/z and a[0]."
        );
    }
}
