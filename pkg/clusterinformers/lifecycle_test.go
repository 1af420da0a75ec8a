package clusterinformers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

func TestMember_RotationKeepsObjectsWithoutAList(t *testing.T) {
	opts := fewKinds()
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
	m := r.fleet.Members()[0]
	lists := r.allLists(m)
	ok(t, m.Rotate())
	r.source.set(specOf(t, m))
	r.until("the new credentials were tried", func() bool { return m.Requests().Verb("version") > 1 })
	m.DropWatches() // whatever is opened now needs the new ones
	touch(t, m, 2, "after")
	r.touched(m, 2, "after")
	r.synced(m)
	r.dynamic = map[string]dynamicClient{}
	r.exact(m, opts.Kinds)
	if n := r.allLists(m); n != lists {
		t.Errorf("%d lists, want the first %d only", n, lists)
	}
}

func TestMember_RecoversFromExpiredCredentials(t *testing.T) {
	opts := fewKinds()
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
	m := r.fleet.Members()[0]
	lists := r.allLists(m)
	ok(t, m.Rotate()) // the kubeconfig in use is not accepted any more
	m.DropWatches()
	r.until("the member is unauthorized", func() bool {
		st := r.status(m)
		return st.State == connection.Disconnected && st.Reason == connection.Unauthorized && r.all(m, aggregate.Stale)
	})
	before := m.Requests().Total()
	r.during(2*time.Second, "few requests and one line in the log", func() bool {
		return m.Requests().Total()-before < 30 && r.log.count("member not connected") == 1
	})
	if len(r.held(m, "Pod")) != 10 {
		t.Error("objects of an unauthorized member are gone")
	}
	r.source.set(specOf(t, m))
	r.within(3*time.Second, "the new kubeconfig is used at once", func() bool { return r.status(m).State == connection.Connected })
	r.synced(m)
	r.dynamic = map[string]dynamicClient{}
	r.exact(m, opts.Kinds)
	if n := r.allLists(m); n != lists {
		t.Errorf("%d lists, want the first %d only", n, lists)
	}
	if n := r.log.count("member connected"); n != 2 {
		t.Errorf("%d lines about being followed, want 2", n)
	}
}

func TestMember_IsRotatedWhileUnreachable(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
		r.source.view = r.source.view[:1]
		fill(t, r.fleet.Members()[0], 3)
		fill(t, r.fleet.Members()[1], 7)
	}).start()
	a, b := r.fleet.Members()[0], r.fleet.Members()[1]
	r.synced(a)
	a.Cut()
	r.until("the scopes are stale", func() bool { return r.all(a, aggregate.Stale) })
	// The member now lives elsewhere: another cluster, whose resourceVersions
	// mean nothing here.
	spec := specOf(t, b)
	spec.Name, spec.UID = nameOf(a), "uid-"+a.Name()
	r.source.set(spec)
	r.synced(a)
	r.until("it holds what the other cluster does", func() bool { return len(r.held(a, "Pod")) == 7 })
	if n := r.lists(b, pods); n != 1 {
		t.Errorf("%d lists of pods at the other cluster, want 1", n)
	}
	for _, k := range opts.Kinds {
		if got, want := r.held(a, aggregate.Kind(k.Kind)), r.listed(b, k, redact); !slices.Equal(got, want) {
			t.Errorf("%s differs:\n%s\n%s", k.Kind, got, want)
		}
	}
}

func TestMember_IsRelabelledAndRemoved(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
	a, b := r.fleet.Members()[0], r.fleet.Members()[1]
	lists := r.allLists(a)
	labelled := specOf(t, a)
	labelled.Labels = []aggregate.Label{{Key: "region", Value: "eu"}}
	r.source.set(labelled, specOf(t, b))
	r.until("the label is in the index", func() bool {
		m, _ := r.index.Snapshot().Member(nameOf(a))
		return slices.Equal(m.Labels, labelled.Labels)
	})
	if m, _ := r.index.Snapshot().Member(nameOf(a)); m.UID != labelled.UID || m.Version != "v1.36.3" || !slices.Contains(m.APIs, "v1") {
		t.Errorf("member %+v", m)
	}
	if n := r.allLists(a); n != lists {
		t.Errorf("relabelling has cost %d lists", n-lists)
	}
	if got := r.series(nameOf(a)); len(got) == 0 {
		t.Error("no metrics of a member that is followed")
	}

	r.source.set(specOf(t, b))
	r.until("the member has left", func() bool {
		_, there := r.index.Snapshot().Member(nameOf(a))
		return !there && r.status(a).Name == ""
	})
	for info := range r.index.Snapshot().Scopes("") {
		if info.Member == nameOf(a) {
			t.Errorf("scope %s is still there", info.Kind)
		}
	}
	r.until("its metrics are gone", func() bool { return len(r.series(nameOf(a))) == 0 })
	if !r.all(b, aggregate.Synced) {
		t.Error("the other member is not Synced any more")
	}
}

// series are the names of the metrics of a member.
func (r *rig) series(member string) []string {
	r.t.Helper()
	families, err := r.metrics.Gather()
	ok(r.t, err)
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "member" && l.GetValue() == member && !slices.Contains(out, f.GetName()) {
					out = append(out, f.GetName())
				}
			}
		}
	}
	return out
}

// metric sums a counter, gauge or histogram's count over a member and kind.
func (r *rig) metric(name, member, kind string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	ok(r.t, err)
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && labels["member"] == member && labels["kind"] == kind {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestMetrics_CountWhatHappened(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		fill(t, r.fleet.Members()[0], 10)
		o.MetricsPerScope = true
	})
	m := r.fleet.Members()[0]
	fault(m, sim.Fault{Kind: pods, Huge: 1000, Times: 1})
	r.until("the watch was opened again", func() bool { return r.detail(m, "Pod").Encoding == "json" && r.state(m, "Pod") == aggregate.Synced })
	touch(t, m, 1, "x")
	r.touched(m, 1, "x")
	for name, want := range map[string]float64{
		"federator_scope_objects": 10, "federator_scope_relists_total": 1,
		"federator_scope_decode_fallbacks_total": 1, "federator_scope_panics_total": 0,
		"federator_scope_bytes": float64(r.scope(m, "Pod").Bytes),
	} {
		r.until(name, func() bool { return r.metric(name, nameOf(m), "Pod") == want })
	}
	if r.metric("federator_scope_watch_restarts_total", nameOf(m), "Pod") < 1 || r.metric("federator_scope_event_to_commit_seconds", "", "") < 1 {
		t.Error("neither restarts nor commits of events are counted")
	}
	if age := time.Since(time.UnixMilli(int64(r.metric("federator_scope_last_contact_timestamp_seconds", nameOf(m), "Pod") * 1000))); age < 0 || age > patience {
		t.Errorf("last contact is %s ago", age)
	}
	r.until("the member's sums are those of its scopes", func() bool {
		st := r.status(m)
		var bytes int64
		for info := range r.index.Snapshot().Scopes(nameOf(m)) {
			bytes += info.Bytes
		}
		return r.metric("federator_member_objects", nameOf(m), "") == float64(st.Objects) && r.metric("federator_member_bytes", nameOf(m), "") == float64(bytes) &&
			r.metric("federator_member_scopes", nameOf(m), "") == float64(len(st.Details)) && r.metric("federator_member_relists_total", nameOf(m), "") == 5
	})
	freshness := time.Since(time.UnixMilli(int64(r.metric("federator_member_oldest_contact_timestamp_seconds", nameOf(m), "") * 1000)))
	if want := *r.status(m).Freshness; (freshness - want).Abs() > 5*time.Second {
		t.Errorf("freshness is %s, want %s", freshness, want)
	}
	if got := r.metric("federator_member_connected", nameOf(m), ""); got != 1 {
		t.Errorf("connected is %v", got)
	}
	m.Cut()
	r.until("it is not connected", func() bool { return r.metric("federator_member_connected", nameOf(m), "") == 0 })
}

func TestMember_RecreatedIsAnother(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
		r.source.view = r.source.view[:1]
		fill(t, r.fleet.Members()[0], 10)
		fill(t, r.fleet.Members()[1], 4)
	}).start()
	a, b := r.fleet.Members()[0], r.fleet.Members()[1]
	r.synced(a)
	cursor := r.index.Cursor(r.index.Snapshot())
	again := specOf(t, b)
	again.Name, again.UID = nameOf(a), "another"
	r.source.set(again)
	r.until("the new one is there", func() bool {
		m, _ := r.index.Snapshot().Member(nameOf(a))
		return m.UID == "another" && r.status(a).UID == "another" && r.status(a).Synced && len(r.held(a, "Pod")) == 4
	})
	left, joined := false, false
	for {
		b, more := cursor.Poll()
		if !more {
			break
		}
		for d := range b.Members() {
			left = left || d.Before != nil && d.Before.UID == "uid-"+a.Name() && (d.After == nil || d.After.UID == "another")
			joined = joined || d.After != nil && d.After.UID == "another"
		}
	}
	if !left || !joined {
		t.Errorf("left %t, joined %t", left, joined)
	}
}

func TestMember_PausedIsReadAndNotWrittenTo(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
	m := r.fleet.Members()[0]
	lists := r.allLists(m)
	paused := specOf(t, m)
	paused.Hold = connection.Hold{Paused: true}
	r.source.set(paused)
	r.until("the member says so", func() bool {
		st := r.status(m)
		return st.State == connection.Connected && st.Paused && st.Reason == connection.Paused && st.Message != ""
	})
	touch(t, m, 1, "meanwhile")
	r.touched(m, 1, "meanwhile")
	if !r.all(m, aggregate.Synced) {
		t.Error("scopes of a paused member are not Synced")
	}
	if _, _, _, err := r.manager.Writer(nameOf(m), "Pod", "v1"); !errors.Is(err, clusterinformers.ErrPaused) {
		t.Errorf("a writer for a paused member: %v", err)
	}
	if why := r.manager.CheckWritable(nameOf(m)); !errors.Is(why, clusterinformers.ErrPaused) {
		t.Errorf("held: %v", why)
	}
	m.Cut()
	r.until("it is out of reach, which counts for more", func() bool {
		st := r.status(m)
		return st.Reason == connection.Unreachable && st.Paused
	})
	ok(t, m.Restore())

	r.source.set(specOf(t, m))
	r.until("it is resumed", func() bool { st := r.status(m); return !st.Paused && st.Reason == "" })
	if _, _, _, err := r.manager.Writer(nameOf(m), "Pod", "v1"); err != nil {
		t.Errorf("a writer for a resumed member: %v", err)
	}
	if why := r.manager.CheckWritable(nameOf(m)); why != nil {
		t.Errorf("held: %v", why)
	}
	r.synced(m)
	if n := r.allLists(m); n != lists {
		t.Errorf("%d lists, want the first %d only", n, lists)
	}
}

func TestMember_FrozenIsReadAndNotWrittenToUntilTheTime(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Unix())
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		fill(t, r.fleet.Members()[0], 10)
		o.Clock = func() time.Time { return time.Unix(now.Load(), 0) }
	})
	m := r.fleet.Members()[0]
	frozen := specOf(t, m)
	until := "2026-03-01T13:00:00Z"
	frozen.Hold = connection.Hold{Freeze: &until, FrozenBy: "kubectl-annotate"}
	r.source.set(frozen)
	r.until("the member says so, and who", func() bool {
		st := r.status(m)
		return st.State == connection.Connected && st.Reason == connection.Frozen && strings.Contains(st.Held, "kubectl-annotate") &&
			strings.Contains(st.Held, "unproven") && st.FrozenUntil != nil && st.FrozenUntil.Format(time.RFC3339) == until
	})
	touch(t, m, 1, "meanwhile")
	r.touched(m, 1, "meanwhile")
	if _, _, _, err := r.manager.Writer(nameOf(m), "Pod", "v1"); !errors.Is(err, clusterinformers.ErrFrozen) {
		t.Errorf("a writer for a frozen member: %v", err)
	}
	if why := r.manager.CheckWritable(nameOf(m)); !errors.Is(why, clusterinformers.ErrFrozen) {
		t.Errorf("held: %v", why)
	}
	if got := r.manager.WritesHeld(nameOf(m)); !strings.Contains(got, until) {
		t.Errorf("held: %q", got)
	}
	now.Add(int64(time.Hour/time.Second) - 1)
	if why := r.manager.CheckWritable(nameOf(m)); !errors.Is(why, clusterinformers.ErrFrozen) {
		t.Errorf("a second before: %v", why)
	}
	now.Add(1)
	if why := r.manager.CheckWritable(nameOf(m)); why != nil {
		t.Errorf("the freeze does not end by itself: %v", why)
	}
	if st := r.status(m); st.Reason != "" || st.Held != "" || st.FrozenUntil != nil {
		t.Errorf("after the freeze: %+v", st)
	}
}

func TestMember_RefusedKeepsItsObjectsStale(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
	m := r.fleet.Members()[0]
	lists := r.allLists(m)
	deleting := specOf(t, m)
	deleting.Refused = &connection.Refusal{Reason: connection.Deleting, Message: "the Cluster is being deleted"}
	r.source.set(deleting)
	r.until("the member is refused and stale", func() bool {
		st := r.status(m)
		return st.State == connection.Refused && st.Reason == connection.Deleting && r.all(m, aggregate.Stale)
	})
	before := m.Requests().Total()
	touch(t, m, 1, "meanwhile")
	r.source.set(deleting) // again and again is once
	r.source.set(deleting)
	r.during(300*time.Millisecond, "there are no requests, and one log message", func() bool {
		return m.Requests().Total() == before && r.log.count("member not connected") == 1
	})
	if n := len(r.held(m, "Pod")); n != 10 {
		t.Errorf("%d pods, want 10", n)
	}
	r.source.set(specOf(t, m))
	r.touched(m, 1, "meanwhile")
	r.synced(m)
	if n := r.allLists(m); n != lists {
		t.Errorf("%d lists, want the first %d only", n, lists)
	}
}

type brokenSource struct{ fail func() error }

func (b brokenSource) Run(context.Context, func(clusterinformers.View)) error { return b.fail() }

func TestManager_RunEndsWhenASourceFails(t *testing.T) {
	for want, fail := range map[string]func() error{
		"no more":   func() error { return errors.New("no more") },
		"panic: ow": func() error { panic("ow") },
	} {
		r := newRig(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) {
			o.Sources = append(o.Sources, brokenSource{fail})
		})
		if err := r.manager.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run: %v, want %q", err, want)
		}
	}
}

func TestManager_RunEndsForAnyCauseOfItsContext(t *testing.T) {
	r := newRig(t, fewKinds(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.manager.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestManager_ContainsPanicsAndRestarts(t *testing.T) {
	t.Run("of a scope", func(t *testing.T) {
		opts := fewKinds()
		r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
		m := r.fleet.Members()[0]
		r.log.panicOn("scope switched to JSON", 1)
		fault(m, sim.Fault{Kind: pods, Huge: 1000, Times: 1})
		r.until("the panic was counted", func() bool { return r.metric("federator_scope_panics_total", nameOf(m), "Pod") == 1 })
		r.until("the panic is the last error", func() bool { return strings.Contains(r.status(m).LastError, "a log handler failed") })
		touch(t, m, 4, "x")
		r.touched(m, 4, "x")
		r.synced(m)
		r.exact(m, opts.Kinds)
		if r.detail(m, "ConfigMap").Relists["initial"] != 1 || len(r.detail(m, "ConfigMap").Relists) != 1 {
			t.Error("another scope was disturbed")
		}
	})
	for _, message := range []string{"member connected", "member not connected"} {
		t.Run("of a member when "+message, func(t *testing.T) {
			opts := fewKinds()
			opts.Members = 2
			r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) { r.log.panicOn(message, 1) }).start()
			for _, m := range r.fleet.Members() {
				r.synced(m)
			}
			r.fleet.Members()[1].Cut()
			r.until("the other one is cut off", func() bool { return r.log.count("member not connected") > 0 })
			ok(t, r.fleet.Members()[1].Restore())
			for _, m := range r.fleet.Members() {
				r.synced(m)
				r.exact(m, opts.Kinds)
			}
			if r.log.count("member failed, restarting it") != 1 {
				t.Errorf("%d panics, want 1", r.log.count("member failed, restarting it"))
			}
		})
	}
}

func TestInformer_RedactsSecretsUnlessKept(t *testing.T) {
	for _, keep := range []bool{false, true} {
		r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
			o.KeepSecretValues = keep
			s := &corev1.Secret{Data: map[string][]byte{"password": []byte("hunter2")}, StringData: map[string]string{}}
			s.Namespace, s.Name = "default", "db"
			s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"password":"hunter2"}}`}
			ok(t, r.fleet.Members()[0].Create(s))
			ok(t, r.fleet.Members()[0].Create(configMap(1)))
		})
		body := strings.Join(append(r.held(r.fleet.Members()[0], "Secret"), r.held(r.fleet.Members()[0], "ConfigMap")...), "\n")
		for _, value := range []string{"aHVudGVyMg==", "hunter2", "value 1"} {
			if strings.Contains(body, value) != keep {
				t.Errorf("keep %t: %s", keep, body)
			}
		}
		if strings.Contains(body, `"federator.dev/redacted":"true"`) == keep || !strings.Contains(body, `"password":`) {
			t.Errorf("keep %t: %s", keep, body)
		}
		r.end()
	}
}
