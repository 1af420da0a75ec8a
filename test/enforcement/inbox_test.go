package enforcement

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// inboxKey is the key of events.
const inboxKey = "the key of all notices"

// inbox is told of what happens in a story.
type inbox struct {
	*httptest.Server

	mu     sync.Mutex
	away   bool              // nothing is taken
	sums   map[string]int    // of transitions that Notifications have sent, by type of event
	bodies map[string]string // by the key of the event
	lines  []string          // an event each, in the order in which they came first
	errs   []error
}

func newInbox() *inbox {
	in := &inbox{bodies: map[string]string{}, sums: map[string]int{}}
	in.Server = httptest.NewTLSServer(in)
	return in
}

// ca is the certificate that the inbox is verified with.
func (in *inbox) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: in.Certificate().Raw})
}

// ServeHTTP implements http.Handler.
func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	hook, keyErr := standardwebhooks.NewWebhookRaw([]byte(inboxKey))
	var e struct {
		ID, Source, Type, Subject string
		Data                      map[string]any
	}
	if in.isAway() {
		http.Error(w, "come back later", http.StatusServiceUnavailable)
		return
	}
	if err := errors.Join(err, keyErr, hook.Verify(body, r.Header), json.Unmarshal(body, &e)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		in.add("", err)
		return
	}
	line := e.Source + " " + e.Type + " " + e.Subject
	for _, key := range slices.Sorted(maps.Keys(e.Data)) {
		switch v := e.Data[key].(type) {
		case map[string]any, []any: // examples, and what a message is grouped by
		case string:
			line += fmt.Sprintf(" %s=%q", key, v)
		default:
			line += fmt.Sprintf(" %s=%v", key, v)
		}
	}
	in.mu.Lock()
	before, twice := in.bodies[e.ID]
	in.bodies[e.ID] = string(body)
	if n, is := e.Data["transitions"].(float64); is && !twice {
		in.sums[e.Type] += int(n)
	}
	in.mu.Unlock()
	switch {
	case !twice:
		in.add(line, nil)
	case before != string(body):
		in.add("", fmt.Errorf("event %s says\n%s\nand\n%s", e.ID, before, body))
	}
}

// sent returns how many transitions were sent, a type of event each.
func (in *inbox) sent() (string, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out strings.Builder
	for _, of := range slices.Sorted(maps.Keys(in.sums)) {
		fmt.Fprintf(&out, "%s %d\n", of, in.sums[of])
	}
	return out.String(), errors.Join(in.errs...)
}

func (in *inbox) isAway() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.away
}

func (in *inbox) setAway(away bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.away = away
}

func (in *inbox) add(line string, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if err != nil {
		in.errs = append(in.errs, err)
		return
	}
	in.lines = append(in.lines, line)
}

// told returns the events, a line each.
func (in *inbox) told() (string, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return strings.Join(in.lines, "\n"), errors.Join(in.errs...)
}
