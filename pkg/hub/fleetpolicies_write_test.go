package hub

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
)

// TestFleetPolicies_WriteAfterAWriteThatChangedNothing: an API server keeps the resourceVersion
// where a status comes to what it has. The next one is written over the same version.
func TestFleetPolicies_WriteAfterAWriteThatChangedNothing(t *testing.T) {
	var puts, changes atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var fp v1alpha1.FleetPolicy
		if err := json.NewDecoder(r.Body).Decode(&fp); err != nil {
			t.Error(err)
		}
		if puts.Add(1) > 1 {
			fp.ResourceVersion = "2"
			changes.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(&fp); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	c, err := newClient(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := &FleetPolicies{
		opts: FleetPoliciesOptions{IsLeader: func() bool { return true }, Logger: slog.New(slog.DiscardHandler)}, client: c,
		recorder: statusRecorder{nil, map[types.UID]*v1alpha1.FleetPolicyStatus{}}, written: map[types.UID]writtenPolicy{},
	}
	fp := &v1alpha1.FleetPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "FleetPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "1"},
	}
	for range 3 { // the third is over a version that was written over
		if err := f.writeStatus(t.Context(), dueStatus{fp, &v1alpha1.FleetPolicyStatus{}}); err != nil {
			t.Fatal(err)
		}
	}
	if puts.Load() != 2 || changes.Load() != 1 {
		t.Errorf("%d requests, of which %d changed something; want 2 and 1", puts.Load(), changes.Load())
	}
}
