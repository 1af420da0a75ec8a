package hubreader_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policyquery"
)

// names of the Actions that a Reader holds, and whether there are older ones.
func names(r *hubreader.Reader) (held string, older bool, unreadable int) {
	all, state, err := r.Actions()
	if err != nil {
		return err.Error(), false, 0
	}
	var out []string
	for a := range all {
		out = append(out, strings.TrimLeft(strings.TrimPrefix(a.Name, "a-"), "0"))
	}
	return strings.Join(out, " "), state.Older, state.Unreadable
}

// TestReader_HasNoGaps: an older Action that changes is not held while one between it and the others is left out, and what
// was left out comes back when there is room.
func TestReader_HasNoGaps(t *testing.T) {
	const most = 20
	h := &apiServer{version: 100}
	for i := range 25 {
		h.actions = append(h.actions, newAction(i+1))
	}
	r := start(t, h, most)
	newestFrom := func(from, to int) string {
		var out []string
		for i := from; i >= to; i-- {
			out = append(out, fmt.Sprint(i))
		}
		return strings.Join(out, " ")
	}
	holds(t, r, newestFrom(25, 6), false)
	h.send("DELETED", newAction(25))
	holds(t, r, newestFrom(24, 6), false)
	h.send("MODIFIED", newAction(1)) // 2 to 5 are not held
	h.send("ADDED", newAction(26))
	holds(t, r, "26 "+newestFrom(24, 6), false)
	if held, older, _ := names(r); !older {
		t.Errorf("%s are held, and it is not said that there are older ones", held)
	}
	// There is room for a tenth of them: they are listed again.
	h.change(func() { h.actions = h.actions[:22] })
	for _, i := range []int{26, 24, 23} {
		h.send("DELETED", newAction(i))
	}
	holds(t, r, newestFrom(22, 3), false)
	// Those that were left out are deleted: there are no older ones.
	h.change(func() { h.actions = h.actions[2:] })
	for _, i := range []int{1, 2} {
		h.send("DELETED", newAction(i))
	}
	wait(t, r, func() bool { held, older, _ := names(r); return held == newestFrom(22, 3) && !older })
	h.change(func() {
		if h.lists != 3 {
			t.Errorf("it was listed %d times, want 3", h.lists)
		}
	})
}

func wait(t *testing.T, r *hubreader.Reader, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		changed := r.Changes(policyquery.HubActions)
		if done() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			held, older, unreadable := names(r)
			t.Fatalf("it holds %q, older %v, %d unreadable", held, older, unreadable)
		}
	}
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.String(), text)
}

// TestReader_LeavesOutWhatCannotBeDecoded, says so once, counts it, and keeps all others current.
func TestReader_LeavesOutWhatCannotBeDecoded(t *testing.T) {
	broken := func(i int) string {
		return fmt.Sprintf(`{"metadata":{"name":"a-%07d","creationTimestamp":%q,"resourceVersion":"%d"},"spec":{"wave":"third"}}`, i, time.Unix(int64(i), 0).UTC().Format(time.RFC3339), 100+i)
	}
	log := &lockedBuffer{}
	h := &apiServer{version: 100, log: slog.New(slog.NewTextHandler(log, nil)), actions: []v1alpha1.Action{newAction(1), newAction(2)}, broken: []string{broken(9)}}
	r := start(t, h, 0)
	wait(t, r, func() bool { held, _, unreadable := names(r); return held == "2 1" && unreadable == 1 })
	h.events <- `{"type":"MODIFIED","object":` + broken(2) + `}`
	wait(t, r, func() bool { held, _, unreadable := names(r); return held == "1" && unreadable == 2 })
	h.send("ADDED", newAction(3))
	wait(t, r, func() bool { held, _, unreadable := names(r); return held == "3 1" && unreadable == 2 })
	h.send("MODIFIED", newAction(2))
	wait(t, r, func() bool { held, _, unreadable := names(r); return held == "3 2 1" && unreadable == 1 })
	// The same one, listed again, is not said again.
	h.change(func() {
		h.gone = true
		drop := h.drop
		h.drop = make(chan struct{})
		close(drop)
	})
	wait(t, r, func() bool { held, _, unreadable := names(r); return held == "2 1" && unreadable == 1 })
	h.events <- `{"type":"DELETED","object":` + broken(9) + `}`
	wait(t, r, func() bool { held, _, unreadable := names(r); return held == "2 1" && unreadable == 0 })
	if n := log.count("cannot be decoded"); n != 2 {
		t.Errorf("it was said %d times, want 2:\n%s", n, log.String())
	}
}
