package clusterinformers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

func TestWriter_UsesCurrentCredentials(t *testing.T) {
	opts := withCRDs(1)
	opts.Kinds = append(opts.Kinds, kindsOf("ConfigMap")...)
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { serve(t, r.fleet.Members()[0], "v1", "v1beta1") })
	m := r.fleet.Members()[0]
	write := func(object any) {
		t.Helper()
		body, err := json.Marshal(object)
		ok(t, err)
		var of struct {
			APIVersion, Kind string
			Metadata         metav1.ObjectMeta
		}
		ok(t, json.Unmarshal(body, &of))
		kind := aggregate.Kind(of.Kind)
		if of.Kind == "Widget" {
			kind = widgetKind
		}
		client, resource, namespaced, err := r.manager.Writer(nameOf(m), kind, of.APIVersion)
		ok(t, err)
		ok(t, client.Post().NamespaceIfScoped(of.Metadata.Namespace, namespaced).Resource(resource).
			SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(t.Context()).Error())
		r.until("what was written is in the index", func() bool {
			_, there := r.index.Snapshot().Get(aggregate.Ref{Member: nameOf(m), Kind: kind, Namespace: of.Metadata.Namespace, Name: of.Metadata.Name})
			return there
		})
	}
	cm := configMap(1)
	cm.APIVersion, cm.Kind = "v1", "ConfigMap"
	write(cm)
	write(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "new"}})
	write(widget("a", "v1beta1").Object)

	// Rotated, the old credentials are not accepted.
	old, _, _, err := r.manager.Writer(nameOf(m), "ConfigMap", "v1")
	ok(t, err)
	ok(t, m.Rotate())
	m.DropWatches()
	r.source.set(specOf(t, m))
	r.until("the new credentials are in use", func() bool {
		_, _, _, err := r.manager.Writer(nameOf(m), "ConfigMap", "v1")
		return err == nil && m.Requests().Verb("version") > 1
	})
	if err := old.Get().Namespace("default").Resource("configmaps").Name(cm.Name).Do(t.Context()).Error(); !apierrors.IsUnauthorized(err) {
		t.Errorf("with the old credentials: %v", err)
	}
	cm.Name = "rotated"
	write(cm)

	// Without a version it is the one that is held.
	client, resource, namespaced, err := r.manager.Writer(nameOf(m), widgetKind, "")
	ok(t, err)
	if gv := client.APIVersion(); gv.String() != "shop.example/v1" || resource != "widgets" || !namespaced {
		t.Errorf("%s at %s, namespaced %t", resource, gv, namespaced)
	}
	ok(t, client.Patch(types.MergePatchType).Namespace(widget("a", "v1").GetNamespace()).Resource(resource).Name("a").
		Body([]byte(`{"metadata":{"labels":{"patched":"yes"}}}`)).Do(t.Context()).Error())
	r.until("the patch is in the index", func() bool {
		o, _ := r.index.Snapshot().Get(aggregate.Ref{Member: nameOf(m), Kind: widgetKind, Namespace: widget("a", "v1").GetNamespace(), Name: "a"})
		v, _ := o.Label("patched")
		return v == "yes"
	})
}

func TestWriter_SaysWhyNot(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { r.source.view[1].ReadOnly = true })
	m, hub := r.fleet.Members()[0], r.fleet.Members()[1]
	for _, tt := range []struct {
		member     string
		kind       aggregate.Kind
		apiVersion string
		want       error
	}{
		{"fleet/nobody", "Pod", "v1", clusterinformers.ErrUnknownMember},
		{nameOf(hub), "Pod", "v1", clusterinformers.ErrReadOnly},
		{nameOf(m), widgetKind, "shop.example/v1", clusterinformers.ErrNotServed},
		{nameOf(m), "Pod", "v2", clusterinformers.ErrNotServed},
		{nameOf(m), "Pod", "apps/v1", clusterinformers.ErrNotServed},
		{nameOf(m), "Pod", "v1", nil},
	} {
		if _, _, _, err := r.manager.Writer(tt.member, tt.kind, tt.apiVersion); !errors.Is(err, tt.want) {
			t.Errorf("%s of %s at %q: %v, want %v", tt.kind, tt.member, tt.apiVersion, err, tt.want)
		}
	}
	if err := r.manager.CheckContact(nameOf(m)); err != nil {
		t.Error(err)
	}
	if away, members := r.manager.Away(); away != 0 || members != 1 {
		t.Errorf("%d of %d members are away, want those that are written to", away, members)
	}
	if got, of := r.manager.ServerOf(nameOf(m)), r.manager.ServerOf("fleet/nobody"); got != "https://"+m.Address() || of != "" {
		t.Errorf("servers %q and %q", got, of)
	}
	if _, _, _, err := r.manager.Writer(nameOf(m), "Pod", "a/b/c"); err == nil {
		t.Error("an apiVersion of three parts")
	}
	for _, cut := range r.fleet.Members() {
		cut.Cut()
		r.until("it is out of reach", func() bool { return r.status(cut).State == connection.Disconnected })
	}
	if err := r.manager.CheckContact(nameOf(m)); err == nil {
		t.Error("a member out of reach is in contact")
	}
	if away, members := r.manager.Away(); away != 1 || members != 1 {
		t.Errorf("%d of %d members are away", away, members)
	}
	if _, _, _, err := r.manager.Writer(nameOf(m), "Pod", "v1"); !errors.Is(err, clusterinformers.ErrUnreachable) {
		t.Errorf("out of reach: %v", err)
	}
	if _, _, _, err := r.manager.Writer(nameOf(hub), "Pod", "v1"); !errors.Is(err, clusterinformers.ErrReadOnly) {
		t.Errorf("read-only and out of reach: %v", err)
	}
	if _, err := r.manager.Review(t.Context(), nameOf(m), &authorizationv1.SubjectAccessReview{}); !errors.Is(err, clusterinformers.ErrUnreachable) {
		t.Errorf("a review out of reach: %v", err)
	}
}

// kubeconfigOf writes a configuration down as a kubeconfig.
func kubeconfigOf(t *testing.T, c *rest.Config) []byte {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["a"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	out.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: c.BearerToken, ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	out.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	out.CurrentContext = "a"
	data, err := clientcmd.Write(*out)
	ok(t, err)
	return data
}

func TestServerOf_IsOfOneMemberOnly(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := follow(t, opts, nil)
	m, other := r.fleet.Members()[0], r.fleet.Members()[1]
	second := specOf(t, m)
	second.Name, second.UID = "fleet/second", "second"
	shared := func() bool { return r.manager.ServerOf(nameOf(m)) == "" && r.manager.ServerOf("fleet/second") == "" }
	unique := func() bool { return r.manager.ServerOf(nameOf(m)) == "https://"+m.Address() }
	r.source.set(specOf(t, m), second)
	r.until("two members have one server", shared)
	second.Kubeconfig = specOf(t, other).Kubeconfig
	r.source.set(specOf(t, m), second)
	r.until("one has moved", func() bool { return unique() && r.manager.ServerOf("fleet/second") == "https://"+other.Address() })
	second.Kubeconfig = specOf(t, m).Kubeconfig
	r.source.set(specOf(t, m), second)
	r.until("it is back", shared)
	r.source.set(specOf(t, m))
	r.until("it has left", unique)
}

func TestWriter_UsesCredentialsForWrites(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := follow(t, opts, func(*rig, *clusterinformers.Options) {})
	m, other := r.fleet.Members()[0], r.fleet.Members()[1]
	write := func() error {
		client, resource, _, err := r.manager.Writer(nameOf(m), "Namespace", "v1")
		if err != nil {
			return err
		}
		return client.Post().Resource(resource).SetHeader("Content-Type", runtime.ContentTypeJSON).
			Body([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"n-"}}`)).Do(t.Context()).Error()
	}
	n := 0
	with := func(kubeconfig []byte) clusterinformers.Spec {
		n++
		s := specOf(t, m)
		s.Credentials = "Secret fleet/m-kubeconfig"
		s.Write = &clusterinformers.WriteAccess{Credentials: fmt.Sprint("Secret fleet/m-federator of step ", n), Kubeconfig: kubeconfig}
		return s
	}
	refused := func(what, says string) {
		t.Helper()
		r.until(what, func() bool {
			st := r.status(m)
			return st.State == connection.Connected && st.Reason == connection.WritesRefused && strings.Contains(st.Held, says) && strings.Contains(st.Held, "m-federator")
		})
		if err := r.manager.CheckWritable(nameOf(m)); !errors.Is(err, clusterinformers.ErrWritesRefused) {
			t.Errorf("%s: %v", what, err)
		}
		if err := write(); !errors.Is(err, clusterinformers.ErrWritesRefused) {
			t.Errorf("%s: a write: %v", what, err)
		}
	}
	inUse := func() {
		t.Helper()
		want := fmt.Sprint("Secret fleet/m-federator of step ", n)
		r.until("they are in use", func() bool {
			// In this order: it may still be writable with those of before.
			return r.status(m).WritesWith == want && r.manager.WritesWith(nameOf(m)) == want && r.manager.CheckWritable(nameOf(m)) == nil
		})
	}
	writes := func() int { return m.Requests().Verb("create") }

	r.source.set(with(kubeconfigOf(t, m.TokenConfig())), specOf(t, other))
	inUse()
	ok(t, write())
	if writes() != 1 {
		t.Errorf("%d writes", writes())
	}
	// Those that nobody accepts are not replaced by others.
	bad := m.TokenConfig()
	bad.BearerToken = "no such token"
	r.source.set(with(kubeconfigOf(t, bad)), specOf(t, other))
	inUse()
	if err := write(); !apierrors.IsUnauthorized(err) && !strings.Contains(fmt.Sprint(err), "Unauthorized") {
		t.Errorf("with a token that is not accepted: %v", err)
	}
	// Nor are those that are refused, or lead elsewhere.
	r.source.set(with([]byte("not a kubeconfig")), specOf(t, other))
	refused("a kubeconfig that does not parse", string(connection.InvalidKubeconfig))
	r.source.set(with(nil), specOf(t, other))
	refused("a Secret without a value", string(connection.InvalidKubeconfig))
	insecure := m.TokenConfig()
	insecure.CAData = nil
	r.source.set(with(kubeconfigOf(t, insecure)), specOf(t, other))
	refused("a kubeconfig without CA", string(connection.NoCA))
	elsewhere := writesTo(other)
	r.source.set(with(kubeconfigOf(t, other.TokenConfig())), specOf(t, other))
	inUse()
	if err := write(); err == nil {
		t.Error("credentials of another cluster")
	}
	refused("another cluster", "another cluster")
	if writes() != 1 || writesTo(other) != elsewhere {
		t.Errorf("%d and %d writes", writes(), writesTo(other)-elsewhere)
	}
	// Cluster API's are, once there are no others.
	r.source.set(specOf(t, m), specOf(t, other))
	r.until("they are gone", func() bool { return r.manager.CheckWritable(nameOf(m)) == nil && r.status(m).Reason == "" })
	ok(t, write())
	if writes() != 2 {
		t.Errorf("%d writes", writes())
	}
}

func writesTo(m *sim.Member) int { return m.Requests().Verb("create") }
