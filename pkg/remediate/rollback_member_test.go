package remediate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// corrected corrects ConfigMap shop/a of member m1, and returns the Action.
func (d *running) corrected(t *testing.T, change func(*remediate.Intent)) v1alpha1.Action {
	t.Helper()
	list := intents("1", "m1 a")
	change(&list[0])
	d.put(&list[0])
	if err := d.SetIntents("b", remediate.RolloutSpec{}, remediate.Totals{Fleet: 20}, list, true); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	d.expect(t, "the correction", "m1 a@0s")
	d.ClearIntents("b")
	synctest.Wait()
	return d.actions()[0]
}

// TestDispatcher_RollsBackInTheMemberThatWasWritten: a Cluster that was created again under its
// name is another member. What was deleted in the one that is gone is not created in it, nor is
// what was patched, whatever is forced.
func TestDispatcher_RollsBackInTheMemberThatWasWritten(t *testing.T) {
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprint("force ", force), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var uid atomic.Value
				uid.Store("uid-m1")
				d := run(t, newFleet(), remediate.Options{MemberUID: func(string) string { return uid.Load().(string) }})
				a := d.corrected(t, func(i *remediate.Intent) { i.Remedy.Action, i.Remedy.Patch = "delete", nil })
				if a.Status.Phase != v1alpha1.PhaseSucceeded || a.Spec.Target.MemberUID != "uid-m1" {
					t.Fatalf("%+v", a)
				}
				uid.Store("uid-another")
				r := remediate.RollbackRequest{Force: force, Reason: "a test"}
				if back, err := d.RollBack(t.Context(), a.Name, r); !errors.Is(err, remediate.ErrMemberGone) {
					t.Errorf("in another member: %+v, %v", back, err)
				}
				d.expect(t, "in another member", "")
				uid.Store("uid-m1")
				// It leaves while the rollback is tried.
				d.onDryRun = func(string) { uid.Store("uid-another") }
				if back, err := d.RollBack(t.Context(), a.Name, r); !errors.Is(err, remediate.ErrMemberGone) {
					t.Errorf("in another member since the dry run: %+v, %v", back, err)
				}
				d.expect(t, "in another member since the dry run", "")
				d.onDryRun = nil
				uid.Store("uid-m1")
				time.Sleep(2 * time.Minute) // what was recorded before is resolved
				if back, err := d.RollBack(t.Context(), a.Name, r); err != nil || back.Phase != v1alpha1.PhaseSucceeded || back.MemberUID != "uid-m1" {
					t.Errorf("in the member: %+v, %v", back, err)
				}
			})
		})
	}
}

// TestDispatcher_RollbacksAskWhoAdmitsThem: right before each request to write, also where an
// earlier attempt has recorded it.
func TestDispatcher_RollbacksAskWhoAdmitsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		a := d.corrected(t, func(*remediate.Intent) {})
		asked, admits := 0, false
		r := remediate.RollbackRequest{Reason: "a test", Admit: func() error {
			if asked++; admits {
				return nil
			}
			return fmt.Errorf("%w: its Approvals have ended", remediate.ErrNotNow)
		}}
		for try := 1; try <= 2; try++ {
			if back, err := d.RollBack(t.Context(), a.Name, r); !errors.Is(err, remediate.ErrNotNow) || asked != try {
				t.Errorf("asked %d times: %+v, %v", asked, back, err)
			}
			d.expect(t, "not admitted", "")
		}
		admits = true
		if back, err := d.RollBack(t.Context(), a.Name, r); err != nil || back.Phase != v1alpha1.PhaseSucceeded || asked != 3 {
			t.Errorf("asked %d times: %+v, %v", asked, back, err)
		}
		d.expect(t, "admitted", "m1 a@1s")
	})
}

// TestDispatcher_RollsBackWhatWasDeletedAndChangedBefore: an object that the rollback of its
// deletion has created again is rolled back further; one that somebody else has created is not.
func TestDispatcher_RollsBackWhatWasDeletedAndChangedBefore(t *testing.T) {
	for name, another := range map[string]bool{"restored": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := run(t, newFleet(), remediate.Options{})
				changed := d.corrected(t, func(*remediate.Intent) {})
				const key = "m1/api/v1/namespaces/shop/configmaps/a"
				d.mu.Lock()
				was := d.objects[key]
				d.mu.Unlock()
				list := intents("", "m1 a")
				var now struct {
					Metadata struct{ ResourceVersion string }
				}
				if err := json.Unmarshal(was, &now); err != nil {
					t.Fatal(err)
				}
				list[0].ResourceVersion, list[0].Remedy.Action, list[0].Remedy.Patch = now.Metadata.ResourceVersion, "delete", nil
				if err := d.SetIntents("b", remediate.RolloutSpec{}, remediate.Totals{Fleet: 20}, list, true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				d.ClearIntents("b")
				d.written()
				r := remediate.RollbackRequest{Reason: "a test"}
				for _, a := range d.actions() {
					if a.Spec.Verb != v1alpha1.Delete {
						continue
					}
					if back, err := d.RollBack(t.Context(), a.Name, r); err != nil || back.Phase != v1alpha1.PhaseSucceeded {
						t.Fatalf("the deletion: %+v, %v", back, err)
					}
				}
				want := error(nil)
				if another { // the same, by kubectl
					d.mu.Lock()
					d.objects[key] = bytes.Replace(was, []byte(`"u-m1 a"`), []byte(`"another"`), 1)
					d.mu.Unlock()
					want = remediate.ErrChanged
				}
				back, err := d.RollBack(t.Context(), changed.Name, r)
				if !errors.Is(err, want) || want == nil && back.Phase != v1alpha1.PhaseSucceeded {
					t.Errorf("the change: %+v, %v", back, err)
				}
				d.mu.Lock()
				defer d.mu.Unlock()
				if got := bytes.Contains(d.objects[key], []byte(`"a":"bad"`)); got != (want == nil) {
					t.Errorf("there is %s", d.objects[key])
				}
			})
		})
	}
}
