package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
)

// named is a candidate that finds every object of the policy once, whatever other members have.
const named = `# METADATA
# title: Named
# description: Names do not begin with once-.
# custom: {severity: low, kinds: [ConfigMap]}
package once

violation contains {"msg": "is named so"} if startswith(input.object.metadata.name, "once-")
`

// queried waits until each process answers a Rego query, and previews a policy, on the objects of all members.
func (f *fleet) queried(what string) {
	f.t.Helper()
	for _, s := range f.alive() {
		f.until(what+": "+s.name+" answers Rego and previews for all members", func() error {
			var want []string
			for key := range f.truth() {
				if strings.Contains(key, "/once-") {
					want = append(want, key)
				}
			}
			slices.Sort(want)
			return s.asks(f.t.Context(), want)
		})
	}
}

// asks asks a process for the objects whose name begins with once-, and for the preview of a policy that finds these.
func (s *shard) asks(ctx context.Context, want []string) error {
	c, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://" + s.query, TLSClientConfig: s.config("").TLSClientConfig,
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		return err
	}
	text, err := c.Get().AbsPath("/query/v1/rego").
		Param("query", `x := [key | data.fleet.objects.ConfigMap[m][ns][n]; startswith(n, "once-"); key := concat("/", [m, ns, n])]`).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	var answer policy.Answer
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	if answer.Absent != nil || len(answer.Rows) != 1 {
		return fmt.Errorf("Rego: %s", text)
	}
	var got []string
	for _, x := range answer.Rows[0].Bindings["x"].([]any) { //nolint:errcheck // the query says so
		got = append(got, fmt.Sprint(x))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Errorf("Rego finds %v, want %v", got, want)
	}
	body, err := json.Marshal(policyquery.PreviewCandidate{Files: []policyquery.PreviewFile{{Path: "once.rego", Text: named}}})
	if err != nil {
		return err
	}
	if text, err = c.Post().AbsPath("/query/v1/preview").Body(body).DoRaw(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	var report policyquery.PreviewReport
	if err := json.Unmarshal(text, &report); err != nil {
		return err
	}
	if !report.Complete || len(report.Policies) != 1 {
		return fmt.Errorf("preview: %s", text)
	}
	if p := report.Policies[0]; p.Appear+p.Change != len(want) || p.Vanish+p.Unknown+p.Errors != 0 {
		return fmt.Errorf("the preview finds %d and %d, want %d in all: %s", p.Appear, p.Change, len(want), text)
	}
	return nil
}
