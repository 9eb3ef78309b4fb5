//! Answers with calls, as models of each format write them.

use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Text and calls of an answer that arrives in pieces of `size` characters.
fn read_in(word: &str, size: usize, answer: &str) -> (String, Vec<Call>) {
    let tools = Tools::new(vec![
        json!({"type": "function", "function": {"name": "add", "parameters": {"properties": {
            "a": {"type": "integer"}, "b": {"type": ["number", "null"]}, "exact": {"type": "boolean"},
            "note": {"type": "string"}, "list": {"type": "array"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "digit": {"enum": ["1", "2"]},
            "level": {"oneOf": [{"const": 3}, {"allOf": [{"type": "boolean"}]}]}}}}}),
        json!({"name": "now"}),
    ]);
    let mut reader = AnswerReader::new(Format::named(word).unwrap(), tools);
    let chars: Vec<char> = answer.chars().collect();
    let pieces = chars
        .chunks(size)
        .map(|piece| piece.iter().collect::<String>());
    let mut parts: Vec<Part> = pieces.flat_map(|piece| reader.push(&piece)).collect();
    parts.extend(reader.finish());
    let answer: ReadAnswer = parts.into_iter().collect();
    (answer.text, answer.calls)
}

/// The same however the answer is cut: `name arguments` of each call.
fn read(word: &str, answer: &str) -> (String, Vec<String>) {
    let whole = read_in(word, usize::MAX, answer);
    for size in [1, 2, 7] {
        assert_eq!(
            read_in(word, size, answer),
            whole,
            "{word}, in pieces of {size}"
        );
    }
    let calls = whole
        .1
        .iter()
        .map(|call| format!("{} {}", call.name, call.arguments));
    (whole.0, calls.collect())
}

fn expect(word: &str, answer: &str, text: &str, calls: &[&str]) {
    let (found, of) = read(word, answer);
    assert_eq!(
        (found.as_str(), of.as_slice()),
        (
            text,
            calls
                .iter()
                .map(|c| c.to_string())
                .collect::<Vec<_>>()
                .as_slice()
        ),
        "{answer}"
    );
}

const SUM: &str = r#"add {"a":1,"b":2.5}"#;

#[test]
fn hermes() {
    let call = r#"<tool_call>
{"name": "add", "arguments": {"a": 1, "b": 2.5}}
</tool_call>"#;
    expect("hermes", call, "", &[SUM]);
    expect(
        "hermes",
        &format!("I add.\n\n{call}\n{call}\n"),
        "I add.",
        &[SUM, SUM],
    );
    expect("hermes", &format!("{call}\nDone."), "\nDone.", &[SUM]);
    expect(
        "hermes",
        call.trim_end_matches("\n</tool_call>"),
        "",
        &[SUM],
    );
    // The mark of the end inside of a text ends nothing.
    let odd = r#"<tool_call>{"name": "say", "arguments": {"x": "</tool_call>"}}</tool_call>"#;
    expect("hermes", odd, "", &[r#"say {"x":"</tool_call>"}"#]);
    let texts = r#"<tool_call>{"name": "add", "arguments": "{\"a\": 1}"}</tool_call><tool_call>{"name": "now"}</tool_call>"#;
    expect("hermes", texts, "", &[r#"add {"a":1}"#, "now {}"]);
}

#[test]
fn what_is_no_call_stays_the_text_that_it_was() {
    for (word, text) in [
        ("hermes", "A <tool_call> is a mark. \n"),
        ("hermes", " <tool_call>{'name': 'add'}</tool_call>"),
        (
            "hermes",
            "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>",
        ),
        ("hermes", "<tool_call>{\"name\": \"add\", \"arg"),
        (
            "hermes",
            "<tool_call>{\"name\": \"add\"} and so on </tool_call>",
        ),
        ("hermes", "a <tool_c"),
        ("hermes", "{\"name\": \"add\", \"parameters\": {}}"),
        ("qwen_xml", "<function=add> <parameter=a>1</function>"),
        ("qwen_xml", "<tool_call>{\"name\": \"add\"}</tool_call>"),
        ("llama3", "{\"name\": \"Ada\", \"parameters\": {}}"),
        ("llama3", "Say {\"name\": \"add\", \"parameters\": {}}"),
        ("llama3", "<|python_tag|>print(1)"),
        ("llama3", "{\"name\": \"add\", \"param"),
        (
            "llama3",
            "{\"a\": 1}; {\"name\": \"add\", \"parameters\": {}}",
        ),
        ("mistral", "[TOOL_CALLS] none"),
        ("mistral", "[TOOL_CALLS][{\"name\": \"add\"}, 3]"),
        ("mistral", "[TOOL_CALLS][]"),
        ("lfm2", "<|tool_call_start|>[add(1)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[]<|tool_call_end|> a"),
    ] {
        expect(word, text, text, &[]);
    }
    // One that is wrong does not hide the next.
    let both = "<tool_call>{</tool_call> <tool_call>{\"name\": \"now\"}</tool_call>";
    expect("hermes", both, "<tool_call>{</tool_call>", &["now {}"]);
}

#[test]
fn xml_has_values_of_the_kinds_that_the_tool_takes() {
    let call = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=note>\n1\n  2\n</parameter>\n\
                <parameter=exact>\nTrue\n</parameter>\n<parameter=b>\nnull\n</parameter>\n<parameter=list>\n[1, \"x\"]\n</parameter>\n\
                <parameter=more>\n3\n</parameter>\n</function>\n</tool_call>";
    let said = r#"add {"a":1,"note":"1\n  2","exact":true,"b":null,"list":[1,"x"],"more":"3"}"#;
    expect("qwen_xml", &format!("So:\n{call}"), "So:", &[said]);
    let bare = "<function=add><parameter=a>many</parameter></function>";
    expect("qwen_xml", bare, "", &[r#"add {"a":"many"}"#]);
    let half = "Now:\n<function=now></function>\n</tool_call>\n<function=now></function> Done.";
    expect("qwen_xml", half, "Now: Done.", &["now {}", "now {}"]);
    let cut = "<function=now></function>\n</tool_c";
    expect("qwen_xml", cut, "", &["now {}"]);
    // A text may hold the marks: what follows tells which of them is the end.
    let marks = "<function=add><parameter=note>a </parameter> b</parameter><parameter=a>1</parameter></function>";
    expect(
        "qwen_xml",
        marks,
        "",
        &[r#"add {"note":"a </parameter> b","a":1}"#],
    );
    let open = "<tool_call><function=now></function>";
    expect("qwen_xml", open, "", &["now {}"]);
}

#[test]
fn xml_has_texts_where_a_part_of_the_schema_takes_them() {
    let call = |name: &str, value: &str| {
        format!("<function=add><parameter={name}>{value}</parameter></function>")
    };
    for (name, written, value) in [
        ("maybe", "12", r#""12""#),
        ("maybe", "true", r#""true""#),
        ("maybe", "null", "null"),
        ("digit", "1", r#""1""#),
        ("level", "3", "3"),
        ("level", "True", "true"),
    ] {
        let said = format!(r#"add {{"{name}":{value}}}"#);
        expect("qwen_xml", &call(name, written), "", &[&said]);
    }
}

#[test]
fn numbers_keep_all_their_digits() {
    let big = "123456789012345678901234";
    let json =
        format!(r#"{{"name": "add", "arguments": {{ "a" : {big}, "b": [1.50, "x \" y"] }}}}"#);
    let said = format!(r#"add {{"a":{big},"b":[1.50,"x \" y"]}}"#);
    expect(
        "hermes",
        &format!("<tool_call>{json}</tool_call>"),
        "",
        &[&said],
    );
    expect("llama3", &json, "", &[&said]);
    expect("mistral", &format!("[TOOL_CALLS][{json}]"), "", &[&said]);
    let named = format!("[TOOL_CALLS]add[ARGS]{{\"a\": {big}}}");
    let alone = format!(r#"add {{"a":{big}}}"#);
    expect("mistral", &named, "", &[&alone]);
    let xml = format!("<function=add><parameter=a>{big}</parameter></function>");
    expect("qwen_xml", &xml, "", &[&alone]);
}

#[test]
fn llama_writes_a_call_as_its_whole_answer() {
    let call = r#"{"name": "add", "parameters": {"a": 1, "b": 2.5}}"#;
    expect("llama3", call, "", &[SUM]);
    expect("llama3", &format!("<|python_tag|>{call}"), "", &[SUM]);
    expect("llama3", &format!("\n{call}; {call}\n"), "", &[SUM, SUM]);
    expect("llama3", &format!("{call} is a sum"), " is a sum", &[SUM]);
}

#[test]
fn mistral_writes_a_list_or_names() {
    let list = r#"[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1, "b": 2.5}, "id": "abcdefghi"}, {"name": "now", "arguments": {}}]"#;
    expect("mistral", list, "", &[SUM, "now {}"]);
    assert_eq!(
        read_in("mistral", 3, list).1[0].id.as_deref(),
        Some("abcdefghi")
    );
    let names =
        r#"Well.[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2.5}[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}"#;
    expect("mistral", names, "Well.", &[SUM, "now {}"]);
    assert_eq!(
        read_in("mistral", 3, names).1[1].id.as_deref(),
        Some("123456789")
    );
}

#[test]
fn lfm_writes_calls_of_python() {
    let calls = r#"<|tool_call_start|>[add(a=1, b=2.5), say(x='it\'s', y=[True, None, {"k": -1e3}]), now()]<|tool_call_end|>Wait."#;
    let say = r#"say {"x":"it's","y":[true,null,{"k":-1000.0}]}"#;
    expect("lfm2", calls, "Wait.", &[SUM, say, "now {}"]);
    let escapes = r#"<|tool_call_start|>[say(x="\u00e4\ud83d\ude00\x41\b\f\/ \ud83d \u12 \q")]<|tool_call_end|>"#;
    let said = r#"say {"x":"ä😀A\b\f/ \\ud83d \\u12 \\q"}"#;
    expect("lfm2", escapes, "", &[said]);
    let deep = format!(
        "<|tool_call_start|>[f(a={})]<|tool_call_end|>",
        "[".repeat(10_000)
    );
    expect("lfm2", &deep, &deep, &[]);
}

#[test]
fn the_format_is_that_of_the_template_or_of_the_vocabulary() {
    let word = |source: &str| {
        let template = Template::from_jinja("t", source).unwrap();
        Format::written_by(&template).map(|format| format.word)
    };
    let around = |call: &str| {
        format!(
            "{{% for m in messages %}}{{{{ m.role }}}}: {{{{ m.content }}}}{{% if m.tool_calls %}}{{% set f = m.tool_calls[0].function %}}{call}{{% endif %}}<end>{{% endfor %}}"
        )
    };
    let json = r#"{{ '{"name": "' + f.name + '", "KEY": ' }}{{ f.arguments | tojson }}{{ '}' }}"#;
    let of = |key: &str| json.replace("KEY", key);
    assert_eq!(
        word(&around(&format!(
            "<tool_call>\n{}\n</tool_call>",
            of("arguments")
        ))),
        Some("hermes")
    );
    assert_eq!(word(&around(&of("parameters"))), Some("llama3"));
    assert_eq!(
        word(&around(&format!("[TOOL_CALLS][{}]", of("arguments")))),
        Some("mistral")
    );
    let args = "{% for k, v in f.arguments.items() %}";
    let xml = format!(
        "<tool_call>\n<function={{{{ f.name }}}}>\n{args}<parameter={{{{ k }}}}>\n{{{{ v }}}}\n</parameter>\n{{% endfor %}}</function>\n</tool_call>"
    );
    assert_eq!(word(&around(&xml)), Some("qwen_xml"));
    let lfm = format!(
        "<|tool_call_start|>[{{{{ f.name }}}}({args}{{{{ k }}}}=\"{{{{ v }}}}\"{{% endfor %}})]<|tool_call_end|>"
    );
    assert_eq!(word(&around(&lfm)), Some("lfm2"));
    assert_eq!(word(&around("calls {{ f.name }}")), None);
    for (name, expected) in [
        ("qwen", "hermes"),
        ("qwen3", "hermes"),
        ("mistral", "mistral"),
    ] {
        let template = Template::builtin(name).unwrap();
        assert_eq!(
            Format::written_by(&template).map(|f| f.word),
            Some(expected),
            "{name}"
        );
    }
    const TOKENIZER: &str = include_str!("../../../../../../tests/fixtures/chat/tokenizer.json");
    let of_vocabulary = |token: &str| {
        let json = TOKENIZER.replace("<|im_start|>", token);
        let tokenizer = Tokenizer::from_json(&json).unwrap();
        let silent = Template::from_jinja("t", &around("")).unwrap();
        Format::of(&silent, &tokenizer).map(|format| format.word)
    };
    assert_eq!(of_vocabulary("<|tool_call_start|>"), Some("lfm2"));
    assert_eq!(of_vocabulary("<|python_tag|>"), Some("llama3"));
    assert_eq!(of_vocabulary("<|im_start|>"), None);
}

proptest! {
    /// Nothing breaks, and where there is no call the text stays, whatever a model writes.
    #[test]
    fn any_text_is_read(at in 0..FORMATS.len(), size in 1usize..5, answer in r#"(\[|\]|\{|\}|"|:|,|;| |\n|ä|a|=|<tool_call>|</tool_call>|<function=|</function>|<parameter=|>|\[TOOL_CALLS\]|\[ARGS\]|<\|tool_call_start\|>|<\|tool_call_end\|>|<\|python_tag\|>|"name": "add"){0,24}"#) {
        let word = FORMATS[at].word;
        let (text, calls) = read_in(word, size, &answer);
        if calls.is_empty() {
            prop_assert_eq!(&text, &answer);
        }
        prop_assert_eq!((text, calls), read_in(word, usize::MAX, &answer));
    }
}
