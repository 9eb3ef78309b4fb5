//! Turn markers of a template that have no token in the vocabulary: the model sees them as several text tokens, which it was
//! never trained on as ends of turns.

use super::{GenerationPrompt, Template};
use crate::data::tokenizer::{ChatMarkers, TokenizerConfig};
use crate::data::{DataConfig, DataError, Message, Tokenizer};

/// What helps where a template leaves out tools.
pub const TOOLS_FIX: &str = "choose a template with tools, e.g. -s data.template=qwen or mistral";

/// The fix where a model that is asked has such a template.
pub const ASK_WITHOUT_TOOLS: &str = "ask without the tools";

/// One marker that is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMarker {
    /// `<|eot_id|>`
    pub mark: String,
    /// Tokens that it becomes.
    pub tokens: usize,
}

impl Template {
    /// The markers of this template that the tokenizer splits into several tokens, in order of appearance.
    pub fn cut_marks(&self, tokenizer: &Tokenizer) -> Vec<SplitMarker> {
        let count = |mark: String| {
            let tokens = tokenizer.encode(&mark).ok()?.len();
            (tokens > 1).then_some(SplitMarker { mark, tokens })
        };
        self.marks().into_iter().filter_map(count).collect()
    }

    /// Whether a text holds what this template writes: one of its markers, or what it puts behind a user's turn, as `[/INST]`.
    pub fn has_written(&self, text: &str) -> bool {
        const SAID: &str = "what a user says";
        let turn = [Message::new("user", SAID)];
        let rendered = self.render(&turn, None, GenerationPrompt::With);
        let rendered = rendered.unwrap_or_default();
        let behind = rendered.rsplit_once(SAID).map(|(_, behind)| behind.trim());
        let marks = self.marks();
        let known = marks.iter().map(String::as_str).chain(behind);
        known
            .filter(|mark| !mark.is_empty())
            .any(|mark| text.contains(mark))
    }

    /// Whether the tokenizer's files bring a template of their own that writes turns otherwise. What stands before the first user's
    /// words may differ, such as a usual system turn.
    pub fn replaces_that_of(&self, tokenizer: &Tokenizer) -> bool {
        const SAID: &str = "what a user says";
        let turns = [("user", SAID), ("assistant", "a"), ("user", "b")];
        let turns = turns.map(|(role, text)| Message::new(role, text));
        let written = |template: &Template| {
            let text = template.render(&turns, None, GenerationPrompt::With).ok()?;
            let (_, behind) = text.split_once(SAID)?;
            Some(behind.trim().to_string())
        };
        let own = Template::of_marks("the tokenizer's", tokenizer.marks());
        let own = own.and_then(|template| written(&template.ok()?));
        own.is_some_and(|own| written(self).is_some_and(|ours| ours != own))
    }

    /// The markers in a short rendered conversation.
    fn marks(&self) -> Vec<String> {
        let turns = ["system", "user", "assistant"].map(|role| Message::new(role, "a"));
        let render = |turns: &[Message]| self.render(turns, None, GenerationPrompt::With);
        // Some know no system turn.
        let text = render(&turns).or_else(|_| render(&turns[1..]));
        let text = text.unwrap_or_default();
        let known = ChatMarkers::of_template(self.name()).tokens();
        let known = known.iter().copied().chain(self.turn_end());
        let mut marks = marks_in(&text);
        for mark in known {
            if text.contains(mark) && !marks.iter().any(|said| said == mark) {
                marks.push(mark.into());
            }
        }
        marks.sort_by_key(|mark| text.find(mark));
        marks
    }
}

impl DataConfig {
    /// The markers that are split, and whether the files' own template is replaced, of the template and the tokenizer's files that a
    /// spec names, before any data are read. A tokenizer that is trained for the run has the marks of its template.
    ///
    /// # Errors
    /// Tokenizer or template cannot be read.
    pub fn template_faults(&self) -> Result<(Vec<SplitMarker>, bool), DataError> {
        if !matches!(self.tokenizer, TokenizerConfig::File(_)) {
            return Ok((Vec::new(), false));
        }
        let tokenizer = self.tokenizer.build("", "")?;
        let template = crate::data::vocabulary::template(self, &tokenizer)?;
        Ok(template.map_or((Vec::new(), false), |template| {
            let replaces = template.replaces_that_of(&tokenizer);
            (template.cut_marks(&tokenizer), replaces)
        }))
    }
}

/// `<|…|>` in a text, each once.
pub(in crate::data) fn marks_in(text: &str) -> Vec<String> {
    let mut marks: Vec<String> = Vec::new();
    for (at, _) in text.match_indices("<|") {
        let Some(end) = text[at..].find("|>") else {
            continue;
        };
        let mark = &text[at..at + end + 2];
        let plain = mark.len() <= 40 && !mark.contains([' ', '\'', '"', '{', '\n']);
        if plain && !marks.iter().any(|known| known == mark) {
            marks.push(mark.to_string());
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chat::BUILTIN;

    /// SmolLM2 was trained further on `Human:` and `System:` in silence.
    #[test]
    fn another_template_than_the_tokenizers_own_is_known() {
        let chatml = Template::builtin("chatml").unwrap();
        let system = "{% if messages[0].role != 'system' %}<|im_start|>system\nBe good<|im_end|>\n{% endif %}";
        let own = format!("{system}{}", chatml.source());
        let vocabulary = TokenizerConfig::Char(Default::default())
            .build("abc", "")
            .unwrap();
        let plain = vocabulary
            .clone()
            .with_template(&Template::from_jinja("t", &own).unwrap());
        assert!(!chatml.replaces_that_of(&plain), "a system turn alone");
        assert!(
            Template::builtin("llama3")
                .unwrap()
                .replaces_that_of(&plain)
        );
        assert!(!chatml.replaces_that_of(&vocabulary), "it has none");
    }

    /// Only marks such as `<|user|>` were known: prompts that other templates had written were taken for plain texts.
    #[test]
    fn what_a_template_wrote_is_known_by_its_marks() {
        let own = "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n{% endfor %}### assistant:\n";
        let own = Template::from_jinja("t", own).unwrap();
        let builtin = BUILTIN.iter().map(|b| Template::builtin(b.name).unwrap());
        for template in builtin.chain([own]) {
            let turn = [Message::new("user", "say it")];
            let written = template.render(&turn, None, GenerationPrompt::With);
            assert!(
                template.has_written(&written.unwrap()),
                "{}",
                template.name()
            );
            assert!(!template.has_written("say it: "), "{}", template.name());
        }
    }

    #[test]
    fn marks_that_a_vocabulary_lacks_are_named_with_their_tokens() {
        let config = serde_json::json!({"bpe": {"vocab_size": 300, "chat_markers": "chatml"}});
        let config: TokenizerConfig = serde_json::from_value(config).unwrap();
        let tokenizer = config.build("a text", "a text").unwrap();
        let cut = |name: &str| Template::builtin(name).unwrap().cut_marks(&tokenizer);
        assert_eq!(cut("chatml"), []);
        let cut_marks = cut("llama3");
        let marks: Vec<&str> = cut_marks.iter().map(|cut| &*cut.mark).collect();
        let expected = [
            "<|begin_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ];
        assert_eq!(marks, expected);
        assert!(cut_marks.iter().all(|cut| cut.tokens > 3), "{cut_marks:?}");
        let turns = cut("gemma");
        assert!(
            turns.iter().any(|cut| cut.mark == "<start_of_turn>"),
            "{turns:?}"
        );
    }
}
