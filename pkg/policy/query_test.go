package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/seed"
)

// testObject is one object of a test's fleet.
type testObject struct {
	ref  aggregate.Ref
	host string
}

func (x testObject) body() []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"labels":{"app":%q},"name":%q},"spec":{"host":%q,"list":[1,{"a":%q}]}}`,
		x.ref.Kind, x.ref.Name, x.ref.Name, x.host, x.host)
}

// fleetOf builds an index of members, their scopes and objects.
func fleetOf(t testing.TB, members []string, scopes map[string][]aggregate.Kind, objects []testObject) *aggregate.Snapshot {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		err := index.PutMember(aggregate.Member{Name: m, UID: "uid-" + m, Labels: []aggregate.Label{{Key: "region", Value: m[:2]}}, Version: "v1.36.3", APIs: []string{"v1"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range scopes[m] {
			scope, err := index.OpenScope(m, kind, "v1")
			if err != nil {
				t.Fatal(err)
			}
			var items []aggregate.Item
			for _, x := range objects {
				if x.ref.Member == m && x.ref.Kind == kind {
					items = append(items, scope.Item(&aggregate.Record{
						Namespace: x.ref.Namespace, Name: x.ref.Name, UID: x.ref.String(), ResourceVersion: "1", Body: x.body(),
					}))
				}
			}
			if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
				t.Fatal(err)
			}
			scope.Close()
		}
	}
	return index.Snapshot()
}

// hosts is the view of objects by host.
type hosts []testObject

func (h hosts) Names() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) { yield("federator.hosts", "hosts") }
}

func (h hosts) Keys(string, string) iter.Seq[string] {
	keys := map[string]bool{}
	for _, x := range h {
		keys[x.host] = true
	}
	return slices.Values(slices.Sorted(maps.Keys(keys)))
}

func (h hosts) Entries(_, _, key string) iter.Seq2[aggregate.Ref, ast.Value] {
	return func(yield func(aggregate.Ref, ast.Value) bool) {
		for _, x := range h {
			if x.host == key && !yield(x.ref, ast.String(x.ref.Name)) {
				return
			}
		}
	}
}

// grants are scopes and namespaces that may be read: member kind namespace.
type grants map[aggregate.Ref]bool

func (g grants) MayReadObjects(member string, kind aggregate.Kind, namespace string) bool {
	return g[aggregate.Ref{Member: member, Kind: kind, Namespace: namespace}]
}

func (g grants) MayReadClusters() bool { return false }

// MayReadSource is true of a source that a grant names as the member of a kind that is none.
func (g grants) MayReadSource(source string) bool {
	return g[aggregate.Ref{Member: source, Kind: "external"}]
}

func (g grants) MayReadScope(member string, kind aggregate.Kind) bool {
	for ref := range g {
		if ref.Member == member && ref.Kind == kind {
			return true
		}
	}
	return false
}

func (g grants) MayReadMember(member string) bool {
	for ref := range g {
		if ref.Member == member {
			return true
		}
	}
	return false
}

var (
	testMembers = []string{"eu/one", "eu/two", "us/one"}
	testKinds   = []aggregate.Kind{"Ingress.networking.k8s.io", "Node", "Pod"}
)

func randomObjects(r *rand.Rand) []testObject {
	var out []testObject
	for _, m := range testMembers {
		for _, kind := range testKinds {
			for _, ns := range []string{"a", "b"} {
				if kind == "Node" {
					if ns == "b" {
						continue
					}
					ns = ""
				}
				for _, name := range []string{"x", "y", "z"} {
					if r.IntN(3) > 0 {
						out = append(out, testObject{aggregate.Ref{Member: m, Kind: kind, Namespace: ns, Name: name}, fmt.Sprintf("host-%d", r.IntN(6))})
					}
				}
			}
		}
	}
	return out
}

func allScopes() map[string][]aggregate.Kind {
	out := map[string][]aggregate.Kind{}
	for _, m := range testMembers {
		out[m] = testKinds
	}
	return out
}

var testQueries = []string{
	`data.fleet.names`,
	`data.fleet.names[i]`,
	`data.fleet.members`,
	`count(data.fleet.members)`,
	`data.fleet.members[m].labels.region == "eu"`,
	`data.fleet.scopes`,
	`data.fleet.scopes["us/one"].Node`,
	`data.fleet.objects`,
	`count(data.fleet.objects)`,
	`some kind, member, ns, name; data.fleet.objects[kind][member][ns][name].spec.host == "host-1"`,
	`n := count([1 | data.fleet.objects.Pod[_][_][_]])`,
	`data.fleet.objects.Pod["eu/one"].a.x.spec.list[1].a`,
	`data.fleet.objects.Node["eu/one"][""].x.metadata`,
	`not data.fleet.objects.Pod["eu/one"].a.x`,
	`data.fleet.by_name.Pod.a.x`,
	`data.fleet.by_name.Pod.a`,
	`data.fleet.by_name.Pod.a.x[m].spec.host`,
	`count(data.fleet.by_name.Pod)`,
	`data.fleet.by_name[kind][ns][name]["us/one"].metadata.labels`,
	`data.fleet.views`,
	`data.fleet.views["federator.hosts"].hosts[h]; count(data.fleet.views["federator.hosts"].hosts[h]) > 1`,
	`count(data.fleet.views["federator.hosts"].hosts)`,
	`data.fleet.views["federator.hosts"].hosts["host-1"][_].ref.member`,
	`not data.fleet.views["federator.hosts"].hosts["host-2"]`,
	`x := {h: n | e := data.fleet.views["federator.hosts"].hosts[h]; n := count(e)}`,
	`to_number(data.fleet.objects.Pod[m][ns][n].spec.host)`,
	`{data.fleet.objects.Pod[m].a[_].spec.host: m}`,
	`x := {h: m | h := data.fleet.objects.Pod[m].a[_].spec.host}`,
	`1 / count(data.fleet.objects.Pod["us/one"])`,
	`data.fleet.objects.Secret`,
	`data.fleet.objects.Pod.nobody`,
	`data.fleet.objects.Pod["eu/one"].a.x.spec.host.deeper`,
}

// outcome is all that somebody learns from a query.
func outcome(t *testing.T, opts policy.QueryOptions, query string) string {
	t.Helper()
	opts.Timeout = time.Minute // the machine may be busy
	a, err := policy.Query(t.Context(), opts, query)
	if err != nil {
		return "error: " + err.Error()
	}
	rows, err := json.Marshal(a.Rows)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %d", rows, a.Read)
}

// TestQuery_EqualsAQueryOfTheReadableFleet compares answers, errors and what
// was charged with those of a fleet that never had the rest.
func TestQuery_EqualsAQueryOfTheReadableFleet(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	answers, failures := 0, 0
	for range 40 {
		objects := randomObjects(r)
		full := fleetOf(t, testMembers, allScopes(), objects)
		g := grants{}
		for _, x := range objects {
			if r.IntN(3) == 0 {
				g[aggregate.Ref{Member: x.ref.Member, Kind: x.ref.Kind, Namespace: x.ref.Namespace}] = true
			}
		}
		var readable []testObject
		for _, x := range objects {
			if g.MayReadObjects(x.ref.Member, x.ref.Kind, x.ref.Namespace) {
				readable = append(readable, x)
			}
		}
		scopes, members := map[string][]aggregate.Kind{}, []string(nil)
		for _, m := range testMembers {
			if g.MayReadMember(m) {
				members = append(members, m)
			}
			for _, kind := range testKinds {
				if g.MayReadScope(m, kind) {
					scopes[m] = append(scopes[m], kind)
				}
			}
		}
		rest := fleetOf(t, members, scopes, readable)
		for _, q := range testQueries {
			got := outcome(t, policy.QueryOptions{Snapshot: full, Views: hosts(objects), Reader: g}, q)
			want := outcome(t, policy.QueryOptions{Snapshot: rest, Views: hosts(readable), Reader: policy.Everything{}}, q)
			if got != want {
				t.Fatalf("%s\nwith grants   %s\nwithout rest %s\ngrants %v", q, got, want, slices.Collect(maps.Keys(g)))
			}
			if strings.HasPrefix(got, "error") {
				failures++
			} else {
				answers++
			}
		}
	}
	if answers == 0 || failures == 0 {
		t.Errorf("%d answers, %d failures", answers, failures)
	}
}

func TestQuery_SeesTheDocumentsOfPolicies(t *testing.T) {
	objects := []testObject{
		{aggregate.Ref{Member: "eu/one", Kind: "Pod", Namespace: "a", Name: "x"}, "h1"},
		{aggregate.Ref{Member: "us/one", Kind: "Pod", Namespace: "a", Name: "x"}, "h2"},
		{aggregate.Ref{Member: "us/one", Kind: "Node", Name: "n"}, "h1"},
	}
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), objects), Views: hosts(objects), Reader: policy.Everything{}, Timeout: time.Minute}
	for query, want := range map[string]string{
		`data.fleet.names`:                                      `[["eu/one","eu/two","us/one"]]`,
		`data.fleet.members["eu/one"]`:                          `[{"annotations":{},"apis":["v1"],"conditions":{},"labels":{"region":"eu"},"paused":false,"version":"v1.36.3"}]`,
		`data.fleet.scopes["eu/two"].Pod`:                       `["Synced"]`,
		`data.fleet.objects.Pod["us/one"].a.x.spec.host`:        `["h2"]`,
		`data.fleet.objects.Node["us/one"][""].n.metadata.name`: `["n"]`,
		`{m | data.fleet.by_name.Pod.a.x[m]}`:                   `[["eu/one","us/one"]]`,
		`data.fleet.views["federator.hosts"].hosts.h1[1]`:       `[{"ref":{"kind":"Node","member":"us/one","name":"n","namespace":""},"value":"n"}]`,
		`count([1 | some p in data.fleet.objects.Pod[_][_]])`:   `[2]`,
		`object.keys(data.fleet.objects.Pod["us/one"].a.x)`:     `[["apiVersion","kind","metadata","spec"]]`,
	} {
		a, err := policy.Query(t.Context(), opts, query)
		if err != nil || len(a.Rows) != 1 {
			t.Errorf("%s: %+v, %v", query, a, err)
			continue
		}
		if got, err := json.Marshal(a.Rows[0].Values); err != nil || string(got) != want {
			t.Errorf("%s = %s, want %s", query, got, want)
		}
	}
	a, err := policy.Query(t.Context(), opts, `host := data.fleet.objects.Pod[member][_][name].spec.host`)
	if err != nil || len(a.Rows) != 2 || a.Rows[1].Bindings["member"] != "us/one" || a.Rows[1].Bindings["host"] != "h2" {
		t.Errorf("bindings: %+v, %v", a, err)
	}
}

func TestQuery_RefusesAndBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	objects := randomObjects(r)
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), objects), Reader: policy.Everything{}, Timeout: time.Minute}
	doubling := "v0 := [1, 1]"
	for i := range 40 {
		doubling += fmt.Sprintf("; v%d := [v%d, v%d]", i+1, i, i)
	}
	small := opts
	small.MaxRead = 100
	few := opts
	few.MaxRows = 3
	quick := opts
	quick.Timeout = time.Millisecond
	for _, c := range []struct {
		opts  policy.QueryOptions
		query string
		want  error
	}{
		{opts, ``, policy.ErrQuery},
		{opts, `x :=`, policy.ErrQuery},
		{opts, `data`, policy.ErrQuery},
		{opts, `data.fleet`, policy.ErrQuery},
		{opts, `data.fleet[x]`, policy.ErrQuery},
		{opts, `data[x].objects`, policy.ErrQuery},
		{opts, `data.other.thing`, policy.ErrQuery},
		{opts, `http.send({"url": "http://example.com", "method": "get"})`, policy.ErrQuery},
		{opts, `time.now_ns()`, policy.ErrQuery},
		{opts, `to_number("a")`, policy.ErrQuery},
		{opts, strings.Repeat("a", 1<<17), policy.ErrQuery},
		{opts, `numbers.range(1, 1e9)`, policy.ErrQueryLimit},
		{opts, doubling, policy.ErrQueryLimit},
		{small, `data.fleet.objects.Pod`, policy.ErrQueryLimit},
		{few, `data.fleet.objects.Pod[m][ns][n]`, policy.ErrQueryLimit},
		{quick, `r := numbers.range(1, 90000); count([1 | r[_] == r[_]]) > 1`, policy.ErrQueryLimit},
	} {
		a, err := policy.Query(t.Context(), c.opts, c.query)
		if !errors.Is(err, c.want) {
			t.Errorf("%.80q: %+v, %v: want %v", c.query, a, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := policy.Query(ctx, opts, `data.fleet.names`); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
}

// TestQuery_EndsAtMaxRows, rather than when all of them are there.
func TestQuery_EndsAtMaxRows(t *testing.T) {
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), nil), Reader: policy.Everything{}, Timeout: 5 * time.Second, MaxRows: 100}
	const many = "numbers.range(1, 90000)"
	for _, query := range []string{ // thousands of millions of rows
		many + "[_]; " + many + "[_]", "_ = " + many + "[_]; _ = " + many + "[_]", "_ = [" + many + "[_], " + many + "[_]]",
		"[" + many + "[_], " + many + "[_]]", "x = [" + many + "[_], " + many + "[_]]", many + "[_] != " + many + "[_]",
		"some _ in " + many + "; some _ in " + many, "walk(" + many + ", [_, _]); " + many + "[_]", "walk([" + many + "[_], " + many + "[_]], [_, _])",
		"x := " + many + "[_]; not x < 0; y := " + many + "[_]",
	} {
		_, err := policy.Query(t.Context(), opts, query)
		if !errors.Is(err, policy.ErrQueryLimit) || !strings.Contains(err.Error(), "more than 100 rows") {
			t.Errorf("%s: %v", query, err)
		}
	}
	for query, want := range map[string]string{
		"numbers.range(1, 100)[_] > 50":    `{"values":[true]}`,
		"1 == 2":                           `{"values":[false]}`,
		"x := numbers.range(1, 100)[_]":    `{"values":[true],"bindings":{"x":1}}`,
		"x := 1; y = 2; x < y; not x == y": `{"values":[true,true,true,true],"bindings":{"x":1,"y":2}}`,
		"some i; [3, 4][i] == 4":           `{"values":[true],"bindings":{"i":1}}`,
	} {
		a, err := policy.Query(t.Context(), opts, query)
		if err != nil || len(a.Rows) == 0 {
			t.Errorf("%s: %+v, %v", query, a, err)
			continue
		}
		if got, err := json.Marshal(a.Rows[0]); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", query, got, err, want)
		}
	}
}

// TestQuery_MayHoldTwiceMaxRead at most, while it runs and in its answer.
func TestQuery_MayHoldTwiceMaxRead(t *testing.T) {
	const maxRead = 4 << 20
	answered, refused := 0, 0
	var samples atomic.Int64 // during queries
	for _, pods := range []int{100, 400, 2500} {
		var objects []testObject
		for i := range pods {
			objects = append(objects, testObject{aggregate.Ref{Member: "eu/one", Kind: "Pod", Namespace: "a", Name: fmt.Sprint("web-", i)}, strings.Repeat("x,", 500)})
		}
		opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), objects), Reader: policy.Everything{}, Timeout: time.Minute, MaxRead: maxRead}
		for _, query := range []string{
			`x := [o | o := data.fleet.objects.Pod[_][_][_]]; y := count(x)`,
			`o := data.fleet.objects.Pod[m][ns][name]`,
			`split(data.fleet.objects.Pod[_][_][_].spec.host, ",")`,
			`count([[a, b] | a := data.fleet.objects.Pod[_][_][_]; b := data.fleet.objects.Pod[_][_][_]], n)`,
			`count({[a, b] | data.fleet.objects.Pod[_][_][a]; data.fleet.objects.Pod[_][_][b]}, n)`,
			`count({a: b | data.fleet.objects.Pod[_][_][x]; data.fleet.objects.Pod[_][_][y]; a := [x, y]; b := concat("/", a)}, n)`,
			`count([s | data.fleet.objects.Pod[_][_][a]; data.fleet.objects.Pod[_][_][b]; s := sprintf("%s of %s", [a, b])], n)`,
			`count([x | i := numbers.range(1, 500)[_]; x := [[i, j] | j := numbers.range(1, 500)[_]]], n)`,
		} {
			heap() // what is left of the query before
			base := heap()
			stop, sampled := make(chan struct{}), make(chan uint64)
			go func() {
				var peak uint64
				for {
					select {
					case <-stop:
						sampled <- peak
						return
					default:
						if live, exact := heapDuring(); exact {
							peak = max(peak, live)
							samples.Add(1)
						}
					}
				}
			}()
			a, err := policy.Query(t.Context(), opts, query)
			after := heap() // with the answer
			close(stop)
			peak := max(<-sampled, after)
			took := int64(peak) - int64(base) // far less than half of what fits
			t.Logf("%d pods: %s takes %d KiB, %v", pods, query, took>>10, err)
			switch {
			case err == nil && len(a.Rows) > 0:
				answered++
			case errors.Is(err, policy.ErrQueryLimit):
				refused++
			default:
				t.Errorf("%d pods: %s: %+v, %v", pods, query, a, err)
			}
			if took > 2*maxRead+1<<20 && !raceDetector { // and what the evaluator has of its own
				t.Errorf("%d pods: %s takes %d bytes of memory where it may read %d", pods, query, took, maxRead)
			}
		}
	}
	if answered == 0 || refused == 0 || samples.Load() == 0 {
		t.Errorf("%d queries were answered, %d refused, and the heap was measured %d times meanwhile", answered, refused, samples.Load())
	}
}

// heap returns how many bytes a collection finds in use: what is allocated between its end and
// a look at the statistics may be much, and garbage.
func heap() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtime.GC()
	metrics.Read(live)
	return live[0].Value.Uint64()
}

// heapDuring is heap beside a goroutine that allocates. It is exact where little was allocated during
// the collection, which counts that as in use, garbage or not: on a busy machine collections take long.
func heapDuring() (live uint64, exact bool) {
	const little = 256 << 10
	before := allocated()
	live = heap()
	return live, allocated()-before < little
}

func allocated() uint64 {
	all := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(all)
	return all[0].Value.Uint64()
}

func TestQuery_ReadsOnlyNamedFields(t *testing.T) {
	objects := []testObject{{aggregate.Ref{Member: "eu/one", Kind: "Pod", Namespace: "a", Name: "x"}, "h1"}}
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), objects), Reader: policy.Everything{}, Timeout: time.Minute}
	// Both refs together see what either names: the second reads the whole object.
	a, err := policy.Query(t.Context(), opts, `data.fleet.objects.Pod[m][ns][n].spec.host == "h1"; o := data.fleet.by_name.Pod[ns][n][m]`)
	if err != nil || len(a.Rows) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	got, ok := a.Rows[0].Bindings["o"].(map[string]any)
	if !ok || got["metadata"] == nil {
		t.Errorf("the whole object: %v", a.Rows[0].Bindings["o"])
	}
}
