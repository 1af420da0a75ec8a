package hostile

import (
	"io"
	"math/rand/v2"
	"net/http"
)

// An Attack changes what an API server sends. Hooks that are nil leave it as it is. They are
// called from many goroutines, and see JSON: a server is requested to send it while any attack
// changes content.
type Attack struct {
	Name string

	// Answer answers by itself, and reports whether it did.
	Answer func(w http.ResponseWriter, r *http.Request, c *Call) bool
	// Document changes a version or discovery.
	Document func(c *Call, doc map[string]any)
	// Page changes a page of a list.
	Page func(c *Call, list map[string]any)
	// Object changes an object of a page or event.
	Object func(c *Call, object map[string]any)
	// Event returns what is sent in the place of a watch event: nothing, it, more.
	Event func(c *Call, event map[string]any) []map[string]any
	// Extra yields objects that there are not.
	Extra func(c *Call, yield func(map[string]any) bool)
	// Flood yields events that nothing made, as fast as they are read, after what there
	// is; a watch goes on as usual when it returns.
	Flood func(c *Call, yield func(map[string]any) bool)
	// Half is what is sent of an event that never comes to its end, after what there is.
	Half func(c *Call) []byte
	// Wire stands before everything that is written of a body.
	Wire func(c *Call, w io.Writer) io.Writer
	// Bytes attacks below the encoding: the request is the client's.
	Bytes bool
	// Frame sends what a client gets in the place of a frame that the server writes.
	Frame func(t *Tap, f Frame) error
	// Unread is set where nothing is read of a connection any more.
	Unread bool

	// Exact is set where nothing false is sent of the objects: what is held of the member
	// must come to equal what it serves.
	Exact bool
	// Complete is set where all is true but sizes and times: the member must be usable,
	// though no attack came before.
	Complete bool
	// Holds is how many objects are to be held of a kind while it is active.
	Holds map[string]int
	// Late is set where it begins only when the member has been followed for a while.
	Late bool
	// Back is set where what is held must come to equal the truth when the attacks are over.
	Back bool
	// Refused is set where a kind is not to be followed as it is served, and to be named.
	Refused bool
	// FindingBytes is how many bytes policies may hold of what they find.
	FindingBytes int64
	// Overfull is set where views hold more than they may.
	Overfull bool
	// Endless is set where a flood goes on until the attack is over.
	Endless bool
	// Then is active after it, as if nothing had happened: no watch ends as too
	// old.
	Then *Attack
}

// content reports whether the attack has to see JSON.
func (l *Attack) content() bool {
	return l.Document != nil || l.Page != nil || l.Object != nil || l.Event != nil || l.Extra != nil || l.Flood != nil || l.Half != nil
}

// truthful reports whether the attack changes nothing of what is sent.
func (l *Attack) truthful() bool {
	return !l.content() && l.Answer == nil && l.Wire == nil && !l.Bytes && !l.frames()
}

// frames reports whether the attack is of connections.
func (l *Attack) frames() bool { return l.Frame != nil || l.Unread }

// A Class is a kind of attack.
type Class struct {
	Name   string
	Weight int // of its choice
	// Draw returns an attack of the class.
	Draw func(rng *rand.Rand) *Attack
}

// one returns one of its arguments.
func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// object makes an object's outside.
func object(c *Call, kind, namespace, name string) map[string]any {
	meta := map[string]any{
		"name": name, "uid": "00000000-0000-4000-8000-" + digits(c.Rand(name, namespace).Uint64(), 12),
		"resourceVersion": "1001", "creationTimestamp": "2026-01-01T00:00:00Z",
	}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	return map[string]any{"apiVersion": c.APIVersion(), "kind": kind, "metadata": meta}
}

func digits(n uint64, width int) string {
	b := make([]byte, width)
	for i := range b {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return string(b)
}

// metadata returns an object's, made where it has none.
func metadata(object map[string]any) map[string]any {
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	return meta
}

func nameOf(object map[string]any) string {
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}
