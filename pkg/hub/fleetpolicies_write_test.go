package hub

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api"
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
	f, fp := writingTo(t, s)
	for range 3 { // the third is over a version that was written over
		if err := f.writeStatus(t.Context(), dueStatus{fp, &v1alpha1.FleetPolicyStatus{}}); err != nil {
			t.Fatal(err)
		}
	}
	if puts.Load() != 2 || changes.Load() != 1 {
		t.Errorf("%d requests, of which %d changed something; want 2 and 1", puts.Load(), changes.Load())
	}
}

// writingTo returns what writes statuses to a server, and a FleetPolicy.
func writingTo(t *testing.T, s *httptest.Server) (*FleetPolicies, *v1alpha1.FleetPolicy) {
	t.Helper()
	c, err := newClient(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := &FleetPolicies{
		opts: FleetPoliciesOptions{IsLeader: func() bool { return true }, Logger: slog.New(slog.DiscardHandler)}, client: c,
		recorder: statusRecorder{nil, map[types.UID]*v1alpha1.FleetPolicyStatus{}}, written: map[types.UID]writtenPolicy{},
	}
	return f, &v1alpha1.FleetPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "FleetPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "1"},
	}
}

// TestFleetPolicies_AHubThatDropsAField is one of an older CRD: what it does not store is written again once
// a minute, not at each tick, and changes of the rest as ever.
func TestFleetPolicies_AHubThatDropsAField(t *testing.T) {
	var hub v1alpha1.FleetPolicy // of which the next answer is made
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var fp v1alpha1.FleetPolicy
		if err := json.NewDecoder(r.Body).Decode(&fp); err != nil {
			t.Error(err)
		}
		if fp.Status.Versions = nil; !sameStatus(&hub.Status, &fp.Status) {
			fp.ResourceVersion += "0"
		}
		hub = fp
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(&fp); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	f, fp := writingTo(t, s)
	next := &v1alpha1.FleetPolicyStatus{Versions: []v1alpha1.PolicyVersion{{Digest: "d", Since: metav1.Unix(1000, 0)}}}
	due := func(after time.Duration) bool {
		last := f.written[fp.UID]
		return last.due(fp, next, last.at.Add(after))
	}
	write := func() {
		t.Helper()
		if err := f.writeStatus(t.Context(), dueStatus{fp, next}); err != nil {
			t.Fatal(err)
		}
		fp = fp.DeepCopy() // as the informer shows it
		fp.ResourceVersion, fp.Status = hub.ResourceVersion, hub.Status
	}
	if !due(0) {
		t.Error("the first status is not due")
	}
	for _, what := range []string{"a write that came to nothing", "a write of which a part was stored"} {
		write()
		if due(time.Second) || due(59*time.Second) || !due(time.Minute) {
			t.Errorf("after %s, the same is due: after a second %t, after 59 %t, after a minute %t", what, due(time.Second), due(59*time.Second), due(time.Minute))
		}
		next = next.DeepCopy()
		next.Totals = &v1alpha1.Verdicts{Subjects: int64(len(what))}
		if due(time.Second) || !due(countersInterval) {
			t.Errorf("after %s, counters are due: after a second %t, after ten %t", what, due(time.Second), due(countersInterval))
		}
		next.ObservedGeneration++
		if !due(time.Second) {
			t.Errorf("after %s, another status is not due", what)
		}
	}
	write()
	fp.Status.ObservedGeneration = 9 // somebody else has written
	if !due(time.Second) {
		t.Error("what somebody else has written stays")
	}
}

// TestFleetPolicies_ProvenAuthor: an annotation that anybody may set names nobody, nor one that is of an
// older version than a source's.
func TestFleetPolicies_ProvenAuthor(t *testing.T) {
	now := time.Now()
	since := now.Add(-time.Hour)
	changed := since.Add(time.Minute)
	answered := now.Add(time.Second)
	labelled := changedBy("joe", changed)
	labelled.Labels = map[string]string{api.SourceKey: "platform"}
	for name, c := range map[string]struct {
		knows whatIsKnown
		fp    *v1alpha1.FleetPolicy
		after time.Duration
		want  string
		known bool
	}{
		"a user":                {whatIsKnown{since: since, asked: answered}, changedBy("joe", changed), 0, "joe", true},
		"not proven":            {whatIsKnown{asked: answered}, changedBy("joe", changed), 0, "", true},
		"not answered yet":      {whatIsKnown{}, changedBy("joe", changed), 0, "", false},
		"never answered":        {whatIsKnown{}, changedBy("joe", changed), appliedGrace, "", true},
		"applied by a source":   {whatIsKnown{since: since, asked: answered}, appliedSince(changedBy("joe", changed), time.Second), 0, "", true},
		"as of a commit":        {whatIsKnown{since: since, asked: answered, exactly: true}, changedBy("joe", changed), 0, "", true},
		"perhaps of a commit":   {whatIsKnown{since: since, asked: answered}, labelled, 0, "", false},
		"of no commit, at last": {whatIsKnown{since: since, asked: answered}, labelled, appliedGrace, "joe", true},
	} {
		f := policiesKnowing(&c.knows)
		c.fp.Spec.Approval = nil
		f.provenAuthor(c.fp, now)
		f.approvalTerms([]*v1alpha1.FleetPolicy{c.fp}, nil, nil) // which forgets policies that are no more
		if got, known := f.provenAuthor(c.fp, now.Add(c.after)); got != c.want || known != c.known || c.knows.requests > 1 {
			t.Errorf("%s: %q, known %t, after %d requests; want %q, %t", name, got, known, c.knows.requests, c.want, c.known)
		}
	}
}
