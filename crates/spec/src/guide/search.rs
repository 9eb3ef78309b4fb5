//! Finding what a question is about: words without endings, joined and weighted by how few texts have them.

use std::collections::HashMap;

/// Words of any question.
const STOP_WORDS: &[&str] = &[
    "a",
    "about",
    "after",
    "an",
    "and",
    "any",
    "anything",
    "are",
    "as",
    "at",
    "be",
    "been",
    "but",
    "by",
    "can",
    "could",
    "define",
    "did",
    "do",
    "does",
    "doing",
    "everything",
    "explain",
    "find",
    "for",
    "from",
    "get",
    "gets",
    "getting",
    "give",
    "gives",
    "go",
    "goes",
    "going",
    "good",
    "got",
    "had",
    "has",
    "have",
    "help",
    "here",
    "how",
    "i",
    "if",
    "in",
    "into",
    "is",
    "it",
    "its",
    "itself",
    "just",
    "keep",
    "keeps",
    "like",
    "llm",
    "make",
    "makes",
    "many",
    "me",
    "mean",
    "meaning",
    "means",
    "model",
    "models",
    "much",
    "my",
    "need",
    "no",
    "not",
    "of",
    "off",
    "on",
    "only",
    "or",
    "our",
    "please",
    "problem",
    "run",
    "s",
    "should",
    "so",
    "some",
    "something",
    "t",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "they",
    "this",
    "to",
    "too",
    "train",
    "training",
    "use",
    "used",
    "using",
    "very",
    "want",
    "was",
    "we",
    "were",
    "what",
    "when",
    "where",
    "which",
    "while",
    "why",
    "will",
    "with",
    "without",
    "would",
    "you",
    "your",
];

/// Several words that are one term, and other spellings of it.
const PHRASES: &[(&str, &str)] = &[
    ("learning rate", "lr"),
    ("out of memory", "oom"),
    ("shared memory", "shm"),
    ("batch size", "batchsize"),
    ("weight decay", "weightdecay"),
    ("gradient norm", "gradnorm"),
    ("grad norm", "gradnorm"),
    ("chain of thought", "cot"),
    ("early stop", "earlystop"),
    ("early stopping", "earlystop"),
    ("fine tune", "finetune"),
    ("fine tuning", "finetune"),
    ("mixture of experts", "moe"),
    ("reinforcement learning", "rl"),
    ("not learning", "learnsnothing"),
    ("not learn", "learnsnothing"),
    ("no learning", "learnsnothing"),
    ("training is slow", "slowrun"),
    ("training so slow", "slowrun"),
    ("slow training", "slowrun"),
    ("run is slow", "slowrun"),
    ("stop a run", "stoprun"),
    ("stop the run", "stoprun"),
    ("stop my run", "stoprun"),
    ("ln 2", "ln2"),
    ("ln v", "lnv"),
    ("log v", "lnv"),
];

/// Words that mean the same.
const SAME: &[(&str, &str)] = &[
    ("evaluation", "eval"),
    ("evaluations", "eval"),
    ("evaluate", "eval"),
    ("evaluating", "eval"),
    ("validation", "val"),
    ("finetuning", "finetune"),
    ("finetuned", "finetune"),
    ("grpo's", "grpo"),
    ("explosion", "explode"),
    ("hung", "hang"),
    ("froze", "freeze"),
    ("memorisation", "memorize"),
    ("memorization", "memorize"),
    ("quantisation", "quantize"),
    ("quantization", "quantize"),
    ("garbage", "gibberish"),
    ("nonsense", "gibberish"),
    ("vram", "memory"),
    ("seeds", "seed"),
    ("gpus", "gpu"),
    ("spikey", "spike"),
    ("differ", "different"),
    ("differs", "different"),
    ("difference", "different"),
    ("mismatch", "different"),
    ("mismatched", "different"),
];

/// Weight of a word of the title, and of one that is the id, beside a keyword's 1.
const TITLE: f64 = 1.5;
/// What a title adds that is in the question as a whole.
const WHOLE_TITLE: f64 = 3.0;
/// A page of a whole field before an entry that fits as well.
const GENERAL: f64 = 1.15;
/// Share of a question's words, by weight, that an answer has at least.
const COVERED: f64 = 0.5;
/// Least weight of the words that it has: one rare word, or two frequent ones.
const LEAST: f64 = 2.2;
/// The same of what is only asked back: did you mean.
const NEARLY: f64 = 0.2;

/// What can be found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text {
    title: Vec<String>,
    ask: Vec<String>,
    /// It answers a whole field of questions: words of its title that a question lacks say nothing.
    general: bool,
}

impl Text {
    pub(super) fn new(id: &str, title: &str, ask: &str) -> Text {
        let mut ask = terms(ask);
        ask.extend(terms(id));
        Text {
            title: terms(title),
            ask,
            general: false,
        }
    }

    pub(super) fn general(self) -> Text {
        Text {
            general: true,
            ..self
        }
    }
}

/// One that fits a question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Match {
    /// Its place among the texts.
    pub at: usize,
    pub score: f64,
    /// It answers; else it is a guess.
    pub answers: bool,
}

/// All texts, with how many have each word.
#[derive(Debug, Clone)]
pub(super) struct Index {
    texts: Vec<Text>,
    counts: HashMap<String, usize>,
}

impl Index {
    pub(super) fn new(texts: Vec<Text>) -> Index {
        let mut counts = HashMap::new();
        for text in &texts {
            let mut words: Vec<&String> = text.title.iter().chain(&text.ask).collect();
            words.sort_unstable();
            words.dedup();
            for word in words {
                *counts.entry(word.clone()).or_insert(0) += 1;
            }
        }
        Index { texts, counts }
    }

    /// A word weighs more the fewer texts have it.
    fn weight(&self, word: &str) -> f64 {
        let with = self.counts.get(word).copied().unwrap_or(1) as f64;
        (1.0 + self.texts.len() as f64 / with).ln()
    }

    /// Words of a question: pairs that are one word here are joined, numbers that nobody knows are left out, a slip is replaced by what
    /// `spelled` knows.
    fn asked(&self, question: &str, spelled: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let words = terms(question);
        let known = |word: &str| self.counts.contains_key(word);
        let mut found: Vec<String> = Vec::new();
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            let joined = rest.peek().map(|next| stem(&format!("{word}{next}")));
            let word = match joined.filter(|joined| known(joined)) {
                Some(joined) => {
                    rest.next();
                    joined
                }
                None => word.clone(),
            };
            let word = match known(&word) {
                true => word,
                false if word.contains(|c: char| c.is_ascii_digit()) => continue,
                false => spelled(&word).unwrap_or(word),
            };
            if !STOP_WORDS.contains(&word.as_str()) && !found.contains(&word) {
                found.push(word);
            }
        }
        found
    }

    /// The texts that fit a question, the best first.
    pub(super) fn find(
        &self,
        question: &str,
        spelled: impl Fn(&str) -> Option<String>,
    ) -> Vec<Match> {
        let asked = self.asked(question, spelled);
        let all: f64 = asked.iter().map(|word| self.weight(word)).sum();
        let mut found: Vec<Match> = Vec::new();
        for (at, text) in self.texts.iter().enumerate() {
            let (mut score, mut covered) = (0.0, 0.0);
            for word in &asked {
                let by = match () {
                    () if text.title.contains(word) => TITLE,
                    () if text.ask.contains(word) => 1.0,
                    () => continue,
                };
                covered += self.weight(word);
                score += by * self.weight(word);
            }
            if covered <= 0.0 {
                continue;
            }
            let whole = text.title.iter().all(|word| asked.contains(word));
            if whole && !text.title.is_empty() {
                score += WHOLE_TITLE;
            }
            let share = covered / all;
            // What leaves words of the question out is a worse answer, and so is one that is about something more particular.
            let fit = match text.general {
                true => GENERAL,
                false => 0.6 + 0.4 * self.share_of_title(text, &asked),
            };
            found.push(Match {
                at,
                score: score * (0.5 + 0.5 * share) * fit,
                answers: share >= COVERED && covered >= LEAST,
            });
        }
        found.retain(|m| m.answers || m.score >= NEARLY);
        found.sort_by(|a, b| {
            let key = |m: &Match| (m.answers, m.score);
            key(b).0.cmp(&key(a).0).then(key(b).1.total_cmp(&key(a).1))
        });
        found
    }

    /// How much of a title is in a question, by weight.
    fn share_of_title(&self, text: &Text, asked: &[String]) -> f64 {
        let (mut had, mut all) = (0.0, 0.0);
        for word in &text.title {
            let weight = self.weight(word);
            all += weight;
            if asked.contains(word) {
                had += weight;
            }
        }
        if all > 0.0 { had / all } else { 1.0 }
    }

    /// Every word that leads anywhere, and those that lead nowhere: a slip of either is mended.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        let counted = self.counts.keys().map(String::as_str);
        counted.chain(STOP_WORDS.iter().copied())
    }
}

/// Words that count, without their endings; parts of a hyphenated one, and it as a whole.
pub(super) fn terms(text: &str) -> Vec<String> {
    let text = text.to_lowercase().replace(['’', '\''], "");
    let mut words: Vec<String> = Vec::new();
    let mut joined: Vec<String> = Vec::new();
    for piece in text.split(|c: char| !(c.is_alphanumeric() || "-_.".contains(c))) {
        // 0.6931 is one word, `model.seq_len` is three.
        let number = piece.parse::<f64>().is_ok() && !piece.starts_with('-');
        if number {
            words.push(piece.trim_end_matches('.').into());
            continue;
        }
        let parts: Vec<&str> = piece
            .split(|c: char| !c.is_alphanumeric())
            .filter(|part| !part.is_empty())
            .collect();
        if parts.len() == 2 && piece.contains(['-', '_']) {
            joined.push(parts.concat());
        }
        words.extend(parts.iter().map(|part| (*part).to_string()));
    }
    let mut spaced = format!(" {} ", words.join(" "));
    for (phrase, term) in PHRASES {
        spaced = spaced.replace(&format!(" {phrase} "), &format!(" {term} "));
    }
    let words = spaced.split_whitespace().map(String::from);
    let kept = words
        .chain(joined)
        .filter(|word| !STOP_WORDS.contains(&word.as_str()));
    let same = |word: String| match SAME.iter().find(|(said, _)| *said == word) {
        Some((_, term)) => (*term).to_string(),
        None => word,
    };
    kept.map(same).map(|word| stem(&word)).collect()
}

/// A word without its ending, in American spelling: `spike`, `spikes` and `spiking` are one, and so are `memorised` and `memorize`.
pub(super) fn stem(word: &str) -> String {
    const ENDS: [&str; 10] = [
        "ions", "ings", "ing", "ence", "ion", "ies", "ed", "es", "s", "e",
    ];
    if word.contains(|c: char| c.is_ascii_digit()) {
        return word.into();
    }
    let mut word = word.to_string();
    for (british, american) in [
        ("ise", "ize"),
        ("ised", "ized"),
        ("ises", "izes"),
        ("ising", "izing"),
        ("isation", "ization"),
    ] {
        if word.len() > 5 && word.ends_with(british) {
            let kept = word.len() - british.len();
            word.replace_range(kept.., american);
        }
    }
    let bare = ENDS.iter().find_map(|end| word.strip_suffix(end));
    let mut bare: String = bare.filter(|bare| bare.len() > 2).unwrap_or(&word).into();
    let last = bare.chars().next_back();
    if bare.len() > 3 && last.is_some_and(|c| bare.ends_with(&format!("{c}{c}"))) {
        bare.pop();
    }
    bare
}
