package policy_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Histories are short-lived heaps beside a small one: collecting them less often
	// halves what they take.
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}
