package flat

import (
	"bytes"
	"slices"
	"strconv"
	"sync"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/scan"
)

// Append appends an object of a member, given as canonical JSON at any version of
// its kind, with flat keys: its own, with the original one in an annotation, and
// those of what it refers to. A reference that is not shaped as its kind has it
// stays as it is, and so does what is no object.
func (k *Keys) Append(dst, body []byte, member string) []byte {
	w, _ := writers.Get().(*writer)
	w.keys, w.in, w.copied, w.out = k, body, 0, dst
	w.prefix = appendPrefix(w.prefix[:0], member)
	if !w.all() {
		w.copied, w.out = 0, w.out[:len(dst)]
	}
	w.copy(len(body))
	out := w.out
	w.keys, w.in, w.out = nil, nil, nil
	writers.Put(w)
	return out
}

// writers are kept for their space.
var writers = sync.Pool{New: func() any { return new(writer) }}

// writer copies in to out, with what it puts and cuts between.
type writer struct {
	keys   *Keys
	in     []byte
	copied int // of in, to out
	out    []byte
	prefix []byte
	kind   []byte // space for one
}

// copy copies what is before i.
func (w *writer) copy(i int) {
	w.out = append(w.out, w.in[w.copied:i]...)
	w.copied = i
}

// text reports whether a string that is not empty starts at i.
func (w *writer) text(i int) bool {
	return i+1 < len(w.in) && w.in[i] == '"' && w.in[i+1] != '"'
}

// put makes the name at i flat, if there is one.
func (w *writer) put(i int) {
	if w.text(i) {
		w.copy(i + 1)
		w.out = append(w.out, w.prefix...)
	}
}

// all rewrites the object, and reports false where it is not canonical JSON as far
// as it was read.
func (w *writer) all() bool {
	root := w.keys.root
	found := 0
	i, more := scan.Open(w.in, 0, '{')
	for more && found < len(root.in) { // what follows has no keys
		key, at := scan.Key(w.in, i)
		if at < 0 {
			return false
		}
		n := root.at(key)
		switch {
		case n == nil:
			i = scan.Value(w.in, at)
		case string(key) == `"metadata"` && at < len(w.in) && w.in[at] == '{':
			found++
			i = w.metadata(n, at)
		default:
			found++
			i = w.value(n, at)
		}
		i, more = scan.Next(w.in, i)
	}
	return i >= 0
}

// at returns what is at a key with its quotes.
func (n *node) at(key []byte) *node {
	return n.in[string(key[1:len(key)-1])]
}

// value rewrites the value that starts at i, or the elements of a list there, and
// returns the index after it, -1 when it is malformed.
func (w *writer) value(n *node, i int) int {
	if i >= len(w.in) {
		return -1
	}
	switch list := w.in[i] == '['; {
	case list != n.list: // not what it is called
		return scan.Value(w.in, i)
	case !list:
		return w.one(n, i)
	}
	i, more := scan.Open(w.in, i, '[')
	for more {
		i, more = scan.Next(w.in, w.one(n, i))
	}
	return i
}

// one rewrites a value that is no list.
func (w *writer) one(n *node, i int) int {
	switch {
	case i >= len(w.in):
		return -1
	case w.in[i] == '{' && n.leaf == objectReference:
		return w.reference(i)
	case w.in[i] == '{' && n.in != nil:
		i, more := scan.Open(w.in, i, '{')
		for more {
			key, at := scan.Key(w.in, i)
			if at < 0 {
				return -1
			}
			if next := n.at(key); next != nil {
				i = w.value(next, at)
			} else {
				i = scan.Value(w.in, at)
			}
			i, more = scan.Next(w.in, i)
		}
		return i
	case n.leaf == namespaceName || n.leaf == clusterName:
		w.put(i)
	}
	return scan.Value(w.in, i)
}

// reference rewrites a reference, whose kind may come after its name.
func (w *writer) reference(i int) int {
	var kind, group []byte
	var name, namespace, uid int
	var named, own []byte
	i, more := scan.Open(w.in, i, '{')
	for more {
		key, at := scan.Key(w.in, i)
		end := scan.Value(w.in, max(at, 0))
		if at < 0 || end < 0 {
			return -1
		}
		if w.text(at) {
			switch text := w.in[at+1 : end-1]; string(key) {
			case `"kind"`:
				kind = text
			case `"apiVersion"`:
				if slash := bytes.IndexByte(text, '/'); slash >= 0 {
					group = text[:slash]
				}
			case `"apiGroup"`, `"group"`:
				group = text
			case `"name"`:
				name, named = at, text
			case `"namespace"`:
				namespace = at
			case `"uid"`:
				uid, own = at, text
			}
		}
		i, more = scan.Next(w.in, end)
	}
	if i < 0 {
		return -1
	}
	if name > 0 && !w.clusterScoped(kind, group) {
		name = 0
	}
	if name == 0 || !bytes.Equal(named, own) { // kubelets write a Node's name as its uid, and kubectl looks for it
		uid = 0
	}
	places := [...]int{name, namespace, uid}
	slices.Sort(places[:])
	for _, at := range places {
		if at > 0 {
			w.put(at)
		}
	}
	return i
}

func (w *writer) clusterScoped(kind, group []byte) bool {
	w.kind = append(w.kind[:0], kind...)
	if len(group) > 0 {
		w.kind = append(append(w.kind, '.'), group...)
	}
	return clusterScoped[string(w.kind)] || len(kind) > 0 && w.keys.ClusterScoped(aggregate.Kind(w.kind))
}

var (
	originalPrefix    = []byte(`"` + api.GroupName + "/original-")
	originalNamespace = []byte(strconv.Quote(api.OriginalNamespaceKey))
	originalName      = []byte(strconv.Quote(api.OriginalNameKey))
)

// metadata rewrites metadata. The annotations come last, as the original name is
// known then.
func (w *writer) metadata(n *node, i int) int {
	var original, annotations []byte
	own, annotation := `"namespace"`, originalNamespace
	if !w.keys.namespaced {
		own, annotation = `"name"`, originalName
	}
	start := i + 1
	empty, cut := true, false // whether nothing is left before i, and there were annotations
	i, more := scan.Open(w.in, i, '{')
	for more {
		key, at := scan.Key(w.in, i)
		if at < 0 {
			return -1
		}
		member := i
		next := n.at(key)
		switch {
		case string(key) == own:
			i = scan.Value(w.in, at)
			if i > 0 && w.text(at) {
				original = w.in[at:i]
				w.put(at)
			}
		case next != nil:
			i = w.value(next, at)
		default:
			i = scan.Value(w.in, at)
		}
		if i < 0 {
			return -1
		}
		if string(key) == `"annotations"` && !cut && (w.in[at] == '{' || w.in[at] == 'n') {
			cut = true
			annotations = w.in[at:i]
			if member > start {
				w.copy(member - 1) // the comma goes with it
			} else {
				w.copy(member)
			}
			w.copied = i
			if member == start && i < len(w.in) && w.in[i] == ',' {
				w.copied++
			}
		} else {
			empty = false
		}
		i, more = scan.Next(w.in, i)
	}
	if i < 0 || !cut && original == nil {
		return i
	}
	w.copy(i - 1)
	if !empty {
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, `"annotations":{`...)
	comma := original != nil
	if comma {
		w.out = append(append(append(w.out, annotation...), ':'), original...)
	}
	if !w.annotations(annotations, comma) {
		return -1
	}
	w.out = append(w.out, '}')
	return i
}

// annotations appends a member's annotations without those that only we give.
func (w *writer) annotations(of []byte, comma bool) bool {
	if len(of) == 0 || of[0] != '{' {
		return true
	}
	if !bytes.Contains(of, originalPrefix) {
		if comma && len(of) > 2 {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, of[1:len(of)-1]...)
		return true
	}
	i, more := scan.Open(of, 0, '{')
	for more {
		key, at := scan.Key(of, i)
		end := scan.Value(of, max(at, 0))
		if at < 0 || end < 0 {
			return false
		}
		if !bytes.Equal(key, originalNamespace) && !bytes.Equal(key, originalName) {
			if comma {
				w.out = append(w.out, ',')
			}
			comma = true
			w.out = append(w.out, of[i:end]...)
		}
		i, more = scan.Next(of, end)
	}
	return i >= 0
}
