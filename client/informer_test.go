package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/client"
)

// pod is web/NAME of a member, labelled with its version.
func pod(member, name, uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: name, UID: types.UID(uid), ResourceVersion: version,
		Annotations: map[string]string{"federator.dev/member": member}, Labels: map[string]string{"v": version},
	}}
}

// stage is a server's side of list and watch, and the events that the handler received.
type stage struct {
	t      *testing.T
	mu     sync.Mutex
	list   []corev1.Pod
	lists  int
	events []string
	news   *sync.Cond
	watch  chan *watch.FakeWatcher
}

func newStage(t *testing.T, list ...*corev1.Pod) *stage {
	s := &stage{t: t, watch: make(chan *watch.FakeWatcher)}
	s.news = sync.NewCond(&s.mu)
	s.set(list...)
	return s
}

func (s *stage) set(list ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
	for _, p := range list {
		s.list = append(s.list, *p)
	}
}

func (s *stage) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lists++
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: slices.Clone(s.list)}, nil
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFake()
			select {
			case s.watch <- w:
				return w, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
}

func (s *stage) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf(format, args...))
	s.news.Broadcast()
}

// expect waits for as many events as it names and compares them.
func (s *stage) expect(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.events) < len(want) {
		s.news.Wait()
	}
	if !slices.Equal(s.events, want) {
		s.t.Fatalf("received %q, want %q", s.events, want)
	}
	s.events = nil
}

func (s *stage) options() client.Options[*corev1.Pod] {
	return client.Options[*corev1.Pod]{
		Handlers: []client.Handler[*corev1.Pod]{{
			Added:   func(k client.Key, p *corev1.Pod) { s.record("+%s@%s", k, p.ResourceVersion) },
			Updated: func(k client.Key, _, p *corev1.Pod) { s.record("~%s@%s", k, p.ResourceVersion) },
			Deleted: func(k client.Key, p *corev1.Pod) { s.record("-%s@%s", k, p.UID) },
		}, {}}, // and one without functions
		Indexers: map[string]func(*corev1.Pod) []string{"v": func(p *corev1.Pod) []string { return []string{p.Labels["v"]} }},
	}
}

func (s *stage) start() *client.Informer[*corev1.Pod] {
	s.t.Helper()
	i, err := client.NewInformer(s.listWatch(), &corev1.Pod{}, s.options())
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := i.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-i.Synced()
	return i
}

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		k, err := client.KeyOf(p)
		if err != nil {
			panic(err)
		}
		out = append(out, k.String())
	}
	return out
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInformer_ObjectsOfOneNameInTwoMembersAreTwo(t *testing.T) {
	s := newStage(t, pod("fleet/eu", "a", "1", "1"), pod("fleet/us", "a", "2", "1"))
	i := s.start()
	s.expect("+fleet/eu/web/a@1", "+fleet/us/web/a@1")
	w := <-s.watch
	w.Modify(pod("fleet/us", "a", "2", "7"))
	s.expect("~fleet/us/web/a@7")
	l := i.Lister()
	if eu, ok := l.Get(client.Key{Member: "fleet/eu", Namespace: "web", Name: "a"}); !ok || eu.ResourceVersion != "1" {
		t.Errorf("the other member's object is %v, %v", eu, ok)
	}
	for what, c := range map[string]struct{ got, want []string }{
		"all":       {names(l.List(labels.Everything())), []string{"fleet/eu/web/a", "fleet/us/web/a"}},
		"selected":  {names(l.List(labels.SelectorFromSet(labels.Set{"v": "7"}))), []string{"fleet/us/web/a"}},
		"member":    {names(l.Member("fleet/eu", nil)), []string{"fleet/eu/web/a"}},
		"namespace": {names(l.Namespace("fleet/eu", "web", nil)), []string{"fleet/eu/web/a"}},
		"elsewhere": {names(l.Namespace("fleet/eu", "shop", nil)), nil},
		"index":     {names(l.ByIndex("v", "7")), []string{"fleet/us/web/a"}},
		"no index":  {names(l.ByIndex("w", "7")), nil},
		"members":   {l.Members(), []string{"fleet/eu", "fleet/us"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
	w.Delete(pod("fleet/us", "a", "2", "8"))
	s.expect("-fleet/us/web/a@2")
	if m := l.Members(); !slices.Equal(m, []string{"fleet/eu"}) || !i.HasSynced() {
		t.Errorf("members %q, synced %v", m, i.HasSynced())
	}
}

func TestInformer_AnotherUIDIsDeletedAndAdded(t *testing.T) {
	s := newStage(t, pod("fleet/eu", "a", "1", "1"))
	s.start()
	s.expect("+fleet/eu/web/a@1")
	(<-s.watch).Modify(pod("fleet/eu", "a", "9", "2"))
	s.expect("-fleet/eu/web/a@1", "+fleet/eu/web/a@2")
}

func TestInformer_RelistReportsOnlyDifferences(t *testing.T) {
	s := newStage(t, pod("fleet/eu", "a", "1", "1"), pod("fleet/eu", "b", "2", "1"), pod("fleet/us", "c", "3", "1"))
	s.start()
	s.expect("+fleet/eu/web/a@1", "+fleet/eu/web/b@1", "+fleet/us/web/c@1")
	s.set(pod("fleet/eu", "a", "1", "1"), pod("fleet/eu", "b", "2", "5"), pod("fleet/us", "d", "4", "5"))
	w := <-s.watch
	w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
	s.expect("-fleet/us/web/c@3", "~fleet/eu/web/b@5", "+fleet/us/web/d@5")
}

func TestInformer_ServerThatNamesNoMembersFillsNothing(t *testing.T) {
	if _, err := client.KeyOf(&corev1.Pod{}); !errors.Is(err, client.ErrNoMember) {
		t.Errorf("error %v, want ErrNoMember", err)
	}
	s := newStage(t, pod("fleet/eu", "a", "1", "1"))
	i := s.start()
	s.expect("+fleet/eu/web/a@1")
	stranger := pod("", "x", "5", "5")
	stranger.Annotations = nil
	w := <-s.watch
	w.Add(stranger)
	w.Add(pod("fleet/eu", "b", "2", "6"))
	s.expect("+fleet/eu/web/b@6")
	if n := len(i.Lister().List(nil)); n != 2 {
		t.Errorf("%d objects are held, want 2", n)
	}
}

func TestInformer_OptionsAreChecked(t *testing.T) {
	s := newStage(t)
	if _, err := client.NewInformer(nil, &corev1.Pod{}, client.Options[*corev1.Pod]{}); err == nil {
		t.Error("an informer of nothing was made")
	}
	for _, name := range []string{"", "federator.dev/member"} {
		_, err := client.NewInformer(s.listWatch(), &corev1.Pod{}, client.Options[*corev1.Pod]{
			Indexers: map[string]func(*corev1.Pod) []string{name: func(*corev1.Pod) []string { return nil }},
		})
		if err == nil {
			t.Errorf("an indexer called %q was taken", name)
		}
	}
	i := s.start()
	if err := i.Run(t.Context()); err == nil {
		t.Error("an informer was run twice")
	}
}
