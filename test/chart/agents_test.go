package chart

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/test/kube"
)

const agentChartDir = "../../charts/federator-agent"

// leastAgent are the values that the agent's chart requires.
func leastAgent(more ...string) []string {
	return append([]string{"--set", "image.repository=registry.example/federator,hubs={a.example:9443,b.example:9443}"}, more...)
}

func renderAgent(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	return objects(t, helm(t, append([]string{"template", "far", agentChartDir, "--namespace", "agents"}, args...)...))
}

func TestAgentChart_Lint(t *testing.T) {
	for name, args := range map[string][]string{"defaults": nil, "least": leastAgent(), "all": leastAgent("--set", "rbac.askMembers=true,rbac.writeRules[0].apiGroups={apps},rbac.writeRules[0].resources={deployments},rbac.writeRules[0].verbs={patch}")} {
		t.Run(name, func(t *testing.T) { helm(t, append([]string{"lint", "--strict", agentChartDir}, args...)...) })
	}
}

func TestAgentChart_InvalidValuesAreRejected(t *testing.T) {
	for values, want := range map[string]string{
		"image.repository=":                     "image.repository is required",
		"hubs=null":                             "hubs is required",
		"hubs={a.example}":                      "hubs/0",
		"hubs={https://a.example:443}":          "hubs/0",
		"replicas=2":                            "additional properties 'replicas' not allowed",
		"log.level=loud":                        "log/level",
		"proxy.url=http://u:p@a":                "proxy/url",
		"proxy.url=http://a,proxy.secretName=b": "exclude each other",
		"rbac.readAll=false":                    "rbac.readRules is required",
		"serviceAccount.create=false":           "serviceAccount.name is required",
		"rbac.writeRules[0].apiGroups={apps},rbac.writeRules[0].resources={deployments},rbac.writeRules[0].verbs={deletecollection}": "rbac/writeRules/0/verbs/0",
		"rbac.readRules[0].apiGroups={apps},rbac.readRules[0].resources={deployments},rbac.readRules[0].verbs={patch}":               "rbac/readRules/0/verbs/0",
	} {
		out, stderr, err := run(t, "helm", append([]string{"template", "far", agentChartDir}, leastAgent("--set", values)...)...)
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("%s: %v: %s%s\nwant %q", values, err, out, stderr, want)
		}
	}
}

// TestAgentChart_OpensNothing: one Pod that is confined, without ports and Services, which may read
// everything and write nothing but what it keeps of its own.
func TestAgentChart_OpensNothing(t *testing.T) {
	all := renderAgent(t, leastAgent()...)
	var kinds []string
	for _, u := range all {
		kinds = append(kinds, u.GetKind())
	}
	slices.Sort(kinds)
	if want := []string{"ClusterRole", "ClusterRoleBinding", "Deployment", "Role", "RoleBinding", "Secret", "ServiceAccount"}; !slices.Equal(kinds, want) {
		t.Errorf("it has %v", kinds)
	}
	pod := into[appsv1.Deployment](t, find(t, all, "Deployment", "agent")).Spec.Template.Spec
	c := pod.Containers[0]
	s := c.SecurityContext
	if len(pod.Containers) != 1 || len(c.Ports) > 0 || pod.HostNetwork || !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%+v", pod)
	}
	if p := c.ReadinessProbe; p == nil || p.HTTPGet == nil || !slices.Contains(c.Args, "--health-listen=:"+p.HTTPGet.Port.String()) {
		t.Errorf("nothing waits for it to be connected: %v, %v", p, c.Args)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s is of the host", v.Name)
		}
		if v.Secret != nil && !slices.Contains(c.Args, "--token-secret="+v.Secret.SecretName) {
			t.Errorf("federator is shown Secret %s", v.Secret.SecretName)
		}
	}
	for _, r := range into[rbacv1.ClusterRole](t, find(t, all, "ClusterRole", "agent")).Rules {
		if slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) }) {
			t.Errorf("it may write: %v", r)
		}
		if slices.Contains(r.Resources, "*") && slices.Contains(r.Verbs, "get") {
			t.Errorf("it may do more than read: %v", r)
		}
	}
	own := into[rbacv1.Role](t, find(t, all, "Role", "agent")).Rules
	if len(own) != 1 || !slices.Equal(own[0].ResourceNames, []string{"far-federator-agent-identity"}) || !slices.Equal(own[0].Resources, []string{"secrets"}) {
		t.Errorf("of its own: %v", own)
	}
}

// TestAgentChart_ReadsWhatItWrites, and no more for that: get of everything is get of pods/exec, too.
func TestAgentChart_ReadsWhatItWrites(t *testing.T) {
	for resources, want := range map[string][]string{"deployments": {"get", "patch"}, "*": {"patch"}, "deployments/scale": {"patch"}} {
		set := "rbac.writeRules[0].apiGroups={apps},rbac.writeRules[0].resources={" + resources + "},rbac.writeRules[0].verbs={patch}"
		all := renderAgent(t, leastAgent("--set", set)...)
		rules := into[rbacv1.ClusterRole](t, find(t, all, "ClusterRole", "agent")).Rules
		if last := rules[len(rules)-1]; !slices.Equal(last.Resources, []string{resources}) || !slices.Equal(last.Verbs, want) {
			t.Errorf("%s: %v, want %v", resources, last, want)
		}
	}
}

// readsOnly checks that what the chart gives an account is no more than reading: by WebSocket a get of pods/exec runs a command, and so does one of
// nodes/proxy.
func readsOnly(t *testing.T, account *rest.Config) {
	t.Helper()
	c, err := kubernetes.NewForConfig(account)
	must(t, err)
	for _, at := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "pods", Subresource: "exec", Namespace: "default", Name: "a"},
		{Verb: "get", Resource: "nodes", Subresource: "proxy", Name: "a"},
		{Verb: "get", Resource: "services", Subresource: "proxy", Namespace: "default", Name: "a"},
		{Verb: "create", Resource: "pods", Namespace: "default"},
	} {
		r, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &at}}, metav1.CreateOptions{})
		must(t, err)
		if r.Status.Allowed {
			t.Errorf("the agent's ServiceAccount may %s %s/%s", at.Verb, at.Resource, at.Subresource)
		}
	}
}

// TestAgents_HaveServicesOfEachReplica, and Secrets under the names that federator looks for.
func TestAgents_HaveServicesOfEachReplica(t *testing.T) {
	set := []string{"--set", "replicas=3,agents.enabled=true,agents.hosts={a.example},sources.members.namespaces={edge}"}
	all := render(t, least(set...)...)
	for i := range 3 {
		s := into[corev1.Service](t, find(t, all, "Service", fmt.Sprint("-agents-", i)))
		if s.Spec.Selector["statefulset.kubernetes.io/pod-name"] != fmt.Sprint("federator-", i) || s.Spec.Ports[0].Port != 9443 || !s.Spec.PublishNotReadyAddresses {
			t.Errorf("%+v", s.Spec)
		}
	}
	for _, name := range []string{hubside.AuthoritySecret, hubside.PublicSecret, hubside.TokenSecret} {
		if s := into[corev1.Secret](t, find(t, all, "Secret", name)); len(s.Data) > 0 {
			t.Errorf("%s: an upgrade of the chart would replace what federator has there", name)
		}
	}
	for _, u := range render(t, least()...) {
		if strings.Contains(u.GetName(), "agents") {
			t.Errorf("there is %s %s without agents", u.GetKind(), u.GetName())
		}
	}
}

// agentJoins runs the binary as the agent's chart does, in the member that is registered with the hub already: with the
// ServiceAccount, the permissions and the arguments of its Pod.
func agentJoins(t *testing.T, f *kube.Fleet, p *process) {
	t.Helper()
	must(t, f.Hub.Apply(t.Context(), []byte("{apiVersion: federator.dev/v1alpha1, kind: Member, metadata: {namespace: edge, name: far}, spec: {agent: {}}}")))
	far := f.Members[0]
	helm(t, append([]string{"install", "far", agentChartDir, "--kubeconfig", far.KubeconfigFile(), "--namespace", "agents", "--create-namespace"}, leastAgent("--set", "hubs={"+p.agents+"}")...)...)
	dir := t.TempDir()
	var token []byte
	must(t, until(t.Context(), func() (err error) {
		cmd := exec.CommandContext(t.Context(), p.binary, "agent", "token", "edge/far", "--namespace", system, "--kubeconfig", f.Hub.KubeconfigFile())
		if token, err = cmd.Output(); err != nil {
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				err = fmt.Errorf("%w: %s", err, failed.Stderr)
			}
		}
		return err
	}))
	must(t, os.WriteFile(filepath.Join(dir, "token"), token, 0o600))
	cred, err := far.IssueToken(t.Context(), "agents", "far-federator-agent", time.Hour)
	must(t, err)
	readsOnly(t, far.RESTConfigWith(cred))
	must(t, os.WriteFile(filepath.Join(dir, "kubeconfig"), far.KubeconfigWith(cred), 0o600))
	d, err := far.Client().AppsV1().Deployments("agents").Get(t.Context(), "far-federator-agent", metav1.GetOptions{})
	must(t, err)
	args := []string{"--kubeconfig", filepath.Join(dir, "kubeconfig"), "--namespace", "agents"}
	health := regexp.MustCompile(`^(--health-listen=):.*`)
	for _, a := range d.Spec.Template.Spec.Containers[0].Args {
		args = append(args, health.ReplaceAllString(strings.Replace(a, "/etc/federator-agent", dir, 1), "${1}127.0.0.1:0"))
	}
	i := slices.Index(args, "agent")
	args = append([]string{"agent"}, slices.Delete(args, i, i+1)...)
	log := &lines{}
	cmd := exec.Command(p.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended, which Wait says
		if err := cmd.Wait(); err != nil {
			t.Errorf("agent: %v", err)
		}
		if refused := regexp.MustCompile(`(?i).*(forbidden|unauthorized|could not be kept).*`).FindAllString(log.String(), -1); len(refused) > 0 || t.Failed() {
			t.Errorf("agent:\n%s", log)
		}
	})
	must(t, until(t.Context(), func() error {
		text, err := f.Hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/namespaces/edge/members/far").Do(t.Context()).Raw()
		if err != nil {
			return err
		}
		var m v1alpha1.Member
		must(t, json.Unmarshal(text, &m))
		if m.Status.Connected == nil || !*m.Status.Connected {
			return fmt.Errorf("%s\n%s", text, log)
		}
		return nil
	}))
	at := regexp.MustCompile(`server=health address=(\S+)`).FindStringSubmatch(log.String())
	if at == nil {
		t.Fatalf("it does not say where its health is:\n%s", log)
	}
	resp, err := http.Get("http://" + at[1] + d.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("it is connected, and not ready: %s", resp.Status)
	}
}
