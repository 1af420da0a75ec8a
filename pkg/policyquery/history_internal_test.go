package policyquery

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
)

// TestHistoryList_ListsOnceWhatSeveralHaveRecorded, though at other times.
func TestHistoryList_ListsOnceWhatSeveralHaveRecorded(t *testing.T) {
	record := func(key string, second int64) history.Record {
		return history.Record{Key: key, Time: time.Unix(second, 0).UTC()}
	}
	lists := []historyPart{
		{HistoryList: HistoryList{Log: "x", Items: []history.Record{record("a", 1), record("b", 2), record("c", 3)}}},
		{HistoryList: HistoryList{Log: "y", Items: []history.Record{record("d", 2), record("a", 4), record("b", 4)}}},
	}
	out := HistoryList{}
	if err := out.merge(&historyParams{oldest: true, limit: 10}, lists); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, x := range out.Items {
		keys = append(keys, x.Key)
	}
	if got := strings.Join(keys, " "); got != "a b d c" {
		t.Error(got)
	}
}

// TestHistory_LooksForNobodyWhoIsGone: when each of thousands of scopes was last seen takes long, and nobody else may fold meanwhile.
func TestHistory_LooksForNobodyWhoIsGone(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(5)})
	if err == nil {
		err = x.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"})
	}
	if err != nil {
		t.Fatal(err)
	}
	scope, err := x.OpenScope("fleet/a", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	scope.SetStatus(aggregate.Status{State: aggregate.Stale})
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
	past, err := history.Open(history.Options{Directory: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := History{History: past, Index: x}
	grants := &historyGrants{reader: &callerReader{ctx: ctx}, snapshot: x.Snapshot()}
	added := 0
	err = q.addUnknown(&historyParams{until: time.Now()}, grants, nil, false, func(*history.Record) error {
		added++
		return nil
	})
	if !errors.Is(err, context.Canceled) || added > 0 {
		t.Errorf("%d gaps, %v", added, err)
	}
}

// TestHistoryParams_SelectGaps by where they are, whether or not by their type.
func TestHistoryParams_SelectGaps(t *testing.T) {
	for query, want := range map[string]string{
		"":                                       "all a b",
		"type=Object":                            "",
		"type=Object&type=Gap":                   "all a b",
		"name=web&policy=images":                 "all a b",
		"member=a&member=c":                      "all a",
		"member=a&member=c&type=Gap&type=Object": "all a",
		"kind=Pod&kind=Node&type=Gap":            "all a",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		params, err := parseHistoryParams(values, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range []history.Record{{Message: "all"}, {Member: "a", Kind: "Pod", Message: "a"}, {Member: "b", Kind: "Service", Message: "b"}} {
			r.Type = history.Gap
			if params.matches(&r) {
				got = append(got, r.Message)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q selects gaps %q, want %s", query, got, want)
		}
	}
}
