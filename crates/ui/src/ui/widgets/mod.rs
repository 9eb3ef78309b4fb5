//! What panes are drawn with: charts, bars, borders that meet, lines of key hints. A widget gets its data and a theme, draws
//! into a buffer, and keeps nothing.

pub mod axis;
pub mod bar;
pub mod dots;
pub mod finding;
pub mod frame;
pub mod hints;
pub mod lattice;
pub mod line_chart;
pub mod text;

pub use lattice::Lattice;
pub use line_chart::{Line, LineChart, Plot};
