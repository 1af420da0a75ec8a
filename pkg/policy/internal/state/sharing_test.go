package state_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

func found(n int) []verdict.Violation {
	return []verdict.Violation{{Msg: fmt.Sprint("no limits ", n), Details: json.RawMessage(`{"container":"main"}`)}, {Msg: "no probe"}}
}

// TestSharing_KeepsEqualViolationsOnce: and gives nobody those of another.
func TestSharing_KeepsEqualViolationsOnce(t *testing.T) {
	var s state.Sharing
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range 70_000 { // more than it knows of
				if got := s.Found(found(n)).Violations(); !verdict.SameViolations(got, found(n)) {
					t.Errorf("found %v for %d", got, n)
					return
				}
			}
		})
	}
	wg.Wait()
	a, b := s.Found(found(1)), s.Found(found(1))
	if &a.Violations()[0] != &b.Violations()[0] || a == b {
		t.Error("equal violations are kept twice, or with the times of others")
	}
	exempt := found(1)
	exempt[0].Exempt = "known"
	remedied := found(1)
	remedied[0].Remedy = &verdict.Remedy{Action: "delete"}
	for _, other := range [][]verdict.Violation{exempt, remedied, found(1)[:1]} {
		if got := s.Found(other).Violations(); !verdict.SameViolations(got, other) {
			t.Errorf("found %v for %v", got, other)
		}
	}
}

// TestSharing_KeepsNothingItself: violations end with the last outcome that has them.
func TestSharing_KeepsNothingItself(t *testing.T) {
	var s state.Sharing
	ended := make(chan struct{})
	func() {
		o := s.Found(found(1))
		runtime.AddCleanup(&o.Violations()[0], func(c chan struct{}) { close(c) }, ended)
	}()
	runtime.GC()
	<-ended
	runtime.KeepAlive(&s)
}
