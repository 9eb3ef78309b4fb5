//! Rows longer than the context: truncation removes the end, which is the answer.

use super::{Check, Kind, Setup, Severity};
use crate::base::human::grouped;
use crate::data::Content;
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "over_length",
    title: "Rows longer than the context",
    severity: Severity::Warning,
    cleans: false,
    cause: "they are split, truncated or dropped (data.too_long); truncation removes the end, which is the answer",
    fix: "raise model.seq_len to at least the 95th percentile of the lengths, or shorten the rows",
    make: |setup: &mut Setup| {
        // A row of seq_len predictions has one token more: the first is given.
        let limit = setup.seq_len? + 1;
        Some(Box::new(OverLength { limit, lost: 0 }))
    },
};

struct OverLength {
    limit: u64,
    /// Supervised tokens beyond the limit.
    lost: u64,
}

impl Check for OverLength {
    fn row(&mut self, row: &Row) -> Option<String> {
        // Plain text is read in windows.
        if matches!(row.example.content, Content::Text(_)) {
            return None;
        }
        let tokens = row.tokens().filter(|tokens| *tokens > self.limit)?;
        let limit = self.limit as usize;
        for seen in &row.seen {
            let behind = seen.document.supervised.iter().skip(limit);
            self.lost += behind.filter(|supervised| **supervised).count() as u64;
        }
        Some(format!("{} tokens", grouped(tokens)))
    }

    fn severity(&self, share: f64) -> Option<Severity> {
        Some(if share > 0.05 {
            Severity::Warning
        } else {
            Severity::Note
        })
    }

    fn evidence(&self) -> Option<String> {
        Some(format!(
            "{} supervised tokens are after token {}",
            grouped(self.lost),
            grouped(self.limit)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use crate::data::{Content, Message};

    #[test]
    fn what_is_lost_are_the_learnt_tokens_behind_the_limit() {
        let setup = Setup {
            seq_len: Some(4),
            ..Setup::default()
        };
        let mut check = testing::make("over_length", setup);
        let chat = || Content::Chat(vec![Message::new("assistant", "hi")]);
        assert_eq!(check.row(&testing::seen(chat(), &[1; 5], &[4])), None);
        let long = testing::seen(chat(), &[1; 7], &[3, 4, 6]);
        assert_eq!(check.row(&long).unwrap(), "7 tokens");
        assert!(check.evidence().unwrap().starts_with("1 supervised tokens"));
        let text = testing::seen(Content::Text("a".into()), &[1; 9], &[8]);
        assert_eq!(check.row(&text), None, "plain text is read in windows");
    }
}
