#!/usr/bin/env bash
# llmtui beside PyTorch on the same training steps: a table of ratios. README.md says how; options go to compare.py.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"

# A virtual environment with torch: yours by PEERS_VENV, or one made for this and thrown away.
venv="${PEERS_VENV:-}"
if [ -z "$venv" ]; then
    venv="$(mktemp -d)/venv"
    trap 'rm -rf "$(dirname "$venv")"' EXIT
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet numpy torch \
        --index-url "${PEERS_INDEX:-https://download.pytorch.org/whl/cpu}" --extra-index-url https://pypi.org/simple
fi

# The program: yours by PEERS_PROGRAM, or this tree's.
program="${PEERS_PROGRAM:-}"
if [ -z "$program" ]; then
    cargo build --release --manifest-path "$root/Cargo.toml" --bin llmtui
    program="${CARGO_TARGET_DIR:-$root/target}/release/llmtui"
fi

"$venv/bin/python" "$here/compare.py" --program "$program" --python "$venv/bin/python" "$@"
