"""Renders conversations with the official chat templates of models, for tests/chat_golden.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install transformers jinja2 trl
    pip download --no-deps --no-binary :all: llama-cpp-python    # its vendor/llama.cpp/models/templates
    /tmp/oracle/bin/python tests/oracle/chat_oracle.py LLAMA_CPP_TEMPLATES tests/fixtures/chat

The official templates stand in TRL's package and in llama.cpp's sources; none of them is stored here, only what
transformers makes of them. `builtin.json` belongs to the templates in assets/templates. With a third argument, a folder,
everything is also rendered with every template that is found, for the ignored test over foreign templates:

    … chat_oracle.py LLAMA_CPP_TEMPLATES tests/fixtures/chat /tmp/foreign
    LLMTUI_FOREIGN_TEMPLATES=/tmp/foreign cargo test --test chat_golden -- --ignored
"""

import datetime
import json
import sys
from pathlib import Path

import trl
from transformers.utils import chat_template_utils

TRL = Path(trl.__file__).parent / "chat_templates"

# Templates that ask for today's date are told this day.
DAY = datetime.datetime(2024, 7, 26)


class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DAY


chat_template_utils.datetime = Then

# The format's own definition (openai-python's chatml.md) as the transformers documentation writes it down.
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a \"place\" <now> & later – in °C",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Zürich", "東京"]}, "days": {"type": "integer", "default": 1.5}},
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time", "description": "The time", "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, identifier):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, identifier):
    return {"role": "tool", "content": text, "tool_call_id": identifier, "name": "get_weather"}


CASES = {
    "one_turn": dict(messages=[user("Hello, world")]),
    "asked": dict(messages=[user("Hello, world")], add_generation_prompt=True),
    "two_turns": dict(messages=[user("1+1?"), assistant("2")]),
    "spaces": dict(messages=[user("  Hi \n"), assistant("\n Hello!  "), user("\tBye "), assistant(" Ciao\n\n")]),
    "system": dict(messages=[system(" Be brief. "), user("Who?"), assistant("Me."), user("Why?")], add_generation_prompt=True),
    "unicode": dict(messages=[user("naïve 東京 😀 \u2028 <|im_end|> {{ x }} {% y %}"), assistant("“ja” 👩‍👩‍👧")]),
    "empty": dict(messages=[user(""), assistant("")]),
    "tools_offered": dict(messages=[user("Weather?")], tools=[WEATHER, CLOCK], add_generation_prompt=True),
    "tools_and_system": dict(messages=[system("S"), user("Weather?"), assistant("Where?"), user("Bern")], tools=[WEATHER]),
    "tool_called": dict(
        messages=[
            user("Weather in Zürich?"),
            assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2}, "abcdefghi")]),
            tool("{\"celsius\": 21.5}", "abcdefghi"),
            assistant("21.5 °C."),
        ],
        tools=[WEATHER],
    ),
    "tools_called": dict(
        messages=[
            user("Both?"),
            assistant("Looking.", tool_calls=[call("get_weather", {"city": "東京"}, "abcdefghi"), call("get_time", {}, "123456789")]),
            tool("rain", "abcdefghi"),
            tool("noon", "123456789"),
            assistant("Rain at noon."),
            user("Thanks"),
        ],
        tools=[WEATHER, CLOCK],
        add_generation_prompt=True,
    ),
    "two_users": dict(messages=[user("a"), user("b")]),
    "late_system": dict(messages=[user("a"), system("b"), user("c")]),
    "thinking": dict(messages=[user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"), assistant("<think>\nso\n</think>\n\nd")]),
    "reasoning": dict(messages=[user("a"), assistant("b", reasoning_content="because")]),
}


def render(template, case, tokens):
    arguments = dict(case)
    messages = arguments.pop("messages")
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[messages], chat_template=template, documents=None, tools=arguments.get("tools"),
            add_generation_prompt=arguments.get("add_generation_prompt", False), **tokens,
        )
        return {"text": rendered[0]}
    except Exception as error:  # noqa: BLE001: whatever refuses the conversation, ours must refuse it too
        return {"error": f"{type(error).__name__}: {error}"}


def rows(template, tokens):
    return [dict(case=name, **case, **render(template, case, tokens)) for name, case in CASES.items()]


def main(llama_cpp, out, foreign=None):
    llama_cpp, out = Path(llama_cpp), Path(out)
    llama = dict(bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
    gemma = dict(bos_token="<bos>", eos_token="<eos>")
    builtin = {
        "chatml": (CHATML, dict(eos_token="<|im_end|>")),
        "llama3": ((TRL / "llama3.jinja").read_text(), llama),
        "qwen": ((TRL / "qwen2_5.jinja").read_text(), dict(eos_token="<|im_end|>")),
        "qwen3": ((TRL / "qwen3.jinja").read_text(), dict(eos_token="<|im_end|>")),
        "mistral": ((llama_cpp / "mistralai-Mistral-Nemo-Instruct-2407.jinja").read_text(), dict(bos_token="<s>", eos_token="</s>")),
        "gemma": ((TRL / "gemma.jinja").read_text(), gemma),
        "gemma3": ((TRL / "gemma3.jinja").read_text(), gemma),
        "phi3": ((TRL / "phi3.jinja").read_text(), dict(eos_token="<|endoftext|>")),
    }
    out.mkdir(parents=True, exist_ok=True)
    golden = {name: rows(*entry) for name, entry in builtin.items()}
    (out / "builtin.json").write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n")
    if foreign is None:
        return
    foreign = Path(foreign)
    foreign.mkdir(parents=True, exist_ok=True)
    tokens = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    for path in sorted([*TRL.glob("*.jinja"), *llama_cpp.glob("*.jinja")]):
        template = path.read_text()
        entry = dict(template=template, variables=tokens, rows=rows(template, tokens))
        (foreign / f"{path.parent.name}-{path.stem}.json").write_text(json.dumps(entry, ensure_ascii=False))


main(*sys.argv[1:])
