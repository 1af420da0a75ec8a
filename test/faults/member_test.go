package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// User is who federator is to the members.
const user = "federator"

// anchors is how many ConfigMaps of a member nobody ever changes.
const anchors = 40

// member is a control plane, the way to it, and who writes to it.
type member struct {
	*kube.ControlPlane
	name   string // as federator has it
	cred   kube.Credentials
	gate   *gate
	gated  bool         // whether the way leads elsewhere than to the API server
	direct *http.Client // an administrator's, around all proxies
	host   string
	writer rest.Interface
	rng    *rand.Rand

	pause   sync.RWMutex // held by who wants that nothing is written
	writing sync.WaitGroup
	written atomic.Int64
	audited int // writes of its log that were looked at

	pairs, fixes int // of the writer: how many there were

	rotated   bool   // whether federator has another kubeconfig
	authority []byte // of the gate's certificate, once it is another one
}

// plain is the name without a namespace.
func (m *member) plain() string { return strings.TrimPrefix(m.name, "fleet/") }

// addMember prepares a control plane and registers it.
func (r *rig) addMember(i int, rng *rand.Rand) error {
	ctx := r.t.Context()
	m := &member{ControlPlane: r.fleet.Members[i], name: fmt.Sprint("fleet/member-", i+1), rng: rng}
	var err error
	if m.cred, err = m.IssueCert(user, 24*time.Hour, "system:masters"); err != nil {
		return err
	}
	m.host = m.DirectRESTConfig().Host
	if m.direct, err = rest.HTTPClientFor(m.DirectRESTConfig()); err != nil {
		return err
	}
	m.direct.Timeout = 10 * time.Second
	r.t.Cleanup(m.direct.CloseIdleConnections)
	cred, err := m.IssueCert(kube.Unaudited, 24*time.Hour, "system:masters")
	if err != nil {
		return err
	}
	config := m.RESTConfigWith(cred)
	config.Host, config.Timeout = m.host, 5*time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	m.writer = client.CoreV1().RESTClient()
	if err := m.Apply(ctx, []byte(widgetCRD)); err != nil {
		return err
	}
	if err := kube.Until(ctx, patience, func() error { return m.send(ctx, http.MethodGet, widgets, "") }); err != nil {
		return err
	}
	for n := range anchors {
		if err := m.send(ctx, http.MethodPost, configMaps, object("v1", "ConfigMap", fmt.Sprint("anchor-", n), m.name, `"set":"anchor"`, `"data":{"a":"b"}`)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pair-a", "pair-b"} {
		if err := m.send(ctx, http.MethodPost, configMaps, object("v1", "ConfigMap", name, m.name, `"set":"pair","n":"0"`, `"data":{}`)); err != nil {
			return err
		}
	}
	if m.gate, err = listenGate(m); err != nil {
		return err
	}
	r.members = append(r.members, m)
	return r.hub.Register(ctx, kube.Cluster{Namespace: "fleet", Name: m.plain(), Kubeconfig: m.KubeconfigWith(m.cred)})
}

// The collections that are written to.
const (
	configMaps  = "/api/v1/namespaces/default/configmaps"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
	widgets     = "/apis/faults.example/v1/namespaces/default/widgets"
)

const widgetCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.faults.example}
spec:
  group: faults.example
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// object is one in JSON; it says of which member it is.
func object(apiVersion, kind, name, member, labels, rest string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"default","name":%q,"labels":{"of":%q,%s}},%s}`,
		apiVersion, kind, name, strings.TrimPrefix(member, "fleet/"), labels, rest)
}

func deployment(name, member string, replicas int) string {
	return object("apps/v1", "Deployment", name, member, `"set":"churn"`, fmt.Sprintf(
		`"spec":{"replicas":%d,"selector":{"matchLabels":{"app":%q}},"template":{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"c","image":"example.com/c"}]}}}`, replicas, name, name))
}

// send writes to the member, as who is not audited.
func (m *member) send(ctx context.Context, verb, path, body string) error {
	q := m.writer.Verb(verb).AbsPath(path)
	if body != "" {
		q = q.Body([]byte(body)).SetHeader("Content-Type", map[string]string{http.MethodPatch: "application/merge-patch+json", http.MethodPost: "application/json"}[verb])
	}
	return q.Do(ctx).Error()
}

// write writes until ctx ends, unless it is paused. What the member refuses, being broken on
// purpose, is written another time.
func (m *member) write(ctx context.Context) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.pause.RLock()
		if m.writeOne(ctx, n) == nil {
			m.written.Add(1)
		}
		m.pause.RUnlock()
	}
}

const writeEvery = 25 * time.Millisecond

// writeOne makes one change, or a few that belong together.
func (m *member) writeOne(ctx context.Context, n int) error {
	var err error
	switch m.rng.IntN(8) {
	case 0:
		err = m.writePair(ctx)
	case 1:
		err = m.upsert(ctx, deployments, fmt.Sprint("web-", m.rng.IntN(5)), fmt.Sprintf(`{"spec":{"replicas":%d}}`, m.rng.IntN(6)), func(name string) string {
			return deployment(name, m.name, 1)
		})
	case 2, 3:
		err = m.upsert(ctx, widgets, fmt.Sprint("w-", m.rng.IntN(10)), fmt.Sprintf(`{"spec":{"size":%d}}`, m.rng.IntN(10)), func(name string) string {
			return object("faults.example/v1", "Widget", name, m.name, `"set":"churn"`, `"spec":{"size":1}`)
		})
	case 4:
		err = m.violate(ctx)
	case 5:
		err = m.send(ctx, http.MethodDelete, fmt.Sprint(configMaps, "/cm-", m.rng.IntN(30)), "")
	default:
		err = m.upsert(ctx, configMaps, fmt.Sprint("cm-", m.rng.IntN(30)), fmt.Sprintf(`{"metadata":{"labels":{"claim":"c-%d","n":"%d"}}}`, m.rng.IntN(40), n), func(name string) string {
			return object("v1", "ConfigMap", name, m.name, `"set":"churn"`, `"data":{"k":"v"}`)
		})
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// upsert changes an object, or creates it.
func (m *member) upsert(ctx context.Context, collection, name, patch string, create func(string) string) error {
	err := m.send(ctx, http.MethodPatch, collection+"/"+name, patch)
	if apierrors.IsNotFound(err) {
		err = m.send(ctx, http.MethodPost, collection, create(name))
	}
	return err
}

// writePair gives two objects a new number, one after the other. The first says which number the
// second has until then: who reads both at one moment sees one of two states, and no other.
func (m *member) writePair(ctx context.Context) error {
	raw, err := m.writer.Get().AbsPath(configMaps + "/pair-b").DoRaw(ctx)
	if err != nil {
		return err
	}
	var b listed
	if err := json.Unmarshal(raw, &b); err != nil {
		return err
	}
	m.pairs++
	if err := m.untilWritten(ctx, configMaps+"/pair-a", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d","before":%q}}}`, m.pairs, b.Metadata.Labels["n"])); err != nil {
		return err
	}
	return m.untilWritten(ctx, configMaps+"/pair-b", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, m.pairs))
}

// untilWritten patches until that is answered: what is half done would be no pair.
func (m *member) untilWritten(ctx context.Context, path, patch string) error {
	return kube.Until(ctx, 10*time.Minute, func() error { return m.send(ctx, http.MethodPatch, path, patch) })
}

// violate creates what a policy corrects, and deletes an older one.
func (m *member) violate(ctx context.Context) error {
	m.fixes++
	if err := m.send(ctx, http.MethodPost, configMaps, object("v1", "ConfigMap", fmt.Sprint("fix-", m.fixes), m.name, fmt.Sprintf(`"set":"fix","wanted":"v%d"`, m.rng.IntN(100)), `"data":{}`)); err != nil {
		return err
	}
	if m.fixes <= 10 {
		return nil
	}
	return m.send(ctx, http.MethodDelete, fmt.Sprint(configMaps, "/fix-", m.fixes-10), "")
}
