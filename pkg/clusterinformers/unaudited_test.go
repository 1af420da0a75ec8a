package clusterinformers_test

import (
	"errors"
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

// TestManager_HoldsWritesToAMemberThatComesLate: nothing that was loaded of a member that was away at the
// start, for as long as its policies are waited for, is watched or audited when it is connected.
func TestManager_HoldsWritesToAMemberThatComesLate(t *testing.T) {
	var away, blind atomic.Bool
	l := newLives(t, fewKinds(), func(r *rig) {
		populate(r)
		r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			discovery := strings.HasPrefix(req.URL.Path, "/apis") || req.URL.Path == "/api" || req.URL.Path == "/api/v1"
			refused := away.Load() || blind.Load() && discovery
			if refused {
				writeStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable")
			}
			return refused
		}).spec
	})
	m := l.fleet.Members()[0]
	restarted := time.Now()
	l.restart(func() { away.Store(true); blind.Store(true) }, func(o *clusterinformers.Options) { auditNow(o); o.GiveUpAfter = 3 * time.Second })
	l.until("it has had its time", func() bool { ready, _ := l.manager.Ready(); return ready && time.Since(restarted) > 3*time.Second })
	away.Store(false)
	l.until("it is connected", func() bool { return l.status(m).State == connection.Connected })
	if err := l.manager.CheckContact(nameOf(m)); err == nil {
		t.Errorf("nothing of what was loaded is watched, nothing was audited, and writes go: %+v", l.status(m).Audit)
	}
	blind.Store(false)
	l.within(time.Minute, "all is audited", func() bool { return l.manager.CheckContact(nameOf(m)) == nil })
}

// TestManager_HoldsWritesUntilWhatIsOpenedAnewIsRead: what goes on after a server was taken back is another
// informer of the same kind, and nobody has audited what is held of it either.
func TestManager_HoldsWritesUntilWhatIsOpenedAnewIsRead(t *testing.T) {
	var block atomic.Bool
	release := make(chan struct{})
	var server *fakeServer
	l := newLives(t, fewKinds(), func(r *rig) {
		fill(t, r.fleet.Members()[0], 10)
		server = newFakeServer(t, r.fleet.Members()[0], func(_ http.ResponseWriter, req *http.Request) bool {
			q := req.URL.Query()
			audits := q.Get("watch") == "" && strings.HasPrefix(q.Get("limit"), "50")
			reads := block.Load() && (strings.HasSuffix(req.URL.Path, "/pods") || strings.HasSuffix(req.URL.Path, "/configmaps"))
			if audits || reads {
				select {
				case <-req.Context().Done():
					return true
				case <-release:
				}
			}
			return false
		})
		r.source.view[0] = server.spec
	})
	m := l.fleet.Members()[0]
	l.restart(nil, auditNow)
	l.synced(m)
	if err := l.manager.CheckContact(nameOf(m)); err == nil {
		t.Fatal("writes go before audits")
	}
	at := m.ResourceVersion()
	for i := range 3 {
		touch(t, m, i, "lost")
		ok(t, m.Create(namespace(fmt.Sprint("lost-", i))))
	}
	l.touched(m, 2, "lost")
	l.until("the last Namespace is held", func() bool { // its watch is the one that finds out: nobody else's is answered
		_, is := l.index.Snapshot().Get(aggregate.Ref{Member: nameOf(m), Kind: "Namespace", Name: "lost-2"})
		return is
	})
	block.Store(true)
	ok(t, m.Rewind(at))
	server.cut()
	l.until("it is noticed", func() bool { return l.log.count(wentBack) > 0 })
	l.during(2*time.Second, "writes are held", func() bool { return l.manager.CheckContact(nameOf(m)) != nil })
	close(release)
	l.within(time.Minute, "all is read", func() bool { return l.manager.CheckContact(nameOf(m)) == nil })
}

// TestManager_SaysWhatHoldsWrites: the status counts what writes wait for, and nothing else. What is
// Forbidden now is not audited.
func TestManager_SaysWhatHoldsWrites(t *testing.T) {
	var forbid atomic.Bool
	l := newLives(t, fewKinds(), func(r *rig) {
		populate(r)
		r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			refused := forbid.Load() && strings.HasSuffix(req.URL.Path, "/pods")
			if refused {
				writeStatus(w, http.StatusForbidden, "Forbidden")
			}
			return refused
		}).spec
	})
	m := l.fleet.Members()[0]
	l.restart(func() { forbid.Store(true) }, auditNow)
	l.untilState(m, "Pod", aggregate.Forbidden)
	l.within(time.Minute, "writes go", func() bool { return l.manager.CheckContact(nameOf(m)) == nil })
	if st := l.status(m); st.Audit == nil || st.Audit.Unaudited != 0 {
		t.Errorf("writes go, and the status says %+v", st.Audit)
	}
}

// TestAudit_SaysWhatItCannotCompare: what is held of a member that is away is not passed over, and a kind
// that nobody serves is an error.
func TestAudit_SaysWhatItCannotCompare(t *testing.T) {
	var away atomic.Bool
	l := newLives(t, fewKinds(), func(r *rig) {
		populate(r)
		r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, _ *http.Request) bool {
			refused := away.Load()
			if refused {
				writeStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable")
			}
			return refused
		}).spec
	})
	m := l.fleet.Members()[0]
	audit := func(kind aggregate.Kind) (outcomes map[string]int, err error) {
		outcomes = map[string]int{}
		err = l.manager.Audit(t.Context(), nameOf(m), kind, func(r clusterinformers.AuditResult) { outcomes[r.Outcome]++ })
		return outcomes, err
	}
	if got, err := audit("Nonsense"); !errors.Is(err, clusterinformers.ErrUnknownKind) {
		t.Errorf("a kind that nobody serves: %v, %v", got, err)
	}
	l.restart(func() { away.Store(true) }, auditNow)
	l.until("the member is known", l.manager.Known)
	for kind, want := range map[aggregate.Kind]int{"": 5, "Pod": 1} {
		if got, err := audit(kind); err != nil || got["notSynced"] != want || len(got) != 1 {
			t.Errorf("kind %q of a member that is away: %v, %v; want %d that are not synced", kind, got, err, want)
		}
	}
}
