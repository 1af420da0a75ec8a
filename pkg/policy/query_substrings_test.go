package policy_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
)

// measuring is a Reader of everything that notes what is alive when a query asks it.
type measuring struct {
	policy.Everything

	most *uint64
}

// MayReadMember implements policy.Reader.
func (m measuring) MayReadMember(string) bool {
	*m.most = max(*m.most, heap())
	return true
}

// TestQuery_CopiesSubstrings: builtins give parts of texts and arrays that share what
// those are made of. Whatever keeps a part, a comprehension or an answer, has it alone.
func TestQuery_CopiesSubstrings(t *testing.T) {
	const maxRead = 4 << 20
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), nil), Timeout: time.Minute, MaxRead: maxRead}
	const (
		large = `sprintf("%d%s", [i, replace(sprintf("%0999d", [1]), "0", sprintf("%0999d", [1]))])` // a megabyte
		few   = ` | i := numbers.range(1000, 1030)[_]; s := ` + large
		asks  = `; data.fleet.names[_]; count(x) > 0`
		rows  = `i := numbers.range(1000, 1030)[_]; `
	)
	for _, query := range []string{
		rows + `substring(` + large + `, 0, 4)`,
		rows + `[substring(` + large + `, 0, 4)]`,
		rows + `{substring(` + large + `, 0, 4): 1}`,
		rows + `x := to_number(substring(` + large + `, 0, 4))`,
		`x := [substring(s, 0, 4)` + few + `]` + asks,
		`x := [[substring(s, 0, 4)]` + few + `]` + asks,
		`x := [{i: {substring(s, 0, 4)}}` + few + `]` + asks,
		`x := [{substring(s, 0, 4): i}` + few + `]` + asks,
		`x := [to_number(substring(s, 0, 4))` + few + `]` + asks,
		`x := {substring(s, 0, 4)` + few + `}` + asks,
		`k := [1, 2][_]; x := {substring(s, 0, 4)` + few + `}; k > 1` + asks, // which it has already
		`x := {substring(s, 0, 4): i` + few + `}` + asks,
		`x := {i: substring(s, 0, 4)` + few + `}` + asks,
		`x := [array.slice(numbers.range(i, i + 9999), 0, 1) | i := numbers.range(1, 30)[_]]` + asks,
	} {
		base := heap()
		most := base
		opts.Reader = measuring{most: &most}
		a, err := policy.Query(t.Context(), opts, query)
		most = max(most, heap())
		if err != nil || len(a.Rows) == 0 {
			t.Errorf("%s: %+v, %v", query, a, err)
		}
		if took := int64(most) - int64(base); took > 2*maxRead+1<<20 { // far less than half of what fits
			t.Errorf("%s takes %d KiB of memory where it may read %d", query, took>>10, maxRead>>10)
		}
		runtime.KeepAlive(a)
	}
}

// TestQuery_ChargesLongNumbers as texts are.
func TestQuery_ChargesLongNumbers(t *testing.T) {
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), nil), Reader: policy.Everything{}, Timeout: time.Minute, MaxRead: 4 << 20}
	query := `n := concat("", ["1", replace(sprintf("%0400d", [1]), "0", sprintf("%0500d", [1]))]); ` + strings.Repeat(`is_number(json.unmarshal(n)); `, 60) + `true`
	if a, err := policy.Query(t.Context(), opts, query); !errors.Is(err, policy.ErrQueryLimit) {
		t.Errorf("60 numbers of 200 kB: %d rows, %v", len(rows(a)), err)
	}
}
