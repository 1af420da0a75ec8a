package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

const (
	askedMembers  = 100
	askedActions  = 50_000
	askedPage     = 100 // items
	naiveAnswers  = 3   // of each naive way, which takes long
	violationsURL = "/query/v1/violations"
)

// askPolicies asks a fleet of a million objects of 100 members, of which the policies of the library are
// evaluated, and whose hub has 50,000 Actions. The baseline is what the same takes of all verdicts, one by
// one, or of all Actions, decoded, in the same process.
func askPolicies(ctx context.Context, b *bench) ([]row, error) {
	objects := b.n(1_000_000)
	var got figures
	if err := b.child(ctx, "policy-queries", &got, b.corpus, strconv.Itoa(objects)); err != nil {
		return nil, err
	}
	fleet := fmt.Sprintf("asked by one who may read all of %.0f objects, %d members, %.0f policies of the library, %.0f verdicts, %.0f findings", got["objects"], askedMembers, got["policies"], got["verdicts"], got["findings"])
	hub := fmt.Sprintf("%d Actions, first %d", askedActions, askedPage)
	var rows []row
	for _, q := range policyQuestions {
		of, naive := fleet, "a pass over all verdicts"
		if q.name == "actions" {
			of, naive = hub, "all Actions decoded from JSON"
		}
		note := fmt.Sprintf("%s: p50 %.2f p99 %.2f ms, %.3f MB; baseline %s, p50 of %d %.1f ms", of, got[q.name+"-p50"], got[q.name+"-p99"], got[q.name+"-bytes"]/1e6, naive, naiveAnswers, got[q.name+"-naive"])
		name := fmt.Sprintf("query/%s_%dk", q.name, objects/1000)
		if q.name == "actions" {
			name = fmt.Sprintf("query/actions_%dk", askedActions/1000)
		}
		rows = append(rows, lower(name, "ms p50", got[q.name+"-p50"], got[q.name+"-naive"], note))
	}
	return rows, nil
}

// policyQuestions are asked of the query API.
var policyQuestions = []struct {
	name, path string
	times      int
}{
	{"policies", "/query/v1/policies", 100},
	{"actions", "/query/v1/actions?limit=" + strconv.Itoa(askedPage), 100},
	{"violations_groups", violationsURL + "?groupBy=policy&groupBy=member", 20}, // it looks at all findings
	{"violations_severity", violationsURL + "?orderBy=severity&limit=" + strconv.Itoa(askedPage), 100},
}

// appFleet says that the members of an appSet serve its kinds.
type appFleet map[aggregate.Kind]bool

func (f appFleet) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	var out []queryapi.ServedResource
	for kind := range f {
		name, group, _ := strings.Cut(string(kind), ".")
		resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(name) + "s"}
		out = append(out, queryapi.ServedResource{Kind: kind, Resource: resource, Namespaced: true})
	}
	return out, nil
}

func (f appFleet) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) { return f, nil }

func (appFleet) LastContact(string, aggregate.Kind) time.Time { return time.Now() }

// policyQueries answers the questions in this process, in both ways.
func policyQueries(ctx context.Context, corpus string, objects int) (out figures, err error) {
	debug.SetGCPercent(chartGC)
	set, bindings, others, err := libraryBindings()
	if err != nil {
		return nil, err
	}
	s, err := newAppSetIn(ctx, corpus, askedMembers, objects, mixed, others)
	if err != nil {
		return nil, err
	}
	s.bodies = nil
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	actions, err := newActionHub(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, actions.server.Close()) }()
	reader, err := hubreader.New(hubreader.Options{Config: &rest.Config{Host: actions.address}, Namespace: "federator"})
	if err != nil {
		return nil, err
	}
	loop, err := enforce.New(enforce.Options{Index: s.index, Set: set, Bindings: bindings})
	if err != nil {
		return nil, err
	}
	served := appFleet{}
	for _, kind := range append(others, pod, deployment, ingress) {
		served[kind] = true
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server, err := queryapi.New(queryapi.Options{
		Index: s.index, Fleet: served, Logger: slog.New(slog.DiscardHandler), Listener: listener, Local: true,
		Queries: map[string]queryapi.Query{
			"policies":   &policyquery.Policies{Kinds: served.Kinds, Loop: loop, Hub: reader},
			"actions":    policyquery.Actions{Kinds: served.Kinds, Index: s.index, Hub: reader},
			"violations": policyquery.Violations{Kinds: served.Kinds, Loop: loop},
		},
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	for _, run := range []func(context.Context) error{loop.Run, reader.Run, server.Run} {
		running.Go(func() { _ = run(ctx) }) //nolint:errcheck // they end with the context
	}
	if err := evaluatedAndRead(ctx, loop, reader); err != nil {
		return nil, err
	}
	state := loop.State()
	out = figures{"policies": float64(len(bindings)), "objects": float64(askedMembers * (s.counts[pod] + s.counts[deployment] + s.counts[ingress]))}
	fleet, err := newAsker(&rest.Config{Host: "https://" + listener.Addr().String(), BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.CertificateAuthority()}})
	if err != nil {
		return nil, err
	}
	for _, q := range policyQuestions {
		got, err := fleet.repeat(ctx, q.times, q.path, asJSON)
		if err != nil {
			return nil, err
		}
		out[q.name+"-p50"], out[q.name+"-p99"], out[q.name+"-bytes"] = ms(got.whole, 0.5), ms(got.whole, 0.99), float64(got.bytes)
	}
	return out, naiveWays(state, actions, out)
}

// libraryBindings are the policies of the library, as they are by default, and the kinds that they read.
func libraryBindings() (*policy.Set, []policy.Binding, []aggregate.Kind, error) {
	set, _, err := shippedTwenty()
	if err != nil {
		return nil, nil, nil, err
	}
	bindings, _ := policy.DefaultBindings(set, nil)
	others := slices.DeleteFunc(kindsOf(set), func(kind aggregate.Kind) bool { return appVersions[kind] != "" })
	return set, bindings, others, nil
}

// evaluatedAndRead waits until all objects are evaluated, and the hub's Actions are held.
func evaluatedAndRead(ctx context.Context, loop *enforce.Loop, reader *hubreader.Reader) error {
	for {
		n, newer, changed := 0, loop.Newer(loop.Point()), reader.Changes(policyquery.HubActions)
		if all, _, err := reader.Actions(); err == nil {
			for range all {
				n++
			}
		}
		_, failed := reader.FleetPolicies()
		if state := loop.State(); state != nil && state.Synced && n == askedActions && failed == nil {
			return nil
		}
		select {
		case <-newer:
		case <-changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// actionHub is a hub that has Actions and nothing else, and on which nothing happens.
type actionHub struct {
	actions []json.RawMessage
	address string
	server  *http.Server
}

func newActionHub(ctx context.Context, s *appSet) (*actionHub, error) {
	h := &actionHub{}
	phases := []v1alpha1.ActionPhase{v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp, v1alpha1.PhaseFailed, v1alpha1.PhasePending}
	for i := range askedActions {
		a := &v1alpha1.Action{}
		a.APIVersion, a.Kind = "federator.dev/v1alpha1", "Action"
		a.Name, a.ResourceVersion = fmt.Sprintf("a-%06d", i), strconv.Itoa(i+1)
		a.CreationTimestamp.Time = time.Unix(1_780_000_000+int64(i), 0)
		a.Spec.Binding, a.Spec.Violation = fmt.Sprint("policy-", i%40), "the image is of a registry that is not allowed"
		a.Spec.Verb, a.Spec.Patch = "patch", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"registry.example.org/app:v1"}]}}}}`
		m := i % askedMembers
		a.Spec.Target = v1alpha1.Target{Member: s.member(m), MemberUID: s.member(m), APIVersion: "apps/v1", Kind: v1alpha1.Kind(deployment), Namespace: namespaceOf(i), Name: nameOf(deployment, m, i), UID: "u", ResourceVersion: "1"}
		a.Status.Phase = phases[i%len(phases)]
		text, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		h.actions = append(h.actions, text)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h.address, h.server = "http://"+l.Addr().String(), &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = h.server.Serve(l) }() //nolint:errcheck // until it is closed
	return h, nil
}

func (h *actionHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") != "" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	var list struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   map[string]string `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	list.Kind, list.APIVersion, list.Metadata, list.Items = "List", "v1", map[string]string{"resourceVersion": "100000"}, []json.RawMessage{}
	if path.Base(r.URL.Path) == string(policyquery.HubActions) {
		from, _ := strconv.Atoi(q.Get("continue"))
		to := min(from+250, len(h.actions))
		if list.Items = h.actions[from:to]; to < len(h.actions) {
			list.Metadata["continue"] = strconv.Itoa(to)
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}
