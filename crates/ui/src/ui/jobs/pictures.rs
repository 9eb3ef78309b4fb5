//! Pictures of the screen as files; none is ever overwritten.

use crate::base::files::write_new;
use crate::ui::theme::svg::Ground;
use crate::ui::theme::{png, svg};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Pictures of one name that may lie side by side.
const MOST: usize = 1_000;

/// Writes a screen into the working directory as an SVG picture and a PNG picture, under a name that no other file has.
/// Returns the place of the SVG; the other lies beside it.
///
/// # Errors
/// A sentence on what the disk refused.
pub fn save_picture(name: &str, screen: &Buffer, ground: &Ground) -> Result<PathBuf, String> {
    save_in(Path::new(""), name, screen, ground)
}

/// The same in another folder.
///
/// # Errors
/// As [`save_picture`].
pub fn save_in(
    folder: &Path,
    name: &str,
    screen: &Buffer,
    ground: &Ground,
) -> Result<PathBuf, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let stem: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    for number in 1..=MOST {
        let stem = match number {
            1 => stem.clone(),
            n => format!("{stem}-{n}"),
        };
        let path = folder.join(format!("{stem}.svg"));
        let beside = folder.join(format!("{stem}.png"));
        if beside.exists() {
            continue;
        }
        match write_new(&path, svg(screen, name, ground).as_bytes(), 0o666) {
            Ok(()) => {
                let picture = png(screen, ground).map_err(|e| told(&beside, &e))?;
                write_new(&beside, &picture, 0o666).map_err(|e| told(&beside, &e))?;
                return Ok(path);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(told(&path, &e)),
        }
    }
    Err(format!("there are {MOST} pictures of {name} already"))
}

/// A part of a screen as a screen of its own.
pub fn part(screen: &Buffer, area: Rect) -> Buffer {
    let mut out = Buffer::empty(Rect::new(0, 0, area.width, area.height));
    for (from, to) in area.positions().zip(out.area.positions()) {
        if let (Some(cell), Some(place)) = (screen.cell(from), out.cell_mut(to)) {
            *place = cell.clone();
        }
    }
    out
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::svg::DARK;

    #[test]
    fn a_part_of_a_screen_is_cut_out() {
        let screen = Buffer::with_lines(["abcd", "efgh", "ijkl"]);
        let inner = part(&screen, Rect::new(1, 1, 2, 2));
        assert_eq!(inner, Buffer::with_lines(["fg", "jk"]));
    }

    #[test]
    fn pictures_stand_beside_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let screen = Buffer::with_lines(["loss 1.8", "------"]);
        let save = || save_in(dir.path(), "my run/samples", &screen, &DARK).unwrap();
        let first = save();
        assert_eq!(first, dir.path().join("my-run-samples.svg"));
        let svg = std::fs::read_to_string(&first).unwrap();
        assert!(svg.contains("loss 1.8"), "{svg}");
        let png = std::fs::read(first.with_extension("png")).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        assert_eq!(save(), dir.path().join("my-run-samples-2.svg"));
        assert_eq!(std::fs::read_to_string(&first).unwrap(), svg);
        std::fs::write(dir.path().join("my-run-samples-3.png"), "mine").unwrap();
        assert_eq!(save(), dir.path().join("my-run-samples-4.svg"));
        assert!(save_in(&dir.path().join("gone"), "x", &screen, &DARK).is_err());
    }
}
