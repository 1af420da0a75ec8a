package audit

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// loss is an event that was lost.
type loss struct {
	kind aggregate.Kind
	way  string
	at   time.Time
}

// TestAudit_FindsAndRepairsLosses loses events of kinds of both tiers in every way, and waits until
// the audits that are due anyway have found and repaired all of them.
func TestAudit_FindsAndRepairsLosses(t *testing.T) {
	count, long := number(t, "LOSSES", 27), os.Getenv("LOSSES") != ""
	options := clusterinformers.Audit{Interval: 10 * time.Second, FirstTier: 4 * time.Second, Sample: 10_000, RequestsPerSecond: 100}
	patience := time.Minute
	if long { // the defaults, but for the sample: content is compared in every audit
		options = clusterinformers.Audit{Sample: 10_000}
		patience = 20 * time.Minute
	}
	r := newRig(t, options, true)
	var lost []loss
	for n := 0; len(lost) < count; n++ {
		res, way := resources[n%len(resources)], losses[(n/len(resources))%len(losses)]
		is, err := r.lose(res, fmt.Sprintf("lost-%d", n), way)
		if err != nil {
			t.Fatalf("%s of a %s: %v", way, res.kind, err)
		}
		if is {
			lost = append(lost, loss{res.kind, way, time.Now()})
		}
	}
	if !long { // the next bookmark may be a minute away; a watch that is opened again says as much
		for n, res := range resources {
			if err := r.create(res, fmt.Sprintf("marker-%d", n)); err != nil {
				t.Fatal(err)
			}
			r.until(10*time.Second, "the marker is held", func() error {
				if _, held := r.index.Snapshot().Get(aggregate.Ref{Member: memberName, Kind: res.kind, Namespace: "default", Name: fmt.Sprintf("marker-%d", n)}); !held {
					return fmt.Errorf("a %s is not held", res.kind)
				}
				return nil
			})
		}
		r.endWatches()
	}
	r.until(patience, "all is repaired", r.differences)
	found := 0
	for _, n := range r.lost() {
		found += n
	}
	t.Logf("%d losses: audits have found %d, by cause %v", len(lost), found, r.lost())
	if found != len(lost) {
		t.Errorf("audits have found %d differences of %d losses", found, len(lost))
	}
	r.checkTimes(lost, options)
}

// checkTimes checks that each loss was repaired within the time of its tier.
func (r *rig) checkTimes(lost []loss, options clusterinformers.Audit) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	first, all := options.FirstTier, options.Interval
	if first == 0 {
		first, all = 2*time.Minute, 15*time.Minute
	}
	took := map[bool][]time.Duration{}
	for _, l := range lost {
		at := slices.IndexFunc(r.losses, func(f clusterinformers.Loss) bool { return f.Kind == l.kind && f.Time.After(l.at) })
		if at < 0 {
			r.t.Errorf("a %s of a %s was not found", l.way, l.kind)
			continue
		}
		tier := slices.IndexFunc(resources, func(res resource) bool { return res.kind == l.kind }) < firstTier
		took[tier] = append(took[tier], r.losses[at].Time.Sub(l.at))
	}
	// What may be in flight is looked at again at the next bookmark, which comes within a minute.
	const slack = time.Minute
	for tier, limit := range map[bool]time.Duration{true: first, false: all} {
		slices.Sort(took[tier])
		if len(took[tier]) == 0 {
			r.t.Errorf("no losses in tier %v", tier)
			continue
		}
		r.t.Logf("first tier %v (%v): found after %v in the median, %v at most", tier, limit, took[tier][len(took[tier])/2].Round(time.Millisecond), took[tier][len(took[tier])-1].Round(time.Millisecond))
		if longest := took[tier][len(took[tier])-1]; longest > limit+slack {
			r.t.Errorf("one was found after %v", longest)
		}
	}
}

// TestAudit_NeverTakesWhatIsInFlightForLost audits all kinds again and again beside writes.
func TestAudit_NeverTakesWhatIsInFlightForLost(t *testing.T) {
	audits, perSecond := number(t, "AUDITS", 200), number(t, "WRITES", 200)
	r := newRig(t, clusterinformers.Audit{Interval: time.Hour, FirstTier: time.Hour, RequestsPerSecond: 1e6, FleetRequestsPerSecond: 1e6, BytesPerSecond: 1 << 40}, false)
	idle, began := r.cpu(), time.Now()
	baseline := time.NewTimer(3 * time.Second)
	<-baseline.C
	idleShare := float64(r.cpu()-idle) / float64(time.Since(began))
	r.cost(idleShare)

	for n := range 50 * len(resources) { // something to compare
		if err := r.create(resources[n%len(resources)], fmt.Sprintf("still-%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	w := r.write(perSecond)
	pause := time.NewTicker(time.Second / 15) // between rounds of audits: there are few processors
	defer pause.Stop()
	outcomes, objects := map[string]int{}, 0
	began = time.Now()
	for done := 0; done < audits; <-pause.C {
		err := r.manager.Audit(t.Context(), "", "", func(a clusterinformers.AuditResult) {
			done++
			outcomes[a.Outcome]++
			objects += a.Objects
			if a.Outcome != "equal" {
				t.Logf("%+v", a)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	writes := w.stop()
	t.Logf("%v audits of %d objects in %v beside %.0f writes a second", outcomes, objects, took.Round(time.Millisecond), float64(writes)/took.Seconds())
	if lost := r.lost(); len(lost) > 0 || outcomes["different"]+outcomes["unconfirmed"] > 0 {
		t.Errorf("false alarms: %v", lost)
	}
	if outcomes["equal"] < audits*99/100 {
		t.Errorf("of %d audits: %v", audits, outcomes)
	}
	if long := os.Getenv("AUDITS") != ""; long && float64(writes)/took.Seconds() < 0.8*float64(perSecond) {
		t.Errorf("%.0f writes a second, want %d", float64(writes)/took.Seconds(), perSecond)
	}
	r.until(time.Minute, "all is held", r.differences)
}

// cost measures and prints what an audit costs the API server, of which idle is the share of a processor
// that it takes anyway.
func (r *rig) cost(idle float64) {
	r.t.Helper()
	const rounds = 100
	before, began, audits, bytes := r.cpu(), time.Now(), 0, int64(0)
	for range rounds {
		if err := r.manager.Audit(r.t.Context(), "", "", func(a clusterinformers.AuditResult) { audits++; bytes += a.Bytes }); err != nil {
			r.t.Fatal(err)
		}
	}
	took := time.Since(began)
	each := (r.cpu() - before - time.Duration(idle*float64(took))) / time.Duration(audits)
	// A member of 60 kinds, of which 20 are in the first tier: each is audited after two thirds of its interval.
	perSecond := 20/(2*60*0.675) + 40/(15*60*0.675)
	r.t.Logf("an audit costs the API server %v and %d bytes; %.2f a second, as of a member of 60 kinds, %.3f%% of a core (idle it takes %.1f%%)",
		each, bytes/int64(audits), perSecond, 100*perSecond*each.Seconds(), 100*idle)
	if share := perSecond * each.Seconds(); share > 0.01 {
		r.t.Errorf("audits cost %.2f%% of a core", 100*share)
	}
}

// writer writes to the member until it is stopped.
type writer struct {
	stopping chan struct{}
	writing  sync.WaitGroup
	mu       sync.Mutex
	writes   int
}

func (w *writer) stop() int {
	close(w.stopping)
	w.writing.Wait()
	return w.writes
}

// write begins to write objects of all kinds.
func (r *rig) write(perSecond int) *writer {
	const workers = 16
	w := &writer{stopping: make(chan struct{})}
	for n := range workers {
		w.writing.Go(func() {
			tick := time.NewTicker(time.Second * workers / time.Duration(perSecond))
			defer tick.Stop()
			for k := 0; ; k++ {
				select {
				case <-w.stopping:
					return
				case <-tick.C:
				}
				res, name := resources[k%len(resources)], fmt.Sprintf("w%d-%d", n, k/len(resources)/4%20)
				var err error
				switch (k / len(resources)) % 4 {
				case 0:
					err = r.create(res, name)
				case 3:
					err = r.remove(res, name)
				default:
					err = r.label(res, name, fmt.Sprint(k))
				}
				if err != nil {
					r.t.Errorf("writing %s %s: %v", res.kind, name, err)
					return
				}
				w.mu.Lock()
				w.writes++
				w.mu.Unlock()
			}
		})
	}
	return w
}

// ofEveryKind are objects of kinds that are encoded in unlike ways.
const ofEveryKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.audit.example.com}
spec:
  group: audit.example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        properties: {spec: {type: object, default: {size: 3}, properties: {size: {type: integer}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, annotations: {note: "<a> & \u00e9"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {limits: {cpu: "0.5", memory: 1Gi}}, ports: [{containerPort: 80}]}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: default}
spec: {rules: [{host: a.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: none, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: http}, {port: 8080, protocol: UDP}]}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: v1
kind: Event
metadata: {name: e, namespace: default}
involvedObject: {kind: Pod, namespace: default, name: a}
reason: Test
message: "a \"message\""
firstTimestamp: "2026-01-01T00:00:00Z"
`

const widget = `apiVersion: audit.example.com/v1
kind: Widget
metadata: {name: a, namespace: default}
more: {of: [1, 2.5, {it: "x"}]}
`

// TestAudit_AgreesWithEveryKind compares all objects of all kinds of a real API server, with their
// content: what is made of an object that is watched and of one that is listed is the same.
func TestAudit_AgreesWithEveryKind(t *testing.T) {
	options := clusterinformers.Audit{Interval: time.Hour, FirstTier: time.Hour, RequestsPerSecond: 1e6, FleetRequestsPerSecond: 1e6, BytesPerSecond: 1 << 40, Sample: 10_000}
	r := newRig(t, options, false, clusterinformers.KindRule{Kind: "Event"}, clusterinformers.KindRule{Kind: "Lease.coordination.k8s.io"}, clusterinformers.KindRule{Kind: "*"})
	for _, manifests := range []string{ofEveryKind, widget} {
		r.until(time.Minute, "it is there", func() error { return r.plane.Apply(t.Context(), []byte(manifests)) })
	}
	r.until(time.Minute, "the Widget is held", func() error {
		if _, held := r.index.Snapshot().Get(aggregate.Ref{Member: memberName, Kind: "Widget.audit.example.com", Namespace: "default", Name: "a"}); !held {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	kinds, objects := map[aggregate.Kind]int{}, 0
	for range 2 { // the first round may meet kinds that are listed
		clear(kinds)
		objects = 0
		err := r.manager.Audit(t.Context(), "", "", func(a clusterinformers.AuditResult) {
			kinds[a.Kind] = a.Bodies
			objects += a.Objects
			if a.Outcome != "equal" || a.Bodies != a.Objects {
				t.Errorf("%+v", a)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d objects of %d kinds", objects, len(kinds))
	for _, kind := range []aggregate.Kind{
		"Widget.audit.example.com", "Deployment.apps", "Ingress.networking.k8s.io", "NetworkPolicy.networking.k8s.io", "HorizontalPodAutoscaler.autoscaling", "Event",
		"ClusterRole.rbac.authorization.k8s.io", "FlowSchema.flowcontrol.apiserver.k8s.io", "APIService.apiregistration.k8s.io", "Service", "Namespace",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no %s was compared", kind)
		}
	}
}
