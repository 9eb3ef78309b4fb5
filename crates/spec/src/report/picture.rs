//! The report's pictures on one sheet, for print, slides and papers: name, verdict, curves and maps in two columns, black on white
//! whatever the reader's system is. As SVG it has literal colours and nested pictures only: converters to PDF know no more.

use super::html::escape;
use super::shapes::{Drawing, Point};
use super::{PipelineReport, RunReport, chart, heat, mark, png, sections};
use std::fmt::Write as _;
use std::io;

const STYLE: &str = "text{font-family:sans-serif;font-size:11px;fill:#444}.name{font-size:22px;font-weight:600;fill:#000}.said{font-size:13px}\
.title{font-size:13px;font-weight:600;fill:#000}.grid{stroke:#ccc;stroke-width:.7;fill:none}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}\
.band{stroke:none;opacity:.18}.line.c0{stroke:#0550ae}.line.c1{stroke:#953800}.band.c0,.heat,.k0{fill:#0550ae}.band.c1,.k1{fill:#953800}";
/// Width of a picture, and the room between two; heights of a run's head and of a picture's title.
pub(super) const WIDTH: f64 = 640.0;
const GAP: f64 = 24.0;
const HEAD: f64 = 62.0;
const TITLE: f64 = 20.0;
/// Characters of the verdict that fit on its line.
const VERDICT: usize = 190;

/// What stands where, in pixels from the upper left corner.
pub(super) struct Page {
    pub mark: String,
    pub width: f64,
    pub height: f64,
    pub items: Vec<(Point, Item)>,
}

pub(super) enum Item {
    /// A line; its place is on the baseline.
    Words(Face, Vec<Span>),
    /// A picture of the width [`WIDTH`].
    Picture(Drawing),
}

/// Part of a line, in the colour of a series where it names one.
pub(super) struct Span {
    pub words: String,
    pub series: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Face {
    Name,
    Said,
    Title,
}

/// The sheet of a run, as SVG.
pub fn picture(sheet: &RunReport) -> String {
    page(sheet.id(), std::slice::from_ref(sheet)).svg()
}

/// The sheets of a pipeline's runs, one below the other.
pub fn pipeline_picture(album: &PipelineReport) -> String {
    page(&album.state.id, &album.sheets).svg()
}

/// [`picture`] as PNG.
///
/// # Errors
/// It is too large for a picture of pixels.
pub fn picture_png(sheet: &RunReport) -> io::Result<Vec<u8>> {
    png::paint(&page(sheet.id(), std::slice::from_ref(sheet)))
}

/// [`pipeline_picture`] as PNG.
///
/// # Errors
/// As [`picture_png`].
pub fn pipeline_png(album: &PipelineReport) -> io::Result<Vec<u8>> {
    png::paint(&page(&album.state.id, &album.sheets))
}

fn page(id: &str, sheets: &[RunReport]) -> Page {
    let (mut items, mut y) = (Vec::new(), GAP);
    for sheet in sheets {
        let verdict = format!(
            "{}: {}",
            sheet.diagnosis.verdict.word(),
            sheet.diagnosis.summary
        );
        let name = Item::Words(Face::Name, vec![plain(sheet.name())]);
        let verdict: String = verdict.chars().take(VERDICT).collect();
        items.push(([GAP, y + 22.0], name));
        items.push((
            [GAP, y + 44.0],
            Item::Words(Face::Said, vec![plain(&verdict)]),
        ));
        y += HEAD;
        let mut tiles = tiles(sheet).into_iter().peekable();
        while tiles.peek().is_some() {
            let mut highest: f64 = 0.0;
            for (at, (title, drawing)) in tiles.by_ref().take(2).enumerate() {
                let x = GAP + (WIDTH + GAP) * at as f64;
                highest = highest.max(drawing.height_on_page());
                items.push(([x, y + 14.0], Item::Words(Face::Title, title)));
                items.push(([x, y + TITLE], Item::Picture(drawing)));
            }
            y += TITLE + highest + GAP;
        }
    }
    Page {
        mark: mark(id),
        width: 2.0 * WIDTH + 3.0 * GAP,
        height: y,
        items,
    }
}

fn plain(words: &str) -> Span {
    Span {
        words: words.into(),
        series: None,
    }
}

/// The pictures of a run with their titles.
fn tiles(sheet: &RunReport) -> Vec<(Vec<Span>, Drawing)> {
    let curves = sections::curves(sheet.state);
    let curves = curves.iter().filter_map(|curves| {
        let mut title = vec![plain(&format!("{} {}", curves.title, curves.unit))];
        if curves.series.len() > 1 {
            let names = curves.series.iter().enumerate();
            title.extend(names.map(|(series, (name, _))| Span {
                words: format!(" — {name}"),
                series: Some(series),
            }));
        }
        title.extend(chart::legend(sheet.state, curves).map(|words| plain(&format!("   {words}"))));
        Some((title, chart::drawing(sheet.state, curves)?))
    });
    let maps = heat::layers(sheet.state);
    let maps = maps.iter().filter_map(|map| {
        let title = format!("{}, by block: {}", map.info.title, map.range()?);
        Some((vec![plain(&title)], map.drawing()?))
    });
    curves.chain(maps).collect()
}

impl Drawing {
    fn height_on_page(&self) -> f64 {
        (self.height * WIDTH / self.width).round()
    }
}

impl Page {
    fn svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" viewBox=\"0 0 {width} {height:.0}\">\n\
             <desc>{mark}</desc>\n<style>{STYLE}</style>\n<rect width=\"{width}\" height=\"{height:.0}\" fill=\"#fff\"/>\n",
            mark = self.mark
        );
        for ([x, y], item) in &self.items {
            // Writing to a string does not fail.
            let _ = match item {
                Item::Words(face, spans) => {
                    let words: String = spans.iter().map(Span::svg).collect();
                    let class = face.class();
                    writeln!(
                        out,
                        "<text class=\"{class}\" x=\"{x}\" y=\"{y:.0}\">{words}</text>"
                    )
                }
                Item::Picture(drawing) => {
                    let place = format!(
                        "<svg x=\"{x}\" y=\"{y:.0}\" width=\"{WIDTH}\" height=\"{}\" ",
                        drawing.height_on_page()
                    );
                    writeln!(out, "{}", drawing.svg().replacen("<svg ", &place, 1))
                }
            };
        }
        out.push_str("</svg>\n");
        out
    }
}

impl Span {
    fn svg(&self) -> String {
        let words = escape(&self.words);
        match self.series {
            Some(n) => format!("<tspan class=\"k{n}\">{words}</tspan>"),
            None => words,
        }
    }
}

impl Face {
    fn class(self) -> &'static str {
        match self {
            Face::Name => "name",
            Face::Said => "said",
            Face::Title => "title",
        }
    }
}
