package queryapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// standBy has a process hold a member that another one judges, with all its Pods.
func (f *sharedFleet) standBy(to *process, member string, pods int) {
	f.t.Helper()
	at, _ := f.judges[member].index.Snapshot().Member(member)
	at.Role = aggregate.Standby
	f.must(to.index.PutMember(at))
	for _, k := range sharedKinds {
		to.scope(f.t, member, k.Kind)
	}
	for i := range pods {
		o := sharedObject{member, "Pod", "blue", fmt.Sprint("p", i), "a", "1"}
		s := to.scope(f.t, member, "Pod")
		s.Upsert(s.Item(o.record(7)))
		_, err := s.Commit()
		f.must(err)
	}
	f.standbys[member] = to
	f.publish()
}

// TestShared_AStandbyAnswersForOneMember: who asks for one member is answered by the process that stands by, wherever that is, and
// told so, when its judge is away: refusing, or silent. There may be kinds that it has not read, which is no reason to answer nothing.
func TestShared_AStandbyAnswersForOneMember(t *testing.T) {
	for _, c := range []struct {
		silent bool
		role   aggregate.Role
	}{{false, aggregate.Standby}, {true, aggregate.Standby}, {false, aggregate.StandbyUnread}} {
		silent := c.silent
		f := share(t, 3, nil)
		f.join("a/eu-1", "a/eu-2", "a/eu-3")
		f.put(7, sharedObject{"a/eu-2", "Pod", "blue", "p0", "a", "1"}, sharedObject{"a/eu-2", "Pod", "blue", "p1", "a", "1"})
		judge, standby := f.processes[1], f.processes[2]
		f.standBy(standby, "a/eu-2", 2)
		at, _ := standby.index.Snapshot().Member("a/eu-2")
		at.Role = c.role
		f.must(standby.index.PutMember(at))
		if judge.slow.Store(silent); !silent {
			f.kill(judge)
		}
		for _, path := range []string{"/members/a/eu-2/api/v1/pods", "/members/a/eu-2/api/v1/namespaces/blue/pods/p1", "/query/v1/related?member=a/eu-2&resource=pods&namespace=blue&name=p0"} {
			want, err := f.whole.ask(t, f.whole.Client(t), path, nil, f.whole.Token())
			f.must(err)
			for _, p := range []*process{f.processes[0], standby} {
				began := time.Now()
				got, err := p.ask(t, p.Client(t), path, nil, p.Token())
				f.must(err)
				if got.code != want.code || got.body != want.body {
					t.Errorf("silent %t: %s of %s: %d %s\nwant %d %s", silent, path, p.id, got.code, got.body, want.code, want.body)
				}
				if !strings.Contains(got.headers, "member a/eu-2 is answered for by process "+standby.id) {
					t.Errorf("silent %t: %s of %s does not say who answers: %s", silent, path, p.id, got.headers)
				}
				if took := time.Since(began); took > 12*time.Second {
					t.Errorf("silent %t: %s of %s took %v", silent, path, p.id, took)
				}
			}
		}
		a, err := f.processes[0].ask(t, f.processes[0].Client(t), "/members/a/eu-3/api/v1/pods", nil, f.processes[0].Token())
		f.must(err)
		if a.code != http.StatusOK || strings.Contains(a.headers, "answered for") {
			t.Errorf("a member whose judge is well: %d %s", a.code, a.headers)
		}
	}
}

// TestShared_ASilentProcessDelaysOneQuery: the first query finds it out, the others answer at once without its members, and with
// them as soon as it answers again.
func TestShared_ASilentProcessDelaysOneQuery(t *testing.T) {
	f := share(t, 2, func(o *queryapi.Options) { o.Limits.Peer = time.Minute })
	f.join("a/eu-1", "a/eu-2")
	p, silent := f.processes[0], f.processes[1]
	ask := func(path string) answer {
		a, err := p.ask(t, p.Client(t), path, nil, p.Token())
		f.must(err)
		return a
	}
	silent.slow.Store(true)
	if a := ask("/fleet/api/v1/pods"); a.code != http.StatusOK || !strings.Contains(a.headers, "a/eu-2;state=Unknown") {
		t.Errorf("the first: %d %s", a.code, a.headers)
	}
	began := time.Now()
	for range 20 {
		if a := ask("/fleet/api/v1/pods"); a.code != http.StatusOK || !strings.Contains(a.headers, "a/eu-2;state=Unknown") {
			t.Fatalf("another: %d %s", a.code, a.headers)
		}
		if a := ask("/members/a/eu-2/api/v1/pods"); a.code != http.StatusServiceUnavailable {
			t.Fatalf("of its member: %d %s", a.code, a.headers)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("40 further ones took %v", took)
	}
	silent.slow.Store(false)
	until(t, "it is asked again", func() bool {
		return !strings.Contains(ask("/fleet/api/v1/pods").headers, "a/eu-2") && ask("/members/a/eu-2/api/v1/pods").code == http.StatusOK
	})
}
