package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/clitest"
)

// TestMembers_SayHowTheyAre to who asks the query API for details: a budget and audits of one that is there, the
// error and the last contact of one that is lost.
func TestMembers_SayHowTheyAre(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 1)
	clitest.CreateConfigMaps(t, members[0], "a", "b")
	r := start(t, "--config", clitest.WriteFile(t, "federator.yaml", "budget: {objects: 777, bytes: 50000000}\n"), "--kubeconfig", kubeconfig, "--contexts", "member-0", "--kinds", "ConfigMap")
	ready(t, r)
	client, err := (&queryclient.Flags{Kubeconfig: r.kubeconfig}).Client()
	if err != nil {
		t.Fatal(err)
	}
	wants := func(what string, check func(h queryapi.MemberHealth) bool) {
		t.Helper()
		clitest.Eventually(t, what, func() error {
			body, err := client.Get(t.Context(), "/query/v1/members", url.Values{"details": {"true"}}, "application/json")
			var list struct {
				Items []struct{ Health *queryapi.MemberHealth }
			}
			if err = errors.Join(err, json.Unmarshal(body, &list)); err == nil && (len(list.Items) != 1 || list.Items[0].Health == nil || !check(*list.Items[0].Health)) {
				err = fmt.Errorf("%s", body)
			}
			return err
		})
	}
	wants("it is connected", func(h queryapi.MemberHealth) bool {
		return h.State == "Connected" && h.Error == nil && h.Freshness != "" && h.Budget.Objects >= 2 && h.Budget.MaxObjects == 777 && h.Budget.MaxBytes == 50_000_000 && h.Audit != nil && h.Audit.Lost == 0
	})
	members[0].Cut()
	wants("it is lost", func(h queryapi.MemberHealth) bool {
		return h.State != "Connected" && h.Error != nil && h.Error.Message != "" && h.LastError != nil && !h.LastError.Time.IsZero() && h.Budget.Objects >= 2
	})
	if err := members[0].Restore(); err != nil {
		t.Fatal(err)
	}
	wants("it is back, and what went wrong last is known", func(h queryapi.MemberHealth) bool {
		return h.State == "Connected" && h.Error == nil && h.LastError != nil
	})
}
