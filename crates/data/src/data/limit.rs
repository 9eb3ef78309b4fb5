//! How many rows of a source are read: at most `data.max_rows` of each, and with a `fraction` the first part of it.

use super::DataError;
use super::source::{ReadContext, SourceConfig, announced_rows, rows};

/// The most rows of a source; `None`: all that there are. A fraction counts them first.
///
/// # Errors
/// The source cannot be opened.
pub(super) fn rows_read(
    source: &SourceConfig,
    most: Option<u64>,
    read: &ReadContext,
) -> Result<Option<u64>, DataError> {
    if source.fraction == 1.0 {
        return Ok(most);
    }
    let all = count(source, read)?;
    // Rounded down, as those do who take the first rows of a set.
    let part = ((all as f64 * source.fraction) as u64).max(1);
    Ok(Some(most.map_or(part, |most| most.min(part))))
}

fn count(source: &SourceConfig, read: &ReadContext) -> Result<u64, DataError> {
    let rows = rows(source, read)?;
    let files = rows.files();
    let announced: Option<u64> = files.iter().map(|file| announced_rows(file)).sum();
    // Bad rows are rows, too: what becomes of them is said when they are read.
    Ok(match announced.filter(|_| !files.is_empty()) {
        Some(all) => all,
        None => rows.count() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_of_all_rows_of_all_files() {
        let dir = tempfile::tempdir().unwrap();
        for (name, n) in [("a.jsonl", 7), ("b.jsonl", 5)] {
            std::fs::write(dir.path().join(name), "{\"text\": \"x\"}\n".repeat(n)).unwrap();
        }
        let limit = |fraction: f64, most: Option<u64>| {
            let source = SourceConfig {
                fraction,
                ..SourceConfig::path(dir.path().display().to_string())
            };
            rows_read(&source, most, &ReadContext::default()).unwrap()
        };
        assert_eq!(limit(1.0, None), None);
        assert_eq!(limit(1.0, Some(3)), Some(3));
        assert_eq!(limit(0.5, None), Some(6));
        assert_eq!(limit(0.3, None), Some(3));
        assert_eq!(limit(0.001, None), Some(1));
        assert_eq!(limit(0.5, Some(4)), Some(4));
    }
}
