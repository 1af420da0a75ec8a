package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// TestAsks_WhatIsAskedForIsBounded, also where it is asked for in many frames: an importer that never ends costs its own stream.
func TestAsks_WhatIsAskedForIsBounded(t *testing.T) {
	var sent bytes.Buffer
	frames := wire.NewWriter(&sent)
	send := func(i wire.Interest) {
		t.Helper()
		if err := sendAsk(frames, i); err != nil {
			t.Fatal(err)
		}
	}
	send(wire.Interest{})
	send(wire.Interest{Number: 1})
	from := newAsks(&sent)
	asks, err := readAsks(from)
	if err != nil {
		t.Fatal(err)
	}
	const perFrame = 4000
	for n := range 40 {
		var b interest.Builder
		for i := range perFrame {
			b.Add(interest.View(fmt.Sprint(n, ".", i, strings.Repeat("x", 900))), 1)
		}
		send(wire.Interest{Number: uint64(n) + 2, More: true, Set: b.Take()})
		if err = asks.read(from); err != nil {
			break
		}
	}
	if bad := (*MalformedError)(nil); !errors.As(err, &bad) {
		t.Errorf("%v after %d MB", err, asks.newest.set.Bytes()>>20)
	}
	if kept := asks.newest.set.Bytes(); kept > maxInterest {
		t.Errorf("%d bytes are kept, at most %d", kept, maxInterest)
	}
}

// TestAsks_WhatAnImporterSendsIsTaken, up to what it asks for at most.
func TestAsks_WhatAnImporterSendsIsTaken(t *testing.T) {
	var b interest.Builder
	for n := range 40_000 {
		b.Add(interest.View(fmt.Sprint(n)), 1)
	}
	large := b.Take()
	if asksFor(large) != large {
		t.Fatalf("everything is asked for instead of %d bytes", large.Bytes())
	}
	var sent bytes.Buffer
	frames := wire.NewWriter(&sent)
	for _, i := range []wire.Interest{{}, {Number: 1, Set: large}} {
		if err := sendAsk(frames, i); err != nil {
			t.Fatal(err)
		}
	}
	asks, err := readAsks(newAsks(&sent))
	if err != nil || !asks.newest.set.Equal(large) {
		t.Errorf("what is asked for is not taken: %v", err)
	}
	for n := range 40_000 {
		b.Add(interest.View(fmt.Sprint("more ", n)), 1)
	}
	if !asksFor(large.With(b.Take())).IsEverything() {
		t.Error("more is asked for than is taken")
	}
}
