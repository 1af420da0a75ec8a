package config

import (
	"math"

	"federator.dev/federator/pkg/policy"
)

// memoryShares returns the default budgets of members and of the change log, given the
// memory limit of the Go runtime in bytes. Actual memory is within 1.5 times of what is
// accounted, so half of the limit for all members leaves a quarter for policies, readers
// and garbage: budgets take effect before the runtime collects continuously, and before
// the kernel kills the process.
func memoryShares(limit int64) (b Budget, logBytes int64) {
	b = Budget{Bytes: 4 << 30, Objects: 2_000_000, ResponseBytes: 256 << 20}
	logBytes = 64 << 20
	if limit == math.MaxInt64 { // there is none
		return b, logBytes
	}
	share := func(of int64) int64 { return max(limit/of, 1<<20) }
	b.FleetBytes = share(2)
	b.Bytes = min(b.Bytes, share(4))
	b.ResponseBytes = min(b.ResponseBytes, share(16))
	return b, min(logBytes, share(32))
}

// PolicyLimits returns how much one view and one binding of policies may hold, given the
// same limit: little enough that they are refused before the runtime's limit is reached.
func PolicyLimits(limit int64) policy.Limits {
	if limit == math.MaxInt64 {
		return policy.Limits{} // the defaults of package policy
	}
	share := min(512<<20, max(limit/16, 1<<20))
	return policy.Limits{View: share, Binding: share}
}
