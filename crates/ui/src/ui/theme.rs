//! Meanings and their styles. Panes ask for a meaning; only this file names colours. Themes are YAML files: embedded ones
//! in `themes/`, the user's own in the configuration directory and in `./themes`.

mod png;
pub mod svg;

pub use png::png;
pub use svg::svg;

use super::glyphs::Glyphs;
use crate::base::paths::Env;
use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a piece of the screen means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meaning {
    Text,
    /// Secondary words: units, axis labels, hints.
    Muted,
    /// The one accent: titles of the focused region, the active tab, progress.
    Accent,
    Title,
    Border,
    BorderFocused,
    Selected,
    /// A key in a hint line.
    Key,
    Good,
    Warn,
    Bad,
    Train,
    Validation,
    /// A line that is neither train nor validation.
    Series,
    /// Marks on charts: checkpoints, notes, adjustments.
    Mark,
    Cursor,
    /// The unfilled part of bars.
    Track,
    /// Behind every second token, so that neighbours differ; lies under another meaning.
    Shade,
    /// Tokens that the model was less and less sure of; [`Meaning::Text`] stands for sure.
    #[serde(rename = "heat-1")]
    Heat1,
    #[serde(rename = "heat-2")]
    Heat2,
    #[serde(rename = "heat-3")]
    Heat3,
    #[serde(rename = "heat-4")]
    Heat4,
}

/// Every meaning, in declaration order.
pub const MEANINGS: [Meaning; 22] = {
    use Meaning as M;
    [
        M::Text,
        M::Muted,
        M::Accent,
        M::Title,
        M::Border,
        M::BorderFocused,
        M::Selected,
        M::Key,
        M::Good,
        M::Warn,
        M::Bad,
        M::Train,
        M::Validation,
        M::Series,
        M::Mark,
        M::Cursor,
        M::Track,
        M::Shade,
        M::Heat1,
        M::Heat2,
        M::Heat3,
        M::Heat4,
    ]
};

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorDepth {
    None,
    Ansi16,
    Indexed256,
    True,
}

impl ColorDepth {
    /// By `NO_COLOR`, `COLORTERM` and `TERM`, in this order.
    pub fn of(env: &Env) -> Self {
        let direct = matches!(env.colorterm.as_str(), "truecolor" | "24bit");
        match env.term.as_str() {
            _ if env.no_color => Self::None,
            "dumb" => Self::None,
            term if direct || term.contains("direct") => Self::True,
            term if term.contains("256color") => Self::Indexed256,
            _ => Self::Ansi16,
        }
    }
}

/// A theme ready to draw: styles by meaning, fitted to the terminal, and whether only ASCII may be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    pub name: String,
    pub about: String,
    pub ascii: bool,
    pub no_color: bool,
    styles: [Style; MEANINGS.len()],
}

impl Theme {
    /// The terminal's own sixteen colours, for tests.
    pub fn ansi() -> Self {
        Themes::embedded().get("ansi", ColorDepth::Ansi16, false)
    }

    pub fn style(&self, meaning: Meaning) -> Style {
        self.styles[meaning as usize]
    }

    /// What its pictures stand on: white where its text is dark.
    pub fn ground(&self) -> &'static svg::Ground {
        let rgb = match self.style(Meaning::Text).fg {
            Some(Color::Rgb(r, g, b)) => Some((r, g, b)),
            Some(Color::Indexed(index)) => Some(rgb_of(index)),
            other => {
                let mut all = NAMED.iter();
                all.find(|(_, color, _)| Some(*color) == other)
                    .map(|(.., rgb)| *rgb)
            }
        };
        let light = |(r, g, b): (u8, u8, u8)| {
            let [r, g, b] = [r, g, b].map(u32::from);
            299 * r + 587 * g + 114 * b >= 128_000
        };
        match rgb.is_none_or(light) {
            true => &svg::DARK,
            false => &svg::LIGHT,
        }
    }

    /// Borders, marks and bars: Unicode, or ASCII where the terminal has nothing else.
    pub fn glyphs(&self) -> &'static Glyphs {
        Glyphs::of(self.ascii)
    }
}

/// Why a theme file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("theme {origin}: {what}")]
pub struct ThemeError {
    pub origin: String,
    pub what: String,
}

/// A theme file as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThemeFile {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    inherits: Option<String>,
    #[serde(default)]
    styles: BTreeMap<Meaning, StyleFile>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StyleFile {
    fg: Option<String>,
    bg: Option<String>,
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    reversed: bool,
}

/// All known themes.
#[derive(Debug, Clone, Default)]
pub struct Themes {
    list: Vec<Resolved>,
}

#[derive(Debug, Clone)]
struct Resolved {
    name: String,
    about: String,
    styles: BTreeMap<Meaning, Style>,
}

impl Themes {
    /// The themes inside the binary; a test proves that all of them load.
    pub fn embedded() -> Themes {
        let mut themes = Themes::default();
        let texts = crate::embed::list("themes").filter_map(|path| {
            crate::embed::text(path).map(|text| (path.to_string(), text.to_string()))
        });
        // A parent may follow its heir in name order, hence one pass over the whole set.
        themes.add_all(texts.collect());
        themes
    }

    /// Adds theme files, later ones replacing earlier ones of the same name; returns what is wrong with the rest.
    pub fn add_all(&mut self, files: Vec<(String, String)>) -> Vec<ThemeError> {
        let mut errors = Vec::new();
        let mut waiting = Vec::new();
        for (origin, text) in files {
            match read(&text) {
                Ok(file) => waiting.push((origin, file)),
                Err(what) => errors.push(ThemeError { origin, what }),
            }
        }
        loop {
            let before = waiting.len();
            waiting.retain(|(origin, file)| match self.resolve(file) {
                Ok(None) => true,
                Ok(Some(theme)) => {
                    self.list.retain(|t| t.name != theme.name);
                    self.list.push(theme);
                    false
                }
                Err(what) => {
                    errors.push(ThemeError {
                        origin: origin.clone(),
                        what,
                    });
                    false
                }
            });
            if waiting.len() == before {
                break;
            }
        }
        for (origin, file) in waiting {
            let parent = file.inherits.unwrap_or_default();
            let what =
                format!("inherits: {parent}, which does not exist or itself inherits this theme");
            errors.push(ThemeError { origin, what });
        }
        self.list
            .sort_by(|a, b| (a.name != "ansi", &a.name).cmp(&(b.name != "ansi", &b.name)));
        errors
    }

    /// `Ok(None)` while the parent is not there yet.
    fn resolve(&self, file: &ThemeFile) -> Result<Option<Resolved>, String> {
        let mut styles = match &file.inherits {
            None => BTreeMap::new(),
            Some(parent) => match self.list.iter().find(|t| t.name == *parent) {
                Some(parent) => parent.styles.clone(),
                None => return Ok(None),
            },
        };
        for (meaning, style) in &file.styles {
            styles.insert(
                *meaning,
                style.resolve().map_err(|e| format!("{meaning:?}: {e}"))?,
            );
        }
        Ok(Some(Resolved {
            name: file.name.clone(),
            about: file.about.clone(),
            styles,
        }))
    }

    /// (name, one sentence) of every theme, the default first.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list
            .iter()
            .map(|t| (t.name.as_str(), t.about.as_str()))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.list.iter().any(|t| t.name == name)
    }

    /// The theme of that name fitted to the terminal. Without colour it is always `mono`; an unknown name gives `ansi`
    /// (callers check [`Themes::contains`] first and say so).
    pub fn get(&self, name: &str, depth: ColorDepth, ascii: bool) -> Theme {
        let wanted = if depth == ColorDepth::None {
            "mono"
        } else {
            name
        };
        let found = self
            .list
            .iter()
            .find(|t| t.name == wanted)
            .or_else(|| self.list.iter().find(|t| t.name == "ansi"));
        let mut styles = [Style::default(); MEANINGS.len()];
        if let Some(theme) = found {
            for (meaning, style) in &theme.styles {
                styles[*meaning as usize] = match (meaning, depth) {
                    // Reversed it would shout: the palette's own grey is the quietest of the sixteen.
                    (Meaning::Shade, ColorDepth::Ansi16) => Style::default().bg(Color::DarkGray),
                    _ => fit(*style, depth),
                };
            }
        }
        Theme {
            name: found.map_or(name, |t| t.name.as_str()).to_string(),
            about: found.map(|t| t.about.clone()).unwrap_or_default(),
            ascii,
            no_color: depth == ColorDepth::None,
            styles,
        }
    }
}

fn read(text: &str) -> Result<ThemeFile, String> {
    let value = crate::spec::yaml::parse(text).map_err(|e| e.to_string())?;
    crate::base::json::read(&value).map_err(|e| e.to_string())
}

impl StyleFile {
    fn resolve(&self) -> Result<Style, String> {
        let mut style = Style {
            fg: self.fg.as_deref().map(color).transpose()?,
            bg: self.bg.as_deref().map(color).transpose()?,
            ..Style::default()
        };
        for (on, modifier) in [
            (self.bold, Modifier::BOLD),
            (self.dim, Modifier::DIM),
            (self.italic, Modifier::ITALIC),
            (self.underlined, Modifier::UNDERLINED),
            (self.reversed, Modifier::REVERSED),
        ] {
            if on {
                style = style.add_modifier(modifier);
            }
        }
        Ok(style)
    }
}

/// The sixteen names, in the order of their codes, with the usual values of xterm.
const NAMED: [(&str, Color, (u8, u8, u8)); 16] = [
    ("black", Color::Black, (0, 0, 0)),
    ("red", Color::Red, (205, 0, 0)),
    ("green", Color::Green, (0, 205, 0)),
    ("yellow", Color::Yellow, (205, 205, 0)),
    ("blue", Color::Blue, (0, 0, 238)),
    ("magenta", Color::Magenta, (205, 0, 205)),
    ("cyan", Color::Cyan, (0, 205, 205)),
    ("white", Color::Gray, (229, 229, 229)),
    ("bright-black", Color::DarkGray, (127, 127, 127)),
    ("bright-red", Color::LightRed, (255, 0, 0)),
    ("bright-green", Color::LightGreen, (0, 255, 0)),
    ("bright-yellow", Color::LightYellow, (255, 255, 0)),
    ("bright-blue", Color::LightBlue, (92, 92, 255)),
    ("bright-magenta", Color::LightMagenta, (255, 0, 255)),
    ("bright-cyan", Color::LightCyan, (0, 255, 255)),
    ("bright-white", Color::White, (255, 255, 255)),
];

/// `cyan`, `bright-black`, `default`, `0`–`255` or `#rrggbb`.
fn color(text: &str) -> Result<Color, String> {
    if text == "default" {
        return Ok(Color::Reset);
    }
    if let Some((_, color, _)) = NAMED.iter().find(|(name, ..)| *name == text) {
        return Ok(*color);
    }
    if let Ok(index) = text.parse::<u8>() {
        return Ok(Color::Indexed(index));
    }
    let hex = text
        .strip_prefix('#')
        .filter(|hex| hex.len() == 6)
        .and_then(|hex| u32::from_str_radix(hex, 16).ok());
    match hex {
        Some(rgb) => Ok(Color::Rgb((rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8)),
        None => Err(format!(
            "`{text}` is not a colour; use a name such as bright-blue, a number 0-255, #rrggbb or default"
        )),
    }
}

fn fit(style: Style, depth: ColorDepth) -> Style {
    let mut fitted = style;
    fitted.fg = style.fg.and_then(|c| fit_color(c, depth));
    fitted.bg = style.bg.and_then(|c| fit_color(c, depth));
    // Sixteen colours cannot hold a subtle background: reverse instead, which is readable in every palette.
    if depth == ColorDepth::Ansi16 && matches!(style.bg, Some(Color::Rgb(..) | Color::Indexed(_))) {
        fitted.fg = None;
        fitted.bg = None;
        fitted = fitted.add_modifier(Modifier::REVERSED);
    }
    fitted
}

fn fit_color(color: Color, depth: ColorDepth) -> Option<Color> {
    match (depth, color) {
        (ColorDepth::None, _) => None,
        (ColorDepth::True, c) => Some(c),
        (ColorDepth::Indexed256, Color::Rgb(r, g, b)) => Some(Color::Indexed(nearest_256(r, g, b))),
        (ColorDepth::Ansi16, Color::Rgb(r, g, b)) => Some(nearest_16((r, g, b))),
        (ColorDepth::Ansi16, Color::Indexed(i)) => Some(nearest_16(rgb_of(i))),
        (_, c) => Some(c),
    }
}

/// Levels of xterm's 6×6×6 cube.
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

fn nearest_256(r: u8, g: u8, b: u8) -> u8 {
    (16..=255u8)
        .min_by_key(|i| distance(rgb_of(*i), (r, g, b)))
        .unwrap_or(15)
}

fn nearest_16(rgb: (u8, u8, u8)) -> Color {
    NAMED
        .iter()
        .min_by_key(|(.., value)| distance(*value, rgb))
        .map_or(Color::Reset, |(_, color, _)| *color)
}

fn rgb_of(index: u8) -> (u8, u8, u8) {
    match index {
        0..16 => NAMED[usize::from(index)].2,
        16..232 => {
            let i = usize::from(index - 16);
            (CUBE[i / 36], CUBE[i / 6 % 6], CUBE[i % 6])
        }
        _ => {
            let level = 8 + 10 * (index - 232);
            (level, level, level)
        }
    }
}

/// Squared distance with the eye's weights, roughly (Riemersma's "redmean" without the mean).
fn distance(a: (u8, u8, u8), b: (u8, u8, u8)) -> i32 {
    let d = |x: u8, y: u8| (i32::from(x) - i32::from(y)).pow(2);
    2 * d(a.0, b.0) + 4 * d(a.1, b.1) + 3 * d(a.2, b.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedded_files() -> Vec<(String, String)> {
        crate::embed::list("themes")
            .map(|p| (p.to_string(), crate::embed::text(p).unwrap().to_string()))
            .collect()
    }

    #[test]
    fn every_theme_file_loads_and_defines_every_meaning() {
        let mut themes = Themes::default();
        assert_eq!(themes.add_all(embedded_files()), []);
        assert!(themes.list.len() >= 5);
        assert_eq!(themes.names().next().map(|n| n.0), Some("ansi"));
        for theme in &themes.list {
            for meaning in MEANINGS {
                assert!(
                    theme.styles.contains_key(&meaning),
                    "{} lacks {meaning:?}",
                    theme.name
                );
            }
            assert!(!theme.about.is_empty());
        }
    }

    /// The light theme's text is nearly the ground that every picture had.
    #[test]
    fn a_picture_stands_on_a_ground_that_shows_its_text() {
        let themes = Themes::embedded();
        for depth in [ColorDepth::True, ColorDepth::Indexed256, ColorDepth::Ansi16] {
            for name in ["ansi", "dark", "light", "okabe-ito", "mono"] {
                let ground = themes.get(name, depth, false).ground();
                assert_eq!(*ground == svg::LIGHT, name == "light", "{name} {depth:?}");
            }
        }
        let light = themes.get("light", ColorDepth::True, false);
        let mut screen = ratatui::buffer::Buffer::empty(ratatui::layout::Rect::new(0, 0, 4, 1));
        screen.set_string(0, 0, "loss", light.style(Meaning::Title));
        let picture = svg(&screen, "loss", light.ground());
        assert!(picture.contains(r##"fill="#ffffff"/>"##), "{picture}");
        assert!(png(&screen, light.ground()).is_ok());
    }

    #[test]
    fn no_color_means_no_colour_and_still_contrast() {
        let themes = Themes::embedded();
        for (name, _) in themes.names() {
            let theme = themes.get(name, ColorDepth::None, false);
            for meaning in MEANINGS {
                let style = theme.style(meaning);
                assert_eq!((style.fg, style.bg), (None, None), "{name} {meaning:?}");
            }
            assert_ne!(theme.style(Meaning::Selected), Style::default());
            assert_ne!(theme.style(Meaning::Bad), theme.style(Meaning::Text));
        }
    }

    #[test]
    fn colours_shrink_to_what_the_terminal_has() {
        let themes = Themes::embedded();
        for (name, _) in themes.names() {
            for meaning in MEANINGS {
                let style = themes.get(name, ColorDepth::Ansi16, false).style(meaning);
                let small =
                    |c: Option<Color>| !matches!(c, Some(Color::Rgb(..) | Color::Indexed(_)));
                assert!(
                    small(style.fg) && small(style.bg),
                    "{name} {meaning:?} {style:?}"
                );
                let style = themes
                    .get(name, ColorDepth::Indexed256, false)
                    .style(meaning);
                assert!(
                    !matches!(style.fg, Some(Color::Rgb(..))),
                    "{name} {meaning:?}"
                );
            }
        }
        assert_eq!(nearest_256(255, 0, 0), 196);
        assert_eq!(nearest_256(128, 128, 128), 244);
        assert_eq!(nearest_16((250, 10, 10)), Color::LightRed);
    }

    #[test]
    fn depth_follows_the_environment() {
        let env = |term: &str, colorterm: &str| Env {
            term: term.into(),
            colorterm: colorterm.into(),
            ..Env::default()
        };
        assert_eq!(
            ColorDepth::of(&env("xterm-256color", "truecolor")),
            ColorDepth::True
        );
        assert_eq!(
            ColorDepth::of(&env("screen-256color", "")),
            ColorDepth::Indexed256
        );
        assert_eq!(ColorDepth::of(&env("linux", "")), ColorDepth::Ansi16);
        assert_eq!(ColorDepth::of(&env("dumb", "truecolor")), ColorDepth::None);
        let no_color = Env {
            no_color: true,
            ..env("xterm", "truecolor")
        };
        assert_eq!(ColorDepth::of(&no_color), ColorDepth::None);
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        let mut themes = Themes::embedded();
        let file = |text: &str| vec![("mine.yaml".to_string(), text.to_string())];
        let error =
            |errors: Vec<ThemeError>| errors.first().map(ToString::to_string).unwrap_or_default();
        let e = error(themes.add_all(file("name: a\ninherits: b\n")));
        assert!(e.contains("mine.yaml") && e.contains("inherits: b"), "{e}");
        let e = error(themes.add_all(file("name: a\nstyles: {bad: {fg: reddish}}\n")));
        assert!(e.contains("reddish") && e.contains("#rrggbb"), "{e}");
        let e = error(themes.add_all(file("name: a\nstyles: {sparkly: {}}\n")));
        assert!(e.contains("sparkly"), "{e}");
        assert!(!themes.contains("a"));
        assert_eq!(themes.add_all(file("name: a\ninherits: light\n")), []);
        assert!(themes.contains("a"));
    }

    /// In the light theme two of the first three runs of a comparison had colours 25 and 26 of 256.
    #[test]
    fn runs_of_a_comparison_differ_in_256_colours() {
        let themes = Themes::embedded();
        for (name, _) in themes.names() {
            let theme = themes.get(name, ColorDepth::Indexed256, false);
            let colour = |meaning| match theme.style(meaning).fg {
                Some(Color::Indexed(i)) => Some(rgb_of(i)),
                _ => None,
            };
            let runs = [
                Meaning::Train,
                Meaning::Validation,
                Meaning::Series,
                Meaning::Mark,
            ];
            let colours: Vec<_> = runs.into_iter().filter_map(colour).collect();
            for (at, one) in colours.iter().enumerate() {
                for other in &colours[at + 1..] {
                    let apart = |(a, b): (u8, u8)| u32::from(a.abs_diff(b));
                    let sum =
                        apart((one.0, other.0)) + apart((one.1, other.1)) + apart((one.2, other.2));
                    assert!(sum >= 80, "{name}: {one:?} and {other:?}");
                }
            }
        }
    }
}
