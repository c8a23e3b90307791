#!/usr/bin/env bash
# Run tests on the newest PySpark of the supported range, in a separate environment.
set -euo pipefail
cd "$(dirname "$0")/.."

ENVIRONMENT=.cache/newest
RANGE=$(.venv/bin/python - <<'EOF'
import re, tomllib

with open("pyproject.toml", "rb") as file:
    extra = tomllib.load(file)["project"]["optional-dependencies"]["spark"]
print(next(re.sub(r"^pyspark", "pyspark[connect]", name) for name in extra if name.startswith("pyspark")))
EOF
)
uv=$(command -v uv || echo .cache/uv-venv/bin/uv)
unset VIRTUAL_ENV
UV_PROJECT_ENVIRONMENT=$ENVIRONMENT UV_PYTHON_DOWNLOADS=never "$uv" sync --locked --quiet --python .venv/bin/python
"$uv" pip install --quiet --upgrade-package pyspark --python "$ENVIRONMENT/bin/python" "$RANGE"
"$ENVIRONMENT/bin/python" -c 'import pyspark; print("newest: PySpark", pyspark.__version__)'
exec "$ENVIRONMENT/bin/pytest" -q "$@"
