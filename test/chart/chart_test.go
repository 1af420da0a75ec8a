package chart

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestChart_Lint(t *testing.T) {
	for name, args := range map[string][]string{
		"defaults": nil, "least": least(), "full": {"--values", "testdata/full.yaml"}, "run": least("--values", "testdata/run.yaml"),
	} {
		t.Run(name, func(t *testing.T) { helm(t, append([]string{"lint", "--strict", chartDir}, args...)...) })
	}
}

func TestValues_InvalidOnesAreRejected(t *testing.T) {
	for values, want := range map[string]string{
		"image.repository=":                           "image.repository is required",
		"clusters.namespaces=null":                    "clusters.namespaces is required",
		"clusters.allNamespaces=true":                 "mutually exclusive",
		"replica=3":                                   "additional properties 'replica' not allowed",
		"image.digest=sha256:abc":                     "image/digest",
		"replicas=-1":                                 "replicas",
		"clusters.namespaces={Fleet}":                 "clusters/namespaces/0",
		"config.listen.serve=:1":                      "config/listen/serve",
		"config.policies.dirs={/a}":                   "config/policies/dirs",
		"config.query.tls.certFile=/a":                "config/query/tls/certFile",
		"config.sources.contexts.path=a":              "config/sources/contexts",
		"config.sources.members.namespaces={a}":       "config/sources/members",
		"config.sources.kubeconfig=a":                 "config/sources/kubeconfig",
		"sources.argoCD.namespaces={A}":               "sources/argoCD/namespaces/0",
		"sources.managedClusters.proxyURL=http://a":   "sources/managedClusters/proxyURL",
		"sources.managedClusters.proxyURL=https://a":  "sources.managedClusters.caSecretName is required",
		"sources.managedClusters.serviceAccount=a/b":  "sources/managedClusters/serviceAccount",
		"sources.clusterProfiles.namespaces={a}":      "sources.clusterProfiles.providers is required",
		"sources.clusterProfiles.providers[0].name=a": "sources/clusterProfiles/providers/0",
		"sources.federators[0].name=a":                "sources/federators/0",
		"sources.federators[0].name=a.b,sources.federators[0].server=https://a,sources.federators[0].secretName=a": "sources/federators/0/name",
		"sources.federators[0].name=a,sources.federators[0].server=http://a,sources.federators[0].secretName=a":    "sources/federators/0/server",
		"config.sources.federators[0].name=a":                "config/sources/federators",
		"config.agents.listen=a":                             "config/agents",
		"agents.enabled=true":                                "agents.enabled requires sources.members.namespaces",
		"agents.enabled=true,sources.members.namespaces={a}": "agents.hosts is required",
		"agents.certificateLife=1":                           "agents/certificateLife",
		"config.shards.count=3":                              "config/shards",
		"shards.enabled=true,replicas=1":                     "shards.enabled requires replicas of at least 2",
		"shards.replication=3":                               "shards/replication",
		"agents.service.type=ExternalName":                   "agents/service/type",
		"policies.files.a=b":                                 "does not match pattern",
		"rbac.extraRules[0].apiGroups={*},rbac.extraRules[0].resources={pods},rbac.extraRules[0].verbs={get}":      "rbac/extraRules/0/apiGroups/0",
		"rbac.extraRules[0].apiGroups={apps},rbac.extraRules[0].resources={pods/*},rbac.extraRules[0].verbs={get}": "rbac/extraRules/0/resources/0",
		"persistence.size=4G": "persistence/size",
		"persistence.size=4Gi,config.history.maxBytes=1288490190":                                                          "more than persistence.size",
		"persistence.size=4Gi,config.persistence.maxBytes=4294967297":                                                      "more than persistence.size",
		"policySources.secrets[0].namespace=a,policySources.secrets[0].names={}":                                           "policySources/secrets/0/names",
		"config.policies.webhook.listen=:1":                                                                                "config/policies/webhook",
		"policySources.webhook.enabled=true":                                                                               "policySources.webhook.secretName is required",
		"policies.hub=false,policySources.webhook.enabled=true":                                                            "policySources.webhook requires policies.hub=true",
		"policies.hub=false,policies.reports=true":                                                                         "policies.reports requires policies.hub=true",
		"config.policies.reports=true":                                                                                     "config/policies/reports",
		"config.policies.notify.origin=/a":                                                                                 "config/policies/notify",
		"notify.receivers[0].name=a":                                                                                       "notify/receivers/0",
		"notify.receivers[0].name=A,notify.receivers[0].url=https://a,notify.receivers[0].secretName=a":                    "notify/receivers/0/name",
		"notify.receivers[0].name=a,notify.receivers[0].url=a,notify.receivers[0].secretName=a":                            "notify/receivers/0/url",
		"policies.hub=false,notify.receivers[0].name=a,notify.receivers[0].url=https://a,notify.receivers[0].secretName=a": "notify.receivers requires policies.hub=true",
		"config.traces.endpoint=a:1":                                                                                       "config/traces/endpoint",
		"traces.endpoint=https://a:1":                                                                                      "traces/endpoint",
		"traces.endpoint=a:1,traces.ca=true":                                                                               "traces.secretName is required",
		"traces.endpoint=a:1,traces.insecure=true,traces.secretName=a,traces.headers=true":                                 "traces.insecure excludes",
		"config.ui.enabled=false":                                                                                          "config/ui/enabled",
		"ui.oidc.issuer=https://a":                                                                                         "ui.oidc.clientID is required",
		"ui.oidc.issuer=http://a":                                                                                          "ui/oidc/issuer",
		"ui.oidc.redirectURL=https://a/ui":                                                                                 "ui/oidc/redirectURL",
		"config.query.mcp=true":                                                                                            "config/query/mcp",
		"config.metrics.perScope=true":                                                                                     "config/metrics/perScope",
		"query.tls.certManager.enabled=true":                                                                               "query.tls.certManager.issuerName is required",
		"serviceAccount.create=false":                                                                                      "serviceAccount.name is required",
		"metrics.serviceMonitor.interval=often":                                                                            "metrics/serviceMonitor/interval",
		"metrics.readers[0].name=x":                                                                                        "metrics/readers/0",
		"config.listen.tls.certFile=/a":                                                                                    "config/listen/tls",
		"podDisruptionBudget.maxUnavailable=half":                                                                          "podDisruptionBudget/maxUnavailable",
		"goGC=off":                    "goGC",
		"goMemLimit=90%":              "goMemLimit",
		"policies.bindings[0].name=x": "policies/bindings/0",
		"notifications.secrets={A}":   "notifications/secrets/0",
		"notifications.secrets=pager": "notifications/secrets",
		"memberWriter.targets[0].resources={Deployment.apps},memberWriter.targets[0].verbs={patch}": "memberWriter/targets/0/resources/0",
		"memberWriter.targets[0].resources={deployments.apps},memberWriter.targets[0].verbs={get}":  "memberWriter/targets/0/verbs/0",
	} {
		t.Run(values, func(t *testing.T) {
			out, stderr, err := run(t, "helm", append([]string{"template", "federator", chartDir}, least("--set", values)...)...)
			if err == nil || !strings.Contains(stderr, want) {
				t.Errorf("%v: %s%s\nwant %q", err, out, stderr, want)
			}
		})
	}
}

// TestSchema_DescribesEveryValue: every value has a schema, objects allow no others,
// and the schema has no value that values.yaml does not document.
func TestSchema_DescribesEveryValue(t *testing.T) {
	for _, dir := range []string{chartDir, agentChartDir} {
		t.Run(filepath.Base(dir), func(t *testing.T) { schemaDescribesEveryValue(t, dir) })
	}
}

func schemaDescribesEveryValue(t *testing.T, dir string) {
	t.Helper()
	var schema, values map[string]any
	for file, into := range map[string]*map[string]any{"values.schema.json": &schema, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		must(t, yaml.UnmarshalStrict(text, into))
	}
	var compare func(path string, schema, values map[string]any)
	compare = func(path string, schema, values map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		if schema["additionalProperties"] != false {
			t.Errorf("%s: the schema allows other properties", path)
		}
		names := slices.Sorted(maps.Keys(values))
		if path == "" {
			names = append(names, "global") // Helm's own
		}
		for _, name := range names {
			if properties[name] == nil {
				t.Errorf("%s.%s has no schema", path, name)
			}
		}
		for name, of := range properties {
			if !slices.Contains(names, name) {
				t.Errorf("%s.%s is not in values.yaml", path, name)
			}
			child, ok := of.(map[string]any)
			if value, isMap := values[name].(map[string]any); ok && isMap && child["additionalProperties"] == false {
				compare(path+"."+name, child, value)
			} else if isMap && len(value) > 0 && child["additionalProperties"] == nil && name != "resources" {
				t.Errorf("%s.%s allows anything", path, name)
			}
		}
	}
	compare("", schema, values)
}

// TestRBAC_IsMinimal reads the rendered rules: nothing for all, no escalation,
// access to Secrets only where values say so.
func TestRBAC_IsMinimal(t *testing.T) {
	for name, args := range map[string][]string{"least": least(), "full": {"--values", "testdata/full.yaml"}} {
		t.Run(name, func(t *testing.T) {
			all := render(t, args...)
			rules := 0
			for _, u := range all {
				switch u.GetKind() {
				case "ClusterRole", "Role":
					role := into[rbacv1.Role](t, u)
					for _, r := range role.Rules {
						rules++
						checkRule(t, u.GetKind(), &role, r)
					}
				case "ClusterRoleBinding", "RoleBinding":
					b := into[rbacv1.RoleBinding](t, u)
					if find(t, inNamespace(all, b.Namespace), b.RoleRef.Kind, b.RoleRef.Name) == nil {
						t.Errorf("%s binds what is not in the chart", b.Name)
					}
					if strings.HasSuffix(b.Name, "-metrics") {
						if len(b.Subjects) != 1 || b.Subjects[0].Name != "prometheus" || b.Subjects[0].Namespace != "monitoring" || b.RoleRef.Name != b.Name {
							t.Errorf("%s binds %s for %v", b.Name, b.RoleRef.Name, b.Subjects)
						}
						continue
					}
					if len(b.Subjects) != 1 || b.Subjects[0].Kind != "ServiceAccount" || b.Subjects[0].Name != "federator" || b.Subjects[0].Namespace != "system" {
						t.Errorf("%s is for %v", b.Name, b.Subjects)
					}
				}
			}
			if rules < 9 {
				t.Errorf("only %d rules were found", rules)
			}
		})
	}
	t.Run("all namespaces", func(t *testing.T) {
		all := render(t, "--set", "image.repository=a,clusters.allNamespaces=true")
		role := into[rbacv1.ClusterRole](t, find(t, all, "ClusterRole", "system-federator"))
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") }) {
			t.Error("Secrets cannot be read")
		}
	})
	t.Run("reports", func(t *testing.T) {
		for set, want := range map[string]string{
			"policies.reports=false": "", "policies.reports=true": "clusterreports in all, reports in fleet",
			"policies.reports=true,clusters.namespaces=null,clusters.allNamespaces=true": "clusterreports in all, reports in all",
		} {
			var granted []string
			for _, u := range render(t, least("--set", set)...) {
				if kind := u.GetKind(); kind != "ClusterRole" && kind != "Role" {
					continue
				}
				for _, r := range into[rbacv1.Role](t, u).Rules {
					if slices.Contains(r.APIGroups, "openreports.io") {
						granted = append(granted, strings.Join(r.Resources, " ")+" in "+cmp.Or(u.GetNamespace(), "all"))
					}
				}
			}
			slices.Sort(granted)
			if got := strings.Join(granted, ", "); got != want {
				t.Errorf("%s grants %q, want %q", set, got, want)
			}
		}
	})
	t.Run("none", func(t *testing.T) {
		for _, u := range render(t, least("--set", "rbac.create=false")...) {
			if strings.HasPrefix(u.GetAPIVersion(), "rbac.") {
				t.Errorf("there is a %s", u.GetKind())
			}
		}
	})
}

func inNamespace(all []*unstructured.Unstructured, namespace string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(all), func(u *unstructured.Unstructured) bool { return u.GetNamespace() != namespace })
}

func checkRule(t *testing.T, kind string, role *rbacv1.Role, r rbacv1.PolicyRule) {
	t.Helper()
	where := fmt.Sprintf("%s %s/%s: %v", kind, role.Namespace, role.Name, r)
	if strings.HasSuffix(role.Name, "-metrics") { // for scrapers, and for nothing else
		if len(role.Rules) != 1 || !slices.Equal(r.NonResourceURLs, []string{"/metrics"}) || !slices.Equal(r.Verbs, []string{"get"}) || len(r.Resources) > 0 {
			t.Errorf("%s: not to get /metrics", where)
		}
		return
	}
	if len(r.NonResourceURLs) > 0 {
		t.Errorf("%s: there are URLs", where)
	}
	for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs} {
		if len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
			t.Errorf("%s: a wildcard, or nothing", where)
		}
	}
	for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
		if slices.Contains(r.Verbs, verb) {
			t.Errorf("%s: %s", where, verb)
		}
	}
	writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
	if slices.Contains(r.APIGroups, "rbac.authorization.k8s.io") || slices.Contains(r.APIGroups, "cluster.x-k8s.io") && writes {
		t.Errorf("%s: not federator's to write", where)
	}
	if strings.HasSuffix(role.Name, "-agents") { // what agents join by, and nothing else of federator's namespace
		if role.Namespace != "system" || len(r.ResourceNames) == 0 || slices.ContainsFunc(r.ResourceNames, func(n string) bool { return !strings.HasPrefix(n, "federator-agents-") }) {
			t.Errorf("%s: not only what agents join by", where)
		}
		return
	}
	if strings.HasSuffix(role.Name, "-shards") { // of the replicas themselves; Leases are all read, to see who there is
		reads := !writes && slices.Equal(r.Resources, []string{"leases"})
		own := len(r.ResourceNames) > 0 && !slices.ContainsFunc(r.ResourceNames, func(n string) bool { return !strings.HasPrefix(n, "federator-shard") })
		if role.Namespace != "system" || !reads && !own {
			t.Errorf("%s: not only what replicas agree by", where)
		}
		return
	}
	if slices.Contains(r.Resources, "secrets") {
		named := len(r.ResourceNames) > 0 && (kind == "ClusterRole" && slices.Equal(r.ResourceNames, []string{"federator"}) || strings.HasSuffix(role.Name, "-sources") ||
			strings.HasSuffix(role.Name, "-notifications") && role.Namespace == "system" && !writes)
		ofMembers := strings.HasSuffix(role.Name, "-clusters") || strings.HasSuffix(role.Name, "-members") || strings.HasSuffix(role.Name, "-argocd")
		if writes || !named && !(kind == "Role" && ofMembers && role.Namespace != "system") {
			t.Errorf("%s: Secrets", where)
		}
	}
}

func TestStatefulSet_PodsAreConfined(t *testing.T) {
	for name, args := range map[string][]string{"least": least(), "full": {"--values", "testdata/full.yaml"}} {
		t.Run(name, func(t *testing.T) {
			d := into[appsv1.StatefulSet](t, find(t, render(t, args...), "StatefulSet", "federator"))
			pod := d.Spec.Template.Spec
			c := pod.Containers[0]
			s := c.SecurityContext
			switch {
			case *d.Spec.Replicas != 2:
				t.Errorf("%d replicas", *d.Spec.Replicas)
			case len(pod.Containers) != 1 || pod.HostNetwork || pod.HostPID || pod.HostIPC:
				t.Error("more than a container of its own")
			case !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0 || pod.SecurityContext.SeccompProfile.Type != "RuntimeDefault":
				t.Errorf("Pod: %v", pod.SecurityContext)
			case !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || *s.Privileged || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
				t.Errorf("container: %v", s)
			case c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.StartupProbe == nil:
				t.Error("probes")
			case len(pod.TopologySpreadConstraints) != 2 || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero():
				t.Error("spread or resources")
			}
			for _, v := range pod.Volumes {
				if v.HostPath != nil {
					t.Errorf("volume %s is of the host", v.Name)
				}
			}
		})
	}
}

// TestStatefulSet_KeepsTheIndex: on a claim, on a volume of the Pod, or nowhere; without a
// hub to ask, as helm template has none, on a volume of the Pod.
func TestStatefulSet_KeepsTheIndex(t *testing.T) {
	for what, c := range map[string]struct {
		args                   []string
		claim, volume, key, on bool
	}{
		"by itself":       {nil, false, true, false, true},
		"a class":         {[]string{"--set", "persistence.storageClass=fast"}, true, false, false, true},
		"claims":          {[]string{"--set", "persistence.type=pvc"}, true, false, false, true},
		"of the Pod":      {[]string{"--set", "persistence.type=emptyDir,persistence.storageClass=fast"}, false, true, false, true},
		"encrypted":       {[]string{"--set", "persistence.type=pvc,persistence.keySecretName=k"}, true, false, true, true},
		"nothing is kept": {[]string{"--set", "persistence.enabled=false"}, false, false, false, false},
	} {
		s := into[appsv1.StatefulSet](t, find(t, render(t, least(c.args...)...), "StatefulSet", "federator"))
		has := func(name string) bool {
			return slices.ContainsFunc(s.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		}
		mounted := slices.ContainsFunc(s.Spec.Template.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "index" && m.MountPath == "/var/lib/federator"
		})
		if got := len(s.Spec.VolumeClaimTemplates) == 1; got != c.claim || has("index") != c.volume || has("key") != c.key || mounted != c.on {
			t.Errorf("%s: claim %t, volume %t, key %t, mounted %t", what, got, has("index"), has("key"), mounted)
		}
		if c.claim {
			claim := s.Spec.VolumeClaimTemplates[0].Spec
			if size := claim.Resources.Requests.Storage(); size.String() != "20Gi" || what == "a class" && *claim.StorageClassName != "fast" {
				t.Errorf("%s: a claim of %s: %v", what, size, claim.StorageClassName)
			}
		}
	}
}

// TestConfig_KeepsNoMoreThanTheVolumeHolds: an emptyDir that is full evicts its Pod.
func TestConfig_KeepsNoMoreThanTheVolumeHolds(t *testing.T) {
	for size, want := range map[string]int64{
		"4Gi": 3006477107, "20Gi": 15032385536, "1.5Ti": 1154487209164, "512Mi": 375809638, "8388608Ki": 6012954214, "10737418240": 7516192768,
	} {
		args := least("--set-string", "persistence.size="+size)
		if got := maxBytes(t, args...); got != want {
			t.Errorf("of %s, %d bytes are used, want %d", size, got, want)
		}
	}
	if got := maxBytes(t, least("--set", "persistence.size=4Gi,config.persistence.maxBytes=4294967296")...); got != 4<<30 {
		t.Errorf("%d bytes are used, as is not configured", got)
	}
	for args, want := range map[string]int64{"persistence.size=4Gi": 644245094, "persistence.size=1Mi": 1 << 20, "config.history.maxBytes=5368709120": 5 << 30} {
		if got := historyBytes(t, least("--set-string", args)...); got != want {
			t.Errorf("%s: the history may have %d bytes, want %d", args, got, want)
		}
	}
}

// historyBytes is what the history may have as the chart configures it.
func historyBytes(t *testing.T, args ...string) int64 {
	t.Helper()
	var c struct{ History struct{ MaxBytes int64 } }
	config := into[corev1.ConfigMap](t, find(t, render(t, args...), "ConfigMap", "federator"))
	must(t, yaml.Unmarshal([]byte(config.Data["config.yaml"]), &c))
	return c.History.MaxBytes
}

// maxBytes is what federator may keep as the chart configures it.
func maxBytes(t *testing.T, args ...string) int64 {
	t.Helper()
	var c struct{ Persistence struct{ MaxBytes int64 } }
	config := into[corev1.ConfigMap](t, find(t, render(t, args...), "ConfigMap", "federator"))
	must(t, yaml.Unmarshal([]byte(config.Data["config.yaml"]), &c))
	return c.Persistence.MaxBytes
}

// TestStatefulSet_RollsWhenConfigurationChanges: what is read at startup is part of the Pod template.
func TestStatefulSet_RollsWhenConfigurationChanges(t *testing.T) {
	sum := func(args ...string) string {
		d := into[appsv1.StatefulSet](t, find(t, render(t, least(args...)...), "StatefulSet", "federator"))
		return d.Spec.Template.Annotations["checksum/config"]
	}
	seen := map[string]bool{}
	for _, args := range [][]string{
		nil,
		{"--set", "config.parallelSyncs=3"},
		{"--set", `policies.files.a\.rego=package a`},
		{"--set", `policies.files.a\.rego=package b`},
		{"--set", "policies.hub=false,policies.bindings[0].name=a,policies.bindings[0].package=a"},
		{"--set", "policies.library=false"},
		{"--set", "metrics.perScope=true"},
		{"--set", "query.mcp=true"},
	} {
		seen[sum(args...)] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d checksums of 8 configurations", len(seen))
	}
	if !seen[sum("--set", "replicas=3")] {
		t.Error("replicas change the checksum")
	}
}
