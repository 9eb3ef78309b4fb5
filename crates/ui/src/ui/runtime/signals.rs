//! Signals: the end, and Ctrl-Z with its `fg`.

use super::Shell;
use crate::ui::msg::Msg;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Who is stopped when the workbench is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Ctrl-Z: the whole job, as the terminal would do it.
    Group,
    /// A signal for this process alone.
    Process,
}

/// What signals say.
pub(super) enum Caught {
    End,
    Stop,
    Continue,
}

pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    user: Signal,
    stop: Signal,
    cont: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Signals> {
        let raw = |sig: rustix::process::Signal| signal(SignalKind::from_raw(sig.as_raw()));
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            user: signal(SignalKind::user_defined1())?,
            stop: raw(rustix::process::Signal::TSTP)?,
            cont: raw(rustix::process::Signal::CONT)?,
        })
    }

    /// The next signal; of several that have come the end goes first.
    pub(super) async fn next(&mut self) -> Caught {
        tokio::select! {
            biased;
            _ = self.hangup.recv() => Caught::End,
            _ = self.terminate.recv() => Caught::End,
            _ = self.interrupt.recv() => Caught::End,
            _ = self.quit.recv() => Caught::End,
            _ = self.user.recv() => Caught::End,
            _ = self.stop.recv() => Caught::Stop,
            _ = self.cont.recv() => Caught::Continue,
        }
    }
}

impl Shell {
    /// Gives the terminal to the shell, stops, and takes it again when somebody says `fg`.
    pub(super) async fn suspend(
        &mut self,
        stop: Stop,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        use rustix::process::{
            Signal as Sig, getpid, getsid, kill_current_process_group, kill_process,
        };
        if getsid(None).is_ok_and(|session| session == getpid()) {
            // Started by the terminal itself: there is no shell that could wake us.
            return Ok(());
        }
        self.guard.leave();
        let stopped = match stop {
            Stop::Group => kill_current_process_group(Sig::STOP),
            Stop::Process => kill_process(getpid(), Sig::STOP),
        };
        if stopped.is_ok() {
            // Stopping takes a moment to reach every thread; without this wait the terminal could be taken too early.
            loop {
                match signals.next().await {
                    Caught::Continue => break,
                    Caught::Stop => {}
                    Caught::End => {
                        self.update(Msg::Terminated);
                        return Ok(());
                    }
                }
            }
        }
        self.guard.take()?;
        self.update(Msg::Resumed);
        Ok(())
    }
}
