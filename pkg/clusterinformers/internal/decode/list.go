package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"federator.dev/federator/pkg/aggregate"
)

// ListMeta is a list's metadata.
type ListMeta struct {
	ResourceVersion, Continue string
	RemainingItemCount        *int64
}

// List decodes the body of a list response in place and calls each for its items, in order,
// before the rest has been validated: on an error the caller must discard them. A record is
// valid until each returns; unfit is nil or an error that is [ErrUnfit]. An error of each
// ends the list and is returned unchanged.
func (d *Decoder) List(body []byte, each func(rec *aggregate.Record, unfit error) error) (ListMeta, error) {
	var m metav1.ListMeta
	var err error
	if d.enc == Protobuf {
		err = d.protobufList(body, &m, each)
	} else {
		err = d.jsonList(body, &m, each)
	}
	if err != nil {
		return ListMeta{}, err
	}
	return ListMeta{m.ResourceVersion, m.Continue, m.RemainingItemCount}, nil
}

func (d *Decoder) protobufList(body []byte, m *metav1.ListMeta, each func(*aggregate.Record, error) error) error {
	gvk := schema.GroupVersionKind{Group: d.gvk.Group, Version: d.gvk.Version, Kind: d.gvk.Kind + "List"}
	raw, ok := envelope(body, typeMeta(gvk))
	if !ok {
		var err error
		if raw, err = openEnvelope(body, gvk); err != nil {
			return err
		}
	}
	var rec aggregate.Record
	for n := 0; len(raw) > 0; {
		num, wire, content, rest, ok := nextField(raw)
		switch {
		case !ok || num == 0:
			return fmt.Errorf("%w: %s %d bytes before its end", ErrMalformed, gvk.Kind, len(raw))
		case (num == 1 || num == 2) && wire != wireBytes:
			return fmt.Errorf("%w: %s has field %d of wire type %d", ErrMalformed, gvk.Kind, num, wire)
		case num == 1:
			if err := unmarshalListMeta(m, content); err != nil {
				return err
			}
		case num == 2:
			err := d.item(content, &rec)
			if err != nil && !errors.Is(err, ErrUnfit) {
				return fmt.Errorf("item %d: %w", n, err)
			}
			if err := each(&rec, err); err != nil {
				return err
			}
			n++
		default:
			return fmt.Errorf("%s has field %d: %w", gvk.Kind, num, ErrUnknownField)
		}
		raw = rest
	}
	return nil
}

func unmarshalListMeta(m *metav1.ListMeta, data []byte) (err error) {
	defer recovered(&err)
	if err := m.Unmarshal(data); err != nil {
		return fmt.Errorf("%w: list metadata: %w", ErrMalformed, err)
	}
	return nil
}

// jsonList reads the list itself by hand, so that an item is read at a time: metadata and items may
// come in any order, each at most once; other members are skipped.
func (d *Decoder) jsonList(body []byte, m *metav1.ListMeta, each func(*aggregate.Record, error) error) error {
	l := &listReader{t: &d.t.canonicalizer, body: body}
	var rec aggregate.Record
	return l.list(m, func() error {
		err := d.listItem(l, &rec)
		if err != nil && !errors.Is(err, ErrUnfit) {
			return fmt.Errorf("item %d: %w", l.n, err)
		}
		return each(&rec, err)
	})
}

// list reads the list. item reads the item that comes next.
func (l *listReader) list(m *metav1.ListMeta, item func() error) error {
	if !l.at('{') {
		return l.malformed()
	}
	seen := map[string]bool{}
	for more := !l.at('}'); more; more = l.at(',') {
		key, err := l.key()
		if err != nil {
			return err
		}
		if (key == "metadata" || key == "items") && seen[key] {
			return fmt.Errorf("%w: list with %s twice", ErrMalformed, key)
		}
		switch key {
		case "items":
			seen[key] = true
			err = l.items(item)
		case "metadata":
			seen[key] = true
			var raw []byte
			if raw, err = l.extent(); err == nil {
				if err = utiljson.Unmarshal(raw, m); err != nil {
					err = fmt.Errorf("%w: list metadata: %w", ErrMalformed, err)
				}
			}
		default:
			_, err = l.extent()
		}
		if err != nil {
			return err
		}
	}
	if !l.closed {
		if !l.at('}') {
			return l.malformed()
		}
	}
	if len(bytes.TrimLeft(l.body[l.pos:], " \t\r\n")) > 0 {
		return l.malformed()
	}
	return nil
}

// listReader reads the JSON of a list. It keeps its own position: that of t is the item's.
type listReader struct {
	t      *canonicalizer
	body   []byte
	pos    int
	n      int  // items that were read
	closed bool // the closing brace of an empty list was consumed
}

func (l *listReader) malformed() error {
	return fmt.Errorf("%w: list at byte %d of %d", ErrMalformed, l.pos, len(l.body))
}

// at consumes c if it is the next byte.
func (l *listReader) at(c byte) bool {
	t := l.t
	t.in, t.pos = l.body, l.pos
	if t.next() != c {
		return false
	}
	l.pos = t.pos + 1
	if c == '}' {
		l.closed = true
	}
	return true
}

// extent skips a value and returns its bytes.
func (l *listReader) extent() ([]byte, error) {
	t := l.t
	t.in, t.pos, t.depth = l.body, l.pos, 0
	t.next()
	start := t.pos
	if t.skip() {
		l.pos = t.pos
		return l.body[start:l.pos], nil
	}
	// Deeply nested, or with numbers that skip does not handle, or malformed.
	v := json.NewDecoder(bytes.NewReader(l.body[start:]))
	var raw json.RawMessage
	if err := v.Decode(&raw); err != nil {
		return nil, fmt.Errorf("%w: list at byte %d: %w", ErrMalformed, start, err)
	}
	l.pos = start + int(v.InputOffset())
	return raw, nil
}

func (l *listReader) key() (string, error) {
	t := l.t
	t.in, t.pos = l.body, l.pos
	if t.next() != '"' {
		return "", l.malformed()
	}
	raw, err := l.extent()
	if err != nil {
		return "", err
	}
	var key string
	if err := json.Unmarshal(raw, &key); err != nil {
		return "", fmt.Errorf("%w: list: %w", ErrMalformed, err)
	}
	if !l.at(':') {
		return "", l.malformed()
	}
	return key, nil
}

func (l *listReader) items(item func() error) error {
	if !l.at('[') {
		raw, err := l.extent()
		if err != nil {
			return err
		}
		if string(raw) != "null" {
			return fmt.Errorf("%w: items of a list are %.20q", ErrMalformed, raw)
		}
		return nil
	}
	if l.at(']') {
		return nil
	}
	for ; ; l.n++ {
		if err := item(); err != nil {
			return err
		}
		if l.at(']') {
			return nil
		}
		if !l.at(',') {
			return l.malformed()
		}
	}
}

// listItem reads the item that comes next.
func (d *Decoder) listItem(l *listReader, rec *aggregate.Record) error {
	d.reset()
	t := &d.t
	t.in, t.pos, t.depth, t.members = l.body, l.pos, 0, t.members[:0]
	if t.canonicalizer.value(root) {
		l.pos = t.pos
		return d.finish(rec)
	}
	raw, err := l.extent()
	if err != nil {
		return err
	}
	return d.fallBackJSON(rec, raw)
}
