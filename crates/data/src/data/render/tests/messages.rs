//! Conversations in the harmony format of gpt-oss, compared with what transformers makes of its template
//! (`tests/oracle/harmony_oracle.py`).

use super::*;

const ORACLE: &str = include_str!("../../../../../../tests/fixtures/chat/harmony.json");
const TEMPLATE: &str = include_str!("../../../../../../tests/fixtures/chat/gpt_oss.jinja");

fn template() -> Template {
    let template = Template::from_jinja("gpt_oss", TEMPLATE).unwrap();
    template.with_variable("eos_token", "<|return|>")
}

/// The tokenizer of the tests with gpt-oss's marks.
fn with_marks() -> Arc<Tokenizer> {
    let marks = [
        ("<|im_start|>", "<|start|>"),
        ("<|im_end|>", "<|channel|>"),
        ("<|begin_of_text|>", "<|message|>"),
        ("<|start_header_id|>", "<|return|>"),
        ("<|end_header_id|>", "<|call|>"),
        ("<|eot_id|>", "<|constrain|>"),
    ];
    let json = marks
        .iter()
        .fold(TOKENIZER.to_string(), |json, (old, new)| {
            json.replace(old, new)
        });
    Arc::new(Tokenizer::from_json(&json).unwrap())
}

fn renderer(train_on: TrainOn) -> Renderer {
    Renderer::new(with_marks(), Some(template()), train_on)
}

fn rows() -> Vec<Value> {
    let oracle: Value = serde_json::from_str(ORACLE).unwrap();
    oracle["rendered"].as_array().unwrap().clone()
}

fn turns(row: &Value) -> Vec<Message> {
    serde_json::from_value(row["messages"].clone()).unwrap()
}

fn row(case: &str) -> Value {
    let found = rows().into_iter().find(|row| row["case"] == case);
    found.unwrap()
}

#[test]
fn conversations_are_rendered_as_the_published_template_does() {
    let rows = rows();
    assert_eq!(rows.len(), 33);
    for row in rows {
        let mut template = template();
        if let Some(effort) = row.get("reasoning_effort") {
            template = template.with_variable("reasoning_effort", effort.clone());
        }
        let prompt = match row["add_generation_prompt"] == true {
            true => GenerationPrompt::With,
            false => GenerationPrompt::Without,
        };
        let tools = row.get("tools").filter(|tools| !tools.is_null());
        let text = template.render(&turns(&row), tools, prompt);
        match (row["case"].as_str().unwrap(), row["text"].as_str()) {
            (_, Some(expected)) => assert_eq!(text.unwrap(), expected),
            // What the template refuses is given to it in a form that it takes.
            ("call_with_both", None) => {
                let thought = "<|channel|>analysis<|message|>Easy.\n\nI add.<|end|>";
                assert!(text.unwrap().contains(thought));
            }
            _ => assert!(text.is_err(), "{}", row["case"]),
        }
    }
}

/// The spans are those of TRL's training template, but for the header that the generation prompt has, and the `<|end|>` that
/// stands in place of `<|return|>` behind earlier answers.
#[test]
fn what_the_assistant_wrote_is_found_by_the_marks() {
    let mut compared = 0;
    for row in rows().iter().filter(|row| row["written"].is_array()) {
        let expected = row["written"].as_array().unwrap().iter().map(|span| {
            let span = span
                .as_str()
                .unwrap()
                .strip_prefix("<|start|>assistant")
                .unwrap();
            span.strip_suffix("<|end|>").unwrap_or(span).to_string()
        });
        let expected: Vec<String> = expected.collect();
        let mut example = Example::new(Content::Chat(turns(row)));
        example.tools = row.get("tools").filter(|tools| !tools.is_null()).cloned();
        let renderer = renderer(TrainOn::Auto);
        let document = renderer.document(&example, &place()).unwrap();
        let text = renderer.tokenizer().decode(&document.ids);
        assert_eq!(text, row["text"].as_str().unwrap());
        assert_eq!(
            supervised(&renderer, &document),
            expected.concat(),
            "{}",
            row["case"]
        );
        compared += 1;
    }
    assert_eq!(compared, 18);
}

#[test]
fn a_turn_that_calls_keeps_its_weight_and_its_thought() {
    let mut turns = turns(&row("two"));
    turns[2].extra.insert("weight".into(), json!(0));
    let renderer = renderer(TrainOn::Auto);
    let example = Example::new(Content::Chat(turns));
    let document = renderer.document(&example, &place()).unwrap();
    let last = "<|channel|>final<|message|>6.<|return|>";
    assert_eq!(supervised(&renderer, &document), last);
}

/// The thought before the call stands in the prompt alone: it is left out once the answer follows.
#[test]
fn a_completion_is_the_answer_alone_though_its_prompt_is_written_otherwise() {
    let mut turns = turns(&row("called"));
    let completion = Turns::Messages(turns.split_off(3));
    let prompt = Turns::Messages(turns);
    let renderer = renderer(TrainOn::Auto);
    let example = Example::new(Content::Completion { prompt, completion });
    let document = renderer.document(&example, &place()).unwrap();
    let answer = "<|channel|>analysis<|message|>Said so.<|end|><|start|>assistant<|channel|>final<|message|>3.<|return|>";
    assert_eq!(supervised(&renderer, &document), answer);
}

#[test]
fn the_end_of_a_message_does_not_end_a_turn() {
    let tokenizer = with_marks();
    let names = |ids: Vec<u32>| -> Vec<String> {
        ids.iter().map(|id| tokenizer.token(*id).unwrap()).collect()
    };
    assert_eq!(
        names(turn_ends(&template(), &tokenizer)),
        ["<|return|>", "<|call|>"]
    );
    assert_eq!(template().answer_suffix(), "<|return|>");
}
