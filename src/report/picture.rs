//! The report's pictures as one SVG sheet, for print, slides and papers: name, verdict, curves and maps in two columns, black on
//! white whatever the reader's system is. It has literal colours and nested pictures only: converters to PDF know no more.

use super::html::escape;
use super::{Album, Sheet, chart, heat, sections};
use std::fmt::Write as _;

const STYLE: &str = "text{font-family:sans-serif;font-size:11px;fill:#444}.name{font-size:22px;font-weight:600;fill:#000}.said{font-size:13px}\
.title{font-size:13px;font-weight:600;fill:#000}.grid{stroke:#ccc;stroke-width:.7;fill:none}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}\
.band{stroke:none;opacity:.18}.line.c0{stroke:#0550ae}.line.c1{stroke:#953800}.band.c0,.heat,.k0{fill:#0550ae}.band.c1,.k1{fill:#953800}";
/// Width of a picture, and the room between two; heights of a run's head and of a picture's title.
const WIDTH: f64 = 640.0;
const GAP: f64 = 24.0;
const HEAD: f64 = 62.0;
const TITLE: f64 = 20.0;
/// Characters of the verdict that fit on its line.
const VERDICT: usize = 190;

/// A picture and its title, which is SVG already.
struct Tile {
    title: String,
    svg: String,
}

/// The sheet of a run.
pub fn picture(sheet: &Sheet) -> String {
    paper(std::slice::from_ref(sheet))
}

/// The sheets of a pipeline's runs, one below the other.
pub fn pipeline_picture(album: &Album) -> String {
    paper(&album.sheets)
}

fn paper(sheets: &[Sheet]) -> String {
    let (mut body, mut y) = (String::new(), GAP);
    for sheet in sheets {
        let verdict = format!(
            "{}: {}",
            sheet.diagnosis.verdict.word(),
            sheet.diagnosis.summary
        );
        let verdict: String = verdict.chars().take(VERDICT).collect();
        let _ = writeln!(
            body,
            "<text class=\"name\" x=\"{GAP}\" y=\"{:.0}\">{}</text><text class=\"said\" x=\"{GAP}\" y=\"{:.0}\">{}</text>",
            y + 22.0,
            escape(sheet.name()),
            y + 44.0,
            escape(&verdict)
        );
        y += HEAD;
        for row in tiles(sheet).chunks(2) {
            for (at, tile) in row.iter().enumerate() {
                let x = GAP + (WIDTH + GAP) * at as f64;
                let _ = writeln!(
                    body,
                    "<text class=\"title\" x=\"{x}\" y=\"{:.0}\">{}</text>",
                    y + 14.0,
                    tile.title
                );
                body.push_str(&tile.at(x, y + TITLE));
            }
            let highest = row.iter().map(Tile::height).fold(0.0, f64::max);
            y += TITLE + highest + GAP;
        }
    }
    let width = 2.0 * WIDTH + 3.0 * GAP;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y:.0}\" viewBox=\"0 0 {width} {y:.0}\">\n\
         <style>{STYLE}</style>\n<rect width=\"{width}\" height=\"{y:.0}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

fn tiles(sheet: &Sheet) -> Vec<Tile> {
    let curves = sections::curves(sheet.state);
    let curves = curves.iter().filter_map(|curves| {
        let mut title = format!("{} {}", escape(&curves.title), escape(&curves.unit));
        if curves.series.len() > 1 {
            for (n, (name, _)) in curves.series.iter().enumerate() {
                let _ = write!(title, " <tspan class=\"k{n}\">— {}</tspan>", escape(name));
            }
        }
        let svg = chart::svg(sheet.state, curves)?;
        Some(Tile { title, svg })
    });
    let maps = heat::layers(sheet.state);
    let maps = maps.iter().filter_map(|map| {
        let title = format!("{}, by block: {}", escape(&map.info.title), map.range()?);
        Some(Tile {
            title,
            svg: map.svg()?,
        })
    });
    curves.chain(maps).collect()
}

impl Tile {
    /// The picture's own height: the last number of its view box.
    fn height(&self) -> f64 {
        let inside = self.svg.split('"').nth(1).unwrap_or_default();
        let last = inside.rsplit(' ').next().unwrap_or_default();
        last.parse().unwrap_or(0.0)
    }

    /// The picture at its place on the sheet.
    fn at(&self, x: f64, y: f64) -> String {
        let place = format!(
            "<svg x=\"{x}\" y=\"{y:.0}\" width=\"{WIDTH}\" height=\"{}\" ",
            self.height()
        );
        format!("{}\n", self.svg.replacen("<svg ", &place, 1))
    }
}
