//! New runs in the making: the wizard and the editor, and what jobs bring them.

use super::App;
use crate::advisor::wizard::{Answers, Context, Seen, Wizard};
use crate::run::state::Level;
use crate::spec::Draft;
use crate::ui::effect::Effect;
use crate::ui::overlays::{Editor, Overlay, WizardScreen};
use crate::ui::panes::home::HomeRow;
use crate::wire::Event;
use std::path::PathBuf;

impl App {
    pub(super) fn wizard_ready(&mut self, context: Context, answers: Answers) {
        let wizard = Wizard::new(context, answers);
        self.overlays
            .push(Overlay::Wizard(Box::new(WizardScreen::new(wizard))));
        self.ask_draw();
    }

    /// What the wizard asked to look at; a wizard that was closed meanwhile needs it no more.
    pub(super) fn seen(&mut self, seen: Seen) -> Vec<Effect> {
        self.ask_draw();
        match self.overlays.last_mut() {
            Some(Overlay::Wizard(screen)) => {
                let reply = screen.seen(seen);
                self.reply(reply)
            }
            _ => Vec::new(),
        }
    }

    /// Begins a round of checks for the wizard on top; answers of earlier rounds are dropped from now on.
    pub(super) fn check(&mut self, yaml: String) -> Vec<Effect> {
        self.rounds += 1;
        let round = self.rounds;
        if let Some(Overlay::Wizard(screen)) = self.overlays.last_mut() {
            screen.begin_round(round);
        }
        let mut effects = self.remember();
        effects.push(Effect::Preflight { round, yaml });
        effects
    }

    fn checking(&mut self, round: u64) -> Option<&mut WizardScreen> {
        self.overlays.iter_mut().find_map(|overlay| match overlay {
            Overlay::Wizard(screen) if screen.round() == round => Some(&mut **screen),
            _ => None,
        })
    }

    pub(super) fn checked(&mut self, round: u64, event: &Event) {
        if let Some(screen) = self.checking(round) {
            screen.checked(event);
            self.ask_draw();
        }
    }

    pub(super) fn checks_over(&mut self, round: u64, result: Result<(), String>) {
        if let Some(screen) = self.checking(round) {
            screen.checks_over(result);
            self.ask_draw();
        }
    }

    pub(super) fn editor_ready(&mut self, draft: Result<Box<Draft>, String>) {
        self.ask_draw();
        match draft {
            Ok(draft) => self
                .overlays
                .push(Overlay::Editor(Box::new(Editor::new(*draft)))),
            Err(why) => self.toast(Level::Bad, &why),
        }
    }

    pub(super) fn saved(&mut self, result: Result<PathBuf, String>) {
        self.ask_draw();
        match (&result, self.overlays.last_mut()) {
            (Ok(_), Some(Overlay::Editor(editor))) => editor.saved(),
            (Err(why), Some(Overlay::Editor(editor))) => editor.refused(why),
            _ => {}
        }
        match result {
            Ok(path) => {
                let words = format!("saved; llmtui train {} trains it", path.display());
                self.toast(Level::Info, &words);
            }
            Err(why) => self.toast(Level::Bad, &why),
        }
    }

    /// The wizard's answers, for the next time.
    pub(super) fn remember(&self) -> Vec<Effect> {
        match self.overlays.last() {
            Some(Overlay::Wizard(screen)) => {
                vec![Effect::Remember(screen.wizard().answers().to_json())]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn start_spec(&mut self, name: String, yaml: String) -> Vec<Effect> {
        // The editor may lie over the wizard that opened it; the run takes the screen from both.
        self.overlays.clear();
        let (slot, mut effects) = self.hold(name.clone());
        effects.push(Effect::StartSpec { slot, name, yaml });
        effects
    }

    pub(super) fn edit_selected(&mut self) -> Vec<Effect> {
        match self.home.current(&self.store) {
            Some(HomeRow::Preset(name)) => vec![Effect::OpenEditor(name)],
            _ => {
                self.toast(Level::Info, "select a preset to edit");
                Vec::new()
            }
        }
    }
}
