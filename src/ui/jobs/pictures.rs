//! Pictures of the screen as files; none is ever overwritten.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Pictures of one name that may lie side by side.
const MOST: usize = 1_000;

/// Writes a picture into the working directory, under a name that no other file has.
///
/// # Errors
/// A sentence on what the disk refused.
pub fn save_picture(name: &str, svg: &str) -> Result<PathBuf, String> {
    save_in(Path::new(""), name, svg)
}

fn save_in(folder: &Path, name: &str, svg: &str) -> Result<PathBuf, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    for number in 1..=MOST {
        let file = match number {
            1 => format!("{name}.svg"),
            n => format!("{name}-{n}.svg"),
        };
        let path = folder.join(file);
        let told = |e: std::io::Error| format!("{}: {e}", path.display());
        match File::create_new(&path) {
            Ok(mut file) => {
                file.write_all(svg.as_bytes()).map_err(told)?;
                return Ok(path);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(told(e)),
        }
    }
    Err(format!("there are {MOST} pictures of {name} already"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_stand_beside_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let first = save_in(dir.path(), "my run/samples", "<svg 1").unwrap();
        assert_eq!(first, dir.path().join("my-run-samples.svg"));
        let second = save_in(dir.path(), "my run/samples", "<svg 2").unwrap();
        assert_eq!(second, dir.path().join("my-run-samples-2.svg"));
        assert_eq!(std::fs::read_to_string(first).unwrap(), "<svg 1");
        assert!(save_in(&dir.path().join("gone"), "x", "").is_err());
    }
}
