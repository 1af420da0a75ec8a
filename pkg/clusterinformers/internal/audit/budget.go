package audit

import "time"

// Budget is how many requests and bytes a second audits may cost. What was spent beyond it is
// waited for by what comes next. The zero Budget has no bounds. It is not safe for concurrent use.
type Budget struct {
	Requests, Bytes float64 // a second; 0: no bound

	at              time.Time // as of when what follows is
	requests, bytes float64   // in hand, or owed below 0
}

// burst is for how long unused budget is kept.
const burst = 10 * time.Second

// advance adds what time has brought.
func (b *Budget) advance(now time.Time) {
	passed := burst
	if !b.at.IsZero() {
		passed = max(0, now.Sub(b.at))
	}
	b.at = now
	b.requests = min(b.requests+b.Requests*passed.Seconds(), max(b.Requests*burst.Seconds(), 1))
	b.bytes = min(b.bytes+b.Bytes*passed.Seconds(), b.Bytes*burst.Seconds())
}

// Delay returns how long the next request has to wait.
func (b *Budget) Delay(now time.Time) time.Duration {
	b.advance(now)
	var wait float64
	if b.Requests > 0 && b.requests < 1 {
		wait = (1 - b.requests) / b.Requests
	}
	if b.Bytes > 0 && b.bytes < 0 {
		wait = max(wait, -b.bytes/b.Bytes)
	}
	return time.Duration(wait * float64(time.Second))
}

// Spend takes note of requests and of what their responses had in bytes.
func (b *Budget) Spend(now time.Time, requests int, bytes int64) {
	b.advance(now)
	b.requests -= float64(requests)
	b.bytes -= float64(bytes)
}

// Reserve takes note of the next request, and returns how long it has to wait: who comes meanwhile
// waits for longer.
func (b *Budget) Reserve(now time.Time) time.Duration {
	wait := b.Delay(now)
	b.requests--
	return wait
}
