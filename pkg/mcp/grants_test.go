package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/seed"
)

// rule grants a user something.
type rule struct {
	user, verb, resource string // * is any
	member               string // "", "a/" or "a/one": in all members, those of a namespace, or one
	namespace            string // of the member's; "" is all, and the hub grants it
}

// grants are what a hub, and members, grant.
type grants []rule

func is(pattern, s string) bool { return pattern == "*" || pattern == s }

// hub answers as RBAC on the hub does.
func (g grants) hub(user string, a *authorizationv1.ResourceAttributes) bool {
	at := "" // of the Clusters that are asked for
	if a.Namespace != "" {
		at = a.Namespace + "/" + a.Name
	}
	return slices.ContainsFunc(g, func(r rule) bool {
		if a.Group == "federator.dev" {
			return r.user == user && is(r.verb, a.Verb) && r.resource == a.Resource && r.member == "hub"
		}
		return a.Group == "members.federator.dev" && r.user == user && is(r.verb, a.Verb) && is(r.resource, a.Resource) && r.namespace == "" && strings.HasPrefix(at, r.member)
	})
}

// Review implements queryapi.MemberReviewer: as RBAC in the member does.
func (g grants) Review(_ context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error) {
	a := review.Spec.ResourceAttributes
	resource := strings.TrimSuffix(a.Resource+"."+a.Group, ".")
	return slices.ContainsFunc(g, func(r rule) bool {
		return "prefix:"+r.user == review.Spec.User && is(r.verb, a.Verb) && is(r.resource, resource) && r.member == member && r.namespace != "" && (r.namespace == "*" || r.namespace == a.Namespace)
	}), nil
}

// mayRead reports whether a user may read an object, by any verb.
func (g grants) mayRead(user string, ref aggregate.Ref, verbs ...string) bool {
	resource := resourceOf(ref.Kind).Resource
	name := resource.GroupResource().String()
	return slices.ContainsFunc(g, func(r rule) bool {
		if r.user != user || r.verb != "*" && !slices.Contains(verbs, r.verb) || !is(r.resource, name) {
			return false
		}
		if r.namespace == "" {
			return strings.HasPrefix(ref.Member, r.member)
		}
		return r.member == ref.Member && (r.namespace == "*" || r.namespace == ref.Namespace)
	})
}

var (
	fuzzMembers    = []string{"a/one", "a/two", "b/one"}
	fuzzNamespaces = []string{"shop", "default"}
)

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// canary is a text that is in one place alone.
var canary = regexp.MustCompile(`zz[0-9]{5}zz`)

// canaries makes them.
type canaries struct{ n int }

func (c *canaries) next() string {
	c.n++
	return fmt.Sprintf("zz%05dzz", c.n)
}

// randomWorld is a fleet in which all that objects, members and Actions say is a canary, and objects name each other.
func randomWorld(rng *rand.Rand) *world {
	c := &canaries{}
	w := &world{withNS: true, rego: []string{replicasPolicy, imagesPolicy, tierPolicy, namesPolicy, readsPolicy}}
	for _, name := range []string{"images", "names", "reads", "replicas", "tier"} {
		w.bindings = append(w.bindings, policy.Binding{Name: name, Package: name})
	}
	for _, m := range fuzzMembers {
		w.members = append(w.members, aggregate.Member{Name: m, UID: "uid-" + m, Version: "v1.36.3", Labels: labels("env", c.next())})
		for _, ns := range fuzzNamespaces {
			w.add(m, "Namespace", ns, nil)
		}
		for range 12 {
			k := pick(rng, kinds...)
			o := w.add(m, k.Kind, c.next(), nil)
			if k.Namespaced {
				o.ref.Namespace = pick(rng, fuzzNamespaces...)
			}
			o.labels, o.notes = map[string]string{"app": c.next()}, map[string]string{"note": c.next()}
			o.body = w.randomBody(rng, c, o)
			if other := pick(rng, w.objects...); k.Namespaced && other.ref.Member == m && other.ref.Namespace == o.ref.Namespace && other.ref.Kind != "Namespace" {
				o.owner = other
			}
			if k.Kind != "Node" && rng.IntN(2) == 0 {
				a := newAction("a-"+c.next(), "replicas", began.Add(time.Duration(c.n)*time.Second), o, "Failed", c.next())
				a.Spec.Target.MemberUID, a.Status.Message = "uid-"+m, c.next()
				w.actions = append(w.actions, a)
			}
		}
	}
	slices.Reverse(w.actions)
	w.randomPast(rng, c)
	return w
}

// randomPast has half of the objects be others before, and some be gone.
func (w *world) randomPast(rng *rand.Rand, c *canaries) {
	for _, o := range slices.Clone(w.objects) {
		switch rng.IntN(6) {
		case 0, 1:
			if o.body != nil {
				w.change(o, w.randomBody(rng, c, o))
			}
		case 2:
			if o.body != nil {
				w.past = append(w.past, past{of: o})
			}
		case 3:
			gone := w.add(o.ref.Member, o.ref.Kind, c.next(), nil)
			gone.ref.Namespace, gone.labels = o.ref.Namespace, map[string]string{"app": c.next()}
			gone.body = w.randomBody(rng, c, gone)
			w.remove(gone)
		}
	}
	w.author, w.commit = c.next(), c.next()
	for _, m := range w.members {
		for _, kind := range []aggregate.Kind{"Pod", "Service"} {
			w.gaps = append(w.gaps, history.Record{Type: history.Gap, Transition: "Gap", Member: m.Name, MemberUID: m.UID, Kind: kind, Message: c.next()})
		}
	}
}

// hasGaps reports whether a user may read what is not known of a kind in a member: where any of it may be listed.
func (g grants) hasGaps(user, member string, kind aggregate.Kind) bool {
	return slices.ContainsFunc(fuzzNamespaces, func(ns string) bool {
		return g.mayRead(user, aggregate.Ref{Member: member, Kind: kind, Namespace: ns, Name: "x"}, "list")
	})
}

func (w *world) randomBody(rng *rand.Rand, c *canaries, o *object) map[string]any {
	of := func(kind aggregate.Kind) string { // the name of one beside it, or of none
		var names []string
		for _, other := range w.objects {
			if other.ref.Member == o.ref.Member && other.ref.Kind == kind && (other.ref.Namespace == o.ref.Namespace || other.ref.Namespace == "") {
				names = append(names, other.ref.Name)
			}
		}
		return pick(rng, append(names, "none")...)
	}
	switch o.ref.Kind {
	case "Pod":
		return map[string]any{
			"spec": map[string]any{
				"nodeName": of("Node"), "containers": []any{map[string]any{"name": c.next(), "image": c.next()}},
				"volumes": []any{map[string]any{"name": "v", "configMap": map[string]any{"name": of("ConfigMap")}}},
			},
			"status": map[string]any{"phase": c.next()},
		}
	case "Deployment.apps", "ReplicaSet.apps":
		return map[string]any{"spec": map[string]any{"replicas": rng.IntN(5)}, "status": map[string]any{"note": c.next()}}
	case "Service":
		return map[string]any{"spec": map[string]any{"selector": map[string]any{"app": c.next()}, "clusterIP": c.next()}}
	}
	return map[string]any{"data": map[string]any{"text": c.next()}}
}

// readsPolicy tells of ConfigMaps what Pods use.
const readsPolicy = `# METADATA
# title: What Pods read
# custom: {severity: low, kinds: [Pod]}
package reads

violation contains {"msg": sprintf("reads %s", [c.data.text])} if {
	name := input.object.spec.volumes[_].configMap.name
	c := data.fleet.objects.ConfigMap[input.ref.member][input.ref.namespace][name]
}
`

// randomGrants are what some users may do.
func randomGrants(rng *rand.Rand, users []string) (g grants) {
	resources := []string{"configmaps", "deployments.apps", "nodes", "pods", "replicasets.apps", "services", "*"}
	for _, user := range users {
		for range 1 + rng.IntN(6) {
			r := rule{user: user, verb: pick(rng, "get", "list", "*", "*"), resource: pick(rng, resources...), member: pick(rng, append(fuzzMembers, "", "a/", "b/")...)}
			if slices.Contains(fuzzMembers, r.member) && rng.IntN(2) == 0 {
				r.namespace = pick(rng, append(fuzzNamespaces, "*")...)
			}
			g = append(g, r)
		}
		for _, of := range []string{"actions", "fleetpolicies", "policysources"} {
			if rng.IntN(2) == 0 {
				g = append(g, rule{user: user, verb: "list", resource: of, member: "hub"})
			}
		}
	}
	return g
}

// known is all that a user may be told.
func (w *world) known(g grants, user string) map[string]bool {
	var text bytes.Buffer
	seen := map[string]bool{}
	for _, o := range w.objects {
		if g.mayRead(user, o.ref, "get", "list", "watch") {
			text.Write(o.record().Body)
			seen[o.ref.Member] = true
		}
	}
	for _, m := range w.members {
		if seen[m.Name] || slices.ContainsFunc(g, func(r rule) bool { return r.user == user && r.member != "hub" && strings.HasPrefix(m.Name, r.member) }) {
			fmt.Fprint(&text, m.Labels)
		}
	}
	for _, a := range w.actions {
		t := a.Spec.Target
		onHub := slices.Contains(g, rule{user: user, verb: "list", resource: "actions", member: "hub"})
		if onHub && g.mayRead(user, aggregate.Ref{Member: t.Member, Kind: aggregate.Kind(t.Kind), Namespace: t.Namespace, Name: t.Name}, "list") {
			out, _ := json.Marshal(a)
			text.Write(out)
		}
	}
	for i := range w.past {
		if p := &w.past[i]; g.mayRead(user, p.of.ref, "list") {
			fmt.Fprint(&text, pastOf(p))
		}
	}
	if slices.Contains(g, rule{user: user, verb: "list", resource: "policysources", member: "hub"}) {
		fmt.Fprint(&text, w.author, w.commit)
	}
	for _, x := range w.gaps {
		if g.hasGaps(user, x.Member, x.Kind) {
			fmt.Fprint(&text, x.Message)
		}
	}
	known := map[string]bool{}
	for _, found := range canary.FindAllString(text.String(), -1) {
		known[found] = true
	}
	return known
}

// tap keeps what a client receives: headers and bodies.
type tap struct {
	http.RoundTripper
	mu  sync.Mutex
	got bytes.Buffer
}

func (p *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	p.mu.Lock()
	fmt.Fprint(&p.got, resp.Header)
	p.got.Write(body)
	p.mu.Unlock()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// take returns what has come since.
func (p *tap) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.got.Reset()
	return p.got.String()
}

// fuzzed is what a run has found.
type fuzzed struct {
	calls, answered int
	leaks           map[string]int // by tool
	examples        []string
	wrong           []string // counts
}

// fuzz has random users call random tools in a random world, whose hub grants what granted says of what the users may do.
func fuzz(t *testing.T, rng *rand.Rand, calls int, granted func(grants) func(string, *authorizationv1.ResourceAttributes) bool) *fuzzed {
	t.Helper()
	w, users := randomWorld(rng), []string{"ann", "bob", "cy", "dan", "eve", "fay"}
	g := randomGrants(rng, users)
	f := start(t, w, func(o *queryapi.Options) { o.Authorization.Members, o.Authorization.UserPrefix = g, "prefix:" })
	f.allow(granted(g))
	out := &fuzzed{leaks: map[string]int{}}
	for _, user := range users {
		known, tapped := w.known(g, user), &tap{RoundTripper: bearer{f.server.Transport(t), user}}
		s := f.sessionBy(t, tapped)
		for range calls {
			tool, args := randomCall(rng, w)
			tapped.take()
			text, failed := call(t, s, tool, args)
			given, _ := json.Marshal(args)
			echoed := string(given) // an error names what it is about
			if out.calls++; !failed {
				out.answered++
				fields, _ := json.Marshal(args["fields"])
				echoed = string(fields) // columns have names
				for _, wrong := range []string{w.checkCount(g, user, tool, args, text), w.checkGaps(g, user, tool, args, text)} {
					if wrong != "" {
						out.wrong = append(out.wrong, wrong)
					}
				}
			}
			for _, found := range canary.FindAllString(tapped.take(), -1) {
				if !known[found] && !strings.Contains(echoed, found) {
					out.leaks[tool]++
					out.examples = append(out.examples, fmt.Sprintf("%s learns %s by %s %s: %s", user, found, tool, given, text))
					break
				}
			}
		}
	}
	return out
}

// checkCount checks that a count of what is not selected further is that of the model.
func (w *world) checkCount(g grants, user, tool string, args map[string]any, text string) string {
	resources, ok := args["resource"].([]string)
	if tool != "count" || !ok || len(args) != 1 {
		return ""
	}
	want := 0
	for _, o := range w.objects {
		r := resourceOf(o.ref.Kind).Resource
		if slices.Contains(resources, r.GroupResource().String()) && g.mayRead(user, o.ref, "list") {
			want++
		}
	}
	var got struct{ Total int }
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Total != want {
		return fmt.Sprintf("%s counts %d %v, %v; the model %d", user, got.Total, resources, err, want)
	}
	return ""
}

// checkGaps checks that the gaps of all that is recorded are those of the model.
func (w *world) checkGaps(g grants, user, tool string, args map[string]any, text string) string {
	if tool != "history" || len(args) != 2 || args["limit"] != 100 || !slices.Equal(args["type"].([]string), []string{"Gap"}) {
		return ""
	}
	want := 0
	for _, x := range w.gaps {
		if g.hasGaps(user, x.Member, x.Kind) {
			want++
		}
	}
	var got struct{ Shown, Gaps int }
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Gaps != want || got.Shown != want {
		return fmt.Sprintf("%s is told of %d gaps, %v; the model %d", user, got.Gaps, err, want)
	}
	return ""
}

// TestGrants_NothingLeaks: whatever is granted and called, nothing is in an answer that the caller may not read.
func TestGrants_NothingLeaks(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	sum := &fuzzed{leaks: map[string]int{}}
	for range 4 {
		got := fuzz(t, rng, 80, func(g grants) func(string, *authorizationv1.ResourceAttributes) bool { return g.hub })
		sum.calls, sum.answered = sum.calls+got.calls, sum.answered+got.answered
		for _, e := range append(got.examples, got.wrong...) {
			t.Error(e)
		}
	}
	t.Logf("%d calls, %d of them answered", sum.calls, sum.answered)
	if sum.answered < sum.calls/4 {
		t.Error("too few calls were answered to show anything")
	}
}

// TestGrants_LeaksAreFound where a server forgets grants: its hub allows everything to everybody, and each tool tells.
func TestGrants_LeaksAreFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	got := fuzz(t, rng, 150, func(grants) func(string, *authorizationv1.ResourceAttributes) bool {
		return func(string, *authorizationv1.ResourceAttributes) bool { return true }
	})
	for _, tool := range []string{"query", "count", "related", "violations", "explain", "actions", "history", "members"} {
		if got.leaks[tool] == 0 {
			t.Errorf("no leak by %s is found", tool)
		}
	}
	for _, what := range []string{"counts", "gaps"} {
		if !strings.Contains(strings.Join(got.wrong, "\n"), what) {
			t.Errorf("no wrong number of %s is found", what)
		}
	}
	t.Logf("%d calls, leaks by tool: %v", got.calls, got.leaks)
}
