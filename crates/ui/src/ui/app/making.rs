//! New runs in the making: the wizard and the editor come onto the screen, and what they made is started.

use super::App;
use crate::advisor::wizard::{Answers, Context, Wizard};
use crate::base::text::one_line;
use crate::run::state::Level;
use crate::spec::Draft;
use crate::ui::effect::Effect;
use crate::ui::msg::Slot;
use crate::ui::overlays::{Editor, WizardScreen};
use std::path::PathBuf;

impl App {
    pub(super) fn wizard_ready(&mut self, context: Context, answers: Answers) {
        let wizard = Wizard::new(context, answers);
        let screen = WizardScreen::new(wizard, self.slots.take());
        self.open(Box::new(screen));
        self.ask_draw();
    }

    pub(super) fn editor_ready(&mut self, draft: Result<Box<Draft>, String>) {
        self.ask_draw();
        match draft {
            Ok(draft) => {
                self.open(Box::new(Editor::new(*draft)));
            }
            Err(why) => self.toast(Level::Bad, &why),
        }
    }

    pub(super) fn start_spec(
        &mut self,
        name: String,
        yaml: String,
        force: bool,
        after: Option<PathBuf>,
    ) -> Vec<Effect> {
        // The editor may lie over the wizard that opened it; the run takes the screen from both.
        let overlays = std::mem::take(&mut self.overlays);
        let (slot, mut effects) = self.open_new_slot(name.clone());
        self.making = Some((slot, overlays));
        effects.push(Effect::StartSpec {
            slot,
            name,
            yaml,
            force,
            after,
        });
        effects
    }

    /// What was being made is on the screen again: nothing that was typed is lost.
    pub(super) fn start_refused(&mut self, slot: Slot, why: &str) {
        let Some((_, overlays)) = self.making.take_if(|(made, _)| *made == slot) else {
            return;
        };
        self.overlays.extend(overlays);
        match self.overlays.last_mut() {
            Some(overlay) => overlay.start_refused(why),
            None => return,
        }
        self.toast(Level::Bad, &format!("not started: {}", one_line(why)));
    }
}
