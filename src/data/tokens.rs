//! A document as a model sees it: token ids, and which of them are learnt.

/// One document: rendered, tokenized, not yet packed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    pub ids: Vec<u32>,
    /// Same length: whether predicting this token counts in the loss. The first token of a document never does: nothing in
    /// its document precedes it.
    pub learnt: Vec<bool>,
}

impl Document {
    /// A document of which every token is learnt: pretraining.
    pub fn all_learnt(ids: Vec<u32>) -> Document {
        let learnt = (0..ids.len()).map(|at| at > 0).collect();
        Document { ids, learnt }
    }

    /// Tokens whose prediction counts.
    pub fn learnt_tokens(&self) -> usize {
        self.learnt.iter().filter(|learnt| **learnt).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_is_given_not_learnt() {
        let document = Document::all_learnt(vec![7, 8, 9]);
        assert_eq!(document.learnt, [false, true, true]);
        assert_eq!(document.learnt_tokens(), 2);
        assert_eq!(Document::all_learnt(Vec::new()).learnt_tokens(), 0);
    }
}
