package bounds

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Bounds bound writes to a whole fleet. Zero values bound nothing.
type Bounds struct {
	// WritesPerSecond is how many requests to write are sent in a second, retries included:
	// after a pause as many at once, at least one.
	WritesPerSecond float64
	// Members is to how many members corrections are under way at once.
	Members int
	// MaxAway is the share of the fleet, in percent, beyond which nothing is written: so many
	// members are away that something else is wrong.
	MaxAway float64
	// Failures is how many corrections may fail within FailureWindow, and MaxFailed what share
	// of those that ended then, in percent, once there are MinEnded. Beyond them everything
	// stops.
	Failures      int
	MaxFailed     float64
	FailureWindow time.Duration
}

// MinEnded is of how many corrections at least a share that failed is taken.
const MinEnded = 10

// maxEnded bounds what is kept of a window: with more, the oldest count no longer.
const maxEnded = 100_000

// Validate returns what is wrong with the bounds.
func (b *Bounds) Validate() error {
	switch {
	case b.WritesPerSecond < 0, math.IsNaN(b.WritesPerSecond), math.IsInf(b.WritesPerSecond, 0), b.Members < 0, b.Failures < 0, b.FailureWindow < 0:
		return errors.New("a bound is negative or no number")
	case !(b.MaxAway >= 0 && b.MaxAway <= 100), !(b.MaxFailed >= 0 && b.MaxFailed <= 100):
		return errors.New("a share is not of 0 to 100 percent")
	case (b.Failures > 0 || b.MaxFailed > 0) && b.FailureWindow == 0:
		return errors.New("failures are counted within a window, which is 0")
	}
	return nil
}

// Gate counts what its Bounds bound.
type Gate struct {
	bounds Bounds

	starts, writes bucket

	ended  []ended // within the failure window, oldest first
	failed int     // of them
}

type ended struct {
	at     time.Time
	failed bool
}

// New returns a Gate that has counted nothing.
func New(b Bounds) *Gate { return &Gate{bounds: b} }

// NextStart returns when a correction may start that will send a request: now if it may.
// Starts come at the rate of requests, so that few are refused when they are about to be sent.
func (g *Gate) NextStart(now time.Time) time.Time {
	return g.starts.next(now, g.bounds.WritesPerSecond)
}

// Start counts a correction that starts.
func (g *Gate) Start(now time.Time) { g.starts.take(now, g.bounds.WritesPerSecond) }

// Write counts a request that is about to be sent, and reports whether it may be.
func (g *Gate) Write(now time.Time) bool { return g.writes.take(now, g.bounds.WritesPerSecond) }

// bucket has a token for each thing that may happen now. It holds as many as a second adds,
// and at least one.
type bucket struct {
	tokens float64 // as of filled
	filled time.Time
}

// epsilon is what rounding loses of a token.
const epsilon = 1e-6

func (b *bucket) fill(now time.Time, rate float64) {
	if b.filled.IsZero() {
		b.tokens, b.filled = max(rate, 1), now
	}
	if d := now.Sub(b.filled); d > 0 {
		b.tokens, b.filled = min(max(rate, 1), b.tokens+d.Seconds()*rate), now
	}
}

// take takes a token, if there is one. A rate of 0 is no bound.
func (b *bucket) take(now time.Time, rate float64) bool {
	if rate == 0 {
		return true
	}
	if b.fill(now, rate); b.tokens < 1-epsilon {
		return false
	}
	b.tokens--
	return true
}

// next returns when there is a token.
func (b *bucket) next(now time.Time, rate float64) time.Time {
	if rate == 0 {
		return now
	}
	if b.fill(now, rate); b.tokens >= 1-epsilon {
		return now
	}
	return now.Add(max(time.Duration((1-b.tokens)/rate*float64(time.Second)), time.Millisecond))
}

// Admits reports whether a correction of another member may begin while some of as many
// members are under way.
func (g *Gate) Admits(members int) bool { return g.bounds.Members == 0 || members < g.bounds.Members }

// Away returns why nothing is written while members of the fleet are away, "" if something
// may be.
func (g *Gate) Away(away, members int) string {
	if g.bounds.MaxAway == 0 || members == 0 || float64(away)*100 <= g.bounds.MaxAway*float64(members) {
		return ""
	}
	return fmt.Sprintf("%d of %d members are away, more than %g%%", away, members, g.bounds.MaxAway)
}

// Ended counts a correction that has ended. It returns why everything is to stop, "" if
// nothing is; then it has forgotten what it counted, since who resumes has seen it.
func (g *Gate) Ended(now time.Time, failed bool) string {
	if g.bounds.Failures == 0 && g.bounds.MaxFailed == 0 {
		return ""
	}
	g.ended = append(g.ended, ended{now, failed})
	if failed {
		g.failed++
	}
	old := 0
	for old < len(g.ended) && (now.Sub(g.ended[old].at) >= g.bounds.FailureWindow || len(g.ended)-old > maxEnded) {
		if g.ended[old].failed {
			g.failed--
		}
		old++
	}
	g.ended = g.ended[old:]
	why := g.tooMany(failed)
	if why != "" {
		g.ended, g.failed = nil, 0
	}
	return why
}

func (g *Gate) tooMany(failed bool) string {
	n := len(g.ended)
	switch {
	case !failed:
	case g.bounds.Failures > 0 && g.failed > g.bounds.Failures:
		return fmt.Sprintf("%d corrections failed within %s, more than %d", g.failed, g.bounds.FailureWindow, g.bounds.Failures)
	case g.bounds.MaxFailed > 0 && n >= MinEnded && float64(g.failed)*100 > g.bounds.MaxFailed*float64(n):
		return fmt.Sprintf("%d of %d corrections failed within %s, more than %g%%", g.failed, n, g.bounds.FailureWindow, g.bounds.MaxFailed)
	}
	return ""
}
