package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// emptyMember is an index of a member that has nothing.
func emptyMember(t testing.TB, block uint64) *aggregate.Index {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(block)})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(aggregate.Member{Name: "prod/a", UID: "uid"}); err != nil {
		t.Fatal(err)
	}
	return x
}

// streamed is what is sent of a member with some scopes, one of which has a dictionary.
func streamed(t testing.TB) []byte {
	t.Helper()
	x := emptyMember(t, 1)
	for kind, n := range map[aggregate.Kind]int{"Pod": 100, "Node": 1, "Secret": 0} {
		s, err := x.OpenScopeAs("prod/a", kind, "v1", "things")
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			s.Upsert(s.Item(&aggregate.Record{
				Namespace: "n", Name: fmt.Sprint("o", i), UID: fmt.Sprint("odd ", i), ResourceVersion: fmt.Sprint(i), Labels: []aggregate.Label{{Key: "a", Value: fmt.Sprint(i % 3)}},
				Owners: []aggregate.Owner{{Kind: "K", Name: "n", UID: "u"}}, Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","spec":{"image":"registry.example.com/%d"}}`, i*7919),
			}))
		}
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		s.Reached(aggregate.Part{ResourceVersion: "7", Served: "v1"})
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for more := true; more; {
		if _, more, err = x.Train(nil); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	sent, err := Send(t.Context(), &out, x.Newest(), "prod/a", SendOptions{Form: func(aggregate.Kind) string { return "form" }})
	if err != nil || sent.Scopes != 3 || sent.Objects != 101 || sent.Bytes != int64(out.Len()) {
		t.Fatalf("sent %+v, %d bytes: %v", sent, out.Len(), err)
	}
	return out.Bytes()
}

const streamObjects, streamBytes = 200, 1 << 20

// receive takes a stream, and checks that what was taken is what there is.
func receive(t testing.TB, stream []byte) (Received, *aggregate.Index, error) {
	t.Helper()
	x := emptyMember(t, 2)
	got, failed := Receive(t.Context(), bytes.NewReader(stream), x, ReceiveOptions{
		Member: "prod/a", UID: "uid", Form: func(aggregate.Kind) string { return "form" }, Wanted: func(aggregate.Kind) bool { return true },
		MaxObjects: streamObjects, MaxBytes: streamBytes,
	})
	objects := 0
	for info := range x.Newest().Scopes("prod/a") {
		_, taken := got.Scopes[info.Kind]
		if parts := x.Newest().Reached("prod/a", info.Kind); (len(parts) > 0) != taken || taken && info.Status.State != aggregate.Stale || !taken && info.Objects > 0 {
			t.Errorf("%s, taken %t: %+v, up to %v", info.Kind, taken, info, parts)
		}
		objects += info.Objects
	}
	if objects > got.Objects || objects > streamObjects {
		t.Errorf("there are %d objects, taken were %d", objects, got.Objects)
	}
	for s := range x.Newest().Scopes("prod/a") { // no writer was left
		scope, err := x.OpenScopeAs("prod/a", s.Kind, s.Version, s.Resource)
		if err != nil {
			t.Fatal(err)
		}
		scope.Close()
	}
	return got, x, failed
}

// TestReceive_EveryCut: wherever a stream ends, what came whole is there and the end is an error.
func TestReceive_EveryCut(t *testing.T) {
	all := streamed(t)
	got, _, err := receive(t, all)
	if err != nil || len(got.Scopes) != 3 || got.Objects != 101 || got.Left != 0 {
		t.Fatalf("%+v: %v", got, err)
	}
	step := 1
	if testing.Short() {
		step = 97
	}
	for n := 0; n < len(all); n += step {
		var torn *frames.TornError
		if _, _, err := receive(t, all[:n]); !errors.As(err, &torn) {
			t.Fatalf("cut at %d of %d: %v", n, len(all), err)
		}
	}
}

// TestSend_LeavesOutWhatNobodyTakes: a scope of more namespaces than a reader lets come is listed there, and the others are taken.
func TestSend_LeavesOutWhatNobodyTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads what it has written, slowly where races are looked for")
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(aggregate.Member{Name: "prod/a", UID: "uid"}); err != nil {
		t.Fatal(err)
	}
	for kind, parts := range map[aggregate.Kind]int{"Node": 1, "Pod": maxStreamParts + 1, "Role": maxStreamParts, "Secret": 1} {
		s, err := x.OpenScopeAs("prod/a", kind, "v1", "things")
		if err != nil {
			t.Fatal(err)
		}
		for i := range parts {
			s.Reached(aggregate.Part{Namespace: fmt.Sprint("n", i), ResourceVersion: "7", Served: "v1"})
		}
		s.SetStatus(aggregate.Status{State: aggregate.Synced, Reason: map[bool]string{true: strings.Repeat("a", maxStreamScope)}[kind == "Node"]})
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if _, err := Send(t.Context(), &out, x.Newest(), "prod/a", SendOptions{Form: func(aggregate.Kind) string { return "form" }}); err != nil {
		t.Fatal(err)
	}
	got, _, err := receive(t, out.Bytes())
	if _, role := got.Scopes["Role"]; err != nil || len(got.Scopes) != 2 || !role {
		t.Errorf("%d scopes were taken: %v", len(got.Scopes), err)
	}
}

// FuzzReceive: whatever comes, an index has scopes that came whole, or nothing of them.
func FuzzReceive(f *testing.F) {
	all := streamed(f)
	f.Add(all)
	f.Add(all[:len(all)/2])
	f.Add([]byte("H"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		_, _, _ = receive(t, sums(stream)) //nolint:errcheck // it is judged by what is there
	})
}

// sums sets the checksums of what may be frames, so that the fuzzer reaches what is behind them.
func sums(stream []byte) []byte {
	var out []byte
	for len(stream) >= frames.HeaderBytes {
		length := min(int(stream[0])|int(stream[1])<<8|int(stream[2])<<16, len(stream)-frames.HeaderBytes)
		out = frames.Append(out, nil, 0, stream[12], 1, stream[frames.HeaderBytes:frames.HeaderBytes+length])
		stream = stream[frames.HeaderBytes+length:]
	}
	return append(out, stream...)
}

// withDictionary is an object as an index has written it whose dictionary nobody else has.
func withDictionary(t *testing.T, n int) (encoded []byte, of *aggregate.Dictionary) {
	t.Helper()
	x := emptyMember(t, 3)
	s, err := x.OpenScopeAs("prod/a", "Pod", "v1", "things")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		s.Upsert(s.Item(&aggregate.Record{
			Namespace: "n", Name: fmt.Sprint("o", n, "-", i), UID: fmt.Sprint("odd ", i), ResourceVersion: fmt.Sprint(i),
			Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","spec":{"image":"registry.example.com/%d/%d"}}`, n, i*7919),
		}))
	}
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.Train(nil); err != nil {
		t.Fatal(err)
	}
	var e aggregate.Encoder
	for o := range x.Newest().Objects("prod/a", "Pod") {
		encoded = e.Append(nil, o)
		break
	}
	for of = range e.Dictionaries {
		return encoded, of
	}
	t.Fatal("it has no dictionary")
	return nil, nil
}

// TestSend_ManyDictionaries: a member whose kinds together have more dictionaries than one may have is taken, and of a kind that has
// too many only that kind is not.
func TestSend_ManyDictionaries(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads what it has written, slowly where races are looked for")
	}
	const most = maxStreamDictionaries
	x := emptyMember(t, 1)
	all, objects := map[aggregate.DictionaryID]*aggregate.Dictionary{}, [most + 1][]byte{}
	for n := range objects {
		var d *aggregate.Dictionary
		objects[n], d = withDictionary(t, n)
		var err error
		if all[d.ID()], err = x.ReceiveDictionary(d.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	for kind, some := range map[aggregate.Kind][][]byte{"Pod": objects[:most/2+1], "Node": objects[most/2+1:], "Secret": objects[:]} {
		scope, err := x.OpenScopeAs("prod/a", kind, "v1", "things")
		if err != nil {
			t.Fatal(err)
		}
		var items []aggregate.Item
		for _, encoded := range some {
			item, _, err := scope.Receive(func(id aggregate.DictionaryID) *aggregate.Dictionary { return all[id] }).Next(encoded)
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, item)
		}
		scope.Reached(aggregate.Part{ResourceVersion: "7", Served: "v1"})
		if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	sent, err := Send(t.Context(), &out, x.Newest(), "prod/a", SendOptions{Form: func(aggregate.Kind) string { return "form" }})
	if err != nil || sent.Scopes != 3 || sent.Objects != most+1 {
		t.Fatalf("%+v: %v", sent, err)
	}
	to := emptyMember(t, 2)
	got, err := Receive(t.Context(), &out, to, ReceiveOptions{
		Member: "prod/a", UID: "uid", Form: func(aggregate.Kind) string { return "form" }, Wanted: func(aggregate.Kind) bool { return true },
		MaxObjects: 1 << 20, MaxBytes: 1 << 30,
	})
	if err != nil || got.Objects != most+1 || got.Left != 1 || len(got.Scopes) != 2 {
		t.Errorf("%+v: %v", got, err)
	}
	for o := range to.Newest().Objects("prod/a", "Pod") {
		if _, err := o.AppendBody(nil); err != nil {
			t.Fatal(err)
		}
	}
}
