package persistence

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// reader returns what loads a member, into an index of its own.
func reader(t testing.TB) *memberReader {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(9), Hold: true, Fields: map[aggregate.Kind][]string{"Pod": {"spec.nodeName"}}})
	if err != nil {
		t.Fatal(err)
	}
	l := x.Load()
	return &memberReader{
		loader: l, name: "prod/eu-1", form: func(aggregate.Kind) string { return "form" },
		forms: map[aggregate.Kind]string{}, progress: &atomic.Int64{}, to: l.Member(aggregate.Member{Name: "prod/eu-1"}),
	}
}

// batches are some that were written.
func batches(t testing.TB) (out [][]byte) {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true, Fields: map[aggregate.Kind][]string{"Pod": {"spec.nodeName"}}})
	if err != nil {
		t.Fatal(err)
	}
	last := x.Newest()
	m := newMemberLog(t.TempDir(), "prod/eu-1", 1, &frames.File{})
	batch := func() {
		p, _ := x.Pending(last)
		commits, ok := p.Commits()
		if !ok {
			t.Fatal("the log is cut")
		}
		for c := range commits {
			m.commit(&c)
		}
		last = p.Snapshot()
		for kind := range m.states {
			info, _ := last.Scope("prod/eu-1", kind)
			m.payload = appendText(appendState(append(m.payload, tagState), kind, info.Status, last.Reached("prod/eu-1", kind)), "form")
		}
		out = append(out, append([]byte(nil), m.payload...))
		m.reset()
	}
	if err := x.PutMember(aggregate.Member{Name: "prod/eu-1", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	s, err := x.OpenScope("prod/eu-1", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	record := func(name, rv, uid string) aggregate.Item {
		return s.Item(&aggregate.Record{
			Namespace: "n", Name: name, UID: uid, ResourceVersion: rv, Labels: []aggregate.Label{{Key: "app", Value: "a"}},
			Owners: []aggregate.Owner{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "o"}},
			Body:   []byte(`{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"n1"}}`),
		})
	}
	batch()
	s.Upsert(record("a", "1", "00000000-0000-4000-8000-000000000001"))
	s.Upsert(record("b", "odd", "odd"))
	s.Reached(aggregate.Part{ResourceVersion: "5", Served: "v1.36.0"})
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	batch()
	s.Delete("n", "a")
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Remove()
	batch()
	return out
}

// FuzzBatch: whatever a batch has, it is applied or refused, and the index is as one can be.
func FuzzBatch(f *testing.F) {
	for _, b := range batches(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := reader(t)
		if err := r.to.Settle(); err != nil {
			t.Fatal(err)
		}
		if err := r.apply(in); err != nil {
			return
		}
		r.dropOthers()
		if _, err := r.loader.Finish(1); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzTail is FuzzBatch for the commits that led to a segment.
func FuzzTail(f *testing.F) {
	b := batches(f)
	f.Add(b[1], b[1])
	f.Fuzz(func(t *testing.T, base, in []byte) {
		r := reader(t)
		if r.apply(base) != nil {
			return
		}
		r.past = in
		if r.tail() != nil || r.to.Settle() != nil {
			return
		}
		if _, err := r.loader.Finish(1); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzFile: whatever the files of a member have, the rest of the fleet is loaded.
func FuzzFile(f *testing.F) {
	f.Add([]byte("segment"), []byte("log"))
	f.Fuzz(func(t *testing.T, segment, log []byte) {
		r := reader(t)
		r.to, r.dir = nil, t.TempDir()
		for name, content := range map[string][]byte{fileName(1, segmentType): segment, fileName(1, logType): log} {
			if err := os.WriteFile(filepath.Join(r.dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.load(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// framed writes a file of one frame, whose payload is what is to be decoded: it is sound as a file.
func framed(t *testing.T, path, typ string, kind byte, key, payload []byte) {
	t.Helper()
	h := header{Format: formatVersion, Type: typ, Salt: frames.NewSalt(), Sealed: len(key) > 0}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	f, err := frames.Create(path, key, text, h.Salt, keyInfo)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Add(kind, 7, payload)
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
}

// keyOf is a key or, where files are not sealed, none.
func keyOf(sealed bool) []byte {
	if sealed {
		return make([]byte, 32)
	}
	return nil
}

// FuzzEnds: whatever the file says of how far others go, it is understood or refused.
func FuzzEnds(f *testing.F) {
	f.Add(false, appendEnd(appendEnd(nil, "prod/eu-1", end{3, 4096}), "prod/eu-2", end{}))
	f.Add(true, appendEnd(nil, "prod/eu-1", end{1, 1 << 40}))
	f.Add(false, appendEnd(nil, "prod/eu-1", end{1, -1}))
	f.Fuzz(func(t *testing.T, sealed bool, payload []byte) {
		s := &Store{opts: Options{Directory: t.TempDir(), Key: keyOf(sealed)}}
		framed(t, filepath.Join(s.opts.Directory, endsName), endsType, typeAllEnds, s.opts.Key, payload)
		tip, all, err := s.readEnds()
		if err == nil && (tip != 7 || all == nil) || err != nil && (tip != 0 || all != nil) {
			t.Fatalf("revision %d, %v: %v", tip, all, err)
		}
		for name, e := range all {
			if e.number == 0 || e.size < 0 {
				t.Fatalf("%q ends at %+v", name, e)
			}
		}
	})
}

// FuzzDictionary: whatever a dictionary has, bodies are decoded by it or it is refused.
func FuzzDictionary(f *testing.F) {
	f.Add(false, []byte("dictionary"))
	f.Add(true, bytes.Repeat([]byte(`{"apiVersion":"v1"}`), 100))
	f.Fuzz(func(t *testing.T, sealed bool, payload []byte) {
		s := &Store{opts: Options{Directory: t.TempDir(), Key: keyOf(sealed)}}
		path := filepath.Join(s.opts.Directory, "d")
		framed(t, path, dictionaryType, typeDictionary, s.opts.Key, payload)
		d, err := s.loadDictionary(reader(t).loader, path)
		if err == nil && !bytes.Equal(d.Bytes(), payload) {
			t.Fatalf("%q was written, and %q is read", payload, d.Bytes())
		}
	})
}
