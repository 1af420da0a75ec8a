package queryapi_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"federator.dev/federator/test/seed"
)

// added reads a WebSocket to its first bookmark, and returns how many objects were added.
func added(t *testing.T, conn *websocket.Conn) (n int) {
	t.Helper()
	for {
		switch m := receive(t, conn); m.Type {
		case "ADDED":
			n++
		case "BOOKMARK":
			return n
		default:
			t.Fatalf("%+v", m)
		}
	}
}

// TestShared_WebSocketsAreThoseOfOneProcess: for the whole fleet and for a member that another process judges.
func TestShared_WebSocketsAreThoseOfOneProcess(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 11))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	f.fill(rng, 200)
	const initial = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	for _, path := range []string{"/fleet/api/v1/pods", "/flat/api/v1/configmaps", "/members/a/eu-1/api/v1/pods", "/members/b/us-2/api/v1/pods"} {
		want, _, err := dial(t, f.whole.Address, path+initial, f.whole.Token(), f.whole.Roots)
		f.must(err)
		n := added(t, want)
		for _, p := range f.processes {
			got, protocol, err := dial(t, p.Address, path+initial, p.Token(), p.Roots)
			if err != nil {
				t.Fatalf("%s of %s: %v", path, p.id, err)
			}
			if have := added(t, got); have != n {
				t.Errorf("%s of %s: %d objects, want %d", path, p.id, have, n)
			}
			if fmt.Sprint(protocol) != "[base64.binary.k8s.io]" {
				t.Errorf("%s of %s: protocol %q", path, p.id, protocol)
			}
		}
	}
	for _, p := range f.processes {
		if _, _, err := dial(t, p.Address, "/members/a/none/api/v1/pods?watch=true", p.Token(), p.Roots); err == nil {
			t.Errorf("%s: a WebSocket of a member that there is not", p.id)
		}
		if _, _, err := dial(t, p.Address, "/fleet/api/v1/pods?watch=true", "nobody", p.Roots); err == nil {
			t.Errorf("%s: a WebSocket without a valid token", p.id)
		}
	}
	asked, lost := f.processes[0], f.processes[1]
	fleet, _, err := dial(t, asked.Address, "/fleet/api/v1/pods"+initial, asked.Token(), asked.Roots)
	f.must(err)
	added(t, fleet)
	f.kill(lost)
	var text string
	f.must(websocket.Message.Receive(fleet, &text))
	if !json.Valid([]byte(text)) || !strings.Contains(text, `"ERROR"`) || !strings.Contains(text, `"code":410`) {
		t.Errorf("after a process was lost: %s", text)
	}
}
