#!/usr/bin/env bash
# mutations.sh [PATCH...]: does the crash test find each defect of testdata/mutations?
# Applies each patch to a copy of the committed tree, runs a short turn and prints what it finds first.
set -uo pipefail
cd "$(git rev-parse --show-toplevel)" || exit 1
copy=$(mktemp -d) || exit 1
trap 'git worktree remove --force "$copy/tree"; rm -rf "$copy"' EXIT
git worktree add -q --detach "$copy/tree" HEAD || exit 1
missed=0
[ $# -gt 0 ] || set -- test/crash/testdata/mutations/*.patch
for patch in "$@"; do
	git -C "$copy/tree" apply "$PWD/$patch" || exit 1
	# What is logged in any run is not what is found.
	found=$(cd "$copy/tree" && go test ./test/crash -run Crash -count 1 -timeout 10m | grep -o '^    [a-z_]*_test.go:[0-9]*: .*' |
		grep -v -m 1 ': [A-Z]*=\|: [0-9]* corrections, \|: [a-z]*: [0-9]*[ ,]\|: [0-9]* kills ')
	[ -n "$found" ] || missed=1
	echo "$(basename "$patch" .patch): $(cut -c 1-300 <<<"${found:-NOT FOUND}")"
	git -C "$copy/tree" checkout -q -- .
done
exit $missed
