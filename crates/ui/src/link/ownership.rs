//! Watches the two things that the file system can take from a run: its folder and its lock. An engine that loses the lock to another
//! one must stop; an engine that loses the folder cannot save.

use super::alarm::{Alarm, LOCK_LOST, RUN_GONE};
use super::route::EngineEnd;
use crate::base::files::{Identity, Lock, try_lock_beside_viewers};
use crate::run::RunDir;
use crate::wire::{Command, Request, StopWhen};
use std::io;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// Watches one run for the process that holds it.
#[derive(Debug)]
pub(super) struct OwnershipMonitor {
    run: RunDir,
    claim: Identity,
    /// A lock file that was created again, and is held.
    made: Option<Lock>,
    raise: watch::Sender<Option<Alarm>>,
    /// Looks in a row that found no run.
    absent: u32,
    lost: bool,
}

/// Looks that have to find no run before its engine ends: one may fall into a moment of a network file system.
const LOOKS: u32 = 2;

impl OwnershipMonitor {
    pub fn new(
        run: RunDir,
        claim: Identity,
        raise: watch::Sender<Option<Alarm>>,
    ) -> OwnershipMonitor {
        OwnershipMonitor {
            run,
            claim,
            made: None,
            raise,
            absent: 0,
            lost: false,
        }
    }

    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// True while the run is this engine's; otherwise the engine is stopped, once.
    pub fn check(&mut self, engine: &EngineEnd) -> bool {
        if self.lost {
            return false;
        }
        let path = self.run.lock_path();
        match Identity::at(&path) {
            Ok(found) if found == self.claim => return self.is_here(),
            Ok(_) => {}
            Err(e) if is_absence(&e) => match self.run.header_path().try_exists() {
                Ok(true) => {}
                Ok(false) => return self.is_absent(engine),
                Err(_) => return self.is_here(),
            },
            // What a disk does not answer for a moment is no reason to end hours of training.
            Err(_) => return self.is_here(),
        }
        self.absent = 0;
        match try_lock_beside_viewers(&path) {
            Ok(Some(lock)) => {
                // Without an identity the next look creates it again.
                self.claim = lock.identity().unwrap_or(self.claim);
                self.made = Some(lock);
                self.raise.send_replace(Some(Alarm {
                    code: "lock_gone",
                    message: format!("{} was removed and recreated", path.display()),
                    hint: "this file keeps out a second engine: do not delete it",
                }));
                true
            }
            Ok(None) => self.stop_engine(
                engine,
                LOCK_LOST,
                format!(
                    "{} was removed, and another engine has taken over the run",
                    path.display()
                ),
                "this engine ends without a checkpoint",
            ),
            // No permission, no room: the old lock is all there is, and the next look tries again.
            Err(_) => true,
        }
    }

    /// Nothing says that the run is gone: the next look decides anew.
    fn is_here(&mut self) -> bool {
        self.absent = 0;
        true
    }

    /// One more look that found no run.
    fn is_absent(&mut self, engine: &EngineEnd) -> bool {
        self.absent += 1;
        let path = self.run.path().display();
        self.absent < LOOKS
            || self.stop_engine(
                engine,
                RUN_GONE,
                format!("{path} was moved or deleted: the run ends"),
                "if it was moved, resume it from its new place; if it was deleted, start a new run",
            )
    }

    fn stop_engine(
        &mut self,
        engine: &EngineEnd,
        code: &'static str,
        message: String,
        hint: &'static str,
    ) -> bool {
        self.lost = true;
        let alarm = Alarm {
            code,
            message,
            hint,
        };
        self.raise.send_replace(Some(alarm));
        let when = StopWhen::Now;
        let command = Command::Stop { when };
        // Where the queue is full, the flag alone ends it, after a try to save.
        let _ = engine.commands.try_send(Request { id: 0, command });
        engine.stop.store(true, Ordering::Relaxed);
        false
    }
}

/// Whether the error says that a path leads to nothing, and not that nobody could look.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, sync_channel};

    type Watched = (
        tempfile::TempDir,
        RunDir,
        Lock,
        OwnershipMonitor,
        EngineEnd,
        Receiver<Request>,
    );

    fn watched() -> Watched {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "a", "", "", &ManualClock::at(0)).unwrap();
        let claim = run.claim().unwrap();
        let (raise, alarms) = watch::channel(None);
        let (commands, received) = sync_channel(4);
        let engine = EngineEnd {
            commands,
            stop: Arc::default(),
            alarms,
        };
        let man = OwnershipMonitor::new(run.clone(), claim.identity().unwrap(), raise);
        (dir, run, claim, man, engine, received)
    }

    fn alarm(engine: &EngineEnd) -> Option<&'static str> {
        engine.alarms.borrow().as_ref().map(|alarm| alarm.code)
    }

    #[test]
    fn a_removed_lock_is_made_anew_and_keeps_others_away() {
        let (_dir, run, _claim, mut man, engine, _received) = watched();
        assert!(man.check(&engine) && alarm(&engine).is_none());
        std::fs::remove_file(run.lock_path()).unwrap();
        assert!(!run.is_alive());
        assert!(man.check(&engine) && man.check(&engine));
        assert_eq!(alarm(&engine), Some("lock_gone"));
        assert!(run.is_alive() && run.claim().is_err());
        assert!(!engine.stop.load(Ordering::Relaxed));
    }

    #[test]
    fn an_engine_whose_run_is_gone_or_taken_ends() {
        for taken in [true, false] {
            let (_dir, run, _claim, mut man, engine, received) = watched();
            std::fs::remove_file(run.lock_path()).unwrap();
            let other = taken.then(|| run.claim().unwrap());
            if !taken {
                std::fs::remove_dir_all(run.path()).unwrap();
                assert!(man.check(&engine), "one look is not enough");
            }
            assert!(!man.check(&engine) && !man.check(&engine));
            let code = if taken { LOCK_LOST } else { RUN_GONE };
            assert_eq!(alarm(&engine), Some(code));
            assert!(engine.stop.load(Ordering::Relaxed));
            assert_eq!(received.try_iter().count(), 1, "told once");
            drop(other);
        }
    }
    /// One failed stat of a network disk ended the training without a checkpoint.
    #[test]
    fn a_disk_that_does_not_answer_ends_nothing() {
        let (dir, run, _claim, mut man, engine, received) = watched();
        let aside = dir.path().join("aside");
        std::fs::rename(run.path(), &aside).unwrap();
        assert!(man.check(&engine));
        // A loop of links: an error that says nothing about the run.
        std::os::unix::fs::symlink(run.path(), run.path()).unwrap();
        for _ in 0..5 {
            assert!(man.check(&engine));
        }
        std::fs::remove_file(run.path()).unwrap();
        assert!(man.check(&engine), "the looks are not in a row");
        std::fs::rename(&aside, run.path()).unwrap();
        for _ in 0..3 {
            assert!(man.check(&engine));
        }
        assert!(alarm(&engine).is_none() && received.try_iter().count() == 0);
        std::fs::rename(run.path(), &aside).unwrap();
        assert!(man.check(&engine) && !man.check(&engine));
        let said = engine.alarms.borrow().clone().unwrap().message;
        assert!(said.contains("was moved or deleted"), "{said}");
    }
}
