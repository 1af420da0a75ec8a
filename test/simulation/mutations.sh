#!/usr/bin/env bash
# mutations.sh [-update] SCHEDULES [NAME...]: is each defect of testdata/mutations found?
# Applies each patch to a copy of the committed tree. Those of testdata/mutations are to be
# found by SCHEDULES schedules, which are run in order from seed 1; those of its folder units,
# which no schedule can see, by the test that their first line names. Prints a table, which
# replaces that of README.md with -update, and fails if a defect is missed.
set -uo pipefail
update=false
if [ "${1:-}" = -update ]; then update=true && shift; fi
schedules=${1:?how many schedules} && shift
cd "$(git rev-parse --show-toplevel)" || exit 1
here=$PWD/test/simulation
copy=$(mktemp -d) || exit 1
trap 'git worktree remove --force "$copy/tree"; rm -rf "$copy"' EXIT
git worktree add -q --detach "$copy/tree" HEAD || exit 1
missed=0
table=$copy/table
say() { printf '| %s | %s | %s |\n' "$@" | tee -a "$table"; }
say Defect "Found by" "Seed, and schedules until then"
say --- --- ---:

# simulated NAME: runs schedules until one fails.
simulated() {
	if ! (cd "$copy/tree" && go test -c -o "$copy/simulation.test" ./test/simulation); then
		say "\`$1\`" "**it does not build**" "" && missed=1 && return
	fi
	rm -f "$copy/summary"
	(cd "$copy/tree/test/simulation" && GOGC=400 "$copy/simulation.test" -test.run '^TestCorrections_StayWithinTheirBounds$' -test.timeout 0 \
		-into "$copy/summary" -first 1 -schedules "$schedules" -brief >"$copy/output" 2>&1) || { tail -n 5 "$copy/output" && missed=1; }
	found=$(grep -o 'seed [0-9]*: [^:]*:' "$copy/summary" | head -n 1)
	if [ -z "$found" ]; then
		say "\`$1\`" "**missed**" "$schedules" && missed=1 && return
	fi
	seed=${found#seed }
	invariant=${found#*: }
	say "\`$1\`" "invariant ${invariant%:}" "${seed%%:*}"
}

# tested NAME PACKAGE TEST: runs the test, which is to fail.
tested() {
	if ! (cd "$copy/tree" && go test -c -o "$copy/unit.test" "$2"); then
		say "\`$1\`" "**it does not build**" "" && missed=1 && return
	fi
	if (cd "$copy/tree/$2" && "$copy/unit.test" -test.run "^$3\$" -test.failfast -test.timeout 10m >"$copy/output" 2>&1) || ! grep -q -e "^--- FAIL: $3" -e '^panic: ' "$copy/output"; then
		say "\`$1\`" "**missed** by $3" "" && missed=1 && return
	fi
	say "\`$1\`" "$3 of ${2#./}" ""
}

for patch in "$here"/testdata/mutations/*.patch "$here"/testdata/mutations/units/*.patch; do
	name=$(basename "$patch" .patch)
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	git -C "$copy/tree" apply "$patch" || exit 1
	read -r what package test <"$patch"
	if [ "$what" = Test: ]; then tested "$name" "$package" "$test"; else simulated "$name"; fi
	git -C "$copy/tree" checkout -q -- .
done
if $update && [ $# -eq 0 ]; then
	sed -i -e '/^| Defect /,/^$/{/^$/!d}' -e "/^<!-- mutations.sh -update -->/r $table" "$here/README.md"
fi
exit $missed
