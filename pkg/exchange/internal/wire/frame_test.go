package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
)

func record() *aggregate.Record {
	return &aggregate.Record{
		Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7",
		Labels: []aggregate.Label{{Key: "app", Value: "x"}, {Key: "tier", Value: ""}},
		Owners: []aggregate.Owner{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "o", Controller: true}},
		Body:   []byte(`{"c":{"v":{"k":[1]}}}`),
	}
}

// asked is what an importer may ask for.
func asked() []byte {
	var b interest.Builder
	b.Add(interest.Names("Pod"), 7)
	b.AddAll(interest.View("v"))
	p, err := Interest{Number: 4, More: true, Set: b.Take()}.Append(nil)
	if err != nil {
		panic(err)
	}
	return p
}

// stream is a stream with a frame of each type.
func stream() []byte {
	var out bytes.Buffer
	w := NewWriter(&out)
	put := func(t Type, p []byte) {
		if err := w.Frame(t, p); err != nil {
			panic(err)
		}
	}
	put(TypeHello, Hello{Version: Version, Process: "a", Epoch: 1 << 50}.Append(nil))
	put(TypePing, nil)
	put(TypeBegin, Begin{Sequence: 3, State: true, Interest: 4}.Append(nil))
	put(TypeMember, Member{Name: "ns/m", Full: true, JSON: MemberJSON(aggregate.Member{Name: "ns/m", UID: "u", Serves: []aggregate.Kind{}})}.Append(nil))
	put(TypeScope, Scope{Kind: "Pod", Version: "digest", Resource: "pods", Status: aggregate.Status{State: aggregate.Partial, Reason: "why"}, Replace: true}.Append(nil))
	put(TypeRecord, AppendRecord(nil, record()))
	put(TypeDelete, Delete{"ns", "b"}.Append(nil))
	put(TypeNoScope, AppendName(nil, "Job.batch"))
	put(TypeEnd, End{Records: 1, Digest: 1 << 63}.Append(nil))
	put(TypeGone, AppendName(nil, "ns/other"))
	put(TypeInterest, asked())
	put(TypeFrontier, Frontier{Epoch: 1 << 50, Sequence: 3, Revision: 9, Time: 12, Interest: 4}.Append(nil))
	return out.Bytes()
}

// parse reads a stream to its end as an importer does.
func parse(in io.Reader) (frames int, err error) {
	r := NewReader(in, 1<<20)
	var rec aggregate.Record
	for {
		t, p, err := r.Next()
		if err != nil {
			return frames, err
		}
		switch t {
		case TypeHello:
			_, err = ParseHello(p)
		case TypeBegin:
			_, err = ParseBegin(p)
		case TypeMember:
			var m Member
			if m, err = ParseMember(p); err == nil && len(m.JSON) > 0 {
				_, err = ParseMemberJSON(m.Name, m.JSON)
			}
		case TypeScope:
			_, err = ParseScope(p)
		case TypeRecord:
			err = ParseRecord(p, &rec)
		case TypeDelete:
			_, err = ParseDelete(p)
		case TypeEnd:
			_, err = ParseEnd(p)
		case TypeFrontier:
			_, err = ParseFrontier(p)
		case TypeInterest:
			var i Interest
			if i, err = ParseInterest(p); err == nil {
				_, err = i.Append(nil)
			}
		}
		if err != nil {
			return frames, r.Malformed(err.Error())
		}
		frames++
	}
}

func TestFrames_AreReadAsTheyWereWritten(t *testing.T) {
	n, err := parse(bytes.NewReader(stream()))
	if n != 12 || !errors.Is(err, io.EOF) {
		t.Fatalf("%d frames, %v", n, err)
	}
	var got aggregate.Record
	if err := ParseRecord(AppendRecord(nil, record()), &got); err != nil || !reflect.DeepEqual(&got, record()) {
		t.Fatalf("%+v, %v", got, err)
	}
	scope := Scope{Kind: "Pod", Version: "d", Resource: "pods", Status: aggregate.Status{State: aggregate.Stale, Reason: "r", Unread: true}}
	if back, err := ParseScope(scope.Append(nil)); err != nil || back != scope {
		t.Fatalf("%+v, %v", back, err)
	}
}

// TestFrames_AFlippedBitIsNoticed flips each bit of a stream: it is malformed, or ends in a frame, before its frontier.
func TestFrames_AFlippedBitIsNoticed(t *testing.T) {
	whole := stream()
	for i := range len(whole) * 8 {
		bad := bytes.Clone(whole)
		bad[i/8] ^= 1 << (i % 8)
		_, err := parse(bytes.NewReader(bad))
		if err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("bit %d of byte %d: %v", i%8, i/8, err)
		}
	}
}

func TestFrames_ErrorsSayWhere(t *testing.T) {
	whole := stream()
	_, err := parse(bytes.NewReader(append(bytes.Clone(whole), 77)))
	var bad *MalformedError
	if !errors.As(err, &bad) || bad.Frame != 13 || bad.Offset != int64(len(whole)) || bad.Type != 77 {
		t.Fatalf("%v, %+v", err, bad)
	}
	_, err = parse(bytes.NewReader([]byte{byte(TypeRecord), 0xff, 0xff, 0xff, 0xff, 0x7f}))
	if !errors.As(err, &bad) || bad.Frame != 1 || bad.Type != TypeRecord {
		t.Fatalf("a length beyond the limit: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	whole := stream()
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{byte(TypeRecord), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{byte(TypeFrontier), 0})
	f.Add(append([]byte{byte(TypeInterest), 20}, make([]byte, 20)...))
	f.Add([]byte{byte(TypeRecord), 7, 0, 1, 'a', 0, 0, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := parse(bytes.NewReader(in)); err == nil {
			t.Fatal("a stream has no end")
		}
	})
}
