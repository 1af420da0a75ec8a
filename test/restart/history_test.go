package restart

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/kube"
)

// history returns what federator has recorded of the ConfigMaps that are written to, in order.
func (r *rig) history() ([]history.Record, error) {
	c, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://" + r.query, QPS: -1, TLSClientConfig: r.config("").TLSClientConfig, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		return nil, err
	}
	var all []history.Record
	for next := ""; ; {
		request := c.Get().AbsPath("/query/v1/history").Param("kind", "ConfigMap").Param("order", "oldest").Param("limit", "5000")
		if next != "" {
			request = request.Param("continue", next)
		}
		text, err := request.DoRaw(r.t.Context())
		if err != nil {
			return nil, err
		}
		var list policyquery.HistoryList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		for _, x := range list.Items {
			if x.Type == history.Gap || x.Type == history.Object && x.Namespace == "default" {
				all = append(all, x)
			}
		}
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

// audited returns the keys of the transitions that follow from the audit logs of the members' servers.
func (r *rig) audited(clusters map[string]string) (map[string]string, error) {
	want := map[string]string{}
	for i, m := range r.fleet.Members {
		events, err := m.Audit()
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if e.ObjectRef.Resource != "configmaps" || e.ObjectRef.Namespace != "default" || e.ResponseStatus.Code >= 300 || !slices.Contains([]string{"create", "patch", "delete"}, e.Verb) {
				continue
			}
			var o struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
				Details  struct {
					UID string `json:"uid"`
				} `json:"details"` // of the Status that answers a delete
			}
			if err := json.Unmarshal(e.ResponseObject, &o); err != nil {
				return nil, fmt.Errorf("%s: %w", e.RequestURI, err)
			}
			key := clusters["fleet/"+name(i)] + "/" + string(o.Metadata.UID) + "/" + o.Metadata.ResourceVersion
			if e.Verb == "delete" {
				key = clusters["fleet/"+name(i)] + "/" + o.Details.UID + "/deleted"
			}
			want[key] = e.Verb + " " + name(i) + " " + e.ObjectRef.Name
		}
	}
	return want, nil
}

// recorded checks that each write that the members' servers have audited is in the history once, and nothing else.
func (r *rig) recorded() {
	r.t.Helper()
	members, err := r.members()
	r.do(err)
	clusters := map[string]string{}
	for _, m := range members {
		clusters[m.Name] = m.UID
	}
	var want map[string]string
	var got []history.Record
	err = kube.Until(r.t.Context(), patience, func() (err error) {
		if want, err = r.audited(clusters); err != nil {
			return err
		}
		if got, err = r.history(); err != nil {
			return err
		}
		missing := maps.Clone(want)
		for i := range got {
			delete(missing, got[i].Key)
		}
		if len(missing) > 0 {
			keys := slices.Sorted(maps.Keys(missing))
			return fmt.Errorf("%d of %d writes are not recorded, such as %s (%s)", len(missing), len(want), keys[0], missing[keys[0]])
		}
		return nil
	})
	if err != nil {
		r.t.Errorf("history: %v", err)
	}
	times := map[string]int{}
	for i := range got {
		x := &got[i]
		if x.Type == history.Gap {
			r.t.Errorf("history: a gap in %s from %v to %v: %s", x.Member, x.From, x.To, x.Message)
			continue
		}
		if times[x.Key]++; want[x.Key] == "" && x.Transition != history.Created {
			r.t.Errorf("history: %s %s %s at %s was not written", x.Transition, x.Member, x.Name, x.ResourceVersion)
		}
	}
	twice := 0
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	r.t.Logf("history: %d writes audited, all recorded: %t; %d transitions, %d of them twice with one key", len(want), err == nil, len(times), twice)
}
