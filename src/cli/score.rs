//! `llmtui score`: what a model makes of given texts and answers, token by token, for people and scripts to check.

mod left_out;
mod reward;

use super::Context;
use super::exit::{Exit, Failure, absent};
use super::model_ref;
use crate::base::child::Child;
use crate::base::files::read_plain_text;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::data::chat::Template;
use crate::data::formats::FormatChoice;
use crate::data::render::Renderer;
use crate::data::source::{ReadContext, SourceConfig};
use crate::data::{
    Content, DataError, Document, Example, OnBadRow, Place, Tokenizer, TrainOn, examples, tokenizer,
};
use crate::engine::export::Source;
use crate::engine::memorization::Text;
use crate::engine::perplexity::token_logps;
use crate::models::{ModelSource, Parts};
use crate::nn::Model;
use left_out::LeftOut;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Score texts and completions: log-probabilities, perplexity, bits per byte; or a reward model's scores
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui score runs/…/checkpoints/step-001000 held-out.txt
  llmtui score model-q8_0.gguf pairs.jsonl --json

A .txt or .md file is one text. Rows of other files are texts, conversations, prompts with answers, preference pairs or \
judged answers: only answers are scored. Logarithms are natural; bits per byte refer to the scored text. A reward model gives \
each text one score; for pairs it shows how often the chosen answer scores higher, and how often length alone would be right.")]
pub struct Args {
    /// A checkpoint folder, a run (its best checkpoint), a Hugging Face model folder, a GGUF file or a hub id
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Text, or rows in any training format
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Window in tokens; each starts with the last token of the previous one. Default: the model's context
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub window: Option<u64>,
    /// Chat template for conversations: auto (the model's own), a built-in name or a .jinja file
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub template: String,
    /// Print one JSON object, with ids and the log-probability of each token
    #[arg(long)]
    pub json: bool,
}

/// A text or an answer, scored.
struct ScoredText {
    place: String,
    /// `text`, `answer`, `chosen`, `rejected`, `desirable`, `undesirable`.
    label: &'static str,
    ids: Vec<u32>,
    /// Of each scored token, in nats.
    logps: Vec<f32>,
    /// Bytes of UTF-8 that the scored tokens spell.
    bytes: usize,
    not_scored: LeftOut,
}

impl ScoredText {
    fn logp(&self) -> f64 {
        self.logps.iter().map(|x| f64::from(*x)).sum()
    }

    fn to_json(&self) -> Value {
        let mut value = figures(self.logps.len(), self.bytes, self.logp());
        value["place"] = json!(self.place);
        value["label"] = json!(self.label);
        value["not_scored"] = json!(self.not_scored);
        value["ids"] = json!(self.ids);
        value["logps"] = json!(self.logps);
        value
    }
}

/// Sum and means of a log-probability.
fn figures(tokens: usize, bytes: usize, logp: f64) -> Value {
    let per_token = logp / tokens.max(1) as f64;
    json!({
        "tokens": tokens,
        "bytes": bytes,
        "logp": logp,
        "logp_per_token": per_token,
        "perplexity": (-per_token).exp(),
        "bits_per_byte": -logp / std::f64::consts::LN_2 / bytes.max(1) as f64,
    })
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let path = model_ref::find(&args.model, Parts::Everything, cx)?;
    let (renderer, documents) = read(&path, &args.file, &args.template)?;
    if ModelSource::open(&path).is_ok_and(|source| source.config().is_reward_model()) {
        let text = reward::score(args, &path, documents)?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    let mut source = Source::open_for_inference(&path).map_err(|e| {
        Failure::user_error(one_line(&e.to_string()), "llmtui runs lists what is here")
    })?;
    let context = source.model.shape().seq_len;
    let window = args.window.map_or(context, |n| n as usize).min(context);
    let scored = scored(&mut source.model, renderer.tokenizer(), documents, window)?;
    if scored.iter().all(|text| text.logps.is_empty()) {
        let what = format!("{}: nothing to score", shown(&args.file));
        let hint = "a text needs two tokens; an answer needs one that the chat template marks as the assistant's";
        return Err(Failure::user_error(what, hint).into());
    }
    let first = first_token(&renderer);
    let text = match args.json {
        true => as_json(args, window, &first, &scored)?,
        false => {
            if let Some(formats) = source.from.formats() {
                errln!(
                    "weights in {}, computed as in llmtui eval and llmtui chat",
                    formats.join(", ")
                );
            }
            cx.words(as_text(args, window, &first, &scored))
        }
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// The log-probabilities of the supervised tokens of each document.
fn scored(
    model: &mut Model,
    tokenizer: &Tokenizer,
    documents: Vec<Labelled>,
    window: usize,
) -> anyhow::Result<Vec<ScoredText>> {
    let special = tokenizer.added_tokens().into_iter();
    let special = special.filter(|token| token.special);
    let special: Vec<u32> = special.map(|token| token.id).collect();
    let mut scored = Vec::new();
    for Labelled {
        place,
        label,
        document,
        ends,
    } in documents
    {
        let logps = token_logps(model, &document.ids, window)?;
        let targets = document.ids.iter().zip(&document.supervised).skip(1);
        let (ids, logps): (Vec<u32>, Vec<f32>) = targets
            .zip(logps)
            .filter(|((_, supervised), _)| **supervised)
            .map(|((id, _), logp)| (*id, logp))
            .unzip();
        let bytes = text_bytes(tokenizer, &special, &document);
        scored.push(ScoredText {
            place,
            label,
            ids,
            logps,
            bytes,
            not_scored: LeftOut::of(&document, ends),
        });
    }
    Ok(scored)
}

/// Bytes of the scored text itself: marks between texts and turns stand for none of it, as lm-evaluation-harness counts.
/// Tokens are spelt behind those before them: alone, the first one of a SentencePiece vocabulary loses its space.
fn text_bytes(tokenizer: &Tokenizer, special: &[u32], document: &Document) -> usize {
    let spelt = |to: usize| {
        let text = document.ids[..to].iter().copied();
        let text: Vec<u32> = text.filter(|id| !special.contains(id)).collect();
        tokenizer.decode(&text).len()
    };
    // The first token is given.
    let counts = |at: usize| at > 0 && document.supervised.get(at) == Some(&true);
    let (mut bytes, mut from) = (0, None);
    for at in 0..=document.ids.len() {
        match (from, counts(at)) {
            (None, true) => from = Some(at),
            (Some(start), false) => {
                bytes += spelt(at).saturating_sub(spelt(start));
                from = None;
            }
            _ => {}
        }
    }
    bytes
}

/// The texts and answers of a file, as the model at `path` reads them.
fn read(path: &Path, file: &Path, template: &str) -> anyhow::Result<(Renderer, Vec<Labelled>)> {
    let user_error = |what: String, hint: String| Failure::user_error(one_line(&what), hint);
    if is_text(file) && !file.exists() {
        return Err(absent(file).into());
    }
    let child = Child::of_this_program();
    // The base of an adapter may be missing: report that before its missing tokenizer.
    let source = ModelSource::open(path).map_err(|e| user_error(e.to_string(), e.hint().into()))?;
    let tokenizer = tokenizer::load(source.tokenizer_path(), &child).map_err(|e| {
        user_error(
            e.to_string(),
            "put the model's tokenizer into the same folder".into(),
        )
    })?;
    let data = |e: DataError| user_error(e.to_string(), advice(&e.hint()));
    let template = Template::choose(template, &tokenizer, &child).map_err(data)?;
    let renderer = Renderer::new(Arc::new(tokenizer), template, TrainOn::Auto).with_template_fix(
        "name one with --template: chatml, or plain if the vocabulary has no turn markers",
    );
    let documents = match is_text(file) {
        true => vec![whole(file, &renderer)?],
        false => rows(file, &renderer).map_err(data)?,
    };
    Ok((renderer, documents))
}

/// The same as whole texts, answers and their prompts together; one text of a .txt file is cut into pieces of `most` tokens.
pub(super) fn texts(
    path: &Path,
    file: &Path,
    template: &str,
    most: usize,
) -> anyhow::Result<Vec<Text>> {
    let (renderer, documents) = read(path, file, template)?;
    let piece = |ids: &[u32]| Text {
        ids: ids.to_vec(),
        bytes: {
            // As above: what stands behind the first token, spelt together with it.
            let first = renderer.tokenizer().decode(&ids[..1]).len();
            let whole = renderer.tokenizer().decode(ids).into_bytes();
            whole.get(first..).unwrap_or_default().to_vec()
        },
        separator: match renderer.tokenizer().bos() {
            Some(bos) if ids.first() == Some(&bos) => None,
            _ => renderer.tokenizer().eos(),
        },
    };
    let mut texts = Vec::new();
    for Labelled { document, .. } in &documents {
        let size = if is_text(file) {
            most
        } else {
            document.ids.len().max(1)
        };
        texts.extend(
            document
                .ids
                .chunks(size)
                .filter(|ids| ids.len() > 1)
                .map(piece),
        );
    }
    Ok(texts)
}

/// What to do about a bad row: settings of a run's data are none of this command's.
fn advice(hint: &str) -> String {
    if !hint.contains("data.") {
        return hint.into();
    }
    match hint.starts_with("a source for each format") {
        true => "a file for each format",
        false => {
            "fix the row, or drop it: llmtui data clean FILE --tokenizer MODEL --out COPY.jsonl"
        }
    }
    .into()
}

fn is_text(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "txt" || e == "md")
}

/// A text or an answer.
struct Labelled {
    place: String,
    label: &'static str,
    document: Document,
    /// Whether the token that ended it was taken away.
    ends: bool,
}

impl Labelled {
    fn new(place: String, label: &'static str, document: Document) -> Labelled {
        Labelled {
            place,
            label,
            document,
            ends: false,
        }
    }

    /// A text without the token that ends it: a row and a file of the same text have the same log-probability.
    fn text(place: String, mut document: Document, renderer: &Renderer) -> Labelled {
        let eos = renderer.tokenizer().eos();
        let ends = document.ids.len() > 1 && document.ids.last().copied() == eos;
        if ends {
            document.ids.pop();
            document.supervised.pop();
        }
        Labelled {
            ends,
            ..Labelled::new(place, "text", document)
        }
    }
}

/// The file as one text.
fn whole(file: &Path, renderer: &Renderer) -> anyhow::Result<Labelled> {
    let text = read_plain_text(file).map_err(|e| Failure::not_read(file, &e))?;
    let place = Place {
        file: file.display().to_string().into(),
        row: 1,
    };
    let example = Example::new(Content::Text(text));
    let document = renderer
        .document(&example, &place)
        .map_err(|e| Failure::data(&e.into()))?;
    Ok(Labelled::text(place.file.to_string(), document, renderer))
}

/// The texts and answers of each row, in the order of the file.
fn rows(file: &Path, renderer: &Renderer) -> Result<Vec<Labelled>, DataError> {
    let source = SourceConfig::path(file.to_string_lossy());
    let read = ReadContext::default();
    let found = examples(&source, FormatChoice::default(), OnBadRow::Error, &read)?;
    let mut documents = Vec::new();
    for row in found {
        let (place, example) = row?;
        let mut add =
            |label, document| documents.push(Labelled::new(place.to_string(), label, document));
        match &example.content {
            Content::Preference { .. } => {
                let [chosen, rejected] = renderer.pair(&example, &place)?;
                add("chosen", chosen);
                add("rejected", rejected);
            }
            Content::Labelled { desirable, .. } => {
                let [answer, _] = renderer.judged(&example, &place)?;
                add(
                    if *desirable {
                        "desirable"
                    } else {
                        "undesirable"
                    },
                    answer,
                );
            }
            Content::Text(_) => {
                let document = renderer.document(&example, &place)?;
                documents.push(Labelled::text(place.to_string(), document, renderer));
            }
            _ => add("answer", renderer.document(&example, &place)?),
        }
    }
    Ok(documents)
}

/// The token that stands in front of texts, if the tokenizer puts one there.
fn first_token(renderer: &Renderer) -> Option<String> {
    let place = Place {
        file: "".into(),
        row: 1,
    };
    let with = renderer
        .document(&Example::new(Content::Text("a".into())), &place)
        .ok()?;
    let plain = renderer.tokenizer().encode("a").ok()?;
    let first = *with.ids.first()?;
    (plain.first() != Some(&first)).then(|| renderer.tokenizer().token(first))?
}

/// How often the first of two answers is more probable: as a whole, and per token; and how often it is the longer one, ties
/// counting half.
fn ranked(scored: &[ScoredText]) -> Option<[f64; 3]> {
    let pairs: Vec<&[ScoredText]> = scored.chunks_exact(2).collect();
    if scored.iter().all(|text| text.label != "chosen") || pairs.is_empty() {
        return None;
    }
    let share = |right: &dyn Fn(&ScoredText, &ScoredText) -> bool| {
        let n = pairs
            .iter()
            .filter(|pair| right(&pair[0], &pair[1]))
            .count();
        n as f64 / pairs.len() as f64
    };
    let per_token = |text: &ScoredText| text.logp() / text.logps.len().max(1) as f64;
    Some([
        share(&|a, b| a.logp() > b.logp()),
        share(&|a, b| per_token(a) > per_token(b)),
        longer_share(
            pairs
                .iter()
                .map(|pair| (pair[0].logps.len(), pair[1].logps.len())),
        ),
    ])
}

/// The share of pairs whose first answer has more tokens than the second, ties counting half, as in the metric
/// `rewards/length_accuracies`.
fn longer_share(lengths: impl ExactSizeIterator<Item = (usize, usize)>) -> f64 {
    let n = lengths.len().max(1) as f64;
    let points = lengths.map(|(first, second)| match first.cmp(&second) {
        Ordering::Greater => 1.0,
        Ordering::Equal => 0.5,
        Ordering::Less => 0.0,
    });
    points.sum::<f64>() / n
}

fn total(scored: &[ScoredText]) -> (usize, usize, f64) {
    scored
        .iter()
        .fold((0, 0, 0.0), |(tokens, bytes, logp), text| {
            (
                tokens + text.logps.len(),
                bytes + text.bytes,
                logp + text.logp(),
            )
        })
}

fn not_scored(scored: &[ScoredText]) -> LeftOut {
    scored.iter().map(|text| text.not_scored).sum()
}

fn as_json(
    args: &Args,
    window: usize,
    first: &Option<String>,
    scored: &[ScoredText],
) -> anyhow::Result<String> {
    let (tokens, bytes, logp) = total(scored);
    let mut value = json!({
        "model": args.model,
        "file": args.file.display().to_string(),
        "window": window,
        "first_token": first,
        "texts": scored.iter().map(ScoredText::to_json).collect::<Vec<_>>(),
        "total": figures(tokens, bytes, logp),
    });
    value["total"]["not_scored"] = json!(not_scored(scored));
    if let Some([whole, per_token, longer]) = ranked(scored) {
        value["chosen_more_probable"] = json!(whole);
        value["chosen_more_probable_per_token"] = json!(per_token);
        value["chosen_longer"] = json!(longer);
    }
    Ok(format!("{}\n", super::out::json(&value)?))
}

fn as_text(args: &Args, window: usize, first: &Option<String>, scored: &[ScoredText]) -> String {
    let mut out = String::new();
    let (tokens, bytes, logp) = total(scored);
    if scored.len() > 1 {
        let _ = writeln!(
            out,
            "{:<28} {:<11} {:>7} {:>12} {:>10}",
            "place", "", "tokens", "logp", "per token"
        );
        for text in scored {
            let n = text.logps.len();
            let per_token = text.logp() / n.max(1) as f64;
            let (place, label) = (one_line(&text.place), text.label);
            let _ = writeln!(
                out,
                "{place:<28} {label:<11} {n:>7} {:>12.4} {per_token:>10.4}",
                text.logp()
            );
        }
        out.push('\n');
    }
    let begins = match first {
        Some(token) => format!("texts begin with {}", one_line(token)),
        None => "no BOS token in front of texts".into(),
    };
    let of = figures(tokens, bytes, logp);
    let figure = |name: &str| of[name].as_f64().unwrap_or(f64::NAN);
    let file = shown(&args.file);
    let _ = writeln!(out, "{file}: {tokens} tokens scored, {bytes} bytes");
    let _ = writeln!(out, "not scored        {}", not_scored(scored).words());
    let _ = writeln!(
        out,
        "windows           {window} tokens, each starts with the last token of the previous one; {begins}"
    );
    let _ = writeln!(
        out,
        "log-probability   {logp:.4} nats, {:.4} per token",
        figure("logp_per_token")
    );
    let perplexity = human::loss(figure("perplexity"));
    let _ = writeln!(out, "perplexity        {perplexity}");
    let _ = writeln!(out, "bits per byte     {:.4}", figure("bits_per_byte"));
    if let Some([whole, per_token, longer]) = ranked(scored) {
        let _ = writeln!(
            out,
            "pairs             chosen more probable in {}, per token in {}; longer in {}",
            human::percent(whole, 1),
            human::percent(per_token, 1),
            human::percent(longer, 1)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces as Llama 2 has them: ▁ is a space, and the decoder takes one from the front of a text.
    fn sentencepiece() -> Tokenizer {
        let vocab = json!({"<unk>": 0, "<s>": 1, "▁": 2, "a": 3, "b": 4, "▁a": 5, "▁b": 6});
        let special = json!({"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true});
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")]},
            "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [replace("▁", " "), {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocab, "merges": [["▁", "a"], ["▁", "b"]]},
        });
        Tokenizer::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn answers_of_one_length_count_half() {
        assert_eq!(
            longer_share([(3, 2), (2, 2), (1, 2), (2, 2)].into_iter()),
            0.5
        );
        assert_eq!(longer_share([(2, 2)].into_iter()), 0.5);
    }

    #[test]
    fn the_bytes_of_an_answer_have_the_space_in_front_of_it() {
        let tokenizer = sentencepiece();
        let document = |text: &str, supervised: &[bool]| {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(ids.len(), supervised.len(), "{ids:?}");
            Document {
                ids,
                supervised: supervised.to_vec(),
            }
        };
        let bytes = |document: &Document| text_bytes(&tokenizer, &[1], document);
        // A prompt `a` and the answer ` b a`.
        assert_eq!(bytes(&document("a b a", &[false, true, true])), 4);
        // Answers apart, and a mark between them.
        let parted = document("a b<s>a b", &[false, true, false, false, true]);
        assert_eq!(bytes(&parted), 4);
        // Of a whole text the first token is given.
        assert_eq!(bytes(&document("a b", &[true, true])), 2);
    }

    #[test]
    fn settings_of_runs_are_not_advised_where_there_are_none() {
        let told = advice("drop such rows, or data.on_bad_row: skip: they express no preference");
        assert!(!told.contains("data.on_bad_row") && told.contains("llmtui data clean"));
        assert_eq!(
            advice("name one with --template"),
            "name one with --template"
        );
    }
}
