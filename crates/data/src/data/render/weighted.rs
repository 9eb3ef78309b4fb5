//! Assistant turns that their row excludes from the loss.

use super::mask::{self, supervised_in};
use super::{Renderer, at};
use crate::data::formats::weight;
use crate::data::{Document, Message, Place, RowFault};
use serde_json::Value;
use std::ops::Range;

impl Renderer {
    /// The document of `text`, the rendering of `messages`, without the turns that the row leaves out.
    ///
    /// # Errors
    /// It excludes some, and the assistant's spans cannot be located.
    pub(super) fn weighted(
        &self,
        mut document: Document,
        (messages, tools, text): (&[Message], Option<&Value>, &str),
        place: &Place,
    ) -> Result<Document, RowFault> {
        let only_read = weight::only_read(messages);
        if only_read.is_empty() {
            return Ok(document);
        }
        let mut spans = self.assistant_spans(messages, tools, text, place)?;
        // A template may mark several spans of one turn, or none.
        if let (true, Some(template)) = (spans.len() != only_read.len(), &self.template) {
            spans = mask::by_growth(template, messages, tools, text)
                .map_err(|what| RowFault::new(place, what, mask::UNSTABLE_FIX))?;
        }
        let spans = spans.into_iter().zip(only_read);
        let spans: Vec<Range<usize>> = spans.filter(|(_, read)| *read).map(|(s, _)| s).collect();
        let encoded = self.tokenizer.encode_with_offsets(text);
        let (_, offsets) = encoded.map_err(at(place))?;
        let read = supervised_in(&offsets, &spans);
        for (learned, read) in document.supervised.iter_mut().zip(read) {
            *learned &= !read;
        }
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use crate::data::render::tests::{place, renderer, supervised};
    use crate::data::{Content, Example, Message, TrainOn, Turns};
    use serde_json::json;

    fn turns() -> Vec<Message> {
        let mut turns = ["user", "assistant", "user", "assistant"]
            .map(|role| Message::new(role, "aa"))
            .to_vec();
        turns[1].content = "bad".into();
        turns[3].content = "good".into();
        turns[1].extra.insert("weight".into(), json!(0));
        turns[3].extra.insert("weight".into(), json!(1));
        turns
    }

    #[test]
    fn a_turn_of_weight_0_is_read_and_not_learned() {
        let learned = |template, train_on| {
            let renderer = renderer(template, train_on);
            let example = Example::new(Content::Chat(turns()));
            supervised(&renderer, &renderer.document(&example, &place()).unwrap())
        };
        // One template marks the assistant's spans, with the other they are found by text growth.
        for template in ["chatml", "llama3"] {
            let text = learned(template, TrainOn::Auto);
            assert!(text.contains("good") && !text.contains("bad"), "{text}");
        }
        let all = learned("chatml", TrainOn::All);
        assert!(
            all.contains("aa") && all.contains("good") && !all.contains("bad"),
            "{all}"
        );
    }

    #[test]
    fn so_is_one_of_a_completion() {
        let renderer = renderer("chatml", TrainOn::Auto);
        let mut turns = turns();
        let example = Example::new(Content::Completion {
            completion: Turns::Messages(turns.split_off(1)),
            prompt: Turns::Messages(turns),
        });
        let text = supervised(&renderer, &renderer.document(&example, &place()).unwrap());
        assert!(text.contains("good") && !text.contains("bad"), "{text}");
    }
}
