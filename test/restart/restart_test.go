package restart

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/seed"
)

// number returns an environment variable's value.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// writes is what was written to a member: the resourceVersions, by name.
type writes struct {
	mu  sync.Mutex
	all map[string][]uint64
	n   int
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *writes) note(t *testing.T, cm *corev1.ConfigMap) {
	rv, err := strconv.ParseUint(cm.ResourceVersion, 10, 64)
	if err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := cm.Namespace + "/" + cm.Name
	w.all[key] = append(w.all[key], rv)
	w.n++
}

// write writes to a member until ctx ends, but not while pause is held.
func (r *rig) write(ctx context.Context, member int, limit *rate.Limiter, pause *sync.RWMutex, w *writes, rng *rand.Rand) {
	c := r.fleet.Members[member].Client().CoreV1().ConfigMaps("default")
	for n := 0; limit.Wait(ctx) == nil; n++ {
		pause.RLock()
		name := fmt.Sprint("cm-", rng.IntN(40))
		var got *corev1.ConfigMap
		var err error
		switch rng.IntN(6) {
		case 0:
			err = c.Delete(r.t.Context(), name, metav1.DeleteOptions{})
		case 1:
			got, err = c.Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		default:
			got, err = c.Patch(r.t.Context(), name, "application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n), metav1.PatchOptions{})
		}
		switch {
		case err == nil && got != nil:
			w.note(r.t, got)
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && r.t.Context().Err() == nil:
			r.t.Error(err)
		}
		pause.RUnlock()
	}
}

// exact waits until federator answers what the members have, while nothing is written.
func (r *rig) exact(what string) {
	r.t.Helper()
	want := r.truth()
	r.do(kube.Until(r.t.Context(), patience, func() error {
		got, err := r.answer()
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if got[key] != want[key] {
				return fmt.Errorf("%s: %s is %q, want %q (%d objects, want %d)", what, key, got[key], want[key], len(got), len(want))
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("%s: %d objects, want %d", what, len(got), len(want))
		}
		return nil
	}))
}

// TestRestart kills federator again and again under writes.
func TestRestart(t *testing.T) {
	restarts, perSecond := number(t, "RESTARTS", 5), number(t, "WRITES", 60)
	rng := rand.New(rand.NewPCG(seed.Of(t), 5))
	r := newRig(t, kube.Options{Members: 3, Audit: true})
	r.start()
	listed := r.synced()
	t.Logf("first start: synced after %s, lists %v", time.Since(r.started).Round(time.Millisecond), listed)
	r.exact("first start")
	began := time.Now().Truncate(time.Second)
	r.violate(0)
	since := r.firstSeen()
	if since.Before(began) || since.After(time.Now()) {
		t.Errorf("the violation was first seen at %v, was made after %v", since, began)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	readers := []*reader{newReader("informer of member-1"), newReader("informer of member-2"), newReader("informer of member-3"), newReader("RetryWatcher of member-3")}
	for i, reader := range readers {
		running.Go(func() {
			run := reader.follow
			if i == 3 {
				run = reader.watch
			}
			if err := run(ctx, r, name(min(i, 2))); err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", reader.what, err)
			}
		})
	}
	r.do(kube.Until(ctx, patience, func() error { // before the first write
		for _, reader := range readers {
			if reader.opens.Load() == 0 {
				return fmt.Errorf("%s does not watch", reader.what)
			}
		}
		return nil
	}))

	var pause sync.RWMutex
	written := make([]*writes, 3)
	limit := rate.NewLimiter(rate.Limit(perSecond), 1)
	for i := range written {
		written[i] = &writes{all: map[string][]uint64{}}
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		running.Go(func() { r.write(ctx, i, limit, &pause, written[i], own) })
	}
	var upAfter []time.Duration
	lists := map[string]int{}
	more := func(most int) { // waits for so many writes
		count := func() (n int) {
			for _, w := range written {
				n += w.count()
			}
			return n
		}
		until := count() + 1 + rng.IntN(most)
		r.do(kube.Until(ctx, patience, func() error {
			if n := count(); n < until {
				return fmt.Errorf("%d writes, want %d", n, until)
			}
			return nil
		}))
	}
	for n := range restarts {
		more(2 * perSecond) // commits, flushes and compactions are under way
		r.kill()
		more(perSecond)
		r.start()
		for cause, n := range r.synced() {
			lists[cause] += n
		}
		upAfter = append(upAfter, time.Since(r.started))
		pause.Lock()
		r.exact(fmt.Sprint("restart ", n+1))
		if at := r.firstSeen(); !at.Equal(since) {
			t.Errorf("restart %d: the violation was first seen at %v, before at %v", n+1, at, since)
		}
		pause.Unlock()
	}
	pause.Lock()
	defer pause.Unlock()
	r.exact("the end")
	slices.Sort(upAfter)
	t.Logf("%d restarts under %d writes a second: synced after %s in the median, %s at most; lists %v", restarts, perSecond,
		upAfter[len(upAfter)/2].Round(time.Millisecond), upAfter[len(upAfter)-1].Round(time.Millisecond), lists)
	if len(lists) > 0 {
		t.Errorf("lists after restarts, by cause: %v", lists)
	}
	r.recorded()
	for i, reader := range readers {
		r.complete(reader, written[min(i, 2)], r.configMaps(min(i, 2)))
	}
}

// configMaps are the resourceVersions of those that are written to in a member, by name.
func (r *rig) configMaps(member int) map[string]uint64 {
	r.t.Helper()
	out := map[string]uint64{}
	list, err := r.fleet.Members[member].Client().CoreV1().ConfigMaps("default").List(r.t.Context(), metav1.ListOptions{})
	r.do(err)
	for _, cm := range list.Items {
		rv, err := strconv.ParseUint(cm.ResourceVersion, 10, 64)
		r.do(err)
		out[cm.Namespace+"/"+cm.Name] = rv
	}
	return out
}

// complete checks that a reader has seen each write once, in order, has listed once, and has what is
// there now.
func (r *rig) complete(reader *reader, w *writes, want map[string]uint64) {
	r.t.Helper()
	missing := func() (missing []string) {
		reader.mu.Lock()
		defer reader.mu.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		for key, all := range w.all {
			for _, rv := range all {
				if !reader.seen[key][rv] {
					missing = append(missing, fmt.Sprintf("%s at %d", key, rv))
				}
			}
		}
		return missing
	}
	// The last ones may be on their way: a client that found nobody several times waits up to half a minute.
	err := kube.Until(r.t.Context(), patience, func() error {
		if m := missing(); len(m) > 0 {
			return fmt.Errorf("it has not seen %d versions, such as %v", len(m), m[:min(len(m), 5)])
		}
		reader.mu.Lock()
		defer reader.mu.Unlock()
		if !maps.Equal(reader.present, want) {
			return fmt.Errorf("it has %v, want %v", reader.present, want)
		}
		return nil
	})
	if err != nil {
		r.t.Errorf("%s: %v", reader.what, err)
	}
	reader.mu.Lock()
	defer reader.mu.Unlock()
	if len(reader.problems) > 0 {
		r.t.Errorf("%s: %d problems, such as %v", reader.what, len(reader.problems), reader.problems[:min(len(reader.problems), 5)])
	}
	if n := reader.lists.Load(); n != 1 {
		r.t.Errorf("%s has listed %d times, want once", reader.what, n)
	}
}
