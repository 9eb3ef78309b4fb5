//! Routing of commands: most are forwarded to the engine, which answers in the log; a few concern only the link and are
//! answered here.

use super::alarm::{Alarms, STALLED};
use super::reply::rejected;
use crate::wire::{Command, Event, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

/// What to do with a command besides forwarding it.
#[derive(Debug, PartialEq)]
pub(super) enum Routed {
    /// The engine has it and will answer.
    Forwarded,
    /// The viewer wants events from this number on.
    Subscribe(u64),
    /// The viewer leaves.
    Detach,
    /// The link's own reply.
    Answer(Box<Event>),
}

/// The engine as viewers reach it.
#[derive(Debug, Clone)]
pub(super) struct EngineEnd {
    pub commands: SyncSender<Request>,
    /// The engine's stop flag.
    pub stop: Arc<AtomicBool>,
    pub alarms: Alarms,
}

impl EngineEnd {
    /// An engine that is blocked on the disk reads no commands, only its stop flag.
    fn is_blocked(&self) -> bool {
        let alarm = self.alarms.borrow();
        alarm.as_ref().is_some_and(|alarm| alarm.code == STALLED)
    }
}

/// Forwards a command without ever waiting for the engine.
pub(super) fn route(request: Request, engine: &EngineEnd) -> Routed {
    let id = request.id;
    let wants_end = matches!(request.command, Command::Stop { .. });
    match request.command {
        Command::Subscribe { from_seq } => Routed::Subscribe(from_seq),
        Command::Detach => Routed::Detach,
        Command::Ping => Routed::Answer(Box::new(Event::Accepted { id })),
        _ => match engine.commands.try_send(request) {
            Ok(()) => {
                if wants_end && engine.is_blocked() {
                    engine.stop.store(true, Ordering::Relaxed);
                }
                Routed::Forwarded
            }
            Err(TrySendError::Full(_)) => Routed::Answer(Box::new(rejected(
                id,
                "the engine is busy: too many commands are waiting; try again in a moment",
            ))),
            Err(TrySendError::Disconnected(_)) => Routed::Answer(Box::new(rejected(
                id,
                "the engine is ending and takes no more commands",
            ))),
        },
    }
}

/// The id of a line that is not a valid command, so that its sender recognises the answer.
pub(super) fn id_of(line: &str) -> u64 {
    #[derive(serde::Deserialize)]
    struct Id {
        id: u64,
    }
    serde_json::from_str::<Id>(line).map_or(0, |line| line.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CommandId;

    fn engine(room: usize) -> (EngineEnd, std::sync::mpsc::Receiver<Request>) {
        let (commands, received) = std::sync::mpsc::sync_channel(room);
        let end = EngineEnd {
            commands,
            stop: Arc::default(),
            alarms: tokio::sync::watch::channel(None).1,
        };
        (end, received)
    }

    #[test]
    fn a_stop_reaches_an_engine_that_waits_for_the_disk() {
        let (mut engine, _commands) = engine(8);
        let stop = Command::Stop {
            when: crate::wire::StopWhen::Now,
        };
        route(request(1, stop.clone()), &engine);
        assert!(!engine.stop.load(Ordering::Relaxed), "it listens by itself");
        let alarm = crate::link::alarm::Alarm {
            code: STALLED,
            message: String::new(),
            hint: "",
        };
        engine.alarms = tokio::sync::watch::channel(Some(alarm)).1;
        route(request(2, Command::Pause), &engine);
        assert!(!engine.stop.load(Ordering::Relaxed));
        route(request(3, stop), &engine);
        assert!(engine.stop.load(Ordering::Relaxed));
    }

    fn request(id: CommandId, command: Command) -> Request {
        Request { id, command }
    }

    #[test]
    fn a_full_engine_rejects_at_once_and_a_gone_one_too() {
        let (engine, commands) = engine(1);
        assert_eq!(
            route(request(1, Command::Pause), &engine),
            Routed::Forwarded
        );
        let busy = route(request(2, Command::Pause), &engine);
        let rejection = |routed| match routed {
            Routed::Answer(event) => match *event {
                Event::Rejected { id, why } => Some((id, why)),
                _ => None,
            },
            _ => None,
        };
        let (id, why) = rejection(busy).unwrap();
        assert!(id == 2 && why.contains("busy"), "{why}");
        drop(commands);
        let gone = route(request(3, Command::Pause), &engine);
        assert_eq!(rejection(gone).unwrap().0, 3);
    }

    #[test]
    fn what_concerns_the_link_never_reaches_the_engine() {
        let (engine, commands) = engine(8);
        let answers = [
            route(request(1, Command::Ping), &engine),
            route(request(2, Command::Subscribe { from_seq: 7 }), &engine),
            route(request(3, Command::Detach), &engine),
        ];
        assert_eq!(
            answers,
            [
                Routed::Answer(Box::new(Event::Accepted { id: 1 })),
                Routed::Subscribe(7),
                Routed::Detach
            ]
        );
        assert!(commands.try_recv().is_err());
    }
}
