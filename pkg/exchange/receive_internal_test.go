package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
)

// receiving returns what reads frames of a peer that judges member m, with a bound of what a section has.
func receiving(t *testing.T, section int64, sent *bytes.Buffer) *receiver {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	im, err := NewImporter(ImporterOptions{Index: index, Logger: slog.New(slog.DiscardHandler), MaxSection: section})
	if err != nil {
		t.Fatal(err)
	}
	if err := im.SetFleet([]FleetMember{{Name: "m", UID: "m", Judge: "a"}}); err != nil {
		t.Fatal(err)
	}
	l := &link{im: im, peer: Peer{ID: "a"}, announced: map[string]string{}, again: map[ask]bool{}, suspects: map[string]bool{}, asks: im.interest, metrics: im.metrics.of("a")}
	return &receiver{link: l, frames: wire.NewReader(sent, maxControl), cancel: func(error) {}}
}

// TestReceiver_AllOfASectionIsBounded, not only its records: a peer that tells what it must not costs its own stream.
func TestReceiver_AllOfASectionIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		send func(frame func(wire.Type, []byte))
		is   func(error) bool
	}{
		"scopes": {
			send: func(frame func(wire.Type, []byte)) {
				frame(wire.TypeMember, wire.Member{Name: "m", Full: true, JSON: wire.MemberJSON(aggregate.Member{UID: "m"})}.Append(nil))
				for n := range 20 {
					frame(wire.TypeScope, wire.Scope{Kind: aggregate.Kind(fmt.Sprint("K", n)), Version: long, Status: aggregate.Status{State: aggregate.Synced}}.Append(nil))
				}
			},
			is: func(err error) bool { return errors.Is(err, ErrBound) },
		},
		"names of scopes that are gone": {
			send: func(frame func(wire.Type, []byte)) {
				frame(wire.TypeMember, wire.Member{Name: "m", Full: true, JSON: wire.MemberJSON(aggregate.Member{UID: "m"})}.Append(nil))
				for n := range 20 {
					frame(wire.TypeNoScope, wire.AppendName(nil, fmt.Sprint(n, long)))
				}
			},
			is: func(err error) bool { return errors.Is(err, ErrBound) },
		},
		"the name of a member": {
			send: func(frame func(wire.Type, []byte)) {
				frame(wire.TypeMember, wire.Member{Name: long, Full: true, JSON: wire.MemberJSON(aggregate.Member{UID: "m"})}.Append(nil))
			},
			is: malformed,
		},
		"the UID of a member": {
			send: func(frame func(wire.Type, []byte)) {
				frame(wire.TypeMember, wire.Member{Name: "other", Full: true, JSON: wire.MemberJSON(aggregate.Member{UID: long})}.Append(nil))
			},
			is: malformed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sent bytes.Buffer
			w := wire.NewWriter(&sent)
			frame := func(of wire.Type, p []byte) {
				if err := w.Frame(of, p); err != nil {
					t.Fatal(err)
				}
			}
			frame(wire.TypeHello, wire.Hello{Version: wire.Version, Process: "a", Epoch: 1, Stream: 1}.Append(nil))
			frame(wire.TypeBegin, wire.Begin{Sequence: 1, State: true, Interest: 1}.Append(nil))
			c.send(frame)
			r := receiving(t, 10<<20, &sent)
			for {
				of, p, err := r.frames.Next()
				if err == nil {
					err = r.frame(of, p)
				}
				if err == nil {
					continue
				}
				if !c.is(err) {
					t.Errorf("it ends with %v", err)
				}
				return
			}
		})
	}
}

func malformed(err error) bool {
	bad := (*MalformedError)(nil)
	return errors.As(err, &bad)
}
