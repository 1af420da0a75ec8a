package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/clitest"
)

func TestRegoQuery_IsServed(t *testing.T) {
	_, kubeconfig := clitest.Fleet(t, 2)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "Namespace,ConfigMap")
	ready(t, r)
	a, err := (&queryclient.Flags{Kubeconfig: r.kubeconfig}).Client()
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "/fleet"} {
		body, err := a.Get(t.Context(), prefix+"/query/v1/rego", url.Values{"query": {`some m; data.fleet.objects.Namespace[m][""].default.metadata.name == "default"`}}, "application/json")
		if err != nil {
			t.Fatal(err)
		}
		var answer policy.Answer
		if err := json.Unmarshal(body, &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Rows) != 2 || answer.Revision == 0 {
			t.Errorf("answer %s, want a row for each member", body)
		}
	}
	for query, says := range map[string]string{
		"query=data.fleet+%2B%2B":         "query",
		"query=http.send(%7B%7D)":         "http.send",
		"colour=red&query=1":              "colour",
		"":                                "query is required",
		"query=numbers.range(1,10000000)": "",
		"query=" + url.QueryEscape(`x := data.secrets; x`): "data",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Get(t.Context(), "/query/v1/rego", values, "application/json")
		status, ok := err.(apierrors.APIStatus) //nolint:errorlint // as it came
		if !ok || status.Status().Code < 400 || status.Status().Code >= 500 || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a 4xx Status that says %q", query, err, says)
		}
	}
}
