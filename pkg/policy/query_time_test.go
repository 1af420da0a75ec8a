package policy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
)

func TestQuery_AsksWhatHasPassed(t *testing.T) {
	t.Parallel()
	snapshot := fleetOf(t, testMembers, allScopes(), nil)
	ask := func(asOf time.Time, query string) (*policy.Answer, error) {
		return policy.Query(t.Context(), policy.QueryOptions{Snapshot: snapshot, Reader: policy.Everything{}, AsOf: asOf}, query)
	}
	for d, want := range map[time.Duration]int{-time.Second: 0, 0: 1, 500 * time.Millisecond: 1, time.Hour: 1} {
		for _, query := range []string{`data.fleet.passed["2026-01-02T12:00:00Z"]`, `t := "2026-01-02T12:00:00Z"; data.fleet.passed[t]`} {
			a, err := ask(noon.Add(d), query)
			if err != nil || len(a.Rows) != want || !a.AsOf.Equal(noon.Add(d).Truncate(time.Second)) {
				t.Errorf("%s at %v: %+v, %v", query, d, a, err)
			}
		}
	}
	if a, err := ask(time.Time{}, `data.fleet.passed["2020-01-01T00:00:00Z"]; not data.fleet.passed["9000-01-01T00:00:00Z"]`); err != nil || len(a.Rows) != 1 || time.Since(a.AsOf) > time.Hour {
		t.Errorf("without a time: %+v, %v", a, err)
	}
	for query, want := range map[string]string{
		`data.fleet.passed`:                    "is read with a key",
		`some t; data.fleet.passed[t]`:         "is read with a key",
		`count(data.fleet.passed)`:             "is read with a key",
		`data.fleet.passed["now"]`:             "is no instant in UTC",
		`data.fleet.passed[concat("", ["x"])]`: "is no instant in UTC",
	} {
		if _, err := ask(noon, query); !errors.Is(err, policy.ErrQuery) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}
