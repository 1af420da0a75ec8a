package remediate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs and a member.
var shared struct {
	kube.Shared
	hub, member *http.Client // around the proxies
	objects     dynamic.Interface
	sites       atomic.Int64
}

func TestMain(m *testing.M) {
	shared.Options, shared.Prepare = kube.Options{Members: 1, Audit: true}, prepare
	os.Exit(shared.Main(m))
}

func prepare(ctx context.Context) (err error) {
	if shared.hub, err = rest.HTTPClientFor(quiet(shared.Fleet.Hub.DirectRESTConfig())); err != nil {
		return err
	}
	member := quiet(shared.Fleet.Members[0].DirectRESTConfig())
	if shared.member, err = rest.HTTPClientFor(member); err != nil {
		return err
	}
	shared.Clients = []*http.Client{shared.hub, shared.member}
	if shared.objects, err = dynamic.NewForConfigAndClient(member, shared.member); err != nil {
		return err
	}
	return shared.Fleet.Hub.InstallCRDs(ctx, "../../charts/federator/crds")
}

func quiet(cfg *rest.Config) *rest.Config {
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// client is a REST client of a group and version.
func client(cfg *rest.Config, http *http.Client, gv schema.GroupVersion) (*rest.RESTClient, error) {
	cfg = quiet(rest.CopyConfig(cfg))
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientForConfigAndClient(cfg, http)
}

// until polls until a check passes, and returns its last error when time is up.
func until(check func() error) error { return kube.Until(context.Background(), 90*time.Second, check) }

// memberName is its name in the fleet.
const memberName = "fleet/eu-1"

// servedKinds are the kinds that these tests write, and one that the member does not serve.
var servedKinds = map[policy.Kind]Client{
	"ConfigMap":                             {Resource: "configmaps", Namespaced: true},
	"Secret":                                {Resource: "secrets", Namespaced: true},
	"Service":                               {Resource: "services", Namespaced: true},
	"Namespace":                             {Resource: "namespaces"},
	"Deployment.apps":                       {Resource: "deployments", Namespaced: true},
	"PriorityClass.scheduling.k8s.io":       {Resource: "priorityclasses"},
	"Role.rbac.authorization.k8s.io":        {Resource: "roles", Namespaced: true},
	"RoleBinding.rbac.authorization.k8s.io": {Resource: "rolebindings", Namespaced: true},
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io":        {Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": {Resource: "validatingadmissionpolicybindings"},
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io":   {Resource: "validatingwebhookconfigurations"},
	"Widget.example.com": {Resource: "widgets", Namespaced: true},
}

func versionOf(kind policy.Kind) schema.GroupVersion {
	_, group := kind.Split()
	return schema.GroupVersion{Group: group, Version: "v1"}
}

// memberClients gives access to the member by a transport.
type memberClients struct {
	cfg  *rest.Config
	http *http.Client
}

// Client implements remediate.ClientFactory.
func (a memberClients) Client(member string, kind policy.Kind, _ string) (*Client, error) {
	c, ok := servedKinds[kind]
	if member != memberName || !ok {
		return nil, fmt.Errorf("member %q: %s is not served", member, kind)
	}
	var err error
	c.REST, err = client(a.cfg, a.http, versionOf(kind))
	return &c, err
}

// transport calls functions before each request is sent and after it was answered, whose
// errors fail the request.
type transport struct {
	next   http.RoundTripper
	before func(*http.Request) error
	after  func(*http.Request) error
}

func (w *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.before != nil {
		if err := w.before(r); err != nil {
			return nil, err
		}
	}
	answer, err := w.next.RoundTrip(r)
	if err == nil && w.after != nil {
		answered := false
		defer func() {
			if !answered {
				answer.Body.Close()
			}
		}()
		if err := w.after(r); err != nil {
			return nil, err
		}
		answered = true
	}
	return answer, err
}

// fixture is a namespace of the member and a process that corrects.
type fixture struct {
	*testing.T

	ns          string
	binding     string
	hub, member transport // what the process sends
	exec        *executor
	journal     *hubJournal
	checkWrite  func(*Intent) error
	resolved    []*Action
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// newFixture makes a namespace for a test, and a process.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	shared.Start(t)
	name := strings.Trim(notName.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	if len(name) > 50 {
		name = name[:40] + "-" + objects.Hash([]byte(name))[:8]
	}
	name = fmt.Sprintf("%s-%d", name, shared.sites.Add(1)) // with -count too
	s := &fixture{T: t, ns: name, binding: name}
	s.create("Namespace", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	s.start()
	return s
}

// start starts a new process, which knows nothing of an earlier one.
func (s *fixture) start() {
	s.Helper()
	s.hub.next, s.member.next = shared.hub.Transport, shared.member.Transport
	hub, err := client(shared.Fleet.Hub.DirectRESTConfig(), &http.Client{Transport: &s.hub}, v1alpha1.SchemeGroupVersion())
	if err != nil {
		s.Fatal(err)
	}
	s.journal = newHubJournal(hub, time.Now)
	s.exec = &executor{
		clients: s.clients(), journal: s.journal, clock: time.Now, keepsValues: true,
		checkWrite: func(i *Intent) (time.Time, error) {
			if s.checkWrite != nil {
				return time.Time{}, s.checkWrite(i)
			}
			return time.Time{}, nil
		},
		onResolved: func(a *Action) { s.resolved = append(s.resolved, a) },
	}
}

func (s *fixture) clients() memberClients {
	return memberClients{shared.Fleet.Members[0].DirectRESTConfig(), &http.Client{Transport: &s.member}}
}

// objects are those of a kind, for an administrator of the member.
func (s *fixture) objects(kind policy.Kind) dynamic.ResourceInterface {
	c := servedKinds[kind]
	all := shared.objects.Resource(versionOf(kind).WithResource(c.Resource))
	if c.Namespaced {
		return all.Namespace(s.ns)
	}
	return all
}

// create creates an object as another client.
func (s *fixture) create(kind policy.Kind, text string) *unstructured.Unstructured {
	s.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		s.Fatal(err)
	}
	object.SetGroupVersionKind(versionOf(kind).WithKind(strings.Split(string(kind), ".")[0]))
	made, err := s.objects(kind).Create(s.Context(), object, metav1.CreateOptions{FieldManager: "somebody"})
	if err != nil {
		s.Fatal(err)
	}
	return made
}

// merge patches an object as another client.
func (s *fixture) merge(kind policy.Kind, name, patch string) *unstructured.Unstructured {
	s.Helper()
	made, err := s.objects(kind).Patch(s.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		s.Fatal(err)
	}
	return made
}

// remove deletes an object as another client.
func (s *fixture) remove(kind policy.Kind, name string) {
	s.Helper()
	if err := s.objects(kind).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// get returns an object, nil where there is none.
func (s *fixture) get(kind policy.Kind, name string) map[string]any {
	s.Helper()
	object, err := s.objects(kind).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		s.Fatal(err)
	}
	return object.Object
}

// intentFor is a correction of an object as it is, or of one that is not there.
func (s *fixture) intentFor(object *unstructured.Unstructured, remedy policy.Remedy) *Intent {
	i := &Intent{Binding: s.binding, Package: "acme.test", Message: "it violates", Revision: 7, Remedy: remedy}
	i.Remedy.Target.Member = memberName
	if object != nil {
		i.UID, i.ResourceVersion, i.APIVersion = string(object.GetUID()), object.GetResourceVersion(), object.GetAPIVersion()
		gvk := object.GroupVersionKind()
		i.Remedy.Target.Kind = policy.Kind(strings.TrimSuffix(gvk.Kind+"."+gvk.Group, "."))
		i.Remedy.Target.Name, i.Remedy.Target.Namespace = object.GetName(), object.GetNamespace()
	}
	return i
}

// execute carries out a correction.
func (s *fixture) execute(i *Intent) *Action {
	s.Helper()
	a, err := s.exec.execute(s.Context(), i)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// try returns what the member answers to a correction that is not carried out.
func (s *fixture) try(i *Intent) plans.Target {
	t := (&desiredIntent{Intent: i}).planTarget()
	s.exec.tryOnly(s.Context(), i, &t, true)
	return t
}

// recorded returns the recorded action, nil if there is none.
func (s *fixture) recorded(name string) *Action {
	s.Helper()
	a, err := s.journal.get(s.Context(), name)
	if err != nil {
		if errors.Is(err, ErrNoAction) {
			return nil
		}
		s.Fatal(err)
	}
	return a
}

// raw returns the record of an action as the hub returns it.
func (s *fixture) raw(name string) string {
	s.Helper()
	text, err := s.journal.hub.Get().Resource(v1alpha1.Actions).Name(name).Do(s.Context()).Raw()
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

var (
	tryOnly    = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	getOptions metav1.GetOptions
)

// context is one for what is cleaned up after a test.
func (s *fixture) context() context.Context { return context.WithoutCancel(s.Context()) }
