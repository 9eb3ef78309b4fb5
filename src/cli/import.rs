//! `llmtui import`: converts another tool's config as far as possible and reports what became of each key.

use super::Context;
use super::exit::{Exit, Failure};
use super::out::hint;
use crate::base::files::read_plain_text;
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use crate::data::chat::AUTO;
use crate::data::tokenizer::{ChatMarkers, TokenizerConfig};
use crate::spec::import::{self, DatasetInfo, Dialect, Imported, KeyOutcome, Known};
use crate::spec::{Draft, Loaded, load_text_with, named_template};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Convert a LLaMA-Factory, Axolotl or TRL config to a spec
///
/// Reports for each key: mapped, mapped with a difference, no equivalent, not needed, unknown. Without --to the spec is printed, and
/// the report goes to standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui import examples/llama3_pt.yaml
  llmtui import qlora.yml --from axolotl --to mine.yaml
  llmtui import config.yaml --method dpo")]
pub struct Args {
    /// The YAML file to convert
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which tool wrote it; detected from its keys by default
    #[arg(long, value_name = "TOOL", value_parser = clap::builder::PossibleValuesParser::new(Dialect::ALL.iter().map(|d| d.id())))]
    pub from: Option<String>,
    /// Which TRL trainer the file is for; detected from its keys, names and data by default
    #[arg(long, value_name = "METHOD", value_parser = clap::builder::PossibleValuesParser::new(import::METHODS))]
    pub method: Option<String>,
    /// Write the spec here; never overwrites. Default: print it
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// What to do about a file that is no config.
const TAKES: &str =
    "name a YAML or JSON config of LLaMA-Factory, Axolotl or TRL; --from says which tool wrote it";

/// Whether a file is read as a spec as it is.
fn is_spec(file: &Path, cx: &Context) -> bool {
    let target = file.to_str();
    target.is_some_and(|file| crate::spec::load(file, &[], &cx.spec_sources()).is_ok())
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let file = shown(&args.file);
    let text = read_plain_text(&args.file)
        .map_err(|e| Failure::user_error(format!("{file} cannot be read: {e}"), TAKES))?;
    let stem = args.file.file_stem().unwrap_or_default().to_string_lossy();
    let info = DatasetInfo::of(&args.file, &text);
    let known = Known {
        from: args.from.as_deref().and_then(Dialect::by_id),
        info: info.as_ref(),
        method: args.method.as_deref(),
        columns: import::columns_of(&text),
        model: import::start_model(&text, &cx.spec_sources()),
    };
    let imported = import::import_with(&stem, &text, &known).map_err(|e| match e {
        // LLM-Lab's are among the names that settings answer to.
        import::ImportError::NoDialect if is_spec(&args.file, cx) => Failure::user_error(
            format!("{file} needs no import: all of its names are settings here"),
            format!("llmtui train {}", shell_quote(&file)),
        ),
        e => Failure::user_error(format!("{file}: {e}"), TAKES),
    })?;
    if args.method.is_some() && !imported.dialect.takes_a_method() {
        let what = format!(
            "{file}: a file of {} already names its method",
            imported.dialect.id()
        );
        return Err(Failure::user_error(what, "drop --method, or change the file").into());
    }
    let mut text = report(&imported);
    if let Some(doubt) = &imported.doubt {
        text.push_str(&format!("\nnote: {}\n", one_line(doubt)));
    }
    if let Some(words) = of_template(&imported.draft, cx) {
        text.push_str(&format!("\n{}\n", one_line(&words)));
    }
    let heading = format!("Imported from {} ({}).", file, imported.dialect.id());
    let yaml = imported.draft.to_yaml(&[heading]);
    match &args.to {
        Some(path) => {
            crate::spec::save_new(path, &yaml)
                .map_err(|error| Failure::unsaved(&error, "--to FILE"))?;
            crate::ui::remember_spec(&cx.env, path);
            outln!(
                "{text}\nsaved as {}\nllmtui train {}",
                shown(path),
                shown(path)
            )?;
        }
        // Standard output is the spec alone: `llmtui import FILE > spec.yaml`.
        None => {
            hint(format_args!("{text}\n"));
            std::io::stdout().lock().write_all(yaml.as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

/// What a template that the file names asks of the model's tokenizer. Other trainers add the marks that it lacks.
fn of_template(draft: &Draft, cx: &Context) -> Option<String> {
    let template = draft.value("data.template");
    let template = template.as_str().filter(|name| *name != AUTO)?;
    let from = draft.value("train.from");
    // The rest of the spec may lack what is on no disk yet.
    let set = [
        format!("train.from={}", from.as_str()?),
        format!("data.template={template}"),
    ];
    let loaded = load_text_with("imported.yaml", "{}", &set, &cx.spec_sources());
    let tokenizer = |loaded: &Loaded| match &loaded.spec.data.tokenizer {
        TokenizerConfig::File(file) => file.path.exists(),
        _ => true,
    };
    if let Some(loaded) = loaded.ok().filter(tokenizer) {
        let found = named_template(&loaded.spec)?;
        return Some(format!(
            "advice: {}: {}; {}",
            found.place, found.evidence, found.fix
        ));
    }
    let marks = ChatMarkers::of_template(template).tokens();
    (!marks.is_empty()).then(|| {
        format!(
            "note: template {template} uses {}: a tokenizer without these special tokens splits them into pieces, and none are added \
             here; llmtui plan lists the missing ones once the model is on this disk, and data.template=auto uses the model's own template",
            marks.join(" ")
        )
    })
}

/// ```text
/// llama-factory: 9 mapped, 3 mapped, with a difference, 4 no equivalent
///
/// mapped
///   learning_rate: 1e-4       optimizer.adamw.lr: 1e-4
/// ```
fn report(imported: &Imported) -> String {
    let count = |outcome: KeyOutcome| {
        imported
            .lines
            .iter()
            .filter(|l| l.outcome == outcome)
            .count()
    };
    let counts: Vec<String> = KeyOutcome::ALL
        .into_iter()
        .filter(|outcome| count(*outcome) > 0)
        .map(|outcome| format!("{} {}", count(outcome), outcome.title()))
        .collect();
    let mut text = format!("{}: {}\n", imported.dialect.id(), counts.join("; "));
    let width = imported
        .lines
        .iter()
        .map(|l| l.theirs.chars().count())
        .max();
    let width = width.unwrap_or(0).min(48);
    for outcome in KeyOutcome::ALL
        .into_iter()
        .filter(|outcome| count(*outcome) > 0)
    {
        text.push_str(&format!("\n{}\n", outcome.title()));
        for line in imported.lines.iter().filter(|l| l.outcome == outcome) {
            let words: Vec<String> = [&line.ours, &line.words]
                .into_iter()
                .filter(|w| !w.is_empty())
                .map(|w| one_line(w))
                .collect();
            text.push_str(&format!(
                "  {:width$}  {}\n",
                one_line(&line.theirs),
                words.join("; ")
            ));
        }
    }
    text
}
