package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/policyquery"
)

// ask asks a process.
func (s *shard) ask(ctx context.Context, path string, params map[string]string, answer any) error {
	c, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://" + s.query, TLSClientConfig: s.config("").TLSClientConfig,
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		return err
	}
	r := c.Get().AbsPath("/query/v1/" + path)
	for name, value := range params {
		r = r.Param(name, value)
	}
	text, err := r.DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("%s: %s: %w: %s", s.name, path, err, text)
	}
	return json.Unmarshal(text, answer)
}

// asked waits until each process that lives answers for all Actions, halts, Plans and stops of the hub, and returns how long
// that took.
func (c *corrections) asked(what, name string, actions int) time.Duration {
	c.t.Helper()
	began := time.Now()
	c.until(what+": each process answers for all of the hub", func() error {
		for _, s := range c.alive() {
			var list policyquery.ActionList
			if err := s.ask(c.t.Context(), "actions", map[string]string{"policy": name, "limit": "1000"}, &list); err != nil {
				return err
			}
			if len(list.Absent) > 0 || list.Hidden > 0 || list.Total < actions || list.Total != len(list.Items) {
				return fmt.Errorf("%s answers for %d Actions, want %d; %d are hidden, absent %v", s.name, list.Total, actions, list.Hidden, list.Absent)
			}
			for _, path := range []string{"actions/" + list.Items[0].Name, "halts", "stops", "sources"} {
				if err := s.ask(c.t.Context(), path, nil, &map[string]any{}); err != nil {
					return err
				}
			}
			var plans policyquery.PlanList
			if err := s.ask(c.t.Context(), "plans/"+name, nil, &plans); err != nil {
				return err
			}
			if plans.Policy != name || len(plans.Absent) > 0 {
				return fmt.Errorf("%s answers for Plans: %+v", s.name, plans)
			}
		}
		return nil
	})
	return time.Since(began)
}

// corrected waits until each process counts all that was corrected.
func (c *corrections) corrected(name string, want int) {
	c.t.Helper()
	c.until("each process counts what was corrected", func() error {
		for _, s := range c.alive() {
			var list policyquery.PolicyList
			if err := s.ask(c.t.Context(), "policies", map[string]string{"policy": name}, &list); err != nil {
				return err
			}
			if len(list.Items) != 1 || list.Items[0].Corrected == nil || *list.Items[0].Corrected != want {
				return fmt.Errorf("%s counts %+v, want %d", s.name, list.Items, want)
			}
		}
		return nil
	})
}

// reported waits until the reports have so many failures of a policy in each member, in one Report of each.
func (c *corrections) reported(what, name string, each int) {
	c.t.Helper()
	client, err := dynamic.NewForConfig(c.kube.Hub.DirectRESTConfig())
	c.do(err)
	reports := client.Resource(schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"}).Namespace("fleet")
	c.until(what+": the reports of all members", func() error {
		list, err := reports.List(c.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := map[string]int{}
		for i := range list.Items {
			member := list.Items[i].GetLabels()["federator.dev/member"]
			if _, again := found[member]; again {
				return fmt.Errorf("two reports of %s", member)
			}
			found[member] = 0
			results, _, err := unstructured.NestedSlice(list.Items[i].Object, "results")
			if err != nil {
				return err
			}
			for _, r := range results {
				if r, is := r.(map[string]any); is && r["policy"] == name && r["result"] == "fail" {
					found[member]++
				}
			}
		}
		if len(found) != size() {
			return fmt.Errorf("there are reports of %d members", len(found))
		}
		for member, n := range found {
			if n != each {
				return fmt.Errorf("the report of %s has %d failures, want %d", member, n, each)
			}
		}
		return nil
	})
}

// answersOnly checks that a process which lives does not refuse to answer for the hub while another one is lost: what is not
// known it says.
func (c *corrections) answersOnly(name string) {
	c.t.Helper()
	for _, s := range c.alive() {
		var list policyquery.ActionList
		err := s.ask(c.t.Context(), "actions", map[string]string{"policy": name}, &list)
		if err != nil && !strings.Contains(err.Error(), "try again") && !strings.Contains(err.Error(), "503") {
			c.t.Error(errors.Join(errors.New("while a process is lost"), err))
		}
		c.t.Logf("%s, while a process is lost: %d Actions, absent %v, %v", s.name, list.Total, list.Absent, err)
	}
}
