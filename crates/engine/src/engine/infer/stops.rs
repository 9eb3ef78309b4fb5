//! Detects stop strings in text that arrives in pieces.

/// Holds back what may be the beginning of a stop string, so that none is ever shown in part.
#[derive(Debug, Clone)]
pub(super) struct StopStringFilter {
    stops: Vec<String>,
    held: String,
}

impl StopStringFilter {
    /// Empty stop strings are everywhere and mean nothing.
    pub fn new(stops: &[String]) -> StopStringFilter {
        StopStringFilter {
            stops: stops
                .iter()
                .filter(|stop| !stop.is_empty())
                .cloned()
                .collect(),
            held: String::new(),
        }
    }

    /// Takes a piece; returns what may be shown and whether a stop string was met. Text from the stop string on is dropped.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let met = self
            .stops
            .iter()
            .filter_map(|s| self.held.find(s.as_str()))
            .min();
        if let Some(place) = met {
            self.held.truncate(place);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.longest_beginning();
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text that was held back, at the end of generation.
    pub fn rest(self) -> String {
        self.held
    }

    /// Bytes at the end of the held text that begin a stop string.
    fn longest_beginning(&self) -> usize {
        let held = self.held.as_bytes();
        let begins = |n: &usize| {
            let end = &held[held.len() - n..];
            self.stops.iter().any(|s| s.as_bytes().starts_with(end))
        };
        let longest = self.stops.iter().map(|s| s.len() - 1).max().unwrap_or(0);
        (1..=longest.min(held.len()))
            .rev()
            .find(begins)
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut watch = StopStringFilter::new(&stops);
        let mut shown = String::new();
        for piece in pieces {
            let (text, met) = watch.push(piece);
            shown.push_str(&text);
            if met {
                return (shown, true);
            }
        }
        (shown + &watch.rest(), false)
    }

    #[test]
    fn a_stop_string_over_several_pieces_is_never_shown() {
        assert_eq!(
            run(&["END"], &["one E", "N", "D two"]),
            ("one ".into(), true)
        );
        assert_eq!(
            run(&["END"], &["one E", "NE", "ND!"]),
            ("one EN".into(), true)
        );
        assert_eq!(run(&["END"], &["one EN"]), ("one EN".into(), false));
        assert_eq!(run(&["b", "abc"], &["xa", "bc"]), ("x".into(), true));
        assert_eq!(run(&["", "ä"], &["xyä"]), ("xy".into(), true));
        assert_eq!(run(&[], &["x", "y"]), ("xy".into(), false));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[abä]{0,20}", stop in "[abä]{1,3}", cut in 1usize..4) {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(cut).map(|c| c.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let expected = match text.find(&stop) {
                Some(place) => (text[..place].to_string(), true),
                None => (text.clone(), false),
            };
            prop_assert_eq!(run(&[&stop], &pieces), expected);
        }
    }
}
