package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/assets"
	"federator.dev/federator/test/sim"
)

// TestQueries_MalformedRequestsGetAStatus sends what no client should, and wants a
// Status with the right code for each.
func TestQueries_MalformedRequestsGetAStatus(t *testing.T) {
	s := newSimulated(t, 1, func(int) string { return "fleet/one" }, nil, func(_ int, m *sim.Member) {
		if err := m.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}); err != nil {
			t.Fatal(err)
		}
	}, nil)
	config, err := s.api.config("fleet", "administrator", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const pods = "/fleet/api/v1/pods"
	huge := strings.Repeat("x", 40_000)
	for _, c := range []struct {
		method, path string
		body         string
		want         int
		says         string
	}{
		{"GET", pods + "?labelSelector=" + url.QueryEscape("a in (b"), "", 400, "labelSelector"},
		{"GET", pods + "?fieldSelector=" + url.QueryEscape("spec..nodeName=a"), "", 400, "fieldSelector"},
		{"GET", pods + "?fieldSelector=" + url.QueryEscape("a=b=c\\"), "", 400, "fieldSelector"},
		{"GET", pods + "?limit=-1", "", 400, "limit"},
		{"GET", pods + "?limit=99999999999999999999", "", 400, "limit"},
		{"GET", pods + "?continue=" + huge, "", 400, "continue"},
		{"GET", pods + "?resourceVersion=abc", "", 400, "resourceVersion"},
		{"GET", pods + "?resourceVersionMatch=Exact", "", 422, "resourceVersionMatch"},
		{"GET", pods + "?resourceVersion=1", "", 410, ""},
		{"GET", pods + "?watch=1&resourceVersion=1", "", 410, ""},
		{"GET", pods + "?watch=1&limit=5&continue=x", "", 400, ""},
		{"GET", pods + "?watch=perhaps", "", 400, "watch"},
		{"GET", pods + "?timeoutSeconds=soon", "", 400, "timeoutSeconds"},
		{"GET", pods + "?colour=red", "", 400, "colour"},
		{"GET", pods + "?require=everything", "", 400, "require"},
		{"GET", pods + "/%2e%2e/secrets", "", 400, "segment"},
		{"GET", "/fleet//api//v1/pods/../../secrets", "", 400, "segment"},
		{"GET", "/fleet/api/v1/namespaces/default/pods/" + huge[:300], "", 404, ""},
		{"GET", "/fleet/apis/nowhere.example.org/v1/things", "", 404, "no member serves"},
		{"GET", "/fleet/apis/apps/v9/deployments", "", 404, "v1"},
		{"GET", "/members/fleet/api/v1/pods", "", 404, "fleet/api"},
		{"GET", "/members", "", 404, ""},
		{"GET", "/query/v1/count", "", 400, "resource"},
		{"GET", "/query/v1/count?resource=pods&groupBy=colour", "", 400, "groupBy"},
		{"GET", "/query/v1/count?resource=pods&groupBy=member&colour=red", "", 400, "colour"},
		{"GET", "/query/v1/related?resource=pods&name=p&depth=1000", "", 400, "depth"},
		{"GET", "/query/v1/nothing", "", 404, ""},
		{"POST", pods, `{"kind":"Pod"}`, 405, "read"},
		{"DELETE", pods, "", 405, ""},
		{"PUT", "/fleet/api/v1/namespaces/default/pods/p", "{}", 405, ""},
		{"PATCH", "/fleet/api/v1/namespaces/default/pods/p", "{}", 405, ""},
		{"GET", "/fleet/api/v1/namespaces/default/pods/p/log", "", 405, ""},
		{"POST", "/fleet/api/v1/namespaces/default/pods/p/exec", "", 405, ""},
		{"GET", "/fleet/api/v1/namespaces/default/pods/p/status", "", 405, ""},
		{"GET", "/fleet/apis/apps/v1/namespaces/default/deployments/d/scale", "", 405, ""},
		{"POST", "/fleet/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "{", 400, ""},
		{"POST", "/fleet/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"kind":"Pod","apiVersion":"v1"}`, 400, ""},
		{"POST", "/fleet/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":"` + strings.Repeat("x", 200_000) + `"}`, 413, ""},
	} {
		name := c.method + " " + c.path
		if len(name) > 120 {
			name = name[:120]
		}
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, s.api.host+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" || int(status.Code) != resp.StatusCode {
				t.Errorf("%d is no Status of its own: %v\n%.500s", resp.StatusCode, err, body)
			}
			if resp.StatusCode != c.want || !strings.Contains(status.Message, c.says) {
				t.Errorf("%d %q, want %d and %q", resp.StatusCode, status.Message, c.want, c.says)
			}
		})
	}
	if code, body, err := fetch(t.Context(), client, s.api.host+pods, "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"); err != nil || code != http.StatusNotAcceptable {
		t.Errorf("a Table in protobuf: %d, %v, %.300s", code, err, body)
	}
}

// TestWatches_ClientsThatStopReadingSlowNobody has 100 clients ask for much and read
// nothing, and others that never finish their request: lists and watches of
// others go on, and the server ends in order.
func TestWatches_ClientsThatStopReadingSlowNobody(t *testing.T) {
	s := newSimulated(t, 1, func(int) string { return "fleet/one" }, nil, func(_ int, m *sim.Member) {
		for i := range 2000 {
			if err := m.Create(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", i), Annotations: map[string]string{"text": strings.Repeat("lorem ", 300)}},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}, nil)
	config, err := s.api.config("fleet", "administrator", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stuck sync.WaitGroup
	defer stuck.Wait()
	defer cancel()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(s.api.host, "https://")
	dialer := tls.Dialer{Config: tlsConfig}
	for i := range 100 {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		stuck.Go(func() {
			<-ctx.Done()
			conn.Close()
		})
		request := "GET /fleet/api/v1/configmaps%s HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n"
		query := []string{"", "?watch=1", "?watch=1&resourceVersion=0"}[i%3]
		if i%10 == 0 { // and some never come to an end
			request, query = "GET /fleet/api/v1/config%s", ""
		}
		if _, err := fmt.Fprintf(conn, request, query); err != nil {
			t.Fatal(err)
		}
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	member := s.fleet.Members()[0]
	for i := range 20 {
		name := fmt.Sprintf("c%d", i)
		if err := member.Patch(configMaps, "default", name, []byte(`{"data":{"n":"x"}}`)); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		err := until(t.Context(), patience, func() error {
			code, body, err := fetch(t.Context(), client, s.api.host+"/members/fleet/one/api/v1/namespaces/default/configmaps/"+name, "application/json")
			if err == nil && (code != http.StatusOK || !bytes.Contains(body, []byte(`"data":{"n":""}`))) {
				err = fmt.Errorf("%d: %.200s", code, body)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	t.Logf("a write was seen after %s in the median, %s at most, beside 100 clients that do not read", took[len(took)/2], took[len(took)-1])
}

// TestLists_ChunksAreOneSnapshot pages with real kubectl while objects come and go:
// every object that was there throughout, and none twice.
func TestLists_ChunksAreOneSnapshot(t *testing.T) {
	built, err := assets.Ensure(t.Context(), assets.Options{Progress: os.Stderr}, assets.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	r := newQueryRig(t, "chunks", 2)
	prefix := fmt.Sprintf("chunks-%d", time.Now().UnixNano()) // members have pods of other tests, too
	for _, c := range r.members {
		if err := kube.BulkPods(t.Context(), c, 150, kube.BulkOptions{Prefix: prefix, Namespaces: 2}); err != nil {
			t.Fatal(err)
		}
	}
	r.exact(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config, err := r.api.config("fleet", "administrator", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.api.kubeconfig(file, "fleet", config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	writes := 0
	writing.Go(func() {
		pods := r.members[0].Client().CoreV1().Pods("default")
		for n := 0; ctx.Err() == nil; n++ {
			name := fmt.Sprintf("fleeting-%d", n)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			_, err1 := pods.Create(ctx, pod, metav1.CreateOptions{})
			err2 := pods.Delete(ctx, name, *metav1.NewDeleteOptions(0))
			if err := errors.Join(err1, err2); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			writes++
		}
	})
	for range 3 {
		out, err := exec.CommandContext(t.Context(), built.Binary(assets.Kubectl), "--kubeconfig", file, "get", "pods", "-A", "--chunk-size=17",
			"-o", `jsonpath={range .items[*]}{.metadata.annotations.federator\.dev/member}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		seen := map[string]int{}
		for _, line := range strings.Fields(string(out)) {
			if strings.Contains(line, prefix) {
				seen[line]++
			}
		}
		for pod, n := range seen {
			if n != 1 {
				t.Errorf("%s came %d times", pod, n)
			}
		}
		if len(seen) != 300 {
			t.Errorf("%d pods, want 300", len(seen))
		}
	}
	cancel()
	writing.Wait()
	if writes == 0 {
		t.Error("nothing was written meanwhile")
	}
}
