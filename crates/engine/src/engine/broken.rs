//! Errors that end a training: the message, and what is saved. A state with a NaN in it is never saved.

use super::EngineJob;
use super::checkpoint::store;
use crate::base::human;
use std::any::Any;
use std::path::Path;

/// A value that is non-finite, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct NonFinite {
    pub what: &'static str,
    pub value: f64,
    pub step: u64,
    pub lr: f64,
}

/// The message for a non-finite loss or gradient, with what to try.
pub(super) fn non_finite(broken: &NonFinite, checkpoints: &Path) -> String {
    let NonFinite {
        what,
        value,
        step,
        lr,
    } = *broken;
    let kept = match store::list(checkpoints).first() {
        Some(found) => format!(
            "the latest checkpoint, step {}, is intact: {}",
            found.step,
            found.path.display()
        ),
        None => "no checkpoint was saved yet".into(),
    };
    let lr = human::number(lr);
    format!(
        "{what} became {value} at step {step} (learning rate {lr}); {kept}. Most often the learning rate is too high: \
         try half of it, a longer warm-up, or a smaller train.clip_norm; rescue.policy=act does the first automatically"
    )
}

/// How the standard library panics in a thread that starts without memory for its signal stack; it then aborts.
pub const NO_STACK: &str = "failed to allocate an alternative stack";

/// Whether a panic says so: the machine is to blame where no thread can be started, and libraries panic there.
pub fn no_thread(what: &str) -> bool {
    what.starts_with("failed to spawn thread")
        || what.contains("thread pool has not been initialized")
        || what.starts_with(NO_STACK)
}

/// What such a panic says, without the form in which the program prints errors for itself.
pub fn no_thread_words(what: &str) -> String {
    let cause = what.split_once("message: \"");
    let cause = cause.and_then(|(_, rest)| rest.split_once('"'));
    match cause {
        Some((cause, _)) => format!("no thread can be started: {cause}"),
        None => "no thread can be started".into(),
    }
}

/// The words of a panic that the machine is to blame for.
pub(super) fn starved(panic: &(dyn Any + Send)) -> Option<String> {
    let what = words(panic);
    no_thread(&what).then(|| {
        format!(
            "{}: the limit on processes or on address space is reached (ulimit -u, ulimit -v); raise it, or lower \
             train.threads",
            no_thread_words(&what)
        )
    })
}

fn words(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

/// Writes the details of a panic into the run's directory and returns the path.
pub(super) fn crash_report(job: &EngineJob, panic: &(dyn Any + Send)) -> String {
    let what = words(panic);
    let path = job.run_dir.path().join("crash.txt");
    let report = format!(
        "llmtui {} crashed in the engine: {what}\n\nPlease report it and attach this file, spec.yaml and engine.log.\n",
        env!("CARGO_PKG_VERSION")
    );
    match crate::base::files::write_atomic(&path, report.as_bytes()) {
        Ok(()) => format!(
            "a bug in llmtui: {what}; please report it with {}",
            path.display()
        ),
        Err(e) => format!(
            "a bug in llmtui: {what} ({} could not be written: {e})",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_started_is_the_machines_fault() {
        let said = starved(&"failed to spawn thread: Os { code: 11 }".to_string());
        assert!(said.is_some_and(|said| said.contains("ulimit -u")));
        let os =
            r#"Os { code: 11, kind: WouldBlock, message: "Resource temporarily unavailable" }"#;
        for what in [
            "failed to spawn thread: ",
            "The global thread pool has not been initialized.: ",
        ] {
            assert_eq!(
                no_thread_words(&format!("{what}{os}")),
                "no thread can be started: Resource temporarily unavailable"
            );
        }
        assert_eq!(starved(&"index out of bounds"), None);
    }

    #[test]
    fn the_message_names_step_value_and_what_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let of = |what, value| NonFinite {
            what,
            value,
            step: 12,
            lr: 1e-3,
        };
        let none = non_finite(&of("the training loss", f64::NAN), dir.path());
        assert!(
            none.contains("NaN at step 12") && none.contains("no checkpoint"),
            "{none}"
        );
        std::fs::create_dir_all(dir.path().join("step-000010")).unwrap();
        let kept = non_finite(&of("the gradient norm", f64::INFINITY), dir.path());
        assert!(
            kept.contains("inf") && kept.contains("step-000010"),
            "{kept}"
        );
    }
}
