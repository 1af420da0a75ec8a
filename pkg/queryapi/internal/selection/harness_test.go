package selection_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/aggregate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is an object as maps, for the plain oracle.
type object = map[string]any

func decode(t testing.TB, b []byte) object {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var o object
	if err := dec.Decode(&o); err != nil {
		t.Fatalf("%v: %.200s", err, b)
	}
	return o
}

func canonical(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func sub(o object, path ...string) object {
	for _, p := range path {
		o, _ = o[p].(object)
	}
	return o
}

func str(v any) string { s, _ := v.(string); return s }

// record makes the index's record of an object.
func record(t testing.TB, o object) *aggregate.Record {
	t.Helper()
	meta := sub(o, "metadata")
	delete(meta, "managedFields")
	rec := &aggregate.Record{
		Namespace: str(meta["namespace"]), Name: str(meta["name"]), UID: str(meta["uid"]), ResourceVersion: str(meta["resourceVersion"]),
	}
	for k, v := range sub(meta, "labels") {
		rec.Labels = append(rec.Labels, aggregate.Label{Key: k, Value: str(v)})
	}
	slices.SortFunc(rec.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
	rec.Body = canonical(t, o)
	return rec
}

// kindOf returns an object's fleet kind.
func kindOf(o object) aggregate.Kind {
	group, _, ok := strings.Cut(str(o["apiVersion"]), "/")
	if !ok {
		group = ""
	}
	return aggregate.MakeKind(str(o["kind"]), group)
}

// fleet is an index and what was put into it.
type fleet struct {
	t      testing.TB
	index  *aggregate.Index
	scopes map[string]*aggregate.Scope
}

func newFleet(t testing.TB, fields map[aggregate.Kind][]string) *fleet {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(7), Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{t: t, index: x, scopes: map[string]*aggregate.Scope{}}
}

func (f *fleet) join(name string, labels ...string) {
	f.t.Helper()
	m := aggregate.Member{Name: name, UID: "uid-" + name}
	for i := 0; i < len(labels); i += 2 {
		m.Labels = append(m.Labels, aggregate.Label{Key: labels[i], Value: labels[i+1]})
	}
	if err := f.index.PutMember(m); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) scope(member string, kind aggregate.Kind, version string) *aggregate.Scope {
	f.t.Helper()
	key := member + " " + string(kind)
	if f.scopes[key] == nil {
		s, err := f.index.OpenScope(member, kind, version)
		if err != nil {
			f.t.Fatal(err)
		}
		f.scopes[key] = s
	}
	return f.scopes[key]
}

// put adds objects, without a commit.
func (f *fleet) put(member string, objects ...object) {
	f.t.Helper()
	for _, o := range objects {
		s := f.scope(member, kindOf(o), str(o["apiVersion"]))
		s.Upsert(s.Item(record(f.t, o)))
	}
}

func (f *fleet) commit() *aggregate.Snapshot {
	f.t.Helper()
	for _, s := range f.scopes {
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		if _, err := s.Commit(); err != nil {
			f.t.Fatal(err)
		}
	}
	return f.index.Snapshot()
}

const corpusGlob = "../../../../../shared/corpus/*.jsonl"

// corpus returns real objects by kind, without the largest.
var corpus = sync.OnceValues(func() (map[aggregate.Kind][][]byte, error) {
	paths, err := filepath.Glob(corpusGlob)
	if err != nil {
		return nil, err
	}
	out := map[aggregate.Kind][][]byte{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		for s := bufio.NewReader(bytes.NewReader(b)); ; {
			line, err := s.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 && len(line) < 100_000 {
				var o object
				if err := json.Unmarshal(line, &o); err != nil {
					return nil, fmt.Errorf("%s: %w", p, err)
				}
				out[kindOf(o)] = append(out[kindOf(o)], line)
			}
			if err != nil {
				break
			}
		}
	}
	return out, nil
})

// realObjects returns the corpus, or skips.
func realObjects(t testing.TB) map[aggregate.Kind][][]byte {
	t.Helper()
	c, err := corpus()
	if err != nil {
		t.Fatal(err)
	}
	if len(c) == 0 {
		t.Skip("the corpus is absent")
	}
	return c
}
