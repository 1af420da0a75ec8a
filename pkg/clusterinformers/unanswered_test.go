package clusterinformers_test

import (
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// TestWatch_AnEndWithoutAnAnswerIsAFailure: a connection that ends before the answer is an
// io.EOF, as is the end of a watch, which is none.
func TestWatch_AnEndWithoutAnAnswerIsAFailure(t *testing.T) {
	var l *fakeServer
	r := follow(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 3)
		l = newFakeServerOf(t, m, false, func(http.ResponseWriter, *http.Request) bool { return false })
		r.source.view[0] = l.spec
	})
	m := r.fleet.Members()[0]
	streams := r.detail(m, "Pod").Relists
	l.mu.Lock()
	l.answer = func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/pods") {
			return false
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return false
		}
		_ = c.Close()
		return true
	}
	l.mu.Unlock()
	m.DropWatches(pods)
	r.untilState(m, "Pod", aggregate.Stale)
	if why := r.scope(m, "Pod").Status.Reason; !strings.Contains(why, "EOF") {
		t.Errorf("the reason is %q", why)
	}
	l.mu.Lock()
	l.answer = func(http.ResponseWriter, *http.Request) bool { return false }
	l.mu.Unlock()
	r.untilState(m, "Pod", aggregate.Synced)
	if now := r.detail(m, "Pod").Relists; len(now) != len(streams) {
		t.Errorf("relists %v, before %v", now, streams)
	}
}
