package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/clitest"
)

// verdicts are the messages of violations by binding and subject.
type verdicts map[string][]string

func (v verdicts) add(binding string, member string, kind aggregate.Kind, namespace, name, key string, violations []policy.Violation) {
	at := place(binding, member, kind, namespace, name, key)
	for _, x := range violations {
		v[at] = append(v[at], x.Msg)
	}
	slices.Sort(v[at])
}

func place(binding, member string, kind aggregate.Kind, namespace, name, key string) string {
	return fmt.Sprintf("%s of %s %s %s/%s%s", binding, member, kind, namespace, name, key)
}

// fullEvaluation evaluates what honest members serve, alone, or what an attacker's server
// serves with the attacker's marks, with them.
func (r *rig) fullEvaluation(ctx context.Context, of *attacker) (verdicts, error) {
	members, least := honest, 50
	if of != nil {
		members, least = append(slices.Clone(honest), of.name), 20
	}
	fleet, err := offline.New(offline.Options{})
	if err != nil {
		return nil, err
	}
	var kinds []aggregate.Kind
	for _, k := range markedKinds {
		kinds = append(kinds, k.kind)
		for _, member := range members {
			server, rename := member, func(b []byte) []byte { return b }
			if of != nil && member == of.name {
				server, rename = of.upon, disguise
			}
			code, body, err := get(ctx, r.asks[server], strings.TrimSuffix(r.upon[server].Host, "/")+k.path+"/"+k.resource, "application/json")
			if err != nil || code != http.StatusOK {
				return nil, fmt.Errorf("%s of %s: %d, %w", k.resource, member, code, err)
			}
			body = rename(body)
			if err := fleet.Add(member, bytes.NewReader(body), member); err != nil {
				return nil, err
			}
		}
	}
	index, err := fleet.Index(kinds)
	if err != nil {
		return nil, err
	}
	state, err := clitest.Evaluate(ctx, policyFiles, bindings, index.Snapshot())
	if err != nil {
		return nil, err
	}
	out := verdicts{}
	for b := range state.Bindings() {
		members := honest
		switch {
		case of != nil:
			members = []string{of.name}
		case b.Package == "keys":
			members = []string{""}
		}
		for _, member := range members {
			for v := range state.Findings(b.Name, member) {
				if v.State != policy.Known {
					return nil, fmt.Errorf("%s is %s: %s", b.Name, v.State, v.Message)
				}
				out.add(b.Name, v.Subject.Ref.Member, v.Subject.Ref.Kind, v.Subject.Ref.Namespace, v.Subject.Ref.Name, v.Subject.Key, v.Violations)
			}
		}
	}
	if len(out) < least {
		return nil, fmt.Errorf("only %d verdicts: the policies find too little", len(out))
	}
	return out, nil
}

// findings is a page of /query/v1/violations.
type findings struct {
	Items []struct {
		Policy, State, Message string
		Subject                struct {
			Member, Kind, Namespace, Name, Key string
		}
		Violations []policy.Violation
	}
	Continue string
}

// verdictsEqual compares the answers on honest members with a full evaluation. Of the
// strict binding the state may be Unknown while there are attackers, never an Error.
// Where a view holds too much, what reads it is an Error, and still there.
func (r *rig) verdictsEqual(ctx context.Context, overfull bool) error {
	queries := []url.Values{{"member": {honest[0]}}, {"member": {honest[1]}}}
	if overfull {
		return r.verdictsMatch(ctx, r.verdicts, []string{"hosts", "hosts-strict"}, queries...)
	}
	return r.verdictsMatch(ctx, r.verdicts, nil, append(queries, url.Values{"policy": {"keys"}})...)
}

// verdictsMatch compares the answers to queries with verdicts. Those of some
// bindings, if any are given, may be Errors; then keys are not compared.
func (r *rig) verdictsMatch(ctx context.Context, want verdicts, failing []string, queries ...url.Values) error {
	got, failed := verdicts{}, map[string]bool{}
	for _, q := range queries {
		q.Set("limit", "500")
		for page := 0; ; page++ {
			code, body, err := get(ctx, r.admin, r.host+"/query/v1/violations?"+q.Encode(), "application/json")
			if err != nil {
				return err
			}
			var f findings
			if err := json.Unmarshal(body, &f); err != nil || code != http.StatusOK {
				return fmt.Errorf("violations: %d, %w, %.300s", code, err, body)
			}
			for _, x := range f.Items {
				s := x.Subject
				if x.Policy == "imports" || strings.HasPrefix(x.Policy, "late-") {
					continue // a habit looks at it
				}
				if q.Has("policy") && !strings.HasPrefix(s.Key, "goodshare") && !strings.Contains(s.Key, "-g") {
					continue // an attacker's keys
				}
				if x.State == "Error" && slices.Contains(failing, x.Policy) {
					failed[place(x.Policy, s.Member, aggregate.Kind(s.Kind), s.Namespace, s.Name, s.Key)] = true
					continue
				}
				if x.State == "Error" || x.State != "Known" && x.Policy != "hosts-strict" {
					return fmt.Errorf("%s of %+v is %s: %s", x.Policy, s, x.State, x.Message)
				}
				got.add(x.Policy, s.Member, aggregate.Kind(s.Kind), s.Namespace, s.Name, s.Key, x.Violations)
			}
			if f.Continue == "" {
				break
			}
			q.Set("continue", f.Continue)
		}
	}
	maps.DeleteFunc(got, func(_ string, m []string) bool { return len(m) == 0 })
	for _, at := range slices.Sorted(maps.Keys(want)) {
		if failed[at] || failing != nil && strings.HasPrefix(at, "keys ") {
			continue
		}
		if !reflect.DeepEqual(got[at], want[at]) {
			return fmt.Errorf("%s is %.300q, a full evaluation says %.300q", at, got[at], want[at])
		}
	}
	for at, messages := range got {
		if want[at] == nil {
			return fmt.Errorf("%s is %.300q, a full evaluation finds nothing", at, messages)
		}
	}
	return nil
}
