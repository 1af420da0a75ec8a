package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// TestTables_AreThoseOfTheMember compares, for every kind that a member with
// workloads serves, the Table of the member's own API server with that of the
// query API: under /members the same, under /fleet with CLUSTER before it.
func TestTables_AreThoseOfTheMember(t *testing.T) {
	ctx := t.Context()
	r := newQueryRig(t, "tables", 1)
	member := r.members[0]
	if err := errors.Join(kube.Workloads(ctx, member, 1), kube.BulkPods(ctx, member, 20, kube.BulkOptions{Prefix: fmt.Sprintf("tables-%d", time.Now().UnixNano())})); err != nil {
		t.Fatal(err)
	}
	r.exact(t)
	disco, err := discovery.NewDiscoveryClientForConfig(member.DirectRESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	kinds, rows := 0, 0
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range l.APIResources {
			kind := gv.WithKind(res.Kind).GroupKind()
			if !slices.Contains(res.Verbs, "list") || !slices.Contains(res.Verbs, "watch") || kind.Kind == "Event" || kind.Kind == "Lease" {
				continue
			}
			kinds++
			rows += r.compareTables(t, member, gv.WithResource(res.Name))
		}
	}
	t.Logf("%d rows of %d kinds are equal", rows, kinds)
	if kinds < 40 || rows < 100 {
		t.Errorf("only %d rows of %d kinds were compared", rows, kinds)
	}
}

func (r *queryRig) compareTables(t *testing.T, member *kube.ControlPlane, gvr schema.GroupVersionResource) int {
	t.Helper()
	want, err := table(t.Context(), member.DirectRESTConfig(), gvr, "")
	if err != nil {
		t.Errorf("%s of the member: %v", gvr.Resource, err)
		return 0
	}
	name := r.names[0]
	for _, side := range []struct{ target, selector string }{
		{name, ""},
		{"fleet", "federator.dev/member=" + strings.Replace(name, "/", ".", 1)},
	} {
		config, err := r.api.config(side.target, "administrator", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		got, err := table(t.Context(), config, gvr, side.selector)
		if err != nil {
			t.Errorf("%s of %s: %v", gvr.Resource, side.target, err)
			continue
		}
		if side.target == "fleet" {
			if err := withoutCluster(got, name); err != nil {
				t.Errorf("%s of the fleet: %v", gvr.Resource, err)
				continue
			}
		}
		if diff := differ(got, want); diff != "" {
			t.Errorf("%s of %s: %s", gvr, side.target, diff)
		}
	}
	return len(want.Rows)
}

func table(ctx context.Context, config *rest.Config, gvr schema.GroupVersionResource, selector string) (*metav1.Table, error) {
	c := rest.CopyConfig(config)
	gv := gvr.GroupVersion()
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, "/apis", scheme.Codecs.WithoutConversion()
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	req := client.Get().Resource(gvr.Resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Param("includeObject", "None")
	if selector != "" {
		req.Param("labelSelector", selector)
	}
	raw, err := req.DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, raw)
	}
	var out metav1.Table
	return &out, json.Unmarshal(raw, &out)
}

// withoutCluster takes the first column away, which must name the member.
func withoutCluster(t *metav1.Table, name string) error {
	if len(t.ColumnDefinitions) == 0 || t.ColumnDefinitions[0].Name != "Cluster" {
		return fmt.Errorf("the first column is not Cluster: %v", t.ColumnDefinitions)
	}
	t.ColumnDefinitions = t.ColumnDefinitions[1:]
	for i, row := range t.Rows {
		if row.Cells[0] != name {
			return fmt.Errorf("row %d is of %v, want %s", i, row.Cells[0], name)
		}
		t.Rows[i].Cells = row.Cells[1:]
	}
	return nil
}

var age = regexp.MustCompile(`^(\d+[smhdy]){1,2}$|^<unknown>$|^<invalid>$`)

// differ says where two tables differ, ages and the order of rows aside.
func differ(got, want *metav1.Table) string {
	if g, w := plain(got.ColumnDefinitions), plain(want.ColumnDefinitions); g != w {
		return fmt.Sprintf("columns\n %s\nwant\n %s", g, w)
	}
	g, w := lines(got), lines(want)
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			return fmt.Sprintf("%d rows, want %d; missing %s", len(g), len(w), w[i])
		case i >= len(w):
			return fmt.Sprintf("%d rows, want %d; also %s", len(g), len(w), g[i])
		case g[i] != w[i]:
			return fmt.Sprintf("row\n %s\nwant\n %s", g[i], w[i])
		}
	}
	return ""
}

func plain(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func lines(t *metav1.Table) []string {
	var out []string
	for _, row := range t.Rows {
		for i, c := range row.Cells {
			if s, ok := c.(string); ok && age.MatchString(s) {
				row.Cells[i] = "AGE"
			}
		}
		out = append(out, plain(row.Cells))
	}
	slices.Sort(out)
	return out
}
