//! `llmtui data split`: a training and a validation file, split by content: identical rows stay on one side.

use super::{Source, bad_row, each, not_itself, overwrite, stem_and_ending, unwritten};
use crate::base::human::counted;
use crate::base::text::shown;
use crate::cli::Context;
use crate::cli::exit::{Exit, Failure};
use crate::data::inspect::{Halves, Side, closest_seed, key};
use crate::data::sink::Sink;
use std::io::Write;
use std::path::PathBuf;

/// Split into a training and a validation file; identical rows stay together
///
/// A row's side is a function of its content and the seed: it does not change when the dataset grows, and duplicates
/// never end up on both sides.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  llmtui data split chats.jsonl --val 0.05 --seed 1")]
pub struct Args {
    #[command(flatten)]
    pub source: Source,
    /// Fraction of rows to hold out
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    pub val: f64,
    /// Seed of the split
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Output folder for NAME.train and NAME.val
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x > 0.0 && x < 1.0 => Ok(x),
        _ => Err("must be more than 0 and less than 1, e.g. 0.1".into()),
    }
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let subject = args.source.subject()?;
    let (stem, ending) = stem_and_ending(&args.source.path);
    let paths = ["train", "val"].map(|side| args.out.join(format!("{stem}.{side}.{ending}")));
    for path in &paths {
        not_itself(&args.source.path, path)?;
    }
    let mut train = Sink::create(&paths[0], overwrite(args.force)).map_err(unwritten)?;
    let mut val = Sink::create(&paths[1], overwrite(args.force)).map_err(unwritten)?;
    let halves = Halves::new(args.val, args.seed);
    // Of many rows chance keeps the share.
    let mut keys = Vec::new();
    each(&subject, cx, &mut |row| {
        let example = row.example.map_err(bad_row)?;
        if keys.len() < FEW {
            keys.push(key(example));
        }
        let side = match halves.side(example) {
            Side::Train => &mut train,
            Side::Val => &mut val,
        };
        side.write(row.fields).map_err(unwritten)
    })?;
    if train.rows() == 0 || val.rows() == 0 {
        let rows = train.rows() + val.rows();
        let what = format!(
            "with {} and seed {} one side would be empty",
            counted(rows, "row"),
            args.seed
        );
        let hint = match closest_seed(args.val, &keys) {
            Some((seed, held)) => format!("--seed {seed} holds out {held} of {rows}"),
            None => "another --val, or more rows".into(),
        };
        return Err(Failure::user_error(what, hint).into());
    }
    let note = off(args, &keys, val.rows(), train.rows() + val.rows());
    let mut text = String::new();
    for (sink, path) in [(train, &paths[0]), (val, &paths[1])] {
        let rows = sink.finish().map_err(unwritten)?;
        text.push_str(&format!("{:>14}  {}\n", counted(rows, "row"), shown(path)));
    }
    std::io::stdout().lock().write_all(text.as_bytes())?;
    if let Some(note) = note {
        errln!("note: {note}");
    }
    Ok(Exit::Done)
}

/// So many rows are few: their fingerprints are kept to look for a seed.
const FEW: usize = 1_000;

/// That a share of few rows was missed by chance, and the seed that meets it.
fn off(args: &Args, keys: &[u128], held: u64, rows: u64) -> Option<String> {
    let wanted = args.val * rows as f64;
    let far = (held as f64 - wanted).abs() >= 1.0 && (held as f64 / wanted - 1.0).abs() > 0.2;
    let (seed, better) = closest_seed(args.val, keys).filter(|_| far && rows < FEW as u64)?;
    let closer = (better as f64 - wanted).abs() < (held as f64 - wanted).abs();
    closer.then(|| {
        format!(
            "each row's side is drawn from its content, so that it stays when rows are added: of {rows} rows {} came to {held}; \
             --seed {seed} holds out {better}",
            args.val
        )
    })
}
