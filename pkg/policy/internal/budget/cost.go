package budget

import (
	"errors"
	"time"

	"federator.dev/federator/pkg/policy/internal/limits"
)

// wasted is how much of its limit an evaluation that ended with err has used, in full
// hundredths: none if it has a result. It must be called on the thread of the evaluation.
func (b *Budget) wasted(err error) int64 {
	switch {
	case b.Meter == nil: // it did not start
		return 0
	case errors.Is(err, ErrExceeded):
		return OverrunPoints
	case err == nil || b.stopped || !b.exact && time.Since(b.started) < b.limit/OverrunPoints:
		return 0
	}
	used := int64((b.cpu() - b.maxCPU + b.limit) * OverrunPoints / b.limit)
	return max(0, min(used, OverrunPoints))
}

// slow is the CPU time of an evaluation that has used a tenth of its limit or more,
// 0 otherwise. It must be called on the thread of the evaluation.
func (b *Budget) slow() time.Duration {
	if b.Meter == nil || !b.exact && time.Since(b.started) < b.limit/10 {
		return 0
	}
	if used := b.cpu() - b.maxCPU + b.limit; used >= b.limit/10 {
		return used
	}
	return 0
}

// Cost is the cost of an evaluation that ended with err.
func (b *Budget) Cost(err error) Cost {
	return Cost{Wasted: b.wasted(err), Slow: b.slow(), Err: err}
}

// ResultError is a limit that the result of an evaluation exceeds.
type ResultError string

func (e ResultError) Error() string { return string(e) }

// OverrunPoints are those of an evaluation that uses all of its time without a result:
// hundredths of its limit.
const OverrunPoints = 100

// Cost is what an evaluation is charged.
type Cost struct {
	Wasted int64         // hundredths of its limit, used without a result
	Slow   time.Duration // CPU time, if a tenth of the limit or more
	Err    error         // of the evaluation
}

func (c Cost) None() bool { return c.Wasted <= 0 && c.Slow <= 0 }

// QuarantineReason says why evaluations that end with err are quarantined. It names
// limits only: other errors may quote objects, and the quarantine is visible to callers
// who may not read these.
func QuarantineReason(err error) string {
	why := "its evaluations repeatedly use up their time budget without a result"
	var e ResultError
	if errors.As(err, &e) || errors.Is(err, ErrExceeded) || errors.Is(err, limits.ErrLimit) {
		return why + ": " + err.Error()
	}
	return why
}
