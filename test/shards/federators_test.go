package shards

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/test/kube"
)

// regional is the configuration of a federator that shares its fleet with no other.
const regional = `sources:
  kubeconfig: %[1]s
  clusterAPI: {namespaces: [%[2]s]}%[3]s
network: {allow: [127.0.0.0/8]}
kinds: [{kind: ConfigMap}, {kind: Namespace}]
query:
  listen: %[4]s
  tls: {certFile: ../tls.crt, keyFile: ../tls.key}
  clientCAFile: ../hub.crt
policies: {namespace: %[2]s%[5]s}
persistence: {off: true}
listen: {serve: %[6]s, admin: %[7]s}
log: {format: text}
`

// grants are what the region lets the other federator read: of all its members, or of one.
const grants = `apiVersion: v1
kind: ServiceAccount
metadata: {name: world, namespace: eu-clusters}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: eu-clusters}
rules: [{apiGroups: [members.federator.dev], resources: [configmaps, namespaces], verbs: [get, list, watch]%s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: world-reads, namespace: eu-clusters}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: world, namespace: eu-clusters}]
`

// federated is a FleetPolicy of the federator for all regions.
const federated = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: federated}
spec: {package: fix, mode: Enforce, match: {labels: {matchLabels: {story: federated}}}, limits: {maxAffected: {policy: {count: 100}}}}
`

// TestShards_Federators: a federator of a region has two members, and one for all regions reads them there beside a member of its
// own. It judges all three by what all have, within what the region grants, corrects its own and never those of the region;
// while the region is lost it knows nothing of them, and says so.
func TestShards_Federators(t *testing.T) {
	f := newHub(t)
	for i, namespace := range []string{"eu-clusters", "eu-clusters", "world"} {
		c := cluster(i, f.kube.Members[i])
		c.Namespace = namespace
		f.do(f.kube.Hub.Register(t.Context(), c))
		t.Cleanup(func() { f.do(f.kube.Hub.Unregister(context.WithoutCancel(t.Context()), namespace, c.Name)) })
	}
	region, world := f.federator("eu-clusters", "", ""), f.federator("world", `
  federators: [{name: eu, kubeconfig: eu.kubeconfig}]`, ", dirs: [../policies], hub: true")
	f.do(f.kube.Hub.Apply(t.Context(), fmt.Appendf(nil, grants, "")))
	seconds := int64(time.Hour.Seconds())
	token, err := f.kube.Hub.Client().CoreV1().ServiceAccounts("eu-clusters").CreateToken(t.Context(), "world", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"federator"}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	f.do(err)
	f.write("world/eu.kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: eu, cluster: {server: "https://%s", certificate-authority: ../tls.crt}}]
users: [{name: world, user: {token: %s}}]
contexts: [{name: eu, context: {cluster: eu, user: world}}]
current-context: eu
`, region.query, token.Status.Token))

	f.put(0, "once-a")
	f.put(1, "once-b")
	f.put(2, "once-a")
	region.start()
	world.start()
	first, second, own := "eu/eu-clusters.member-1", "eu/eu-clusters.member-2", "world/member-3"
	says := func(what string, want map[string][]string) {
		t.Helper()
		f.until(what, func() error {
			got, err := world.violations(t.Context())
			if err != nil {
				return err
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("violations are\n%v, want\n%v", got, want)
			}
			return nil
		})
	}
	says("the world judges by what the region has", map[string][]string{
		first + " default/once-a": {"Known: " + own + tooText}, own + " default/once-a": {"Known: " + first + tooText},
	})
	f.put(2, "once-b")
	both := map[string][]string{
		first + " default/once-a": {"Known: " + own + tooText}, own + " default/once-a": {"Known: " + first + tooText},
		second + " default/once-b": {"Known: " + own + tooText}, own + " default/once-b": {"Known: " + second + tooText},
	}
	says("a change of a member is told on", both)

	client, err := hub.NewRESTClient(f.kube.Hub.DirectRESTConfig())
	f.do(err)
	c := &corrections{fleet: f, hub: client}
	for i := range 3 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fix-federated-0", Labels: map[string]string{"story": "federated"}}}
		_, err := f.kube.Members[i].Client().CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{})
		f.do(err)
	}
	f.do(f.kube.Hub.Apply(t.Context(), []byte(federated)))
	c.policy("what is the world's own is corrected", "federated", func(p *v1alpha1.FleetPolicy) error {
		a := p.Status.Actions
		if a == nil || a.Succeeded != 1 || len(c.fixed("federated")) == 0 {
			return fmt.Errorf("actions are %+v; conditions: %+v", a, p.Status.Conditions)
		}
		if n := p.Status.Totals; n == nil || n.Violations != 2 {
			return fmt.Errorf("totals are %+v, want two violations", n)
		}
		return nil
	})
	for i := range 2 {
		if w := c.writes(i, "federated"); len(w) > 0 {
			t.Errorf("%s of the region was written to: %v", memberName(i), w)
		}
	}

	region.Kill()
	f.until("nothing is known while the region is lost", func() error {
		got, err := world.violations(t.Context())
		if err != nil {
			return err
		}
		for key, list := range got {
			for _, text := range list {
				if text[:len("Known")] == "Known" {
					return fmt.Errorf("%s: %s", key, text)
				}
			}
		}
		return nil
	})
	region.start()
	says("the region is back", both)

	f.do(f.kube.Hub.Apply(t.Context(), fmt.Appendf(nil, grants, ", resourceNames: [member-1]")))
	delete(both, second+" default/once-b")
	delete(both, own+" default/once-b")
	says("a member that is granted no more is not there", both)
	if _, _, err := world.answer(t.Context()); err != nil {
		t.Error(errors.Join(errors.New("the world answers for what it has"), err))
	}
}

// federator is a process with a configuration of its own, in a namespace of the hub that its members are in.
func (f *fleet) federator(namespace, sources, policies string) *shard {
	f.t.Helper()
	s := f.process(namespace)
	f.write(filepath.Join(namespace, "federator.yaml"), fmt.Appendf(nil, regional, f.kube.Hub.KubeconfigFile(), namespace, sources, s.query, policies,
		kube.FreeAddress(f.t), kube.FreeAddress(f.t)))
	return s
}
