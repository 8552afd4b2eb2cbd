#!/usr/bin/env bash
# Build the wheel, install it with its core dependencies alone in an empty environment, and use it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/source"
cp -r "$root"/{pyproject.toml,README.md,LICENSE,src} "$work/source" # what a build leaves stays there
"${PYTHON:-python3}" -m venv "$work/venv"
pip() { "$work/venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
pip wheel --no-deps --wheel-dir "$work/dist" "$work/source"
pip install --constraint "$root/constraints.txt" "$work"/dist/*.whl
rm -rf "$work/source"

unset PYTHONPATH
cd "$work"
teq=venv/bin/toreqprop
"$teq" info
"$teq" info --json | grep -q 'missing: pip install toreqprop\[bench\]' # core only, or no proof
"$teq" train digits --epochs 2 --output run
"$teq" evaluate run digits
"$teq" predict run digits --output predictions.csv
"$teq" play --no-open --out play.html # the page and its networks are in the wheel
"$teq" play run --no-open --out run.html
echo "The wheel $(basename dist/*.whl) installs and trains."
