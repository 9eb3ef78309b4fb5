//! Reports the sources of a mix during a run: tokens and epochs of each, as declared metrics.

use crate::base::text::one_line;
use crate::data::Dataset;
use crate::wire::{Direction, MetricInfo};

/// The sources of a run; none where there is one text.
#[derive(Debug, Default)]
pub(super) struct Mix {
    /// Name in metrics and tokens of one pass.
    sources: Vec<(String, u64)>,
}

impl Mix {
    pub fn of(data: &Dataset) -> Mix {
        let found = data.sources();
        let mut sources: Vec<(String, u64)> = Vec::new();
        // One source alone is what every other reading is about.
        for source in found.iter().filter(|_| found.len() > 1) {
            let name = short(&source.name);
            let taken = sources
                .iter()
                .filter(|(other, _)| other.split('#').next() == Some(&name));
            let name = match taken.count() {
                0 => name,
                n => format!("{name}#{}", n + 1),
            };
            sources.push((name, source.epoch_tokens));
        }
        Mix { sources }
    }

    pub fn declarations(&self) -> Vec<MetricInfo> {
        let info = |id: String, title: String, source: &str| MetricInfo {
            id,
            title,
            unit: String::new(),
            direction: Direction::Neutral,
            source: source.into(),
            ..MetricInfo::default()
        };
        let both = self.sources.iter().flat_map(|(name, _)| {
            [
                info(
                    format!("tokens/{name}"),
                    format!("Tokens of {name}"),
                    "tokens consumed of this source",
                ),
                info(
                    format!("epochs/{name}"),
                    format!("Epochs of {name}"),
                    "tokens consumed over the tokens of one pass",
                ),
            ]
        });
        both.collect()
    }

    /// Readings, of tokens consumed of each source.
    pub fn readings(&self, tokens: &[u64]) -> Vec<(String, f64)> {
        let both = self
            .sources
            .iter()
            .zip(tokens)
            .flat_map(|((name, epoch), tokens)| {
                let passes = *tokens as f64 / (*epoch).max(1) as f64;
                [
                    (format!("tokens/{name}"), *tokens as f64),
                    (format!("epochs/{name}"), passes),
                ]
            });
        both.collect()
    }
}

/// The last part of a path, in one line.
fn short(name: &str) -> String {
    let last = name
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(name);
    one_line(last).replace(['#', ' '], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_apart_and_counted() {
        assert_eq!(short("/a/b/chats one.jsonl"), "chats-one.jsonl");
        let mix = Mix {
            sources: vec![("a".into(), 100), ("a#2".into(), 50)],
        };
        assert_eq!(mix.declarations().len(), 4);
        let readings = mix.readings(&[250, 25]);
        assert_eq!(readings[1], ("epochs/a".into(), 2.5));
        assert_eq!(readings[2], ("tokens/a#2".into(), 25.0));
        assert!(Mix::default().readings(&[]).is_empty());
    }
}
