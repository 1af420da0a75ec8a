package columns_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
)

// FuzzAppend: whatever a member has sent as a body, its row is a line of the format, or an error.
func FuzzAppend(f *testing.F) {
	f.Add(pod)
	f.Add(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a.b/c":null},"name":"p"},"spec":{"containers":[[{"image":"x"}],null,{"image":["y",{"z":1}]}]},"status":{"phase":7,"conditions":[{"type":"Ready","status":"True"}]}}`)
	f.Add(`{"metadata":{"name":"p","uid":7,"creationTimestamp":["2026-01-02T03:04:05Z"]},"status":{"podIPs":{},"containerStatuses":[{"restartCount":99999999999}]}}`)
	f.Add(`{}`)
	f.Add(`[`)
	w := newWorld(f, map[aggregate.Kind][]string{pods: {pod}})
	const chosen = `phase=.status.phase,images:list=.spec.containers.image,n:int=.spec.n,x:number=.spec.x,b:bool=.spec.b,at:timestamp=.spec.at,q:quantity=.spec.q,doc:json=.spec,key=.metadata.annotations['a.b/c']`
	var encoders []encoder
	for _, printer := range []bool{true, false} {
		set, err := w.set(f, pods, chosen, printer)
		ok(f, err)
		snapshot := w.index.Snapshot()
		o, found := snapshot.Get(aggregate.Ref{Member: "fleet/a", Kind: pods, Namespace: "shop", Name: "web"})
		if !found {
			f.Fatal("there is no pod")
		}
		e := set.Encoder(snapshot.Member)
		encoders = append(encoders, encoder{func(dst []byte, body string) ([]byte, error) { return e.Append(dst, o, []byte(body)) }, set.Columns()})
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, s := range encoders {
			head, err := rows.AppendHeader(nil, &rows.Header{Metadata: rows.Metadata{ResourceVersion: "1"}, Columns: s.columns})
			ok(t, err)
			line, err := s.append(nil, body)
			if err != nil {
				continue
			}
			if !json.Valid(line) && json.Valid([]byte(body)) {
				t.Fatalf("%s is no JSON, of %s", line, body)
			}
			if !json.Valid([]byte(body)) {
				continue // the index holds JSON alone
			}
			in, err := rows.NewReader(strings.NewReader(string(rows.AppendEnd(append(head, line...), 1))))
			ok(t, err)
			if _, err := in.Next(); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if _, err := in.Next(); !errors.Is(err, io.EOF) {
				t.Fatalf("%s: %v", line, err)
			}
		}
	})
}

// encoder is an Encoder for one object, whatever its body is.
type encoder struct {
	append  func(dst []byte, body string) ([]byte, error)
	columns []rows.Column
}
