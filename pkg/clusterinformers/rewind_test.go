package clusterinformers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

const wentBack = "the server's resourceVersion went backwards (was etcd restored?), relisting all scopes of the member"

const otherHistory = "the server's history is another one (was etcd restored?), relisting all scopes of the member"

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// rewindMember rewinds a member behind its index: three changes of pods and one of ConfigMaps
// are undone.
func rewindMember(t *testing.T, m *sim.Member, r *rig) {
	t.Helper()
	at := m.ResourceVersion()
	for i := range 3 {
		touch(t, m, i, "lost")
	}
	ok(t, m.Create(configMap(100)))
	r.touched(m, 2, "lost")
	r.until("the ConfigMap is held", func() bool { return len(r.held(m, "ConfigMap")) == 11 })
	ok(t, m.Rewind(at))
}

// TestRewind_ServerThatStartsOnAnOlderCopyIsRelisted: its watches would continue from a
// resourceVersion that it has not reached, and receive nothing.
func TestRewind_ServerThatStartsOnAnOlderCopyIsRelisted(t *testing.T) {
	for _, graceful := range []bool{false, true} {
		t.Run(fmt.Sprintf("graceful=%t", graceful), func(t *testing.T) {
			opts := fewKinds()
			r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
			m := r.fleet.Members()[0]
			restore := func(name string) {
				at := m.ResourceVersion()
				for i := range 3 {
					touch(t, m, i, name)
				}
				ok(t, m.Create(namespace(name)))
				r.until("all is held", func() bool { return len(r.held(m, "Namespace")) == len(r.listed(m, kindsOf("Namespace")[0], nil)) })
				if graceful {
					m.DropWatches()
				}
				m.Cut()
				ok(t, m.Rewind(at))
				ok(t, m.Restore())
			}
			restore("lost")
			r.until("the rewind is detected", func() bool { return r.log.count(wentBack) == 1 })
			r.exact(m, opts.Kinds)
			r.synced(m)
			touch(t, m, 5, "after")
			r.touched(m, 5, "after")
			restore("lost-again")
			r.until("the second rewind is detected", func() bool { return r.log.count(wentBack) == 2 })
			r.exact(m, opts.Kinds)
			r.synced(m)
		})
	}
}

// TestRewind_ServerThatHasReachedTheNamespacesIsRelisted: Namespaces are quiet, so that an older copy
// may have all that was read of them, and not what was read of other kinds.
func TestRewind_ServerThatHasReachedTheNamespacesIsRelisted(t *testing.T) {
	opts := fewKinds()
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
	m := r.fleet.Members()[0]
	for n := range 2 {
		at := m.ResourceVersion()
		for i := range 3 {
			touch(t, m, i, fmt.Sprint("lost-", n))
		}
		r.touched(m, 2, fmt.Sprint("lost-", n))
		m.Cut()
		ok(t, m.Rewind(at))
		ok(t, m.Restore())
		r.until("the rewind is detected", func() bool { return r.log.count(wentBack) == n+1 })
		r.exact(m, opts.Kinds)
		r.synced(m)
	}
}

// TestRewind_ServerThatHasOvertakenIsRelisted: a server that was taken back, and has written more since
// than was lost, continues all watches, with another history than theirs.
func TestRewind_ServerThatHasOvertakenIsRelisted(t *testing.T) {
	for _, lost := range []string{"changes", "deletions"} {
		t.Run(lost, func(t *testing.T) {
			opts := fewKinds()
			r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
			m := r.fleet.Members()[0]
			at := m.ResourceVersion()
			if lost == "changes" {
				touch(t, m, 3, "lost")
				r.touched(m, 3, "lost")
			} else {
				ok(t, m.Delete(pods, pod(3).Namespace, pod(3).Name))
				r.until("the deletion is held", func() bool { return len(r.held(m, "Pod")) == 9 })
			}
			m.Cut()
			ok(t, m.Rewind(at))
			for i := range 5 {
				touch(t, m, 5+i, "overtaken")
			}
			ok(t, m.Restore())
			r.until("the other history is detected", func() bool { return r.log.count(otherHistory) == 1 })
			r.exact(m, opts.Kinds)
			r.synced(m)
			m.Cut()
			touch(t, m, 4, "after")
			ok(t, m.Restore())
			r.touched(m, 4, "after")
			r.during(200*time.Millisecond, "the history of this server is its own", func() bool { return r.log.count(otherHistory) == 1 })
		})
	}
}

// TestRewind_HistoryIsVerifiedBesideAnotherStore: Events, say, may be in an etcd of their own, which has come
// further than the one that was taken back.
func TestRewind_HistoryIsVerifiedBesideAnotherStore(t *testing.T) {
	const far = "1000000000"
	opts := fewKinds()
	opts.Version = "v1.99.0" // JSON, as the answers are
	var other atomic.Bool
	var l *fakeServer
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 10)
		l = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			q := req.URL.Query()
			if req.URL.Path != "/api/v1/configmaps" || !other.Load() || q.Get("sendInitialEvents") != "" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			if q.Get("watch") == "" {
				fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[]}`, far)
				return true
			}
			fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":%q}}}`+"\n", far)
			_ = http.NewResponseController(w).Flush() //nolint:errcheck // the client is gone
			<-req.Context().Done()
			return true
		})
		r.source.view[0] = l.spec
	})
	m := r.fleet.Members()[0]
	other.Store(true)
	m.DropWatches(configMaps)
	r.until("ConfigMaps were read further", func() bool { return r.detail(m, "ConfigMap").Applied == far })
	at := m.ResourceVersion()
	touch(t, m, 3, "lost")
	r.touched(m, 3, "lost")
	m.Cut()
	ok(t, m.Rewind(at))
	for i := range 5 {
		touch(t, m, 5+i, "overtaken")
	}
	ok(t, m.Restore())
	l.cut()
	r.until("the other history is detected", func() bool { return r.log.count(otherHistory) == 1 })
}

// TestRewind_HistoryIsVerifiedOnceTheServerAnswers: for as long as a server that has overtaken does not say what it
// had before, its events come, and its watches end and are opened again.
func TestRewind_HistoryIsVerifiedOnceTheServerAnswers(t *testing.T) {
	opts := fewKinds()
	var busy atomic.Bool
	var refused atomic.Int64
	var l *fakeServer
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 10)
		l = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			refuse := busy.Load() && req.URL.Query().Get("resourceVersionMatch") == "Exact"
			if refuse {
				refused.Add(1)
				writeStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable")
			}
			return refuse
		})
		r.source.view[0] = l.spec
	})
	m := r.fleet.Members()[0]
	at := m.ResourceVersion()
	touch(t, m, 3, "lost")
	r.touched(m, 3, "lost")
	busy.Store(true)
	m.Cut()
	ok(t, m.Rewind(at))
	for i := range 5 {
		touch(t, m, 5+i, "overtaken")
	}
	ok(t, m.Restore())
	l.cut()
	r.touched(m, 9, "overtaken")
	r.until("it is asked", func() bool { return refused.Load() > 0 })
	for n := range 2 {
		m.DropWatches()
		touch(t, m, 4, fmt.Sprint("reopened-", n))
		r.touched(m, 4, fmt.Sprint("reopened-", n))
	}
	busy.Store(false)
	r.until("the other history is detected", func() bool { return r.log.count(otherHistory) == 1 })
	r.exact(m, opts.Kinds)
	r.synced(m)
}

func TestRewind_OlderListRelistsTheMember(t *testing.T) {
	opts := fewKinds()
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 10) })
	m := r.fleet.Members()[0]
	rewindMember(t, m, r)
	// The watches ended without an error, so that the member is assumed to be unchanged;
	// those that resume receive nothing. One of them has to list.
	m.Compact(configMaps)
	m.Faults().Add(sim.Fault{Verb: "watch", Kind: configMaps, Status: http.StatusGone, Times: 1})
	m.DropWatches(configMaps)
	r.until("the rewind is detected", func() bool { return r.log.count(wentBack) == 1 })
	r.exact(m, opts.Kinds)
	r.synced(m)
}

// TestRewind_OlderEventRelistsTheMember: a server that accepts watches from a future
// version sends what comes next, as Cluster API's in-memory one.
func TestRewind_OlderEventRelistsTheMember(t *testing.T) {
	for _, bookmark := range []bool{false, true} {
		t.Run(fmt.Sprintf("bookmark=%t", bookmark), func(t *testing.T) {
			opts := fewKinds()
			opts.Version = "v1.99.0" // newer than our types: JSON, as the false events are
			var falseVersion atomic.Pointer[string]
			r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) {
				m := r.fleet.Members()[0]
				fill(t, m, 10)
				r.source.view[0] = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
					rv := falseVersion.Load()
					if rv == nil || req.URL.Path != "/api/v1/pods" || req.URL.Query().Get("watch") == "" || req.URL.Query().Get("sendInitialEvents") != "" {
						return false
					}
					object := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"resourceVersion": *rv}}
					kind := "BOOKMARK"
					if !bookmark {
						kind = "ADDED"
						object["metadata"] = map[string]any{"namespace": "default", "name": "new", "uid": "u", "resourceVersion": *rv}
					}
					w.Header().Set("Content-Type", "application/json")
					_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object}) //nolint:errcheck // the client is gone
					_ = http.NewResponseController(w).Flush()                                     //nolint:errcheck // the client is gone
					<-req.Context().Done()
					return true
				}).spec
			})
			m := r.fleet.Members()[0]
			rewindMember(t, m, r)
			now, err := strconv.Atoi(m.ResourceVersion())
			ok(t, err)
			rv := strconv.Itoa(now + 1)
			falseVersion.Store(&rv)
			m.DropWatches(pods)
			r.until("the rewind is detected", func() bool { return r.log.count(wentBack) == 1 })
			falseVersion.Store(nil)
			r.exact(m, opts.Kinds)
			r.synced(m)
		})
	}
}

// TestRewind_EventsOutOfOrderAreNotARewind: a server may send what came since a watch's
// resourceVersion in any order.
func TestRewind_EventsOutOfOrderAreNotARewind(t *testing.T) {
	var sent atomic.Bool
	opts := fewKinds()
	opts.Version = "v1.99.0"
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 3)
		r.source.view[0] = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			q := req.URL.Query()
			if req.URL.Path != "/api/v1/pods" || q.Get("watch") == "" || q.Get("sendInitialEvents") != "" || sent.Swap(true) {
				return false
			}
			from, err := strconv.Atoi(q.Get("resourceVersion"))
			if err != nil {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			for _, ahead := range []int{9, 7, 8} {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": map[string]any{ //nolint:errcheck // the client is gone
					"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "default", "name": fmt.Sprint("p-", ahead), "uid": "u", "resourceVersion": strconv.Itoa(from + ahead)},
				}})
			}
			_ = http.NewResponseController(w).Flush() //nolint:errcheck // the client is gone
			<-req.Context().Done()
			return true
		}).spec
	})
	m := r.fleet.Members()[0]
	m.DropWatches(pods)
	r.until("the events are in the index", func() bool { return len(r.held(m, "Pod")) == 6 })
	r.during(200*time.Millisecond, "nothing is listed again", func() bool { return r.log.count(wentBack) == 0 && r.state(m, "Pod") == aggregate.Synced })
}

// TestRewind_ForgetsResourceVersionsThatTheServerRefuses: one that was reported once, by
// a proxy before the server for example, must not exclude the member for good.
func TestRewind_ForgetsResourceVersionsThatTheServerRefuses(t *testing.T) {
	for _, absurd := range []string{"99999999999999999999", "18446744073709551615", "latest", "-5"} {
		t.Run(absurd, func(t *testing.T) {
			opts := fewKinds()
			opts.Version = "v1.99.0" // JSON, as the false bookmarks are
			var dishonest atomic.Bool
			var sent atomic.Int64
			var l *fakeServer
			r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) {
				m := r.fleet.Members()[0]
				fill(t, m, 3)
				l = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
					q := req.URL.Query()
					if rv := q.Get("resourceVersion"); rv == "latest" || len(rv) == 20 && rv > "18446744073709551615" || rv == "-5" {
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(http.StatusBadRequest) // as kube-apiserver does
						fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400,"message":"resourceVersion: Invalid value: %q"}`, rv)
						return true
					}
					if !dishonest.Load() || q.Get("watch") == "" || q.Get("sendInitialEvents") != "" {
						return false
					}
					kind := map[string]string{"/api/v1/pods": "Pod", "/api/v1/namespaces": "Namespace"}[req.URL.Path]
					if kind == "" {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":%q,"metadata":{"resourceVersion":%q}}}`+"\n", kind, absurd)
					_ = http.NewResponseController(w).Flush() //nolint:errcheck // the client is gone
					sent.Add(1)
					<-req.Context().Done()
					return true
				})
				r.source.view[0] = l.spec
			})
			m := r.fleet.Members()[0]
			dishonest.Store(true)
			m.DropWatches(pods, schema.GroupResource{Resource: "namespaces"})
			r.until("the version is received", func() bool {
				return sent.Load() >= 2 && r.detail(m, "Pod").Applied == absurd && r.detail(m, "Namespace").Applied == absurd
			})
			dishonest.Store(false)
			l.cut()
			ok(t, m.Create(pod(9)))
			ok(t, m.Create(namespace("new")))
			r.exact(m, opts.Kinds)
			r.synced(m)
		})
	}
}
