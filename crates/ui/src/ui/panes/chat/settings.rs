//! Decoding settings as a form, and back.

use super::pane::{SETTINGS, topic};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::ui::overlays::{Field, Form};

/// What the form sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub sampling: Sampling,
    /// The system prompt of models with a chat template.
    pub system: String,
    /// The file of the tools that they may call; empty for none.
    pub tools: String,
}

/// The form with the settings in force.
pub fn sampling_form(sampling: &Sampling, system: &str, tools: &str) -> Form {
    let mut fields = truncation_fields(sampling);
    fields.extend(length_fields(sampling, system));
    fields.push(Field::new(
        "tools",
        "a JSON file of tools that chat models may call; nothing is executed, you give the results; empty: none",
        tools,
        |_| None,
    ));
    Form::new(topic(SETTINGS), "how tokens are chosen", fields)
}

/// Which tokens may follow, and how likely.
fn truncation_fields(sampling: &Sampling) -> Vec<Field> {
    vec![
        Field::new(
            "temperature",
            "0 always picks the most likely token; 1 samples from the model's distribution; higher is more random",
            &sampling.temperature.to_string(),
            |t| within::<f32>(t, 0.0, 100.0, "from 0 to 100"),
        ),
        Field::new(
            "top-k",
            "sample only from the k most likely tokens; 0: from all",
            &sampling.top_k.to_string(),
            whole,
        ),
        Field::new(
            "top-p",
            "sample from the smallest set of tokens that reaches this probability; 1: from all",
            &sampling.top_p.to_string(),
            |t| within::<f32>(t, f32::MIN_POSITIVE, 1.0, "above 0, at most 1"),
        ),
        Field::new(
            "min-p",
            "sample only from tokens at least this fraction as likely as the top token; 0: from all",
            &sampling.min_p.to_string(),
            |t| within::<f32>(t, 0.0, 1.0, "from 0 to 1"),
        ),
        Field::new(
            "repetition penalty",
            "above 1 penalizes tokens already in the context; 1 is off",
            &sampling.repetition_penalty.to_string(),
            |t| within::<f32>(t, f32::MIN_POSITIVE, 100.0, "above 0, at most 100"),
        ),
    ]
}

/// How far the text goes, and from what.
fn length_fields(sampling: &Sampling, system: &str) -> Vec<Field> {
    let stop: Vec<String> = sampling.stop.iter().map(|stop| written(stop)).collect();
    let stop = stop.join("|");
    vec![
        Field::new(
            "max new tokens",
            "stop after this many",
            &sampling.max_new_tokens.to_string(),
            |t| within::<usize>(t, 1, 1_000_000, "a whole number from 1 to 1,000,000"),
        ),
        Field::new(
            "seed",
            "same seed, prompt and checkpoint: same text",
            &sampling.seed.to_string(),
            whole,
        ),
        Field::new(
            "stop",
            "stop at one of these strings; | between them, \\n for a line break, \\| for a | itself; <|im_end|> is one string",
            &stop,
            |_| None,
        ),
        Field::new(
            "full context",
            "when the context is full, stop: end; roll: drop the oldest tokens; auto: roll for base models",
            match sampling.context {
                ContextLimit::Roll => "roll",
                ContextLimit::Stop => "stop",
                ContextLimit::Auto => "auto",
            },
            |t| match t {
                "auto" | "stop" | "roll" => None,
                _ => Some(format!("`{t}` is not auto, stop or roll")),
            },
        ),
        Field::new(
            "system prompt",
            "the system prompt for chat models; empty: none",
            system,
            |_| None,
        ),
    ]
}

impl Settings {
    /// From the form's values, which the form has checked; an invalid value keeps the old setting.
    pub fn of(values: &[String], old: &Sampling) -> Settings {
        let text = |at: usize| values.get(at).map(|s| s.trim().to_string());
        Settings {
            sampling: sampling_of(values, old),
            system: text(9).unwrap_or_default(),
            tools: text(10).unwrap_or_default(),
        }
    }
}

fn sampling_of(values: &[String], old: &Sampling) -> Sampling {
    let value = |i: usize| values.get(i).map(|v| v.trim()).unwrap_or_default();
    Sampling {
        temperature: value(0).parse().unwrap_or(old.temperature),
        top_k: value(1).parse().unwrap_or(old.top_k),
        top_p: value(2).parse().unwrap_or(old.top_p),
        min_p: value(3).parse().unwrap_or(old.min_p),
        repetition_penalty: value(4).parse().unwrap_or(old.repetition_penalty),
        max_new_tokens: value(5).parse().unwrap_or(old.max_new_tokens),
        seed: value(6).parse().unwrap_or(old.seed),
        stop: stops(values.get(7).map_or("", String::as_str)),
        context: match value(8) {
            "roll" => ContextLimit::Roll,
            "stop" => ContextLimit::Stop,
            "auto" => ContextLimit::Auto,
            _ => old.context,
        },
    }
}

/// A stop string as the form shows it; [`stops`] reads it back.
fn written(stop: &str) -> String {
    let letters: Vec<char> = stop.chars().collect();
    let mut out = String::new();
    for (at, c) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| letters[at]);
        let after = letters.get(at + 1).copied();
        match c {
            '\n' => out.push_str("\\n"),
            '\\' => out.push_str("\\\\"),
            '|' if before != Some('<') && after != Some('>') => out.push_str("\\|"),
            // Beside the next string's bar they would look like the ends of a special token.
            '<' if after.is_none() => out.push_str("\\<"),
            '>' if before.is_none() => out.push_str("\\>"),
            c => out.push(*c),
        }
    }
    out
}

/// The strings between bars. The bars of special tokens, `<|` and `|>`, separate nothing; a backslash takes a sign as it is.
fn stops(text: &str) -> Vec<String> {
    let (mut all, mut stop) = (Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    // The letter before, where it stands for itself.
    let mut before = None;
    while let Some(c) = letters.next() {
        let taken = match (c, letters.peek()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some(next @ ('\\' | '|' | '<' | '>'))) => Some(*next),
            ('|', next) if before != Some('<') && next != Some(&'>') => {
                all.push(std::mem::take(&mut stop));
                before = None;
                continue;
            }
            _ => None,
        };
        stop.push(taken.unwrap_or(c));
        before = taken.is_none().then_some(c);
        if taken.is_some() {
            letters.next();
        }
    }
    all.push(stop);
    all.retain(|stop| !stop.is_empty());
    all
}

fn whole(text: &str) -> Option<String> {
    text.parse::<u32>()
        .err()
        .map(|_| format!("`{text}` is not a whole number from 0 to 4,294,967,295"))
}

fn within<T: std::str::FromStr + PartialOrd>(
    text: &str,
    low: T,
    high: T,
    words: &str,
) -> Option<String> {
    match text.parse::<T>() {
        Ok(x) if x >= low && x <= high => None,
        _ => Some(format!("`{text}` is not {words}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::action::Action;
    use crate::ui::overlays::{Choice, Overlay, Reply};
    use crate::ui::request::Answer;

    #[test]
    fn settings_survive_the_form() {
        let sampling = Sampling {
            stop: vec!["\n\n".into(), "END".into()],
            top_p: 0.9,
            min_p: 0.05,
            context: ContextLimit::Stop,
            ..Sampling::default()
        };
        let mut form = sampling_form(&sampling, "Be short.", "tools.json");
        let Reply::Chosen(Choice::Answer(_, Answer::Values(values))) = form.act(Action::Accept)
        else {
            panic!("the settings in force are valid");
        };
        let system = "Be short.".to_string();
        let settings = Settings::of(&values, &Sampling::default());
        let tools = "tools.json".to_string();
        assert_eq!(settings, Settings { sampling, system, tools });
    }

    /// `<|im_end|>` became three stops, and each answer ended at its first `<`.
    #[test]
    fn a_stop_may_hold_any_letter() {
        assert_eq!(stops("<|im_end|>"), ["<|im_end|>"]);
        assert_eq!(
            stops("END|<|eot_id|>|\\n\\n"),
            ["END", "<|eot_id|>", "\n\n"]
        );
        assert_eq!(stops("a\\|b|\\d"), ["a|b", "\\d"]);
        for all in [
            &["<|im_end|>", "<|eot_id|>"][..],
            &["a|b", "|", "\\", "a\\nb", "\n"],
            &["<", "x", ">", "<|", "|>", "<>"],
        ] {
            let form: Vec<String> = all.iter().map(|stop| written(stop)).collect();
            assert_eq!(stops(&form.join("|")), all, "{form:?}");
        }
        assert_eq!(written("<|im_end|>"), "<|im_end|>");
    }

    #[test]
    fn wrong_settings_are_refused() {
        let mut form = sampling_form(&Sampling::default(), "", "");
        form.paste("x");
        assert_eq!(form.act(Action::Accept), Reply::Stay);
        assert_eq!(
            within::<f32>("NaN", 0.0, 1.0, "x"),
            Some("`NaN` is not x".into())
        );
    }
}
