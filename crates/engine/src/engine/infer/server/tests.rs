//! The request queue, with a model that repeats its prompt.

mod forms;

use super::*;
use crate::base::clock::ManualClock;
use crate::engine::infer::{FormWork, RenderedPrompt};
use crate::nn::generate::Constraint;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Repeats the prompt's characters until `max_new_tokens`; what happens at the nth token is the test's.
struct Parrot<'a> {
    at_token: &'a mut dyn FnMut(usize),
    rows: Vec<Option<Repeating>>,
    /// Gets what lets each form be made.
    forms: Option<SyncSender<MakeForm>>,
}

/// Says what becomes of a form.
type MakeForm = SyncSender<Result<(), String>>;

/// Any text.
struct Any;

impl Constraint for Any {
    fn mask(&mut self, _logits: &mut [f32]) -> Result<(), String> {
        Ok(())
    }

    fn accept(&mut self, _id: u32) -> Result<(), String> {
        Ok(())
    }
}

/// An answer of a parrot.
struct Repeating {
    text: Vec<char>,
    /// Tokens of a long prompt after each piece.
    pieces: VecDeque<usize>,
    written: usize,
    limit: usize,
}

impl<'a> Parrot<'a> {
    fn new(rows: usize, at_token: &'a mut dyn FnMut(usize)) -> Parrot<'a> {
        Parrot {
            at_token,
            rows: (0..rows).map(|_| None).collect(),
            forms: None,
        }
    }
}

/// A prompt at which the model cannot compute.
const BROKEN: &str = "broken";

impl TextModel for Parrot<'_> {
    fn read(&self, prompt: &Prompt, _sampling: &Sampling) -> Result<RenderedPrompt, String> {
        match prompt {
            Prompt::Text(text) if text.is_empty() => Err("nothing to repeat".into()),
            Prompt::Text(text) => Ok(RenderedPrompt {
                text: text.clone(),
                tokens: text.chars().map(u32::from).collect(),
                dropped: 0,
                continues: true,
                tools: Vec::new(),
                tool_calls: None,
            }),
            Prompt::Tokens(_) => Err("no parrot counts".into()),
            Prompt::Turns(turns)
            | Prompt::WithTools {
                messages: turns, ..
            } => Ok(RenderedPrompt {
                text: turns.iter().map(|t| t.content.as_str()).collect(),
                tokens: vec![1; turns.len()],
                dropped: 0,
                continues: false,
                tools: Vec::new(),
                tool_calls: None,
            }),
        }
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn must_be_alone(&self, wanted: &Wanted) -> bool {
        wanted.repeatable
    }

    fn form(&self, _reading: &RenderedPrompt, wanted: &Wanted) -> Result<Option<FormWork>, String> {
        if wanted.json_schema.is_none() {
            return Ok(None);
        }
        let (send, made) = sync_channel(1);
        self.forms.as_ref().unwrap().send(send).unwrap();
        Ok(Some(Box::new(move || {
            // The test is over where nobody says it.
            let said: Result<(), String> = made.recv().unwrap_or(Ok(()));
            said.map(|()| Box::new(Any) as Box<dyn Constraint>)
        })))
    }

    fn begin(
        &mut self,
        reading: &RenderedPrompt,
        sampling: &Sampling,
        _wanted: &Wanted,
        _form: Option<Box<dyn Constraint>>,
    ) -> Result<usize, NoAnswer> {
        if reading.text == BROKEN {
            return Err(NoAnswer::Broken("out of memory".into()));
        }
        let row = self.rows.iter().position(Option::is_none).unwrap();
        self.rows[row] = Some(Repeating {
            text: reading.text.chars().collect(),
            pieces: (0..reading.tokens.len()).step_by(512).skip(1).collect(),
            written: 0,
            limit: sampling.max_new_tokens,
        });
        Ok(row)
    }

    fn write(
        &mut self,
        hear: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Vec<(usize, Result<GenerationEnd, NoAnswer>)> {
        loop {
            let mut ended = Vec::new();
            for (at, row) in self.rows.iter_mut().enumerate() {
                let Some(own) = row else { continue };
                if let Some(tokens) = own.pieces.pop_front() {
                    (self.at_token)(0);
                    let _ = hear(Progress::Row(at, Step::Read { tokens, kept: 100 }));
                    continue;
                }
                let c = own.text[own.written % own.text.len()];
                own.written += 1;
                (self.at_token)(own.written);
                let piece = Piece {
                    text: c.into(),
                    logprob: -0.5,
                    entropy: 1.25,
                    id: Some(c.into()),
                    bytes: None,
                    top: Vec::new(),
                };
                let _ = hear(Progress::Row(at, Step::Wrote(piece)));
                if own.written == own.limit {
                    let end = GenerationEnd {
                        n_tokens: own.written,
                        reason: StopReason::Length,
                        message: String::new(),
                    };
                    ended.push((at, Ok(end)));
                    *row = None;
                }
            }
            if hear(Progress::Between).is_break() || !ended.is_empty() {
                return ended;
            }
        }
    }

    fn leave(&mut self, row: usize) -> GenerationEnd {
        GenerationEnd {
            n_tokens: self.rows[row].take().unwrap().written,
            reason: StopReason::Cancelled,
            message: String::new(),
        }
    }

    fn use_adapter(&mut self, name: Option<&str>) -> Result<(), String> {
        assert!(
            self.rows.iter().all(Option::is_none),
            "answers are being written"
        );
        name.map(drop).ok_or_else(|| "no parrot is bare".into())
    }
}

fn ask(id: CommandId, command: Command) -> InboxItem {
    Ok(Request { id, command })
}

fn generate(id: CommandId, prompt: &str, max_new_tokens: usize) -> InboxItem {
    let sampling = Sampling {
        max_new_tokens,
        ..Sampling::default()
    };
    ask(
        id,
        Command::Generate {
            prompt: prompt.into(),
            sampling,
            wanted: Wanted::default(),
        },
    )
}

/// Serves what is sent before and, by `at_token`, during generation; `at_token` detaches when it has seen enough.
fn served(
    before: Vec<InboxItem>,
    mut at_token: impl FnMut(usize, &SyncSender<InboxItem>),
) -> Vec<Event> {
    let (send, inbox) = sync_channel(64);
    for heard in before {
        send.send(heard).unwrap();
    }
    let mut events = Vec::new();
    let mut hook = |n: usize| at_token(n, &send);
    let mut model = Parrot::new(1, &mut hook);
    serve(&mut model, &inbox, &ManualClock::at(0), &mut |event| {
        events.push(event);
    });
    events
}

fn texts(events: &[Event], id: CommandId) -> String {
    events
        .iter()
        .filter_map(|e| match e {
            Event::Token { command, text, .. } if *command == id => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

fn reason(events: &[Event], id: CommandId) -> Option<(StopReason, String)> {
    events.iter().find_map(|e| match e {
        Event::Generated {
            command,
            reason,
            message,
            ..
        } if *command == id => Some((*reason, message.clone())),
        _ => None,
    })
}

fn detach(id: CommandId) -> InboxItem {
    ask(id, Command::Detach)
}

#[test]
fn prompts_are_answered_in_order() {
    let mut events = Vec::new();
    let (send, inbox) = sync_channel(64);
    for heard in [
        generate(1, "ab", 3),
        generate(2, "", 3),
        generate(3, "x", 2),
    ] {
        send.send(heard).unwrap();
    }
    let mut done = 0;
    let mut nothing = |_| {};
    let mut model = Parrot::new(1, &mut nothing);
    serve(&mut model, &inbox, &ManualClock::at(0), &mut |event| {
        if matches!(event, Event::Generated { .. }) {
            done += 1;
            if done == 3 {
                send.send(detach(9)).unwrap();
            }
        }
        events.push(event);
    });
    assert_eq!(
        (texts(&events, 1), texts(&events, 3)),
        ("aba".into(), "xx".into())
    );
    assert_eq!(reason(&events, 1).unwrap().0, StopReason::Length);
    assert_eq!(
        reason(&events, 2).unwrap(),
        (StopReason::Failed, "nothing to repeat".into())
    );
}

#[test]
fn a_model_that_cannot_compute_is_told_apart_from_a_prompt_that_is_refused() {
    let before = vec![
        generate(1, "", 3),
        generate(2, BROKEN, 3),
        generate(3, "ab", 1),
    ];
    let events = served(before, |_, send| send.send(detach(4)).unwrap());
    let ends = events.iter().filter_map(|event| match event {
        Event::Generated { reason, broken, .. } => Some((*reason, *broken)),
        _ => None,
    });
    assert_eq!(
        ends.take(2).collect::<Vec<_>>(),
        [(StopReason::Failed, false), (StopReason::Failed, true)]
    );
}

#[test]
fn cancel_ends_the_present_answer_and_takes_waiting_ones_back() {
    let events = served(
        vec![generate(1, "ab", 100), generate(2, "cd", 100)],
        |n, send| match n {
            3 => {
                send.send(ask(10, Command::Cancel { target: 2 })).unwrap();
                send.send(ask(11, Command::Cancel { target: 77 })).unwrap();
                send.send(ask(12, Command::Cancel { target: 1 })).unwrap();
                send.send(detach(13)).unwrap();
            }
            _ => assert!(n < 4),
        },
    );
    assert_eq!(texts(&events, 1), "aba");
    assert_eq!(reason(&events, 1).unwrap().0, StopReason::Cancelled);
    assert_eq!(reason(&events, 2).unwrap().0, StopReason::Cancelled);
    assert_eq!(texts(&events, 2), "");
    let answered = |event: Event| events.contains(&event);
    assert!(answered(Event::Accepted { id: 10 }) && answered(Event::Accepted { id: 12 }));
    assert!(
        events
            .iter()
            .any(|e| matches!(e, Event::Rejected { id: 11, why } if why.contains("77")))
    );
}

#[test]
fn what_is_no_prompt_is_refused_and_generation_goes_on() {
    let events = served(vec![generate(1, "ab", 4)], |n, send| match n {
        1 => {
            send.send(ask(2, Command::Pause)).unwrap();
            send.send(Err((3, "no command".into()))).unwrap();
            send.send(ask(4, Command::Ping)).unwrap();
        }
        4 => send.send(detach(5)).unwrap(),
        _ => {}
    });
    assert_eq!(texts(&events, 1), "abab");
    let rejected = |id| {
        events
            .iter()
            .any(|e| matches!(e, Event::Rejected { id: i, .. } if *i == id))
    };
    assert!(rejected(2) && rejected(3));
    assert!(events.contains(&Event::Accepted { id: 4 }));
}

#[test]
fn the_queue_is_bounded_and_settings_are_checked() {
    let mut before = vec![generate(1, "a", 1)];
    let bad = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::default();
        change(&mut sampling);
        Command::Generate {
            prompt: "a".into(),
            sampling,
            wanted: Wanted::default(),
        }
    };
    before.push(ask(100, bad(|s| s.temperature = f32::NAN)));
    before.push(ask(101, bad(|s| s.top_p = 0.0)));
    before.push(ask(102, bad(|s| s.repetition_penalty = -1.0)));
    before.push(ask(103, bad(|s| s.max_new_tokens = usize::MAX)));
    before.extend((2..=30).map(|id| generate(id, "a", 1)));
    let mut tokens = 0;
    let events = served(before, |_, send| {
        tokens += 1;
        if tokens == 17 {
            send.send(detach(50)).unwrap();
        }
    });
    let rejected: Vec<CommandId> = events
        .iter()
        .filter_map(|e| match e {
            Event::Rejected { id, .. } => Some(*id),
            _ => None,
        })
        .collect();
    assert!(rejected.starts_with(&[100, 101, 102, 103]), "{rejected:?}");
    assert_eq!(rejected.len(), 4 + 30 - 17, "{rejected:?}");
}

#[test]
fn a_closed_inbox_ends_an_answer_at_once() {
    let (send, inbox) = sync_channel(4);
    send.send(generate(1, "ab", 1_000)).unwrap();
    let mut send = Some(send);
    let mut events = Vec::new();
    let mut hook = |n: usize| {
        if n == 5 {
            send.take();
        }
    };
    let mut model = Parrot::new(1, &mut hook);
    serve(&mut model, &inbox, &ManualClock::at(0), &mut |event| {
        events.push(event);
    });
    assert_eq!(texts(&events, 1), "ababa");
}

#[test]
fn what_the_model_reads_is_told_before_its_first_token() {
    let turns = vec![crate::wire::Turn::new("user", "ab"); 2];
    let events = served(
        vec![ask(
            1,
            Command::Generate {
                prompt: Prompt::Turns(turns),
                sampling: Sampling {
                    max_new_tokens: 2,
                    ..Sampling::default()
                },
                wanted: Wanted::default(),
            },
        )],
        |n, send| {
            if n == 2 {
                send.send(detach(2)).unwrap();
            }
        },
    );
    let prompted = Event::Prompted {
        command: 1,
        text: "abab".into(),
        prompt_tokens: 2,
        tool_calls: None,
    };
    assert_eq!(events[1], prompted);
    assert!(
        matches!(&events[2], Event::Token { entropy: Some(h), .. } if h.0 == 1.25),
        "{events:?}"
    );
}

#[test]
fn long_prompts_are_told_by_their_end() {
    let long = "ä".repeat(MAX_PROMPT_ECHO);
    let told = end_of(&long);
    assert!(told.len() <= MAX_PROMPT_ECHO && long.ends_with(told));
    assert_eq!(end_of("short"), "short");
}

#[test]
fn reading_a_long_prompt_is_told_and_can_be_cancelled() {
    let mut pieces = 0;
    let long = "long ".repeat(500);
    let events = served(vec![generate(1, &long, 3)], |token, send| {
        assert_eq!(token, 0, "nothing is written");
        pieces += 1;
        if pieces == 2 {
            send.send(ask(2, Command::Cancel { target: 1 })).unwrap();
            send.send(detach(3)).unwrap();
        }
    });
    let read = |e: &Event| match e {
        Event::PromptRead {
            command: 1,
            tokens,
            kept: 100,
        } => Some(*tokens),
        _ => None,
    };
    assert_eq!(
        events.iter().filter_map(read).collect::<Vec<_>>(),
        [512, 1024]
    );
    assert!(matches!(
        events.iter().find(|e| matches!(e, Event::Generated { .. })),
        Some(Event::Generated {
            command: 1,
            n_tokens: 0,
            kept_tokens: 100,
            reason: StopReason::Cancelled,
            ..
        })
    ));
}

/// The command of each token and of each end, of a model with two rows; it detaches when all have ended.
fn side_by_side(before: Vec<InboxItem>, ends: usize) -> (Vec<Event>, Vec<CommandId>) {
    let (send, inbox) = sync_channel(64);
    for heard in before {
        send.send(heard).unwrap();
    }
    let (mut events, mut order, mut done) = (Vec::new(), Vec::new(), 0);
    let mut nothing = |_| {};
    let mut model = Parrot::new(2, &mut nothing);
    serve(&mut model, &inbox, &ManualClock::at(0), &mut |event| {
        match &event {
            Event::Token { command, .. } => order.push(*command),
            Event::Generated { .. } => done += 1,
            _ => {}
        }
        if done == ends {
            send.send(detach(99)).unwrap();
            done += 1;
        }
        events.push(event);
    });
    (events, order)
}

#[test]
fn answers_are_written_side_by_side_and_the_next_begins_in_the_row_that_is_free() {
    let before = vec![
        generate(1, "a", 2),
        generate(2, "b", 5),
        generate(3, "c", 2),
    ];
    let (events, order) = side_by_side(before, 3);
    // The second is accepted after the first token of the first.
    assert_eq!(order, [1, 1, 2, 3, 2, 3, 2, 2, 2]);
    assert_eq!(texts(&events, 2), "bbbbb");
    for (id, reason_of) in [(1, StopReason::Length), (3, StopReason::Length)] {
        assert_eq!(reason(&events, id).unwrap().0, reason_of);
    }
}

#[test]
fn an_answer_that_is_cancelled_leaves_the_others() {
    let before = vec![
        generate(1, "a", 6),
        generate(2, "b", 6),
        ask(10, Command::Cancel { target: 1 }),
        ask(11, Command::Cancel { target: 1 }),
        generate(3, "c", 2),
    ];
    let (events, order) = side_by_side(before, 3);
    assert_eq!(order, [1, 2, 3, 2, 3, 2, 2, 2, 2]);
    assert_eq!(reason(&events, 1).unwrap().0, StopReason::Cancelled);
    assert!(events.contains(&Event::Accepted { id: 10 }));
    let twice = |event: &Event| matches!(event, Event::Rejected { id: 11, .. });
    assert!(events.iter().any(twice));
}

#[test]
fn an_adapter_waits_for_all_rows_and_the_prompts_behind_it_wait_for_it() {
    let poet = || Command::UseAdapter {
        name: Some("poet".into()),
    };
    let before = vec![
        generate(1, "a", 3),
        generate(2, "b", 5),
        ask(3, poet()),
        generate(4, "c", 1),
    ];
    let (events, order) = side_by_side(before, 3);
    assert_eq!(order, [1, 1, 2, 1, 2, 2, 2, 2, 4]);
    let used = |event: &Event| matches!(event, Event::AdapterUsed { command: 3, .. });
    assert!(events.iter().any(used));
}

#[test]
fn an_answer_that_must_be_alone_is() {
    let alone = |id| {
        let wanted = Wanted {
            repeatable: true,
            ..Wanted::default()
        };
        let Ok(Request {
            command: Command::Generate {
                prompt, sampling, ..
            },
            ..
        }) = generate(id, "x", 2)
        else {
            unreachable!()
        };
        ask(
            id,
            Command::Generate {
                prompt,
                sampling,
                wanted,
            },
        )
    };
    let before = vec![generate(1, "a", 3), alone(2), generate(3, "b", 2)];
    assert_eq!(side_by_side(before, 3).1, [1, 1, 1, 2, 2, 3, 3]);
}
