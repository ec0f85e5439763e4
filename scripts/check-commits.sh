#!/usr/bin/env bash
# Checks the subjects of commits: `area: effect`, at most 72 characters (CONTRIBUTING.md).
# Older commits, up to BASE, do not follow the rule.
set -euo pipefail
cd "$(dirname "$0")/.."

BASE=268e4174fae1
SUBJECT_MAX=72

if ! git rev-parse -q --verify "$BASE^{commit}" >/dev/null 2>&1; then
    echo "commit subjects: not checked, the history does not reach back to $BASE"
    exit 0
fi
faults=0
checked=0
while IFS= read -r subject; do
    checked=$((checked + 1))
    if [ ${#subject} -gt $SUBJECT_MAX ]; then
        echo "error: ${#subject} characters, the limit is $SUBJECT_MAX: $subject" >&2
        faults=$((faults + 1))
    elif ! [[ $subject =~ ^[a-z][a-z0-9_.\`/,\ -]*:\ [^\ ] ]]; then
        echo "error: not of the form 'area: effect': $subject" >&2
        faults=$((faults + 1))
    fi
done < <(git log --no-merges --format=%s "$BASE..HEAD")
echo "commit subjects: $checked checked, $faults refused"
[ "$faults" -eq 0 ]
