//! Typing into the wizard's screen.

use super::*;
use crate::advisor::wizard::{Answers, Context as Known};
use crossterm::event::KeyCode;

/// What was typed came behind the path that was offered.
#[test]
fn the_first_character_replaces_a_path_that_was_not_typed() {
    let sources = crate::spec::SpecSources::default();
    let machine = crate::advisor::inspection::Machine::of(Default::default(), Default::default());
    let dir = tempfile::tempdir().unwrap();
    let chats = dir.path().join("chats.jsonl");
    std::fs::write(&chats, "").unwrap();
    let chats = chats.display().to_string();
    let answers = Answers {
        data_path: chats.clone(),
        ..Answers::default()
    };
    let wizard = Wizard::new(Known::gather(&sources, None, machine), answers);
    let mut screen = WizardScreen::new(wizard, Slot(1));
    screen.act(Action::Accept);
    assert_eq!(screen.question.step, Step::Data);
    let at_path = |screen: &mut WizardScreen| screen.select(1);
    let press = |screen: &mut WizardScreen, code| drop(screen.key(KeyEvent::from(code)));
    at_path(&mut screen);
    screen.field.set(&chats);
    screen.offered = true;
    for c in "b.t".chars() {
        press(&mut screen, KeyCode::Char(c));
    }
    assert_eq!(screen.field.text(), "b.t");
    // One's own path is not replaced.
    screen.select(0);
    at_path(&mut screen);
    press(&mut screen, KeyCode::Char('x'));
    assert_eq!(screen.field.text(), "b.tx");
    // Nor one that is being edited.
    screen.offered = true;
    press(&mut screen, KeyCode::Left);
    press(&mut screen, KeyCode::Char('y'));
    assert_eq!(screen.field.text(), "b.tyx");
}
