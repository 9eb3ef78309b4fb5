//! How sure the model was of each token, as a style: five levels, by probability or by entropy. The styles differ in weight
//! and underline too, so that they differ without colour, and the legend says what each means.

use super::reply::Mark;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{Word, word};
use ratatui::text::{Line, Span};

/// What tokens are coloured by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Heat {
    #[default]
    Off,
    /// Of the token that was chosen.
    Probability,
    /// Of the distribution that it was chosen from, nats.
    Entropy,
}

/// Surest first.
const LEVELS: [Meaning; 5] = [
    Meaning::Text,
    Meaning::Heat1,
    Meaning::Heat2,
    Meaning::Heat3,
    Meaning::Heat4,
];
/// A token of at least this probability belongs to the level; less than the last to the fifth.
const PROBABILITIES: [f32; 4] = [0.9, 0.6, 0.3, 0.1];
/// A place of at most this entropy (nats) belongs to the level; more than the last to the fifth.
const ENTROPIES: [f32; 4] = [0.3, 1.0, 2.0, 3.5];

impl Heat {
    pub fn next(self) -> Heat {
        match self {
            Heat::Off => Heat::Probability,
            Heat::Probability => Heat::Entropy,
            Heat::Entropy => Heat::Off,
        }
    }

    /// The style's meaning for a token; text that is no token's own is plain.
    pub fn meaning(self, mark: &Mark) -> Meaning {
        let level = match self {
            Heat::Off => 0,
            Heat::Probability if mark.logprob.is_nan() => 0,
            Heat::Entropy if mark.entropy.is_nan() => 0,
            Heat::Probability => return of_probability(mark.logprob.exp()),
            Heat::Entropy => ENTROPIES
                .iter()
                .take_while(|most| mark.entropy > **most)
                .count(),
        };
        LEVELS[level]
    }

    /// `probability  90 % and up · 60 % · 30 % · 10 % · less`
    pub fn legend(self, theme: &Theme) -> Line<'static> {
        let (title, words): (&str, [&str; 5]) = match self {
            Heat::Off => return Line::default(),
            Heat::Probability => (
                "probability",
                ["90 % and up", "60 %", "30 %", "10 %", "less"],
            ),
            Heat::Entropy => ("entropy, nats", ["0.3 and less", "1", "2", "3.5", "more"]),
        };
        let dot = format!(" {} ", theme.glyphs().separator);
        let mut spans = vec![Span::styled(
            format!(" {title}  "),
            theme.style(Meaning::Muted),
        )];
        for (i, (meaning, word)) in LEVELS.iter().zip(words).enumerate() {
            if i > 0 {
                spans.push(Span::styled(dot.clone(), theme.style(Meaning::Muted)));
            }
            spans.push(Span::styled(word, theme.style(*meaning)));
        }
        Line::from(spans)
    }
}

/// The style's meaning for a token of this probability.
pub fn of_probability(p: f32) -> Meaning {
    LEVELS[PROBABILITIES.iter().take_while(|least| p < **least).count()]
}

/// `p 90 % 60 % 30 % 10 % less`, each in its level's style.
pub fn legend_of_probability() -> Vec<Word> {
    let levels = LEVELS.iter().zip(["90 %", "60 %", "30 %", "10 %", "less"]);
    let levels = levels.map(|(meaning, name)| word(format!(" {name}"), *meaning));
    std::iter::once(word("p", Meaning::Muted)).chain(levels).collect()
}

/// `mean p 0.62 · mean entropy 1.21 nats`: p is the geometric mean, so that it is 1 / perplexity. `None` without tokens.
pub fn means(marks: &[Mark], dot: &str) -> Option<String> {
    let known: Vec<&Mark> = marks
        .iter()
        .filter(|m| !m.logprob.is_nan() && !m.entropy.is_nan())
        .collect();
    let n = known.len() as f32;
    let logprob: f32 = known.iter().map(|m| m.logprob).sum();
    let entropy: f32 = known.iter().map(|m| m.entropy).sum();
    (n > 0.0).then(|| {
        format!(
            "mean p {:.2} {dot} mean entropy {:.2} nats",
            (logprob / n).exp(),
            entropy / n
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(p: f32, entropy: f32) -> Mark {
        Mark {
            end: 0,
            logprob: p.ln(),
            entropy,
            millis: 0,
        }
    }

    #[test]
    fn levels_go_from_sure_to_surprised() {
        let by_p = [0.95, 0.7, 0.4, 0.2, 0.01].map(|p| Heat::Probability.meaning(&mark(p, 0.0)));
        assert_eq!(by_p, LEVELS);
        let by_h = [0.0, 0.5, 1.5, 3.0, 9.0].map(|h| Heat::Entropy.meaning(&mark(1.0, h)));
        assert_eq!(by_h, LEVELS);
        assert_eq!(Heat::Off.meaning(&mark(0.01, 9.0)), Meaning::Text);
        let unknown = Heat::Probability.meaning(&mark(f32::NAN, f32::NAN));
        assert_eq!(unknown, Meaning::Text);
    }

    #[test]
    fn the_mean_probability_is_one_over_the_perplexity() {
        let words = means(&[mark(0.5, 1.0), mark(0.125, 3.0)], "|").unwrap();
        assert_eq!(words, "mean p 0.25 | mean entropy 2.00 nats");
        assert_eq!(means(&[mark(f32::NAN, 1.0)], "-"), None);
    }
}
