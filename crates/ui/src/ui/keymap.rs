//! Keys to actions: `assets/keymap.yaml` under the user's own file. No key is named anywhere else.

use super::action::{Action, Context, actions};
use super::field::KILL_LINE;
use super::overlays;
use super::panes::PANES;
use crate::base::near::{did_you_mean, nearest};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

/// One key with its modifiers, in the one form in which terminals' habits no longer differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub code: KeyCode,
    pub modifiers: KeyModifiers,
}

impl Key {
    /// Terminals send `?` with or without Shift and `H` with or without it: for marks Shift goes, for letters it is
    /// distinguished by case alone.
    fn normal(code: KeyCode, modifiers: KeyModifiers) -> Key {
        let mut modifiers =
            modifiers & (KeyModifiers::SHIFT | KeyModifiers::CONTROL | KeyModifiers::ALT);
        let code = match code {
            KeyCode::Char(c) => {
                let upper = modifiers.contains(KeyModifiers::SHIFT);
                modifiers.remove(KeyModifiers::SHIFT);
                match modifiers.contains(KeyModifiers::CONTROL) {
                    true => KeyCode::Char(c.to_ascii_lowercase()),
                    false if upper => KeyCode::Char(c.to_ascii_uppercase()),
                    false => KeyCode::Char(c),
                }
            }
            KeyCode::BackTab => {
                modifiers.remove(KeyModifiers::SHIFT);
                KeyCode::BackTab
            }
            other => other,
        };
        Key { code, modifiers }
    }

    fn parse(text: &str) -> Result<Key, String> {
        let mut chars = text.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            // As it is: crokey would read a capital letter as a small one.
            return Ok(Key::normal(KeyCode::Char(c), KeyModifiers::NONE));
        }
        let hint = "write names such as enter, esc, ctrl-p, shift-g, / or +";
        let combination =
            crokey::parse(&spelled(text)).map_err(|_| format!("`{text}` is not a key; {hint}"))?;
        match combination.codes {
            crokey::OneToThree::One(code) => Ok(Key::normal(code, combination.modifiers)),
            _ => Err(format!("`{text}` is more than one key; {hint}")),
        }
    }

    /// True for keys that a text field would take as text.
    fn is_text(self) -> bool {
        matches!(self.code, KeyCode::Char(_))
            && !self
                .modifiers
                .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
    }
}

impl From<KeyEvent> for Key {
    fn from(event: KeyEvent) -> Self {
        Key::normal(event.code, event.modifiers)
    }
}

/// Names of keys as screens, keyboards and other programs write them, and crokey's.
const OTHER_NAMES: [(&str, &str); 11] = [
    ("pgup", "pageup"),
    ("pgdn", "pagedown"),
    ("pgdown", "pagedown"),
    ("shift-tab", "backtab"),
    ("↑", "up"),
    ("↓", "down"),
    ("←", "left"),
    ("→", "right"),
    ("escape", "esc"),
    ("return", "enter"),
    ("delete", "del"),
];

/// The text of a key with crokey's name of it, whatever modifiers stand in front.
fn spelled(text: &str) -> String {
    let other = OTHER_NAMES.iter().find_map(|(other, name)| {
        let before = text.len().checked_sub(other.len())?;
        let (modifiers, said) = text.split_at_checked(before)?;
        let whole = modifiers.is_empty() || modifiers.ends_with('-');
        (whole && said.eq_ignore_ascii_case(other)).then(|| format!("{modifiers}{name}"))
    });
    other.unwrap_or_else(|| text.to_string())
}

/// As people read it: `q`, `S`, `ctrl-p`, `enter`, `↑`.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (modifier, word) in [
            (KeyModifiers::CONTROL, "ctrl-"),
            (KeyModifiers::ALT, "alt-"),
            (KeyModifiers::SHIFT, "shift-"),
        ] {
            if self.modifiers.contains(modifier) {
                f.write_str(word)?;
            }
        }
        match self.code {
            KeyCode::Char(' ') => f.write_str("space"),
            KeyCode::Char(c) => write!(f, "{c}"),
            KeyCode::BackTab => f.write_str("shift-tab"),
            KeyCode::PageUp => f.write_str("pgup"),
            KeyCode::PageDown => f.write_str("pgdn"),
            code => write!(f, "{}", code.to_string().to_lowercase()),
        }
    }
}

/// What in a keymap file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {what}")]
pub struct KeymapError {
    pub origin: String,
    pub what: String,
}

/// The bindings in force.
#[derive(Debug, Clone)]
pub struct Keymap {
    bindings: Vec<(Key, Action)>,
}

impl Keymap {
    /// Panes by the digit of their place, and nothing else.
    fn digits() -> Keymap {
        let digit = |(i, pane)| {
            let key = KeyCode::Char(char::from_digit(i, 10)?);
            Some((Key::normal(key, KeyModifiers::NONE), Action::Open(pane)))
        };
        Keymap {
            bindings: (1..).zip(PANES.iter().copied()).map_while(digit).collect(),
        }
    }

    /// The keymap inside the binary; a test proves that it loads.
    pub fn embedded() -> Keymap {
        let mut keymap = Keymap::digits();
        let text = crate::embed::text("assets/keymap.yaml").unwrap_or_default();
        let _ = keymap.overlay("assets/keymap.yaml", text);
        keymap
    }

    /// Lays a file over the bindings: the keys of each action that it names are replaced. All mistakes at once; the good
    /// lines count all the same.
    pub fn overlay(&mut self, origin: &str, text: &str) -> Vec<KeymapError> {
        let error = |what: String| KeymapError {
            origin: origin.to_string(),
            what,
        };
        let value = match crate::spec::yaml::parse(text) {
            Ok(Value::Object(map)) => map,
            Ok(_) => {
                return vec![error(
                    "write `context:` and under it `action: [key, …]`".into(),
                )];
            }
            Err(e) => return vec![error(e.to_string())],
        };
        let mut errors = Vec::new();
        for (context, actions) in &value {
            let known = Context::ALL.iter().find(|c| c.id() == context);
            if known.is_some() && !actions.is_object() {
                errors.push(error(format!(
                    "expected actions under `{context}`: `action: [key, …]`"
                )));
                continue;
            }
            let (Some(context), Value::Object(actions)) = (known, actions) else {
                let words: Vec<&str> = Context::ALL.iter().map(|c| c.id()).collect();
                let words = words.join(", ");
                errors.push(error(format!(
                    "`{context}` is not a context; contexts: {words}"
                )));
                continue;
            };
            for (id, keys) in actions {
                if let Err(what) = self.rebind(*context, id, keys) {
                    errors.push(error(format!("{}.{id}: {what}", context.id())));
                }
            }
        }
        errors.extend(self.conflicts().into_iter().map(error));
        errors
    }

    fn rebind(&mut self, context: Context, id: &str, keys: &Value) -> Result<(), String> {
        let info = actions()
            .find(|a| a.id == id && a.context == context)
            .ok_or_else(|| match closest(id, context) {
                Some(near) => format!("no such action; {}", did_you_mean(near)),
                None => "no such action in this context; docs/keys.md lists them".to_string(),
            })?;
        let keys = match keys {
            Value::Array(keys) => keys.iter().map(key_of).collect::<Result<Vec<_>, _>>()?,
            one => vec![key_of(one)?],
        };
        self.bindings.retain(|(_, action)| *action != info.action);
        self.bindings
            .extend(keys.into_iter().map(|key| (key, info.action)));
        Ok(())
    }

    /// The action of `key`, asking `contexts` in order. While a text field or an overlay has the keyboard, `Global`
    /// answers only to keys that are no text.
    pub fn action(&self, key: KeyEvent, contexts: &[Context], typing: bool) -> Option<Action> {
        let key = Key::from(key);
        if typing && key.is_text() {
            return None;
        }
        contexts.iter().find_map(|context| {
            self.bindings
                .iter()
                .find(|(k, action)| *k == key && action.info().context == *context)
                .map(|(_, action)| *action)
        })
    }

    /// The key that a text field is to see: the one for deleting has a fixed form there.
    pub fn typed(&self, key: KeyEvent) -> Option<KeyEvent> {
        let action = self.action(key, &[Context::Text], true);
        (action == Some(Action::KillLine)).then_some(KILL_LINE)
    }

    /// Keys of one action, the first being the one that hints show.
    pub fn keys(&self, action: Action) -> impl Iterator<Item = Key> {
        self.bindings
            .iter()
            .filter(move |(_, a)| *a == action)
            .map(|(key, _)| *key)
    }

    /// The first key of an action as text; empty when it has none.
    pub fn label(&self, action: Action) -> String {
        self.keys(action)
            .next()
            .map(|key| key.to_string())
            .unwrap_or_default()
    }

    /// The first key of an action that works here: in a text field, letters do not.
    pub fn label_while(&self, action: Action, typing: bool) -> String {
        let key = self.keys(action).find(|key| !typing || !key.is_text());
        key.map(|key| key.to_string()).unwrap_or_default()
    }

    /// A sentence with the keys of the actions that it names: `{pick-run} adds one` becomes `o adds one`. An action without a key
    /// is in the palette.
    pub fn fill(&self, sentence: &str) -> String {
        let mut text = sentence.to_string();
        for info in actions().filter(|info| sentence.contains(&format!("{{{}}}", info.id))) {
            let key = match self.label(info.action) {
                none if none.is_empty() => format!("{} (palette)", info.title),
                key => key,
            };
            text = text.replace(&format!("{{{}}}", info.id), &key);
        }
        text
    }

    /// Keys that mean two things on one screen.
    fn conflicts(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (i, (key, action)) in self.bindings.iter().enumerate() {
            for (other_key, other) in &self.bindings[..i] {
                if key == other_key && share_a_screen(action.info().context, other.info().context) {
                    let (a, b) = (other.info(), action.info());
                    found.push(format!(
                        "{key} is bound to both {}.{} and {}.{}; unbind one",
                        a.context.id(),
                        a.id,
                        b.context.id(),
                        b.id
                    ));
                }
            }
        }
        found
    }
}

/// Contexts that one screen asks together.
fn share_a_screen(a: Context, b: Context) -> bool {
    let panes = PANES.iter().map(|pane| pane.contexts);
    panes
        .chain(overlays::SCREENS.iter().copied())
        .any(|screen| screen.contains(&a) && screen.contains(&b))
}

fn key_of(value: &Value) -> Result<Key, String> {
    match value {
        Value::String(text) => Key::parse(text),
        // `1` without quotes is a number in YAML.
        Value::Number(n) => Key::parse(&n.to_string()),
        other => Err(format!("`{other}` is not a key; put it in quotes")),
    }
}

fn closest(id: &str, context: Context) -> Option<&'static str> {
    nearest(id, actions().filter(|a| a.context == context).map(|a| a.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn the_embedded_keymap_is_whole_and_without_conflicts() {
        let mut keymap = Keymap::digits();
        let text = crate::embed::text("assets/keymap.yaml").unwrap();
        assert_eq!(keymap.overlay("assets/keymap.yaml", text), []);
        for info in actions() {
            assert!(
                keymap.keys(info.action).next().is_some(),
                "{} has no key",
                info.id
            );
        }
    }

    #[test]
    fn a_context_without_actions_is_no_unknown_context() {
        for text in ["home:\n", "home: [x]\n"] {
            let errors = Keymap::embedded().overlay("mine", text);
            assert_eq!(errors.len(), 1, "{text}");
            assert!(errors[0].what.contains("expected actions"), "{errors:?}");
        }
    }

    #[test]
    fn no_key_needs_alt_or_a_function_key() {
        for (key, action) in Keymap::embedded().bindings {
            assert!(!key.modifiers.contains(KeyModifiers::ALT), "{action:?}");
            assert!(!matches!(key.code, KeyCode::F(_)), "{action:?}");
        }
    }

    /// docs/keys.md and the help said `pgup`, which a file could not.
    #[test]
    fn a_file_may_name_every_key_as_screens_show_it() {
        let embedded = Keymap::embedded();
        for (key, action) in &embedded.bindings {
            assert_eq!(Key::parse(&key.to_string()), Ok(*key), "{action:?}");
        }
        let named = |name: &str| Key::parse(name).map(|key| key.to_string());
        for name in ["pgdn", "PgDn", "pagedown"] {
            assert_eq!(named(name), Ok("pgdn".into()), "{name}");
        }
        assert_eq!(named("ctrl-pgup"), Ok("ctrl-pgup".into()));
        assert!(named("xpgup").is_err());
    }

    #[test]
    fn terminals_habits_do_not_matter() {
        let keymap = Keymap::embedded();
        let action = |code, modifiers| {
            keymap.action(
                press(code, modifiers),
                &[Context::Run, Context::Global],
                false,
            )
        };
        let (none, shift) = (KeyModifiers::NONE, KeyModifiers::SHIFT);
        assert_eq!(action(KeyCode::Char('?'), none), Some(Action::Help));
        assert_eq!(action(KeyCode::Char('?'), shift), Some(Action::Help));
        assert_eq!(action(KeyCode::Char('S'), shift), Some(Action::Stop));
        assert_eq!(action(KeyCode::Char('S'), none), Some(Action::Stop));
        assert_eq!(action(KeyCode::Char('s'), none), Some(Action::Sample));
        assert_eq!(action(KeyCode::BackTab, shift), Some(Action::ChartPrevious));
        assert_eq!(action(KeyCode::Left, shift), Some(Action::PanLeft));
        assert_eq!(action(KeyCode::Char('-'), none), Some(Action::ZoomOut));
        assert_eq!(
            action(KeyCode::Char('P'), KeyModifiers::CONTROL | shift),
            Some(Action::Palette)
        );
    }

    #[test]
    fn text_fields_keep_their_letters() {
        let keymap = Keymap::embedded();
        let contexts = [Context::Chat, Context::Global];
        let q = press(KeyCode::Char('q'), KeyModifiers::NONE);
        assert_eq!(keymap.action(q, &contexts, true), None);
        assert_eq!(keymap.action(q, &contexts, false), Some(Action::Leave));
        let ctrl_c = press(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(keymap.action(ctrl_c, &contexts, true), Some(Action::Leave));
    }

    #[test]
    fn sentences_name_the_users_keys() {
        let mut keymap = Keymap::embedded();
        let words = "{accept} keeps it, {stop} stops";
        assert_eq!(keymap.fill(words), "enter keeps it, S stops");
        keymap.overlay("mine", "list: {accept: x}\nrun: {stop: []}");
        assert_eq!(keymap.fill(words), "x keeps it, stop (palette) stops");
        assert_eq!(keymap.fill("{a: 1}"), "{a: 1}");
        // A name in a sentence means one action.
        let mut ids: Vec<&str> = actions().map(|info| info.id).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_word_that_is_no_slip_has_no_suggestion() {
        assert_eq!(closest("pu", Context::List), Some("up"));
        assert_eq!(closest("xyz", Context::List), None);
    }

    #[test]
    fn a_users_file_replaces_keys_and_its_mistakes_are_all_told() {
        let mut keymap = Keymap::embedded();
        assert_eq!(
            keymap.overlay(
                "mine",
                "run: {pause: space, note: [], stop: X}\nglobal: {home: Z}\n"
            ),
            []
        );
        assert_eq!(keymap.label(Action::Pause), "space");
        assert_eq!(keymap.label(Action::Note), "");
        assert_eq!(keymap.label(Action::Stop), "X");
        assert_eq!(
            keymap.label(Action::Open(&crate::ui::panes::home::ENTRY)),
            "Z"
        );
        let text = "run: {puase: p, stop: [hyper-x]}\nkitchen: {cook: c}\nchat: {send: ctrl-o}\n";
        let errors: Vec<String> = keymap
            .overlay("mine", text)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors.len(), 4, "{errors:#?}");
        assert!(
            errors[0].contains("run.puase") && errors[0].contains("did you mean pause?"),
            "{}",
            errors[0]
        );
        assert!(errors[1].contains("hyper-x"), "{}", errors[1]);
        assert!(
            errors[2].contains("kitchen") && errors[2].contains("global"),
            "{}",
            errors[2]
        );
        assert!(
            errors[3].contains("ctrl-o is bound to both chat.checkpoints and chat.send"),
            "{}",
            errors[3]
        );
    }
}
