package h2

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestConn_IsAskedSeldomWhileAnotherOfItsHostIsHeardOf: together connections are asked as often
// as one is, and all of them as soon as all are silent.
func TestConn_IsAskedSeldomWhileAnotherOfItsHostIsHeardOf(t *testing.T) {
	const s = time.Second
	c := &conn{t: &Transport{o: Options{PingInterval: 3 * s}}, others: new(atomic.Int64)}
	for _, tt := range []struct{ heard, others, due time.Duration }{
		{10 * s, 10 * s, 13 * s}, // nothing came after
		{10 * s, 12 * s, 15 * s}, // all are silent since
		{10 * s, 21 * s, 24 * s},
		{10 * s, 60 * s, 25 * s}, // it is silent for long
	} {
		c.others.Store(int64(tt.others))
		if got := c.dueLocked(tt.heard); got != tt.due {
			t.Errorf("heard of at %v, others at %v: it is asked at %v, want %v", tt.heard, tt.others, got, tt.due)
		}
	}
}
