package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/sim"
)

// TestQueries_ReachNoMember makes 1,000 lists as kubectl does and counts the requests
// to members meanwhile.
func TestQueries_ReachNoMember(t *testing.T) {
	const members, pods = 5, 60
	s := newSimulated(t, members,
		func(i int) string { return fmt.Sprintf("fleet/m%d", i) },
		func(i int) []aggregate.Label { return []aggregate.Label{{Key: "ring", Value: fmt.Sprint(i % 2)}} },
		func(i int, m *sim.Member) {
			for n := range pods {
				if err := m.Create(&corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", n), Labels: map[string]string{"n": fmt.Sprint(n % 3)}},
					Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", n%4)},
				}); err != nil {
					t.Fatal(err)
				}
			}
		}, nil)
	// Lists and gets of objects; discovery goes on by its own clock.
	requests := func() (n uint64) {
		for _, m := range s.fleet.Members() {
			for _, verb := range []string{"get", "list", "watch", "watchlist", "other"} {
				n += uint64(m.Requests().Verb(verb))
			}
		}
		return n
	}
	config, err := s.api.config("fleet", "administrator", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2)) // a mix, not a secret
	before := requests()
	for i := range 1000 {
		path, query, accept := mixed(rng, s.names)
		if code, body, err := fetch(t.Context(), client, s.api.host+path+"?"+query.Encode(), accept); err != nil || code != http.StatusOK {
			t.Fatalf("list %d, %s?%s: %d, %v, %.300s", i, path, query.Encode(), code, err, body)
		}
	}
	if n := requests() - before; n != 0 {
		t.Errorf("1,000 lists made %d requests to members, want none", n)
	}
}

// mixed returns one of the requests that kubectl makes.
func mixed(rng *rand.Rand, members []string) (path string, query url.Values, accept string) {
	prefix := "/fleet"
	if rng.IntN(3) == 0 {
		prefix = "/members/" + members[rng.IntN(len(members))]
	}
	path = prefix + []string{
		"/api/v1/pods", "/api/v1/namespaces/default/pods", "/api/v1/nodes", "/api/v1/namespaces", "/apis/apps/v1/deployments", "/api/v1/services",
	}[rng.IntN(6)]
	query = url.Values{}
	if rng.IntN(2) == 0 {
		query.Set("limit", "50")
	}
	if rng.IntN(4) == 0 {
		query.Set("labelSelector", []string{"n=1", "n in (0,2)", "!n", "member.federator.dev/ring=1"}[rng.IntN(4)])
	}
	if rng.IntN(4) == 0 {
		query.Set("fieldSelector", "metadata.namespace!=kube-system")
	}
	if rng.IntN(4) == 0 {
		query.Set("resourceVersion", "0")
	}
	accept = []string{
		"application/json", "application/yaml",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
	}[rng.IntN(4)]
	return path, query, accept
}

func fetch(ctx context.Context, client *http.Client, url, accept string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// TestQueries_ABlackHoleChangesNoAnswer lists the same before and while one of two
// members does not answer: the same objects, and as fast.
func TestQueries_ABlackHoleChangesNoAnswer(t *testing.T) {
	r := newQueryRig(t, "blackhole-lists", 2)
	r.exact(t)
	config, err := r.api.config("fleet", "administrator", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	listed := func() ([]string, time.Duration) {
		var took []time.Duration
		var names []string
		for range 30 {
			started := time.Now()
			code, body, err := fetch(t.Context(), client, r.api.host+"/fleet/apis/rbac.authorization.k8s.io/v1/clusterroles", "application/json")
			took = append(took, time.Since(started))
			if err != nil || code != http.StatusOK {
				t.Fatalf("%d, %v, %.300s", code, err, body)
			}
			if names, err = refs(body); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(took)
		return names, took[len(took)/2]
	}
	before, fast := listed()
	if err := r.members[0].Proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.members[0].Proxy.Set(tcpproxy.Mode{})); err != nil {
			t.Error(err)
		}
	})
	during, still := listed()
	if !slices.Equal(before, during) || len(before) == 0 {
		t.Errorf("%d objects, with one member gone %d", len(before), len(during))
	}
	err = until(t.Context(), patience, func() error {
		scope, _ := r.story.fed.index.Snapshot().Scope(r.names[0], "ClusterRole.rbac.authorization.k8s.io")
		if scope.Status.State != aggregate.Stale {
			return fmt.Errorf("the scope is %s", scope.Status.State)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after, stale := listed()
	if !slices.Equal(before, after) {
		t.Errorf("%d objects, with one member known to be gone %d", len(before), len(after))
	}
	t.Logf("median of a list: %s; with a member silent %s, known to be gone %s", fast, still, stale)
}

// refs returns member, namespace, name and resourceVersion of a list's objects.
func refs(body []byte) ([]string, error) {
	list, err := decode(body)
	if err != nil {
		return nil, err
	}
	items, ok := list["items"].([]any)
	if !ok {
		return nil, fmt.Errorf("no list: %.300s", body)
	}
	var out []string
	for _, item := range items {
		meta, _ := item.(map[string]any)["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		out = append(out, fmt.Sprintf("%v %v/%v@%v", annotations["federator.dev/member"], meta["namespace"], meta["name"], meta["resourceVersion"]))
	}
	return out, nil
}
