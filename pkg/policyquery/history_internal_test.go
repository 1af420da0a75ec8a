package policyquery

import (
	"strings"
	"testing"
	"time"

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
