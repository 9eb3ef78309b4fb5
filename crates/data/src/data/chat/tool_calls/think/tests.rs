//! Answers as models of each kind write them, in any pieces.

use super::super::*;
use proptest::prelude::*;

/// The parts of an answer that arrives in pieces of so many characters.
fn read_in(word: &str, size: usize, answer: &str) -> (String, String, Vec<String>) {
    let tools = Tools::of_names(&["add"]);
    let mut reader = AnswerReader::new(Format::named(word).unwrap(), tools);
    let chars: Vec<char> = answer.chars().collect();
    let pieces = chars.chunks(size).map(|piece| piece.iter().collect());
    let mut parts: Vec<Part> = pieces
        .flat_map(|piece: String| reader.push(&piece))
        .collect();
    parts.extend(reader.finish());
    let read: ReadAnswer = parts.into_iter().collect();
    let calls = read.calls.iter();
    let calls = calls.map(|call| format!("{} {}", call.name, call.arguments));
    (read.thought, read.text, calls.collect())
}

/// Thought and text, the same however they are cut.
fn read(word: &str, answer: &str) -> (String, String, Vec<String>) {
    let whole = read_in(word, usize::MAX, answer);
    for size in [1, 2, 3, 7] {
        assert_eq!(read_in(word, size, answer), whole, "{size}: {answer}");
    }
    whole
}

fn check(word: &str, answer: &str, thought: &str, text: &str) {
    let expected = (thought.into(), text.into(), Vec::new());
    assert_eq!(read(word, answer), expected, "{word}: {answer}");
}

#[test]
fn a_thought_stands_before_the_answer() {
    // Qwen 3, SmolLM 3, and GLM 4.5, which begins with a line's end.
    check(
        "think",
        "<think>\nHm.\n\nSo.\n</think>\n\n4.\n",
        "Hm.\n\nSo.",
        "4.\n",
    );
    check("think", "\n<think>Hm</think>4", "Hm", "4");
    check("think", "<think>\n\n</think>\n\n4", "", "4");
    check("think", "4 < 5", "", "4 < 5");
    check("think", " <thin>4", "", " <thin>4");
    // DeepSeek-R1, Qwen 3.5: the prompt has begun the thought, and some models begin it again.
    check("thinking", "Hm. 3 < 4\n</think>\n\n4", "Hm. 3 < 4", "4");
    check("thinking", "<think>\nHm</think>4", "Hm", "4");
    check("thinking", "</think>\n\n4", "", "4");
    // Only what stands first is a thought.
    check("think", "4 <think>a</think> b", "", "4 <think>a</think> b");
    check(
        "think",
        "<think>a</think>b</think> <think>c",
        "a",
        "b</think> <think>c",
    );
    check(
        "think",
        "<think>a </thin> <think> b</think>c",
        "a </thin> <think> b",
        "c",
    );
}

#[test]
fn a_limit_leaves_a_thought_without_an_answer() {
    check("think", "<think>\nHm, so", "Hm, so", "");
    check("thinking", "Hm, so \n", "Hm, so \n", "");
    check("think", "<think>\n", "", "");
    check("think", "<think>a</think>\n\n", "a", "");
    check("think", "<think>a</thi", "a</thi", "");
    check("think", "<thi", "", "<thi");
    check("think", "", "", "");
}

#[test]
fn calls_stand_behind_the_thought() {
    let call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let add = vec![String::from("add {\"a\":1}")];
    for (word, begun) in [("think+hermes", "<think>\n"), ("thinking+hermes", "")] {
        let answer = format!("{begun}Not {call} yet.\n</think>\n\nI add.\n{call}");
        let thought = format!("Not {call} yet.");
        let expected = (thought, "I add.".into(), add.clone());
        assert_eq!(read(word, &answer), expected);
    }
    let xml =
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
    let (thought, text, calls) = read("thinking+qwen_xml", &format!("Hm.\n</think>\n\n{xml}"));
    assert_eq!(
        (thought.as_str(), text.as_str(), calls.len()),
        ("Hm.", "", 1)
    );
    // A bare call is one where nothing stands before it but a thought.
    let bare = "<think>Hm.</think>{\"name\": \"add\", \"parameters\": {\"a\": 1}}";
    assert_eq!(read("think+llama3", bare).2, add);
    // Without tools nothing is a call.
    let format = Format::named("thinking+hermes").unwrap();
    let mut reader = AnswerReader::behind("", format, None);
    let mut parts = reader.push(&format!("Hm.</think>{call}"));
    parts.extend(reader.finish());
    let read: ReadAnswer = parts.into_iter().collect();
    assert_eq!((read.thought.as_str(), read.text.as_str()), ("Hm.", call));
}

fn word(format: Option<&Format>) -> Option<&str> {
    format.map(|format| format.word)
}

#[test]
fn the_prompt_says_where_the_answer_begins() {
    let of = |prompt: &str, begun: &str| {
        let format = Format::named("think+hermes").unwrap();
        word(format.behind(prompt, begun))
    };
    let (before, within, none) = (
        Some("think+hermes"),
        Some("thinking+hermes"),
        Some("hermes"),
    );
    assert_eq!(of("<|im_start|>assistant\n", ""), before);
    assert_eq!(of("<|im_start|>assistant\n<think>\n", ""), within);
    assert_eq!(
        of("<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
        none
    );
    // DeepSeek V3.1 and GLM 4.7 write the end alone.
    assert_eq!(of("<｜Assistant｜></think>", ""), none);
    // What a person says of marks opens none.
    assert_eq!(
        of(
            "<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n",
            ""
        ),
        before
    );
    assert_eq!(of("assistant\n", "<think>\nHm"), within);
    assert_eq!(of("assistant\n", "<think>\nHm</think>It"), none);
    assert_eq!(of("assistant\n", "It is"), none);
    assert_eq!(of("assistant\n<think>\n", "Hm"), within);
    assert_eq!(of("assistant\n<think>\n", "Hm</think>"), none);
    assert_eq!(
        word(Format::named("thinking").unwrap().behind("</think>\n", "")),
        None
    );
    assert_eq!(
        word(Format::named("harmony").unwrap().behind("<think>", "")),
        Some("harmony")
    );
}

#[test]
fn a_turn_that_goes_on_has_its_thought_as_the_model_wrote_it() {
    let begun = |text: &str, thought: Option<&str>, prompt: &str| {
        Format::named("think").unwrap().begun(text, thought, prompt)
    };
    let open = "assistant\n<think>\n";
    assert_eq!(
        begun("It", Some("Hm."), "assistant\n"),
        "<think>\nHm.\n</think>\n\nIt"
    );
    assert_eq!(begun("It", Some("Hm."), open), "Hm.\n</think>\n\nIt");
    assert_eq!(begun("", Some("Hm"), "assistant\n"), "<think>\nHm");
    assert_eq!(begun("", Some("Hm"), open), "Hm");
    assert_eq!(begun("It", Some(""), open), "\n</think>\n\nIt");
    assert_eq!(begun("", Some(""), open), "");
    // As a chat pane sends on what a limit cut.
    assert_eq!(begun("Hm", None, open), "Hm");
    assert_eq!(begun("<think>Hm", Some("x"), "assistant\n"), "<think>Hm");
    assert_eq!(
        begun("It", Some("Hm."), "assistant\n<think>\n\n</think>\n\n"),
        "It"
    );
}

#[test]
fn the_template_or_the_vocabulary_says_that_a_model_thinks() {
    const TOKENIZER: &str = include_str!("../../../../../../../tests/fixtures/chat/tokenizer.json");
    let tokenizer = |json: &str| Tokenizer::from_json(json).unwrap();
    let of = |template: &Template, tokenizer: &Tokenizer| word(Format::of(template, tokenizer));
    let (plain, qwen3) = (
        Template::builtin("chatml").unwrap(),
        Template::builtin("qwen3").unwrap(),
    );
    assert_eq!(of(&qwen3, &tokenizer(TOKENIZER)), Some("think+hermes"));
    let r1 = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}";
    let r1 = Template::from_jinja("t", r1).unwrap();
    assert!(of(&r1, &tokenizer(TOKENIZER)).unwrap().starts_with("think"));
    let without = of(&plain, &tokenizer(TOKENIZER));
    assert!(
        !without.unwrap_or_default().starts_with("think"),
        "{without:?}"
    );
    let marked = TOKENIZER.replace("<|start_header_id|>", "<think>");
    let marked = marked.replace("<|end_header_id|>", "</think>");
    assert!(
        of(&plain, &tokenizer(&marked))
            .unwrap()
            .starts_with("think")
    );
}

/// What is sent back is what templates write: thoughts of the turns behind the last question in Qwen 3's.
#[test]
fn qwen_3_reads_its_thoughts_back() {
    let template = Template::builtin("qwen3").unwrap();
    let format = Format::named("think+hermes").unwrap();
    let tools = Tools::of_names(&["add"]);
    let written = "<think>\nI add.\n</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let read = read_all(format, &tools, written);
    let mut turn = crate::data::Message::new("assistant", read.text.as_str());
    turn.extra = read.fields();
    let user = crate::data::Message::new("user", "?");
    let result = crate::data::Message::new("tool", "3");
    let turns = [user.clone(), turn, result, user];
    let text = |turns| {
        template
            .render(turns, None, GenerationPrompt::With)
            .unwrap()
    };
    assert!(text(&turns[..3]).contains(written), "{}", text(&turns[..3]));
    assert!(!text(&turns).contains("I add."), "{}", text(&turns));
    let off = template.clone().with_variable("enable_thinking", false);
    let text = off.render(&turns, None, GenerationPrompt::With).unwrap();
    assert_eq!(word(format.behind(&text, "")), Some("hermes"));
}

proptest! {
    #[test]
    fn any_text_is_read_alike_in_any_pieces(
        at in 0..ALL_WORDS.len(),
        size in 1usize..5,
        answer in r#"(<think>|</think>|<|/|think|>| |\n|a|ä|<tool_call>|\{|\}|"|"name": "add"){0,20}"#,
    ) {
        let word = ALL_WORDS[at];
        prop_assert_eq!(read_in(word, size, &answer), read_in(word, usize::MAX, &answer));
    }
}

const ALL_WORDS: [&str; 4] = ["think", "thinking", "think+hermes", "thinking+llama3"];
