package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/otlp"
)

// openMetrics returns the metrics in the format that has exemplars.
func openMetrics(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func TestServe_TracesChangesAndQueries(t *testing.T) {
	receiver := otlp.Listen(t, nil)
	members, kubeconfig := clitest.Fleet(t, 1)
	r := start(t, "--config", clitest.WriteFile(t, "config.yaml", fmt.Sprintf("traces: {endpoint: %q, insecure: true, sampling: 1}\n", receiver.Endpoint)),
		"--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap")
	ready(t, r)
	clitest.CreateConfigMaps(t, members[0], "watched")

	clitest.Eventually(t, "a histogram has an exemplar that is a trace", func() error {
		text, err := openMetrics(t.Context(), r.public)
		if err != nil {
			return err
		}
		_, buckets, _ := strings.Cut(text, `federator_scope_event_to_commit_seconds_bucket`)
		_, id, has := strings.Cut(buckets, `# {trace_id="`)
		if !has {
			return fmt.Errorf("%w: no exemplar", clitest.ErrNotYet)
		}
		id, _, _ = strings.Cut(id, `"`)
		for _, s := range receiver.Trace(id) {
			if s.Name == "change" && s.Attributes["federator.name"] == "watched" && s.Attributes["federator.member"] == "context/member-0" {
				return nil
			}
		}
		return fmt.Errorf("%w: no trace %s among %+v", clitest.ErrNotYet, id, receiver.Spans())
	})
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	clitest.Eventually(t, "a query is traced", func() error {
		if !slices.ContainsFunc(receiver.Spans(), func(s otlp.Span) bool { return strings.HasSuffix(s.Name, "/configmaps") && s.Service == "federator" }) {
			return clitest.ErrNotYet
		}
		text, err := openMetrics(t.Context(), r.public)
		if _, after, _ := strings.Cut(text, "federator_query_request_seconds_bucket"); err == nil && !strings.Contains(after, `# {trace_id="`) {
			err = fmt.Errorf("%w: no exemplar of a query", clitest.ErrNotYet)
		}
		return err
	})
}

// TestServe_TracesNothingUnlessAsked is of the format without exemplars, too.
func TestServe_TracesNothingUnlessAsked(t *testing.T) {
	_, kubeconfig := clitest.Fleet(t, 1)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap")
	ready(t, r)
	if text := mustGet(t, r.public+"/metrics", http.StatusOK); strings.Contains(text, "federator_trace") {
		t.Error("there are metrics of traces")
	}
}
