package selection_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// names returns the names that a field selector finds.
func names(t *testing.T, s *aggregate.Snapshot, kind aggregate.Kind, fieldSelector string) string {
	t.Helper()
	sel, err := selection.Compile("", fieldSelector, kind)
	if err != nil {
		t.Fatalf("%s: %v", fieldSelector, err)
	}
	find := selection.Listing{Snapshot: s, Selector: sel, Grants: authz.Everything(time.Time{})}
	var out []string
	for o, err := range find.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o.Name())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestSelector_FieldsAreSelectedAsAnAPIServerDoes shows defaults, other names, lists and
// values that the index cannot hold, for declared fields and others.
func TestSelector_FieldsAreSelectedAsAnAPIServerDoes(t *testing.T) {
	declared := map[aggregate.Kind][]string{
		"Node": {"spec.unschedulable"}, "Pod": {"spec.containers.image", "spec.hostNetwork", "spec.nodeName", "status.message"},
		"Job.batch": {"status.succeeded"}, "Event": {"source.component"}, "ReplicaSet.apps": {"status.replicas"},
	}
	for name, fields := range map[string]map[aggregate.Kind][]string{"declared": declared, "not declared": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, fields)
			f.join("a/one")
			rv := 0
			put := func(kind, apiVersion, name string, body object) {
				rv++
				body["kind"], body["apiVersion"] = kind, apiVersion
				body["metadata"] = object{"name": name, "resourceVersion": fmt.Sprint(rv)}
				f.put("a/one", body)
			}
			image := func(names ...string) []any {
				var out []any
				for _, n := range names {
					out = append(out, object{"image": n})
				}
				return out
			}
			put("Node", "v1", "absent", object{"spec": object{}})
			put("Node", "v1", "false", object{"spec": object{"unschedulable": false}})
			put("Node", "v1", "true", object{"spec": object{"unschedulable": true}})
			put("Pod", "v1", "p1", object{"spec": object{"containers": image("a", "b"), "nodeName": "n", "hostNetwork": true}})
			put("Pod", "v1", "p2", object{"spec": object{"containers": image("b")}, "status": object{"message": "a \"b\" \\ ,=<c>"}})
			put("Pod", "v1", "p3", object{"spec": object{"containers": image(), "nodeName": nil}, "status": object{"message": "€"}})
			put("Job", "batch/v1", "none", object{"status": object{}})
			put("Job", "batch/v1", "two", object{"status": object{"succeeded": 2}})
			put("Event", "v1", "source", object{"source": object{"component": "kubelet"}, "reportingComponent": "other"})
			put("Event", "v1", "reporting", object{"source": object{}, "reportingComponent": "kubelet"})
			put("ReplicaSet", "apps/v1", "none", object{"status": object{}})
			put("ReplicaSet", "apps/v1", "zero", object{"status": object{"replicas": 0}})
			s := f.commit()
			for _, c := range []struct {
				kind              aggregate.Kind
				selector, matches string
			}{
				{"Node", "spec.unschedulable=false", "absent false"},
				{"Node", "spec.unschedulable!=false", "true"},
				{"Node", "spec.unschedulable=true", "true"},
				{"Node", "spec.unschedulable=", ""},
				{"Pod", "spec.hostNetwork=false", "p2 p3"},
				{"Pod", "spec.host=n", "p1"},
				{"Pod", "spec.nodeName=", "p2 p3"},
				{"Pod", "spec.nodeName!=", "p1"},
				{"Pod", "spec.nodeName=n,spec.nodeName=m", ""},
				{"Pod", "spec.containers.image=b", "p1 p2"},
				{"Pod", "spec.containers.image=a,spec.containers.image=b", "p1"},
				{"Pod", "spec.containers.image!=a", "p2 p3"},
				{"Pod", "spec.containers.image=", "p3"},
				{"Pod", `status.message=a "b" \\ \,\=<c>`, "p2"},
				{"Pod", "status.message=€", "p3"},
				{"Pod", "metadata.name=p2,spec.containers.image=b", "p2"},
				{"Pod", "metadata.name=p2,metadata.name=p1", ""},
				{"Pod", "metadata.name!=p2", "p1 p3"},
				{"Pod", "metadata.namespace=", "p1 p2 p3"},
				{"Pod", "metadata.annotations['federator.dev/member']=a/one,metadata.name=p1", "p1"},
				{"Pod", "metadata.annotations['federator.dev/member']!=a/one", ""},
				{"Pod", "metadata.annotations['federator.dev/resource-version']=5", "p2"},
				{"Pod", "metadata.resourceVersion=5", ""},
				{"Job.batch", "status.successful=0", "none"},
				{"Job.batch", "status.successful=2", "two"},
				{"Event", "source=kubelet", "reporting source"},
				{"Event", "source!=kubelet", ""},
				{"ReplicaSet.apps", "status.replicas=0", "none zero"},
			} {
				if got := names(t, s, c.kind, c.selector); got != c.matches {
					t.Errorf("%s %s: %q, want %q", c.kind, c.selector, got, c.matches)
				}
			}
			one, _ := s.Get(aggregate.Ref{Member: "a/one", Kind: "Pod", Name: "p1"})
			if got := names(t, s, "Pod", fmt.Sprint("metadata.resourceVersion=", uint64(one.Revision()))); got != "p1" {
				t.Errorf("by the revision that is served: %q", got)
			}
		})
	}
}

func TestSelector_FreshnessNamesWhatIsNotSynced(t *testing.T) {
	f := newFleet(t, nil)
	f.join("a/new")
	f.join("a/old")
	f.join("a/synced")
	f.join("b/none")
	f.put("a/synced", object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "p"}})
	f.commit()
	for member, status := range map[string]aggregate.Status{"a/old": {State: aggregate.Partial, Reason: "only namespaces x"}, "b/none": {State: aggregate.NotServed}} {
		s := f.scope(member, "Pod", "v1")
		s.SetStatus(status)
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	lastContact := func(member string, _ aggregate.Kind) time.Time {
		if member == "a/old" {
			return start.Add(-1500 * time.Millisecond)
		}
		return time.Time{}
	}
	got := selection.Freshness(f.index.Snapshot(), "Pod", nil, lastContact, start)
	want := []selection.NotSynced{
		{Member: "a/new", Kind: "Pod", State: aggregate.Unknown, Reason: "it is not known which objects the member has"},
		{Member: "a/old", Kind: "Pod", State: aggregate.Partial, Reason: "only namespaces x", Age: "2s"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := selection.Freshness(f.index.Snapshot(), "Pod", []string{"a/old", "a/synced", "c/gone"}, nil, start); len(got) != 1 || got[0].Member != "a/old" || got[0].Age != "" {
		t.Errorf("%+v", got)
	}
	if h := selection.Header(got, 0); h != "a/new;state=Unknown, a/old;state=Partial;age=2s" {
		t.Errorf("header %q", h)
	}
}
