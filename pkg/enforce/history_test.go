package enforce_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// TestLoop_PointsLeadToTheNext: each to the next, also where policies are exchanged at
// one revision; what changes no verdict is none.
func TestLoop_PointsLeadToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		bindings := []policy.Binding{{Name: "b", Package: "replicas"}}
		loop := startLoop(t, enforce.Options{Index: index, Set: load(t, "input.object.spec.replicas < 2"), Bindings: bindings})
		synctest.Wait()
		first := loop.Point()
		put(t, scope, "db", 5) // clean
		synctest.Wait()
		if p := loop.Point(); p != first || p.State().Snapshot.Revision() != index.Snapshot().Revision() {
			t.Errorf("a clean object makes version %s of revision %d", p.Version(), p.State().Snapshot.Revision())
		}
		put(t, scope, "web", 2)
		synctest.Wait()
		for range 2 {
			if err := loop.Configure(t.Context(), load(t, "input.object.spec.replicas < 3"), bindings); err != nil {
				t.Fatal(err)
			}
		}
		var versions []string
		seen := map[string]bool{}
		for p := first; p != nil; p = p.Next() {
			at, err := loop.At(p.Version())
			if err != nil || at != p || seen[p.Version()] || !loop.Kept(p) {
				t.Errorf("version %s after %v leads to %v, %v", p.Version(), versions, at, err)
			}
			if p != first && p.Changes().After != p.State() {
				t.Errorf("version %s is of another state than its changes", p.Version())
			}
			seen[p.Version()] = true
			versions = append(versions, p.Version())
		}
		if len(versions) != 4 || versions[3] != loop.Point().Version() {
			t.Errorf("versions %v, the newest is %s", versions, loop.Point().Version())
		}
		select {
		case <-first.Newer():
		default:
			t.Error("the second is not announced")
		}
		for n := range 600 {
			put(t, scope, "web", 1+n%2*4)
			synctest.Wait()
		}
		if _, err := loop.At(first.Version()); !errors.Is(err, enforce.ErrExpired) || loop.Kept(first) {
			t.Errorf("600 versions later the first is still known: %v", err)
		}
	})
}

// TestLoop_DropsPointsOfLargeViolations: a small object of which much is found, over
// and over, keeps no more of it alive than a share of what a binding may hold.
func TestLoop_DropsPointsOfLargeViolations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		set := load(t, `false

violation contains {"msg": "long", "details": {"text": concat("", ["0123456789" | some _ in numbers.range(1, 10000 + input.object.spec.replicas)])}}`)
		const limit = 8 << 20
		loop := startLoop(t, enforce.Options{
			Index: index, Set: set, Bindings: []policy.Binding{{Name: "b", Package: "replicas"}},
			Limits: policy.Limits{Binding: limit, Evaluation: time.Hour},
		})
		synctest.Wait()
		first := loop.Point()
		for n := range 60 {
			put(t, scope, "web", 2+n)
			synctest.Wait()
		}
		kept := map[*policy.State]bool{}
		for p := first; p != nil; p = p.Next() {
			if loop.Kept(p) {
				kept[p.State()] = true
			}
		}
		if n := len(kept); n < 2 || int64(n-1)*100_000 > limit/8 {
			t.Errorf("%d versions with 100 kB each are kept, of a binding that may hold %d bytes", n, limit)
		}
		if loop.Kept(first) || first.Next().Changes() != nil {
			t.Error("the first version is kept")
		}
	})
}

// TestLoop_LagMetrics, while a batch is evaluated.
func TestLoop_LagMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		registry := prometheus.NewPedanticRegistry()
		held := make(chan chan struct{}, 1)
		loop := startLoop(t, enforce.Options{
			Index: index, Set: load(t, "input.object.spec.replicas < 2"), Bindings: []policy.Binding{{Name: "b", Package: "replicas"}}, Metrics: registry,
			Changed: func(*policy.Changes, *aggregate.Batch) {
				select {
				case release := <-held:
					<-release
				default:
				}
			},
		})
		synctest.Wait()
		expect := func(what string, seconds, revisions float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, f := range families {
				got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
			if s, n := got["federator_policy_lag_seconds"], got["federator_policy_lag_revisions"]; s != seconds || n != revisions {
				t.Errorf("%s: %v s and %v revisions behind, want %v and %v", what, s, n, seconds, revisions)
			}
		}
		expect("at rest", 0, 0)
		release := make(chan struct{})
		held <- release
		put(t, scope, "web", 1)
		synctest.Wait()
		time.Sleep(time.Minute)
		expect("all is evaluated, though a callback takes long", 0, 0)
		put(t, scope, "web", 2)
		put(t, scope, "web", 3)
		synctest.Wait()
		expect("two changes wait, a minute at most", 60, 2)
		close(release)
		synctest.Wait()
		expect("at rest again", 0, 0)
		if loop.State().Snapshot.Revision() != index.Snapshot().Revision() {
			t.Error("the loop is behind")
		}
	})
}

// TestLoop_KeepsQuietFleetOnce: where no verdict changes for long, the newest version
// keeps nothing alive of the fleet as it was when the version was made.
func TestLoop_KeepsQuietFleetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), LogBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		loop := startLoop(t, enforce.Options{
			Index: index, Set: load(t, "input.object.spec.replicas < 2"), Bindings: []policy.Binding{{Name: "b", Package: "replicas"}},
		})
		synctest.Wait()
		put(t, scope, "db", 1)
		synctest.Wait()
		last := loop.Point()
		was := weak.Make(last.State())
		for n := range 20 {
			put(t, scope, "clean", 5+n)
			synctest.Wait()
		}
		if loop.Point() != last || last.State().Snapshot.Revision() != index.Snapshot().Revision() {
			t.Fatal("clean objects make a version, or are not evaluated")
		}
		runtime.GC()
		if s := was.Value(); s != nil {
			t.Errorf("the fleet is kept as it was at revision %d, now it is %d", s.Snapshot.Revision(), index.Snapshot().Revision())
		}
		runtime.KeepAlive(last)
		// A member that comes or goes makes a version, whatever the verdicts.
		if err := index.PutMember(aggregate.Member{Name: "fleet/b", UID: "b"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if joined := loop.Point(); joined == last || last.Next() != joined {
			t.Error("a member that joins makes no version")
		}
	})
}
