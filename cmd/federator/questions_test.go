package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/clitest"
)

// hubReaders lets the ServiceAccount ann list what federator has on the hub.
const hubReaders = planReaders + `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-federator}
rules:
- {apiGroups: [federator.dev], resources: [actions, fleetpolicies, policysources], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ann-reads-federator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-federator}
subjects: [{kind: ServiceAccount, name: ann, namespace: default}]
`

// answersQuestions about a fleet in which ConfigMap one was corrected twice.
func answersQuestions(t *testing.T, j *job, r *running, hubFile string) {
	t.Helper()
	j.applyHub(hubReaders)
	client, err := (&queryclient.Flags{Kubeconfig: queryKubeconfig(t, r, hubFile, "ann")}).Client()
	if err != nil {
		t.Fatal(err)
	}
	wants := func(path, query string, into any, check func() bool) {
		t.Helper()
		clitest.Eventually(t, "the answer of "+path, func() error {
			values, err := url.ParseQuery(query)
			if err != nil {
				return err
			}
			body, err := client.Get(t.Context(), "/query/v1/"+path, values, "application/json")
			if err = errors.Join(err, json.Unmarshal(body, into)); err == nil && !check() {
				err = fmt.Errorf("%s", body)
			}
			return err
		})
	}
	var policies policyquery.PolicyList
	wants("policies", "policy=tier", &policies, func() bool {
		i := policies.Items
		return len(i) == 1 && i[0].State == "Enforcing" && i[0].Corrected != nil && *i[0].Corrected == 2 && i[0].Source.Name == "git" && len(i[0].Source.Commit) == 40 && len(i[0].Rego) == 1
	})
	var actions policyquery.ActionList
	wants("actions", "policy=tier&name=one&phase=Succeeded", &actions, func() bool { return len(actions.Items) == 2 && actions.Hidden == 0 })
	var details policyquery.ActionDetails
	newest := slices.MaxFunc(actions.Items, func(a, b *policyquery.ActionSummary) int { // those of one second are by name
		return a.StartedAt.Compare(*b.StartedAt)
	})
	wants("actions/"+newest.Name, "", &details, func() bool {
		c := details.Changes
		return len(c) == 1 && c[0].Path == "/metadata/labels/tier" && string(c[0].Before) == `"silver"` && string(c[0].After) == `"gold"`
	})
	var x policyquery.Explanation
	wants("explain", "policy=tier&member=fleet/eu-1&kind=ConfigMap&namespace=default&name=one", &x, func() bool {
		return x.Finding.State == "Known" && len(x.Actions) == 2 && x.Commit != nil && len(x.Lines) > 0 && strings.Contains(x.Files[0].Text, "package acme.tier")
	})
	var sources policyquery.SourceList
	wants("sources", "", &sources, func() bool { return len(sources.Items) == 1 })
	var stops policyquery.StopList
	wants("stops", "", &stops, func() bool { return len(stops.Items) == 0 })
	var series policyquery.SeriesList
	wants("series", "hours=1", &series, func() bool { return series.StepSeconds == 300 })
}
