//! The engine's only interface to the outside: events go out, commands and the stop flag come in.

use super::rules::Rules;
use super::telemetry::Telemetry;
use crate::base::clock::Clock;
use crate::base::paths::Env;
use crate::base::text::without_error_numbers;
use crate::wire::{Command, CommandId, Event, Phase, Request, StopWhen, Values};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Where events go. The engine calls it from its own thread and waits until it returns.
pub trait Emit: Send {
    fn emit(&mut self, event: Event);
}

impl<F: FnMut(Event) + Send> Emit for F {
    fn emit(&mut self, event: Event) {
        self(event);
    }
}

/// The rules have a word for so many steps.
const FIRST_VERDICT: u64 = 20;
/// Steps between two checks of the rules where no evaluation is due.
const CHECK_EVERY: u64 = 100;

/// How long a paused engine sleeps before it looks at the stop flag again.
const PAUSE_TICK: Duration = Duration::from_millis(100);

/// Both directions of the backend.
pub(super) struct Port<'a> {
    emit: &'a mut dyn Emit,
    commands: Receiver<Request>,
    queue: VecDeque<Request>,
    stop: Arc<AtomicBool>,
    telemetry: Telemetry,
    /// Readings of other processes, for the next sample of the machine.
    beside: Values,
    pub clock: Arc<dyn Clock>,
    phase: Phase,
    /// The rules beside the run: their findings are logged at each evaluation and at the end.
    rules: Rules,
    /// From this step on the verdict is asked for again; evaluations ask anyway.
    next_verdict: u64,
    /// The last step at which the rules were asked.
    checked: u64,
}

impl<'a> Port<'a> {
    pub fn new(
        emit: &'a mut dyn Emit,
        commands: Receiver<Request>,
        stop: Arc<AtomicBool>,
        clock: Arc<dyn Clock>,
        env: &Env,
    ) -> Self {
        Port {
            emit,
            commands,
            queue: VecDeque::new(),
            stop,
            telemetry: Telemetry::start(env),
            beside: Values::new(),
            clock,
            phase: Phase::Preparing,
            rules: Rules::new(),
            next_verdict: FIRST_VERDICT,
            checked: 0,
        }
    }

    pub fn emit(&mut self, mut event: Event) {
        if let Event::Finished { message, .. } | Event::Warned { message, .. } = &mut event {
            *message = without_error_numbers(message);
        }
        self.rules.on_event(&event);
        // `Finished` is always the last word.
        if let Event::Finished { .. } = event {
            let values = std::mem::take(&mut self.beside);
            if !values.is_empty() {
                self.emit.emit(Event::HardwareSampled { values });
            }
            self.diagnose(true);
        }
        let (check, judge) = match event {
            Event::Evaluated { .. } => (true, false),
            // Whoever watches no screen is to hear of a fault before an evaluation that may be hours away.
            Event::Stepped { step, .. } if step / CHECK_EVERY > self.checked / CHECK_EVERY => {
                self.checked = step;
                (true, false)
            }
            // Lists of runs tell a verdict before the first evaluation too, and while the run waits.
            Event::Stepped { step, .. } if step >= self.next_verdict => {
                self.next_verdict = 2 * step;
                (false, true)
            }
            Event::PhaseChanged { phase, .. } => (false, phase == Phase::Paused),
            _ => (false, false),
        };
        self.emit.emit(event);
        if check {
            self.diagnose(false);
        }
        if judge && let Some(verdict) = self.rules.new_verdict() {
            self.emit.emit(verdict);
        }
    }

    /// Reads the earlier log of a resumed run in the background: it is judged by its whole history.
    pub fn load_history(&mut self, log: &Path) {
        if let Ok(log_so_far) = std::fs::metadata(log) {
            self.rules = Rules::of_log(log.into(), log_so_far.len());
        }
    }

    /// Emits changed findings of the rules.
    fn diagnose(&mut self, last: bool) {
        for event in self.rules.news(last) {
            self.emit.emit(event);
        }
    }

    /// Announces a phase; says nothing when it is the present one.
    pub fn enter(&mut self, phase: Phase, step: u64) {
        if self.phase != phase {
            self.phase = phase;
            self.emit(Event::PhaseChanged { phase, step });
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub fn note(&mut self, step: u64, text: String) {
        self.emit(Event::Noted { step, text });
    }

    pub fn warn(&mut self, step: u64, code: &str, message: String, hint: &str) {
        tracing::warn!("{code}: {message}");
        self.emit(Event::Warned {
            step,
            code: code.into(),
            message,
            hint: hint.into(),
        });
    }

    pub fn accept(&mut self, id: CommandId) {
        self.emit(Event::Accepted { id });
    }

    pub fn reject(&mut self, id: CommandId, why: impl Into<String>) {
        let why = why.into();
        self.emit(Event::Rejected { id, why });
    }

    /// Sends the machine's readings that lie ready.
    pub fn emit_telemetry(&mut self) {
        while let Some(mut event) = self.telemetry.take() {
            if let Event::HardwareSampled { values } = &mut event {
                values.append(&mut self.beside);
            }
            self.emit(event);
        }
    }

    /// Readings that go out with the machine's next ones, or before the run's last word.
    pub fn add_readings(&mut self, values: Values) {
        self.beside.extend(values);
    }

    /// The next command, without waiting.
    pub fn next_command(&mut self) -> Option<Request> {
        self.fetch();
        self.queue.pop_front()
    }

    /// Waits a moment for a command: the rhythm of a paused engine.
    pub fn wait_for_command(&mut self) -> Option<Request> {
        if let Some(request) = self.next_command() {
            return Some(request);
        }
        match self.commands.recv_timeout(PAUSE_TICK) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            // Every holder of the other end is gone, and nobody can ever resume us: only the stop flag is left.
            Err(RecvTimeoutError::Disconnected) => {
                crate::base::clock::pause(PAUSE_TICK);
                None
            }
        }
    }

    /// True once the process was asked to end (SIGTERM, SIGINT).
    pub fn stop_flag(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True when long work such as an evaluation should be broken off: a stop is waiting. Other commands keep
    /// waiting for their turn.
    pub fn stop_pending(&mut self) -> bool {
        self.emit_telemetry();
        self.fetch();
        let now = |r: &Request| {
            matches!(
                r.command,
                Command::Stop {
                    when: StopWhen::Now
                }
            )
        };
        self.stop_flag() || self.queue.iter().any(now)
    }

    /// True once the process or the run was asked to end while nothing is there to save. Stop commands are accepted.
    pub fn stop_requested(&mut self) -> bool {
        self.fetch();
        let (stops, others): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|r| matches!(r.command, Command::Stop { .. }));
        self.queue = others;
        for stop in &stops {
            self.accept(stop.id);
        }
        self.stop_flag() || !stops.is_empty()
    }

    fn fetch(&mut self) {
        self.queue.extend(self.commands.try_iter());
    }
}
