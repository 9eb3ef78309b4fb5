//! Training data, ready for use: a tokenizer, two splits, and batches of them by index. Every batch is a function of its
//! arguments alone: a resumed run needs no saved position, and evaluation does not affect training. Reading text and
//! documents is in `prepare`, forming rows in `corpus` and `documents`.

use super::Unit;
use super::chat::tool_calls::Answers;
use super::chat::{SplitMarker, Template};
use super::corpus::Corpus;
use super::documents::{Documents, Portion};
use super::formats::FormatId;
use super::pack::{Packing, padded};
use super::tokenizer::Tokenizer;
use super::{Batch, Origin};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

/// Training data of a run.
#[derive(Debug)]
pub struct Dataset {
    pub tokenizer: Tokenizer,
    /// SHA-256 in hex of everything that decides on the tokens of the batches: text, template, packing, shares.
    pub fingerprint: String,
    /// SHA-256 of the tokenizer.json and of its metadata files, in hex.
    pub tokenizer_fingerprint: String,
    /// Where the text came from, for display.
    pub place: String,
    /// Notices: dropped marks, line ends, documents that were cut or left out.
    pub notes: Vec<String>,
    /// The ids after which a model falls silent: the token that ends a turn, and the one that ends a text.
    pub ends: Vec<u32>,
    /// The chat template of training conversations; none where there are none.
    pub template: Option<Template>,
    /// How answers to the template's prompts are read, once that was asked for.
    pub(super) answers: OnceLock<Answers>,
    /// What the chat template writes after an answer, where there is one.
    pub(super) behind_answers: Option<String>,
    /// The format of training rows whose prompts are texts although there is a chat template, which does not write them.
    pub plain_prompts: Option<FormatId>,
    /// Marks of the template of the conversations that the tokenizer's files have no tokens for.
    pub cut_marks: Vec<SplitMarker>,
    /// That template is another one than the tokenizer's files bring.
    pub replaces_template: bool,
    /// What became of the training documents; none where there is one text.
    pub learning: Option<TrainingCounts>,
    pub(super) seq_len: usize,
    pub(super) splits: Splits,
}

/// The training documents of all sources, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrainingCounts {
    pub documents: u64,
    /// Documents of which nothing is supervised: no answer, or it was cut off.
    pub nothing_supervised: u64,
    /// Those of them that have an answer, which begins beyond the end of a row.
    pub cut_off: u64,
    /// Documents longer than a row, whatever was done about it.
    pub too_long: u64,
    /// Tokens that went with truncated and dropped documents.
    pub lost_tokens: u64,
    /// Tokens of the longest document, before anything was cut.
    pub longest: u64,
    /// The sources that lost tokens.
    pub losses: Vec<Loss>,
    /// Rows with tools of which the template writes nothing.
    pub without_tools: u64,
    /// Rows with an answer whose thoughts the template does not write.
    pub without_thoughts: u64,
    /// Turns of the assistant, and those that only call a tool and come out empty.
    pub answers: u64,
    pub empty_calls: u64,
    /// Rows, and those of them with an empty answer to learn.
    pub rows: u64,
    pub empty_answers: u64,
}

/// What truncated and dropped documents cost one source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    pub source: String,
    /// Its documents are conversations or prompts with completions, no plain texts.
    pub conversations: bool,
    pub documents: u64,
    /// Documents that were truncated or dropped, also for want of anything to learn.
    pub cut: u64,
    pub tokens: u64,
}

/// The two ways in which data are held.
#[derive(Debug)]
pub(super) enum Splits {
    Corpus(Box<Corpus>),
    Documents(Documents),
}

/// One source of a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    pub name: String,
    /// Share of the tokens, once a curriculum is over.
    pub share: f64,
    pub documents: u64,
    /// Tokens of one pass over it.
    pub epoch_tokens: u64,
}

impl Dataset {
    /// One text in memory, cut in two by `data.val_fraction`.
    pub fn is_plain_text(&self) -> bool {
        matches!(self.splits, Splits::Corpus(_))
    }

    /// How answers to prompts that the chat template wrote are read: what is thought and what is said.
    pub fn answers(&self) -> Answers {
        let read = || Answers::of(self.template.as_ref(), &self.tokenizer);
        *self.answers.get_or_init(read)
    }

    /// What the chat template writes after an answer to a prompt of these data; none where the prompt is plain text.
    pub fn answer_suffix(&self, origin: Option<Origin>) -> Option<&str> {
        let portion = self.portion(origin?)?;
        self.behind_answers.as_deref().filter(|_| portion.templated)
    }

    /// Whether a chat template wrote a row of the validation split, by its number: an answer there is a turn of its own.
    pub fn is_val_row_templated(&self, row: u64) -> bool {
        match &self.splits {
            Splits::Corpus(_) => false,
            Splits::Documents(documents) => documents.is_val_row_templated(row),
        }
    }

    /// The source of a sequence and its row there, from 0, rows that were left out not counted.
    pub fn row_of(&self, origin: Origin) -> Option<(&str, u64)> {
        let portion = self.portion(origin)?;
        Some((&portion.name, portion.row_at(origin.start)))
    }

    fn portion(&self, origin: Origin) -> Option<&Portion> {
        let Splits::Documents(documents) = &self.splits else {
            return None;
        };
        let split = match origin.held_out {
            true => &documents.val,
            false => &documents.train,
        };
        split.get(origin.source as usize)
    }

    /// Tokens of the longest row.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// How documents share rows.
    pub fn packing(&self) -> Packing {
        match &self.splits {
            Splits::Corpus(_) => Packing::Stream,
            Splits::Documents(documents) => documents.how.packing,
        }
    }

    /// Whether rows end in padding: those of documents that are kept apart.
    pub fn is_padded(&self) -> bool {
        self.packing() != Packing::Stream
    }

    /// What the tokens of a split are: of texts and answers all that are predicted, whether they count in the loss or not; or prompts.
    pub fn tokens_word(&self) -> &'static str {
        match &self.splits {
            Splits::Documents(documents) if documents.how.unit == Unit::Prompt => "prompt tokens",
            _ => "tokens",
        }
    }

    /// Tokens of the training split: of documents those that are predicted.
    pub fn train_tokens(&self) -> u64 {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.train.len() as u64,
            Splits::Documents(documents) => documents.epoch_tokens(),
        }
    }

    /// Tokens of the validation split.
    pub fn val_tokens(&self) -> u64 {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.val.len() as u64,
            Splits::Documents(documents) => documents.val.iter().map(|p| p.tokens).sum(),
        }
    }

    /// Tokens of the validation split that its loss is over: answers, where only those are supervised. Pairs count whole.
    pub fn val_loss_tokens(&self) -> u64 {
        match &self.splits {
            Splits::Documents(documents) if documents.how.unit == Unit::Text => {
                documents.val.iter().map(Portion::supervised).sum()
            }
            _ => self.val_tokens(),
        }
    }

    /// The share of all tokens that the validation split has.
    pub fn held_out_share(&self) -> f64 {
        let (held_out, trained) = (self.val_tokens() as f64, self.epoch_tokens() as f64);
        held_out / (held_out + trained).max(1.0)
    }

    /// Target tokens of one pass over the training split.
    pub fn epoch_tokens(&self) -> u64 {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.epoch_tokens(),
            Splits::Documents(documents) => documents.epoch_tokens(),
        }
    }

    /// Places that steps fill in one pass over the training split: its tokens and the padding beside them.
    pub fn pass_tokens(&self) -> u64 {
        let sequences = match &self.splits {
            Splits::Corpus(_) => 1,
            Splits::Documents(documents) => documents.how.unit.sequences(),
        };
        (self.micro_steps_per_epoch(1) * (sequences * self.seq_len) as f64) as u64
    }

    /// The sources of a mix, in the order in which batches count their tokens; none where there is one text.
    pub fn sources(&self) -> Vec<Source> {
        let Splits::Documents(documents) = &self.splits else {
            return Vec::new();
        };
        let weights = documents
            .stages
            .last()
            .map(|s| &*s.weights)
            .unwrap_or_default();
        let sum: f64 = weights.iter().sum();
        let source = |(portion, weight): (&super::documents::Portion, &f64)| Source {
            name: portion.name.clone(),
            share: weight / sum,
            documents: portion.documents,
            epoch_tokens: portion.tokens,
        };
        documents.train.iter().zip(weights).map(source).collect()
    }

    /// Passes over each source after so many micro-steps of a run.
    pub fn epochs(&self, seed: u64, micro_steps: u64, batch_size: usize) -> Vec<f64> {
        match &self.splits {
            Splits::Corpus(_) => Vec::new(),
            Splits::Documents(documents) => documents.epochs(seed, micro_steps, batch_size),
        }
    }

    /// Tokens that so many micro-steps of a run hold, padding left out, and the places that they fill with it. Near enough
    /// where a curriculum or weights draw from several sources.
    pub fn read(&self, seed: u64, micro_steps: u64, batch_size: usize) -> (f64, f64) {
        match &self.splits {
            Splits::Corpus(_) => {
                let tokens = micro_steps as f64 * (batch_size * self.seq_len) as f64;
                (tokens, tokens)
            }
            Splits::Documents(documents) => documents.read(seed, micro_steps, batch_size),
        }
    }

    /// Desirable and undesirable answers of the training split; `None` where answers are not judged one by one.
    pub fn labels(&self) -> Option<(u64, u64)> {
        match &self.splits {
            Splits::Corpus(_) => None,
            Splits::Documents(documents) => documents.labels(),
        }
    }

    /// Prompts of the training split that take more than `tokens` before their answer, and all of them; `None` where examples
    /// are no prompts.
    pub fn longer_prompts(&self, tokens: u64) -> Option<(u64, u64)> {
        match &self.splits {
            Splits::Corpus(_) => None,
            Splits::Documents(documents) => documents.longer_prompts(tokens),
        }
    }

    /// Prompts of the validation split, and of both; `None` where examples are no prompts.
    pub fn val_prompts(&self) -> Option<(u64, u64)> {
        match &self.splits {
            Splits::Documents(documents) if documents.how.unit == Unit::Prompt => {
                let held_out = documents.val_rows();
                Some((held_out, held_out + documents.rows(false)))
            }
            _ => None,
        }
    }

    /// Micro-steps of so many rows in one pass over the training split.
    pub fn micro_steps_per_epoch(&self, batch_size: usize) -> f64 {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.windows_per_epoch() / batch_size as f64,
            Splits::Documents(documents) => documents.micro_steps_per_epoch(batch_size),
        }
    }

    /// The training batch of one micro-step (from 0). `batch_size` must stay the same over a run for an epoch to visit
    /// everything once.
    pub fn train_batch(&self, seed: u64, micro_step: u64, batch_size: usize) -> Batch {
        let mut batch = Batch::default();
        self.fill_train_batch(&mut batch, seed, micro_step, batch_size);
        batch
    }

    /// The same into a batch whose memory is used again.
    pub fn fill_train_batch(
        &self,
        batch: &mut Batch,
        seed: u64,
        micro_step: u64,
        batch_size: usize,
    ) {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.fill_train_batch(batch, seed, micro_step, batch_size),
            Splits::Documents(documents) => {
                documents.fill_train(batch, seed, micro_step, batch_size)
            }
        }
    }

    /// Random rows of the validation split; the same ones for the same `index`, so that evaluations of one run are
    /// comparable.
    pub fn eval_batch(&self, seed: u64, index: u64, batch_size: usize) -> Batch {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.eval_batch(seed, index, batch_size),
            Splits::Documents(documents) => {
                let mut batch = Batch::default();
                documents.fill_eval(&mut batch, seed, index, batch_size);
                batch
            }
        }
    }

    /// Number of rows that cover the validation split.
    pub fn val_windows(&self) -> usize {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.val_windows(),
            Splits::Documents(documents) => documents.val_rows() as usize,
        }
    }

    /// Up to `batch_size` rows of the validation split from row number `first` on; fewer at the end.
    pub fn val_batch(&self, first: usize, batch_size: usize) -> Batch {
        let end = self.val_windows().min(first.saturating_add(batch_size));
        self.val_rows(&(first as u64..end as u64).collect::<Vec<_>>())
    }

    /// Numbers of the rows that an evaluation of at most `limit` rows reads, of every source its first ones in the file and as
    /// many as its share of the split; longest first where a batch is as wide as its longest row.
    pub fn first_val_rows(&self, limit: usize) -> Vec<u64> {
        match &self.splits {
            Splits::Corpus(corpus) => (0..corpus.val_windows().min(limit) as u64).collect(),
            Splits::Documents(documents) => documents.first_val_rows(limit as u64),
        }
    }

    /// Rows of the validation split by number; those beyond the end are skipped.
    pub fn val_rows(&self, rows: &[u64]) -> Batch {
        match &self.splits {
            Splits::Corpus(corpus) => corpus.val_rows(rows),
            Splits::Documents(documents) => {
                let mut batch = Batch::default();
                documents.fill_val(&mut batch, rows.iter().copied());
                batch
            }
        }
    }

    /// Every row of both splits once, in batches: for what is computed of each before training. Empty where examples are
    /// windows of one text.
    pub fn every_batch(&self, batch_size: usize) -> impl Iterator<Item = Batch> + '_ {
        let documents = match &self.splits {
            Splits::Corpus(_) => None,
            Splits::Documents(documents) => Some(documents),
        };
        let splits = [false, true].into_iter();
        documents.into_iter().flat_map(move |documents| {
            splits.clone().flat_map(move |held_out| {
                let rows = documents.rows(held_out);
                (0..rows).step_by(batch_size).map(move |first| {
                    let mut batch = Batch::default();
                    let rows = first..first + batch_size as u64;
                    documents.fill_rows(&mut batch, held_out, rows);
                    batch
                })
            })
        })
    }

    /// The first `rows` rows of the validation split in batches; answers that are judged beside others never come alone.
    pub fn val_batches(
        &self,
        rows: usize,
        batch_size: usize,
    ) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let no_lone = match &self.splits {
            Splits::Corpus(_) => false,
            Splits::Documents(documents) => documents.how.unit == Unit::Judged,
        };
        let n = padded::batches(rows, batch_size, no_lone);
        (0..n).map(move |index| padded::bounds(rows, (index, batch_size), no_lone))
    }

    /// Examples of both splits, as [`Dataset::every_batch`] gives them.
    pub fn examples(&self) -> u64 {
        match &self.splits {
            Splits::Corpus(_) => 0,
            Splits::Documents(documents) => documents.rows(false) + documents.rows(true),
        }
    }

    /// Mean UTF-8 bytes per validation token; `None` if only a part of the text is supervised.
    pub fn val_bytes_per_token(&self) -> Option<f64> {
        match &self.splits {
            Splits::Corpus(corpus) => Some(corpus.val_bytes_per_token()),
            Splits::Documents(documents) => documents.bytes_per_token,
        }
    }

    /// Entropy of the frequencies of the training tokens, the first few million, in nats: the loss of a model that ignores the
    /// context. `None` where only a part of the text is supervised.
    pub fn unigram_entropy(&self) -> Option<f64> {
        /// Enough for three digits, in a few milliseconds.
        const SAMPLE: usize = 1 << 22;
        self.val_bytes_per_token()?;
        let tokens = self.train_sample(SAMPLE);
        let tokens = &tokens[..tokens.len().min(SAMPLE)];
        let mut counts = vec![0_u64; self.tokenizer.vocab_size()];
        for token in tokens {
            *counts.get_mut(*token as usize)? += 1;
        }
        let n = tokens.len() as f64;
        let share = |count: &u64| *count as f64 / n;
        let seen = counts.iter().filter(|count| **count > 0).map(share);
        (n > 0.0).then(|| -seen.map(|p| p * p.ln()).sum::<f64>())
    }

    /// How many documents of the validation split stand in the training split word for word, and how many there are;
    /// `None` where documents run together.
    pub fn repeated(&self) -> Option<(u64, u64)> {
        match &self.splits {
            Splits::Corpus(_) => None,
            Splits::Documents(documents) => documents.repeated(),
        }
    }

    /// The training tokens in order; of documents, the first `limit`.
    pub fn train_sample(&self, limit: usize) -> Cow<'_, [u32]> {
        match &self.splits {
            Splits::Corpus(corpus) => Cow::Borrowed(&corpus.train),
            Splits::Documents(documents) => Documents::flat(&documents.train, limit).into(),
        }
    }

    /// The validation tokens in order; of documents, the first `limit`.
    pub fn val_sample(&self, limit: usize) -> Cow<'_, [u32]> {
        match &self.splits {
            Splits::Corpus(corpus) => Cow::Borrowed(&corpus.val),
            Splits::Documents(documents) => Documents::flat(&documents.val, limit).into(),
        }
    }
}
