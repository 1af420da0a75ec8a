package shards

import (
	"os"
	"strconv"
	"testing"
)

// size is the number of members: what SHARDS says, or three.
func size() int {
	if n, err := strconv.Atoi(os.Getenv("SHARDS")); err == nil && n > 0 {
		return n
	}
	return 3
}

// TestShards_ShareAFleet: three processes answer for all members and judge them with a view of all, also after one was
// killed, and after it is back.
func TestShards_ShareAFleet(t *testing.T) {
	f := newFleet(t, size(), 3, 1)
	f.put(0, "once-a")
	f.put(1, "once-a")
	f.put(2, "once-b")
	for _, s := range f.processes {
		s.start()
	}
	f.exact("at the start")
	f.judged("at the start")
}
