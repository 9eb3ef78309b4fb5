//! Texts that join, leave and are written side by side equal texts alone, to the bit.

use super::*;
use crate::nn::generate::GenerateError;
use crate::nn::generate::tests::{fused, windowed};

/// What one text has besides its settings.
#[derive(Default)]
pub(crate) struct Extras {
    pub top: usize,
    pub constraint: Option<Box<dyn Constraint>>,
}

/// One text in rows that keep what is cached.
pub(crate) fn generate_on(
    model: &mut Model,
    rows: &mut Rows,
    prompt: &[u32],
    how: Continuing,
    extras: Extras,
    on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Generated> {
    let asked = Asked {
        prompt: prompt.to_vec(),
        sampling: how.sampling.clone(),
        ends: how.ends.to_vec(),
        when_full: how.when_full,
        top: extras.top,
        constraint: extras.constraint,
        scores_prompt: false,
        afresh: false,
    };
    one(model, rows, asked, on_step)
}

/// Scores a prompt; whether that was broken off.
pub(crate) fn score_prompt(
    model: &mut Model,
    rows: &mut Rows,
    prompt: &[u32],
    top: usize,
    on_tokens: &mut dyn FnMut(Vec<PromptToken>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let asked = Asked {
        top,
        scores_prompt: true,
        ..asked(prompt, 0, 0.0, 0)
    };
    let generated = one(model, rows, asked, &mut |step| match step {
        Step::Scored(tokens) => on_tokens(tokens.to_vec()),
        _ => ControlFlow::Continue(()),
    })?;
    Ok(match generated.finish {
        Finish::Stopped => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
}

fn one(
    model: &mut Model,
    rows: &mut Rows,
    asked: Asked,
    on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Generated> {
    let at = rows.join(model, asked)?.expect("a free row");
    loop {
        let ended = rows.write(model, &mut |progress| match progress {
            Progress::Row(_, step) => on_step(step),
            Progress::Between => ControlFlow::Continue(()),
        })?;
        if let Some((_, generated)) = ended.into_iter().find(|(row, _)| *row == at) {
            return generated;
        }
    }
}

fn asked(prompt: &[u32], max_new_tokens: usize, temperature: f32, seed: u64) -> Asked {
    Asked {
        prompt: prompt.to_vec(),
        sampling: Sampling {
            temperature,
            max_new_tokens,
            seed,
            ..Sampling::default()
        },
        ends: Vec::new(),
        when_full: WhenFull::Roll,
        top: 0,
        constraint: None,
        scores_prompt: false,
        afresh: true,
    }
}

/// A text's tokens, with the bits of their log-probabilities and entropies, and why it ended.
type Said = (Vec<(u32, u32, u32)>, Option<Finish>);

/// Writes texts in so many rows, the next as soon as a row is free.
fn written(model: &mut Model, n: usize, asked: Vec<Asked>) -> Vec<Said> {
    let mut rows = Rows::new(n);
    let mut said: Vec<Said> = asked.iter().map(|_| Said::default()).collect();
    let mut waiting = asked.into_iter().enumerate();
    let mut who = vec![None; n];
    let mut next = waiting.next();
    loop {
        while let Some((number, asked)) = next.take_if(|_| who.contains(&None)) {
            let at = rows.join(model, asked).unwrap().unwrap();
            who[at] = Some(number);
            next = waiting.next();
        }
        if who.iter().all(Option::is_none) {
            return said;
        }
        let ended = rows.write(model, &mut |progress| {
            if let Progress::Row(at, Step::Token(token, _)) = progress {
                let (p, h) = (token.logprob.to_bits(), token.entropy.to_bits());
                said[who[at].unwrap()].0.push((token.id, p, h));
            }
            ControlFlow::Continue(())
        });
        for (at, generated) in ended.unwrap() {
            said[who[at].take().unwrap()].1 = Some(generated.unwrap().finish);
        }
    }
}

/// Texts of many lengths and settings, as long as the context holds, and more than there can be rows; some roll.
fn many(model: &Model) -> Vec<Asked> {
    let (limit, vocab_size) = (model.shape().seq_len, model.shape().vocab_size as u32);
    let long = [3, 300, 1, 129, 40, 300, 2 * SLICE + 1, 5];
    let short = [2, 17, 1, 33, 4, 60, 9, 21, 6, 12];
    let lengths = long.into_iter().chain(short);
    let each = lengths.zip(0_u64..).map(|(len, number)| {
        let prompt: Vec<u32> = (0..len.min(limit - 4) as u32)
            .map(|i| (i * i + 3 * number as u32) % vocab_size)
            .collect();
        let mut asked = asked(
            &prompt,
            4 + 2 * (number % 8) as usize,
            (number % 3) as f32 / 2.0,
            number,
        );
        asked.sampling.repetition_penalty = if number % 2 == 1 { 1.3 } else { 1.0 };
        asked.ends = vec![7];
        asked
    });
    let mut each: Vec<Asked> = each.collect();
    // The next one has the same prompt, and must not wait for this one's.
    let scored = Asked {
        scores_prompt: true,
        ..asked(&each[1].prompt, 4, 1.0, 40)
    };
    each.insert(1, scored);
    each
}

/// That texts which come and go in a few rows, and in as many as there can be, have the bits that they have alone.
pub(crate) fn assert_same_beside_others(model: &mut Model, name: &str) {
    // Elsewhere nobody says so.
    if !Rows::are_independent() {
        return;
    }
    let alone: Vec<Said> = (0..many(model).len())
        .flat_map(|i| {
            let only = many(model).into_iter().nth(i);
            written(model, 2, only.into_iter().collect())
        })
        .collect();
    assert!(alone.len() > MAX_ROWS);
    for n in [3, 8, MAX_ROWS] {
        let asked = many(model);
        assert!(written(model, n, asked) == alone, "{name}, {n} rows");
    }
    assert!(alone.iter().any(|(tokens, _)| tokens.len() > 4), "{name}");
}

#[test]
fn texts_have_the_same_bits_alone_and_beside_others() {
    assert_same_beside_others(&mut windowed(), "sliding window");
    assert_same_beside_others(&mut fused(), "a context that rolls");
}

/// Each step of each row, until there are so many after a pass: (row, tokens read), or (row, 0) for a new one.
fn steps(rows: &mut Rows, model: &mut Model, enough: usize) -> Vec<(usize, usize)> {
    let mut steps = Vec::new();
    rows.write(model, &mut |progress| {
        match progress {
            Progress::Row(at, Step::Read { tokens, .. }) => steps.push((at, tokens)),
            Progress::Row(at, _) => steps.push((at, 0)),
            Progress::Between if steps.len() >= enough => return ControlFlow::Break(()),
            Progress::Between => {}
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    steps
}

#[test]
fn a_long_prompt_is_read_between_the_steps_of_others() {
    let mut model = windowed();
    let mut rows = Rows::new(2);
    let short = rows
        .join(&model, asked(&[1, 2], 100, 1.0, 0))
        .unwrap()
        .unwrap();
    steps(&mut rows, &mut model, 3);
    let long: Vec<u32> = (0..700).map(|i| i * 7 % 29).collect();
    let long = rows
        .join(&model, asked(&long, 100, 1.0, 1))
        .unwrap()
        .unwrap();
    assert!(
        rows.join(&model, asked(&[1], 1, 1.0, 2)).unwrap().is_none(),
        "no row is free"
    );
    let mut both = Vec::new();
    while both.iter().filter(|step| **step == (long, 0)).count() < 2 {
        both.extend(steps(&mut rows, &mut model, 1));
    }
    let read: Vec<usize> = both
        .iter()
        .filter(|(at, _)| *at == long)
        .map(|(_, n)| *n)
        .collect();
    assert_eq!(read, [0, 128, 256, 384, 512, 640, 0, 0]);
    for pair in both.windows(2) {
        assert!(
            pair[0].0 == short || pair[1].0 == short || pair[0] == (long, 0),
            "{both:?}"
        );
    }
}

#[test]
fn texts_of_one_prompt_prefill_it_once_and_go_on_where_that_is_broken_off() {
    let mut model = windowed();
    let prompt: Vec<u32> = (0..300).map(|i| i * 5 % 29).collect();
    let group = || (0..3).map(|seed| asked(&prompt, 6, 1.0, seed));
    let alone: Vec<Said> = group()
        .flat_map(|asked| written(&mut model, 3, vec![asked]))
        .collect();
    let together = written(&mut model, 3, group().collect());
    if Rows::are_independent() {
        assert!(together == alone);
    }
    let ids = |said: &Said| said.0.iter().map(|(id, ..)| *id).collect::<Vec<_>>();
    assert_ne!(ids(&alone[0]), ids(&alone[1]), "other seeds");
    for breaks in [false, true] {
        let mut rows = Rows::new(3);
        for asked in group() {
            rows.join(&model, asked).unwrap();
        }
        let mut read = steps(&mut rows, &mut model, 2);
        assert!(read.iter().all(|(at, _)| *at == 2), "one reads: {read:?}");
        if breaks {
            rows.leave(2).unwrap().unwrap();
        }
        let mut found = vec![Vec::new(); 3];
        while rows.rows.iter().any(|row| row.writing.is_some()) {
            rows.write(&mut model, &mut |progress| {
                match progress {
                    Progress::Row(at, Step::Read { tokens, .. }) => read.push((at, tokens)),
                    Progress::Row(at, Step::Token(token, _)) => found[at].push(token.id),
                    _ => {}
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        // The last row was the first to be taken.
        assert_eq!([&found[1], &found[0]], [&ids(&alone[1]), &ids(&alone[2])]);
        let passes = read
            .iter()
            .filter(|(_, tokens)| [128, 256].contains(tokens));
        assert_eq!(passes.count(), if breaks { 3 } else { 2 }, "{read:?}");
    }
}

#[test]
fn conversations_find_their_own_rows_again() {
    let mut model = windowed();
    let mut rows = Rows::new(2);
    let talk = |first: u32, len: u32| (0..len).map(|i| (first + i) % 29).collect::<Vec<u32>>();
    let mut kept_of = |rows: &mut Rows, prompt: &[u32], afresh: bool| {
        let asked = Asked {
            afresh,
            ..asked(prompt, 1, 0.0, 0)
        };
        let mut found = 0;
        one(&mut model, rows, asked, &mut |step| {
            if let Step::Read { kept, .. } = step {
                found = kept;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    };
    assert_eq!(kept_of(&mut rows, &talk(0, 200), false), 0);
    assert_eq!(kept_of(&mut rows, &talk(9, 100), false), 0);
    assert_eq!(kept_of(&mut rows, &talk(0, 220), false), 200);
    assert_eq!(kept_of(&mut rows, &talk(9, 120), false), 100);
    // A new one takes the row that was left longest ago.
    assert_eq!(kept_of(&mut rows, &talk(17, 50), false), 0);
    assert_eq!(kept_of(&mut rows, &talk(9, 130), false), 120);
    assert_eq!(kept_of(&mut rows, &talk(9, 130), true), 0, "afresh");
}

#[test]
fn a_new_text_takes_the_row_that_was_left_longest_ago() {
    let mut model = windowed();
    let mut rows = Rows::new(2);
    // The first to come is the last to leave.
    let [first, second] = [(1, 9), (2, 1)].map(|(id, tokens)| {
        let joined = rows.join(&model, asked(&[id; 20], tokens, 0.0, 0));
        joined.unwrap().unwrap()
    });
    while rows.rows.iter().any(|row| row.writing.is_some()) {
        rows.write(&mut model, &mut |_| ControlFlow::Continue(()))
            .unwrap();
    }
    let new = rows.join(&model, asked(&[3; 20], 1, 0.0, 0)).unwrap();
    assert_eq!(new, Some(second), "{first} was left later");
}

/// A form that fails at the second token.
struct Fails(usize);

impl Constraint for Fails {
    fn mask(&mut self, _: &mut [f32]) -> std::result::Result<(), String> {
        self.0 += 1;
        (self.0 < 2)
            .then_some(())
            .ok_or_else(|| "it is over".into())
    }

    fn accept(&mut self, _: u32) -> std::result::Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_text_that_fails_or_leaves_does_not_end_the_others() {
    let mut model = windowed();
    let alone = written(&mut model, 3, vec![asked(&[3, 4], 9, 1.0, 5)]);
    let mut rows = Rows::new(3);
    let own = rows
        .join(&model, asked(&[3, 4], 9, 1.0, 5))
        .unwrap()
        .unwrap();
    let fails = Asked {
        constraint: Some(Box::new(Fails(0))),
        ..asked(&[1, 2, 3], 9, 1.0, 6)
    };
    let fails = rows.join(&model, fails).unwrap().unwrap();
    let leaves = rows
        .join(&model, asked(&[9, 9], 9, 1.0, 7))
        .unwrap()
        .unwrap();
    let (mut ids, mut ends) = (Vec::new(), Vec::new());
    while !ends.contains(&own) {
        let ended = rows.write(&mut model, &mut |progress| match progress {
            Progress::Row(at, Step::Token(token, _)) if at == own => {
                ids.push(token.id);
                ControlFlow::Continue(())
            }
            Progress::Row(at, Step::Token(..)) if at == leaves => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        for (at, generated) in ended.unwrap() {
            ends.push(at);
            match generated.map_err(GenerateError::from) {
                Err(error) => assert_eq!((at, error.to_string()), (fails, "it is over".into())),
                Ok(text) if at == leaves => {
                    assert_eq!((text.finish, text.tokens.len()), (Finish::Stopped, 1));
                }
                Ok(text) => assert_eq!((at, text.finish), (own, Finish::Length)),
            }
        }
    }
    assert_eq!(ends, [leaves, fails, own]);
    assert_eq!(
        ids,
        alone[0].0.iter().map(|(id, ..)| *id).collect::<Vec<_>>()
    );
    let wrong = rows.join(&model, asked(&[], 1, 0.0, 0)).unwrap_err();
    assert!(wrong.to_string().contains("empty"));
}
