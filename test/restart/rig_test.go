package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/process"
)

// patience bounds what takes a moment on an idle machine.
const patience = time.Minute

const configuration = `sources:
  kubeconfig: %s
  clusterAPI: {namespaces: [fleet]}
network: {allow: [127.0.0.0/8]}
query:
  listen: %s
  tls: {certFile: %s, keyFile: %s}
  clientCAFile: %s
policies: {namespace: federator, dirs: [%s]}
persistence: {directory: %s}
listen: {serve: %s, admin: %s}
log: {format: text, level: info}
`

// watched is a policy that one ConfigMap violates, from the beginning to the end.
const watched = `# METADATA
# title: Watched
# custom: {severity: low, kinds: [ConfigMap]}
package watched

violation contains {"msg": "it is watched"} if input.object.metadata.name == "watched"
`

// rig is a hub, its members, and federator, which is started again and again.
type rig struct {
	t                   *testing.T
	fleet               *kube.Fleet
	binary, dir         string
	query, serve, admin string // addresses
	ca                  []byte
	cred                kube.Credentials
	process             *process.Process
	started             time.Time
}

func newRig(t *testing.T, opts kube.Options) *rig {
	t.Helper()
	r := &rig{t: t, fleet: kube.StartTest(t, opts), dir: t.TempDir()}
	ctx := t.Context()
	r.do(r.fleet.Hub.InstallCRDs(ctx, "../../charts/federator/crds"))
	r.do(r.fleet.Hub.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: federator}\n")))
	for i, m := range r.fleet.Members {
		r.do(r.fleet.Hub.Register(ctx, kube.Cluster{Namespace: "fleet", Name: name(i), Kubeconfig: m.Kubeconfig()}))
	}
	r.binary = filepath.Join(r.dir, "federator")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", r.binary, "federator.dev/federator/cmd/federator").CombinedOutput()
	if err != nil {
		t.Fatalf("build federator: %v\n%s", err, out)
	}
	crt, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	r.do(err)
	r.ca = crt
	certFile, keyFile, hubCA := filepath.Join(r.dir, "tls.crt"), filepath.Join(r.dir, "tls.key"), filepath.Join(r.dir, "hub.crt")
	r.do(errors.Join(os.WriteFile(hubCA, r.fleet.Hub.RESTConfig().CAData, 0o600), os.WriteFile(certFile, crt, 0o600), os.WriteFile(keyFile, key, 0o600)))
	r.query, r.serve, r.admin = kube.FreeAddress(t), kube.FreeAddress(t), kube.FreeAddress(t)
	r.cred, err = r.fleet.Hub.IssueCert("reader", 24*time.Hour, "system:masters")
	r.do(err)
	policies := filepath.Join(r.dir, "policies")
	r.do(errors.Join(os.Mkdir(policies, 0o700), os.WriteFile(filepath.Join(policies, "watched.rego"), []byte(watched), 0o600)))
	config := fmt.Sprintf(configuration, r.fleet.Hub.KubeconfigFile(), r.query, certFile, keyFile, hubCA, policies, filepath.Join(r.dir, "kept"), r.serve, r.admin)
	r.do(os.WriteFile(filepath.Join(r.dir, "federator.yaml"), []byte(config), 0o600))
	t.Cleanup(func() {
		if r.process == nil {
			return
		}
		if err := r.process.Stop(patience); err != nil {
			t.Errorf("federator: %v", err)
		}
		if t.Failed() {
			t.Logf("federator's log:\n%s", r.process.Tail(60))
		}
	})
	return r
}

func name(i int) string { return fmt.Sprint("member-", i+1) }

func (r *rig) do(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// start starts federator.
func (r *rig) start() {
	r.t.Helper()
	r.started = time.Now()
	p, err := process.Serve(r.binary, r.dir)
	r.do(err)
	r.process = p
}

// kill ends it as a crash does.
func (r *rig) kill() { r.process.Kill() }

// config is how a stock client reads one member through federator, or all with "".
func (r *rig) config(member string) *rest.Config {
	path := "/fleet"
	if member != "" {
		path = "/members/fleet/" + member
	}
	return &rest.Config{
		Host: "https://" + r.query + path, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: r.ca, CertData: r.cred.Cert, KeyData: r.cred.Key},
	}
}

// members asks the admin endpoint for what is known of the members.
func (r *rig) members() ([]clusterinformers.MemberStatus, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+"/members?details=true", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body struct {
		Ready   bool
		Members []clusterinformers.MemberStatus
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return nil, err
	}
	if !body.Ready || len(body.Members) != len(r.fleet.Members) {
		return nil, fmt.Errorf("%d members, ready %t", len(body.Members), body.Ready)
	}
	for _, m := range body.Members {
		for _, s := range m.Details {
			if s.State != aggregate.Synced && s.State != aggregate.NotServed {
				return nil, fmt.Errorf("%s of %s is %s: %s", s.Kind, m.Name, s.State, s.Reason)
			}
		}
	}
	return body.Members, nil
}

// synced waits until all is followed, and returns what was listed for it, by cause.
func (r *rig) synced() (lists map[string]int) {
	r.t.Helper()
	var members []clusterinformers.MemberStatus
	r.do(kube.Until(r.t.Context(), patience, func() (err error) {
		members, err = r.members()
		return err
	}))
	lists = map[string]int{}
	for _, m := range members {
		for _, s := range m.Details {
			for cause, n := range s.Relists {
				lists[cause] += n
			}
		}
	}
	return lists
}

// truth is what the members' own servers have: uid and resourceVersion of each ConfigMap.
func (r *rig) truth() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for i, m := range r.fleet.Members {
		list, err := m.Client().CoreV1().ConfigMaps("").List(r.t.Context(), metav1.ListOptions{})
		r.do(err)
		for _, cm := range list.Items {
			out["fleet/"+name(i)+"/"+cm.Namespace+"/"+cm.Name] = string(cm.UID) + "@" + cm.ResourceVersion
		}
	}
	return out
}

// answer is what federator answers of the same.
func (r *rig) answer() (map[string]string, error) {
	client, err := kubernetes.NewForConfig(r.config(""))
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().ConfigMaps("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, cm := range list.Items {
		a := cm.Annotations
		out[a["federator.dev/member"]+"/"+cm.Namespace+"/"+cm.Name] = string(cm.UID) + "@" + a["federator.dev/resource-version"]
	}
	return out, nil
}

// violate makes the ConfigMap that violates the policy.
func (r *rig) violate(member int) {
	r.t.Helper()
	_, err := r.fleet.Members[member].Client().CoreV1().ConfigMaps("kube-public").Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "watched"}}, metav1.CreateOptions{})
	r.do(err)
}

// firstSeen returns when its violation was first seen.
func (r *rig) firstSeen() (at time.Time) {
	r.t.Helper()
	c, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://" + r.query, TLSClientConfig: r.config("").TLSClientConfig, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	r.do(err)
	r.do(kube.Until(r.t.Context(), patience, func() error {
		text, err := c.Get().AbsPath("/query/v1/violations").Param("policy", "watched").DoRaw(r.t.Context())
		if err != nil {
			return err
		}
		var list policyquery.ViolationList
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		if len(list.Items) != 1 || len(list.Items[0].Violations) != 1 {
			return fmt.Errorf("not one violation: %s", text)
		}
		at = list.Items[0].Violations[0].FirstSeen
		return nil
	}))
	return at
}

func (r *rig) dynamic(config *rest.Config) dynamic.Interface {
	r.t.Helper()
	c, err := dynamic.NewForConfig(config)
	r.do(err)
	return c
}
