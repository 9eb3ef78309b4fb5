//! Questions that a verb answers, not a page.

/// Words of a question, and the verb with what it does.
const VERBS: [(&[&str], &str); 10] = [
    (
        &["export", "gguf", "ollama", "safetensors", "convert"],
        "llmtui export writes a checkpoint as GGUF or safetensors for other programs",
    ),
    (
        &["repeat", "repeats", "repeating", "repetition", "loops"],
        "a repetition penalty or a higher temperature helps: llmtui chat --repetition-penalty 1.1 --temperature 0.8",
    ),
    (
        &["chat", "talk", "ask", "prompt", "generate", "inference"],
        "llmtui chat RUN talks with a checkpoint",
    ),
    (
        &["json", "schema", "structured", "grammar", "tool", "tools"],
        "llmtui serve answers in a JSON schema (response_format) and calls tools",
    ),
    (
        &["merge", "merging", "slerp", "ties", "dare", "combine"],
        "llmtui merge adds adapters to their base, or makes one model of several",
    ),
    (
        &["evaluate", "eval", "benchmark", "benchmarks", "tasks"],
        "llmtui eval measures models on tasks",
    ),
    (
        &["compare", "runs", "list"],
        "llmtui runs lists runs, with --compare beside each other",
    ),
    (
        &["publish", "upload", "share", "release", "hub"],
        "llmtui release checks a model folder and uploads it",
    ),
    (
        &["quantize", "quantise", "quantization", "int8", "q4"],
        "llmtui quantize writes weights in fewer bits",
    ),
    (
        &["tune", "sweep", "hyperparameters"],
        "llmtui sweep tries several values of settings",
    ),
];

/// The verb that most words of a question lead to, with how many they are; of equal ones the first.
pub(super) fn wanted(question: &str) -> Option<(usize, &'static str)> {
    let asked: Vec<String> = super::words(question).collect();
    let known = |word: &&&str| asked.iter().any(|asked| asked == *word);
    let counted = VERBS
        .iter()
        .map(|(words, says)| (words.iter().filter(known).count(), *says));
    let found = counted.filter(|(hits, _)| *hits > 0);
    found.rev().max_by_key(|(hits, _)| *hits)
}

/// What answers a question that no page does.
pub fn verb(question: &str) -> Option<&'static str> {
    wanted(question).map(|(_, says)| says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_about_verbs_name_them() {
        let named = |question: &str| verb(question).unwrap_or_default();
        assert!(named("how do I export to gguf").starts_with("llmtui export"));
        assert!(named("how do I chat").starts_with("llmtui chat"));
        assert!(named("my model repeats itself").contains("repetition penalty"));
        assert_eq!(verb("xyzzy"), None);
    }
}
