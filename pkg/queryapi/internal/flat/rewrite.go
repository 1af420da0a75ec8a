package flat

import (
	"bytes"
	"slices"
	"strconv"
	"sync"

	"federator.dev/federator/api"
	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
)

// Append appends an object of a member, given as canonical JSON at any version of its kind,
// with flat keys: its own, with the original one in an annotation, and those of its
// references. Malformed references, and JSON that is not an object, are copied unchanged.
func (k *Keys) Append(dst, body []byte, member string) []byte {
	w, _ := writers.Get().(*writer)
	w.keys, w.Reader, w.in, w.copied, w.out = k, canonjson.NewReader(body), body, 0, dst
	w.prefix = appendPrefix(w.prefix[:0], member)
	if !w.all() {
		w.copied, w.out = 0, w.out[:len(dst)]
	}
	w.copy(len(body))
	out := w.out
	w.keys, w.Reader, w.in, w.out = nil, canonjson.Reader{}, nil, nil
	writers.Put(w)
	return out
}

// writers are reused for their buffers.
var writers = sync.Pool{New: func() any { return new(writer) }}

// writer copies in to out, with insertions and omissions.
type writer struct {
	canonjson.Reader // of in

	keys   *Keys
	in     []byte
	copied int // bytes of in that are in out
	out    []byte
	prefix []byte
	kind   []byte // buffer
}

// copy copies the input before i.
func (w *writer) copy(i int) {
	w.out = append(w.out, w.in[w.copied:i]...)
	w.copied = i
}

// text reports whether a string that is not empty starts at i.
func (w *writer) text(i int) bool {
	return i+1 < len(w.in) && w.in[i] == '"' && w.in[i+1] != '"'
}

// put writes the flat name for the name at i, if there is one.
func (w *writer) put(i int) {
	if w.text(i) {
		w.copy(i + 1)
		w.out = append(w.out, w.prefix...)
	}
}

// all rewrites the object, and reports false if it is not canonical JSON as far as it was
// read.
func (w *writer) all() bool {
	root := w.keys.root
	found := 0
	for more := w.Open('{'); more && found < len(root.in); more = w.Next('}') { // nothing after it has keys
		key, _ := w.Key()
		n := root.in[string(key)]
		switch {
		case n == nil:
			w.Skip()
		case string(key) == "metadata" && w.Peek() == '{':
			found++
			if !w.metadata(n) {
				return false
			}
		default:
			found++
			w.value(n)
		}
	}
	return w.Err() == nil
}

// value rewrites the next value, or its elements if it is a list.
func (w *writer) value(n *node) {
	switch list := w.Peek() == '['; {
	case list != n.list: // not of the expected type
		w.Skip()
	case !list:
		w.one(n)
	default:
		for more := w.Open('['); more; more = w.Next(']') {
			w.one(n)
		}
	}
}

// one rewrites a value that is not a list.
func (w *writer) one(n *node) {
	switch object := w.Peek() == '{'; {
	case object && n.leaf == objectReference:
		w.reference()
		return
	case object && n.in != nil:
		for more := w.Open('{'); more; more = w.Next('}') {
			key, _ := w.Key()
			if next := n.in[string(key)]; next != nil {
				w.value(next)
			} else {
				w.Skip()
			}
		}
		return
	case n.leaf == namespaceName || n.leaf == clusterName:
		w.put(w.Pos())
	}
	w.Skip()
}

// reference rewrites a reference, whose kind may come after its name.
func (w *writer) reference() {
	var kind, group []byte
	var name, namespace, uid int
	var named, own []byte
	for more := w.Open('{'); more; more = w.Next('}') {
		key, _ := w.Key()
		at := w.Pos()
		value := w.Value()
		if value == nil || !w.text(at) {
			continue
		}
		switch text := value[1 : len(value)-1]; string(key) {
		case "kind":
			kind = text
		case "apiVersion":
			if slash := bytes.IndexByte(text, '/'); slash >= 0 {
				group = text[:slash]
			}
		case "apiGroup", "group":
			group = text
		case "name":
			name, named = at, text
		case "namespace":
			namespace = at
		case "uid":
			uid, own = at, text
		}
	}
	if w.Err() != nil {
		return
	}
	if name > 0 && !w.clusterScoped(kind, group) {
		name = 0
	}
	if name == 0 || !bytes.Equal(named, own) { // kubelets set a Node's name as its uid, by which kubectl searches
		uid = 0
	}
	places := [...]int{name, namespace, uid}
	slices.Sort(places[:])
	for _, at := range places {
		if at > 0 {
			w.put(at)
		}
	}
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

// metadata rewrites metadata, and reports false if it is malformed. The annotations are
// written last, when the original name is known.
func (w *writer) metadata(n *node) bool {
	var original, annotations []byte
	own, annotation := "namespace", originalNamespace
	if !w.keys.namespaced {
		own, annotation = "name", originalName
	}
	start := w.Pos() + 1
	empty, cut := true, false // whether no member precedes the next one, and annotations were cut
	for more := w.Open('{'); more; more = w.Next('}') {
		member := w.Pos()
		key, _ := w.Key()
		at := w.Pos()
		switch next := n.in[string(key)]; {
		case string(key) == own:
			if value := w.Value(); value != nil && w.text(at) {
				original = value
				w.put(at)
			}
		case next != nil:
			w.value(next)
		default:
			w.Skip()
		}
		if w.Err() != nil {
			return false
		}
		if string(key) == "annotations" && !cut && (w.in[at] == '{' || w.in[at] == 'n') {
			cut = true
			end := w.Pos()
			annotations = w.in[at:end]
			if member > start {
				w.copy(member - 1) // the comma goes with it
			} else {
				w.copy(member)
			}
			w.copied = end
			if member == start && w.Peek() == ',' {
				w.copied++
			}
		} else {
			empty = false
		}
	}
	if w.Err() != nil {
		return false
	}
	if !cut && original == nil {
		return true
	}
	w.copy(w.Pos() - 1)
	if !empty {
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, `"annotations":{`...)
	comma := original != nil
	if comma {
		w.out = append(append(append(w.out, annotation...), ':'), original...)
	}
	if !w.annotations(annotations, comma) {
		return false
	}
	w.out = append(w.out, '}')
	return true
}

// annotations appends a member's annotations without those that only federator adds.
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
	r := canonjson.NewReader(of)
	for more := r.Open('{'); more; more = r.Next('}') {
		start := r.Pos()
		key, _ := r.Key()
		r.Skip()
		if string(key) == api.OriginalNamespaceKey || string(key) == api.OriginalNameKey {
			continue
		}
		if comma {
			w.out = append(w.out, ',')
		}
		comma = true
		w.out = append(w.out, of[start:r.Pos()]...)
	}
	return r.Err() == nil
}
