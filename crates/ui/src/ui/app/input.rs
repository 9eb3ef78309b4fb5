//! Keys, pastes and the mouse: to the overlay on top, else to the pane on the screen.

use super::App;
use crate::base::human;
use crate::run::state::Level;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::field::MAX_PASTE;
use crate::ui::hit::Target;
use crate::ui::overlays::{HelpSheet, Reply};
use crossterm::event::{KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};

impl App {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.ask_draw();
        if let Some(effects) = self.key_for_opening(key) {
            return effects;
        }
        if !self.overlays.is_empty() {
            return self.overlay_key(key);
        }
        let typing = self.pane().typing();
        if let Some(key) = self.keymap.typed(key).filter(|_| typing) {
            return self.with_front(|pane, context| pane.key(key, context));
        }
        match self.keymap.action(key, self.contexts(), typing) {
            // Messages that cover the screen are closed before what is below them.
            Some(Action::Back | Action::Cancel) if !typing && self.toasts.close() => Vec::new(),
            Some(action) => self.act(action),
            None if typing => self.with_front(|pane, context| pane.key(key, context)),
            None => Vec::new(),
        }
    }

    fn overlay_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(overlay) = self.overlays.last_mut() else {
            return Vec::new();
        };
        if let Some(key) = self.keymap.typed(key).filter(|_| overlay.typing()) {
            let reply = overlay.key(key);
            return self.reply(reply);
        }
        let action = self
            .keymap
            .action(key, overlay.contexts(), overlay.typing());
        match action {
            Some(action) => self.overlay_act(action),
            None => {
                let reply = overlay.key(key);
                self.reply(reply)
            }
        }
    }

    /// Does an action on the overlay on top, whether it came from a key or a click on its hint.
    fn overlay_act(&mut self, action: Action) -> Vec<Effect> {
        let Some(overlay) = self.overlays.last_mut() else {
            return Vec::new();
        };
        if matches!(action, Action::Suspend | Action::Redraw) {
            return self.act(action);
        }
        let contexts = overlay.contexts();
        match (action, overlay.act(action)) {
            // An overlay that has no use for the key of help, as help itself has, is helped by it.
            (Action::Help, Reply::Stay) => self.open(Box::new(HelpSheet::new(contexts))),
            (_, reply) => self.reply(reply),
        }
    }

    /// The contexts of the pane, the most particular first.
    pub(super) fn contexts(&self) -> &'static [Context] {
        self.entry().contexts
    }

    pub(super) fn paste(&mut self, text: &str) -> Vec<Effect> {
        self.ask_draw();
        // Terminals send the key Enter, CR, for each line end of what is pasted.
        let text = &text.replace("\r\n", "\n").replace('\r', "\n");
        if self.paste_for_opening(text) {
            return Vec::new();
        }
        let typing = match self.overlays.last() {
            Some(overlay) => overlay.typing(),
            None => self.pane().typing(),
        };
        if typing && text.len() > MAX_PASTE {
            let (all, taken) = (text.len() as u64, MAX_PASTE as u64);
            let words = format!(
                "the paste is cut: the first {} of {} are taken",
                human::bytes(taken),
                human::bytes(all)
            );
            self.toast(Level::Warn, &words);
        }
        match self.overlays.last_mut() {
            Some(overlay) => {
                let reply = overlay.paste(text);
                self.reply(reply)
            }
            None => self.with_front(|pane, context| pane.paste(text, context)),
        }
    }

    pub(super) fn mouse(&mut self, mouse: MouseEvent) -> Vec<Effect> {
        if self.mouse_for_opening(mouse) {
            return Vec::new();
        }
        let target = self.hits.at(mouse.column, mouse.row);
        if target == Some(Target::Pane) && self.overlays.is_empty() {
            let mut taken = true;
            let effects = self.with_front(|pane, context| {
                let requests = pane.mouse(mouse, context);
                taken = requests.is_some();
                requests.unwrap_or_default()
            });
            if taken {
                return effects;
            }
        }
        let wheel = match mouse.kind {
            MouseEventKind::ScrollUp => Some(true),
            MouseEventKind::ScrollDown => Some(false),
            MouseEventKind::Down(MouseButton::Left) => None,
            _ => return Vec::new(),
        };
        self.ask_draw();
        match wheel {
            Some(up) => self.wheel(up),
            None => self.click(target),
        }
    }

    fn wheel(&mut self, up: bool) -> Vec<Effect> {
        match self.overlays.last_mut() {
            Some(overlay) => {
                let reply = overlay.act(if up { Action::Up } else { Action::Down });
                self.reply(reply)
            }
            None => self.with_front(|pane, context| pane.wheel(up, context)),
        }
    }

    fn click(&mut self, target: Option<Target>) -> Vec<Effect> {
        match (target, self.overlays.last_mut()) {
            (Some(Target::OverlayRow(row)), Some(overlay)) => {
                let reply = overlay.click(row);
                self.reply(reply)
            }
            (Some(Target::Overlay), Some(_)) => Vec::new(),
            (Some(Target::Action(action)), Some(_)) => self.overlay_act(action),
            (_, Some(overlay)) => {
                let reply = overlay.act(Action::Leave);
                self.reply(reply)
            }
            (Some(Target::Action(action)), None) => self.act(action),
            (Some(Target::Row(row)), None) => {
                self.with_front(|pane, context| pane.click(row, context))
            }
            _ => Vec::new(),
        }
    }
}
