#!/usr/bin/env bash
# mutations.sh SCHEDULES: does the simulation find each defect of testdata/mutations?
# Applies each patch to a copy of the committed tree and prints the first seed that fails.
set -uo pipefail
cd "$(git rev-parse --show-toplevel)" || exit 1
copy=$(mktemp -d) || exit 1
trap 'git worktree remove --force "$copy/tree"; rm -rf "$copy"' EXIT
git worktree add -q --detach "$copy/tree" HEAD || exit 1
missed=0
for patch in "$PWD"/test/simulation/testdata/mutations/*.patch; do
	git -C "$copy/tree" apply "$patch" || exit 1
	found=$(cd "$copy/tree" && go test ./test/simulation -run StayWithinTheirBounds -count 1 -timeout 0 -args -brief -schedules "$1" | grep -m 1 -o 'seed [0-9]*: .*')
	[ -n "$found" ] || missed=1
	echo "$(basename "$patch" .patch): ${found:-NOT FOUND in $1 schedules}"
	git -C "$copy/tree" checkout -q -- .
done
exit $missed
