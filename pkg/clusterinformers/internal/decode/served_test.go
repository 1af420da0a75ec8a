package decode_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/queryapi"
)

// offered is what the members of the fuzzer serve.
type offered []queryapi.ServedResource

func (o offered) Resources() ([]queryapi.ServedResource, <-chan struct{}) { return o, nil }
func (offered) LastContact(string, aggregate.Kind) time.Time              { return time.Time{} }

// answered is a query API over an index that two members write to.
type answered struct {
	t      testing.TB
	server *queryapi.Server
	scopes map[string]*aggregate.Scope // by member and kind
}

// fuzzed are the kinds that are served: each is held at one version and requested
// at all of them.
var fuzzed = []struct {
	held  schema.GroupVersionKind
	paths []string
}{
	{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, []string{"/api/v1/pods"}},
	{
		schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"},
		[]string{"/apis/autoscaling/v1/horizontalpodautoscalers", "/apis/autoscaling/v2/horizontalpodautoscalers"},
	},
	{schema.GroupVersionKind{Group: "shop.example", Version: "v1", Kind: "Widget"}, []string{"/apis/shop.example/v1/widgets"}},
}

func newAnswered(t testing.TB) *answered {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	a := &answered{t: t, scopes: map[string]*aggregate.Scope{}}
	var all offered
	for _, k := range fuzzed {
		kind := aggregate.MakeKind(k.held.Kind, k.held.Group)
		for _, p := range k.paths {
			parts := strings.Split(p, "/")
			n := len(parts)
			all = append(all, queryapi.ServedResource{Kind: kind, Namespaced: true, Resource: schema.GroupVersionResource{Group: k.held.Group, Version: parts[n-2], Resource: parts[n-1]}})
		}
		for _, m := range []string{"fleet/good", "fleet/odd"} {
			if err := index.PutMember(aggregate.Member{Name: m, UID: m}); err != nil {
				t.Fatal(err)
			}
			if a.scopes[m+k.held.Kind], err = index.OpenScope(m, kind, k.held.GroupVersion().String()); err != nil {
				t.Fatal(err)
			}
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.server, err = queryapi.New(queryapi.Options{Index: index, Fleet: all, Logger: slog.New(slog.DiscardHandler), Listener: listener, Local: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.server.Close() }) //nolint:errcheck // the test is over
	return a
}

func (a *answered) get(t *testing.T, path, accept string) (int, []byte) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.TLS = &tls.ConnectionState{}
	r.Header.Set("Authorization", "Bearer "+a.server.Token())
	r.Header.Set("Accept", accept)
	a.server.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

// hold makes a member hold one object.
func (a *answered) hold(t *testing.T, member, kind string, rec *aggregate.Record) {
	t.Helper()
	s := a.scopes[member+kind]
	if _, err := s.Replace([]aggregate.Item{s.Item(rec)}, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
}

// FuzzServed holds that what is kept of one member takes nothing from readers of
// the fleet: every way to list the kind answers, with the objects of both members.
func FuzzServed(f *testing.F) {
	good := `{"metadata":{"name":"good","namespace":"shop","uid":"u","resourceVersion":"1"}}`
	for i := range fuzzed {
		for _, text := range []string{
			good,
			`{"apiVersion":"bogus/v9","metadata":{"name":"x","namespace":"n"}}`,
			`{"metadata":{"name":"x","namespace":"n","annotations":"boom"}}`,
			`{"metadata":{"name":"x","namespace":"n","annotations":{"a":{"b":[1]}},"labels":7,"ownerReferences":{}},"spec":[]}`,
			`{"metadata":{"name":"x","namespace":"n","annotations":{"autoscaling.alpha.kubernetes.io/metrics":"boom"}},"spec":{"maxReplicas":1}}`,
			`{"metadata":{"name":"x","namespace":"n","annotations":{"a":"\u007f\u0085\ufeff\uffff\u0000\ud800"}},"status":{"a":"` + "\x7f\u0080\ufffe" + `"}}`,
			`{"metadata":{"name":"x","namespace":"n"},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1e-999999999"}}}]}}`,
			`{"metadata":{"name":"<<","namespace":"n"},"<<":{"a":1},"=":{"null":null,"~":"~","y":"y"}}`,
		} {
			f.Add(uint8(i), []byte(text))
		}
	}
	a := newAnswered(f)
	decoders := make([]*decode.Decoder, len(fuzzed))
	for i, k := range fuzzed {
		var err error
		if decoders[i], err = decode.New(k.held, decode.JSON, decode.Rules{}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, of uint8, text []byte) {
		i := int(of) % len(fuzzed)
		k := fuzzed[i]
		var rec aggregate.Record
		if err := decoders[i].Object([]byte(good), &rec); err != nil {
			t.Fatal(err)
		}
		a.hold(t, "fleet/good", k.held.Kind, &rec)
		if decoders[i].Object(text, &rec) != nil || rec.Namespace == "" {
			t.Skip("is not kept")
		}
		a.hold(t, "fleet/odd", k.held.Kind, &rec)
		for _, path := range k.paths {
			for _, accept := range []string{
				"application/json", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml",
				"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
			} {
				code, body := a.get(t, "/fleet"+path+"?includeObject=Object", accept)
				if code != http.StatusOK {
					t.Fatalf("%s as %s of %s: %d %s", path, accept, rec.Body, code, body)
				}
				if accept == "application/yaml" {
					continue
				}
				var list struct{ Items, Rows []json.RawMessage }
				if err := json.Unmarshal(body, &list); err != nil || len(list.Items)+len(list.Rows) != 2 {
					t.Fatalf("%s as %s of %s: %v %s", path, accept, rec.Body, err, body)
				}
			}
		}
	})
}
