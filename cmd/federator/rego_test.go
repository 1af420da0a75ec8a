package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/policy"
)

func TestRegoIsAnsweredByTheServer(t *testing.T) {
	_, kubeconfig := fleetOf(t, 2)
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "Namespace,ConfigMap")
	ready(t, r)
	a, err := (&askFlags{kubeconfig: r.kubeconfig}).asker()
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "/fleet"} {
		body, err := a.get(t.Context(), prefix+"/query/v1/rego", url.Values{"query": {`some m; data.fleet.objects.Namespace[m][""].default.metadata.name == "default"`}}, "application/json")
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
		_, err = a.get(t.Context(), "/query/v1/rego", values, "application/json")
		status, ok := err.(apierrors.APIStatus) //nolint:errorlint // as it came
		if !ok || status.Status().Code < 400 || status.Status().Code >= 500 || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a 4xx Status that says %q", query, err, says)
		}
	}
}
