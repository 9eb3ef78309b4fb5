//! Which template a run uses: the tokenizer's own, a built-in one, or a file.

use super::{PLAIN, Template, validate};
use crate::base::child::Child;
use crate::base::files::read_plain_text;
use crate::data::DataError;
use crate::data::tokenizer::{Marks, Tokenizer};
use std::path::Path;

/// The word for the template that the tokenizer brings.
pub const AUTO: &str = "auto";

impl Template {
    /// What `data.template` names: `auto` for the one that the tokenizer brings (`None` where it brings none), a built-in
    /// one by name, a `.jinja` file, or a model folder. Foreign ones are tried out in `child` first.
    ///
    /// # Errors
    /// Unknown name, unreadable file, or invalid template.
    pub fn choose(
        said: &str,
        tokenizer: &Tokenizer,
        child: &Child,
    ) -> Result<Option<Template>, DataError> {
        let path = Path::new(said);
        let template = if said == AUTO {
            match Template::of_marks("the tokenizer's", tokenizer.marks()) {
                Some(template) => template?,
                None => return Ok(None),
            }
        } else if path.is_dir() {
            Template::from_model_folder(path)?
        } else if path.extension().is_some_and(|e| e == "jinja" || e == "j2") {
            let unreadable = |source| DataError::Unreadable {
                path: path.to_path_buf(),
                source,
            };
            let source = read_plain_text(path).map_err(unreadable)?;
            Template::from_jinja(said, &source)?.with_marks(tokenizer.marks())
        } else {
            let template = Template::builtin(said)?;
            return Ok(Some(match said {
                PLAIN => template.with_marks(tokenizer.marks()),
                _ => template,
            }));
        };
        validate::validate(&template, child)?;
        Ok(Some(template))
    }

    /// Reads the template of a model folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`, with the
    /// special tokens that templates name. It is not tried out: see [`Template::choose`].
    ///
    /// # Errors
    /// No template in the folder, unreadable files, or a template that does not compile.
    pub fn from_model_folder(folder: &Path) -> Result<Template, DataError> {
        let place = folder.display().to_string();
        Template::of_marks(&place, &Marks::of_folder(folder)?).unwrap_or_else(|| {
            Err(DataError::Template {
                place,
                what: "this model has no chat template: it is a base model, or its folder is incomplete".into(),
                fix: "set data.template, e.g. chatml, or plain if the vocabulary has no turn markers",
            })
        })
    }

    pub(super) fn of_marks(place: &str, marks: &Marks) -> Option<Result<Template, DataError>> {
        let source = marks.chat_template.as_deref()?;
        Some(Template::from_jinja(place, source).map(|template| template.with_marks(marks)))
    }

    /// With the special tokens of a tokenizer, as transformers passes them.
    fn with_marks(self, marks: &Marks) -> Template {
        let tokens = [
            ("bos_token", &marks.bos),
            ("eos_token", &marks.eos),
            ("pad_token", &marks.pad),
            ("unk_token", &marks.unk),
        ];
        tokens
            .into_iter()
            .fold(self, |template, (name, token)| match token {
                Some(token) => template.with_variable(name, token.clone()),
                None => template,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Message;
    use crate::data::chat::GenerationPrompt;
    use std::fs;

    const TOKENIZER: &str = include_str!("../../../../../tests/fixtures/chat/tokenizer.json");

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn tokenizer(marks: Marks) -> Tokenizer {
        Tokenizer::from_json(TOKENIZER)
            .unwrap()
            .with_marks(marks)
            .unwrap()
    }

    fn hi(template: &Template) -> String {
        let messages = [Message::new("user", "hi")];
        template
            .render(&messages, None, GenerationPrompt::Without)
            .unwrap()
    }

    #[test]
    fn a_model_folders_template_is_told_its_tokens() {
        let config = r#"{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "chat_template": "no"}"#;
        let dir = folder(&[
            ("tokenizer_config.json", config),
            (
                "chat_template.jinja",
                "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
            ),
        ]);
        assert_eq!(
            hi(&Template::from_model_folder(dir.path()).unwrap()),
            "<s>hi</s>"
        );
    }

    #[test]
    fn a_folder_without_a_template_says_what_to_do() {
        let dir = folder(&[("tokenizer_config.json", "{}")]);
        let error = Template::from_model_folder(dir.path()).unwrap_err();
        assert!(
            error.to_string().contains("has no chat template"),
            "{error}"
        );
        assert!(error.hint().contains("data.template"));
    }

    #[test]
    fn auto_is_the_tokenizers_own_and_nothing_where_it_has_none() {
        let child = Child::default();
        let bare = tokenizer(Marks::default());
        assert!(Template::choose(AUTO, &bare, &child).unwrap().is_none());
        let marks = Marks {
            bos: Some("<s>".into()),
            chat_template: Some("{{ bos_token }}{{ messages[0].content }}".into()),
            ..Marks::default()
        };
        let template = Template::choose(AUTO, &tokenizer(marks), &child).unwrap();
        assert_eq!(hi(&template.unwrap()), "<s>hi");
    }

    /// Conversations of a base model whose vocabulary ends texts and knows no turns.
    #[test]
    fn plain_turns_end_with_the_token_that_ends_the_tokenizers_texts() {
        let marks = Marks {
            eos: Some("</s>".into()),
            ..Marks::default()
        };
        let template = Template::choose("plain", &tokenizer(marks), &Child::default());
        let template = template.unwrap().unwrap();
        let turns = [
            ("system", "be kind"),
            ("user", "hi"),
            ("assistant", "ho"),
            ("user", "so"),
        ]
        .map(|(role, text)| Message::new(role, text));
        let rendered = template
            .render_marked(&turns, None, GenerationPrompt::With)
            .unwrap();
        assert_eq!(
            rendered.text,
            "System: be kind</s>\nHuman: hi</s>\nAssistant:ho</s>\nHuman: so</s>\nAssistant:"
        );
        let learned = rendered.generated.iter().map(|r| &rendered.text[r.clone()]);
        assert_eq!(learned.collect::<Vec<_>>(), ["ho</s>"]);
        assert_eq!(template.turn_end(), Some("</s>"));
        let bare = Template::choose("plain", &tokenizer(Marks::default()), &Child::default());
        let bare = bare.unwrap().unwrap();
        assert_eq!(hi(&bare), "Human: hi\n");
        assert_eq!(bare.turn_end(), None);
    }

    #[test]
    fn names_and_files_are_told_apart() {
        let child = Child::default();
        let bare = tokenizer(Marks::default());
        let choose = |said: &str| Template::choose(said, &bare, &child);
        assert_eq!(choose("gemma").unwrap().unwrap().name(), "gemma");
        assert!(
            choose("gema")
                .unwrap_err()
                .to_string()
                .contains("chatml, llama3")
        );
        let dir = folder(&[("mine.jinja", "<{{ messages[0].content }}>")]);
        let path = dir.path().join("mine.jinja");
        let template = choose(path.to_str().unwrap()).unwrap().unwrap();
        assert_eq!(hi(&template), "<hi>");
        let absent = dir.path().join("absent.jinja");
        assert!(matches!(
            choose(absent.to_str().unwrap()),
            Err(DataError::Unreadable { .. })
        ));
    }
}
