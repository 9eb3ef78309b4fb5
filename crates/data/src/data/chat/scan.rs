//! Scans a template's text before the engine compiles it: its nesting depth, and the positions of transformers' `generation`
//! blocks. It only tokenises as Jinja does; the tags are interpreted by the engine.
//!
//! The engine guards its parser, but not the code generator and destructor that traverse the finished tree: a template of
//! 60,000 unary minuses overflows a thread's stack. So an upper bound of every tag's tree depth is enforced here.

/// Largest template, in bytes: the largest official ones have 20 KiB.
pub const MAX_BYTES: usize = 64 << 10;

/// Largest number of open blocks, each `elif` of an open `if` counted as one.
pub const MAX_BLOCKS: usize = 100;

/// Largest depth of one expression's tree, counted generously: every operator since the last comma, on each open level
/// of brackets. Official templates reach about 40.
pub const MAX_EXPRESSION: usize = 200;

/// The filter that stands for a `generation` block in the rewritten template.
pub const GENERATION_FILTER: &str = "llmtui_generation";

/// The result of the scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The template with every `generation` block made a filter block of its own scope, line for line.
    pub template: String,
    /// Whether it has such blocks: it says itself which text is the assistant's.
    pub has_generation: bool,
}

/// Scans a template.
///
/// # Errors
/// Too large, too deep, or a tag or comment that never ends; as a sentence with the line.
pub fn scan(source: &str) -> Result<Scan, String> {
    if source.len() > MAX_BYTES {
        return Err(format!(
            "the template has {} bytes, more than {MAX_BYTES}",
            source.len()
        ));
    }
    let mut scanner = Scanner {
        source,
        at: 0,
        out: String::with_capacity(source.len() + 64),
        blocks: Vec::new(),
        has_generation: false,
    };
    while scanner.next_tag()? {}
    Ok(Scan {
        template: scanner.out,
        has_generation: scanner.has_generation,
    })
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    out: String,
    /// For each open block, the branches it has had.
    blocks: Vec<usize>,
    has_generation: bool,
}

impl Scanner<'_> {
    /// Copies text up to and including the next tag; false at the end.
    fn next_tag(&mut self) -> Result<bool, String> {
        let rest = &self.source[self.at..];
        let opens = |i: &usize| {
            let two = &rest.as_bytes()[*i..];
            two.starts_with(b"{{") || two.starts_with(b"{%") || two.starts_with(b"{#")
        };
        let Some(open) = rest.match_indices('{').map(|(i, _)| i).find(opens) else {
            self.out.push_str(rest);
            return Ok(false);
        };
        self.out.push_str(&rest[..open]);
        let start = self.at + open;
        let end = match self.source.as_bytes()[start + 1] {
            b'#' => self.find(start, "#}")?,
            b'{' => self.expression(start, "}}")?,
            _ => self.statement(start)?,
        };
        self.at = end;
        Ok(true)
    }

    /// The end of a comment, which is copied.
    fn find(&mut self, start: usize, close: &str) -> Result<usize, String> {
        let length = self.source[start + 2..]
            .find(close)
            .ok_or_else(|| self.unclosed(start))?;
        let end = start + 2 + length + close.len();
        self.out.push_str(&self.source[start..end]);
        Ok(end)
    }

    fn expression(&mut self, start: usize, close: &str) -> Result<usize, String> {
        let end = self.measure(start, close)?;
        self.out.push_str(&self.source[start..end]);
        Ok(end)
    }

    fn statement(&mut self, start: usize) -> Result<usize, String> {
        let end = self.measure(start, "%}")?;
        let tag = &self.source[start..end];
        let inner = tag[2..tag.len() - 2].trim_start_matches(['-', '+']).trim();
        let inner = inner.trim_end_matches(['-', '+']).trim_end();
        let word: &str = inner
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .next()
            .unwrap_or_default();
        if word == "raw" {
            return self.raw(start, end);
        }
        self.count_block(word, start)?;
        // With its own scope, as the call block that transformers makes of it.
        match inner {
            "generation" => {
                self.has_generation = true;
                let opening = format!("filter {GENERATION_FILTER} %}}{{% with");
                self.out.push_str(&tag.replace("generation", &opening));
            }
            "endgeneration" => {
                let closing = "endwith %}{% endfilter";
                self.out.push_str(&tag.replace("endgeneration", closing));
            }
            _ => self.out.push_str(tag),
        }
        Ok(end)
    }

    /// Everything up to the tag that ends a raw block, as it is.
    fn raw(&mut self, start: usize, tag_end: usize) -> Result<usize, String> {
        let mut at = tag_end;
        loop {
            let open = at
                + self.source[at..]
                    .find("{%")
                    .ok_or_else(|| self.unclosed(start))?;
            // After the opening: `{%}` is not a tag.
            let close = self.source[open + 2..]
                .find("%}")
                .ok_or_else(|| self.unclosed(start))?;
            let end = open + 2 + close + 2;
            let word =
                self.source[open + 2..end - 2].trim_matches(['-', '+', ' ', '\t', '\n', '\r']);
            if word == "endraw" {
                self.out.push_str(&self.source[start..end]);
                return Ok(end);
            }
            at = open + 2;
        }
    }

    fn count_block(&mut self, word: &str, start: usize) -> Result<(), String> {
        match word {
            "if" | "for" | "macro" | "call" | "filter" | "with" | "block" | "autoescape"
            | "generation" | "set" => self.blocks.push(1),
            "elif" | "else" => {
                if let Some(branches) = self.blocks.last_mut() {
                    *branches += 1;
                }
            }
            word if word.starts_with("end") => {
                self.blocks.pop();
            }
            _ => {}
        }
        // `set` has an end only where it captures a block: it is counted while nothing closes it, and let go here.
        if word == "set" && self.set_is_assignment(start) {
            self.blocks.pop();
        }
        let depth: usize = self.blocks.iter().sum();
        if depth > MAX_BLOCKS {
            return Err(format!(
                "line {}: blocks and their branches nest {depth} deep, more than {MAX_BLOCKS}",
                self.line(start)
            ));
        }
        Ok(())
    }

    fn set_is_assignment(&self, start: usize) -> bool {
        let tag = &self.source[start..];
        let end = tag.find("%}").unwrap_or(tag.len());
        tag[..end].contains('=')
    }

    /// The end of a tag that begins at `start`, its brackets and strings respected and its depth bounded.
    fn measure(&self, start: usize, close: &str) -> Result<usize, String> {
        let bytes = self.source.as_bytes();
        let mut depth = Depth::default();
        let mut at = start + 2;
        while at < bytes.len() {
            let rest = &self.source[at..];
            if rest.starts_with(close) && !depth.in_braces() {
                return Ok(at + close.len());
            }
            at += match bytes[at] {
                quote @ (b'"' | b'\'') => {
                    string_length(rest, quote).ok_or_else(|| self.unclosed(start))?
                }
                b'(' | b'[' | b'{' => depth.open(bytes[at]),
                b')' | b']' | b'}' => depth.close(),
                b',' => depth.next_item(),
                b'+' | b'-' | b'*' | b'/' | b'%' | b'~' | b'|' | b'.' | b'<' | b'>' | b'='
                | b'!' => depth.operator(),
                byte if byte.is_ascii_alphabetic() || byte == b'_' => depth.word(rest),
                // Anything else stands for itself; characters of several bytes are stepped over whole.
                _ => rest.chars().next().map_or(1, char::len_utf8),
            };
            if depth.total > MAX_EXPRESSION {
                return Err(format!(
                    "line {}: an expression nests more than {MAX_EXPRESSION} deep",
                    self.line(start)
                ));
            }
        }
        Err(self.unclosed(start))
    }

    fn unclosed(&self, start: usize) -> String {
        format!("line {}: a tag or comment never ends", self.line(start))
    }

    fn line(&self, at: usize) -> usize {
        1 + self.source[..at].bytes().filter(|b| *b == b'\n').count()
    }
}

/// An upper bound of the depth of the tree read so far.
#[derive(Default)]
struct Depth {
    /// The open bracket and the operators since the last comma, for each level; the ground level has no entry.
    levels: Vec<(u8, usize)>,
    ground: usize,
    total: usize,
}

impl Depth {
    fn in_braces(&self) -> bool {
        self.levels.iter().any(|(bracket, _)| *bracket == b'{')
    }

    fn open(&mut self, bracket: u8) -> usize {
        // What a bracket follows may be called or indexed by it: one more level of tree that outlives the bracket.
        self.operator();
        self.levels.push((bracket, 1));
        self.total += 1;
        1
    }

    fn close(&mut self) -> usize {
        if let Some((_, count)) = self.levels.pop() {
            self.total -= count;
        }
        1
    }

    fn next_item(&mut self) -> usize {
        let here = self.here();
        let count = std::mem::replace(here, 1);
        self.total -= count.saturating_sub(1);
        1
    }

    fn operator(&mut self) -> usize {
        *self.here() += 1;
        self.total += 1;
        1
    }

    fn word(&mut self, rest: &str) -> usize {
        let length = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        if matches!(
            &rest[..length],
            "and" | "or" | "not" | "in" | "is" | "if" | "else"
        ) {
            self.operator();
        }
        length
    }

    fn here(&mut self) -> &mut usize {
        match self.levels.last_mut() {
            Some((_, count)) => count,
            None => &mut self.ground,
        }
    }
}

/// Bytes of a quoted string, quotes included.
fn string_length(text: &str, quote: u8) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_become_filters_line_for_line_and_nothing_else_changes() {
        let source = "a\n{%- generation -%}\nb{% endgeneration +%}{# {% generation %} #}{% raw %}{% generation %}{% endraw %}{{ '{% generation %}' }}";
        let scan = scan(source).unwrap();
        assert!(scan.has_generation);
        assert_eq!(
            scan.template,
            "a\n{%- filter llmtui_generation %}{% with -%}\nb{% endwith %}{% endfilter +%}{# {% generation %} #}{% raw %}{% generation %}{% endraw %}{{ '{% generation %}' }}"
        );
        assert!(!super::scan("{{ generation }}").unwrap().has_generation);
    }

    #[test]
    fn deep_expressions_are_refused_and_long_lists_are_not() {
        for bomb in [
            "-",
            "not ",
            "(",
            "[",
            "{'a':",
            "a.b.",
            "x + ",
            "x|trim|",
            "a if b else ",
        ] {
            let source = format!("{{{{ {} }}}}", bomb.repeat(300));
            let error = scan(&source).unwrap_err();
            assert!(
                error.contains("line 1: an expression nests"),
                "{bomb}: {error}"
            );
        }
        let list = "'a' + 'b', ".repeat(2000);
        assert!(scan(&format!("{{% set x = [{list}] %}}")).is_ok());
    }

    #[test]
    fn deep_blocks_and_long_elif_chains_are_refused() {
        let open = "{% if a %}".repeat(MAX_BLOCKS + 1);
        assert!(scan(&open).unwrap_err().contains("nest 101 deep"));
        let chain = format!("{{% if a %}}{}", "{% elif b %}".repeat(MAX_BLOCKS));
        assert!(scan(&chain).is_err());
        let flat = "{% if a %}x{% endif %}{% set y = 1 %}{% set z %}q{% endset %}".repeat(300);
        assert!(scan(&flat).is_ok());
    }

    #[test]
    fn what_never_ends_is_placed_and_large_files_are_refused() {
        assert_eq!(
            scan("a\n{{ 'x").unwrap_err(),
            "line 2: a tag or comment never ends"
        );
        for open in [
            "{#",
            "{% raw %} {% x",
            "{% raw %} {%}",
            "{{ {'a': 1}",
            "{% 'é",
        ] {
            assert!(scan(open).is_err(), "{open}");
        }
        assert!(scan(&"x".repeat(MAX_BYTES + 1)).is_err());
    }
}
