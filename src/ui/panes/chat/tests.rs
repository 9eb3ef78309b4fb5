//! The chat without a screen: prompts, streams, cancelling, a lost engine.

use super::*;
use crate::wire::{Num, StopReason};

fn row() -> CheckpointRow {
    CheckpointRow {
        path: "/r/checkpoints/step-000500".into(),
        run: "2026-11-21-1422-shakespeare-k3qf".into(),
        step: 500,
        val_loss: Some(2.0),
        best: true,
        live: false,
    }
}

fn ready() -> ChatPane {
    ChatPane {
        engine: Engine::Ready {
            slot: Slot(7),
            row: row(),
        },
        ..ChatPane::default()
    }
}

fn token(command: CommandId, text: &str) -> Event {
    Event::Token {
        command,
        text: text.into(),
        logprob: Num(-1.0),
    }
}

fn done(command: CommandId) -> Event {
    Event::Generated {
        command,
        n_tokens: 2,
        prompt_tokens: 1,
        seconds: 0.5,
        reason: StopReason::Length,
        message: String::new(),
    }
}

#[test]
fn a_prompt_streams_and_an_empty_line_goes_on() {
    let mut chat = ready();
    chat.field().set("ROMEO:");
    let (slot, command) = chat.send(UnixMillis(0)).unwrap();
    assert_eq!(slot, Slot(7));
    assert!(matches!(command, Command::Generate { prompt, .. } if prompt == "ROMEO:"));
    assert!(chat.send(UnixMillis(0)).is_none(), "one answer at a time");
    chat.sent(Ok(3));
    chat.apply(&token(3, " What"), UnixMillis(100));
    chat.apply(&token(9, " not mine"), UnixMillis(100));
    chat.apply(&token(3, " say"), UnixMillis(200));
    assert_eq!(chat.answering().unwrap().rate(), Some(10.0));
    chat.apply(&done(3), UnixMillis(300));
    assert_eq!(chat.exchanges[0].rate(), Some(4.0));
    let (_, command) = chat.send(UnixMillis(0)).unwrap();
    assert!(matches!(command, Command::Generate { prompt, .. } if prompt == "ROMEO: What say"));
    assert_eq!(chat.exchanges.len(), 1);
}

#[test]
fn what_is_asked_while_the_engine_loads_is_sent_when_it_is_there() {
    let mut chat = ChatPane {
        engine: Engine::Opening {
            slot: Slot(1),
            row: row(),
        },
        ..ChatPane::default()
    };
    chat.field().set("hello");
    assert!(chat.send(UnixMillis(0)).is_none());
    let sent = chat.opened(Slot(1), Ok(()), UnixMillis(5));
    assert!(matches!(sent, Some((Slot(1), Command::Generate { .. }))));
}

#[test]
fn escape_cancels_and_then_leaves_the_input() {
    let mut chat = ready();
    chat.field().set("x");
    chat.send(UnixMillis(0));
    chat.sent(Ok(3));
    assert_eq!(chat.stop(), Some((Slot(7), Command::Cancel { target: 3 })));
    chat.apply(&done(3), UnixMillis(1));
    assert_eq!(chat.stop(), None);
    assert!(!chat.typing());
    assert!(
        chat.send(UnixMillis(0)).is_none() && chat.typing(),
        "enter comes back to the input"
    );
}

#[test]
fn a_lost_engine_is_told_and_earlier_prompts_come_back() {
    let mut chat = ready();
    chat.field().set("one");
    chat.send(UnixMillis(0));
    chat.lost("killed");
    assert_eq!(chat.exchanges[0].answer, Answer::Failed("killed".into()));
    assert!(matches!(chat.engine, Engine::Failed { .. }));
    assert!(chat.recall(true));
    assert_eq!(chat.field().text(), "one");
    chat.recall(false);
    assert_eq!(chat.field().text(), "");
    chat.field().set("again");
    assert!(chat.send(UnixMillis(0)).is_none());
    assert!(matches!(&chat.exchanges[1].answer, Answer::Failed(why) if why.contains("choose")));
}
