//! One file a pane. A pane owns its cursors; its data comes folded.

pub mod dashboard;
