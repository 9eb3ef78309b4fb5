//! Messages of candle's errors. With `RUST_BACKTRACE` set, candle puts the backtrace into an error's text; messages must show
//! the text alone, so no candle error is printed by its `Display`.

use candle_core::Error;
use std::borrow::Borrow;
use std::io;

/// The text of an error without backtraces, with the contexts that were added to it, outermost first.
pub fn error_text(error: impl Borrow<Error>) -> String {
    match error.borrow() {
        Error::WithBacktrace { inner, .. } => error_text(&**inner),
        Error::Context { inner, context } => format!("{context}: {}", error_text(&**inner)),
        Error::WithPath { inner, path } => format!("{}: {}", path.display(), error_text(&**inner)),
        Error::WrappedContext { wrapped, context } => {
            format!("{context}: {}", text_of(&**wrapped))
        }
        other => other.to_string(),
    }
}

/// The text of any error, without backtraces if it is one of candle's.
pub fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<Error>() {
        Some(error) => error_text(error),
        None => error.to_string(),
    }
}

/// The same as an I/O error.
pub fn io_error(error: Error) -> io::Error {
    io::Error::other(error_text(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Context;
    use std::backtrace::Backtrace;

    /// An error as candle builds it when `RUST_BACKTRACE` is set.
    fn traced(inner: Error) -> Error {
        let backtrace = Box::new(Backtrace::force_capture());
        let inner = Box::new(inner);
        Error::WithBacktrace { inner, backtrace }
    }

    #[test]
    fn backtraces_are_left_out_at_any_depth() {
        let inner = || traced(Error::Msg("rank 0 ended".into()));
        assert!(inner().to_string().contains("0: "), "candle prints it");
        assert_eq!(error_text(inner()), "rank 0 ended");
        let deep = traced(inner().context("reading").with_path("a/b"));
        assert_eq!(error_text(&deep), "a/b: reading: rank 0 ended");
        let wrapped = Err::<(), _>(inner()).context("step 3").unwrap_err();
        assert_eq!(error_text(traced(wrapped)), "step 3: rank 0 ended");
        let io = Err::<(), _>(std::io::Error::other("disk")).context("saving");
        assert_eq!(error_text(io.unwrap_err()), "saving: disk");
    }
}
