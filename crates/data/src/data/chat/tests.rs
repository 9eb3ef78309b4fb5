//! Templates on conversations.

use super::*;
use serde_json::json;

fn turns() -> Vec<Message> {
    vec![
        Message::new("user", " Hi "),
        Message::new("assistant", "Hello."),
    ]
}

fn render(source: &str) -> Result<String, DataError> {
    Template::from_jinja("t.jinja", source)?.render(&turns(), None, GenerationPrompt::With)
}

#[test]
fn every_built_in_template_is_listed_and_marks_what_the_assistant_says() {
    for builtin in BUILTIN {
        let template = Template::builtin(builtin.name).unwrap();
        let rendered = template
            .render_marked(&turns(), None, GenerationPrompt::Without)
            .unwrap();
        assert_eq!(rendered.generated.len(), 1, "{}", builtin.name);
        let said = &rendered.text[rendered.generated[0].clone()];
        let end = format!("Hello.{}", builtin.turn_end);
        assert!(said.ends_with(&end), "{}: {said}", builtin.name);
        let prompt = template
            .render(&turns()[..1], None, GenerationPrompt::With)
            .unwrap();
        assert_eq!(
            prompt,
            rendered.text[..rendered.generated[0].start],
            "{}",
            builtin.name
        );
    }
    let files = crate::embed::list("assets/templates").count();
    assert_eq!(files, BUILTIN.len() + [PLAIN].len());
}

#[test]
fn a_templates_own_words_become_the_error() {
    let error = render("{{ raise_exception('no \u{1b}[2J system') }}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the template t.jinja: it rejects this conversation: no ·[2J system"
    );
    assert!(error.hint().contains("as the template requires"));
}

#[test]
fn what_breaks_in_a_template_is_placed() {
    let error = render("a\n{{ messages[0].nothing.at_all }}").unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    let error = Template::from_jinja("t", "{% if %}").unwrap_err();
    assert!(error.to_string().starts_with("t: line 1"), "{error}");
    let unknown = Template::builtin("nope").unwrap_err();
    assert!(unknown.to_string().contains("chatml, llama3"), "{unknown}");
}

#[test]
fn output_and_work_are_bounded() {
    let long = "{% for i in range(9000) %}{% for j in range(90) %}{{ messages[0].content }}{% endfor %}{% endfor %}";
    let template = Template::from_jinja("t", long).unwrap();
    let wide = vec![Message::new("user", "x".repeat(1 << 20))];
    let error = template
        .render(&wide, None, GenerationPrompt::Without)
        .unwrap_err();
    assert!(error.to_string().contains("printed more than"), "{error}");
    let error =
        render("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}")
            .unwrap_err();
    assert!(error.hint().contains("does not terminate"), "{error}");
}

/// gpt-oss's template looks through all later turns behind each call.
#[test]
fn a_long_conversation_fits_a_template_that_looks_ahead_in_each_turn() {
    let source = "{% for m in messages %}{% for later in messages[loop.index:] %}{% if later.role == 'none' %}x{% endif %}{% endfor %}{{ m.role[0] }}{% endfor %}";
    let template = Template::from_jinja("t", source).unwrap();
    let many = vec![Message::new("user", "hi"); 1500];
    let text = template.render(&many, None, GenerationPrompt::Without);
    assert_eq!(text.unwrap().len(), many.len());
}

/// The deepest template that the scan lets pass fits the stack of a thread, in a debug build too.
#[test]
fn nothing_that_passes_the_scan_overflows_a_threads_stack() {
    let shapes = [
        |n: usize| format!("{{{{ {}1 }}}}", "-".repeat(n)),
        |n: usize| format!("{{{{ {}1{} }}}}", "(".repeat(n), ")".repeat(n)),
        |n: usize| format!("{{{{ 1{} }}}}", "+1".repeat(n)),
        |n: usize| format!("{{{{ 1{} }}}}", "|string".repeat(n)),
        |n: usize| format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(n)),
        |n: usize| format!("{}{}", "{% if 1 %}".repeat(n), "{% endif %}".repeat(n)),
        |n: usize| format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(n)),
        |n: usize| format!("{{{{ {}1{} }}}}", "[".repeat(n), "]".repeat(n)),
    ];
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            let mut passed = 0;
            for shape in shapes {
                for n in [10, 30, 60, 90, 98, 99, 130, 190, 198, 5000] {
                    passed += usize::from(render(&shape(n)).is_ok());
                }
            }
            passed
        });
    assert!(thread.unwrap().join().unwrap() >= 24);
}

#[test]
fn the_fingerprint_follows_text_and_variables() {
    let one = Template::from_jinja("a", "{{ bos_token }}x").unwrap();
    let same = Template::from_jinja("b", "{{ bos_token }}x").unwrap();
    assert_eq!(one.fingerprint(), same.fingerprint());
    assert_ne!(
        one.fingerprint(),
        same.clone().with_variable("bos_token", "<s>").fingerprint()
    );
    assert_ne!(
        one.fingerprint(),
        Template::from_jinja("a", "{{ bos_token }}y")
            .unwrap()
            .fingerprint()
    );
}

#[test]
fn generation_blocks_are_placed_and_leave_no_trace() {
    let source = "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}é{% endgeneration %};{% endfor %}";
    let template = Template::from_jinja("t", source).unwrap();
    let rendered = template
        .render_marked(&turns(), None, GenerationPrompt::Without)
        .unwrap();
    assert_eq!(rendered.text, "user: Hi é;assistant:Hello.é;");
    let texts: Vec<&str> = rendered
        .generated
        .iter()
        .map(|r| &rendered.text[r.clone()])
        .collect();
    assert_eq!(texts, [" Hi é", "Hello.é"]);
    let forged = vec![Message::new("user", "a\u{fdd1}b")];
    let error = template
        .render_marked(&forged, None, GenerationPrompt::Without)
        .unwrap_err();
    assert!(error.to_string().contains("U+FDD0"), "{error}");
}

#[test]
fn turns_reach_a_template_as_transformers_hands_them_over() {
    let mut message = Message::new("assistant", "4");
    message.extra = json!({"name": null, "thinking": "2+2"})
        .as_object()
        .unwrap()
        .clone();
    let source = "{{ 'name' in messages[0] }} {{ messages[0].reasoning_content }} {{ tools is none }} {{ documents }}";
    let template = Template::from_jinja("t", source).unwrap();
    let text = template
        .render(&[message], None, GenerationPrompt::Without)
        .unwrap();
    assert_eq!(text, "False 2+2 True None");
}

/// What SmolLM3's template uses: variables that nobody sets, Python's methods and slices, today's date, marked answers.
#[test]
fn a_template_with_thinking_modes_and_two_kinds_of_tools_renders() {
    let source = "\
{%- if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif -%}
{%- set mode = '/think' if enable_thinking else '/no_think' -%}
{%- if messages[0].role == 'system' -%}
  {%- set system = messages[0].content -%}
  {%- if '/no_think' in system %}{% set mode = '/no_think' %}{% endif -%}
  {%- set own = system.replace('/no_think', '').replace('/think', '').rstrip() -%}
{%- endif -%}
{{- '' if '/system_override' in system else 'mode ' + mode + ' on ' ~ strftime_now('%d %B %Y') -}}
{{- '; ' + own if own -}}
{%- if xml_tools or python_tools or tools -%}
  {%- set ns = namespace(text='') -%}
  {%- for tool in xml_tools[:] %}{% set ns.text = ns.text ~ (tool | string) %}{% endfor -%}
  {{- ns.text -}}
{%- endif -%}
{%- for message in messages if message.role != 'system' -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'assistant' -%}
    {%- generation %}{{- '|a:' + content.lstrip('\n') -}}{% endgeneration -%}
  {%- else %}{{- '|u:' + content -}}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{- '|a:' + ('<think></think>' if mode == '/no_think' else '') -}}{% endif -%}";
    let template = Template::from_jinja("t", source).unwrap();
    let text = |template: &Template, turns: &[Message]| {
        let rendered = template.render(turns, None, GenerationPrompt::With);
        rendered.unwrap_or_else(|e| panic!("{e}"))
    };
    let day = "26 July 2024";
    assert_eq!(
        text(&template, &turns()),
        format!("mode /think on {day}|u: Hi |a:Hello.|a:")
    );
    let system = Message::new("system", "Be brief. /no_think");
    let with_system: Vec<Message> = std::iter::once(system).chain(turns()).collect();
    assert_eq!(
        text(&template, &with_system),
        format!("mode /no_think on {day}; Be brief.|u: Hi |a:Hello.|a:<think></think>")
    );
    let off = template.with_variable("enable_thinking", false);
    assert!(text(&off, &turns()).starts_with("mode /no_think"));
    let tools = off.with_variable("xml_tools", json!(["x", "y"]));
    assert!(text(&tools, &turns()).contains("2024xy|u"));
}
