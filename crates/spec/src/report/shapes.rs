//! The shapes of charts, in pixels from the upper left corner, and their SVG. `png` paints the same shapes.

use super::html::escape;
use std::fmt::Write as _;

pub(super) type Point = [f64; 2];

/// A picture.
pub(super) struct Drawing {
    /// For readers that do not see it.
    pub label: String,
    pub width: f64,
    pub height: f64,
    pub shapes: Vec<Shape>,
}

pub(super) enum Shape {
    /// From the lowest to the highest reading of a series.
    Band { series: usize, points: Vec<Point> },
    /// The mean of a series.
    Line { series: usize, points: Vec<Point> },
    /// A line of the grid, from the left to the right.
    Level { y: f64, from: f64, to: f64 },
    /// Rectangles of one shade: left, top, width, height.
    Cells { opacity: f64, cells: Vec<[f64; 4]> },
    /// A number of an axis; `at` is on its baseline.
    Label {
        at: Point,
        anchor: Anchor,
        words: String,
    },
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

impl Drawing {
    /// As SVG; colours are classes of the page around it.
    pub fn svg(&self) -> String {
        let mut out = format!(
            "<svg viewBox=\"0 0 {} {:.0}\" role=\"img\" aria-label=\"{}\">\n",
            self.width,
            self.height,
            escape(&self.label)
        );
        for shape in &self.shapes {
            // Writing to a string does not fail.
            let _ = shape.write(&mut out);
        }
        out.push_str("</svg>");
        out
    }
}

impl Shape {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        match self {
            Shape::Band { series, points } => writeln!(
                out,
                "<polygon class=\"band c{series}\" points=\"{}\"/>",
                listed(points)
            ),
            Shape::Line { series, points } => writeln!(
                out,
                "<polyline class=\"line c{series}\" points=\"{}\"/>",
                listed(points)
            ),
            Shape::Level { y, from, to } => {
                writeln!(out, "<path class=\"grid\" d=\"M{from} {y:.1}H{to}\"/>")
            }
            Shape::Cells { opacity, cells } => {
                write!(
                    out,
                    "<path class=\"heat\" fill-opacity=\"{opacity:.2}\" d=\""
                )?;
                for [x, y, width, height] in cells {
                    write!(out, "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z")?;
                }
                out.write_str("\"/>\n")
            }
            Shape::Label {
                at: [x, y],
                anchor,
                words,
            } => writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{}\">{}</text>",
                anchor.word(),
                escape(words)
            ),
        }
    }
}

fn listed(points: &[Point]) -> String {
    let words = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}"));
    words.collect::<Vec<_>>().join(" ")
}
