//! The question in a prompt rendered by a chat template. Prompts of one template begin alike, so the first lines do not
//! identify the question.

/// Names of roles as templates write them, below or after a marker.
const ROLES: &[&str] = &[
    "system",
    "user",
    "human",
    "assistant",
    "model",
    "gpt",
    "bot",
];
/// Maximum bytes of a marker: longer ones are text in angle brackets.
const MARK: usize = 40;

/// The user's last turn, without the template's markers; `None` if the prompt has no turns.
pub fn question(prompt: &str) -> Option<String> {
    let mut turns: Vec<(&str, String)> = Vec::new();
    let mut rest = prompt;
    let mut was_mark = false;
    while !rest.is_empty() {
        if let Some(length) = mark(rest) {
            // Some markers are roles themselves.
            let role = match &rest[..length] {
                "[INST]" => Some(&"user"),
                "[/INST]" => Some(&"assistant"),
                mark => {
                    let name = mark.trim_matches(['<', '|', '>']);
                    ROLES.iter().find(|role| **role == name)
                }
            };
            turns.extend(role.map(|role| (*role, String::new())));
            (rest, was_mark) = (&rest[length..], true);
            continue;
        }
        let end = (1..=rest.len())
            .find(|at| rest.is_char_boundary(*at) && mark(&rest[*at..]).is_some())
            .unwrap_or(rest.len());
        let (text, after) = rest.split_at(end);
        let (first, below) = text.split_once('\n').unwrap_or((text, ""));
        match ROLES.iter().find(|role| was_mark && **role == first.trim()) {
            Some(role) => turns.push((role, below.trim().into())),
            None if text.trim().is_empty() => {}
            None => {
                if let Some((_, said)) = turns.last_mut() {
                    if !said.is_empty() {
                        said.push('\n');
                    }
                    said.push_str(text.trim());
                }
            }
        }
        (rest, was_mark) = (after, false);
    }
    let asked = turns
        .into_iter()
        .rev()
        .find(|(role, said)| matches!(*role, "user" | "human") && !said.is_empty());
    asked.map(|(_, said)| said)
}

/// Length in bytes of a template's marker at the start of a text: `<|im_end|>`, `<start_of_turn>`, `[INST]`.
fn mark(text: &str) -> Option<usize> {
    for inst in ["[INST]", "[/INST]"] {
        if text.starts_with(inst) {
            return Some(inst.len());
        }
    }
    let inner = text.strip_prefix('<')?;
    let end = inner.bytes().take(MARK).position(|b| b == b'>')?;
    let name = &inner.as_bytes()[..end];
    let is_mark = match name {
        [b'|', .., b'|'] => true,
        _ => name.ends_with(b"_of_turn") || matches!(name, b"s" | b"/s" | b"bos" | b"eos"),
    };
    (is_mark && !name.contains(&b' ')).then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_question_is_found_in_common_templates() {
        for (prompt, asked) in [
            (
                "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nWhy is it dark?<|im_end|>\n<|im_start|>assistant\n",
                "Why is it dark?",
            ),
            (
                "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nTwo\nlines<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                "Two\nlines",
            ),
            (
                "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHo<end_of_turn>\n<start_of_turn>user\nAnd now?<end_of_turn>\n<start_of_turn>model\n",
                "And now?",
            ),
            (
                "<s>[INST] 2 < 3 <b>or</b> not? [/INST]",
                "2 < 3 <b>or</b> not?",
            ),
            ("<|user|>\nWhat?<|end|>\n<|assistant|>\n", "What?"),
            ("<s>[INST] One? [/INST] Yes.</s>[INST] Two? [/INST]", "Two?"),
        ] {
            assert_eq!(question(prompt).as_deref(), Some(asked), "{prompt}");
        }
    }

    #[test]
    fn plain_text_has_no_question() {
        for prompt in [
            "",
            "\n",
            "ROMEO:",
            "user\nhello",
            "a <b> c",
            "π < 4 | > |",
            "<|unclosed",
        ] {
            assert_eq!(question(prompt), None, "{prompt}");
        }
    }
}
