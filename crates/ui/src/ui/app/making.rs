//! New runs in the making: the wizard and the editor come onto the screen, and what they made is started.

use super::App;
use crate::advisor::wizard::{Answers, Context, Wizard};
use crate::run::state::Level;
use crate::spec::Draft;
use crate::ui::effect::Effect;
use crate::ui::overlays::{Editor, WizardScreen};

impl App {
    pub(super) fn wizard_ready(&mut self, context: Context, answers: Answers) {
        let wizard = Wizard::new(context, answers);
        let screen = WizardScreen::new(wizard, self.slots.take());
        self.overlays.push(Box::new(screen));
        self.ask_draw();
    }

    pub(super) fn editor_ready(&mut self, draft: Result<Box<Draft>, String>) {
        self.ask_draw();
        match draft {
            Ok(draft) => self.overlays.push(Box::new(Editor::new(*draft))),
            Err(why) => self.toast(Level::Bad, &why),
        }
    }

    pub(super) fn start_spec(&mut self, name: String, yaml: String, force: bool) -> Vec<Effect> {
        // The editor may lie over the wizard that opened it; the run takes the screen from both.
        self.overlays.clear();
        let (slot, mut effects) = self.hold(name.clone());
        effects.push(Effect::StartSpec {
            slot,
            name,
            yaml,
            force,
        });
        effects
    }
}
