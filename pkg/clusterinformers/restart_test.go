package clusterinformers

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/listwatch"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
	"federator.dev/federator/pkg/clusterinformers/internal/runqueue"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// silentBody is a watch on which nothing comes.
type silentBody struct{ closed bool }

func (b *silentBody) Read([]byte) (int, error)    { return 0, io.EOF }
func (b *silentBody) ReadNow([]byte) (int, error) { return 0, stream.ErrNothing }
func (b *silentBody) Notify(func())               {}
func (b *silentBody) Close() error                { b.closed = true; return nil }

// TestListWatch_DropsTheAnswerToARequestOfBeforeARestart: it is of a list that is not wanted any
// more, and would keep the next one from being sent until it ends.
func TestListWatch_DropsTheAnswerToARequestOfBeforeARestart(t *testing.T) {
	body, now := &silentBody{}, time.Now()
	for name, a := range map[string]*answer{
		"watch": {watch: &watchResponse{body: body, events: decode.NewEvents(nowReader{body}, 100)}},
		"page":  {page: &page{items: []*object{{name: "a", deleted: true}}, more: "b"}},
		"error": {err: io.ErrUnexpectedEOF},
	} {
		m := &Manager{queue: runqueue.New(), slots: quota.NewSlots(1)}
		mb := &member{manager: m, quota: quota.Member{Limits: quota.Limits{Objects: 10, Bytes: 1 << 20}}}
		p := &listWatch{informer: &informer{member: mb}, machine: listwatch.New("", listwatch.Options{})}
		m.queue.Group().Init(&p.task, p)
		if err := p.stage(&object{name: "a", deleted: true}); err != nil {
			t.Fatal(err)
		}
		p.request, _, p.asking = p.machine.Next(now)
		p.restart(now, time.Minute)
		defer p.timer.Load().Stop()
		if len(p.staged) != 1 {
			t.Errorf("%s: what the request under way reads was taken from it", name)
		}
		p.asking = false
		p.answered(now, a)
		if o, b := mb.quota.Used(); p.watch != nil || p.staged != nil || o != 0 || b != 0 {
			t.Errorf("%s: watch %v, %d staged, %d objects and %d bytes charged", name, p.watch, len(p.staged), o, b)
		}
		if _, at, ok := p.machine.Next(now); ok || !at.Equal(now.Add(time.Minute)) {
			t.Errorf("%s: the next request is sent at %s", name, at)
		}
	}
	if !body.closed {
		t.Error("the watch was not closed")
	}
}

// scriptedBody is a watch on which the results of functions come.
type scriptedBody struct {
	silentBody

	script []func() string
}

func (b *scriptedBody) ReadNow(to []byte) (int, error) {
	if len(b.script) == 0 {
		return 0, stream.ErrNothing
	}
	n := copy(to, b.script[0]())
	b.script = b.script[1:]
	return n, nil
}

// TestListWatch_EndsItsTurnWhenACommitExceedsTheBudget: the budget that was good for what is
// staged may be another's once that is committed. What else has come is of a watch that is closed.
func TestListWatch_EndsItsTurnWhenACommitExceedsTheBudget(t *testing.T) {
	i := unstartedInformer(t)
	mb := i.member
	p, now := i.listWatches[0], time.Now()
	body := &scriptedBody{script: []func() string{
		func() string {
			return `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"5"}}}` + "\n"
		},
		func() string {
			mb.quota.Limits = quota.Limits{}
			end := `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":%q,"annotations":{"k8s.io/initial-events-end":"true"}}}}`
			return fmt.Sprintf(end+"\n"+end+"\n", "7", "8")
		},
	}}
	p.request, _, _ = p.machine.Next(now)
	p.watch = &watchResponse{client: memberclient.New(nil, http.DefaultClient), body: body, events: decode.NewEvents(nowReader{body}, 1<<20), deadline: now.Add(time.Hour)}
	p.came.Store(true)
	p.Run()
	if p.state != aggregate.OverBudget || !strings.Contains(p.reason, "exceed the budget") || p.panics != 0 {
		t.Errorf("it is %s: %s", p.state, p.reason)
	}
	if at := p.machine.Listing(); !at || !body.closed {
		t.Errorf("it lists %t, and has closed the watch %t", at, body.closed)
	}
	i.end()
	p.Run()
	<-i.done
	if o, b := mb.quota.Used(); o != 0 || b != 0 {
		t.Errorf("%d objects and %d bytes are charged", o, b)
	}
}

// unstartedInformer returns an informer for Pods whose listWatches nothing runs.
func unstartedInformer(t *testing.T) *informer {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{Index: index, Sources: []Source{make(viewsSource)}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	pods := catalog.APIResource{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true}
	i, err := newInformer(t.Context(), newMember(m, Spec{Name: "fleet/a"}), "Pod", pods, KindRule{}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestMember_HoldsWritesWhileScopesRestart: between two informers of a kind nobody watches what an earlier process
// has held, however long the member is connected.
func TestMember_HoldsWritesWhileScopesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := unstartedInformer(t)
		mb := i.member
		mb.manager.opts.GiveUpAfter = time.Minute
		mb.loaded.Store(takeLoaded(mb.manager.opts.Index)[mb.name])
		mb.conn.setLocked(true, connection.Connected, "", "")
		mb.informers["Pod"] = &runningInformer{informer: i}
		time.Sleep(time.Hour)
		i.setState(i.listWatches[0], aggregate.Synced, "")
		holds := func(when string, want bool) {
			t.Helper()
			if got := mb.unaudited(); len(got) > 0 != want {
				t.Errorf("%s writes wait for %v, want some: %t", when, got, want)
			}
		}
		holds("before", true)
		mb.restartScopes(0)
		holds("once it is ended", true)
		i.finish()
		mb.stopStale(map[aggregate.Kind]catalog.APIResource{"Pod": i.res()}, mb.resets)
		holds("once nobody watches it", true)
		time.Sleep(time.Minute)
		holds("once it had its time", false)
	})
}

// TestListWatch_IsStaleWhileAWatchIsNotAnswered: until then nothing is heard of what is held.
func TestListWatch_IsStaleWhileAWatchIsNotAnswered(t *testing.T) {
	i := unstartedInformer(t)
	p, now := i.listWatches[0], time.Now()
	p.machine = listwatch.New("5", listwatch.Options{})
	i.setState(p, aggregate.Synced, "")
	p.request, _, p.asking = p.machine.Next(now)
	p.asked = now
	for after, want := range map[time.Duration]aggregate.State{unwatchedAfter - 1: aggregate.Synced, unwatchedAfter: aggregate.Stale} {
		i.setState(p, aggregate.Synced, "")
		if p.step(now.Add(after)); p.state != want {
			t.Errorf("it is %s after %s", p.state, after)
		}
	}
	i.setState(p, aggregate.Stale, "")
	body := &silentBody{}
	p.inbox.Store(&answer{watch: &watchResponse{
		client: memberclient.New(nil, http.DefaultClient), body: body, events: decode.NewEvents(nowReader{body}, 1<<20), deadline: now.Add(time.Hour),
	}})
	if p.step(now.Add(time.Minute)); p.state != aggregate.Synced || p.watch == nil {
		t.Errorf("it is %s once the watch is open", p.state)
	}
	i.end()
	p.Run()
	<-i.done
}

// TestListWatch_IsStaleWhileTheNextWatchIsDelayed: a server that ends watches at once is asked less
// and less, and nothing is heard of what is held meanwhile.
func TestListWatch_IsStaleWhileTheNextWatchIsDelayed(t *testing.T) {
	i := unstartedInformer(t)
	conn := i.member.conn
	conn.setClient(memberclient.New(nil, http.DefaultClient), nil)
	conn.probed(conn.client, nil)
	p, now := i.listWatches[0], time.Now()
	p.machine = listwatch.New("5", listwatch.Options{})
	i.setState(p, aggregate.Synced, "")
	for delay := time.Duration(0); delay < 2*longDelay; {
		r, at, ok := p.machine.Next(now)
		if !ok {
			p.next(now)
			delay = at.Sub(now)
			if want := map[bool]aggregate.State{false: aggregate.Synced, true: aggregate.Stale}[delay >= longDelay]; p.state != want {
				t.Errorf("it is %s for %s", p.state, delay)
			}
			now = at
			continue
		}
		p.request = r
		p.machine.Opened(r.ID, now)
		p.markUp()
		p.closed(now)
	}
	i.setState(p, aggregate.Unknown, "Panicked")
	p.machine.Restart(now, time.Minute)
	if p.next(now); p.state != aggregate.Unknown || p.reason != "Panicked" {
		t.Errorf("what was said before is %s: %s", p.state, p.reason)
	}
	p.timer.Load().Stop()
	i.end()
	p.Run()
	<-i.done
}
