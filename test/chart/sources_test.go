package chart

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestStatefulSet_RollsWithAccessProviders: the file is mounted by subPath, which the kubelet never updates: Pods must roll.
func TestStatefulSet_RollsWithAccessProviders(t *testing.T) {
	of := func(command string) (sum, file string) {
		all := render(t, least("--set", "sources.clusterProfiles.namespaces={inventory},sources.clusterProfiles.providers[0].name=a,sources.clusterProfiles.providers[0].execConfig.apiVersion=client.authentication.k8s.io/v1,sources.clusterProfiles.providers[0].execConfig.provideClusterInfo=true,sources.clusterProfiles.providers[0].execConfig.command="+command)...)
		return into[appsv1.StatefulSet](t, find(t, all, "StatefulSet", "federator")).Spec.Template.Annotations["checksum/config"],
			into[corev1.ConfigMap](t, find(t, all, "ConfigMap", "federator")).Data["providers.json"]
	}
	a, aFile := of("/a")
	b, bFile := of("/b")
	if aFile == bFile {
		t.Fatal("providers.json is the same")
	}
	if a == b {
		t.Error("providers.json changed, and neither the Pods (checksum/config) nor their file (subPath) follow")
	}
}

// TestRBAC_NoNameIsNotAllSecrets: a rule without names is a rule for all.
func TestRBAC_NoNameIsNotAllSecrets(t *testing.T) {
	for _, account := range []string{"null", `"null"`} {
		set := "--set"
		if account == `"null"` {
			set, account = "--set-string", "null"
		}
		out, stderr, err := run(t, "helm", append([]string{"template", "federator", chartDir, "--namespace", "system"},
			least("--set", "sources.managedClusters.proxyURL=https://a,sources.managedClusters.caSecretName=ca", set, "sources.managedClusters.serviceAccount="+account)...)...)
		if err != nil {
			t.Logf("%s %s: refused: %s", set, account, stderr)
			continue
		}
		var role rbacv1.ClusterRole
		for _, u := range objects(t, out) {
			if u.GetKind() == "ClusterRole" && u.GetName() == "system-federator" {
				role = into[rbacv1.ClusterRole](t, u)
			}
		}
		for _, r := range role.Rules {
			if slices.Contains(r.Resources, "secrets") && (len(r.ResourceNames) == 0 || r.ResourceNames[0] == "") {
				text, err := yaml.Marshal(r)
				must(t, err)
				t.Errorf("%s serviceAccount=%s: federator may read all Secrets of the hub:\n%s", set, account, text)
			}
		}
	}
}
