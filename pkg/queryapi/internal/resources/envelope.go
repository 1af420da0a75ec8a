package resources

import (
	"bytes"
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/internal/rows"
)

// Listed is what a list is of, and its format.
type Listed struct {
	Kind, APIVersion string // of an item; "Table"
	Columns          any    // of a Table
	YAML             bool
}

// Envelope is a list without its items.
type Envelope struct {
	Head  []byte // up to the items
	First string // before the first item
	Empty string // in place of items
	Tail  []byte // after them
	Rows  bool   // the items are rows, each a line, and what is after them says how many there were
}

// End is what is after so many items.
func (a *Envelope) End(n int) []byte {
	if a.Rows {
		return rows.AppendEnd(nil, n)
	}
	return a.Tail
}

// Envelope makes the envelope of a list. In YAML the keys are sorted, as in kube-apiserver.
func (l Listed) Envelope(meta ListMeta) (*Envelope, error) {
	kind, items := l.Kind+"List", "items"
	if l.Columns != nil {
		kind, items = l.Kind, "rows"
	}
	type field struct {
		key   string
		value any
	}
	fields := []field{{"kind", kind}, {"apiVersion", l.APIVersion}, {"metadata", meta}}
	if l.Columns != nil {
		fields = append(fields, field{"columnDefinitions", l.Columns})
	}
	if l.YAML {
		before, after := map[string]any{}, map[string]any{}
		for _, f := range fields {
			if f.key < items {
				before[f.key] = f.value
			} else {
				after[f.key] = f.value
			}
		}
		head, err := yaml.Marshal(before)
		if err != nil {
			return nil, err
		}
		a := &Envelope{Head: append(head, items+":"...), First: "\n", Empty: " []\n"}
		if len(after) > 0 {
			a.Tail, err = yaml.Marshal(after)
		}
		return a, err
	}
	head := []byte{'{'}
	for _, f := range fields {
		text, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		head = append(append(append(appendString(head, f.key), ':'), text...), ',')
	}
	return &Envelope{Head: append(appendString(head, items), ":["...), Tail: []byte("]}\n")}, nil
}

// Held is a list in protobuf, which is held until its client has read it.
type Held struct {
	handler *Handler
	user    string
	head    []byte
	size    int
	items   [][]byte
	taken   int
}

// Hold begins a list in protobuf of a user. Release must be called.
func (h *Handler) Hold(user string, meta ListMeta) (*Held, error) {
	m := metav1.ListMeta{ResourceVersion: meta.ResourceVersion, Continue: meta.Continue, RemainingItemCount: meta.RemainingItemCount}
	head, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	l := &Held{handler: h, user: user, head: protowire.AppendBytes(protowire.AppendTag(nil, fieldListMeta, protowire.BytesType), head)}
	l.size = len(l.head)
	return l, nil
}

// Add adds elements, which it copies. Its errors say why the list is refused: another format may do.
func (l *Held) Add(text []byte) error {
	n := len(text)
	if l.size+n > l.handler.options.MaxProtobufBytes {
		return errTooLarge
	}
	if !l.handler.protobufBudget.acquire(l.user, n) {
		return errNoBudget
	}
	l.taken += n
	l.size += n
	l.items = append(l.items, bytes.Clone(text))
	return nil
}

// Release frees the list.
func (l *Held) Release() {
	l.handler.protobufBudget.release(l.user, l.taken)
	l.taken, l.items = 0, nil
}

// Write writes the list, of items of a type.
func (l *Held) Write(w http.ResponseWriter, item metav1.TypeMeta) {
	item.Kind += "List"
	w.Header().Set("Content-Type", protobufType)
	for _, part := range append([][]byte{append(appendEnvelope(nil, item, l.size), l.head...)}, append(l.items, envelopeEnd)...) {
		if _, err := w.Write(part); err != nil {
			return // the client is gone
		}
	}
}
