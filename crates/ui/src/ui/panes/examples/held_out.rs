//! Held-out examples on the screen: tokens in the colour of their probability, margins, and what improved or worsened since
//! the evaluation before; held-out prompts with the completions of the model.

use crate::base::human;
use crate::base::text::one_line;
use crate::run::RunState;
use crate::run::state::{Examined, UNFINISHED};
use crate::ui::glyphs::Glyphs;
use crate::ui::panes::chat::heat;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::{ExaminedExample, ExaminedSequence};
use unicode_width::UnicodeWidthStr;

pub(super) fn note(words: &str) -> Vec<Vec<Word>> {
    vec![vec![word(words, Meaning::Muted)]]
}

pub(super) fn lines(state: &RunState, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
    let Some(now) = state.examined.back() else {
        if state.is_foreign() {
            return note("Another program trains this run: its log has no examples.");
        }
        return note("Examples appear at the first evaluation.");
    };
    let before = state.examined.iter().rev().nth(1);
    let mut lines = vec![head(now, before)];
    let mut sequences = now.examples.iter().flat_map(|example| &example.sequences);
    if sequences.any(|sequence| !sequence.pieces.is_empty()) {
        lines.push(heat::legend_of_probability());
    }
    lines.extend(timeline(state, width, theme));
    lines.push(Vec::new());
    for (number, example) in now.examples.iter().enumerate() {
        let earlier = before.and_then(|before| before.examples.get(number));
        lines.extend(drawn(number + 1, example, earlier, width, theme));
    }
    lines
}

fn head(now: &Examined, before: Option<&Examined>) -> Vec<Word> {
    let written = now.examples.iter().any(is_written);
    let scored = now.examples.iter().any(is_scored);
    let what = match written {
        true => "completions of the model",
        false if scored => "held-out pairs with their scores",
        false => "held-out examples",
    };
    let step = format!("{what} at step {}", human::grouped(now.step));
    let mut words = vec![word(step, Meaning::Title)];
    if written {
        words.push(word("  advantage, reward, completion, rewards by part", Meaning::Muted));
    } else if let Some(before) = before {
        let since = format!("  change since step {}", human::grouped(before.step));
        words.push(word(since, Meaning::Muted));
        let pairs = now.examples.iter().zip(&before.examples);
        let moves: Vec<f64> = pairs.filter_map(|(now, before)| moved(now, Some(before))).collect();
        let count = |is: fn(&f64) -> bool| moves.iter().filter(|by| is(by)).count();
        let (up, down) = (count(|by| *by >= UNMOVED), count(|by| *by <= -UNMOVED));
        words.push(word(format!("  {up} improved"), Meaning::Good));
        words.push(word(format!("  {down} worsened"), Meaning::Bad));
    }
    words
}

/// Nats below which nothing changed: they are shown with two places.
const UNMOVED: f64 = 0.005;

/// What is larger of a better example: a pair's margin; how much more probable a text is than by the reference, or less where
/// it is undesirable.
fn standing(example: &ExaminedExample) -> Option<f64> {
    match &*example.sequences {
        [one] if one.reward.is_none() => {
            let ratio = one.logp.0 - one.reference_logp.map_or(0.0, |reference| reference.0);
            let sign = if one.label == "undesirable" { -1.0 } else { 1.0 };
            Some(sign * ratio)
        }
        _ => margin(example),
    }
}

/// How much better it became.
fn moved(example: &ExaminedExample, before: Option<&ExaminedExample>) -> Option<f64> {
    Some(standing(example)? - standing(before?)?)
}

fn verdict_on(by: f64) -> Word {
    match by {
        by if by >= UNMOVED => word(format!("  improved ({by:+.2})"), Meaning::Good),
        by if by <= -UNMOVED => word(format!("  worsened ({by:+.2})"), Meaning::Bad),
        _ => word("  as before", Meaning::Muted),
    }
}

/// What the time of a step goes to, as a bar and in words; and what to change where writing takes most of it.
fn timeline(state: &RunState, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
    /// Share of the time from which on writing is worth shortening.
    const MOST: f64 = 0.5;
    let share = |id: &str| state.latest(id);
    let (Some(writing), Some(scoring), Some(comparing)) = (
        share("time/writing"),
        share("time/scoring"),
        share("time/comparing"),
    ) else {
        return Vec::new();
    };
    let learning = (1.0 - writing - scoring - comparing).max(0.0);
    let parts = [
        ("generation", writing, Meaning::Accent, ['█', 'g']),
        ("rewards", scoring, Meaning::Warn, ['▓', 'r']),
        ("log-probs", comparing, Meaning::Muted, ['░', 'l']),
        ("update", learning, Meaning::Good, ['▒', 'u']),
    ];
    let room = width.saturating_sub(8).min(60) as f64;
    let mut bar = vec![word("a step  ", Meaning::Muted)];
    let (mut from, mut sum) = (0, 0.0);
    for (_, share, meaning, marks) in parts {
        sum += share;
        let to = (sum * room).round() as usize;
        let mark = String::from(marks[usize::from(theme.ascii)]);
        bar.push(word(mark.repeat(to.saturating_sub(from)), meaning));
        from = to.max(from);
    }
    let mut words = vec![word("        ", Meaning::Muted)];
    for (name, share, meaning, _) in parts {
        words.push(word(format!("{name} {:.0} %  ", 100.0 * share), meaning));
    }
    let mut lines = vec![bar, words];
    lines.extend(cold_start(state));
    if writing > MOST {
        let advice = "        generation dominates: rollout.epochs=2 reuses each rollout; or lower max_new_tokens";
        lines.push(vec![word(advice, Meaning::Muted)]);
    }
    lines
}

/// Until when the model learns answers that it did not generate, while it does.
fn cold_start(state: &RunState) -> Option<Vec<Word>> {
    let spec = &state.head.as_ref()?.spec;
    let steps = spec.pointer("/rollout/cold_start_steps")?.as_u64()?;
    let words = format!(
        "        cold start: SFT on the data's answers until step {}, then its own completions",
        human::grouped(steps)
    );
    (state.step < steps).then(|| vec![word(words, Meaning::Muted)])
}

/// Prompt, then a line for each sequence with its answer beneath.
fn drawn(
    number: usize,
    example: &ExaminedExample,
    before: Option<&ExaminedExample>,
    width: usize,
    theme: &Theme,
) -> Vec<Vec<Word>> {
    /// Lines of a prompt and of an answer.
    const PROMPT: usize = 3;
    const ANSWER: usize = 3;
    let wrap = |text: &str, rows: usize| {
        text::wrap(text.trim_end(), width.saturating_sub(4), rows, theme.ascii)
    };
    let mut lines = vec![title(number, example, before)];
    if is_written(example) {
        let answers = example.sequences.iter().flat_map(|s| written(s, width, theme));
        lines.extend(answers);
        lines.push(Vec::new());
        return lines;
    }
    let lead = lead(example);
    if let Some(first) = example.sequences.first().filter(|_| lead.is_none()) {
        // The question stands at its end: templates begin all prompts alike.
        let prompt = wrap(&first.prompt, usize::MAX);
        let above = prompt.len().saturating_sub(PROMPT);
        for (at, line) in prompt.iter().skip(above).enumerate() {
            let cut = above > 0 && at == 0;
            let dots = if cut { theme.glyphs().ellipsis } else { "" };
            lines.push(vec![word(format!("  {dots}{line}"), Meaning::Muted)]);
        }
    }
    for (at, sequence) in example.sequences.iter().enumerate() {
        let earlier = before.and_then(|before| before.sequences.get(at));
        let mut words = said(sequence, earlier);
        let columns = words.iter().map(|w| w.text.width()).sum::<usize>();
        // Nothing of a line is cut: what the sequence is held against goes below.
        let reference = match columns > width {
            true => words.pop_if(|w| w.text.starts_with(REFERENCE)),
            false => None,
        };
        lines.push(words);
        lines.extend(reference.map(|word| vec![self::word("  ", word.meaning), word]));
        if !sequence.pieces.is_empty() {
            let room = width.saturating_sub(5);
            lines.extend(coloured(sequence, lead, room, ANSWER, theme.glyphs()));
            continue;
        }
        let answer = wrap(&format!("{}{}", lead.unwrap_or_default(), sequence.answer), ANSWER);
        lines.extend(answer.into_iter().map(|line| vec![word(format!("    {line}"), Meaning::Text)]));
    }
    lines.push(Vec::new());
    lines
}

/// What stands before a text and is read with it as one: of a plain text, the first token, which nothing predicts.
fn lead(example: &ExaminedExample) -> Option<&str> {
    const COLUMNS: usize = 16;
    let [one] = &*example.sequences else {
        return None;
    };
    let short = one.prompt.chars().count() <= COLUMNS && one.prompt.lines().count() <= 1;
    (one.label == "text" && short).then_some(&*one.prompt)
}

/// The beginning of an answer behind its lead, each token in the colour of its probability.
fn coloured(
    sequence: &ExaminedSequence,
    lead: Option<&str>,
    width: usize,
    rows: usize,
    glyphs: &Glyphs,
) -> Vec<Vec<Word>> {
    let lead = lead.filter(|lead| !lead.is_empty());
    let lead = lead.map(|lead| word(lead, Meaning::Muted));
    let pieces = sequence.pieces.iter();
    let pieces = pieces.map(|(text, logp)| {
        word(text.clone(), heat::of_probability(logp.0.exp() as f32))
    });
    let all = text::broken(lead.into_iter().chain(pieces), width);
    let left_over = all.len() > rows;
    let lines = all.into_iter().take(rows);
    let indented = lines.map(|mut line| {
        line.insert(0, word("    ", Meaning::Text));
        line
    });
    let mut lines: Vec<Vec<Word>> = indented.collect();
    // Said, as of a plain text: there is a column left for it beside the indent.
    if let Some(last) = lines.last_mut().filter(|_| left_over) {
        last.push(word(glyphs.ellipsis, Meaning::Muted));
    }
    lines
}

/// How much more the policy than the reference prefers the chosen answer, in nats: the reward margin over β. Of a reward model:
/// how much higher it scores it. Without a reference, how much more probable it is, in nats a token.
fn margin(example: &ExaminedExample) -> Option<f64> {
    let worth = |side: &ExaminedSequence| match (side.reward, side.reference_logp) {
        (Some(score), _) => score.0,
        (None, Some(reference)) => side.logp.0 - reference.0,
        (None, None) => side.logp.0 / f64::from(side.tokens.max(1)),
    };
    match &*example.sequences {
        [chosen, rejected] => Some(worth(chosen) - worth(rejected)),
        _ => None,
    }
}

/// Whether the model wrote its sequences.
fn is_written(example: &ExaminedExample) -> bool {
    let has_reward = example.sequences.iter().any(|sequence| sequence.reward.is_some());
    has_reward && !is_scored(example)
}

/// Whether a reward model scored both sides of a pair.
fn is_scored(example: &ExaminedExample) -> bool {
    match &*example.sequences {
        [chosen, _] => chosen.label == "chosen" && chosen.reward.is_some(),
        _ => false,
    }
}

/// A line for an answer: how it stands in its group, what it is worth and for what; a long answer goes on beneath.
fn written(sequence: &ExaminedSequence, width: usize, theme: &Theme) -> Vec<Vec<Word>> {
    /// Lines of a long answer, and columns that an answer beside its numbers may take.
    const ANSWER: usize = 3;
    let reward = sequence.reward.map_or(0.0, |reward| reward.0);
    let standing = sequence.advantage.map_or(reward, |advantage| advantage.0);
    let meaning = match standing {
        x if x > 0.0 => Meaning::Good,
        x if x < 0.0 => Meaning::Warn,
        _ => Meaning::Muted,
    };
    let first = match sequence.advantage {
        Some(advantage) => format!("  {:>+6.2}", advantage.0),
        None => format!("  {:<8} ", sequence.label),
    };
    let mut line = vec![
        word(first, meaning),
        word(format!("  {:>5}", human::reward(reward)), Meaning::Text),
    ];
    let parts = sequence.rewards.iter();
    let parts: Vec<String> = parts.map(|(name, x)| format!("{name} {}", human::reward(x.0))).collect();
    let parts = format!("  {} · {}", parts.join(", "), length(sequence));
    let thought = thought(sequence, width, theme);
    let answer = match sequence.answer.trim_end() {
        "" if thought.is_some() => UNFINISHED,
        answer => answer,
    };
    let room = width.saturating_sub(20 + parts.width());
    if !answer.contains('\n') && answer.width() <= room {
        line.push(word(format!("  {answer}"), Meaning::Accent));
        line.push(word(parts, Meaning::Muted));
        return std::iter::once(line).chain(thought).collect();
    }
    line.push(word(parts, Meaning::Muted));
    let rows = text::wrap(answer, width.saturating_sub(6), ANSWER, theme.ascii);
    let rows = rows.into_iter().map(|row| vec![word(format!("      {row}"), Meaning::Text)]);
    std::iter::once(line).chain(thought).chain(rows).collect()
}

/// The beginning of an answer's thoughts, in one line.
fn thought(sequence: &ExaminedSequence, width: usize, theme: &Theme) -> Option<Vec<Word>> {
    let thought = one_line(sequence.thought.as_deref()?.trim());
    let room = width.saturating_sub(16);
    let rows = text::wrap(&thought, room, 1, theme.ascii);
    let row = rows.into_iter().next().unwrap_or_default();
    Some(vec![word(format!("      thinking: {row}"), Meaning::Muted)])
}

fn title(number: usize, example: &ExaminedExample, before: Option<&ExaminedExample>) -> Vec<Word> {
    let mut words = vec![word(format!("{number}"), Meaning::Accent)];
    if let Some(first) = example.sequences.first().filter(|_| is_written(example)) {
        words.push(word(format!("  {}", text::asked(&first.prompt)), Meaning::Text));
        if let Some(right) = &first.right {
            words.push(word(format!("  reference: {}", one_line(right)), Meaning::Muted));
        }
        let rewards: Vec<_> = example.sequences.iter().map(|s| s.reward).collect();
        if rewards.len() > 1 && rewards.windows(2).all(|two| two[0] == two[1]) {
            // With a critic or a mean over all groups as the baseline they teach, too.
            let teaches = |s: &ExaminedSequence| s.advantage.is_some_and(|a| a.0 != 0.0);
            words.push(match example.sequences.iter().any(teaches) {
                true => word("  equal rewards", Meaning::Muted),
                false => word("  equal rewards: no learning signal", Meaning::Warn),
            });
        }
        return words;
    }
    if let Some(margin) = margin(example) {
        let (meaning, verdict) = match margin > 0.0 {
            true => (Meaning::Good, "prefers the chosen answer"),
            false => (Meaning::Warn, "prefers the rejected answer"),
        };
        let compared = example.sequences.iter().all(|side| side.reference_logp.is_some());
        let of = match is_scored(example) {
            true => "score",
            false if compared => "log-ratio",
            false => "log p a token",
        };
        words.push(word(format!("  {verdict}, {of} margin {margin:+.2}"), meaning));
    } else if let [one] = &*example.sequences
        && let Some(reference) = one.reference_logp
    {
        let ratio = one.logp.0 - reference.0;
        let comparison = if ratio > 0.0 { "more" } else { "less" };
        let meaning = match standing(example).is_some_and(|x| x > 0.0) {
            true => Meaning::Good,
            false => Meaning::Warn,
        };
        let words_of = format!("  {comparison} probable than by the reference, log-ratio {ratio:+.2}");
        words.push(word(words_of, meaning));
    }
    words.extend(moved(example, before).map(verdict_on));
    words
}

fn length(sequence: &ExaminedSequence) -> String {
    human::counted(sequence.tokens.into(), "token")
}

fn said(sequence: &ExaminedSequence, before: Option<&ExaminedSequence>) -> Vec<Word> {
    if let Some(score) = sequence.reward {
        let text = format!("score {:+.3}, {}", score.0, length(sequence));
        let mut words = vec![
            word(format!("  {:<8} ", sequence.label), Meaning::Accent),
            word(text, Meaning::Text),
        ];
        let before = before.and_then(|before| before.reward);
        words.extend(before.map(|before| change(score.0 - before.0)));
        return words;
    }
    let per_token = sequence.logp.0 / f64::from(sequence.tokens.max(1));
    let logp = format!("log p {}", human::number(sequence.logp.0));
    let mut words = vec![
        word(format!("  {:<8} ", sequence.label), Meaning::Accent),
        word(logp, Meaning::Text),
    ];
    words.extend(before.map(|before| change(sequence.logp.0 - before.logp.0)));
    let each = format!(", {per_token:.2} a token over {}", length(sequence));
    words.push(word(each, Meaning::Text));
    if let Some(reference) = sequence.reference_logp {
        let reference = format!("{REFERENCE}{}", human::number(reference.0));
        words.push(word(reference, Meaning::Muted));
    }
    words
}

/// How the reference of a sequence begins.
const REFERENCE: &str = "  reference ";

fn change(by: f64) -> Word {
    word(format!(" ({by:+.2})"), Meaning::Muted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, Event, Num};

    fn sequence(label: &str, logp: f64, reference: Option<f64>) -> ExaminedSequence {
        ExaminedSequence {
            label: label.into(),
            prompt: "sort 2 1=".into(),
            answer: format!("{label} answer\n"),
            tokens: 4,
            thought: None,
            pieces: Vec::new(),
            logp: Num(logp),
            reference_logp: reference.map(Num),
            right: None,
            reward: None,
            rewards: Vec::new(),
            advantage: None,
        }
    }

    fn text_of(events: Vec<Event>) -> String {
        let envelope = |(seq, event)| Envelope {
            v: 1,
            seq: seq as u64 + 1,
            t: UnixMillis(1),
            event,
        };
        let log: Vec<Envelope> = events.into_iter().enumerate().map(envelope).collect();
        let lines = lines(&RunState::from_events(&log), 70, &Theme::ansi());
        let line = |words: &Vec<Word>| words.iter().map(|w| w.text.as_str()).collect::<String>();
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn examined(step: u64, chosen: f64) -> Event {
        let sequences = vec![
            sequence("chosen", chosen, Some(-6.0)),
            sequence("rejected", -7.0, Some(-6.0)),
        ];
        Event::Examined {
            step,
            examples: vec![ExaminedExample { sequences }],
        }
    }

    #[test]
    fn a_pair_shows_both_sides_its_margin_and_what_changed() {
        let text = text_of(vec![examined(50, -8.0), examined(100, -4.0)]);
        assert!(text.contains("at step 100  change since step 50  1 improved  0 worsened"), "{text}");
        assert!(
            text.contains("prefers the chosen answer, log-ratio margin +3.00  improved (+4.00)"),
            "{text}"
        );
        assert!(text.contains("chosen   log p -4.000 (+4.00), -1.00 a token over 4 tokens"), "{text}");
        assert!(text.contains("-1.00 a token over 4 tokens\n    reference -6"), "{text}");
        assert!(text.contains("    rejected answer"), "{text}");
    }

    /// On 80 columns the change since the last look was cut: `reference -30.51  (-…`.
    #[test]
    fn what_changed_is_not_cut_where_lines_are_short() {
        let of = |chosen: f64| {
            let mut sequence = sequence("chosen", chosen, Some(-1030.51));
            sequence.tokens = 1_240;
            ExaminedExample {
                sequences: vec![sequence.clone(), sequence],
            }
        };
        let drawn = drawn(1, &of(-1042.63), Some(&of(-1030.51)), 70, &Theme::ansi());
        let lines = drawn.iter().map(|line| line.iter().map(|w| w.text.as_str()).collect::<String>());
        let lines: Vec<String> = lines.collect();
        let of_chosen = lines.iter().position(|line| line.contains("chosen   log p")).unwrap();
        assert!(lines[of_chosen].contains("(-12.12)"), "{lines:?}");
        assert!(lines[of_chosen].len() <= 70, "{lines:?}");
        assert!(lines[of_chosen + 1].contains("  reference -"), "{lines:?}");
    }

    #[test]
    fn tokens_have_the_colours_of_their_probabilities() {
        let mut pair = [sequence("chosen", -3.0, None), sequence("rejected", -7.0, None)];
        pair[0].pieces = [("1", -0.01), (" 22", -0.7), ("\n3", -5.0)]
            .map(|(text, logp): (&str, f64)| (text.to_string(), Num(logp)))
            .to_vec();
        let drawn = drawn(1, &ExaminedExample { sequences: pair.into() }, None, 70, &Theme::ansi());
        let seen: Vec<(&str, Meaning)> =
            drawn.iter().flatten().map(|w| (w.text.as_str(), w.meaning)).collect();
        for token in [("1", Meaning::Text), (" 22", Meaning::Heat2), ("3", Meaning::Heat4)] {
            assert!(seen.contains(&token), "{token:?} in {seen:?}");
        }
    }

    #[test]
    fn the_first_token_of_a_text_stands_in_front_of_the_others() {
        let mut text = sequence("text", -3.0, None);
        text.prompt = "T".into();
        text.pieces = vec![("o be".into(), Num(-0.1))];
        let shown = |sequence: ExaminedSequence| {
            let examples = vec![ExaminedExample {
                sequences: vec![sequence],
            }];
            text_of(vec![Event::Examined { step: 50, examples }])
        };
        let coloured = shown(text.clone());
        assert!(coloured.contains("\n    To be\n") && !coloured.contains("\n  T\n"), "{coloured}");
        (text.pieces, text.answer) = (Vec::new(), "o be".into());
        assert!(shown(text).contains("\n    To be\n"));
    }

    #[test]
    fn a_judged_row_is_better_where_it_moves_the_way_it_should() {
        let judged = |step: u64, up: f64, down: f64| Event::Examined {
            step,
            examples: [("desirable", up), ("undesirable", down), ("desirable", -6.0)]
                .map(|(label, logp)| ExaminedExample {
                    sequences: vec![sequence(label, logp, Some(-6.0))],
                })
                .to_vec(),
        };
        let text = text_of(vec![judged(50, -6.0, -6.0), judged(100, -5.5, -5.0)]);
        assert!(text.contains("1 improved  1 worsened"), "{text}");
        assert!(
            text.contains("1  more probable than by the reference, log-ratio +0.50  improved (+0.50)"),
            "{text}"
        );
        assert!(text.contains("log-ratio +1.00  worsened (-1.00)"), "{text}");
        assert!(text.contains("log-ratio +0.00  as before"), "{text}");
    }

    #[test]
    fn a_group_shows_how_its_answers_stand_and_one_that_teaches_nothing_is_marked() {
        let answer = |text: &str, reward: f64, advantage: Option<f64>| ExaminedSequence {
            answer: text.into(),
            right: Some("1 2".into()),
            reward: Some(Num(reward)),
            rewards: vec![("exact".into(), Num(reward)), ("short".into(), Num(-0.25))],
            advantage: advantage.map(Num),
            ..sequence("held out", -2.0, None)
        };
        let group = |rewards: [f64; 2], advantage: f64| ExaminedExample {
            sequences: vec![
                answer("1 2", rewards[0], Some(advantage)),
                answer("two\nlines", rewards[1], Some(-advantage)),
            ],
        };
        let held_out = ExaminedExample {
            sequences: vec![answer("2 1", 0.0, None)],
        };
        let text = text_of(vec![Event::Examined {
            step: 70,
            examples: vec![group([1.0, 0.0], 0.71), group([0.0, 0.0], 0.0), group([1.0, 1.0], 0.2), held_out],
        }]);
        assert!(text.contains("completions of the model at step 70"), "{text}");
        assert!(text.contains("1  sort 2 1=  reference: 1 2\n"), "{text}");
        assert!(text.contains("+0.71      1  1 2  exact 1, short -0.25"), "{text}");
        assert!(text.contains("\n      two\n      lines"), "{text}");
        assert_eq!(text.matches("no learning signal").count(), 1, "{text}");
        assert!(text.contains("  held out       0  2 1  exact 0"), "{text}");
    }

    /// Every prompt of a chat template begins with the same system prompt.
    #[test]
    fn of_a_long_prompt_the_end_is_shown_with_the_question() {
        let prompt = "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nWhy is it dark?<|im_end|>\n<|im_start|>assistant\n";
        let mut one = sequence("text", -1.0, None);
        one.prompt = prompt.into();
        let text = text_of(vec![Event::Examined {
            step: 5,
            examples: vec![ExaminedExample {
                sequences: vec![one],
            }],
        }]);
        let shown = "  …<|im_start|>user\n  Why is it dark?<|im_end|>\n  <|im_start|>assistant\n";
        assert!(text.contains(shown) && !text.contains("You help"), "{text}");
    }

    #[test]
    fn a_cold_start_is_named_while_it_lasts() {
        let started = Event::Started {
            name: "r".into(),
            method: "grpo".into(),
            spec: serde_json::json!({"rollout": {"cold_start_steps": 250}}),
            n_params: 1,
            vocab_size: 17,
            max_steps: 600,
            batch_tokens: 64,
            epoch_tokens: 64,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        };
        let at = |step: u64| {
            let shares = ["time/writing", "time/scoring", "time/comparing"];
            let stepped = Event::Stepped {
                step,
                tokens: 1,
                values: shares.map(|id| (id.to_string(), Num(0.0))).into(),
            };
            text_of(vec![started.clone(), stepped, examined(step, -8.0)])
        };
        assert!(at(200).contains("cold start: SFT on the data's answers until step 250"));
        assert!(!at(250).contains("cold start"));
    }

    #[test]
    fn the_time_of_a_step_is_a_bar_of_its_parts_with_advice_where_writing_takes_most() {
        let step = |writing: f64| Event::Stepped {
            step: 70,
            tokens: 1,
            values: [
                ("time/writing", writing),
                ("time/scoring", 0.1),
                ("time/comparing", 0.0),
            ]
            .map(|(id, x)| (id.to_string(), Num(x)))
            .into(),
        };
        let most = text_of(vec![step(0.6), examined(70, -8.0)]);
        assert!(
            most.contains("generation 60 %  rewards 10 %  log-probs 0 %  update 30 %"),
            "{most}"
        );
        assert_eq!(most.matches('█').count(), 36, "{most}");
        assert_eq!(most.matches('▒').count(), 18, "{most}");
        assert!(most.contains("rollout.epochs=2"), "{most}");
        let less = text_of(vec![step(0.3), examined(70, -8.0)]);
        assert!(!less.contains("rollout.epochs"), "{less}");
        assert!(!text_of(vec![examined(70, -8.0)]).contains("a step"));
    }

    #[test]
    fn before_the_first_evaluation_it_says_when_examples_come() {
        assert!(text_of(Vec::new()).contains("first evaluation"));
        let one = text_of(vec![examined(50, -8.0)]);
        assert!(one.contains("prefers the rejected answer") && !one.contains("since"), "{one}");
    }
}
