package clusterinformers_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

func TestManager_SelectsMembers(t *testing.T) {
	r := newRig(t, sim.Options{Members: 3}, nil).start()
	for _, m := range r.fleet.Members() {
		r.synced(m)
	}
	var all []string
	for _, m := range r.manager.Members() {
		all = append(all, m.Name)
	}
	parse := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	_, short, _ := strings.Cut(all[1], "/")
	for what, c := range map[string]struct {
		query clusterinformers.MemberQuery
		want  []string
		more  bool
	}{
		"all":              {clusterinformers.MemberQuery{}, all, false},
		"by name":          {clusterinformers.MemberQuery{Name: all[1]}, all[1:2], false},
		"by short name":    {clusterinformers.MemberQuery{Name: short}, all[1:2], false},
		"by half a name":   {clusterinformers.MemberQuery{Name: short[1:]}, nil, false},
		"connected":        {clusterinformers.MemberQuery{States: []connection.State{connection.Connected}}, all, false},
		"others":           {clusterinformers.MemberQuery{States: []connection.State{connection.Refused, connection.Disconnected}}, nil, false},
		"not ready":        {clusterinformers.MemberQuery{NotReady: true}, nil, false},
		"with a label":     {clusterinformers.MemberQuery{Selector: parse("nowhere")}, nil, false},
		"without it":       {clusterinformers.MemberQuery{Selector: parse("!nowhere")}, all, false},
		"the first page":   {clusterinformers.MemberQuery{Limit: 2}, all[:2], true},
		"the last page":    {clusterinformers.MemberQuery{Limit: 2, After: all[1]}, all[2:], false},
		"a page of all":    {clusterinformers.MemberQuery{Limit: 3}, all, false},
		"after the last":   {clusterinformers.MemberQuery{After: all[2]}, nil, false},
		"those not ready,": {clusterinformers.MemberQuery{NotReady: true, Limit: 1}, nil, false},
	} {
		got, more := r.manager.Select(c.query)
		var names []string
		for _, m := range got {
			names = append(names, m.Name)
			if m.Details != nil || m.Scopes[aggregate.Synced] == 0 || !m.Ready() {
				t.Errorf("%s: %+v", what, m)
			}
		}
		if strings.Join(names, " ") != strings.Join(c.want, " ") || more != c.more {
			t.Errorf("%s: %q, more %t, want %q, %t", what, names, more, c.want, c.more)
		}
	}
	for _, m := range []clusterinformers.MemberStatus{
		{State: connection.Disconnected, Synced: true},
		{State: connection.Connected},
		{State: connection.Connected, Synced: true, Scopes: map[aggregate.State]int{aggregate.Forbidden: 1}},
	} {
		if m.Ready() {
			t.Errorf("%+v is ready", m)
		}
	}
	partial := clusterinformers.MemberStatus{State: connection.Connected, Synced: true, Scopes: map[aggregate.State]int{aggregate.Partial: 2, aggregate.NotServed: 1}}
	if !partial.Ready() {
		t.Error("a member with what the configuration leaves out is not ready")
	}
}
