#!/usr/bin/env bash
# Run the parts of `make test-nightly` one after another; print the seed, and the result and duration of each part.
set -uo pipefail
cd "$(dirname "$0")/.."

seed=$1
summary=()
failed=0
for part in check docs test test-processes test-slow test-recordings test-properties test-newest test-nojit test-papers; do
    echo "nightly: $part"
    begin=$SECONDS
    if make --no-print-directory "$part" SEED="$seed"; then
        result=passed
    else
        result=FAILED
        failed=1
    fi
    summary+=("$(printf '%-16s %s %6d s' "$part" "$result" $((SECONDS - begin)))")
done
echo "nightly: SEED=$seed"
printf 'nightly: %s\n' "${summary[@]}"
exit $failed
