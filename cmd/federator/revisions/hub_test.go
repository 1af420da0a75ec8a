package revisions_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/cmd/federator/revisions"
	"federator.dev/federator/test/kube"
)

// TestHub_ProcessesNeverShareABlock, a real API server on which they reserve at once,
// also when the Lease was deleted or an older copy of it restored.
func TestHub_ProcessesNeverShareABlock(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{NoHub: true, Members: 1}).Members[0]
	if err := hub.Apply(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: federator}\n")); err != nil {
		t.Fatal(err)
	}
	store := func(holder string) revisions.Store {
		config := hub.DirectRESTConfig()
		config.QPS = -1
		s, err := revisions.OnHub(config, "federator", holder)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const processes, each = 8, 6
	var mu sync.Mutex
	var all []uint64
	reserve := func(floor uint64) {
		t.Helper()
		var running sync.WaitGroup
		for i := range processes {
			s := store(fmt.Sprint("process-", i))
			running.Go(func() {
				for range each {
					n, err := s.Reserve(t.Context(), floor)
					if err != nil || n < floor {
						t.Errorf("reserved %d, %v", n, err)
					}
					mu.Lock()
					all = append(all, n)
					mu.Unlock()
				}
			})
		}
		running.Wait()
	}
	leases := hub.Client().CoordinationV1().Leases("federator")
	reserve(470_000)
	older, err := leases.Get(t.Context(), revisions.LeaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if h := older.Spec.HolderIdentity; h == nil || !strings.HasPrefix(*h, "process-") || older.Spec.RenewTime == nil {
		t.Errorf("the Lease does not say who reserved last: %+v", older.Spec)
	}
	reserve(470_000)
	newest := func() *coordinationv1.Lease {
		t.Helper()
		l, err := leases.Get(t.Context(), revisions.LeaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if got, want := newest().Annotations[revisions.BlockAnnotation], fmt.Sprint(470_000+2*processes*each-1); got != want {
		t.Errorf("the last block is %s, want %s: numbers were left out", got, want)
	}

	// When the clock has passed what was reserved, an older copy is restored; and when it
	// has again, the Lease is deleted.
	older.ResourceVersion = newest().ResourceVersion
	if _, err := leases.Update(t.Context(), older, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	reserve(470_100)
	if err := leases.Delete(t.Context(), revisions.LeaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	reserve(470_200)
	wantDistinct(t, all)

	broken := newest()
	broken.Annotations[revisions.BlockAnnotation] = "seven"
	if _, err := leases.Update(t.Context(), broken, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if n, err := store("y").Reserve(t.Context(), 480_000); !errors.Is(err, revisions.ErrMalformed) || !strings.Contains(err.Error(), "seven") {
		t.Errorf("with a number that is none: %d, %v", n, err)
	}
	elsewhere, err := revisions.OnHub(hub.DirectRESTConfig(), "nowhere", "z")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := elsewhere.Reserve(t.Context(), 1); !errors.Is(err, revisions.ErrPermanent) || !apierrors.IsNotFound(err) {
		t.Errorf("in a namespace that is not there: %d, %v", n, err)
	}
}
