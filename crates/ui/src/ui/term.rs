//! The terminal: taken, given back, and written to one whole frame at a time.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};

/// Buttons, wheel and drags, in the SGR form. Not every movement (mode 1003): over SSH each would be a packet.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1002l\x1b[?1000l";

/// Whether the newest guard holds the terminal, for who must give it back from elsewhere.
static HELD: Mutex<Weak<AtomicBool>> = Mutex::new(Weak::new());

/// Gives the terminal back from another thread: the process is about to end without unwinding.
pub fn give_back_terminal() {
    if let Some(inside) = HELD.try_lock().ok().and_then(|held| held.upgrade()) {
        give_back(&inside);
    }
}

/// Holds the terminal; dropping it gives the terminal back, also while a panic of this thread unwinds.
pub struct Guard {
    terminal: Terminal<CrosstermBackend<Frames>>,
    frames: Frames,
    /// The terminal is ours; whoever clears it gives the terminal back, so that this happens once: leaving the alternate
    /// screen a second time would put the cursor on top of a panic's words.
    inside: Arc<AtomicBool>,
    /// A panic of another thread wrote over the screen.
    spoiled: Arc<AtomicBool>,
}

impl Guard {
    /// Raw mode, alternate screen, mouse, bracketed paste.
    ///
    /// # Errors
    /// Standard output is no terminal, or takes nothing.
    pub fn enter() -> io::Result<Guard> {
        let frames = Frames::default();
        let terminal = Terminal::new(CrosstermBackend::new(frames.clone()))?;
        let spoiled = Arc::new(AtomicBool::new(false));
        let inside = Arc::new(AtomicBool::new(false));
        let mut guard = Guard {
            terminal,
            frames,
            inside: Arc::clone(&inside),
            spoiled: Arc::clone(&spoiled),
        };
        if let Ok(mut held) = HELD.lock() {
            *held = Arc::downgrade(&inside);
        }
        watch_panics(inside, spoiled);
        guard.take()?;
        Ok(guard)
    }

    /// Takes the terminal (again) and forgets what was on it.
    ///
    /// # Errors
    /// The terminal takes nothing.
    pub fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        self.inside.store(true, Ordering::Relaxed);
        let mut out = io::stdout();
        execute!(out, EnterAlternateScreen, EnableBracketedPaste)?;
        out.write_all(MOUSE_ON.as_bytes())?;
        self.redraw()
    }

    /// Gives the terminal back.
    pub fn leave(&mut self) {
        give_back(&self.inside);
    }

    /// Makes the next frame write every cell. (`Terminal::clear` would ask the terminal where its cursor is, and wait.)
    ///
    /// # Errors
    /// The terminal does not say its size.
    pub fn redraw(&mut self) -> io::Result<()> {
        self.frames.forget();
        self.terminal = Terminal::new(CrosstermBackend::new(self.frames.clone()))?;
        queue!(self.frames, Clear(ClearType::All))
    }

    /// Draws one frame and writes it at once, or nothing when it would change nothing.
    ///
    /// # Errors
    /// The terminal takes nothing.
    pub fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame)) -> io::Result<()> {
        if self.spoiled.swap(false, Ordering::Relaxed) {
            self.redraw()?;
        }
        self.terminal.draw(draw)?;
        self.frames.commit(&mut io::stdout())
    }

    /// Rings the bell (BEL). A terminal that is gone is noticed at the next frame.
    pub fn ring(&self) {
        let mut out = io::stdout();
        let _ = out.write_all(b"\x07").and_then(|()| out.flush());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.leave();
        if !std::thread::panicking() {
            let _ = std::panic::take_hook();
        }
    }
}

/// Errors are ignored: the terminal may be gone, and there is nobody to report to.
fn give_back(inside: &AtomicBool) {
    if !inside.swap(false, Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout();
    let _ = out.write_all(MOUSE_OFF.as_bytes());
    let _ = execute!(
        out,
        EndSynchronizedUpdate,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let _ = disable_raw_mode();
}

/// A panic of this thread must find a usable terminal to speak on. A panic of another thread (an engine's) must not take
/// the screen away; what it writes is drawn over.
fn watch_panics(inside: Arc<AtomicBool>, spoiled: Arc<AtomicBool>) {
    let ui = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        match std::thread::current().id() == ui {
            true => give_back(&inside),
            false => spoiled.store(true, Ordering::Relaxed),
        }
        before(info);
    }));
}

/// Collects a frame, so that the terminal gets it in one write between the marks of a synchronised update.
#[derive(Debug, Default, Clone)]
struct Frames {
    now: Rc<RefCell<Vec<u8>>>,
    last: Rc<RefCell<Vec<u8>>>,
}

impl Frames {
    fn forget(&self) {
        self.last.borrow_mut().clear();
    }

    /// Writes what was collected. The same bytes as last time would paint the same cells again: they are not sent.
    fn commit(&self, out: &mut impl Write) -> io::Result<()> {
        let mut now = self.now.borrow_mut();
        let mut last = self.last.borrow_mut();
        if *now == *last {
            now.clear();
            return Ok(());
        }
        let mut frame = Vec::with_capacity(now.len() + 16);
        queue!(frame, BeginSynchronizedUpdate)?;
        frame.extend_from_slice(&now);
        queue!(frame, EndSynchronizedUpdate)?;
        std::mem::swap(&mut *now, &mut *last);
        now.clear();
        out.write_all(&frame)?;
        out.flush()
    }
}

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.now.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Nothing leaves before [`Frames::commit`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_write_and_an_equal_one_is_none() {
        let mut frames = Frames::default();
        let mut out = Vec::new();
        let mut send = |text: &str| {
            frames.write_all(text.as_bytes()).unwrap();
            frames.flush().unwrap();
            let before = out.len();
            frames.commit(&mut out).unwrap();
            out.len() - before
        };
        assert_eq!(send("abc"), 3 + 16);
        assert_eq!(send("abc"), 0);
        assert_eq!(send("abd"), 3 + 16);
        assert_eq!(&out[..8], b"\x1b[?2026h");
    }

    #[test]
    #[ignore = "runs inside the terminal of the next test"]
    fn panics_with_the_terminal_taken() {
        let mut guard = Guard::enter().unwrap();
        guard
            .draw(|frame| frame.render_widget("drawn", frame.area()))
            .unwrap();
        std::thread::spawn(|| panic!("a thread beside the screen"))
            .join()
            .unwrap_err();
        guard
            .draw(|frame| frame.render_widget("redrawn", frame.area()))
            .unwrap();
        panic!("the thread of the screen");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_one_of_another_thread_does_not() {
        use portable_pty::{CommandBuilder, PtySize, native_pty_system};
        let pair = native_pty_system().openpty(PtySize::default()).unwrap();
        let before = format!("{:?}", pair.master.get_termios());
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        let name = "ui::term::tests::panics_with_the_terminal_taken";
        command.args([name, "--exact", "--ignored", "--nocapture"]);
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        // Ends with an error or at zero when the child, the last holder of the other side, is gone.
        let mut bytes = Vec::new();
        let _ = io::Read::read_to_end(&mut reader, &mut bytes);
        assert!(!child.wait().unwrap().success());
        let text = String::from_utf8_lossy(&bytes);
        let at = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("no {what:?} in {text}"))
        };
        let order = [
            "\x1b[?1049h",
            "a thread beside the screen",
            "redrawn",
            "\x1b[?1049l",
            "the thread of the screen",
        ];
        assert!(order.map(at).is_sorted(), "{text}");
        assert_eq!(text.matches("\x1b[?1049l").count(), 1, "left once: {text}");
        assert_eq!(format!("{:?}", pair.master.get_termios()), before);
    }
}
