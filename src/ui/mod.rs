//! The workbench: a fold over events plus a few cursors. Keys become actions, actions become effects.

pub mod action;
pub mod glyphs;
pub mod keymap;
pub mod panes;
pub mod theme;
pub mod widgets;
