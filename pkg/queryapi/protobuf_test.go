package queryapi_test

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// mediaCount counts answers by how they are written.
type mediaCount struct {
	http.RoundTripper
	protobuf, other *atomic.Int64
}

func (m mediaCount) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasPrefix(resp.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		m.protobuf.Add(1)
	} else {
		m.other.Add(1)
	}
	return resp, err
}

// TestServer_StockTypedInformersSpeakProtobuf has a stock informer, configured as
// controllers are, follow a member in protobuf, and one in JSON beside it.
func TestServer_StockTypedInformersSpeakProtobuf(t *testing.T) {
	var index *aggregate.Index
	s := start(t, func(o *queryapi.Options) {
		local(o)
		index = o.Index
	})
	const member = "blue/ap-1"
	if err := index.PutMember(aggregate.Member{Name: member, UID: "ap", Version: "v1.36.3", APIs: []string{"v1"}}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope(member, "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	commit := func() {
		t.Helper()
		scope.SetStatus(aggregate.Status{State: aggregate.Synced})
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name string) {
		scope.Upsert(scope.Item(&aggregate.Record{
			Namespace: "shop", Name: name, UID: name, ResourceVersion: "8",
			Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop","resourceVersion":"8","uid":"` + name + `"},"spec":{"containers":[{"image":"web","name":"web","resources":{"limits":{"cpu":"100m"}}}]}}`),
		}))
	}
	put("early")
	commit()
	var protobuf, other, none atomic.Int64
	follow := func(contentType string, counted mediaCount) cache.SharedIndexInformer {
		config := &rest.Config{
			Host: "https://" + s.Address + "/members/" + member, BearerToken: s.Token(), QPS: -1,
			TLSClientConfig: rest.TLSClientConfig{CAData: s.CertificateAuthority()},
			ContentConfig:   rest.ContentConfig{ContentType: contentType},
		}
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		counted.RoundTripper = c.Transport
		client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: counted})
		if err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		informer := factory.Core().V1().Pods().Informer()
		ctx, cancel := context.WithCancel(t.Context())
		factory.StartWithContext(ctx)
		t.Cleanup(func() {
			cancel()
			factory.Shutdown()
		})
		until(t, "it has synced", informer.HasSynced)
		return informer
	}
	binary := follow(runtime.ContentTypeProtobuf, mediaCount{protobuf: &protobuf, other: &other})
	text := follow(runtime.ContentTypeJSON, mediaCount{protobuf: &none, other: &none})

	put("late")
	scope.Delete("shop", "early")
	commit()
	for _, informer := range []cache.SharedIndexInformer{binary, text} {
		until(t, "the changes are there", func() bool {
			keys := informer.GetStore().ListKeys()
			return len(keys) == 1 && keys[0] == "shop/late"
		})
	}
	one, _, _ := binary.GetStore().GetByKey("shop/late") //nolint:errcheck // a store in memory
	two, _, _ := text.GetStore().GetByKey("shop/late")   //nolint:errcheck // as above
	a, b := one.(*corev1.Pod).DeepCopy(), two.(*corev1.Pod).DeepCopy()
	if a.Spec.Containers[0].Resources.Limits.Cpu().String() != "100m" || !reflect.DeepEqual(a.ObjectMeta, b.ObjectMeta) || a.Spec.Containers[0].Image != b.Spec.Containers[0].Image {
		t.Errorf("%+v in protobuf, %+v in JSON", a, b)
	}
	if protobuf.Load() == 0 || other.Load() != 0 {
		t.Errorf("%d answers in protobuf, %d in something else", protobuf.Load(), other.Load())
	}
}
