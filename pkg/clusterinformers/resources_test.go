package clusterinformers_test

import (
	"slices"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
)

// closed reports whether a channel is closed by now.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestManager_MergesResourcesOfMembers(t *testing.T) {
	r := follow(t, withCRDs(2), nil)
	a, b := r.fleet.Members()[0], r.fleet.Members()[1]
	find := func(list []catalog.Resource, kind aggregate.Kind) (found []catalog.Resource) {
		for _, res := range list {
			if res.Kind == kind {
				found = append(found, res)
			}
		}
		return found
	}
	list, changed := r.manager.Resources()
	pods := find(list, "Pod")
	if len(pods) != 1 || pods[0].Resource.String() != "/v1, Resource=pods" || !pods[0].Namespaced ||
		pods[0].Singular != "pod" || !slices.Equal(pods[0].ShortNames, []string{"po"}) {
		t.Errorf("pods %+v", pods)
	}
	if !slices.IsSortedFunc(list, func(x, y catalog.Resource) int {
		return slices.Compare([]string{string(x.Kind), x.Resource.Version}, []string{string(y.Kind), y.Resource.Version})
	}) {
		t.Errorf("not sorted: %v", list)
	}

	serve(t, a, "v1beta1")
	serve(t, b, "v1")
	r.until("both versions of widgets are there", func() bool {
		list, _ := r.manager.Resources()
		return len(find(list, widgetKind)) == 2
	})
	if !closed(changed) {
		t.Error("the channel is open after a change")
	}
	list, changed = r.manager.Resources()
	if w := find(list, widgetKind); w[0].Resource.Version != "v1" || w[1].Resource.Version != "v1beta1" || !w[0].Namespaced {
		t.Errorf("widgets %+v", w)
	}

	ok(t, a.Delete(crds, "", widgets.String()))
	ok(t, b.Delete(crds, "", widgets.String()))
	r.until("widgets are gone", func() bool {
		list, _ := r.manager.Resources()
		return len(find(list, widgetKind)) == 0
	})
	if !closed(changed) {
		t.Error("the channel is open after a kind has gone")
	}
}

func TestManager_LastContactIsWhenTheMemberLastSentAnything(t *testing.T) {
	before := time.Now()
	r := follow(t, withCRDs(1), nil)
	m := r.fleet.Members()[0]
	r.until("pods have a last contact", func() bool {
		lastContact := r.manager.LastContact(nameOf(m), "Pod")
		return !lastContact.Before(before) && !lastContact.After(time.Now())
	})
	if lastContact := r.manager.LastContact(nameOf(m), widgetKind); !lastContact.IsZero() {
		t.Errorf("a kind that is not served has a last contact at %s", lastContact)
	}
	if lastContact := r.manager.LastContact("nobody/here", "Pod"); !lastContact.IsZero() {
		t.Errorf("an unknown member has a last contact at %s", lastContact)
	}
}
