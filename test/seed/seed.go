// Package seed gives tests of random input their seeds.
//
// By default a test has the same seed in every run, so that what passed once passes
// again and a failure belongs to the change that made it. Environment variable SEED
// asks for others: a number, as a failed test printed it, or "random"; `make explore`
// runs all such tests with random ones.
package seed

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Of returns the seed of t, and prints it.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := of(t)
	t.Logf("SEED=%d", seed)
	return seed
}

func of(t testing.TB) uint64 {
	t.Helper()
	switch text := os.Getenv("SEED"); text {
	case "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(t.Name())) //nolint:errcheck // never fails
		return h.Sum64()
	case "random":
		return rand.Uint64()
	default:
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED: %v", err)
		}
		return seed
	}
}
