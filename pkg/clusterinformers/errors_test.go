package clusterinformers_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// TestConn_ServerWithoutVersionIsConnected: Cluster API's in-memory clusters have no
// /version.
func TestConn_ServerWithoutVersionIsConnected(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			opts := fewKinds()
			r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
				m := r.fleet.Members()[0]
				fill(t, m, 3)
				r.source.view[0] = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path != "/version" {
						return false
					}
					http.Error(w, "404: Page Not Found", code)
					return true
				}).spec
			}).start()
			m := r.fleet.Members()[0]
			r.synced(m)
			r.exact(m, opts.Kinds)
			if e := r.detail(m, "Pod").Encoding; e != "json" {
				t.Errorf("pods come as %s, though nothing says that our types are new enough", e)
			}
		})
	}
}

// TestConn_ServerThatAnswersIsNotUnreachable: and the failed request is named.
func TestConn_ServerThatAnswersIsNotUnreachable(t *testing.T) {
	for name, tt := range map[string]struct {
		path   string
		answer func(w http.ResponseWriter)
		want   connection.Reason
	}{
		"errors":        {"/version", func(w http.ResponseWriter) { http.Error(w, "no", http.StatusInternalServerError) }, connection.ServerError},
		"unavailable":   {"/api/v1/namespaces/kube-system", func(w http.ResponseWriter) { http.Error(w, "no", http.StatusServiceUnavailable) }, connection.ServerError},
		"no API server": {"/version", func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, connection.ServerError},
		"unauthorized":  {"/version", func(w http.ResponseWriter) { http.Error(w, "no", http.StatusUnauthorized) }, connection.Unauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
				r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path != tt.path {
						return false
					}
					tt.answer(w)
					return true
				}).spec
			}).start()
			m := r.fleet.Members()[0]
			r.until("the reason is true and names the request", func() bool {
				st := r.status(m)
				return st.State == connection.Disconnected && st.Reason == tt.want && strings.Contains(st.Message, "GET "+tt.path)
			})
		})
	}
	t.Run("certificate", func(t *testing.T) {
		opts := fewKinds()
		opts.Members = 2
		r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
			a, b := r.fleet.Members()[0], r.fleet.Members()[1]
			spec := specOf(t, a)
			spec.Kubeconfig = []byte(strings.ReplaceAll(string(spec.Kubeconfig), a.Address(), b.Address()))
			r.source.view = []clusterinformers.Spec{spec}
		}).start()
		r.until("the certificate is the reason", func() bool { return r.status(r.fleet.Members()[0]).Reason == connection.UntrustedServer })
	})
}

// TestMemberStatus_LeavesOutErrorsThatAreOver: neither those of kinds nor the member's.
func TestMemberStatus_LeavesOutErrorsThatAreOver(t *testing.T) {
	var fail atomic.Bool
	fail.Store(true)
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 3)
		r.source.view[0] = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			if !fail.Load() || req.URL.Path != "/api/v1/configmaps" {
				return false
			}
			http.Error(w, "etcd is slow today", http.StatusInternalServerError)
			return true
		}).spec
	}).start()
	m := r.fleet.Members()[0]
	r.until("the error is reported, with its request", func() bool {
		st := r.status(m)
		return strings.Contains(st.Error, "GET /api/v1/configmaps") && st.ErrorAt != nil
	})
	fail.Store(false)
	r.synced(m)
	if st := r.status(m); st.Error != "" || st.LastError == "" {
		t.Errorf("error %q is reported though it is over; the last one was %q", st.Error, st.LastError)
	}
	m.Cut()
	r.until("it is out of reach", func() bool { return r.status(m).Error != "" || r.all(m, aggregate.Stale) })
	ok(t, m.Restore())
	r.synced(m)
	r.until("that is over", func() bool { return r.status(m).Error == "" })
}

// TestMember_ScopesOfARefusedOneSayWhy: and not that a context was canceled.
func TestMember_ScopesOfARefusedOneSayWhy(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 3) })
	m := r.fleet.Members()[0]
	deleting := specOf(t, m)
	deleting.Refused = &connection.Refusal{Reason: connection.Deleting, Message: "the Cluster is being deleted"}
	r.source.set(deleting)
	r.until("all is stale", func() bool { return r.all(m, aggregate.Stale) })
	for _, d := range r.status(m).Details {
		if !strings.Contains(d.Reason, "the Cluster is being deleted") {
			t.Errorf("%s is %s: %s", d.Kind, d.State, d.Reason)
		}
	}
	if st := r.status(m); strings.Contains(st.LastError+st.Error, "context canceled") {
		t.Errorf("the last error is %q", st.LastError)
	}
}

// TestMemberStatus_QuietMemberIsFresh: what counts is the last contact, not the last change.
func TestMemberStatus_QuietMemberIsFresh(t *testing.T) {
	r := follow(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) {
		o.PingInterval, o.PingTimeout = 50*time.Millisecond, time.Second
	})
	m := r.fleet.Members()[0]
	synced := time.Now()
	r.until("there was a contact since", func() bool {
		st := r.status(m)
		later := synced.Add(200 * time.Millisecond)
		return st.Freshness != nil && time.Now().Add(-*st.Freshness).After(later) && r.manager.LastContact(nameOf(m), "Pod").After(later)
	})
	m.Cut()
	r.until("it is out of reach", func() bool { return r.status(m).State == connection.Disconnected })
	cut := time.Now()
	r.during(200*time.Millisecond, "there is no contact any more", func() bool {
		st := r.status(m)
		return time.Now().Add(-*st.Freshness).Before(cut) && r.manager.LastContact(nameOf(m), "Pod").Before(cut)
	})
}

func TestMember_RemovalIsLogged(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := follow(t, opts, nil)
	r.source.set(specOf(t, r.fleet.Members()[0]))
	r.until("it is logged", func() bool { return r.log.count("member removed") == 1 })
}

// TestMemberStatus_TellsNoCredentials: what a member, or a proxy before it, answers may repeat the request.
func TestMemberStatus_TellsNoCredentials(t *testing.T) {
	sent := make(chan string, 1)
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != "/api/v1/configmaps" {
				return false
			}
			select {
			case sent <- req.Header.Get("Authorization"):
			default:
			}
			http.Error(w, "no upstream for request with Authorization: "+req.Header.Get("Authorization"), http.StatusInternalServerError)
			return true
		}).spec
	}).start()
	m := r.fleet.Members()[0]
	r.until("the error is reported", func() bool { return strings.Contains(r.status(m).Error, "no upstream") })
	_, token, _ := strings.Cut(<-sent, " ")
	if st := r.status(m); token == "" || strings.Contains(st.Error+st.LastError+st.Message, "Bearer "+token) {
		t.Errorf("with token %q: %q", token, st.Error)
	}
}
