"""Which JSON values which schemas allow, by the library jsonschema, for crates/spec/src/rewards/schema.rs.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install jsonschema==4.26.0
    /tmp/oracle/bin/python tests/oracle/json_schema_oracle.py tests/oracle
"""

import json
import sys
from pathlib import Path

from jsonschema import Draft202012Validator

SCHEMAS = [
    {"type": "integer"}, {"type": "number"}, {"type": ["string", "null"]}, {"type": "boolean"},
    {"minimum": 2, "maximum": 3}, {"exclusiveMinimum": 2, "exclusiveMaximum": 3.5}, {"multipleOf": 3},
    {"minLength": 2, "maxLength": 3}, {"pattern": "^a+b"}, {"const": 1}, {"enum": [1, "ab", [1.0], None]},
    {"minItems": 1, "maxItems": 2, "uniqueItems": True}, {"items": {"type": "integer", "minimum": 0}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
    {"properties": {"a": True}, "additionalProperties": False}, {"additionalProperties": {"type": "string"}},
    {"minProperties": 1, "maxProperties": 1}, {"anyOf": [{"type": "string"}, {"minimum": 3}]},
    {"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, {"allOf": [{"minimum": 1}, {"maximum": 3}]},
    {"not": {"type": "integer"}}, {"type": "array", "items": {"type": "object", "required": ["a"]}},
]
TEXTS = [
    "1", "1.0", "2.5", "3", "6", "-3", '"ab"', '"aab"', '"äöü"', '"a"', "null", "true", "[]", "[1]", "[1, 1.0]", "[1, 2, 3]",
    '[{"a": 1}]', "[[1], [1.0]]", "{}", '{"a": 1}', '{"a": "x", "b": "y"}', '{"b": "y"}', '{"a": 1, "b": 2}', "1e2", "no json", '{"a": ',
]


def main(folder):
    cases = []
    for schema in SCHEMAS:
        Draft202012Validator.check_schema(schema)
        for text in TEXTS:
            try:
                allowed = Draft202012Validator(schema).is_valid(json.loads(text))
            except json.JSONDecodeError:
                allowed = False
            cases.append(dict(schema=schema, text=text, allowed=allowed))
    (Path(folder) / "json_schema.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
