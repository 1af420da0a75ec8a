package election

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"federator.dev/federator/test/seed"
)

// candidate is an elector with its own way to the hub.
type candidate struct {
	*Elector

	cut    atomic.Bool // it reaches the hub no more
	writes atomic.Int64
}

// hub has the Lease, for candidates that share it.
type hub struct {
	tracker clienttesting.ObjectTracker
	running sync.WaitGroup
}

var errAway = errors.New("the hub is away")

func (h *hub) candidate(ctx context.Context, id string) *candidate {
	c := &candidate{}
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if c.cut.Load() {
			return true, nil, errAway
		}
		if a.GetVerb() != "get" {
			c.writes.Add(1)
		}
		return clienttesting.ObjectReaction(h.tracker)(a)
	})
	c.Elector = Of(client.CoordinationV1(), "federator", id, slog.New(slog.DiscardHandler))
	h.running.Go(func() { _ = c.Run(ctx) })
	return c
}

func (c *candidate) leads() bool { return c.Lead() == nil }

// TestElector_AnotherLeadsSoon after a leader is lost, whenever that is, and never two at once; and a leader writes seldom.
func TestElector_AnotherLeadsSoon(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 1))
	var took []time.Duration
	var sum time.Duration
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			h := &hub{tracker: fake.NewClientset().Tracker()}
			defer h.running.Wait()
			defer cancel()
			all := []*candidate{h.candidate(ctx, "a"), h.candidate(ctx, "b"), h.candidate(ctx, "c")}
			leaders := func() (out []*candidate) {
				for _, c := range all {
					if c.leads() {
						out = append(out, c)
					}
				}
				return out
			}
			for len(leaders()) == 0 {
				time.Sleep(50 * time.Millisecond)
			}
			lost := leaders()[0]
			before := lost.writes.Load()
			const while = 70 * time.Second
			time.Sleep(while)
			if rate := float64(lost.writes.Load()-before) / while.Seconds(); rate > 0.3 {
				t.Errorf("a leader writes %.2f times a second", rate)
			}
			time.Sleep(time.Duration(r.Int64N(int64(4 * time.Second))))
			lost.cut.Store(true)
			began := time.Now()
			for {
				now := leaders()
				if len(now) > 1 {
					t.Fatalf("%d lead", len(now))
				}
				if len(now) == 1 && now[0] != lost {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatal("nobody leads")
				}
				time.Sleep(50 * time.Millisecond)
			}
			took = append(took, time.Since(began))
			sum += time.Since(began)
		})
	}
	t.Logf("without a leader for %v on the average, %v at most", sum/time.Duration(len(took)), slices.Max(took))
	if slices.Max(took) > 14800*time.Millisecond {
		t.Errorf("without a leader for %v", slices.Max(took))
	}
}

// TestElector_AHubThatIsAwayForAWhileChangesNoLeader: as long as it may be without anybody losing anything.
func TestElector_AHubThatIsAwayForAWhileChangesNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &hub{tracker: fake.NewClientset().Tracker()}
		defer h.running.Wait()
		defer cancel()
		a := h.candidate(ctx, "a")
		for !a.leads() {
			time.Sleep(50 * time.Millisecond)
		}
		b := h.candidate(ctx, "b")
		for range 40 {
			a.cut.Store(true)
			for range 140 {
				time.Sleep(50 * time.Millisecond)
				if !a.leads() || b.leads() {
					t.Fatal("seven seconds without the hub change who leads")
				}
			}
			a.cut.Store(false)
			time.Sleep(5300 * time.Millisecond)
		}
	})
}
