//! A document as a model sees it: token ids, and which of them are supervised.

/// One document: rendered, tokenized, not yet packed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    pub ids: Vec<u32>,
    /// Same length: whether predicting this token counts in the loss. The first token of a document never does: nothing in
    /// its document precedes it.
    pub supervised: Vec<bool>,
}

impl Document {
    /// A document of which every token is supervised: pretraining.
    pub fn all_supervised(ids: Vec<u32>) -> Document {
        let supervised = (0..ids.len()).map(|at| at > 0).collect();
        Document { ids, supervised }
    }

    /// Tokens whose prediction counts.
    pub fn supervised_tokens(&self) -> usize {
        self.supervised
            .iter()
            .filter(|supervised| **supervised)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_is_given_not_supervised() {
        let document = Document::all_supervised(vec![7, 8, 9]);
        assert_eq!(document.supervised, [false, true, true]);
        assert_eq!(document.supervised_tokens(), 2);
        assert_eq!(Document::all_supervised(Vec::new()).supervised_tokens(), 0);
    }
}
