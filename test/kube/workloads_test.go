package kube_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"federator.dev/federator/test/kube"
)

func TestWorkloads_AreRealWithControllers(t *testing.T) {
	ctx := t.Context()
	m := kube.StartTest(t, kube.Options{NoHub: true, Members: 1, Controllers: true, Nodes: 2}).Members[0]
	if err := kube.Workloads(ctx, m, 2); err != nil {
		t.Fatal(err)
	}
	pods, err := m.Client().CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 3 {
		t.Errorf("%d pods of a Deployment of 3", len(pods.Items))
	}
	for _, p := range pods.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready || p.Spec.NodeName == "" || p.Status.PodIP == "" || p.OwnerReferences[0].Kind != "ReplicaSet" {
			t.Errorf("pod %s: ready %t, node %q, IP %q, owners %v", p.Name, ready, p.Spec.NodeName, p.Status.PodIP, p.OwnerReferences)
		}
	}
	kinds := kindsIn(t, m, "shop", "payments")
	t.Logf("%d kinds: %s", len(kinds), strings.Join(kinds, " "))
	if len(kinds) < 14 {
		t.Errorf("%d kinds, want at least 14", len(kinds))
	}
	for _, want := range []string{"replicasets.apps", "endpointslices.discovery.k8s.io", "jobs.batch", "backups.storage.example.org"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no %s", want)
		}
	}
	if err := kube.Workloads(ctx, m, 2); err != nil {
		t.Errorf("applied again: %v", err)
	}
}

// kindsIn returns the resources of which every namespace has an object.
func kindsIn(t *testing.T, m *kube.ControlPlane, namespaces ...string) []string {
	t.Helper()
	lists, err := m.Client().Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		t.Fatal(err)
	}
	client, err := metadata.NewForConfig(m.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			for _, ns := range namespaces {
				list, err := client.Resource(gv.WithResource(r.Name)).Namespace(ns).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if len(list.Items) > 0 {
					found[gv.WithResource(r.Name).GroupResource().String()]++
				}
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, n int) bool { return n < len(namespaces) })
	return slices.Sorted(maps.Keys(found))
}

func TestBulkPods_AreAsTheAPIWritesThem(t *testing.T) {
	ctx := t.Context()
	m := kube.StartTest(t, kube.Options{NoHub: true, Members: 1}).Members[0]
	if err := kube.BulkPods(ctx, m, 100, kube.BulkOptions{Prefix: "api", Namespaces: 2}); err != nil {
		t.Fatal(err)
	}
	if err := kube.BulkPods(ctx, m, 2000, kube.BulkOptions{Prefix: "direct", Namespaces: 2, Direct: true}); err != nil {
		t.Fatal(err)
	}
	byPrefix := make(map[string][]corev1.Pod)
	seen := make(map[string]bool) // UIDs and resourceVersions
	for _, ns := range []string{"api-1", "api-2", "direct-1", "direct-2"} {
		list, err := m.Client().CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if seen[string(p.UID)] || seen[p.ResourceVersion] {
				t.Fatalf("%s/%s repeats a UID or a resourceVersion", p.Namespace, p.Name)
			}
			seen[string(p.UID)], seen[p.ResourceVersion] = true, true
		}
		prefix, _, _ := strings.Cut(ns, "-")
		byPrefix[prefix] = append(byPrefix[prefix], list.Items...)
	}
	if len(byPrefix["api"]) != 100 || len(byPrefix["direct"]) != 2000 {
		t.Fatalf("%d and %d pods", len(byPrefix["api"]), len(byPrefix["direct"]))
	}
	for prefix, pods := range byPrefix {
		for _, p := range pods {
			var managers []string
			for _, f := range p.ManagedFields {
				managers = append(managers, f.Manager+f.Subresource)
				raw := string(f.FieldsV1.Raw)
				if f.Subresource == "" && !strings.Contains(raw, string(p.OwnerReferences[0].UID)) ||
					f.Subresource == "status" && !strings.Contains(raw, `"`+p.Status.PodIP+`\"`) {
					t.Fatalf("%s: managed fields of %s are of another pod: %s", prefix, p.Name, raw)
				}
			}
			if !slices.Equal(managers, []string{"kube-controller-manager", "kubeletstatus"}) {
				t.Fatalf("%s: managers %q", prefix, managers)
			}
		}
	}
	// Sameness of the two ways: the same pod, but for what is its own.
	a, d := shape(byPrefix["api"], "-00021"), shape(byPrefix["direct"], "-00021")
	if a != d || !strings.Contains(a, "/spec/nodeName") {
		t.Errorf("written through the API:\n%s\nwritten into etcd:\n%s", a, d)
	}
	// The server takes a directly written pod for its own.
	p := byPrefix["direct"][7]
	p.Labels["touched"] = "true"
	if _, err := m.Client().CoreV1().Pods(p.Namespace).Update(ctx, &p, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update of a directly written pod: %v", err)
	}
}
